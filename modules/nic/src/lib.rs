//! Virtio formats for network devices, and a model NIC that executes virtqueues over UDP sockets.
//!
//! A *virtqueue* is a table of descriptors and two rings: in the *available* ring a driver says which chains of descriptors the
//! device may use, in the *used* ring the device says which it has used. A *frame* is what a NIC sends: Ethernet, IPv4, UDP and
//! data, with a virtio header of 12 bytes before it. A *flow* is a local address, whom it may send to, and how much.
//!
//! [`Nic`] stands where a virtual function of a network card would: a queue to receive and a queue to send. Frames that it is
//! given become datagrams of a [`Wire`], and datagrams that come become frames. It has no thread; whoever owns it calls
//! [`Nic::step`]. What a device has and the model has not: interrupts, ARP, IPv6, fragments, segmentation, several queues of a
//! kind, packed rings, indirect descriptors.
//!
//! # Invariants
//! 1. The device reads and writes memory through its [`Iommu`](bulkhead_nvme::Iommu) only. An access outside of the table
//!    touches nothing, is recorded, and ends the queue.
//! 2. A descriptor is copied once; the copy is checked, and the copy is used. A chain has at most [`CHAIN_MAX`] of them, and a
//!    frame at most [`FRAME_BYTES_MAX`] bytes.
//! 3. A frame is sent only where it is of a flow of this device, and goes to whom that flow may send to: its remote, or, where
//!    it has none, one of the last [`PEERS_MAX`] that it has heard. Anything else is recorded and dropped.
//! 4. What is over a flow's rate waits, and with it what stands behind it in the queue. Nothing of it is lost.
//! 5. A datagram that is written into a region lies within what its flow may write there, and is counted after it is written,
//!    by a signal that its flow may count.
//! 6. No register, ring, descriptor or datagram makes the device panic, loop or use memory without bound.
//!
//! # What it trusts
//! Its owner, and the system's sockets. Not trusted: whoever writes rings and buffers, and whoever sends datagrams.

pub mod frame;
pub mod pattern;
pub mod rate;
pub mod region;
pub mod virtio;

mod nic;
mod peers;
mod queue;
mod sockets;

pub use nic::{Arrives, Counters, Flow, Nic, RECORDS_MAX, Record, Refusal, STEP_MAX, Stepped};
pub use peers::PEERS_MAX;
pub use queue::{CHAIN_MAX, Fault, Places};
pub use sockets::Sockets;

use std::net::SocketAddrV4;

/// Longest frame, with its virtio header.
pub const FRAME_BYTES_MAX: usize = virtio::NET_HEADER_BYTES + frame::HEADER_BYTES + DATA_BYTES_MAX;
/// Longest datagram.
pub const DATA_BYTES_MAX: usize = 1472;

/// A datagram that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Whom to.
    pub to: SocketAddrV4,
    /// What.
    pub data: &'a [u8],
}

/// What a wire did of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// How many datagrams are done with, from the first on; the others may be tried later.
    pub count: usize,
    /// How many of them were lost: the system refuses them.
    pub lost: usize,
}

/// A datagram that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Its bytes; more than there is room for where it was cut.
    pub length: usize,
    /// Whom from.
    pub from: SocketAddrV4,
}

/// What is behind a device: it sends and receives datagrams, and never waits.
pub trait Wire {
    /// Sends datagrams of a flow.
    fn send(&mut self, flow: usize, datagrams: &[Outgoing<'_>]) -> Taken;

    /// Receives a datagram of a flow, if there is one.
    fn receive(&mut self, flow: usize, into: &mut [u8]) -> Option<Arrived>;

    /// Which flows may have something; false ones cost little.
    fn ready(&mut self, flows: usize, into: &mut Vec<usize>) {
        into.extend(0..flows);
    }
}
