//! Parameters that a fast version bounds.
//!
//! The text ends a thread where a word of a parameter is more than the bound, so that behind that it is what the text says
//! whatever a launch gives. A launch that gives more is none of the fast version's.

use crate::ast::{AddressBase, Operand, Statement};
use crate::names::Class;
use crate::print::Text;
use crate::values::Root;

/// How many lines stand before the load of the tenant's.
pub(crate) const LENGTH: usize = 3;

/// The word that is bounded here and loaded behind that, and what it is at most.
pub(crate) fn parse(statements: &[Statement]) -> Option<(Root<'_>, u32)> {
    let at = |index: usize| match statements.get(index) {
        Some(Statement::Instruction(found)) => Some(found),
        _ => None,
    };
    let [Operand::Register(to), Operand::Address(address)] = at(LENGTH)?.operands.as_slice() else {
        return None;
    };
    let AddressBase::Symbol(parameter) = &address.base else { return None };
    let Operand::Integer(most) = at(1)?.operands.get(2)? else { return None };
    let most = u32::try_from(*most).ok().filter(|most| i32::try_from(*most).is_ok())?;
    matches!(Class::parse(to), Some((Class::Word, _))).then_some(())?;
    let from = Text(&Operand::Address(address.clone())).to_string();
    let lines = [
        format!("ld.param.u32 %bh_lo, {from}"),
        format!("setp.gt.u32 %bh_q, %bh_lo, {most}"),
        "@%bh_q exit".to_owned(),
        format!("ld.param.u32 {to}, {from}"),
    ];
    let same =
        lines.iter().enumerate().all(|(index, line)| at(index).is_some_and(|found| Text(found).is(line)));
    same.then_some((Root { parameter, offset: address.offset }, most))
}
