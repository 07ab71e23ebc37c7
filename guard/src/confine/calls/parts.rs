//! The parts of a call.

use crate::ast::{Operand, Variable};
use crate::names::{self};
use crate::report::Reason;

/// The operands of a call.
pub(crate) struct Parts<'a> {
    pub(super) returned: &'a [Operand],
    /// A function or a register.
    pub(super) callee: &'a Operand,
    pub(super) given: &'a [Operand],
    /// The label of a prototype, or of a list of functions.
    pub(super) list: Option<&'a str>,
}

pub(crate) fn parts(operands: &[Operand]) -> Result<Parts<'_>, Reason> {
    let (returned, rest) = match operands {
        [Operand::List(returned), rest @ ..] => (returned.as_slice(), rest),
        rest => (&[] as &[Operand], rest),
    };
    let (callee, given, list) = match rest {
        [callee] => (callee, &[] as &[Operand], None),
        [callee, Operand::List(given)] => (callee, given.as_slice(), None),
        [callee, Operand::Symbol(list)] => (callee, &[] as &[Operand], Some(list.as_str())),
        [callee, Operand::List(given), Operand::Symbol(list)] => {
            (callee, given.as_slice(), Some(list.as_str()))
        }
        _ => return Err(Reason::Malformed("`call` with such operands".to_owned())),
    };
    if !matches!(callee, Operand::Symbol(_) | Operand::Register(_)) {
        return Err(Reason::Malformed("a call goes to a function or through a register".to_owned()));
    }
    Ok(Parts { returned, callee, given, list })
}

/// Bytes of a parameter that is neither array nor vector.
pub(crate) fn scalar_bytes(parameter: &Variable) -> Option<u64> {
    let scalar = parameter.vector == 1 && parameter.dimensions.is_empty();
    names::type_bytes(parameter.ty).filter(|bytes| scalar && matches!(bytes, 1 | 2 | 4 | 8))
}
