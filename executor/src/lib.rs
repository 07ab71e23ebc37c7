//! The only process that touches a GPU.
//!
//! An executor owns one context on one device and carries out what clients put into their rings, after
//! checking every record against a *bind table* that only the kernel changes. Per session there are two
//! threads: the *pump* takes records and submits work, the *control* thread carries out what the kernel asks.
//! The main thread reads the kernel's requests and hands them on; one thread fills slots ahead, and the *reaper*
//! gives back what can only be given back in calls that wait for every running kernel.
//!
//! # Where things are
//! | Module | What is there |
//! |---|---|
//! | `control` | requests of the kernel: read, decoded, carried out by a thread of each session |
//! | `images` | compile processes, loading, the cache of machine code |
//! | `launch` | from a record in a ring to work on the device |
//! | `memory` | slots, physical memory, what is mapped where, swapping |
//! | `modules` | protected modules, and what sessions are granted of them |
//! | `moments` | the gate, who waits for a moment when no kernel runs, who brings one about |
//! | `session` | what a session is, and what its handles name |
//! | `watch` | who ends work, who waits for it, who gives back what it leaves |
//!
//! # Invariants
//! 1. A record reaches the device only through a binding of its own session, looked up when it is submitted.
//! 2. No page of a session's slot changes while that session has work submitted ([`bulkhead_mm::Pause`]), and no
//!    lock is held while that is waited for.
//! 3. A session never makes another wait: pumps do not share locks, a wait on a fence is held here, never on the
//!    device, and no thread that serves a session makes a call that waits for a neighbour's kernel.
//! 4. Only what was made of PTX that the verifier has passed in this process is loaded, and where that is machine code,
//!    only what the linter has passed for that text.
//! 5. When the context is lost the process says so to every session and ends; nothing is half done.
//! 6. Memory that goes back to the device was scrubbed, or is scrubbed, or overwritten whole, before anybody gets it.
//!
//! # Locks
//! A session's state; then one of those that all sessions share, for a look (offered entries, pieces, slots, an
//! entry's dynamic shared memory); then the link's send lock. No thread holds two sessions' states: what one session
//! needs of another is found without its state (`memory/piece.rs`, `executor.rs`).
//!
//! # Trusts
//! The kernel, the verifier, the device's driver and its assembler. Not the clients, not the compile process.

mod control;
mod device;
mod executor;
mod images;
mod launch;
mod memory;
mod modules;
mod moments;
pub mod sandbox;
mod session;
mod testbed;
mod watch;

pub use control::{lost::EXIT_DEVICE_LOST, server::run};
pub use device::{Backend, Guard, Options};
pub use images::{
    cache::{CACHE_BYTES, Cache, CacheContents, CacheOptions},
    compiler,
};
pub use testbed::{Loaded, Shape, Testbed, Version};
pub use watch::{patience::Patience, sanitize::Sanitize};
