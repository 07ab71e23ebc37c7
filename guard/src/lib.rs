//! PTX in, confined and verified PTX out.

pub mod ast;
pub mod limits;
pub mod tokens;

mod parse;
mod print;
mod report;
mod table;

pub use parse::parse;
pub use print::print;
pub use report::{Finding, Reason, Report};
