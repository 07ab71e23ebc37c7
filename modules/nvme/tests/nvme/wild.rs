//! Random registers, memory and mappings, without any order.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bulkhead_nvme::{
    Access, Config, Controller, Iommu, Memory, Namespace, Rights,
    formats::{
        BlockSize, BusAddress,
        registers::{self, Configuration},
    },
};

use crate::{
    engines::Shuffled,
    support::{MIB, Random},
};

const STEPS: u32 = 1_000_000;
const PAGE: usize = 4096;
const BASE: u64 = 0x20_0000;
const PAGES: usize = 32;

/// Memory that knows how each of its pages is mapped, apart from the IOMMU, and fails the test where it is accessed
/// otherwise.
pub struct Watched {
    bytes: Mutex<Vec<u8>>,
    rights: Mutex<Vec<Option<Rights>>>,
}

impl Watched {
    pub fn new(pages: usize) -> Self {
        Self { bytes: Mutex::new(vec![0; pages * PAGE]), rights: Mutex::new(vec![None; pages]) }
    }

    /// Maps pages, of which none is mapped.
    pub fn map(
        self: &Arc<Self>,
        iommu: &Iommu,
        start: BusAddress,
        first: usize,
        count: usize,
        rights: Rights,
    ) {
        let (length, offset) = ((count * PAGE) as u64, (first * PAGE) as u64);
        iommu.map(start, length, Arc::clone(self) as Arc<dyn Memory>, offset, rights).unwrap();
        self.rights.lock().unwrap()[first..first + count].fill(Some(rights));
    }

    /// Page by page: maps one that is not mapped, or takes it back.
    fn toggle(self: &Arc<Self>, iommu: &Iommu, page: usize, rights: Rights) {
        let start = BusAddress(BASE + (page * PAGE) as u64);
        if iommu.unmap(start) {
            self.rights.lock().unwrap()[page] = None;
        } else {
            self.map(iommu, start, page, 1, rights);
        }
    }

    /// Writes addresses of pages from `base` on, which make PRP lists, to a random place.
    pub fn scribble(&self, random: &mut Random, base: u64, page: u64) {
        let mut bytes = self.bytes.lock().unwrap();
        let at = random.index(bytes.len() / 64) * 64;
        for word in bytes[at..at + 64].chunks_exact_mut(8) {
            let offset = if random.chance(2) { 8 } else { 0 };
            word.copy_from_slice(&(base + random.below(64) * page + offset).to_le_bytes());
        }
    }

    fn check(&self, offset: u64, length: usize, access: Access) -> usize {
        let start = usize::try_from(offset).unwrap();
        let rights = self.rights.lock().unwrap();
        for page in start / PAGE..=(start + length - 1) / PAGE {
            assert!(rights[page].is_some_and(|rights| rights.allow(access)), "page {page}, {access:?}");
        }
        start
    }
}

impl Memory for Watched {
    fn bytes(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        let start = self.check(offset, into.len(), Access::Read);
        into.copy_from_slice(&self.bytes.lock().unwrap()[start..start + into.len()]);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        let start = self.check(offset, from.len(), Access::Write);
        self.bytes.lock().unwrap()[start..start + from.len()].copy_from_slice(from);
    }

    fn publish(&self, offset: u64, word: u32) {
        self.write(offset, &word.to_le_bytes());
    }
}

struct Wild {
    random: Random,
    controller: Controller,
    memory: Arc<Watched>,
    iommu: Arc<Iommu>,
    now: Duration,
}

impl Wild {
    fn new(seed: u64) -> Self {
        let iommu = Arc::new(Iommu::new());
        let memory = Arc::new(Watched::new(PAGES));
        let namespaces = vec![
            Namespace::new(Box::new(Shuffled::new(MIB, 8, seed)), BlockSize::B512).unwrap(),
            Namespace::new(Box::new(Shuffled::new(MIB, 8, seed)), BlockSize::B4096).unwrap(),
        ];
        let controller = Controller::new(Config::default(), namespaces, Arc::clone(&iommu)).unwrap();
        Self { random: Random::new(seed), controller, memory, iommu, now: Duration::ZERO }
    }

    fn word(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.random.next().to_le_bytes();
        match self.random.below(4) {
            0 => u32::from_le_bytes([a, b, c, d]),
            1 => u32::from(a),
            2 => u32::from(a % 4) << 16 | u32::from(b % 8),
            _ => 1 << (a % 32),
        }
    }

    fn page(&mut self) -> u64 {
        BASE + self.random.below(PAGES as u64) * PAGE as u64
    }

    /// Bytes that have something of submission entries, and of PRP lists.
    fn garbage(&mut self) {
        let mut entry = [0; 64];
        let (opcode, id) = (self.random.below(14), self.random.below(8));
        entry[0] = opcode.to_le_bytes()[0];
        entry[2] = id.to_le_bytes()[0];
        entry[4] = self.random.below(4).to_le_bytes()[0];
        let (first, second) = (self.page(), self.page());
        entry[24..32].copy_from_slice(&first.to_le_bytes());
        entry[32..40].copy_from_slice(&second.to_le_bytes());
        for at in (40..64).step_by(4) {
            let word = self.word();
            entry[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        if self.random.chance(20) {
            let at = self.random.index(64);
            entry[at] ^= self.random.next().to_le_bytes()[7];
        }
        let mut bytes = self.memory.bytes.lock().unwrap();
        let at = self.random.index(bytes.len() / 64) * 64;
        bytes[at..at + 64].copy_from_slice(&entry);
    }

    fn enable(&mut self) {
        let (submissions, completions) = (self.page(), self.page());
        let sizes = self.random.below(64);
        self.controller.write_register(registers::CC, 0);
        let counters = self.controller.counters();
        assert_eq!(counters.taken, counters.completed + counters.discarded + counters.lost);
        self.controller.step(self.now);
        self.controller.write_register(registers::AQA, u32::try_from(sizes << 16 | sizes).unwrap() | 1);
        self.controller.write_register_64(registers::ASQ, submissions);
        self.controller.write_register_64(registers::ACQ, completions);
        let page_shift = u8::try_from(self.random.below(7)).unwrap().saturating_sub(4);
        let configuration = Configuration { page_shift, ..Configuration::START };
        self.controller.write_register(registers::CC, configuration.encode());
    }

    fn act(&mut self) {
        match self.random.below(100) {
            0..=19 => self.garbage(),
            20 => self.memory.scribble(&mut self.random, BASE, PAGE as u64),
            21..=39 => {
                let doorbell = registers::DOORBELLS + self.random.below(20) * 4;
                let value = self.word() % 80;
                self.controller.write_register(doorbell, value);
            }
            40 => {
                let (offset, value) = (self.random.next(), self.word());
                self.controller.write_register(offset >> self.random.below(64), value);
                self.controller.write_register_64(offset, offset);
                std::hint::black_box(self.controller.read_register_64(offset >> self.random.below(64)));
            }
            41 if self.random.chance(10) => {
                let (offset, value) = (self.random.below(0x40) & !3, self.word());
                self.controller.write_register(offset, value);
            }
            42 => {
                let rights = [Rights::Read, Rights::Write, Rights::ReadWrite, Rights::ReadWrite];
                let (page, rights) = (self.random.index(PAGES), rights[self.random.index(4)]);
                self.memory.toggle(&self.iommu, page, rights);
            }
            43 if self.controller.read_register(registers::CSTS) != registers::READY => self.enable(),
            43 if self.random.chance(2) => self.enable(),
            _ => {
                self.now += Duration::from_nanos(self.random.below(100));
                self.controller.step(self.now);
            }
        }
    }
}

#[test]
fn nothing_that_is_written_anywhere_makes_the_controller_panic_or_reach_what_is_not_mapped() {
    let (mut taken, mut completed, mut violations) = (0, 0, 0);
    for seed in 1..=8 {
        println!("seed {seed}");
        let mut wild = Wild::new(seed);
        for page in 0..PAGES {
            wild.memory.toggle(&wild.iommu, page, Rights::ReadWrite);
        }
        for _ in 0..STEPS / 8 {
            wild.act();
            let counters = wild.controller.counters();
            assert!(counters.completed + counters.discarded + counters.lost <= counters.taken);
        }
        taken += wild.controller.counters().taken;
        completed += wild.controller.counters().completed;
        violations += wild.iommu.violation_count();
    }
    println!("{taken} commands taken, {completed} completed, {violations} violations");
    // The test reaches something.
    assert!(completed > 1000 && violations > 500);
}
