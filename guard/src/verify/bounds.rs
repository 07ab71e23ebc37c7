//! Parameters that a fast version bounds.
//!
//! The text loads a word of a parameter and takes no more of it than the bound, so that it is what it says whatever a launch
//! gives. A launch of which the word is more would do something else than the tenant wrote, and is none of the
//! fast version's.

use crate::ast::{AddressBase, Operand, Statement};
use crate::facts::Root;
use crate::names::Class;
use crate::print::Text;

/// The word that is loaded here and bounded by the next instruction, and what it is at most.
pub(super) fn parse(statements: &[Statement]) -> Option<(Root<'_>, u32)> {
    let [Statement::Instruction(load), Statement::Instruction(least), ..] = statements else { return None };
    let [_, Operand::Address(address)] = load.operands.as_slice() else { return None };
    let [Operand::Register(to), _, Operand::Integer(most)] = least.operands.as_slice() else { return None };
    let AddressBase::Symbol(parameter) = &address.base else { return None };
    let most = u32::try_from(*most).ok().filter(|most| i32::try_from(*most).is_ok())?;
    matches!(Class::parse(to), Some((Class::Word, _))).then_some(())?;
    let at = Operand::Address(address.clone());
    let lines = [format!("ld.param.u32 %bh_lo, {}", Text(&at)), format!("min.u32 {to}, %bh_lo, {most}")];
    let same = lines.iter().zip([load, least]).all(|(line, found)| Text(found).is(line));
    same.then_some((Root { parameter, offset: address.offset }, most))
}
