//! `libcufft.so` for programs without NVIDIA's: the transforms are the service's (`bulkhead_cufft`).
//!
//! The library has no session and computes nothing. It keeps plans, gives the service the allocations that transforms are
//! about, and has each transform executed in the order of the program's stream: at once where the stream is idle and the
//! transform small, else by a host function in the stream, so that the program's thread waits for nothing.
//!
//! # Trust
//! The service is trusted with what the program gives it, and no more. The program is trusted with itself: this library is
//! part of it, and whatever it says, the service checks.

#[expect(unsafe_code, reason = "the C symbols of cuFFT")]
mod abi;
mod buffers;
mod execute;
mod link;
mod plans;
mod report;
mod shapes;
