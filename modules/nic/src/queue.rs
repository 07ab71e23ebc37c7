//! The device's side of a split virtqueue.

use bulkhead_nvme::{
    Iommu, Violation, Who,
    formats::{BusAddress, CommandId, QueueId},
};

use crate::virtio::{DESCRIPTOR_BYTES, Descriptor, INDIRECT, NEXT, RING_HEADER_BYTES, USED_BYTES, WRITE};

/// Most descriptors of a chain.
pub const CHAIN_MAX: usize = 8;

/// Where a queue lies on the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// The table of descriptors.
    pub table: BusAddress,
    /// The available ring.
    pub available: BusAddress,
    /// The used ring.
    pub used: BusAddress,
    /// How many entries each has: a power of two.
    pub entries: u16,
}

/// What a device makes of a queue that makes no sense: it uses it no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Memory that is not the device's.
    #[error("memory that the device does not reach: {0:?}")]
    Memory(Violation),
    /// More is available than there are entries.
    #[error("{0} descriptors are available of a smaller queue")]
    Ahead(u16),
    /// A descriptor that there is not.
    #[error("descriptor {0} is none of the queue's")]
    Descriptor(u16),
    /// A chain without end, or a long one.
    #[error("the chain that begins with descriptor {0} is longer than {CHAIN_MAX}")]
    Chain(u16),
    /// A buffer that is written where it is to be read, or the other way round, or a table of descriptors.
    #[error("descriptor {0} has flags {1:#x}")]
    Flags(u16, u16),
    /// Buffers are longer than any frame, or too short for one.
    #[error("the buffers of descriptor {0} have {1} bytes")]
    Length(u16, u64),
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Self::Memory(violation)
    }
}

/// Which way a queue's buffers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The device reads them.
    Sends,
    /// It writes them.
    Receives,
}

/// A chain of descriptors, copied and checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    pub(crate) head: u16,
    parts: [(BusAddress, u32); CHAIN_MAX],
    count: usize,
}

impl Chain {
    fn parts(&self) -> &[(BusAddress, u32)] {
        self.parts.get(..self.count).unwrap_or_default()
    }

    /// Bytes of all of its buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts().iter().map(|(_, length)| u64::from(*length)).sum()
    }
}

pub(crate) struct Queue {
    id: QueueId,
    way: Way,
    places: Places,
    /// Which entry of the available ring is next, and how far the ring goes.
    next: u16,
    end: u16,
    /// How many entries of the used ring are written.
    used: u16,
}

impl Queue {
    pub(crate) fn new(id: QueueId, way: Way, places: Places) -> Self {
        Self { id, way, places, next: 0, end: 0, used: 0 }
    }

    fn who(&self, command: Option<u16>) -> Who {
        Who { queue: self.id, command: command.map(CommandId) }
    }

    /// The address of an entry, or one that is nobody's where that is beyond the last address.
    fn at(place: BusAddress, header: u64, index: u16, bytes: usize) -> BusAddress {
        place.checked_add(header + u64::from(index) * bytes as u64).unwrap_or(BusAddress(u64::MAX))
    }

    /// Looks at how far the available ring goes.
    pub(crate) fn look(&mut self, iommu: &Iommu) -> Result<(), Fault> {
        let [_, _, low, high] = iommu.observe_word(self.who(None), self.places.available)?.to_le_bytes();
        self.reach(u16::from_le_bytes([low, high]))
    }

    /// Has the available ring go up to `end`, which a notification says too (`VIRTIO_F_NOTIFICATION_DATA`).
    pub(crate) fn reach(&mut self, end: u16) -> Result<(), Fault> {
        let ahead = end.wrapping_sub(self.next);
        if ahead > self.places.entries {
            return Err(Fault::Ahead(ahead));
        }
        self.end = end;
        Ok(())
    }

    /// How many chains are available, as was looked or told last.
    pub(crate) fn waiting(&self) -> u16 {
        self.end.wrapping_sub(self.next)
    }

    /// Which frame of all is `ahead` of the next one, as indices count them.
    pub(crate) fn number(&self, ahead: u16) -> u16 {
        self.next.wrapping_add(ahead)
    }

    /// Copies and checks the chain that is `ahead` of the next one. Ask for no more than are waiting.
    pub(crate) fn chain(&self, iommu: &Iommu, ahead: u16) -> Result<Chain, Fault> {
        let place = self.next.wrapping_add(ahead) % self.places.entries;
        let mut word = [0; 2];
        let from = Self::at(self.places.available, RING_HEADER_BYTES, place, word.len());
        iommu.read(self.who(None), from, &mut word)?;
        let head = u16::from_le_bytes(word);
        let mut chain = Chain { head, parts: [(BusAddress(0), 0); CHAIN_MAX], count: 0 };
        let mut at = head;
        for part in &mut chain.parts {
            if at >= self.places.entries {
                return Err(Fault::Descriptor(at));
            }
            let mut bytes = [0; DESCRIPTOR_BYTES];
            let from = Self::at(self.places.table, 0, at, bytes.len());
            iommu.read(self.who(Some(head)), from, &mut bytes)?;
            let descriptor = Descriptor::decode(&bytes);
            let writes = if self.way == Way::Receives { WRITE } else { 0 };
            if descriptor.flags & (WRITE | INDIRECT) != writes {
                return Err(Fault::Flags(at, descriptor.flags));
            }
            *part = (descriptor.address, descriptor.length);
            chain.count += 1;
            if descriptor.flags & NEXT == 0 {
                return Ok(chain);
            }
            at = descriptor.next;
        }
        Err(Fault::Chain(head))
    }

    /// Copies all of a chain's buffers behind what is in `into`.
    pub(crate) fn gather(&self, iommu: &Iommu, chain: &Chain, into: &mut Vec<u8>) -> Result<(), Fault> {
        let bytes = chain.bytes();
        if bytes > crate::FRAME_BYTES_MAX as u64 {
            return Err(Fault::Length(chain.head, bytes));
        }
        for (address, length) in chain.parts() {
            let begin = into.len();
            into.resize(begin + usize::try_from(*length).unwrap_or(0), 0);
            iommu.read(self.who(Some(chain.head)), *address, into.get_mut(begin..).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Writes bytes into a chain's buffers, which have room for them.
    pub(crate) fn scatter(&self, iommu: &Iommu, chain: &Chain, from: &[u8]) -> Result<(), Fault> {
        let mut rest = from;
        for (address, length) in chain.parts() {
            let (part, left) = rest.split_at(rest.len().min(usize::try_from(*length).unwrap_or(usize::MAX)));
            iommu.write(self.who(Some(chain.head)), *address, part)?;
            rest = left;
        }
        if rest.is_empty() { Ok(()) } else { Err(Fault::Length(chain.head, chain.bytes())) }
    }

    /// Says that the next chain is used, which is not seen before it is published.
    pub(crate) fn complete(&mut self, iommu: &Iommu, head: u16, length: u32) -> Result<(), Fault> {
        let mut entry = [0; USED_BYTES];
        entry[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        entry[4..].copy_from_slice(&length.to_le_bytes());
        let place = self.used % self.places.entries;
        let to = Self::at(self.places.used, RING_HEADER_BYTES, place, entry.len());
        iommu.write(self.who(Some(head)), to, &entry)?;
        self.used = self.used.wrapping_add(1);
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Has what is used seen.
    pub(crate) fn publish(&self, iommu: &Iommu) -> Result<(), Fault> {
        iommu.publish_word(self.who(None), self.places.used, u32::from(self.used) << 16)?;
        Ok(())
    }
}
