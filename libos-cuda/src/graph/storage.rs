//! Memory that graphs allocate and free.
//!
//! A node that allocates has its memory, and so its address, from when it is made, for as long as the graph, an executable
//! graph of it or a node that frees it lives. Whether the program may use it is another matter: from a launch of the node on
//! until it is freed, by a node, a stream or `cuMemFree`. Natively a graph's memory is shared with others whose time is
//! another; here each node's is its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::parameters::{add, work_of};
use super::{Graph, Work};
use crate::abi::{AllocationNode, InOut, InSlice, Out, Room};
use crate::device::Buffer;
use crate::driver::{Driver, driver};
use crate::memory::What;
use crate::query::of;
use crate::report;
use crate::sanitize;
use crate::status::{Answer, Status};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_LOCATION_TYPE_DEVICE`.
const PINNED: u32 = 1;
const ON_DEVICE: u32 = 1;

/// Memory of a node.
pub(crate) struct Storage {
    driver: &'static Driver,
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

impl Storage {
    /// New memory.
    pub(crate) fn new(driver: &'static Driver, bytes: u64) -> Result<Arc<Storage>, Status> {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let buffer = driver.session.allocate(bytes).map_err(|error| Status::of(&error))?;
        let address = buffer.address();
        let bytes = buffer.bytes().min(bytes);
        let storage = Arc::new(Storage { driver, address, bytes });
        let stored = Stored { buffer, storage: Arc::downgrade(&storage) };
        let stores = &driver.graphs.stores;
        let all = stores.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        stores.most.fetch_max(all, Ordering::Relaxed);
        driver.memory.insert(address, bytes, What::OfGraph(stored), 0)?;
        Ok(storage)
    }

    /// Where it is.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// A launch comes to the node that allocates it.
    pub(super) fn launch(self: &Arc<Self>) -> Answer {
        let mut launched = self.driver.graphs.stores.launched.lock();
        if launched.insert(self.address, self.clone()).is_some() {
            return Err(Status::INVALID_VALUE);
        }
        drop(launched);
        sanitize::allocated(self.address, self.bytes);
        Ok(())
    }

    /// Whether it was launched and not freed.
    pub(super) fn is_launched(&self) -> bool {
        self.driver.graphs.stores.launched.lock().contains_key(&self.address)
    }

    /// Frees it.
    pub(super) fn free(&self) -> Answer {
        free(self.driver, self.address)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.driver.graphs.stores.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // Its own entry, which nobody else takes out. The session keeps the memory until running work is done.
        self.driver.memory.take(self.address, |what| matches!(what, What::OfGraph(_))).ok();
    }
}

/// Frees what a graph allocated, which may be the end of it. What a stream was given before is done with it first.
pub(crate) fn free(driver: &Driver, address: u64) -> Answer {
    let launched = driver.graphs.stores.launched.lock().remove(&address).ok_or(Status::INVALID_VALUE)?;
    sanitize::freed(address);
    // Without the lock.
    drop(launched);
    Ok(())
}

/// A graph's memory at an address.
pub(crate) fn at(driver: &Driver, address: u64) -> Option<Arc<Storage>> {
    let (start, _, region) = driver.memory.region(address)?;
    match &region.what {
        What::OfGraph(stored) if start == address => stored.storage.upgrade(),
        _ => None,
    }
}

impl Graph {
    /// Whether nodes of it, or of graphs in it, allocate or free: such a graph is neither copied nor cut.
    pub(super) fn has_storage(&self) -> bool {
        self.lock().iter().any(|(_, node)| match &node.work {
            Work::Allocate(_) | Work::Free(_) => true,
            Work::Child(child) => child.graph().has_storage(),
            _ => false,
        })
    }
}

/// Memory as a caller describes it.
pub(super) fn described(driver: &'static Driver, node: &AllocationNode) -> Result<Arc<Storage>, Status> {
    if node.kind != PINNED || node.location.kind != ON_DEVICE || node.handle_types != 0 {
        let why = "graphs allocate memory of the device, which is not shared with other processes";
        report::refused("cuGraphAddMemAllocNode", why);
        return Err(Status::NOT_SUPPORTED);
    }
    of(node.location.id)?;
    Storage::new(driver, node.bytes as u64)
}

pub(crate) fn add_allocation(
    to: Out<u64>,
    graph: u64,
    before: InSlice<u64>,
    count: usize,
    parameters: InOut<AllocationNode>,
) -> Answer {
    let mut told = parameters.get();
    add(&to, graph, &before, count, |driver, _| {
        let storage = described(driver, &told)?;
        told.address = storage.address();
        Ok(Work::Allocate(storage))
    })?;
    parameters.set(told);
    Ok(())
}

pub(crate) fn add_freeing(
    to: Out<u64>,
    graph: u64,
    before: InSlice<u64>,
    count: usize,
    address: u64,
) -> Answer {
    add(&to, graph, &before, count, |driver, _| {
        at(driver, address).map(Work::Free).ok_or(Status::INVALID_VALUE)
    })
}

pub(crate) fn allocation_parameters(handle: u64, to: Out<AllocationNode>) -> Answer {
    let Work::Allocate(storage) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    to.set(AllocationNode::new(PINNED, ON_DEVICE, storage.bytes, storage.address));
    Ok(())
}

pub(crate) fn freeing_parameters(handle: u64, to: Out<u64>) -> Answer {
    let Work::Free(storage) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    to.set(storage.address);
    Ok(())
}

/// `CUgraphMem_attribute`: bytes that graphs use now, and at most; bytes that are kept for them, which are the same.
pub(crate) fn attribute(device: i32, attribute: u32, to: Room) -> Answer {
    of(device)?;
    let stores = &driver()?.graphs.stores;
    let value = match attribute {
        0 | 2 => &stores.bytes,
        1 | 3 => &stores.most,
        _ => return Err(Status::INVALID_VALUE),
    };
    to.write(&value.load(Ordering::Relaxed).to_ne_bytes());
    Ok(())
}

/// What they were at most can be set to what they are.
pub(crate) fn set_attribute(device: i32, attribute: u32, value: Room) -> Answer {
    of(device)?;
    let stores = &driver()?.graphs.stores;
    if !matches!(attribute, 1 | 3) || value.read_u64() != 0 {
        return Err(Status::INVALID_VALUE);
    }
    stores.most.store(stores.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    Ok(())
}

/// Nothing is kept back that no graph has.
pub(crate) fn trim(device: i32) -> Answer {
    of(device).map(drop)
}
