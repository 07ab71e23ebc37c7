//! The opcode table.
use crate::report::Reason;
/// Why an opcode is refused.
pub(crate) fn refusal(_opcode: &str) -> Option<Reason> {
    None
}
