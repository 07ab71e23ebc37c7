//! What several tests use.

use std::{
    fs,
    path::PathBuf,
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use bulkhead_nvme::{
    Config, Namespace,
    engine::{Caching, Engine, RamEngine, Store, Threads, Uring, probe},
    formats::{BlockRange, BlockSize, BusAddress, CommandId, IoOpcode, NamespaceId, Submission},
};

use crate::host::Host;

pub const MIB: usize = 1 << 20;
pub const ONE: NamespaceId = NamespaceId(1);

/// A generator of numbers that repeat with their seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }

    pub fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A file that is removed with this.
pub struct TestFile(pub PathBuf);

impl TestFile {
    pub fn new(bytes: usize) -> Self {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bulkhead-nvme-{}-{number}", process::id()));
        drop(Store::create(&path, bytes as u64, Caching::Cached).unwrap());
        Self(path)
    }

    pub fn store(&self) -> Store {
        Store::open(&self.0, Caching::Cached).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// Opens an engine on a file.
pub type Open = fn(&TestFile) -> Box<dyn Engine>;

/// The engines on files that this machine has.
pub fn file_engines() -> Vec<(&'static str, Open)> {
    let mut engines: Vec<(&'static str, Open)> =
        vec![("threads", |file| Box::new(Threads::new(file.store(), 64, 4).unwrap()))];
    match probe() {
        Ok(()) => engines.push(("io_uring", |file| Box::new(Uring::new(file.store(), 64).unwrap()))),
        Err(why) => println!("skipped: {why}"),
    }
    engines
}

pub fn ram(bytes: usize, block: BlockSize) -> Namespace {
    Namespace::new(Box::new(RamEngine::zeroed(bytes)), block).unwrap()
}

/// A host whose controller has one namespace of 1 MiB with blocks of 512 bytes, and one of 1 MiB with 4,096.
pub fn started() -> Host {
    let namespaces = vec![ram(MIB, BlockSize::B512), ram(MIB, BlockSize::B4096)];
    Host::start(Config::default(), namespaces, 16 * MIB)
}

/// A command on blocks without FUA.
pub fn io(opcode: IoOpcode, command: u16, first: u64, count: u32) -> Submission {
    Submission::io(opcode, CommandId(command), ONE, BlockRange { first, count, fua: false })
}

/// A command on blocks whose data lies at `data`, in two pages at most.
pub fn io_at(opcode: IoOpcode, command: u16, first: u64, count: u32, data: BusAddress) -> Submission {
    io(opcode, command, first, count).with_prps(data, BusAddress((data.0 | 4095) + 1))
}
