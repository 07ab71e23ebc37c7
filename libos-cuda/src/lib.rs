//! `libcuda.so.1` on Bulkhead: NVIDIA's runtime and libraries run on top of it unchanged.
//!
//! The names here are CUDA's: context, stream, event, module, function. A program's process has one session with
//! the kernel; contexts are book-keeping over it. Queries are answered here, memory and code are asked for by
//! remote call, and work (launches, copies, fills, events) goes into the session's ring.
//!
//! # Invariants
//! 1. No handle that a program passes is ever dereferenced: handles are tagged indices (`handle`), looked up in
//!    tables of ours. Pointers are dereferenced where the call's documentation says what they point to, in `abi`.
//! 2. Work of the legacy null stream orders both ways with the work of every blocking stream (`order`).
//! 3. A launch takes no lock here, and allocates nothing, but where its stream captures.
//! 4. A process forked off one that holds a session gets `CUDA_ERROR_NOT_INITIALIZED`, and never its parent's session.
//! 5. What is not there answers an error, never a false success.
//!
//! It trusts the program it lives in: this is the client's own code, and the kernel trusts none of it.

#[expect(unsafe_code, reason = "the C symbols of libcuda, and the pointers that C programs pass")]
mod abi;
mod ahead;
mod array;
mod attributes;
mod batch;
mod calls;
mod capture;
mod check;
mod context;
mod copy;
mod copy_shaped;
mod descriptor;
mod device;
mod driver;
mod event;
mod faults;
mod fill;
mod freed;
mod function;
mod gates;
mod graph;
mod handle;
mod handle_tables;
mod handshake;
mod host_work;
mod image;
mod ipc;
mod isolated;
mod launch;
mod library;
mod limits;
mod linker;
mod logs;
mod machine_code;
mod managed;
mod map;
mod memory;
mod module;
mod moving;
mod occupancy;
mod order;
mod pointer;
mod pool;
mod presence;
mod printf;
mod priorities;
mod proc_address;
mod profile;
mod query;
mod register;
mod remote_calls;
mod report;
mod reported;
mod sanitize;
mod status;
mod storage;
mod stream;
mod texture;
mod told;
mod vmm;

#[cfg(test)]
mod support;
#[cfg(test)]
mod tests;
