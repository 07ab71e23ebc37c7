//! The kernel against an executor without a device, and against clients of every kind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod control;
mod deadlines;
mod fair;
mod fake;
mod handed;
mod harness;
mod hostile;
mod images;
mod ledger;
mod lending;
mod loss;
mod memory;
mod modules;
mod passed;
mod places;
mod programs;
mod revoking;
mod sequences;
mod sharing;
mod standby;
mod swapping;
mod terms;
