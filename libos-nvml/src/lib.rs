//! `libnvidia-ml.so.1` on Bulkhead: NVML as PyTorch, vLLM, NCCL and `nvidia-ml-py` call it.
//!
//! It tells of the *session*: the memory that the program may use and has in use, to the byte as `cuMemGetInfo` tells it, and
//! the program's own process. What belongs to the card as a whole (utilization, power, temperature, clocks) or to
//! other sessions is answered with `NVML_ERROR_NOT_SUPPORTED` (docs/decisions/0065-nvml-tells-of-the-session.md).
//!
//! A process that has a session is told of it by our `libcuda.so.1` in the same process (`abi::session`). Any other process
//! asks the kernel, on a connection that ends with the question, what a session would find that is opened now; none is opened.
//!
//! # Invariants
//! 1. No handle that a program passes is ever dereferenced: a device's handle is a number that is compared.
//! 2. Nothing is written behind the size that a structure's version, or a count, says; an unknown version is refused first.
//! 3. Every function that NVML 13 declares is exported. What is not served writes to none of its arguments.
//! 4. No lock is held while the kernel is asked, so a process that was forked may ask too.
//!
//! It trusts the program it lives in: this is the client's own code, and the kernel trusts none of it.

#[expect(unsafe_code, reason = "the C symbols of NVML, and the pointers that C programs pass")]
mod abi;
mod device;
mod init;
mod links;
mod memory;
mod seen;
mod status;
mod system;
mod trace;

#[cfg(test)]
mod support;
