//! The trusted process: who may do what on a GPU, and who has used how much.
//!
//! The kernel gives clients sessions, buffers and images as capabilities over Cap'n Proto, keeps the tables and the
//! ledger, and has an executor process do what touches the device. It never loads the GPU driver, maps no memory that
//! a client can write but the word that tells a client its session is over, and parses nothing that a client sends
//! but the RPC messages themselves.
//!
//! A *connection* is one client process. A session is *over* from the moment something ended it and *gone* once
//! everything it had was given back. An *incarnation* is one executor process.
//!
//! # Where things are
//! | Module | What is there |
//! |---|---|
//! | `rpc` | nobody names it but who serves: what clients and the operator call, one file for each interface; the limits around it (`firewall`) |
//! | `session` | one client's world: its memory, its code, the way out to host memory and back, the way to a standby |
//! | `registry` | the tree of capabilities, the objects that they name, revocations under way; it names no session |
//! | `executor_proxy` | executors as the kernel knows them: started, asked, watched, replaced |
//! | `compile` | compile processes, and the texts that are kept |
//! | `modules` | protected modules: those that may be claimed, and those that sessions have |
//! | `ledger`, `principals` | what is charged to accounts; who is behind connections, and what they may take without one |
//! | `transport` | sockets, packets, descriptors |
//! | `main.rs`, [`arguments`] | the program: `bulkhead serve` becomes it, and says all that it is told |
//!
//! # Threads and locks
//! One thread: everything runs on one `LocalSet`, so state is in cells and no borrow of one lives across an
//! `.await`. Three asynchronous mutexes put requests in a queue: a session's `loading`, a memory's `cutting`, and a
//! device's turn to swap sessions; who holds one waits for no other. A panic unwinds the task it is in: a
//! connection's ends that connection, a session keeper's that session; the supervisor's ends the kernel.
//!
//! # Invariants
//! 1. No method takes, calls or keeps a capability that a client hosts. What a client names as an argument is what this
//!    kernel serves to that client's own connection.
//! 2. Whatever a client sends, no other connection is disturbed: a typed error, or the end of its own connection.
//! 3. A call that is given up changes nothing, or finishes and has its result dropped.
//! 4. A range of device addresses is free again only after the executor has refused its names and unmapped it
//!    wherever it was mapped; a slot only after the executor has closed the session or is gone.
//! 5. What a session uses is charged before it exists and refunded after it is gone.
//! 6. An executor that is gone takes its sessions with it at once: every request and every capability of theirs
//!    answers `deviceLost`.
//! 7. A capability never outlives what it was derived from, nor the session that holds it; what was revoked is admitted
//!    nowhere, from the moment it is marked on.
//! 8. Whoever's work keeps what others took back beyond the deadline is ended; until its work is known to be gone,
//!    nobody gets that memory.
//! 9. A descriptor token is good once, for one process, for a while.
//!
//! # Trust
//! The executor's word is taken for what its device did, not for its messages' form. Compile processes and clients
//! are not trusted at all.

pub mod arguments;
mod compile;
mod config;
mod error;
mod executor_proxy;
mod faults;
mod kernel;
mod ledger;
pub mod log;
mod modules;
pub mod plain;
mod principals;
mod refusal;
mod registry;
mod rpc;
mod server;
mod session;
mod table;
mod task;
mod transport;

pub use config::{Config, ExecutorSource, Limits};
pub use error::Error;
pub use executor_proxy::Cells;
pub use modules::protected::ProtectedModule;
pub use principals::{Counted, Quota, Tenant, Whose};
pub use server::{
    Boxed, DESCRIPTOR_SOCKET, KERNEL_SOCKET, OPERATOR_SOCKET, make_room_for_descriptors, run, serve,
};
pub use transport::door::{Relay, SocketOptions, socket_options};
pub use transport::sys::{close_inherited, keep_out};
