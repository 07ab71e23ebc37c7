//! A device that executes PTX on the CPU.
//!
//! It means what the real device means: the same addresses and mappings, the same launches and streams,
//! and the same faults, which end the context. It is the default where there is no GPU, and the test bed
//! for everything above it.
//!
//! A *program* is an entry decoded once into operations with register numbers. The *interpreter* runs them; for
//! entries that run much, *compiled code* does, and leaves the rest to the interpreter. A *warp* runs 32 lanes of
//! it at a time; a *group* is the lanes of a warp that stand at one place. A *span* is a run of mappings of
//! one piece of memory.
//!
//! # Invariants
//! 1. A fault ends the context with its entry, line and address, and [`Error::Lost`](bulkhead_gpu::Error)
//!    is all that later calls answer.
//! 2. What is not supported is refused when the image is loaded, never found out while a kernel runs.
//! 3. Device and host memory are only touched through `memory`'s checked, atomic accesses, or by compiled code
//!    through translations that `memory` keeps, so kernels, copies and other processes may race without a data
//!    race of Rust's.
//! 4. A launch whose threads all wait for each other ends the context; it does not hang.
//!
//! # What differs from an NVIDIA GPU
//! Approximate functions are more exact; atomic operations are all sequentially consistent; shared memory keeps
//! what any earlier block left in it, as there, but registers and local memory only what one of the same launch did;
//! `%clock64` counts nanoseconds.
//!
//! # Trusts
//! Its caller, the executor, as [`bulkhead_gpu`] says: above all that registered host memory stays mapped.

mod alu;
mod code;
mod compiled;
mod decode;
mod device;
mod exec;
mod fault;
mod gpu;
mod health;
mod inspect;
mod matrix;
mod memory;
mod pool;
mod profile;
mod room;
mod sanitize;
mod stream;
mod wire;

pub use compiled::{Engine, GangCounts};
pub use gpu::{Options, SoftGpu};
pub use inspect::{Escape, Inspector, Rules, Wrong, YIELD};
pub use profile::{
    Counts, Event, Kernel, Profiler, REPORT_BYTES_MAX, Report, Row, Traffic, What, text_number,
};
pub use sanitize::{Finding, Findings, Leak, Mistake, Other, Sanitizer, Tool};
pub use wire::Malformed;
