//! Memory that graphs allocate and free.
//!
//! A node that allocates has its memory, and so its address, from when it is made, for as long as the graph, an executable
//! graph of it or a node that frees it lives. Whether the program may use it is another matter: from a launch of the node on
//! until it is freed, by a node, a stream or `cuMemFree`. Natively a graph's memory is shared with others whose time is
//! another; here each node's is its own.

mod calls;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

pub(crate) use calls::*;

use crate::device::Buffer;
use crate::memory::{Memory, What};
use crate::sanitize;
use crate::status::{Answer, Status};

/// Memory of a node.
pub(crate) struct Storage {
    stores: &'static Stores,
    memory: &'static Memory,
    address: u64,
    bytes: u64,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} bytes at {:#x}", self.bytes, self.address)
    }
}

/// What [`crate::memory::What`] has of it.
pub(crate) struct Stored {
    pub(crate) buffer: Buffer,
    storage: Weak<Storage>,
}

/// All of the process.
#[derive(Default)]
pub(crate) struct Stores {
    /// What was launched and not freed.
    launched: Mutex<HashMap<u64, Arc<Storage>>>,
    bytes: AtomicU64,
    most: AtomicU64,
}

impl Stores {
    /// Frees what a graph allocated, which may be the end of it. What a stream was given before is done with it first.
    fn free(&self, address: u64) -> Answer {
        let launched = self.launched.lock().remove(&address).ok_or(Status::INVALID_VALUE)?;
        sanitize::freed(address);
        // Without the lock.
        drop(launched);
        Ok(())
    }
}

impl Storage {
    /// Where it is.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// A launch comes to the node that allocates it.
    pub(super) fn launch(self: &Arc<Self>) -> Answer {
        let mut launched = self.stores.launched.lock();
        if launched.insert(self.address, self.clone()).is_some() {
            return Err(Status::INVALID_VALUE);
        }
        drop(launched);
        sanitize::allocated(self.address, self.bytes);
        Ok(())
    }

    /// Whether it was launched and not freed.
    pub(super) fn is_launched(&self) -> bool {
        self.stores.launched.lock().contains_key(&self.address)
    }

    /// Frees it.
    pub(super) fn free(&self) -> Answer {
        self.stores.free(self.address)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.stores.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // Its own entry, which nobody else takes out. The session keeps the memory until running work is done.
        self.memory.take(self.address, |what| matches!(what, What::OfGraph(_))).ok();
    }
}

/// A graph's memory at an address.
pub(crate) fn at(memory: &Memory, address: u64) -> Option<Arc<Storage>> {
    let (start, _, region) = memory.region(address)?;
    match &region.what {
        What::OfGraph(stored) if start == address => stored.storage.upgrade(),
        _ => None,
    }
}
