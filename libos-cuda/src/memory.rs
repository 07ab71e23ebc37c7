//! Memory of the device's and pinned memory of the host's, by address.

mod calls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

pub(crate) use calls::*;

use crate::device::{AddressRange, Buffer, DeviceRange, Freed, HostBuffer, HostSpan, Image, Stray};
use crate::freed;
use crate::graph::Stored;
use crate::ipc::Opened;
use crate::managed::Hints;
use crate::map::Map;
use crate::moving::keep;
use crate::pool::Pooled;
use crate::register::{Exchanged, Registered};
use crate::sanitize;
use crate::status::{Answer, Status};
use crate::vmm::Reached;

/// What a range of addresses is.
pub(crate) enum What {
    /// The device's memory.
    Device(Buffer),
    /// The device's, which a node of a graph allocates.
    OfGraph(Stored),
    /// Memory of the device's that is another process's.
    Opened(Opened),
    /// Memory of the device's, at an address that the program chose.
    Reached(Reached),
    /// The variables of an image.
    Variables(Image),
    /// One variable of an isolated session's image, where the driver put it.
    Foreign(DeviceRange),
    /// The host's memory, which the device copies from and to without staging; with its flags.
    Pinned(HostBuffer, u32),
    /// The program's own, which it registered.
    Registered(Registered),
    /// The host's and the device's at once.
    Managed(HostBuffer),
}

/// One allocation.
pub(crate) struct Region {
    pub(crate) what: What,
    pub(crate) context: u64,
    /// Unlike an address never used again.
    pub(crate) id: u64,
    /// What the program said of it, where it is managed.
    pub(crate) hints: Mutex<Hints>,
    /// The pool that it was allocated from.
    pub(crate) pooled: Option<Pooled>,
}

impl Region {
    /// Whether an address in it is one of managed memory.
    pub(crate) fn is_managed(&self, address: u64) -> bool {
        match &self.what {
            What::Managed(_) => true,
            What::Variables(image) => image.is_managed(address),
            What::Device(_)
            | What::OfGraph(_)
            | What::Opened(_)
            | What::Reached(_)
            | What::Foreign(_)
            | What::Pinned(..)
            | What::Registered(_) => false,
        }
    }
}

/// Where a copy or fill reads or writes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// In memory of the device's.
    Device(DeviceRange),
    /// In pinned memory.
    Pinned(HostSpan),
    /// Elsewhere in the program's memory.
    Pageable,
}

/// All allocations of the process.
pub(crate) struct Memory {
    map: RwLock<Map<Arc<Region>>>,
    next_id: AtomicU64,
    /// What was freed, where somebody is told of accesses to that.
    freed: Option<Mutex<freed::List>>,
    /// Held while memory of another process is opened or closed.
    pub(crate) opening: Mutex<()>,
    /// Held while memory of the program's is registered or given back.
    pub(crate) registering: Mutex<()>,
}

impl Memory {
    pub(crate) fn new(stray: Stray) -> Memory {
        Memory {
            map: RwLock::new(Map::new()),
            next_id: AtomicU64::new(1),
            freed: (stray == Stray::Told).then(Mutex::default),
            opening: Mutex::default(),
            registering: Mutex::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.read().is_empty()
    }

    pub(crate) fn insert(&self, start: u64, bytes: u64, what: What, context: u64) -> Answer {
        self.insert_pooled(start, bytes, what, context, None).map(drop)
    }

    /// The number that the allocation has; no other has the same.
    pub(crate) fn insert_pooled(
        &self,
        start: u64,
        bytes: u64,
        what: What,
        context: u64,
        pooled: Option<Pooled>,
    ) -> Result<u64, Status> {
        // An image's variables come with it, also where it is loaded ahead and given back if the process moves.
        if !matches!(what, What::Variables(_)) {
            keep()?;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let region = Arc::new(Region { what, context, id, hints: Mutex::default(), pooled });
        let refused = self.map.write().insert(start, bytes, region);
        if let Some(freed) = &self.freed {
            freed.lock().forget(start, bytes);
        }
        refused.map_err(|_| Status::UNKNOWN)?;
        Ok(id)
    }

    /// What `bytes` from `address` on are; an error where they begin in an allocation and end beyond it.
    pub(crate) fn place(&self, address: u64, bytes: u64) -> Result<Place, Status> {
        let map = self.map.read();
        let Some(found) = map.find(address) else { return Ok(Place::Pageable) };
        let offset = address - found.start;
        if bytes > found.bytes - offset {
            return Err(Status::INVALID_VALUE);
        }
        Ok(match &found.value.what {
            What::Device(buffer) | What::OfGraph(Stored { buffer, .. }) => {
                Place::Device(buffer.range(offset, bytes))
            }
            What::Opened(opened) => Place::Device(opened.share.range(opened.offset() + offset, bytes)),
            What::Reached(reached) => Place::Device(reached.share.range(offset, bytes)),
            What::Variables(image) => {
                let variables = image.variables().ok_or(Status::UNKNOWN)?;
                let span = variables.span(offset, bytes);
                span.map_or_else(|| Place::Device(variables.range(offset, bytes)), Place::Pinned)
            }
            What::Foreign(range) => {
                Place::Device(DeviceRange { offset: range.offset + offset, bytes, ..*range })
            }
            What::Pinned(buffer, _) | What::Managed(buffer) => Place::Pinned(buffer.span(offset, bytes)),
            What::Registered(Registered { exchanged, .. }) => {
                let span = exchanged.as_ref().and_then(|exchanged| exchanged.span(offset, bytes));
                span.map_or(Place::Pageable, Place::Pinned)
            }
        })
    }

    /// How many of `bytes` from `address` on lie in one piece. All of them, or an error of [`Memory::place`]'s, but where
    /// the program mapped several pieces side by side.
    pub(crate) fn piece(&self, address: u64, bytes: u64) -> Result<u64, Status> {
        let map = self.map.read();
        let Some(found) = map.find(address) else { return Ok(bytes) };
        let first = found.bytes - (address - found.start);
        let mut reached = first;
        let mut is_reached = matches!(found.value.what, What::Reached(_));
        while reached < bytes {
            let next = address.checked_add(reached).and_then(|next| map.find(next));
            let next = next.filter(|next| is_reached && next.start == address + reached);
            let next = next.ok_or(Status::INVALID_VALUE)?;
            is_reached = matches!(next.value.what, What::Reached(_));
            if !is_reached {
                return Err(Status::INVALID_VALUE);
            }
            reached = reached.saturating_add(next.bytes);
        }
        Ok(first.min(bytes))
    }

    /// The same as [`Memory::place`], for what the device reaches: pinned memory too.
    pub(crate) fn reached(&self, address: u64, bytes: u64) -> Result<DeviceRange, Status> {
        match self.place(address, bytes)? {
            Place::Device(range) => Ok(range),
            Place::Pinned(HostSpan { handle, offset, bytes }) => Ok(DeviceRange { handle, offset, bytes }),
            Place::Pageable => Err(Status::INVALID_VALUE),
        }
    }

    /// The allocation that an address lies in, with its first address and length.
    pub(crate) fn region(&self, address: u64) -> Option<(u64, u64, Arc<Region>)> {
        let map = self.map.read();
        map.find(address).map(|found| (found.start, found.bytes, found.value.clone()))
    }

    /// What an address lies in, as programs know it: the allocation, or the module-scope variable, with its first address
    /// and length.
    pub(crate) fn object(&self, address: u64) -> Option<(u64, u64, Arc<Region>)> {
        let (start, bytes, region) = self.region(address)?;
        let variable =
            if let What::Variables(image) = &region.what { image.variable_around(address) } else { None };
        let (start, bytes) = variable.unwrap_or((start, bytes));
        Some((start, bytes, region))
    }

    /// The first allocation of which `is` holds, with its first address.
    pub(crate) fn find(&self, is: impl Fn(&Region) -> bool) -> Option<(u64, Arc<Region>)> {
        let map = self.map.read();
        map.iter().find(|found| is(found.value)).map(|found| (found.start, found.value.clone()))
    }

    /// Ends what a context allocated.
    pub(crate) fn end(&self, context: u64) {
        let ended = self.map.write().remove_all(|region| region.context == context);
        for region in &ended {
            if let What::Device(buffer) = &region.what {
                sanitize::left(buffer.address());
            }
            self.note(&region.what);
        }
        // Freed without the lock: it waits for work that uses it.
        drop(ended);
    }

    /// First address and length of all that kernels may access.
    pub(crate) fn ranges(&self) -> Vec<AddressRange> {
        let mut ranges = Vec::new();
        for found in self.map.read().iter() {
            let start = match &found.value.what {
                What::Pinned(buffer, _) => buffer.address(),
                What::Registered(Registered { exchanged, .. }) => {
                    exchanged.as_ref().and_then(Exchanged::address)
                }
                What::Variables(image) => {
                    ranges.extend(image.ranges());
                    continue;
                }
                What::Device(_)
                | What::OfGraph(_)
                | What::Opened(_)
                | What::Reached(_)
                | What::Foreign(_)
                | What::Managed(_) => None,
            };
            ranges.push(AddressRange { start: start.unwrap_or(found.start), bytes: found.bytes });
        }
        ranges
    }

    /// Whether anything of a range lies in an allocation.
    pub(crate) fn overlaps(&self, start: u64, bytes: u64) -> bool {
        self.map.read().overlaps(start, bytes)
    }

    pub(crate) fn take(&self, address: u64, is: impl FnOnce(&What) -> bool) -> Result<Arc<Region>, Status> {
        self.take_region(address, |region| is(&region.what))
    }

    fn take_region(&self, address: u64, is: impl FnOnce(&Region) -> bool) -> Result<Arc<Region>, Status> {
        let taken = self.map.write().remove(address, |region| is(region)).ok_or(Status::INVALID_VALUE)?;
        self.note(&taken.what);
        Ok(taken)
    }

    /// Frees what was not allocated by a graph. The session keeps it until running work that may use it is done.
    pub(crate) fn release(&self, address: u64) -> Answer {
        let is_freed = |what: &What| match what {
            What::Device(_) | What::Managed(_) => true,
            What::Opened(opened) => opened.is_pooled(),
            What::OfGraph(_)
            | What::Reached(_)
            | What::Variables(_)
            | What::Foreign(_)
            | What::Pinned(..)
            | What::Registered(_) => false,
        };
        self.take(address, is_freed).map(|region| freed(&region, address))
    }

    /// Frees the allocation that [`Self::insert_pooled`] gave this number, unless it went with its context: another may lie
    /// there by now.
    pub(crate) fn release_same(&self, address: u64, id: u64) {
        if let Ok(region) = self.take_region(address, |region| region.id == id) {
            freed(&region, address);
        }
    }

    /// Keeps in mind what is freed.
    fn note(&self, what: &What) {
        let Some(list) = &self.freed else { return };
        let (address, bytes) = match what {
            What::Device(buffer) | What::OfGraph(Stored { buffer, .. }) => {
                (Some(buffer.address()), buffer.bytes())
            }
            What::Pinned(buffer, _) | What::Managed(buffer) => (buffer.address(), buffer.bytes() as u64),
            What::Opened(_)
            | What::Reached(_)
            | What::Variables(_)
            | What::Foreign(_)
            | What::Registered(_) => return,
        };
        if let Some(address) = address {
            list.lock().add(address, bytes);
        }
    }

    /// The allocation that an address was in, where that was freed and nothing is there again.
    pub(crate) fn freed(&self, address: u64) -> Option<Freed> {
        self.freed.as_ref()?.lock().of(address)
    }
}

/// Tells who looks for accesses to it.
fn freed(region: &Region, address: u64) {
    if matches!(region.what, What::Device(_)) {
        sanitize::freed(address);
    }
}
