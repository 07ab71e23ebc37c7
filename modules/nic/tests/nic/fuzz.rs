//! Random rings, descriptors, frames and datagrams.

use bulkhead_nic::{FRAME_BYTES_MAX, virtio::Descriptor};
use bulkhead_nvme::{Memory, Rights, formats::BusAddress};

use crate::{
    driver::{BUS, BYTES, Driver, ENTRIES, Which, address, buffer, flow, framed, link, table},
    model::Cable,
};

/// Numbers that repeat with their seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn short(&mut self) -> u16 {
        let [a, b, ..] = self.next().to_le_bytes();
        u16::from_le_bytes([a, b])
    }
}

/// What lies beside the device's memory on the bus, and what it holds: nothing reaches it.
const BESIDE: u64 = 0xA5;

fn some_address(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => random.next(),
        1 => BUS + BYTES - random.below(4096),
        2 => u64::MAX - random.below(4096),
        3 => BUS - random.below(4096),
        4 => BUS + random.below(BYTES),
        _ => BUS + buffer(Which::Sends, random.short() % ENTRIES) + 10,
    }
}

fn some_length(random: &mut Random, frame: usize) -> u32 {
    let any = u32::try_from(random.below(1 << 32)).unwrap();
    match random.below(6) {
        0 => any,
        1 => any % 4096,
        2 => 0,
        _ => u32::try_from(frame).unwrap(),
    }
}

/// One thing that nobody sane does to a device.
fn disturb(random: &mut Random, driver: &mut Driver<Cable>) {
    let which = if random.below(3) == 0 { Which::Receives } else { Which::Sends };
    match random.below(6) {
        0 => {
            let (at, word) = (random.below(3 * 1024) * 4, u32::try_from(random.below(1 << 32)).unwrap());
            driver.memory.publish(table(which) + at, word);
        }
        1 => driver.offer(which, random.short() % (ENTRIES + 8)),
        2 => driver.memory.publish(table(which) + 4096, u32::try_from(random.below(1 << 32)).unwrap()),
        _ => {
            let entry = random.short() % ENTRIES;
            let flags = if random.below(2) == 0 { random.short() % 8 } else { random.short() };
            let (address, length) = (BusAddress(some_address(random)), some_length(random, 100));
            driver.describe(
                which,
                entry,
                Descriptor { address, length, flags, next: random.short() % (ENTRIES + 2) },
            );
            driver.offer(which, entry);
        }
    }
}

#[test]
fn no_ring_descriptor_or_frame_makes_the_device_panic_or_reach_beyond_its_table() {
    let (local, remote) = (address("127.0.0.1:7000"), address("192.0.2.7:53"));
    let (mut violations, mut sent, mut faults) = (0, 0, 0);
    for seed in 0..400 {
        let mut random = Random(seed);
        let flows = vec![flow(0, local, Some(remote)), flow(1, address("127.0.0.1:7001"), None)];
        let mut driver = Driver::new(flows, Cable::default());
        // Memory of another's, where a range that is cut wrongly would end.
        let beside = std::sync::Arc::new(bulkhead_nvme::RamMemory::zeroed(8192));
        beside.write(0, &[0xA5; 8192]);
        assert!(
            driver
                .iommu
                .map(BusAddress(BUS + BYTES + 4096), 4096, beside.clone(), 4096, Rights::Write)
                .is_ok()
        );
        for _ in 0..60 {
            let entry = random.short() % ENTRIES;
            let mut frame = framed(link(0), local, remote, &vec![7; usize::from(random.short() % 200)]);
            if random.below(3) == 0 {
                let at = usize::try_from(random.below(frame.len() as u64)).unwrap();
                frame[at] ^= 1 << random.below(8);
            }
            driver.send(entry, &frame);
            if random.below(2) == 0 {
                driver.give(random.short() % ENTRIES);
            }
            if random.below(4) == 0 {
                disturb(&mut random, &mut driver);
            }
            let from = if random.below(2) == 0 { remote } else { address("10.1.2.3:4") };
            let length = usize::from(random.short()) % (FRAME_BYTES_MAX + 100);
            let of = usize::from(random.short() % 3);
            driver.nic.wire().coming.push_back((of, from, vec![0xEE; length]));
            driver.step();
        }
        // Only what a flow may send was sent.
        assert!(driver.nic.wire().sent.iter().all(|(flow, to, _)| match flow {
            0 => *to == remote,
            _ => *flow == 1,
        }));
        sent += driver.nic.wire().sent.len();
        violations += driver.iommu.violation_count();
        faults += driver.nic.record_count();
        // Nothing was written before the part of the neighbour that the device has.
        let mut kept = [0; 4096];
        beside.read(0, &mut kept);
        assert!(kept.iter().all(|byte| u64::from(*byte) == BESIDE), "seed {seed}");
    }
    // It was disturbed, and it worked.
    assert!(
        violations > 20 && faults > 200 && sent > 2000,
        "{violations} violations, {faults} records, {sent} sent"
    );
}
