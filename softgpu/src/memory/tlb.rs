//! Translations that compiled code looks up by itself.
//!
//! # Invariants
//! 1. While an entry is there, so is the memory that it leads to: the entry's owner is kept.
//! 2. A page is one piece of host memory: mappings start and repeat at granules.

use std::sync::Arc;

use bulkhead_gpu::Access;

use super::space::Span;
use super::{Bytes, GRANULE_BYTES};

/// Entries of each table; a page has one place in each.
const ENTRIES: usize = 1024;
/// Of a page, as a power of two.
pub(crate) const PAGE_SHIFT: u32 = GRANULE_BYTES.trailing_zeros();
/// Of an entry, as a power of two.
pub(crate) const ENTRY_SHIFT: u32 = size_of::<Entry>().trailing_zeros();
/// The bits of a page's number that say where its entry is.
pub(crate) const INDEX_MASK: u64 = ENTRIES as u64 - 1;

/// A translation.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Entry {
    /// Where the page starts.
    pub(crate) start: u64,
    /// What leads from an address on the page to its place on the host.
    pub(crate) distance: u64,
}

const _: () = assert!(size_of::<Entry>() == 16);

/// No device address is near it.
const NOWHERE: Entry = Entry { start: 1 << 63, distance: 0 };

/// The translations of one thread.
#[derive(Debug)]
pub(crate) struct Tlb {
    loads: Vec<Entry>,
    stores: Vec<Entry>,
    owners: Vec<Option<Arc<Bytes>>>,
    generation: u64,
    used: bool,
}

impl Tlb {
    /// No translations.
    pub(crate) fn new() -> Self {
        Self {
            loads: vec![NOWHERE; ENTRIES],
            stores: vec![NOWHERE; ENTRIES],
            owners: vec![None; ENTRIES],
            generation: 0,
            used: false,
        }
    }

    /// Forgets what is older than the tables.
    pub(crate) fn refresh(&mut self, generation: u64) {
        if self.generation != generation {
            self.forget();
            self.generation = generation;
        }
    }

    /// How old the translations are at most.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Lets go of all memory.
    pub(crate) fn forget(&mut self) {
        if self.used {
            self.loads.fill(NOWHERE);
            self.stores.fill(NOWHERE);
            self.owners.fill(None);
            self.used = false;
        }
    }

    /// Where loads and stores look.
    pub(crate) fn tables(&self) -> (*const Entry, *const Entry) {
        (self.loads.as_ptr(), self.stores.as_ptr())
    }

    /// Takes the page of an address in, as a mapping has it.
    pub(crate) fn learn(&mut self, address: u64, span: &Span) {
        if !span.chunk.is_multiple_of(GRANULE_BYTES) {
            return;
        }
        let page = address & !(GRANULE_BYTES - 1);
        let index = usize::try_from(address >> PAGE_SHIFT & INDEX_MASK).unwrap_or(0);
        let host = span.bytes.range().at.0.wrapping_add(span.offset(page)) as u64;
        let entry = Entry { start: page, distance: host.wrapping_sub(page) };
        self.used = true;
        self.loads[index] = entry;
        self.stores[index] = if span.access == Access::ReadWrite { entry } else { NOWHERE };
        self.owners[index] = Some(Arc::clone(&span.bytes));
    }
}
