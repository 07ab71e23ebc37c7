//! A driver for the model: a device's two queues in memory of this process, as a thread of the host would drive them.

use std::{net::SocketAddrV4, sync::Arc, time::Duration};

use bulkhead_nic::{
    Arrives, DATA_BYTES_MAX, Flow, Nic, Places, Stepped, Wire,
    frame::{self, HOP, Link, Links},
    pattern::Pattern,
    virtio::{Descriptor, NEEDS_CHECKSUM, NetHeader, WRITE},
};
use bulkhead_nvme::{Iommu, Memory, RamMemory, Rights, formats::BusAddress};

pub const ENTRIES: u16 = 256;
pub const BUFFER_BYTES: u64 = 2048;
const QUEUE_BYTES: u64 = 3 * 4096;
const BUFFERS: u64 = 2 * QUEUE_BYTES;
pub const BYTES: u64 = BUFFERS + 2 * ENTRIES as u64 * BUFFER_BYTES;
/// Where the memory lies on the bus.
pub const BUS: u64 = 1 << 30;
/// Of a frame, before its data.
pub const HEADERS: usize = 12 + frame::HEADER_BYTES;

/// Which queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Receives,
    Sends,
}

pub struct Driver<W> {
    pub nic: Nic<W>,
    pub memory: Arc<RamMemory>,
    pub iommu: Arc<Iommu>,
    /// How many descriptors are available, and how many used ones were taken.
    available: [u16; 2],
    taken: [u16; 2],
    now: Duration,
}

/// Where a queue's table lies in the memory.
pub fn table(which: Which) -> u64 {
    which as u64 * QUEUE_BYTES
}

/// Where a buffer lies in the memory.
pub fn buffer(which: Which, entry: u16) -> u64 {
    BUFFERS + (which as u64 * u64::from(ENTRIES) + u64::from(entry)) * BUFFER_BYTES
}

pub fn link(number: u8) -> Link {
    frame::link(0, number)
}

pub fn address(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

/// A flow with a remote, or one that listens.
pub fn flow(number: u8, local: SocketAddrV4, remote: Option<SocketAddrV4>) -> Flow {
    Flow { link: link(number), local, remote, peers: Pattern::ALL, arrives: Arrives::Queue, bucket: None }
}

/// A frame with the headers that gates write.
pub fn framed(link: Link, from: SocketAddrV4, to: SocketAddrV4, data: &[u8]) -> Vec<u8> {
    let header = NetHeader {
        flags: NEEDS_CHECKSUM,
        segmentation: 0,
        checksum_start: frame::UDP_START,
        checksum_offset: frame::UDP_CHECKSUM,
        buffers: 0,
    };
    let length = u16::try_from(data.len()).unwrap();
    let pseudo = frame::pseudo(*from.ip(), *to.ip(), length + 8);
    let mut bytes = header.encode().to_vec();
    bytes.extend(frame::headers(Links { from: link, to: HOP }, from, to, length, pseudo));
    bytes.extend(data);
    bytes
}

impl<W: Wire> Driver<W> {
    pub fn new(flows: Vec<Flow>, wire: W) -> Self {
        let (iommu, memory) =
            (Arc::new(Iommu::new()), Arc::new(RamMemory::zeroed(usize::try_from(BYTES).unwrap())));
        for (which, buffers) in [(Which::Receives, Rights::Write), (Which::Sends, Rights::Read)] {
            for (offset, bytes, rights) in [
                (table(which), 2 * 4096, Rights::Read),
                (table(which) + 2 * 4096, 4096, Rights::Write),
                (buffer(which, 0), u64::from(ENTRIES) * BUFFER_BYTES, buffers),
            ] {
                iommu
                    .map(
                        BusAddress(BUS + offset),
                        bytes,
                        Arc::clone(&memory) as Arc<dyn Memory>,
                        offset,
                        rights,
                    )
                    .unwrap();
            }
        }
        let places = |which| Places {
            table: BusAddress(BUS + table(which)),
            available: BusAddress(BUS + table(which) + 4096),
            used: BusAddress(BUS + table(which) + 2 * 4096),
            entries: ENTRIES,
        };
        let nic = Nic::new(Arc::clone(&iommu), places(Which::Receives), places(Which::Sends), flows, wire);
        Self { nic, memory, iommu, available: [0; 2], taken: [0; 2], now: Duration::ZERO }
    }

    /// Writes a descriptor.
    pub fn describe(&self, which: Which, entry: u16, descriptor: Descriptor) {
        self.memory.write(table(which) + u64::from(entry) * 16, &descriptor.encode());
    }

    /// Makes a chain available.
    pub fn offer(&mut self, which: Which, head: u16) {
        let index = &mut self.available[which as usize];
        let at = table(which) + 4096;
        self.memory.write(at + 4 + u64::from(*index % ENTRIES) * 2, &head.to_le_bytes());
        *index = index.wrapping_add(1);
        self.memory.publish(at, u32::from(*index) << 16);
    }

    /// Gives the device a buffer to receive into.
    pub fn give(&mut self, entry: u16) {
        let address = BusAddress(BUS + buffer(Which::Receives, entry) + 10);
        self.describe(Which::Receives, entry, Descriptor { address, length: 2038, flags: WRITE, next: 0 });
        self.offer(Which::Receives, entry);
    }

    /// Has a frame sent from a buffer.
    pub fn send(&mut self, entry: u16, frame: &[u8]) {
        let at = buffer(Which::Sends, entry) + 10;
        self.memory.write(at, frame);
        let length = u32::try_from(frame.len()).unwrap();
        self.describe(
            Which::Sends,
            entry,
            Descriptor { address: BusAddress(BUS + at), length, flags: 0, next: 0 },
        );
        self.offer(Which::Sends, entry);
    }

    /// What the device has used next, if anything.
    pub fn take(&mut self, which: Which) -> Option<(u16, u32)> {
        let (at, taken) = (table(which) + 2 * 4096, &mut self.taken[which as usize]);
        if u16::try_from(self.memory.observe(at) >> 16).unwrap() == *taken {
            return None;
        }
        let mut entry = [0; 8];
        self.memory.read(at + 4 + u64::from(*taken % ENTRIES) * 8, &mut entry);
        *taken = taken.wrapping_add(1);
        let [a, b, _, _, c, d, e, f] = entry;
        Some((u16::from_le_bytes([a, b]), u32::from_le_bytes([c, d, e, f])))
    }

    /// What was received into a buffer, without headers.
    pub fn data(&self, entry: u16, length: u32) -> Vec<u8> {
        let mut bytes =
            vec![0; usize::try_from(length).unwrap().clamp(HEADERS, HEADERS + DATA_BYTES_MAX) - HEADERS];
        self.memory.read(buffer(Which::Receives, entry) + 10 + HEADERS as u64, &mut bytes);
        bytes
    }

    pub fn step(&mut self) -> Stepped {
        self.step_after(Duration::from_micros(1))
    }

    pub fn step_after(&mut self, passed: Duration) -> Stepped {
        self.now += passed;
        self.nic.step(Some(self.available[Which::Sends as usize]), self.now)
    }
}
