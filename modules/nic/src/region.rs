//! One-sided writes: datagrams that are written into memory of whom they come to, which counts them by a signal word.
//!
//! Such a datagram is data and a trailer of 24 bytes behind it, little-endian: `BHP1`, how many bytes of data stand before it, the
//! offset of 8 bytes where they go to, the number of the signal, and 4 bytes of zero.

use std::ops::Range;

use bulkhead_nvme::{
    Iommu, Who,
    formats::{BusAddress, QueueId},
};

use crate::queue::Fault;

/// Bytes of the trailer.
pub const TRAILER_BYTES: usize = 24;
const MAGIC: [u8; 4] = *b"BHP1";
/// On whose behalf the device writes there: no queue's.
const WHO: Who = Who { queue: QueueId(2), command: None };

/// Where a datagram is to be written, and what counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put {
    /// Where in the region.
    pub offset: u64,
    /// Which signal.
    pub signal: u32,
}

impl Put {
    /// The trailer behind so much data.
    #[must_use]
    pub fn encode(&self, data_bytes: u32) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&data_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.signal.to_le_bytes());
        bytes
    }

    /// What a datagram says, and its data; nothing where it is none of these.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (data, trailer) = datagram.split_last_chunk::<TRAILER_BYTES>()?;
        let [m, a, g, i, c0, c1, c2, c3, o @ .., s0, s1, s2, s3, 0, 0, 0, 0] = trailer else { return None };
        let length = u32::from_le_bytes([*c0, *c1, *c2, *c3]);
        let offset = u64::from_le_bytes(*o);
        let right =
            [*m, *a, *g, *i] == MAGIC && usize::try_from(length).is_ok_and(|length| length == data.len());
        right.then(|| (Self { offset, signal: u32::from_le_bytes([*s0, *s1, *s2, *s3]) }, data))
    }
}

/// What a flow may write of a region, and which signals it may count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Where in the region.
    pub bytes: Range<u64>,
    /// Which signals.
    pub signals: Range<u32>,
}

impl Part {
    /// Whether so much data, counted so, lies within it.
    fn has(&self, put: Put, data: &[u8]) -> bool {
        let end = put.offset.checked_add(data.len() as u64);
        self.signals.contains(&put.signal)
            && put.offset >= self.bytes.start
            && end.is_some_and(|end| end <= self.bytes.end)
    }
}

/// Memory that datagrams are written into.
#[derive(Debug)]
pub struct Region {
    memory: BusAddress,
    signals: BusAddress,
    counts: Vec<u32>,
}

impl Region {
    /// Memory from a bus address on, and so many signal words from another on, all of which are zero.
    #[must_use]
    pub fn new(memory: BusAddress, signals: BusAddress, count: usize) -> Self {
        Self { memory, signals, counts: vec![0; count] }
    }

    /// Writes a datagram where it says, and then counts it, if both lie `within`. Whether it was written.
    pub(crate) fn write(&mut self, iommu: &Iommu, within: &Part, datagram: &[u8]) -> Result<bool, Fault> {
        let Some((put, data)) = Put::parse(datagram) else { return Ok(false) };
        if !within.has(put, data) {
            return Ok(false);
        }
        let Put { offset, signal } = put;
        let at = usize::try_from(signal).unwrap_or(usize::MAX);
        let (Some(to), Some(count)) = (self.memory.checked_add(offset), self.counts.get_mut(at)) else {
            return Ok(false);
        };
        iommu.write(WHO, to, data)?;
        *count = count.wrapping_add(1);
        let word = self.signals.checked_add(u64::from(signal) * 4).unwrap_or(BusAddress(u64::MAX));
        iommu.publish_word(WHO, word, *count)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else_is_one() {
        let put = Put { offset: 0x0102_0304_0506_0708, signal: 9 };
        let mut datagram = b"12345".to_vec();
        datagram.extend(put.encode(5));
        assert_eq!(Put::parse(&datagram), Some((put, &b"12345"[..])));
        assert_eq!(
            Put::parse(&Put { offset: 1, signal: 2 }.encode(0)),
            Some((Put { offset: 1, signal: 2 }, &[][..]))
        );
        for at in (5..13).chain(25..29) {
            let mut changed = datagram.clone();
            changed[at] ^= 1;
            assert_eq!(Put::parse(&changed), None, "byte {at}");
        }
        for length in 0..datagram.len() {
            assert_eq!(Put::parse(&datagram[..length]), None);
        }
    }
}
