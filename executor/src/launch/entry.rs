//! An entry of an image as it is launched: its versions, and the parameter block of its next launch.

use std::sync::Arc;

use bulkhead_gpu::EntryId;
use bulkhead_schema::ErrorCode;
use parking_lot::Mutex;

use crate::{
    launch::{fast::Fast, slices},
    modules::grants::{Called, Grants},
    watch::remains::Image,
};

/// Hidden parameters at the end of every entry's block: base, load mask, store mask.
pub(crate) const HIDDEN: usize = 3;

/// Hidden parameters before those, where an entry asks which slice of its grid is launched.
pub(crate) const SLICE: usize = 6;

const WORD_BYTES: u32 = 4;

/// What is known of an entry.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) id: EntryId,
    /// What is launched in its place where the parameters allow it.
    pub(crate) fast: Option<Fast>,
    pub(crate) name: Arc<str>,
    /// The parameter block of the next launch: the client's parameters go to the front, the hidden ones are there.
    pub(crate) block: Vec<u8>,
    /// The part of the block that the client fills, in bytes.
    pub(crate) visible_bytes: usize,
    /// Dynamic shared memory that every launch has: the guard's clamp of shared accesses rests on it.
    pub(crate) dynamic_shared_min: u32,
    /// Shared memory that the entry has besides, where the guard has blocks zero theirs.
    pub(crate) static_shared: u32,
    /// The most dynamic shared memory that anybody asked for: sessions that share the entry only raise it.
    pub(crate) dynamic_shared_max: Arc<Mutex<u32>>,
    /// Where the hidden parameters lie in the block; code that nothing confines has none.
    pub(crate) hidden: Option<[u32; HIDDEN]>,
    /// Whether its grid may be cut into slices; not that of its fast version.
    pub(crate) sliceable: bool,
    /// Where the hidden parameters lie that tell of a slice, where it asks for them. They are 0 but in slices.
    pub(crate) of_slice: Option<[u32; SLICE]>,
    /// The modules whose gates it calls.
    pub(crate) called: Box<[Called]>,
    /// The high word of the first address of the slot that it is launched in.
    pub(crate) base: u32,
}

/// An entry that can be launched. Its image stays loaded as long as somebody can launch it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) template: Template,
    pub(crate) image: Arc<Image>,
}

impl Template {
    /// Gives the hidden parameters their values, which are those of the session that launches.
    pub(crate) fn hide(&mut self, values: [u32; HIDDEN]) {
        self.base = values[0];
        for (offset, value) in self.hidden.iter().flatten().zip(values) {
            self.block[*offset as usize..][..4].copy_from_slice(&value.to_ne_bytes());
        }
    }

    /// How much dynamic shared memory a launch has that asks for so much: whole words, since the word around the last 16 bits is
    /// what atomic operations on them swap (`guard/src/confine/halves.rs`).
    pub(crate) fn shared_bytes(&self, asked: u32) -> u32 {
        asked.checked_next_multiple_of(WORD_BYTES).unwrap_or(asked).max(self.dynamic_shared_min)
    }

    /// What each thread of a block of this shape does to zero the block's shared memory, before it looks at the flag.
    pub(crate) fn zeroing(&self, block: [u32; 3], dynamic_bytes: u32) -> u64 {
        let is_guarded = self.hidden.is_some();
        let bytes = u64::from(self.static_shared) + u64::from(dynamic_bytes);
        if is_guarded { slices::zeroing(block, bytes) } else { 0 }
    }

    /// Says which slice of a grid is launched next.
    pub(crate) fn slice(&mut self, values: [u32; SLICE]) {
        for (offset, value) in self.of_slice.iter().flatten().zip(values) {
            self.block[*offset as usize..][..4].copy_from_slice(&value.to_ne_bytes());
        }
    }

    /// Tells the entry of the modules whose gates it calls, all of which its session has to be granted.
    pub(crate) fn tell(&mut self, grants: &Grants) -> Result<(), ErrorCode> {
        for Called { module, offsets } in &self.called {
            let values = grants.values(*module)?;
            for (offset, value) in offsets.iter().zip(values) {
                self.block[*offset as usize..][..8].copy_from_slice(&value.to_ne_bytes());
            }
        }
        Ok(())
    }

    /// The fast version, where the parameters that are in the block admit it, in so many blocks of this shape with so much
    /// dynamic shared memory; and what that does without a look at the session's flag, for which there has to be room.
    pub(crate) fn fast(&self, blocks: u64, block: [u32; 3], shared_bytes: u32) -> Option<(EntryId, u64)> {
        let admitted =
            |fast: &&Fast| fast.admits(&self.block, self.base) && fast.admits_blocks(block, shared_bytes);
        let fast = self.fast.as_ref().filter(admitted)?;
        Some((fast.id, fast.unlooked(self.zeroing(block, shared_bytes), blocks, block)))
    }

    /// Everything that may be launched.
    pub(crate) fn versions(&self) -> impl Iterator<Item = EntryId> {
        std::iter::once(self.id).chain(self.fast.as_ref().map(|fast| fast.id))
    }
}
