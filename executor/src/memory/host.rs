//! Host memory in a slot.
//!
//! It is mapped as arenas are, in a pause. But the device lets go of it only in a call that waits for every running kernel
//! ([`Gpu::unmap_host`](bulkhead_gpu::Gpu::unmap_host)): whoever unmaps it does so while no session has work on the device.

use std::os::fd::BorrowedFd;

use bulkhead_gpu::{Access, DeviceAddress, Error, HostRange};

use super::{Content, SlotMemory, refused};

impl SlotMemory {
    /// Whether host memory of `bytes` can be mapped at `at`.
    pub(crate) fn check_host(&self, at: u64, bytes: u64) -> Result<(), Error> {
        match self.check_window(at, bytes)? {
            Access::ReadWrite => Ok(()),
            Access::Read => Err(refused("host memory lies in the half that takes stores")),
        }
    }

    /// Maps host memory; where copies find it.
    pub(crate) fn map_host(&mut self, at: u64, bytes: u64, file: BorrowedFd<'_>) -> Result<HostRange, Error> {
        self.check_host(at, bytes)?;
        let map = |gpu: &dyn bulkhead_gpu::Gpu| gpu.map_host(DeviceAddress(at), file, bytes);
        let range = self.replace_sinks(at, bytes, Access::ReadWrite, map)?;
        self.contents.insert(at, Content::Host(range));
        Ok(range)
    }

    /// Whether exactly this is host memory.
    pub(crate) fn is_host(&self, at: u64, bytes: u64) -> bool {
        matches!(self.contents.get(&at), Some(Content::Host(range)) if range.bytes as u64 == bytes)
    }

    /// Whether exactly this is memory of some kind.
    pub(crate) fn check_taken(&self, at: u64, bytes: u64) -> Result<(), Error> {
        if self.is_host(at, bytes) { Ok(()) } else { self.find(at, bytes).map(drop) }
    }

    /// How much host memory is mapped.
    pub(crate) fn host_bytes(&self) -> usize {
        self.host().map(|(_, range)| range.bytes).sum()
    }

    fn host(&self) -> impl Iterator<Item = (u64, HostRange)> {
        self.contents.iter().filter_map(|(at, content)| match content {
            Content::Host(range) => Some((*at, *range)),
            Content::Memory(_) => None,
        })
    }

    /// Unmaps host memory, and puts sinks in its place. No session has work on the device, and none gets any.
    pub(crate) fn unmap_host(&mut self, at: u64, bytes: u64) -> Result<(), Error> {
        if !self.is_host(at, bytes) {
            return Err(refused("there is no such host memory"));
        }
        let (low, high) = self.opening(at, at + bytes);
        // Where it fails the memory stays, in reach of its own session, which is not paused for long any more.
        self.means.gpu.unmap_host(DeviceAddress(at), bytes)?;
        self.contents.remove(&at);
        if self.means.plain {
            return Ok(());
        }
        self.whole(|memory| {
            for (from, to) in [(low, at), (at + bytes, high)] {
                if from < to {
                    memory.means.gpu.unmap(DeviceAddress(from), to - from)?;
                }
            }
            memory.cover(low, high, Access::ReadWrite)
        })
    }

    /// The same for all that is left of it.
    pub(crate) fn unmap_all_host(&mut self) -> Result<(), Error> {
        let all: Vec<_> = self.host().collect();
        all.into_iter().try_for_each(|(at, range)| self.unmap_host(at, range.bytes as u64))
    }
}
