//! One thread's view of the page tables, with the translations it used last.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bulkhead_gpu::Access;

use super::space::{AddressSpace, Span};
use super::{Bytes, Violation};
use crate::alu::{LANES, Lanes};

/// Translations kept per thread.
const KEPT_MAX: usize = 8;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It loads.
    Load,
    /// It stores, or is atomic.
    Store,
}

/// A violation and the lane it happened in.
type Tried = Result<(), (Violation, usize)>;

/// A thread's window on the address space.
#[derive(Debug)]
pub(crate) struct View {
    space: Arc<AddressSpace>,
    generation: u64,
    kept: Vec<Span>,
}

impl View {
    /// A view with nothing kept.
    pub(crate) fn new(space: Arc<AddressSpace>) -> Self {
        Self { space, generation: 0, kept: Vec::with_capacity(KEPT_MAX) }
    }

    /// Forgets translations older than the tables. Done once per warp instruction: a kernel that runs
    /// while its pages change sees the change at its next instruction. (Compiled code looks where it comes
    /// in, and on each way back to the head of a loop.)
    #[inline(always)]
    pub(crate) fn refresh(&mut self) {
        let generation = self.space.generation();
        if generation != self.generation {
            self.generation = generation;
            self.kept.clear();
        }
    }

    /// What changes with every change of the tables.
    pub(crate) fn generation(&self) -> &AtomicU64 {
        self.space.generation_cell()
    }

    /// The mapping of an address that was just accessed, and how old what is known is.
    pub(crate) fn mapping(&mut self, address: u64) -> (u64, Option<&Span>) {
        let found = self.bring_forward(address).is_ok();
        (self.generation, self.kept.first().filter(|_| found))
    }

    /// Lets go of all memory.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }

    /// The memory behind an access of `N` bytes, and the offset in it.
    #[inline(always)]
    pub(crate) fn locate<const N: usize>(
        &mut self,
        address: u64,
        intent: Intent,
    ) -> Result<(&Bytes, usize), Violation> {
        if address & (N as u64 - 1) != 0 {
            return Err(Violation::Misaligned);
        }
        let hit = self.kept.first().is_some_and(|span| address >= span.start && address < span.end);
        if !hit {
            self.bring_forward(address)?;
        }
        let span = self.kept.first().ok_or(Violation::Unmapped)?;
        if intent == Intent::Store && span.access == Access::Read {
            return Err(Violation::ReadOnly);
        }
        Ok((&span.bytes, span.offset(address)))
    }

    /// Loads a word of `N` bytes per active lane.
    pub(crate) fn gather<const N: usize>(
        &mut self,
        addresses: &Lanes,
        active: u32,
        out: &mut Lanes,
    ) -> Tried {
        self.refresh();
        for lane in 0..LANES {
            if active >> lane & 1 == 1 {
                let located = self.locate::<N>(addresses[lane], Intent::Load);
                let (bytes, offset) = located.map_err(|violation| (violation, lane))?;
                out[lane] = bytes.load::<N>(offset);
            }
        }
        Ok(())
    }

    /// Stores a word of `N` bytes per active lane.
    pub(crate) fn scatter<const N: usize>(
        &mut self,
        addresses: &Lanes,
        active: u32,
        values: &Lanes,
    ) -> Tried {
        self.refresh();
        for lane in 0..LANES {
            if active >> lane & 1 == 1 {
                let located = self.locate::<N>(addresses[lane], Intent::Store);
                let (bytes, offset) = located.map_err(|violation| (violation, lane))?;
                bytes.store::<N>(offset, values[lane]);
            }
        }
        Ok(())
    }

    /// Loads 2, 4, 8 or 16 bytes per active lane, at once.
    pub(crate) fn gather_whole(
        &mut self,
        addresses: &Lanes,
        active: u32,
        whole: usize,
        out: &mut [u128; LANES],
    ) -> Tried {
        self.refresh();
        for lane in 0..LANES {
            if active >> lane & 1 == 1 {
                out[lane] = self.load_whole(addresses[lane], whole).map_err(|violation| (violation, lane))?;
            }
        }
        Ok(())
    }

    /// Loads so many bytes at once.
    #[inline(always)]
    pub(crate) fn load_whole(&mut self, address: u64, whole: usize) -> Result<u128, Violation> {
        let (bytes, offset) = self.locate_whole(address, whole, Intent::Load)?;
        Ok(bytes.load_whole(offset, whole))
    }

    /// Stores 2, 4, 8 or 16 bytes per active lane, at once.
    pub(crate) fn scatter_whole(
        &mut self,
        addresses: &Lanes,
        active: u32,
        whole: usize,
        values: &[u128; LANES],
    ) -> Tried {
        self.refresh();
        for lane in 0..LANES {
            if active >> lane & 1 == 1 {
                let located = self.locate_whole(addresses[lane], whole, Intent::Store);
                let (bytes, offset) = located.map_err(|violation| (violation, lane))?;
                bytes.store_whole(offset, whole, values[lane]);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn locate_whole(
        &mut self,
        address: u64,
        whole: usize,
        intent: Intent,
    ) -> Result<(&Bytes, usize), Violation> {
        match whole {
            1 => self.locate::<1>(address, intent),
            2 => self.locate::<2>(address, intent),
            4 => self.locate::<4>(address, intent),
            8 => self.locate::<8>(address, intent),
            _ => self.locate::<16>(address, intent),
        }
    }

    /// Replaces a word of `N` bytes per active lane by a function of it, atomically; gives what was there.
    pub(crate) fn update<const N: usize>(
        &mut self,
        addresses: &Lanes,
        active: u32,
        change: impl Fn(usize, u64) -> u64,
        out: &mut Lanes,
    ) -> Tried {
        self.refresh();
        for lane in 0..LANES {
            if active >> lane & 1 == 1 {
                let located = self.locate::<N>(addresses[lane], Intent::Store);
                let (bytes, offset) = located.map_err(|violation| (violation, lane))?;
                out[lane] = bytes.update::<N>(offset, |old| change(lane, old));
            }
        }
        Ok(())
    }

    /// The span of an address comes to the front.
    #[inline(never)]
    fn bring_forward(&mut self, address: u64) -> Result<(), Violation> {
        let position = self.kept.iter().position(|span| address >= span.start && address < span.end);
        match position {
            // A swap, not a shift: an access pattern over a few arrays settles at once.
            Some(position) => self.kept.swap(0, position),
            None => self.fetch(address)?,
        }
        Ok(())
    }

    #[cold]
    fn fetch(&mut self, address: u64) -> Result<(), Violation> {
        let span = self.space.find(address).ok_or(Violation::Unmapped)?;
        if self.kept.len() == KEPT_MAX {
            self.kept.pop();
        }
        self.kept.insert(0, span);
        Ok(())
    }
}
