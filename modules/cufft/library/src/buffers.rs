//! The allocations that the worker has open, by what opens them. A handle names one allocation for ever, so that memory
//! that was freed and allocated again is another.

use std::{collections::HashMap, sync::Arc};

use bulkhead_cufft::{
    BUFFERS_MAX, Driver, Refused, Status,
    driver::MemoryHandle,
    wire::{BufferSlot, Place, Request},
};

use crate::link::Link;

/// A slot that is not used again as long as somebody has this.
pub(crate) type Held = Arc<BufferSlot>;

struct Open {
    slot: Held,
    used: u64,
}

/// What is open.
#[derive(Default)]
pub(crate) struct Buffers {
    open: HashMap<MemoryHandle, Open>,
    clock: u64,
}

/// Has the worker open what an address lies in, and tells where that is.
pub(crate) fn place(link: &Link, driver: &Driver, address: u64) -> Result<(Held, Place), Refused> {
    let foreign = |what: &str, error: &dyn std::fmt::Display| {
        Refused::new(
            Status::InvalidValue,
            format!(
                "{what} ({error}): transform memory of cudaMalloc, cudaMallocAsync, cudaMallocManaged or cudaMallocHost"
            ),
        )
    };
    let (start, _) = driver.range(address).map_err(|error| foreign("no memory of the device's", &error))?;
    let handle = driver.export(start).map_err(|error| foreign("memory that cannot be given", &error))?;
    let mut buffers = link.buffers.lock();
    buffers.clock += 1;
    let clock = buffers.clock;
    let slot = match buffers.open.get_mut(&handle) {
        Some(open) => {
            open.used = clock;
            Arc::clone(&open.slot)
        }
        None => {
            let slot = Arc::new(buffers.room()?);
            let opened = link.ask(&Request::Open(*slot, handle));
            // What was freed meanwhile is open there still, perhaps where this would be.
            opened.or_else(|_| {
                buffers.close_idle(link);
                link.ask(&Request::Open(*slot, handle))
            })?;
            buffers.open.insert(handle, Open { slot: Arc::clone(&slot), used: clock });
            slot
        }
    };
    let place = Place { buffer: *slot, offset: address - start };
    Ok((slot, place))
}

impl Buffers {
    /// Has the worker close what no transform waits for.
    pub(crate) fn close_idle(&mut self, link: &Link) {
        self.open.retain(|_, open| {
            let idle = Arc::strong_count(&open.slot) == 1;
            // Where the worker is gone nothing is open.
            !idle || link.ask(&Request::Close(*open.slot)).is_err()
        });
    }

    /// A slot that nothing is in, or the one whose buffer was not used for longest.
    fn room(&mut self) -> Result<BufferSlot, Refused> {
        if self.open.len() < BUFFERS_MAX {
            let taken: Vec<usize> = self.open.values().map(|open| open.slot.0).collect();
            let free = (0..BUFFERS_MAX).find(|slot| !taken.contains(slot));
            return free.map(BufferSlot).ok_or_else(full);
        }
        let unused = self.open.iter().filter(|(_, open)| Arc::strong_count(&open.slot) == 1);
        let oldest = unused.min_by_key(|(_, open)| open.used).map(|(handle, _)| *handle).ok_or_else(full)?;
        self.open.remove(&oldest).map(|open| *open.slot).ok_or_else(full)
    }
}

fn full() -> Refused {
    Refused::new(Status::AllocFailed, format!("{BUFFERS_MAX} buffers wait for transforms: synchronize"))
}
