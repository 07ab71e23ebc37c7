//! Where the commands of a namespace execute: in RAM, by a pool of threads, or by io_uring.
//!
//! An *engine* is a store of a fixed size, and the requests on it that are in flight. It owns their buffers until it
//! gives them back with [`Done`], so that nobody else reads or writes what a device or the system may touch.
//!
//! # Invariants
//! 1. Each request that was taken is given back by [`Engine::poll`] exactly once, in any order.
//! 2. A flush makes durable each write that was given back before the flush was submitted; a write with
//!    [`Durability::Forced`] is durable when it is given back.
//! 3. A request is all done or has an error: short transfers are continued, interrupted calls repeated.
//! 4. Dropping an engine waits for what the system still works on.

mod buffer;
mod file;
mod ram;
#[expect(unsafe_code, reason = "requests to io_uring, whose buffers the system reads and writes")]
mod ring;
#[cfg(test)]
mod tests;
mod threads;
mod uring;

use std::io;

pub use buffer::{BUFFER_ALIGNMENT, Buffer};
pub use file::{Caching, Store};
pub use ram::RamEngine;
pub use threads::Threads;
pub use uring::{Unavailable, Uring, probe};

/// How many requests an engine on a file takes at most.
pub const DEPTH_MAX: usize = 4096;
/// How many threads a pool has at most.
pub const THREADS_MAX: usize = 256;

/// When a write is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After the next flush.
    Flushed,
    /// When it completes (force unit access).
    Forced,
}

/// What to do. Offsets and lengths are those of the store, in bytes; the submitter keeps them within it.
#[derive(Debug)]
pub enum Operation {
    /// Fill the whole buffer from this offset.
    Read {
        /// Where the data begins.
        offset: u64,
        /// Where it goes.
        buffer: Buffer,
    },
    /// Write the whole buffer at this offset.
    Write {
        /// Where the data goes.
        offset: u64,
        /// The data.
        buffer: Buffer,
        /// When it is durable.
        durability: Durability,
    },
    /// Make durable what was written.
    Flush,
}

/// One request.
#[derive(Debug)]
pub struct Request {
    /// The submitter's name for it.
    pub tag: u64,
    /// What to do.
    pub operation: Operation,
}

/// A request that is done.
#[derive(Debug)]
pub struct Done {
    /// The submitter's name for it.
    pub tag: u64,
    /// What was to do, with its buffer.
    pub operation: Operation,
    /// How it went. After an error a read's buffer holds anything, a write's range on the store old or new bytes.
    pub result: io::Result<()>,
}

/// Executes requests on one store.
pub trait Engine: Send {
    /// What it is, for people.
    fn name(&self) -> &'static str;

    /// Size of the store.
    fn bytes(&self) -> u64;

    /// What the store holds there, where that is memory of this process: a read of it needs no request.
    fn contents(&self, _offset: u64, _bytes: usize) -> Option<&[u8]> {
        None
    }

    /// Takes a request, or gives it back where as many are in flight as may be.
    ///
    /// # Errors
    /// The request itself: the caller submits it again after a [`poll`](Self::poll).
    fn submit(&mut self, request: Request) -> Result<(), Request>;

    /// Appends requests that are done to `done`; never waits for one.
    fn poll(&mut self, done: &mut Vec<Done>);

    /// How many requests it has that were not given back.
    fn in_flight(&self) -> usize;
}

/// An engine for `store` that has `depth` requests in flight at most: io_uring where the system allows it, else a pool
/// of `threads` threads. [`Engine::name`] says which was taken, [`probe`] why.
///
/// # Errors
/// Where the system has no threads for it.
pub fn open(store: Store, depth: usize, threads: usize) -> io::Result<Box<dyn Engine>> {
    // What the probe found, another process may have used up since.
    if probe().is_ok()
        && let Ok(engine) = Uring::new(store.try_clone()?, depth)
    {
        return Ok(Box::new(engine));
    }
    Ok(Box::new(Threads::new(store, depth, threads)?))
}
