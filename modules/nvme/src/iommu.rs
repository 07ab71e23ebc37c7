//! The table of what a device reaches: ranges of bus addresses, the host memory behind them, and rights.

mod memory;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

pub use memory::{Memory, RamMemory};

use crate::formats::{BusAddress, CommandId, QueueId};

/// How many ranges a table has at most.
pub const MAPPINGS_MAX: usize = 4096;
/// How many violations are kept; later ones are counted only.
pub const VIOLATIONS_MAX: usize = 256;
/// Ranges begin and end at multiples of this.
pub const IOMMU_PAGE_BYTES: u64 = 4096;

/// What a device does with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// What a device may do with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Read only: submission queues, PRP lists, data to write to media.
    Read,
    /// Write only: completion queues, data read from media.
    Write,
    /// Both.
    ReadWrite,
}

impl Rights {
    /// Whether `access` is among them.
    #[must_use]
    pub const fn allow(self, access: Access) -> bool {
        matches!(
            (self, access),
            (Self::ReadWrite, _) | (Self::Read, Access::Read) | (Self::Write, Access::Write)
        )
    }
}

/// On whose behalf the device made an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Who {
    /// The queue.
    pub queue: QueueId,
    /// What it executed, where that was known.
    pub command: Option<CommandId>,
}

/// An access that the table does not allow. It touched nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Violation {
    /// The submission queue; for the write of a completion entry, the completion queue.
    pub queue: QueueId,
    /// The command, where it was known: not while its entry is fetched.
    pub command: Option<CommandId>,
    /// Where the access began.
    pub address: BusAddress,
    /// How many bytes it was to be.
    pub length: u64,
    /// What it was.
    pub access: Access,
}

/// Why a range cannot be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// A range has at least one page.
    #[error("the range is empty")]
    Empty,
    /// Ranges are whole pages.
    #[error("a range begins and ends at multiples of {IOMMU_PAGE_BYTES} bytes")]
    Unaligned,
    /// The range ends beyond the last bus address.
    #[error("the range ends beyond the last bus address")]
    Wraps,
    /// The memory is shorter than the range.
    #[error("the range ends beyond its memory of {bytes} bytes")]
    PastMemory {
        /// Size of the memory.
        bytes: u64,
    },
    /// Another range is in the way.
    #[error("the range overlaps the one at {other}")]
    Overlap {
        /// Where that one begins.
        other: BusAddress,
    },
    /// There are as many ranges as there may be.
    #[error("the table has {MAPPINGS_MAX} ranges already")]
    Full,
}

struct Mapping {
    length: u64,
    memory: Arc<dyn Memory>,
    /// Where the range begins in the memory.
    offset: u64,
    rights: Rights,
}

#[derive(Default)]
struct Violations {
    kept: VecDeque<Violation>,
    count: u64,
}

/// The table. Its owner changes it while a controller uses it: after [`unmap`](Self::unmap) returned, no access of the
/// controller reaches that memory.
#[derive(Default)]
pub struct Iommu {
    /// By first address; ranges do not overlap. Held for reading during each access.
    table: RwLock<Table>,
    violations: Mutex<Violations>,
}

type Table = BTreeMap<BusAddress, Mapping>;

/// Goes through the parts of an access, each in one range: calls `each` with the range, the part's offset in its
/// memory, and where in the access it is. Whether all bytes of the access are allowed; it ends at one that is not.
fn walk(
    table: &Table,
    address: BusAddress,
    length: usize,
    access: Access,
    mut each: impl FnMut(&Mapping, u64, Range<usize>),
) -> bool {
    let mut done = 0;
    while done < length {
        let Some(at) = address.checked_add(done as u64) else { return false };
        let Some((start, mapping)) = table.range(..=at).next_back() else { return false };
        let inside = at.0 - start.0;
        if inside >= mapping.length || !mapping.rights.allow(access) {
            return false;
        }
        let bytes = usize::try_from(mapping.length - inside).unwrap_or(usize::MAX).min(length - done);
        each(mapping, mapping.offset + inside, done..done + bytes);
        done += bytes;
    }
    true
}

fn is_allowed(table: &Table, address: BusAddress, length: usize, access: Access) -> bool {
    walk(table, address, length, access, |_, _, _| {})
}

impl Iommu {
    /// An empty table: the device reaches nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the device reach `length` bytes of `memory` from `offset` on, at `start` and with these rights.
    ///
    /// # Errors
    /// Where the range is no whole pages, does not fit, or another is in the way. Nothing is changed then.
    pub fn map(
        &self,
        start: BusAddress,
        length: u64,
        memory: Arc<dyn Memory>,
        offset: u64,
        rights: Rights,
    ) -> Result<(), MapError> {
        if length == 0 {
            return Err(MapError::Empty);
        }
        if !start.0.is_multiple_of(IOMMU_PAGE_BYTES) || !length.is_multiple_of(IOMMU_PAGE_BYTES) {
            return Err(MapError::Unaligned);
        }
        let end = start.checked_add(length).ok_or(MapError::Wraps)?;
        let bytes = memory.bytes();
        if offset.checked_add(length).is_none_or(|end| end > bytes) {
            return Err(MapError::PastMemory { bytes });
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.len() == MAPPINGS_MAX {
            return Err(MapError::Full);
        }
        if let Some((other, mapping)) = table.range(..end).next_back()
            && other.0 + mapping.length > start.0
        {
            return Err(MapError::Overlap { other: *other });
        }
        table.insert(start, Mapping { length, memory, offset, rights });
        Ok(())
    }

    /// Takes back the range that was mapped at `start`. Whether there was one.
    pub fn unmap(&self, start: BusAddress) -> bool {
        self.table.write().unwrap_or_else(PoisonError::into_inner).remove(&start).is_some()
    }

    /// How many accesses were refused, since the table was made.
    #[must_use]
    pub fn violation_count(&self) -> u64 {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Takes the violations that were kept: the first [`VIOLATIONS_MAX`] since this was called last.
    #[must_use]
    pub fn take_violations(&self) -> Vec<Violation> {
        let mut violations = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
        violations.kept.drain(..).collect()
    }

    /// The refused access, recorded.
    fn refuse(&self, who: Who, address: BusAddress, length: usize, access: Access) -> Violation {
        let Who { queue, command } = who;
        let violation = Violation { queue, command, address, length: length as u64, access };
        let mut violations = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
        violations.count = violations.count.saturating_add(1);
        if violations.kept.len() < VIOLATIONS_MAX {
            violations.kept.push_back(violation);
        }
        violation
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an access would be allowed now; records a violation where not.
    ///
    /// # Errors
    /// The violation.
    pub fn check(
        &self,
        who: Who,
        address: BusAddress,
        length: usize,
        access: Access,
    ) -> Result<(), Violation> {
        match is_allowed(&self.table(), address, length, access) {
            true => Ok(()),
            false => Err(self.refuse(who, address, length, access)),
        }
    }

    /// Copies from host memory.
    ///
    /// # Errors
    /// The violation; nothing is read then.
    pub fn read(&self, who: Who, address: BusAddress, into: &mut [u8]) -> Result<(), Violation> {
        let table = self.table();
        let length = into.len();
        if !is_allowed(&table, address, length, Access::Read) {
            return Err(self.refuse(who, address, length, Access::Read));
        }
        walk(&table, address, length, Access::Read, |mapping, offset, part| {
            mapping.memory.read(offset, &mut into[part]);
        });
        Ok(())
    }

    /// Copies to host memory.
    ///
    /// # Errors
    /// The violation; nothing is written then.
    pub fn write(&self, who: Who, address: BusAddress, from: &[u8]) -> Result<(), Violation> {
        let table = self.table();
        if !is_allowed(&table, address, from.len(), Access::Write) {
            return Err(self.refuse(who, address, from.len(), Access::Write));
        }
        walk(&table, address, from.len(), Access::Write, |mapping, offset, part| {
            mapping.memory.write(offset, &from[part]);
        });
        Ok(())
    }

    /// Copies an entry of 16 bytes to host memory, its last four bytes after everything that was written before.
    /// `address` must be a multiple of 16, so that the entry lies in one range: those are whole pages.
    pub(crate) fn publish(&self, who: Who, address: BusAddress, entry: &[u8; 16]) -> Result<(), Violation> {
        let table = self.table();
        if !address.0.is_multiple_of(16) || !is_allowed(&table, address, entry.len(), Access::Write) {
            return Err(self.refuse(who, address, entry.len(), Access::Write));
        }
        let [first @ .., a, b, c, d] = entry;
        let last = u32::from_le_bytes([*a, *b, *c, *d]);
        walk(&table, address, entry.len(), Access::Write, |mapping, offset, _| {
            mapping.memory.write(offset, first);
            mapping.memory.publish(offset + 12, last);
        });
        Ok(())
    }

    /// Stores a word in host memory, after everything that was written before.
    ///
    /// # Errors
    /// The violation, also where `address` is no multiple of 4; nothing is written then.
    pub fn publish_word(&self, who: Who, address: BusAddress, word: u32) -> Result<(), Violation> {
        let table = self.table();
        // A multiple of 4 lies in one range: those are whole pages.
        if !address.0.is_multiple_of(4) || !is_allowed(&table, address, 4, Access::Write) {
            return Err(self.refuse(who, address, 4, Access::Write));
        }
        walk(&table, address, 4, Access::Write, |mapping, offset, _| mapping.memory.publish(offset, word));
        Ok(())
    }

    /// Loads a word of host memory at once; what was written before it was stored is seen behind this.
    ///
    /// # Errors
    /// The violation, also where `address` is no multiple of 4.
    pub fn observe_word(&self, who: Who, address: BusAddress) -> Result<u32, Violation> {
        let table = self.table();
        if !address.0.is_multiple_of(4) || !is_allowed(&table, address, 4, Access::Read) {
            return Err(self.refuse(who, address, 4, Access::Read));
        }
        let mut word = 0;
        walk(&table, address, 4, Access::Read, |mapping, offset, _| word = mapping.memory.observe(offset));
        Ok(word)
    }
}
