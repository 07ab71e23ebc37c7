//! PTX: the text as tokens, as a tree and printed again, and what each instruction is.
//!
//! Guard, verifier, linker and software GPU read PTX by this crate alone, so that none of them takes a text for something
//! else than the others do. It knows PTX's shape and its instructions, and nothing of windows or of what is confined.
//! All it reads is hostile: everything that a client can make large has a limit ([`limits`]), and nothing here recurses on
//! what a client writes.

pub mod ast;
pub mod limits;
pub mod maps;
pub mod parse;
pub mod print;
pub mod report;
pub mod table;
pub mod tokens;

mod span;

pub use parse::{parse, parse_recovering};
pub use print::print;
pub use report::{Finding, Reason, Report};
