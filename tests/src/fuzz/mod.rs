//! Hostile connections by the thousand: a fuzzer that speaks `rpc.capnp` and knows the schema.
//!
//! Each connection is the work of an *attacker*, whose choices follow from a seed and the connection's number: it
//! calls every method of every interface it has come to hold, on capabilities and on answers that are still to
//! come, learns the kernel's numbers from its answers, and breaks the rules of every kind now and then. A *campaign*
//! runs many of them, several at a time, beside a neighbour that asks whether the kernel still answers, and stops
//! between rounds to see whether anything is left of them.

mod arguments;
mod attacker;
pub mod campaign;
pub mod coverage;
pub mod dice;
pub mod faulty;
mod guide;
mod harvest;
pub mod message;
pub mod neighbour;
mod offer;
pub mod schema;
pub mod untyped;
mod wire;

pub use campaign::{Campaign, Failure, Report, Target};
