//! Block storage for Rust services: what kernels reach through the gates of the module `storage`, host code reaches through a ring
//! in memory that it shares with the host half.
//!
//! The host half checks each request with [`rules::check`], which says what the gate says, builds the same command, and submits it to
//! the same controller (`docs/decisions/0055-storage-from-the-host.md`).
//!
//! ```no_run
//! use bulkhead_module::door::socket_of;
//! use bulkhead_storage::Storage;
//!
//! # fn main() -> Result<(), bulkhead_client::Error> {
//! let socket = socket_of(&bulkhead_client::default_socket(), "storage");
//! let mut storage = Storage::open(&socket, "write:scratch")?;
//! storage.write(0, 0, &[7; 4096])?;
//! storage.flush(0)?;
//! let mut found = vec![0; 4096];
//! storage.read(0, 0, &mut found)?;
//! # Ok(())
//! # }
//! ```

mod client;
pub mod rules;
pub mod wire;

pub use client::Storage;
