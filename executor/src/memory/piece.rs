//! Physical memory, and in how many places it is mapped.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bulkhead_gpu::{Error, MemoryId};
use parking_lot::Mutex;

use crate::memory::physical::Physical;

/// Whose memory it is that another executor has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The session's: it follows, or goes on here.
    Own,
    /// Another session's, which lives there.
    Theirs,
}

/// Physical memory of this executor's: given back with the last that knows it.
pub(crate) struct Piece {
    physical: Physical,
    id: MemoryId,
    bytes: u64,
    /// How often it is mapped in slots, or about to be. 0: nobody may map it any more.
    mappings: AtomicU32,
    whose: Whose,
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.physical.give_back(self.id);
    }
}

/// One mapping of a piece. Whoever unmaps it says so before ([`Mapping::leave`]) and drops it after.
pub(crate) struct Mapping {
    piece: Arc<Piece>,
    left: bool,
}

impl Mapping {
    fn first(physical: &Physical, id: MemoryId, bytes: u64, whose: Whose) -> Self {
        let piece = Piece { physical: physical.clone(), id, bytes, mappings: AtomicU32::new(1), whose };
        Self { piece: Arc::new(piece), left: false }
    }

    /// New memory. What it holds is undefined.
    pub(crate) fn create(physical: &Physical, bytes: u64) -> Result<Self, Error> {
        Ok(Self::first(physical, physical.create(bytes)?, bytes, Whose::Own))
    }

    /// Memory of another process's.
    pub(crate) fn import(
        physical: &Physical,
        descriptor: OwnedFd,
        bytes: u64,
        whose: Whose,
    ) -> Result<Self, Error> {
        Ok(Self::first(physical, physical.import(descriptor, bytes)?, bytes, whose))
    }

    pub(crate) fn id(&self) -> MemoryId {
        self.piece.id
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.piece.bytes
    }

    /// Whether the memory is mapped elsewhere too.
    pub(crate) fn is_shared(&self) -> bool {
        self.piece.whose == Whose::Theirs || self.piece.mappings.load(Ordering::Acquire) > 1
    }

    /// Says that it is about to be unmapped. Answers whether it was the last: then nobody else has the memory.
    pub(crate) fn leave(&mut self) -> bool {
        let was_last = !std::mem::replace(&mut self.left, true)
            && self.piece.mappings.fetch_sub(1, Ordering::AcqRel) == 1;
        was_last && self.piece.whose == Whose::Own
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Which piece is mapped at which device address. Addresses of different sessions differ, so that a session's memory
/// is found without its state.
#[derive(Default)]
pub(crate) struct Pieces {
    by_address: Mutex<BTreeMap<u64, Arc<Piece>>>,
}

impl Pieces {
    pub(crate) fn insert(&self, at: u64, mapping: &Mapping) {
        self.by_address.lock().insert(at, Arc::clone(&mapping.piece));
    }

    pub(crate) fn remove(&self, at: u64) {
        self.by_address.lock().remove(&at);
    }

    /// Another mapping of what is mapped at `at`, if that is a whole piece of `bytes`.
    pub(crate) fn hold(&self, at: u64, bytes: u64) -> Option<Mapping> {
        let pieces = self.by_address.lock();
        let piece = pieces.get(&at).filter(|piece| piece.bytes == bytes)?;
        let held = |count: u32| if count == 0 { None } else { count.checked_add(1) };
        piece.mappings.fetch_update(Ordering::AcqRel, Ordering::Acquire, held).ok()?;
        Some(Mapping { piece: Arc::clone(piece), left: false })
    }

    /// Makes sure that nobody else gets what is mapped at `at`; false where somebody has it.
    pub(crate) fn withdraw(&self, at: u64, mapping: &Mapping) -> bool {
        let mut pieces = self.by_address.lock();
        let sole = !mapping.is_shared();
        if sole {
            pieces.remove(&at);
        }
        sole
    }
}
