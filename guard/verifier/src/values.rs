//! What may be known of registers, what instructions and tests make of that, and what an access rests on.
//!
//! The verifier and the rewriter both compute by it. Nothing here goes from one statement to another: that is what the
//! inference (`guard/src/facts/mod.rs`) and the checker ([`crate::numbers`]) do, each in its own way.

pub mod number;
pub mod refine;
pub mod transfer;
pub mod value;

pub use transfer::{Bounding, Known};
pub use value::{Proof, Root, SharedKey};

#[cfg(test)]
pub(crate) mod tests;
