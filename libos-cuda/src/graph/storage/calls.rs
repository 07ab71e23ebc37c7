//! Calls about memory that graphs allocate and free.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::Work;
use super::super::parameters::{add, work_of};
use super::{Storage, Stored, at};
use crate::abi::{AllocationNode, InOut, InSlice, Out, Room};
use crate::driver::{Driver, driver};
use crate::memory::What;
use crate::query::of;
use crate::report;
use crate::status::{Answer, Status};

impl Storage {
    /// New memory.
    pub(crate) fn new(driver: &'static Driver, bytes: u64) -> Result<Arc<Storage>, Status> {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let buffer = driver.session.allocate(bytes).map_err(|error| Status::of(&error))?;
        let address = buffer.address();
        let bytes = buffer.bytes().min(bytes);
        let storage =
            Arc::new(Storage { stores: &driver.graphs.stores, memory: &driver.memory, address, bytes });
        let stored = Stored { buffer, storage: Arc::downgrade(&storage) };
        let stores = &driver.graphs.stores;
        let all = stores.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        stores.most.fetch_max(all, Ordering::Relaxed);
        driver.memory.insert(address, bytes, What::OfGraph(stored), 0)?;
        Ok(storage)
    }
}

/// Frees what a graph allocated, which may be the end of it. What a stream was given before is done with it first.
pub(crate) fn free(driver: &Driver, address: u64) -> Answer {
    driver.graphs.stores.free(address)
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_LOCATION_TYPE_DEVICE`.
const PINNED: u32 = 1;
const ON_DEVICE: u32 = 1;

/// Memory as a caller describes it.
pub(in crate::graph) fn described(
    driver: &'static Driver,
    node: &AllocationNode,
) -> Result<Arc<Storage>, Status> {
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
        at(&driver.memory, address).map(Work::Free).ok_or(Status::INVALID_VALUE)
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
