//! PTX in, confined and verified PTX out. (being written)
pub mod ast;
