//! CUDA's virtual memory management: memory without addresses, addresses without memory, and mappings.
//!
//! `cuMemMap` notes what is to be mapped; the kernel maps it when `cuMemSetAccess` lets it be used, and unmaps it
//! where that takes the access back. Memory lasts as long as a handle or a mapping of it, in this process; what
//! another imported ends with it.

mod addresses;
mod calls;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use addresses::PAGE_BYTES;
pub(crate) use calls::*;

use crate::abi::Properties;
use crate::device::{Share, SturdyToken};
use crate::handle::Kind;
use crate::handle_tables::Table;
use crate::report;
use crate::status::Status;
use addresses::Addresses;

/// Handles that a program may hold at a time.
pub(crate) const HANDLES_MAX: usize = 1 << 20;

/// Memory, with or without addresses.
pub(crate) struct Physical {
    share: Share,
    properties: Properties,
    /// Its handle, and how often it has to be released: 0 where only mappings are left.
    named: Mutex<(u64, u32)>,
    /// What it was exported with.
    token: Mutex<Option<SturdyToken>>,
}

impl Drop for Physical {
    fn drop(&mut self) {
        if self.token.get_mut().is_some() {
            report::once(
                "cuMemRelease: memory that was exported ends with its last handle and mapping in this process; \
                 others that imported it lose it",
            );
        }
    }
}

/// What `cuMemMap` noted.
struct Mapped {
    bytes: u64,
    physical: Arc<Physical>,
}

/// Memory that kernels of this process reach at an address of its choice.
pub(crate) struct Reached {
    pub(crate) share: Share,
    /// Types of handles that it can be exported as.
    pub(crate) handle_types: u32,
}

#[derive(Default)]
struct State {
    addresses: Addresses,
    /// By address.
    mapped: BTreeMap<u64, Mapped>,
}

/// All of it that a process has.
pub(crate) struct Vmm {
    /// Held during each call: what one does is whole before the next.
    state: Mutex<State>,
    physical: Table<Physical>,
}

impl Vmm {
    pub(crate) fn new() -> Vmm {
        let physical = Table::new(Kind::Physical, HANDLES_MAX);
        Vmm { state: Mutex::default(), physical }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.mapped.is_empty() && state.addresses.is_empty() && self.physical.is_empty()
    }
}

impl State {
    /// The starts of the mappings that make up a range, whole and without gaps.
    fn whole(&self, start: u64, bytes: u64) -> Result<Vec<u64>, Status> {
        let end = start.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let (mut at, mut starts) = (start, Vec::new());
        for (next, mapped) in self.mapped.range(start..end) {
            if *next != at {
                return Err(Status::INVALID_VALUE);
            }
            at += mapped.bytes;
            starts.push(*next);
        }
        if bytes > 0 && at == end { Ok(starts) } else { Err(Status::INVALID_VALUE) }
    }

    /// The mapping that an address lies in.
    fn find(&self, address: u64) -> Option<(u64, &Mapped)> {
        let (start, mapped) = self.mapped.range(..=address).next_back()?;
        (address - start < mapped.bytes).then_some((*start, mapped))
    }
}
