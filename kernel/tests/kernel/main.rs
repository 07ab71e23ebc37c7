//! The kernel against an executor without a device, and against clients of every kind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod control;
mod fake;
mod harness;
mod hostile;
mod images;
mod loss;
mod memory;
mod sequences;
