//! The kernel against an executor without a device, and against clients of every kind.

mod control;
mod fake;
mod harness;
mod hostile;
mod images;
mod loss;
mod memory;
mod sequences;
