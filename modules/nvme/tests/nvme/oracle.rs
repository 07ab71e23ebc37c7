//! Random reads and writes through PRP lists, compared with plain bytes.

use std::time::Duration;

use bulkhead_nvme::{
    Config, Faults, Latency, Namespace,
    engine::{Engine, RamEngine},
    formats::{BlockRange, BlockSize, BusAddress, CommandId, IoOpcode, QueueId, Submission},
};

use crate::{
    engines::Shuffled,
    host::Host,
    support::{MIB, ONE, Random, TestFile, file_engines},
};

const PAGE: usize = 4096;
const STORE: usize = 4 * MIB;
const SLOTS: usize = 12;
/// Pages of data of a slot: 1 MiB that begins within a page.
const DATA_PAGES: usize = 257;
/// Pages of lists of a slot.
const LIST_PAGES: usize = 4;
const UNTOUCHED: u8 = 0xee;

/// A command in flight, in memory of its own.
struct Flight {
    opcode: IoOpcode,
    start: usize,
    bytes: usize,
    /// Where the data lies, in order.
    parts: Vec<(BusAddress, usize)>,
    /// What a write writes.
    data: Vec<u8>,
}

struct Oracle {
    host: Host,
    queue: QueueId,
    random: Random,
    block: BlockSize,
    expected: Vec<u8>,
    areas: Vec<BusAddress>,
    flights: Vec<Option<Flight>>,
    out_of_order: u32,
    last: Option<u16>,
}

impl Oracle {
    fn new(engine: Box<dyn Engine>, block: BlockSize, seed: u64) -> Self {
        let namespace = Namespace::new(engine, block).unwrap();
        let mut host = Host::start(Config::default(), vec![namespace], 16 * MIB);
        let mut faults = Faults::new(seed);
        faults.set_latency(Latency { base: Duration::ZERO, jitter: Duration::from_micros(20) });
        host.controller.set_faults(faults);
        let queue = host.create_pair(32);
        let areas = (0..SLOTS).map(|_| host.allocate(((DATA_PAGES + LIST_PAGES) * PAGE) as u64)).collect();
        Self {
            host,
            queue,
            random: Random::new(seed),
            block,
            expected: vec![0; STORE],
            areas,
            flights: (0..SLOTS).map(|_| None).collect(),
            out_of_order: 0,
            last: None,
        }
    }

    /// PRP entries for `bytes` in pages of the slot, in any order, and the parts that they name.
    fn prps(&mut self, slot: usize, bytes: usize) -> (BusAddress, BusAddress, Vec<(BusAddress, usize)>) {
        let base = self.areas[slot].0;
        let mut pages: Vec<u64> = (0..DATA_PAGES).map(|page| base + (page * PAGE) as u64).collect();
        for index in (1..pages.len()).rev() {
            pages.swap(index, self.random.index(index + 1));
        }
        let inside = self.random.index(PAGE / 4) * 4;
        let mut parts = vec![(BusAddress(pages[0] + inside as u64), bytes.min(PAGE - inside))];
        let mut left = bytes.saturating_sub(PAGE - inside);
        for page in &pages[1..] {
            if left > 0 {
                parts.push((BusAddress(*page), left.min(PAGE)));
                left = left.saturating_sub(PAGE);
            }
        }
        let prp2 = match parts.len() {
            1 => BusAddress(self.random.next()),
            2 => parts[1].0,
            _ => self.list(base + (DATA_PAGES * PAGE) as u64, &parts[1..]),
        };
        (parts[0].0, prp2, parts)
    }

    /// Writes a list, which begins anywhere in its first page and goes on in others.
    fn list(&mut self, lists: u64, parts: &[(BusAddress, usize)]) -> BusAddress {
        let first = self.random.index(PAGE / 8);
        let start = BusAddress(lists + first as u64 * 8);
        let (mut page, mut at) = (lists, first);
        for (index, (address, _)) in parts.iter().enumerate() {
            if at == PAGE / 8 - 1 && index + 1 < parts.len() {
                self.host.write(BusAddress(page + at as u64 * 8), &(page + PAGE as u64).to_le_bytes());
                (page, at) = (page + PAGE as u64, 0);
            }
            self.host.write(BusAddress(page + at as u64 * 8), &address.0.to_le_bytes());
            at += 1;
        }
        start
    }

    fn submit(&mut self, slot: usize) {
        let block = self.block.bytes() as usize;
        let blocks_max = MIB / block;
        // Small ones as often as large ones.
        let limit = 1 << self.random.below(u64::from(blocks_max.ilog2()) + 1);
        let count = self.random.below(limit) + 1;
        let bytes = usize::try_from(count).unwrap() * block;
        let first = self.random.below((STORE - bytes) as u64 / block as u64 + 1);
        let start = usize::try_from(first).unwrap() * block;
        let opcode = [IoOpcode::Read, IoOpcode::Write, IoOpcode::WriteZeroes][self.random.index(3)];
        let overlaps = self.flights.iter().flatten().any(|other| {
            (opcode != IoOpcode::Read || other.opcode != IoOpcode::Read)
                && start < other.start + other.bytes
                && other.start < start + bytes
        });
        if overlaps {
            return;
        }
        let (prp1, prp2, parts) = self.prps(slot, bytes);
        // All but the lists.
        self.host.write(self.areas[slot], &vec![UNTOUCHED; DATA_PAGES * PAGE]);
        let data = match opcode {
            IoOpcode::Write => {
                (0..bytes.div_ceil(8)).flat_map(|_| self.random.next().to_le_bytes()).collect()
            }
            _ => vec![0; bytes],
        };
        if opcode == IoOpcode::Write {
            let mut done = 0;
            for (address, length) in &parts {
                self.host.write(*address, &data[done..done + length]);
                done += length;
            }
        }
        let range = BlockRange { first, count: u32::try_from(count).unwrap(), fua: self.random.chance(5) };
        let command = CommandId(u16::try_from(slot).unwrap());
        self.host.submit(self.queue, Submission::io(opcode, command, ONE, range).with_prps(prp1, prp2));
        self.flights[slot] = Some(Flight { opcode, start, bytes, parts, data });
    }

    fn complete(&mut self) {
        while let Some(completion) = self.host.poll(self.queue) {
            assert!(completion.status.is_success(), "{completion:?}");
            let slot = completion.command.0;
            self.out_of_order += u32::from(self.last.is_some_and(|last| last > slot));
            self.last = Some(slot);
            let slot = usize::from(slot);
            let flight = self.flights[slot].take().expect("a command in flight");
            let range = flight.start..flight.start + flight.bytes;
            match flight.opcode {
                IoOpcode::Read => {
                    // The data is where it belongs, and nothing else in the slot was touched.
                    let mut image = vec![UNTOUCHED; DATA_PAGES * PAGE];
                    let mut done = range.start;
                    for (address, length) in &flight.parts {
                        let at = usize::try_from(address.0 - self.areas[slot].0).unwrap();
                        image[at..at + length].copy_from_slice(&self.expected[done..done + length]);
                        done += length;
                    }
                    assert!(
                        self.host.read(self.areas[slot], image.len()) == image,
                        "wrong data of {range:?}"
                    );
                }
                _ => self.expected[range].copy_from_slice(&flight.data),
            }
        }
    }

    fn step(&mut self) {
        self.host.now += Duration::from_micros(self.random.below(6));
        self.host.controller.step(self.host.now);
        self.complete();
    }

    fn run(&mut self, commands: u32) {
        let mut begun = 0;
        while begun < commands || self.flights.iter().any(Option::is_some) {
            let slot = self.random.index(SLOTS);
            if begun < commands && self.flights[slot].is_none() {
                self.submit(slot);
                begun += 1;
            }
            self.step();
        }
        assert_eq!(self.host.iommu.violation_count(), 0);
        assert!(self.out_of_order > commands / 20, "{} of {commands}", self.out_of_order);
    }
}

#[test]
fn reads_return_what_was_written_whatever_the_pages_the_engine_and_the_order() {
    for (seed, block) in [(1, BlockSize::B512), (2, BlockSize::B4096)] {
        println!("seed {seed}");
        Oracle::new(Box::new(RamEngine::zeroed(STORE)), block, seed).run(600);
        Oracle::new(Box::new(Shuffled::new(STORE, 5, seed)), block, seed).run(600);
        for (name, open) in file_engines() {
            println!("{name}");
            let file = TestFile::new(STORE);
            let mut oracle = Oracle::new(open(&file), block, seed);
            oracle.run(400);
            let expected = std::mem::take(&mut oracle.expected);
            drop(oracle);
            assert!(std::fs::read(&file.0).unwrap() == expected);
        }
    }
}
