//! What may be known of registers, what instructions and tests make of that, and what an access rests on.
//!
//! The verifier and the rewriter both compute by it. Nothing here goes from one statement to another: that is what the
//! inference ([`crate::facts`]) and the checker ([`crate::verify`]) do, each in its own way.

pub(crate) mod number;
pub(crate) mod refine;
pub(crate) mod transfer;
pub(crate) mod value;

pub(crate) use transfer::{Bounding, Known};
pub(crate) use value::{Proof, Root, SharedKey};
