//! What the device sends, receives and refuses.

use std::{
    collections::VecDeque,
    net::{SocketAddrV4, UdpSocket},
    sync::Arc,
    time::Duration,
};

use bulkhead_nic::{
    Arrived, Arrives, CHAIN_MAX, DATA_BYTES_MAX, Fault, Flow, Outgoing, PEERS_MAX, Record, Refusal, STEP_MAX,
    Sockets, Stepped, Taken, Wire,
    frame::Malformed,
    rate::{Bucket, Rate, Unit},
    region::{Part, Put, Region},
    virtio::{Descriptor, INDIRECT, NEXT, WRITE},
};
use bulkhead_nvme::{Memory, RamMemory, Rights, formats::BusAddress};

use crate::driver::{BUS, BYTES, Driver, ENTRIES, HEADERS, Which, address, buffer, flow, framed, link};

/// A wire that keeps what is sent, and has what is to come. It takes so many datagrams at a time.
#[derive(Default)]
pub struct Cable {
    pub sent: Vec<(usize, SocketAddrV4, Vec<u8>)>,
    pub coming: VecDeque<(usize, SocketAddrV4, Vec<u8>)>,
    pub full: bool,
}

impl Wire for Cable {
    fn send(&mut self, flow: usize, datagrams: &[Outgoing<'_>]) -> Taken {
        let count = if self.full { datagrams.len() / 2 } else { datagrams.len() };
        self.sent.extend(datagrams[..count].iter().map(|one| (flow, one.to, one.data.to_vec())));
        Taken { count, lost: 0 }
    }

    fn receive(&mut self, flow: usize, into: &mut [u8]) -> Option<Arrived> {
        let at = self.coming.iter().position(|(of, ..)| *of == flow)?;
        let (_, from, data) = self.coming.remove(at)?;
        let length = data.len().min(into.len());
        into[..length].copy_from_slice(&data[..length]);
        Some(Arrived { length, from })
    }
}

/// What is given to the device, and what it has to record.
type Case<Given, Recorded> = (Given, fn(&Recorded) -> bool);

fn local() -> SocketAddrV4 {
    address("127.0.0.1:7000")
}

fn remote() -> SocketAddrV4 {
    address("192.0.2.7:53")
}

/// Flow 0 has a remote, flow 1 listens.
fn flows() -> Vec<Flow> {
    vec![flow(0, local(), Some(remote())), flow(1, address("127.0.0.1:7001"), None)]
}

fn device() -> Driver<Cable> {
    Driver::new(flows(), Cable::default())
}

#[test]
fn what_kernels_send_leaves_in_order_and_as_it_was() {
    let mut driver = device();
    for turn in 0..1000_u16 {
        let data: Vec<u8> = (0..turn % 1473).map(|at| (at ^ turn).to_le_bytes()[0]).collect();
        driver.send(turn % ENTRIES, &framed(link(0), local(), remote(), &data));
        if turn % 7 == 6 || turn == 999 {
            assert_eq!(driver.step(), Stepped::Worked);
        }
    }
    let sent = std::mem::take(&mut driver.nic.wire().sent);
    assert_eq!(sent.len(), 1000);
    for (turn, (flow, to, data)) in (0_u16..).zip(sent) {
        let right = (0..turn % 1473).map(|at| (at ^ turn).to_le_bytes()[0]);
        assert!((flow, to) == (0, remote()) && data.into_iter().eq(right), "{turn}");
        assert_eq!(driver.take(Which::Sends), Some((turn % ENTRIES, 0)));
    }
    assert_eq!(
        (driver.take(Which::Sends), driver.nic.record_count(), driver.nic.counters().sent),
        (None, 0, 1000)
    );
}

#[test]
fn a_chain_of_buffers_is_one_frame_and_what_the_system_does_not_take_is_sent_later() {
    let mut driver = device();
    let frame = framed(link(0), local(), remote(), b"in eight pieces");
    driver.send(0, &frame);
    let (whole, at) = (u32::try_from(frame.len()).unwrap(), BUS + buffer(Which::Sends, 0) + 10);
    for piece in 0..8_u16 {
        let begin = u32::from(piece) * 9;
        let length = if piece == 7 { whole - begin } else { 9 };
        let flags = if piece == 7 { 0 } else { NEXT };
        let address = BusAddress(at + u64::from(begin));
        driver.describe(Which::Sends, piece, Descriptor { address, length, flags, next: piece + 1 });
    }
    assert_eq!(CHAIN_MAX, 8);
    driver.nic.wire().full = true;
    assert_eq!(driver.step(), Stepped::Waits);
    driver.nic.wire().full = false;
    assert_eq!(driver.step(), Stepped::Worked);
    assert_eq!(driver.nic.wire().sent, [(0, remote(), b"in eight pieces".to_vec())]);
    assert_eq!(driver.take(Which::Sends), Some((0, 0)));
}

#[test]
fn what_comes_is_framed_into_the_buffers_that_there_are() {
    let mut driver = device();
    let peer = address("198.51.100.1:9");
    for number in 0..10_u8 {
        driver.nic.wire().coming.push_back((1, peer, vec![number; 100 * usize::from(number)]));
    }
    // Not the flow's remote; too long.
    driver.nic.wire().coming.push_back((0, peer, vec![0; 10]));
    driver.nic.wire().coming.push_back((1, peer, vec![0; DATA_BYTES_MAX + 1]));
    assert_eq!(driver.step(), Stepped::Idle, "there is no buffer");
    for entry in 0..4 {
        driver.give(entry);
    }
    assert_eq!(driver.step(), Stepped::Worked);
    for number in 0..10_u16 {
        let (entry, length) = driver.take(Which::Receives).unwrap();
        assert_eq!((entry, length), (number % 4, u32::from(number) * 100 + u32::try_from(HEADERS).unwrap()));
        assert!(driver.data(entry, length).iter().all(|byte| u16::from(*byte) == number));
        driver.give(entry);
        driver.step();
    }
    let counters = driver.nic.counters();
    assert_eq!((counters.received, counters.dropped, driver.take(Which::Receives)), (10, 2, None));
    // Whom it has heard it answers, and nobody else.
    for (entry, to) in [(0, peer), (1, address("198.51.100.1:10"))] {
        driver.send(entry, &framed(link(1), address("127.0.0.1:7001"), to, b"answer"));
    }
    driver.step();
    assert_eq!(driver.nic.wire().sent, [(1, peer, b"answer".to_vec())]);
    assert_eq!(driver.nic.record_count(), 1);
}

#[test]
fn frames_that_are_not_of_a_flow_are_refused_and_recorded() {
    let other = address("127.0.0.1:7009");
    let right = framed(link(0), local(), remote(), b"data");
    let changed = |at: usize| {
        let mut bytes = right.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cases: [Case<Vec<u8>, Refusal>; 11] = [
        (framed(link(0), other, remote(), b"x"), |refusal| matches!(refusal, Refusal::Source(_))),
        (framed(link(1), local(), remote(), b"x"), |refusal| matches!(refusal, Refusal::Source(_))),
        (framed(link(0), local(), other, b"x"), |refusal| matches!(refusal, Refusal::Destination(..))),
        (framed(link(1), address("127.0.0.1:7001"), remote(), b"x"), |refusal| {
            matches!(refusal, Refusal::Destination(..))
        }),
        (changed(0), |refusal| *refusal == Refusal::Malformed(Malformed::Checksum)),
        (changed(1), |refusal| matches!(refusal, Refusal::Header(_))),
        (changed(6), |refusal| matches!(refusal, Refusal::Header(_))),
        (changed(24), |refusal| *refusal == Refusal::Malformed(Malformed::Link)),
        (changed(26), |refusal| *refusal == Refusal::Malformed(Malformed::Protocol)),
        (right[..50].to_vec(), |refusal| *refusal == Refusal::Malformed(Malformed::Short)),
        (right[..56].to_vec(), |refusal| *refusal == Refusal::Malformed(Malformed::Length)),
    ];
    let mut driver = device();
    for (entry, (frame, is_right)) in (0..).zip(&cases) {
        driver.send(entry, frame);
        driver.step();
        let records = driver.nic.take_records();
        // With no checksum asked for, the one that is there is not looked at.
        if frame[..] == changed(0)[..] && records.is_empty() {
            continue;
        }
        assert!(
            matches!(&records[..], [Record::Refusal(refusal)] if is_right(refusal)),
            "{entry}: {records:?}"
        );
    }
    let sent = std::mem::take(&mut driver.nic.wire().sent);
    assert!(sent.len() <= 1, "{sent:?}");
    // The queue goes on.
    driver.send(20, &right);
    driver.step();
    assert_eq!(driver.nic.wire().sent, [(0, remote(), b"data".to_vec())]);
}

#[test]
fn a_queue_that_makes_no_sense_ends_and_nothing_beside_its_memory_is_reached() {
    let at = BUS + buffer(Which::Sends, 0);
    let plain = Descriptor { address: BusAddress(at), length: 100, flags: 0, next: 0 };
    let cases: [Case<Descriptor, Fault>; 9] = [
        (Descriptor { address: BusAddress(BUS + BYTES - 50), ..plain }, |fault| {
            matches!(fault, Fault::Memory(_))
        }),
        (Descriptor { address: BusAddress(0), ..plain }, |fault| matches!(fault, Fault::Memory(_))),
        (Descriptor { address: BusAddress(u64::MAX - 50), ..plain }, |fault| {
            matches!(fault, Fault::Memory(_))
        }),
        // The other queue's buffers are to be written.
        (Descriptor { address: BusAddress(BUS + buffer(Which::Receives, 3)), ..plain }, |fault| {
            matches!(fault, Fault::Memory(_))
        }),
        (Descriptor { length: u32::MAX, ..plain }, |fault| matches!(fault, Fault::Length(0, _))),
        (Descriptor { flags: WRITE, ..plain }, |fault| matches!(fault, Fault::Flags(0, WRITE))),
        (Descriptor { flags: INDIRECT, ..plain }, |fault| matches!(fault, Fault::Flags(0, INDIRECT))),
        (Descriptor { flags: NEXT, next: 0, ..plain }, |fault| matches!(fault, Fault::Chain(0))),
        (Descriptor { flags: NEXT, next: ENTRIES, ..plain }, |fault| {
            matches!(fault, Fault::Descriptor(ENTRIES))
        }),
    ];
    for (descriptor, is_right) in cases {
        let mut driver = device();
        driver.describe(Which::Sends, 0, descriptor);
        driver.offer(Which::Sends, 0);
        driver.step();
        let records = driver.nic.take_records();
        assert!(
            matches!(&records[..], [Record::Fault(fault)] if is_right(fault)),
            "{descriptor:?}: {records:?}"
        );
        driver.send(1, &framed(link(0), local(), remote(), b"late"));
        assert_eq!((driver.step(), driver.take(Which::Sends)), (Stepped::Idle, None));
        assert!(driver.nic.wire().sent.is_empty());
        // The other queue works.
        driver.nic.wire().coming.push_back((0, remote(), vec![1]));
        driver.give(0);
        assert_eq!(driver.step(), Stepped::Worked);
    }
    // More than there are entries.
    let mut driver = device();
    for _ in 0..=ENTRIES {
        driver.offer(Which::Sends, 0);
    }
    driver.step();
    assert_eq!(driver.nic.take_records(), [Record::Fault(Fault::Ahead(ENTRIES + 1))]);
}

#[test]
fn what_is_over_the_rate_waits_and_nothing_of_it_is_lost() {
    let mut flows = flows();
    flows[0].bucket = Some(Bucket::new(Rate { count: 1000, unit: Unit::Packets }, Duration::ZERO));
    let mut driver = Driver::new(flows, Cable::default());
    for entry in 0..200 {
        driver.send(entry, &framed(link(0), local(), remote(), &[entry.to_le_bytes()[0]]));
    }
    let mut after = Vec::new();
    for _ in 0..250 {
        driver.step_after(Duration::from_millis(1));
        after.push(driver.nic.wire().sent.len());
    }
    // One each millisecond, from the first on: there is nothing in the bucket of a flow that was just opened.
    assert!((1..100).all(|at| (at..=at + 2).contains(&after[at])), "{after:?}");
    let sent = std::mem::take(&mut driver.nic.wire().sent);
    assert!(sent.iter().zip(0_u8..).all(|((_, _, data), at)| data[..] == [at]) && sent.len() == 200);
    let delayed = driver.nic.counters().delayed;
    assert!((100..=200).contains(&delayed) && driver.nic.record_count() == 0, "{delayed}");
}

#[test]
fn a_flood_of_peers_takes_bounded_memory_and_the_last_are_answered() {
    let mut driver = device();
    let peer = |number: usize| SocketAddrV4::new([10, 0, 0, 1].into(), u16::try_from(number + 1).unwrap());
    driver.give(0);
    for number in 0..PEERS_MAX + 10 {
        driver.nic.wire().coming.push_back((1, peer(number), vec![1]));
        driver.step();
        driver.take(Which::Receives).unwrap();
        driver.give(0);
    }
    for (entry, number) in [(0, 9), (1, 10), (2, PEERS_MAX + 9)] {
        driver.send(entry, &framed(link(1), address("127.0.0.1:7001"), peer(number), b"late"));
    }
    driver.step();
    let to: Vec<_> = driver.nic.wire().sent.iter().map(|(_, to, _)| *to).collect();
    assert_eq!(to, [peer(10), peer(PEERS_MAX + 9)]);
}

#[test]
fn a_flood_to_one_flow_takes_no_more_than_its_turns() {
    let listens = |number: u8| flow(number, address(&format!("127.0.0.1:700{number}")), None);
    let flood = |flow: usize| (flow, address("198.51.100.1:9"), vec![0xF1; 8]);
    let honest = |flow: usize, number: u8| (flow, address("198.51.100.2:9"), vec![number; 8]);
    for flooded in 0..3 {
        let others = [(flooded + 1) % 3, (flooded + 2) % 3];
        let mut driver = Driver::new((0..3).map(listens).collect(), Cable::default());
        let coming = &mut driver.nic.wire().coming;
        coming.extend((0..4000).map(|_| flood(flooded)));
        for number in 0..40 {
            coming.extend(others.map(|of| honest(of, number)));
        }
        // As if its programs gave buffers back one by one: each flow has every third.
        let mut came = Vec::new();
        let take = |driver: &mut Driver<Cable>, came: &mut Vec<u8>| {
            while let Some((entry, length)) = driver.take(Which::Receives) {
                came.push(driver.data(entry, length)[0]);
            }
        };
        for entry in 0..30 {
            driver.give(entry);
            driver.step();
            take(&mut driver, &mut came);
        }
        assert_eq!(came.iter().filter(|first| **first != 0xF1).count(), 20, "{came:?}");
        // As if there were buffers for all: a step is for all flows together, and all of what was honest comes in it.
        for entry in 30..ENTRIES {
            driver.give(entry);
        }
        came.clear();
        driver.step();
        take(&mut driver, &mut came);
        assert_eq!(came.len(), usize::from(STEP_MAX));
        driver.step();
        take(&mut driver, &mut came);
        let right: Vec<u8> = (10..40).flat_map(|number| [number, number]).collect();
        assert!(came.into_iter().filter(|first| *first != 0xF1).eq(right));
    }
}

#[test]
fn what_is_dropped_takes_its_turn_too() {
    let mut flows = flows();
    flows[1].peers = "127.0.0.0/8:*".parse().unwrap();
    let mut driver = Driver::new(flows, Cable::default());
    let stranger = address("198.51.100.1:9");
    driver.nic.wire().coming.extend((0..1000).map(|_| (1, stranger, vec![1])));
    driver.nic.wire().coming.extend((0..20).map(|_| (0, remote(), vec![2])));
    for entry in 0..ENTRIES {
        driver.give(entry);
    }
    driver.step();
    let counters = driver.nic.counters();
    assert_eq!((counters.received, counters.dropped), (20, u64::from(STEP_MAX) - 20));
}

#[test]
fn puts_are_written_where_their_flow_may_write_and_then_counted() {
    const BYTES: u64 = 8192;
    let memory = Arc::new(RamMemory::zeroed(2 * 8192));
    let mut flows = flows();
    flows[0].arrives = Arrives::Region(Part { bytes: 128..BYTES - 128, signals: 1..4 });
    let driver = Driver::new(flows, Cable::default());
    let (region, signals) = (BusAddress(1 << 40), BusAddress((1 << 40) + BYTES));
    driver.iommu.map(region, 2 * BYTES, memory.clone(), 0, Rights::Write).unwrap();
    let Driver { nic, .. } = driver;
    let mut nic = nic.with_region(Region::new(region, signals, 5));
    let put = |offset: u64, signal: u32, bytes: usize| {
        let mut datagram = vec![0xAB; bytes];
        datagram.extend(Put { offset, signal }.encode(u32::try_from(bytes).unwrap()));
        (0, remote(), datagram)
    };
    for (offset, signal, bytes) in [
        (0, 1, 64),
        (127, 1, 64),
        (BYTES - 128, 1, 1),
        (BYTES - 129, 1, 2),
        (BYTES, 1, 64),
        (u64::MAX, 1, 64),
        (u64::MAX - 63, 1, 64),
        // Signals of others, and one that there is not.
        (128, 0, 64),
        (128, 4, 64),
        (128, 5, 64),
        (128, u32::MAX, 64),
    ] {
        nic.wire().coming.push_back(put(offset, signal, bytes));
    }
    nic.wire().coming.push_back((0, remote(), vec![0xAB; 64]));
    nic.wire().coming.push_back((0, remote(), Vec::new()));
    // Not of whoever may.
    let (of, _, datagram) = put(128, 1, 64);
    nic.wire().coming.push_back((of, address("192.0.2.8:53"), datagram));
    nic.step(None, Duration::ZERO);
    let mut all = vec![0; 2 * 8192];
    memory.read(0, &mut all);
    assert!(all.iter().all(|byte| *byte == 0));
    assert_eq!((nic.counters().written, nic.counters().refused, nic.counters().dropped), (0, 13, 1));
    for (offset, signal, bytes) in [(128, 1, 64), (BYTES - 129, 3, 1), (200, 3, 0)] {
        nic.wire().coming.push_back(put(offset, signal, bytes));
    }
    nic.step(None, Duration::ZERO);
    memory.read(0, &mut all);
    let written: Vec<_> = (0..8192).filter(|at| all[*at] == 0xAB).collect();
    assert!(written.into_iter().eq((128..192).chain([8192 - 129])));
    let counted: Vec<_> = all[8192..8212].chunks(4).map(|word| word[0]).collect();
    assert_eq!(counted, [0, 1, 0, 2, 0]);
    assert_eq!((nic.counters().written, nic.record_count()), (3, 0));
}

#[test]
fn sockets_carry_datagrams_both_ways() {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let std::net::SocketAddr::V4(remote) = peer.local_addr().unwrap() else { panic!("not IPv4") };
    let mut sockets = Sockets::new().unwrap();
    let connected = sockets.open(address("127.0.0.1:0"), Some(remote)).unwrap();
    let listens = sockets.open(address("127.0.0.1:0"), None).unwrap();
    assert!(sockets.open(listens, None).is_err(), "it has one already");
    let mut driver = Driver::new(vec![flow(0, connected, Some(remote)), flow(1, listens, None)], sockets);
    for entry in 0..100 {
        driver.give(entry);
        driver.send(entry, &framed(link(0), connected, remote, &entry.to_le_bytes()));
    }
    let mut bytes = [0; 16];
    while driver.step() == Stepped::Worked {}
    for entry in 0..100_u16 {
        let (length, from) = peer.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..length], from), (&entry.to_le_bytes()[..], connected.into()));
    }
    for to in [connected, listens] {
        peer.send_to(to.to_string().as_bytes(), to).unwrap();
    }
    // Whoever is not the remote is not heard.
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"stranger", connected).unwrap();
    let mut came = Vec::new();
    while came.len() < 2 {
        driver.nic.wire().wait(Duration::from_secs(10));
        driver.step();
        while let Some((entry, length)) = driver.take(Which::Receives) {
            came.push(String::from_utf8(driver.data(entry, length)).unwrap());
        }
    }
    came.sort();
    let mut right = [connected.to_string(), listens.to_string()];
    right.sort();
    assert_eq!((came[..].to_vec(), driver.nic.record_count()), (right.to_vec(), 0));
}
