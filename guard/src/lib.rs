//! PTX in, confined and verified PTX out.

pub mod ast;
pub mod limits;
pub mod tokens;

mod access;
mod confine;
mod names;
mod operands;
mod parse;
mod print;
mod report;
mod table;
mod verify;

pub use confine::confine;
pub use names::HIDDEN_PARAMETERS;
pub use parse::parse;
pub use print::print;
pub use report::{Finding, Reason, Report};
pub use verify::{Verified, VerifiedEntry, verify};
