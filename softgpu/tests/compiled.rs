//! The tests of the other files once more, in compiled code. Those are left out that load thousands of texts and run each
//! of them once: compiling them takes minutes.
#![allow(clippy::duplicate_mod, reason = "each file brings the harness along, as it does alone")]

#[path = "alone.rs"]
mod alone;
#[path = "barriers.rs"]
mod barriers;
#[path = "divergence.rs"]
mod divergence;
#[path = "grids.rs"]
mod grids;
#[path = "guarded.rs"]
mod guarded;
#[path = "mbarriers.rs"]
mod mbarriers;
#[path = "memory.rs"]
mod memory;
#[path = "programs.rs"]
mod programs;
#[path = "sharing.rs"]
mod sharing;
#[path = "streams.rs"]
mod streams;
#[path = "together.rs"]
mod together;
#[path = "triton.rs"]
mod triton;
