//! What both ends of the cuFFT service speak: shapes of transforms, messages, and the calls of the CUDA driver they need.
//!
//! A *caller* is a program with the drop-in library (`library/`). A *worker* is a process of the service's own for that
//! caller, and a session of its own: it reaches the *buffers* that its caller has given it, by CUDA's IPC handles, and no
//! other memory of anybody's. A *plan* is a shape that a worker has prepared; it is named by a slot of its connection, so
//! that no caller can name another's.
//!
//! # Invariants
//! 1. A [`Shape`] that exists was checked: no product or sum over it overflows, whoever made it up.
//! 2. No transform runs whose extent does not lie in the buffer that it names.
//! 3. A message has one size, and says nothing but numbers: what a caller sends costs no memory.

#[expect(unsafe_code, reason = "calls the CUDA driver")]
pub mod driver;
pub mod shape;
pub mod socket;
pub mod status;
pub mod wire;

pub use driver::Driver;
pub use shape::{Kind, Layout, Shape, Side};
pub use status::{Refused, Status};

/// What a caller says at the module's socket to get a worker, and which version of the messages it speaks.
pub const WORDS: &str = "transforms 1";
/// What a worker answers once it serves; else the answer is a refusal, as [`bulkhead_module::door`] has it.
pub const SERVES: &str = "serves";
/// Plans of a caller at a time: as many as PyTorch keeps, and as many again.
pub const PLANS_MAX: usize = 8192;
/// Buffers of a caller that its worker has open at a time.
pub const BUFFERS_MAX: usize = 256;
