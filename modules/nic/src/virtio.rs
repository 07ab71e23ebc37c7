//! What lies in memory between a driver and a virtio network device: virtio 1.2, 2.7 (split virtqueues) and 5.1 (network).
//!
//! Everything is little-endian. Decoding never fails: whoever uses a value checks it.

use bulkhead_nvme::formats::BusAddress;

/// A descriptor's bytes.
pub const DESCRIPTOR_BYTES: usize = 16;
/// Bytes of an entry of the used ring.
pub const USED_BYTES: usize = 8;
/// Bytes before the entries of either ring: flags and index.
pub const RING_HEADER_BYTES: u64 = 4;
/// Bytes of the header before a frame: without hash report.
pub const NET_HEADER_BYTES: usize = 12;

/// The chain goes on with `next`.
pub const NEXT: u16 = 1;
/// The device writes the buffer; it reads it otherwise.
pub const WRITE: u16 = 2;
/// The buffer is a table of descriptors. Not offered.
pub const INDIRECT: u16 = 4;

/// Of a network header's flags: the device completes the checksum.
pub const NEEDS_CHECKSUM: u8 = 1;

/// A descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Where its buffer lies on the bus.
    pub address: BusAddress,
    /// The buffer's bytes.
    pub length: u32,
    /// [`NEXT`], [`WRITE`], [`INDIRECT`].
    pub flags: u16,
    /// Which descriptor is next, where there is one.
    pub next: u16,
}

impl Descriptor {
    /// As it lies in memory.
    #[must_use]
    pub fn encode(&self) -> [u8; DESCRIPTOR_BYTES] {
        let (address, length) = (self.address.0.to_le_bytes(), self.length.to_le_bytes());
        let (flags, next) = (self.flags.to_le_bytes(), self.next.to_le_bytes());
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..8].copy_from_slice(&address);
        bytes[8..12].copy_from_slice(&length);
        bytes[12..14].copy_from_slice(&flags);
        bytes[14..].copy_from_slice(&next);
        bytes
    }

    /// What these bytes say.
    #[must_use]
    pub fn decode(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Self {
            address: BusAddress(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            length: u32::from_le_bytes([i, j, k, l]),
            flags: u16::from_le_bytes([m, n]),
            next: u16::from_le_bytes([o, p]),
        }
    }
}

/// The header before a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetHeader {
    /// [`NEEDS_CHECKSUM`].
    pub flags: u8,
    /// Segmentation: none is 0, and nothing else is offered.
    pub segmentation: u8,
    /// Where the checksum begins, in the frame, and where in what begins there it lies.
    pub checksum_start: u16,
    /// See [`checksum_start`](Self::checksum_start).
    pub checksum_offset: u16,
    /// How many buffers a received frame takes: 1.
    pub buffers: u16,
}

impl NetHeader {
    /// As it lies in memory. Header length and segment size are 0.
    #[must_use]
    pub fn encode(&self) -> [u8; NET_HEADER_BYTES] {
        let mut bytes = [0; NET_HEADER_BYTES];
        bytes[0] = self.flags;
        bytes[1] = self.segmentation;
        bytes[6..8].copy_from_slice(&self.checksum_start.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.checksum_offset.to_le_bytes());
        bytes[10..].copy_from_slice(&self.buffers.to_le_bytes());
        bytes
    }

    /// What these bytes say.
    #[must_use]
    pub fn decode(bytes: &[u8; NET_HEADER_BYTES]) -> Self {
        let [flags, segmentation, _, _, _, _, a, b, c, d, e, f] = *bytes;
        Self {
            flags,
            segmentation,
            checksum_start: u16::from_le_bytes([a, b]),
            checksum_offset: u16::from_le_bytes([c, d]),
            buffers: u16::from_le_bytes([e, f]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_and_headers_lie_as_the_specification_has_them() {
        let descriptor = Descriptor {
            address: BusAddress(0x0807_0605_0403_0201),
            length: 0x0C0B_0A09,
            flags: 0x0E0D,
            next: 0x100F,
        };
        let bytes = descriptor.encode();
        assert_eq!(bytes.to_vec(), (1..=16).collect::<Vec<u8>>());
        assert_eq!(Descriptor::decode(&bytes), descriptor);
        let header = NetHeader {
            flags: NEEDS_CHECKSUM,
            segmentation: 0,
            checksum_start: 34,
            checksum_offset: 6,
            buffers: 1,
        };
        assert_eq!(header.encode(), [1, 0, 0, 0, 0, 0, 34, 0, 6, 0, 1, 0]);
        assert_eq!(NetHeader::decode(&header.encode()), header);
    }
}
