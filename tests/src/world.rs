//! A software GPU as a shared context has it: an attacker's slot, and other sessions' memory below and above it.
//!
//! It shows what a kernel does that nothing confines, and what is left of it once it is confined.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bulkhead_gpu::{
    Access, DeviceAddress, EntryInfo, Error, FillPattern, Gpu, HostAddress, HostRange, Launch, StreamId,
};
use bulkhead_guard::{FastVersion, HIDDEN_PARAMETERS, PointerTerm, SLICE_PARAMETERS, SharedTerm, Verified};
use bulkhead_softgpu::{Options, SoftGpu};

use crate::attacks::Attack;

/// What others' memory is full of.
pub const SECRET: u32 = 0x5ec2_e701;
/// What attackers store.
pub const MARK: u64 = 0xbadc_0ffe_e0dd_f00d;

const GIB: u64 = 1 << 30;
const SLOT: u64 = 512 * GIB;
const STRIDE: u64 = 2 * SLOT;
/// The attacker's slot; others lie a stride below and above.
const BASE: u64 = 0x2000_0000_0000 + STRIDE;
const WINDOW: u64 = 64 * GIB;
const CHUNK: u64 = 64 << 20;
/// Of the memory of each that is looked at.
const SEEN_BYTES: usize = 128 << 10;

/// Addresses that are not the attacker's.
pub const FORGED: [u64; 6] = [
    BASE - STRIDE + WINDOW,
    BASE + STRIDE + WINDOW + 4096,
    BASE - STRIDE + WINDOW + 65_536 - 16,
    0x1f00_0000_0000,
    16,
    BASE + STRIDE + SLOT / 2 + WINDOW,
];

/// Where an attacker's module-scope variables lie.
const DATA: u64 = BASE + WINDOW + CHUNK / 2;

/// Where what is the attacker's own begins and ends: a fast version may run with pointers to these.
pub const OWN: [u64; 4] =
    [BASE + WINDOW, BASE + SLOT / 2 - WINDOW - 16, BASE + SLOT / 2 + WINDOW, BASE + SLOT - WINDOW - 16];

/// Code that is loaded.
pub struct Code {
    entry: EntryInfo,
    /// Of a guarded entry: how much dynamic shared memory it has to be given.
    shared_min: u32,
    /// Its fast version, and what every launch of it gives.
    fast: Option<(EntryInfo, FastVersion)>,
}

impl Code {
    /// Whether it has a fast version.
    #[must_use]
    pub fn is_fast(&self) -> bool {
        self.fast.is_some()
    }
}

/// Whether the shared memory of an attack's launch keeps a term.
fn holds(term: &SharedTerm, attack: &Attack, code: &Code) -> bool {
    let [_, threads, shared_bytes] = attack.launch;
    term.admits([threads, 1, 1], shared_bytes.max(code.shared_min).into())
}

/// Whether a pointer keeps a term: the part of the window that it has to point into, and its alignment.
fn keeps(term: &PointerTerm, values: [u64; 5]) -> bool {
    let half = |start: u64| start + WINDOW..start + SLOT / 2 - WINDOW;
    let value = values.get(term.parameter).copied().filter(|_| term.offset == 0);
    value.is_some_and(|value| {
        let inside = half(BASE).contains(&value) || (!term.writes && half(BASE + SLOT / 2).contains(&value));
        inside && value.is_multiple_of(u64::from(term.align))
    })
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
    // Dropped after the device, which may still write to it.
    host: Vec<Page>,
}

impl World {
    /// With memory where sessions have it. Nothing else is mapped, unless there are `sinks`.
    ///
    /// # Errors
    /// Where the software GPU does not start.
    pub fn new(sinks: bool) -> Result<Self, Error> {
        let options =
            Options { memory_bytes: GIB, threads: Some(1), lost_after_launches: None, ..Options::default() };
        let gpu = SoftGpu::new(options)?;
        let host: Vec<Page> =
            (0..SEEN_BYTES / 4096).map(|_| Page(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
        gpu.reserve(DeviceAddress(BASE - STRIDE), 3 * STRIDE)?;
        let stream = gpu.create_stream(0)?;
        let world = Self { gpu, stream, host };
        world.gpu.register_host(world.seen())?;
        for slot in [BASE - STRIDE, BASE, BASE + STRIDE] {
            let memory = world.gpu.create_memory(CHUNK)?;
            world.gpu.map(DeviceAddress(slot + WINDOW), memory, CHUNK, 1, Access::ReadWrite)?;
        }
        if sinks {
            let map = |from: u64, to: u64, access| {
                let sink = world.gpu.create_memory(CHUNK)?;
                world.gpu.map(DeviceAddress(from), sink, CHUNK, (to - from) / CHUNK, access)
            };
            let own = BASE + WINDOW;
            map(BASE - CHUNK, own, Access::ReadWrite)?;
            map(own + CHUNK, BASE + SLOT / 2 + CHUNK, Access::ReadWrite)?;
            map(BASE + SLOT / 2 + CHUNK, BASE + SLOT + CHUNK, Access::Read)?;
        }
        for victim in [BASE - STRIDE, BASE + STRIDE] {
            let at = DeviceAddress(victim + WINDOW);
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
        let mut entries = self.install(text)?;
        Ok(Code { entry: take(&mut entries, "attack")?, shared_min: 0, fast: None })
    }

    /// Loads a text that was verified.
    ///
    /// # Errors
    /// As above.
    pub fn load_verified(&self, verified: &Verified) -> Result<Code, Error> {
        let mut entries = self.install(verified.text())?;
        let known = verified.entries().iter().find(|entry| entry.name == "attack");
        let known = known.ok_or_else(|| Error::Image("the verifier saw no entry `attack`".to_owned()))?;
        let fast = match &known.fast {
            Some(fast) => Some((take(&mut entries, &fast.name)?, fast.clone())),
            None => None,
        };
        Ok(Code { entry: take(&mut entries, "attack")?, shared_min: known.dynamic_shared_min, fast })
    }

    fn install(&self, text: &str) -> Result<Vec<EntryInfo>, Error> {
        Ok(self.gpu.install(&self.gpu.compile(text)?)?.entries)
    }

    /// Launches an attack with a forged address, and its fast version too where its terms are kept, and looks what
    /// became of it.
    ///
    /// # Errors
    /// Where it was not launched.
    pub fn attack(&self, attack: &Attack, code: &Code, at: u64) -> Result<Outcome, Error> {
        let outcome = self.launch(attack, code, &code.entry, [BASE + WINDOW, at, MARK, DATA, DATA])?;
        if outcome != Outcome::Nothing {
            return Ok(outcome);
        }
        let Some((fast, terms)) = &code.fast else { return Ok(outcome) };
        for own in OWN {
            let values = [own, at, MARK, DATA, DATA];
            let room = terms.shared.iter().all(|term| holds(term, attack, code));
            if room && terms.pointers.iter().all(|term| keeps(term, values)) {
                let outcome = self.launch(attack, code, fast, values)?;
                if outcome != Outcome::Nothing {
                    return Ok(outcome);
                }
            }
        }
        Ok(Outcome::Nothing)
    }

    fn launch(
        &self,
        attack: &Attack,
        code: &Code,
        entry: &EntryInfo,
        values: [u64; 5],
    ) -> Result<Outcome, Error> {
        let [blocks, threads, shared_bytes] = attack.launch;
        for (at, byte) in (DATA..).zip(attack.variables()).filter(|(_, byte)| *byte != 0) {
            self.gpu.fill(self.stream, DeviceAddress(at), FillPattern::Bits8(byte), 1)?;
        }
        let parameters = block(entry, values);
        let shared_bytes = shared_bytes.max(code.shared_min);
        let launch =
            Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes, parameters: &parameters };
        self.gpu.launch(self.stream, entry.id, &launch)?;
        match self.gpu.synchronize(self.stream) {
            Err(Error::Lost { reason, .. }) => return Ok(Outcome::Lost(reason)),
            done => done?,
        }
        for victim in [BASE - STRIDE, BASE + STRIDE] {
            if !self.words(victim + WINDOW)?.iter().all(|word| *word == SECRET) {
                return Ok(Outcome::Damage);
            }
        }
        if self.words(BASE + WINDOW)?.contains(&SECRET) {
            return Ok(Outcome::Leak);
        }
        Ok(Outcome::Nothing)
    }

    fn words(&self, at: u64) -> Result<Vec<u32>, Error> {
        self.gpu.copy_to_host(self.stream, self.seen(), DeviceAddress(at))?;
        self.gpu.synchronize(self.stream)?;
        let longs = self.host.iter().flat_map(|page| &page.0).map(|long| long.load(Ordering::Relaxed));
        let bytes: Vec<u8> = longs.flat_map(u64::to_le_bytes).collect();
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }
}

fn take(entries: &mut Vec<EntryInfo>, name: &str) -> Result<EntryInfo, Error> {
    let index = entries.iter().position(|entry| entry.name == name);
    let index = index.ok_or_else(|| Error::Image(format!("there is no entry `{name}`")))?;
    Ok(entries.swap_remove(index))
}

/// The parameters, the addresses of module-scope variables and of where a grid waits where there are any, and behind them
/// what the guard has appended.
fn block(entry: &EntryInfo, values: [u64; 5]) -> Vec<u8> {
    let hidden = HIDDEN_PARAMETERS.len();
    // What tells of a slice is 0.
    let of_slice = if entry.parameters.len() > values.len() + hidden { SLICE_PARAMETERS.len() } else { 0 };
    let given = entry.parameters.len().saturating_sub(hidden + of_slice).clamp(3, values.len());
    let high = |address: u64| address >> 32;
    let hidden = HIDDEN_PARAMETERS.iter().map(|name| match *name {
        "__bh_base" => high(BASE),
        "__bh_load" => high(SLOT - 1),
        "__bh_store" => high(SLOT / 2 - 1),
        _ => 0,
    });
    let mut bytes = Vec::new();
    let values = values.into_iter().take(given).chain(std::iter::repeat_n(0, of_slice)).chain(hidden);
    for (layout, value) in entry.parameters.iter().zip(values) {
        bytes.resize(layout.offset as usize, 0);
        bytes.extend_from_slice(&value.to_le_bytes()[..layout.bytes as usize]);
    }
    bytes
}
