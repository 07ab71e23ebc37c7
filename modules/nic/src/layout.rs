//! What `gates.cu` keeps where: its constants and structures once more, which assertions compare.

use bulkhead_nic::frame::{self, HOP, Link, Links};
use bulkhead_nic::virtio::{NEEDS_CHECKSUM, NetHeader};

use crate::{flows::Asked, window};

/// Instances at a time.
pub(crate) const INSTANCES: usize = 8;
/// Flows of an instance.
pub(crate) const FLOWS: usize = 16;
/// Of each queue, and buffers for it.
pub(crate) const ENTRIES: u16 = 256;
const BUFFER_BYTES: u64 = 2048;
/// Bytes of a buffer that a frame does not begin with, so that its data lies at a multiple of 64.
pub(crate) const UNUSED_BYTES: u64 = 10;

const PAGE_BYTES: u64 = 4096;
const QUEUE_BYTES: u64 = 3 * PAGE_BYTES;
/// The device reads so much of a queue, and writes the page behind.
pub(crate) const READ_BYTES: u64 = 2 * PAGE_BYTES;
pub(crate) const WRITTEN_BYTES: u64 = PAGE_BYTES;
/// Buffers of a queue.
pub(crate) const BUFFERS_BYTES: u64 = ENTRIES as u64 * BUFFER_BYTES;
pub(crate) const REGISTERS_BYTES: u64 = 64;
/// What peers may write of an instance, and the signals that count it.
pub(crate) const REGION_BYTES: u64 = 65536;
pub(crate) const SIGNALS: usize = 16;
/// A signal is of the part of the region that has its first byte: these lie so far apart.
pub(crate) const SIGNAL_BYTES: u64 = REGION_BYTES / SIGNALS as u64;
pub(crate) const SIGNALS_BYTES: u64 = PAGE_BYTES;

const ALL: u64 = INSTANCES as u64;
const BUFFERS: u64 = window::DEVICE + ALL * 2 * QUEUE_BYTES;
const REGIONS: u64 = BUFFERS + ALL * 2 * BUFFERS_BYTES;
const SIGNALS_AT: u64 = REGIONS + ALL * REGION_BYTES;
const REGISTERS: u64 = SIGNALS_AT + ALL * SIGNALS_BYTES;
const _: () = assert!(REGISTERS + ALL * REGISTERS_BYTES == window::DEVICE + window::DEVICE_BYTES);

/// Of an instance in the device's memory.
pub(crate) const BADGE: u64 = 0;
pub(crate) const INSTANCE_BYTES: usize = 7528;
const SENDS_AT: usize = 8;
const QUEUES: usize = 40;
const QUEUE: usize = 32;
const FLOW_TABLE: usize = QUEUES + 2 * QUEUE;
const FLOW: usize = 80;
const STATES: usize = FLOW_TABLE + FLOWS * FLOW;
const FILLED: usize = STATES + 2 * ENTRIES as usize * 4;
const PEERS: usize = FILLED + 2 * ENTRIES as usize * 4;
const _: () = assert!(PEERS + ENTRIES as usize * 8 == INSTANCE_BYTES);
const _: () = assert!(window::INSTANCES_BYTES == ALL * INSTANCE_BYTES as u64);

/// What the state of a buffer says that the device has.
const FLIGHT: u32 = 2;

/// Where the parts of an instance's queue lie in host memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) table: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    pub(crate) buffers: u64,
}

/// The queue to receive (0) or to send (1) of an instance.
pub(crate) fn parts(slot: usize, which: usize) -> Parts {
    let at = slot as u64 * 2 + which as u64;
    let table = window::DEVICE + at * QUEUE_BYTES;
    Parts {
        table,
        available: table + PAGE_BYTES,
        used: table + READ_BYTES,
        buffers: BUFFERS + at * BUFFERS_BYTES,
    }
}

/// Where an instance's registers lie in host memory: one word for each queue.
pub(crate) fn registers(slot: usize) -> u64 {
    REGISTERS + slot as u64 * REGISTERS_BYTES
}

/// Where an instance's region lies in host memory.
pub(crate) fn region(slot: usize) -> u64 {
    REGIONS + slot as u64 * REGION_BYTES
}

/// Where its signals lie: a word each.
pub(crate) fn signals(slot: usize) -> u64 {
    SIGNALS_AT + slot as u64 * SIGNALS_BYTES
}

/// Where an instance lies in the device's memory.
pub(crate) fn instance(slot: usize) -> u64 {
    window::INSTANCES + (slot * INSTANCE_BYTES) as u64
}

/// Where a buffer begins, by its descriptor.
pub(crate) fn buffer(descriptor: u16) -> u64 {
    u64::from(descriptor) * BUFFER_BYTES
}

/// How much of it a frame has.
pub(crate) const ROOM_BYTES: u64 = BUFFER_BYTES - UNUSED_BYTES;

/// What the gates keep of an instance when it opens, without its badge.
pub(crate) fn opened(sends: u64, flows: &[(Link, Asked)]) -> Vec<u8> {
    let mut kept = vec![0; INSTANCE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| kept[at..at + bytes.len()].copy_from_slice(bytes);
    put(SENDS_AT, &sends.to_le_bytes());
    // All buffers to receive are the device's: tail and rung.
    put(QUEUES + 4, &u32::from(ENTRIES).to_le_bytes());
    put(QUEUES + 8, &u32::from(ENTRIES).to_le_bytes());
    for entry in 0..usize::from(ENTRIES) {
        put(STATES + (usize::from(ENTRIES) + entry) * 4, &FLIGHT.to_le_bytes());
        let number = u32::try_from(entry).unwrap_or(0);
        put(FILLED + entry * 4, &((number + 1) << 8 | number).to_le_bytes());
    }
    for ((link, flow), at) in flows.iter().zip((FLOW_TABLE..).step_by(FLOW)) {
        put(at, &template(*link, flow));
    }
    kept
}

/// What the gates keep of a flow.
fn template(link: Link, flow: &Asked) -> [u8; FLOW] {
    let nobody = std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0);
    let mut packet = [0; 64];
    let header = NetHeader {
        flags: NEEDS_CHECKSUM,
        segmentation: 0,
        checksum_start: frame::UDP_START,
        checksum_offset: frame::UDP_CHECKSUM,
        buffers: 0,
    };
    packet[10..22].copy_from_slice(&header.encode());
    packet[22..].copy_from_slice(&frame::headers(Links { from: link, to: HOP }, flow.local, nobody, 0, 0));
    // Lengths, checksums and destination are each packet's own.
    for own in [38..40, 46..48, 60..62] {
        packet[own].fill(0);
    }
    let swapped = |sum: u16| u32::from(sum.swap_bytes()).to_le_bytes();
    let remote = flow.remote.unwrap_or(nobody);
    let mut bytes = [0; FLOW];
    bytes[..48].copy_from_slice(&packet[16..]);
    bytes[48..52].copy_from_slice(&remote.ip().octets());
    bytes[52..54].copy_from_slice(&remote.port().to_be_bytes());
    bytes[56..60].copy_from_slice(&swapped(frame::sum(0, &packet[36..56])));
    bytes[60..64].copy_from_slice(&swapped(frame::pseudo(*flow.local.ip(), *nobody.ip(), 0)));
    bytes[64..68].copy_from_slice(&(flow.rights as u32).to_le_bytes());
    bytes
}
