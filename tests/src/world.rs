//! A software GPU as a shared context has it: an attacker's slot, and other sessions' memory below and above it.
//!
//! It shows what a kernel does that nothing confines, and what is left of it once it is confined.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bulkhead_executor::{Loaded, Shape, Testbed, Version};
use bulkhead_gpu::{
    Access, DeviceAddress, EntryInfo, Error, FillPattern, Gpu, HostAddress, HostRange, Launch, StreamId,
};
use bulkhead_guard::Verified;
use bulkhead_mm::{ARENA_GRANULE_BYTES, Slot, WORKBENCH};
use bulkhead_softgpu::{Options, SoftGpu};

use crate::attacks::Attack;

/// What others' memory is full of.
pub const SECRET: u32 = 0x5ec2_e701;
/// What attackers store.
pub const MARK: u64 = 0xbadc_0ffe_e0dd_f00d;

/// The sessions, in the order of their slots: others lie below and above the attacker.
const SLOTS: [Slot; 3] = [slot(4), slot(5), slot(6)];
const OWN_SLOT: Slot = SLOTS[1];
/// Memory of each at the start of its window.
const CHUNK: u64 = ARENA_GRANULE_BYTES;
/// Of the memory of each that is looked at.
const SEEN_BYTES: usize = 128 << 10;

const fn slot(index: u32) -> Slot {
    match Slot::new(index) {
        Some(slot) => slot,
        None => panic!("there are so many slots"),
    }
}

/// Where a session's memory is.
const fn memory(slot: Slot) -> u64 {
    slot.read_write().start().0
}

/// Addresses that are not the attacker's.
pub const FORGED: [u64; 6] = [
    memory(SLOTS[0]),
    memory(SLOTS[2]) + 4096,
    memory(SLOTS[0]) + 65_536 - 16,
    WORKBENCH.start().0,
    16,
    SLOTS[2].read_only().start().0,
];

/// Where an attacker's module-scope variables lie.
const DATA: u64 = memory(OWN_SLOT) + CHUNK / 2;

/// Where what is the attacker's own begins and ends, windows first: a fast version may run with pointers to these.
pub const OWN: [u64; 7] = [
    memory(OWN_SLOT),
    OWN_SLOT.read_write().end().0 - 16,
    OWN_SLOT.read_only().start().0,
    OWN_SLOT.read_only().end().0 - 16,
    OWN_SLOT.base().0 + 4096,
    OWN_SLOT.lower_half().end().0 - 4096,
    OWN_SLOT.range().end().0 - 4096,
];

/// Code that is loaded.
pub struct Code {
    kind: Kind,
}

enum Kind {
    /// As it was written.
    Bare(EntryInfo),
    /// As the executor has it: which of its entries, and whether that has a fast version.
    Guarded(Loaded, usize, bool),
}

impl Code {
    /// Whether it has a fast version.
    #[must_use]
    pub fn is_fast(&self) -> bool {
        matches!(self.kind, Kind::Guarded(_, _, true))
    }
}

/// What became of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing that concerns anybody else.
    Nothing,
    /// The context ended.
    Lost(String),
    /// Others' memory has changed.
    Damage,
    /// The attacker's memory holds what was in others'.
    Leak,
}

#[repr(C, align(4096))]
struct Page([AtomicU64; 512]);

/// One device.
pub struct World {
    gpu: Arc<SoftGpu>,
    stream: StreamId,
    /// The attacker's slot, where code is confined.
    testbed: Option<Testbed>,
    // Dropped after the device, which may still write to it.
    host: Vec<Page>,
}

impl World {
    /// With memory where sessions have it. Where code is `confined`, the attacker's slot is as production has it; else
    /// nothing else is mapped.
    ///
    /// # Errors
    /// Where the software GPU does not start.
    pub fn new(confined: bool) -> Result<Self, Error> {
        let options = Options {
            memory_bytes: 1 << 30,
            threads: Some(1),
            lost_after_launches: None,
            ..Options::default()
        };
        let gpu = SoftGpu::new(options)?;
        let host: Vec<Page> =
            (0..SEEN_BYTES / 4096).map(|_| Page(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
        let stream = gpu.create_stream(0)?;
        let mut testbed = None;
        for slot in SLOTS {
            if confined && slot == OWN_SLOT {
                let mut bed = Testbed::open(Arc::clone(&gpu) as Arc<dyn Gpu>, slot)?;
                bed.grow(memory(slot), CHUNK)?;
                testbed = Some(bed);
                continue;
            }
            gpu.reserve(DeviceAddress(slot.reach().start().0), slot.reach().bytes())?;
            let chunk = gpu.create_memory(CHUNK)?;
            gpu.map(DeviceAddress(memory(slot)), chunk, CHUNK, 1, Access::ReadWrite)?;
        }
        let world = Self { gpu, stream, testbed, host };
        world.gpu.register_host(world.seen())?;
        for victim in [SLOTS[0], SLOTS[2]] {
            let at = DeviceAddress(memory(victim));
            world.gpu.fill(stream, at, FillPattern::Bits32(SECRET), SEEN_BYTES as u64 / 4)?;
        }
        world.gpu.synchronize(stream)?;
        Ok(world)
    }

    fn seen(&self) -> HostRange {
        HostRange { at: HostAddress(self.host.as_ptr().expose_provenance()), bytes: SEEN_BYTES }
    }

    /// Loads a text that nothing confines.
    ///
    /// # Errors
    /// Where the software GPU does not know how to run it.
    pub fn load(&self, text: &str) -> Result<Code, Error> {
        let entries = self.gpu.install(&self.gpu.compile(text)?)?.entries;
        let entry = entries.into_iter().find(|entry| entry.name == "attack");
        let entry = entry.ok_or_else(|| Error::Image("there is no entry `attack`".to_owned()))?;
        Ok(Code { kind: Kind::Bare(entry) })
    }

    /// Loads a text that was verified.
    ///
    /// # Errors
    /// As above, and where nothing is confined here.
    pub fn load_verified(&self, verified: &Verified) -> Result<Code, Error> {
        let index = verified.entries().iter().position(|entry| entry.name == "attack");
        let index = index.ok_or_else(|| Error::Image("the verifier saw no entry `attack`".to_owned()))?;
        let fast = verified.entries()[index].fast.is_some();
        Ok(Code { kind: Kind::Guarded(self.testbed()?.load(verified)?, index, fast) })
    }

    fn testbed(&self) -> Result<&Testbed, Error> {
        self.testbed.as_ref().ok_or_else(|| Error::Refused("nothing is confined here".to_owned()))
    }

    /// Launches an attack with a forged address, and its fast version too where the executor would, and looks what became
    /// of it.
    ///
    /// # Errors
    /// Where it was not launched.
    pub fn attack(&self, attack: &Attack, code: &mut Code, at: u64) -> Result<Outcome, Error> {
        let fast = code.is_fast();
        let outcome = self.launch(attack, code, Version::Confined, [OWN[0], at, MARK, DATA, DATA])?;
        for own in OWN.into_iter().filter(|_| fast) {
            if outcome != Outcome::Nothing {
                break;
            }
            let outcome = self.launch(attack, code, Version::Chosen, [own, at, MARK, DATA, DATA])?;
            if outcome != Outcome::Nothing {
                return Ok(outcome);
            }
        }
        Ok(outcome)
    }

    fn launch(
        &self,
        attack: &Attack,
        code: &mut Code,
        version: Version,
        values: [u64; 5],
    ) -> Result<Outcome, Error> {
        let [blocks, threads, shared_bytes] = attack.launch;
        for (at, byte) in (DATA..).zip(attack.variables()).filter(|(_, byte)| *byte != 0) {
            self.gpu.fill(self.stream, DeviceAddress(at), FillPattern::Bits8(byte), 1)?;
        }
        self.gpu.synchronize(self.stream)?;
        let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let done = match &mut code.kind {
            Kind::Bare(entry) => {
                let end = entry.parameters.last().map_or(0, |last| last.offset + last.bytes) as usize;
                let parameters = &bytes[..end.min(bytes.len())];
                let launch = Launch { grid, block, shared_bytes, parameters };
                self.gpu.launch(self.stream, entry.id, &launch)?;
                self.gpu.synchronize(self.stream)
            }
            Kind::Guarded(loaded, entry, _) => {
                let shape = Shape { grid, block, shared_bytes };
                self.testbed()?.launch(loaded, *entry, version, shape, &bytes).map(|_| ())
            }
        };
        match done {
            Err(Error::Lost { reason, .. }) => return Ok(Outcome::Lost(reason)),
            done => done?,
        }
        for victim in [SLOTS[0], SLOTS[2]] {
            if !self.words(memory(victim))?.iter().all(|word| *word == SECRET) {
                return Ok(Outcome::Damage);
            }
        }
        if self.words(memory(OWN_SLOT))?.contains(&SECRET) {
            return Ok(Outcome::Leak);
        }
        Ok(Outcome::Nothing)
    }

    fn words(&self, at: u64) -> Result<Vec<u32>, Error> {
        self.gpu.copy_to_host(self.stream, self.seen(), DeviceAddress(at))?;
        self.gpu.synchronize(self.stream)?;
        // Plain loops: this is read thousands of times, and tests are hardly optimized.
        let mut words = Vec::with_capacity(self.host.len() * 1024);
        for page in &self.host {
            for long in &page.0 {
                let [a, b, c, d, e, f, g, h] = long.load(Ordering::Relaxed).to_le_bytes();
                words.push(u32::from_le_bytes([a, b, c, d]));
                words.push(u32::from_le_bytes([e, f, g, h]));
            }
        }
        Ok(words)
    }
}
