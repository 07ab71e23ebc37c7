//! A software GPU with a slot as production has it, and whether a program gets out of that.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bulkhead_executor::{Shape, Testbed, Version};
use bulkhead_gpu::Gpu;
use bulkhead_guard::{Verified, limits::PATH_COST_MAX};
use bulkhead_mm::{SLOT_STRIDE_BYTES, Slot, ZONE_BYTES};
use bulkhead_softgpu::{Engine, Escape, Inspector, Options, Rules, SoftGpu};

use crate::random::Random;

/// Instructions of a launch's warps, after which it is given up: one of these.
const STEPS_MAX: [u64; 8] = [300, 300, 300, 300, 600, 600, 1000, 4000];
/// Programs that one device runs: what they leave in memory, others find.
pub(crate) const PROGRAMS_OF_A_DEVICE: u64 = 2000;

/// What a launch gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) p: u64,
    pub(crate) q: u64,
    pub(crate) n: u32,
    pub(crate) m: u32,
    pub(crate) w: u64,
    pub(crate) shape: [u32; 3],
    pub(crate) version: Version,
    /// Whether the flag says stop from the start.
    pub(crate) stopped: bool,
    /// Instructions after which it is given up.
    pub(crate) steps_max: u64,
    /// Whether it runs on to a look where it is to be given up.
    pub(crate) until_look: bool,
}

/// What became of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The guard does not let it in.
    Refused(String),
    /// The rewriter wrote what the verifier does not let in.
    Unverified(String),
    /// It ran so often as its fast version, and so often as the other, and in all for so many instructions.
    Ran { fast: u64, confined: u64, steps: u64 },
    /// It got out.
    Escaped(String, Arguments),
    /// The guard or the software GPU failed.
    Broken(String),
}

impl Outcome {
    pub(crate) fn is_found(&self) -> bool {
        matches!(self, Self::Escaped(..) | Self::Broken(_))
    }
}

impl Arguments {
    fn block(&self) -> (Shape, Vec<u8>) {
        let Self { p, q, n, m, w, shape, .. } = *self;
        let mut block = Vec::with_capacity(32);
        block.extend(p.to_le_bytes());
        block.extend(q.to_le_bytes());
        block.extend(n.to_le_bytes());
        block.extend(m.to_le_bytes());
        block.extend(w.to_le_bytes());
        let grid = [if w & 7 == 1 { 2 } else { 1 }, 1, 1];
        let shared_bytes = if q & 32 == 0 { 0 } else { 64 };
        (Shape { grid, block: shape, shared_bytes }, block)
    }
}

/// Launches of a program's fast version.
const CHOSEN_MAX: u32 = 4;
const SLOT: u32 = 7;

pub(crate) struct Bed {
    inspector: Arc<Inspector>,
    testbed: Testbed,
    slot: Slot,
    stopped: bool,
}

fn rules(slot: Slot) -> Rules {
    let range = |range: bulkhead_mm::Range| range.start().0..range.end().0;
    Rules {
        loads: range(slot.reach()),
        stores: range(slot.stores_reach()),
        flag: range(slot.flag_granule()),
        unlooked_max: 2 * PATH_COST_MAX,
        looks_max: u32::MAX,
        steps_max: STEPS_MAX[0],
        until_look: false,
    }
}

impl Bed {
    pub(crate) fn new() -> Self {
        let slot = Slot::new(SLOT).unwrap();
        let inspector = Inspector::new(rules(slot));
        let options = Options {
            memory_bytes: 1 << 30,
            threads: Some(1),
            engine: Engine::Interpreter,
            inspector: Some(Arc::clone(&inspector)),
            ..Options::default()
        };
        let gpu: Arc<dyn Gpu> = SoftGpu::new(options).unwrap();
        let testbed = Testbed::open(gpu, slot).unwrap();
        Self { inspector, testbed, slot, stopped: false }
    }

    /// Runs every entry of a verified text with arguments.
    pub(crate) fn run(&mut self, verified: &Verified, all: &[Arguments]) -> Outcome {
        let mut loaded = match self.testbed.load(verified) {
            Ok(loaded) => loaded,
            Err(bulkhead_gpu::Error::Image(why)) => return Outcome::Refused(why),
            Err(error) => return Outcome::Broken(error.to_string()),
        };
        let (mut fast, mut confined, mut done) = (0, 0, 0);
        for (index, entry) in verified.entries().iter().enumerate() {
            // What does not look at all is not stopped by a flag.
            let unlooked = entry.fast.as_ref().is_some_and(|fast| fast.work > 0);
            let has_fast = entry.fast.is_some();
            let mut chosen = 0;
            for arguments in all {
                let (shape, block) = arguments.block();
                if arguments.version == Version::Chosen {
                    let admitted = has_fast && chosen < CHOSEN_MAX;
                    if !admitted || !self.testbed.is_fast(&mut loaded, index, shape, &block) {
                        continue;
                    }
                    chosen += 1;
                }
                let stops = arguments.stopped && !(unlooked && arguments.version == Version::Chosen);
                if stops != self.stopped {
                    if let Err(error) = self.testbed.stop(stops) {
                        return Outcome::Broken(error.to_string());
                    }
                    self.stopped = stops;
                }
                let mut rules = rules(self.slot);
                (rules.until_look, rules.steps_max) = (arguments.until_look, arguments.steps_max);
                if stops {
                    (rules.stores, rules.looks_max) = (0..0, 3);
                }
                self.inspector.set(rules);
                let launched = self.testbed.launch(&mut loaded, index, arguments.version, shape, &block);
                let (escape, steps): (Option<Escape>, u64) = self.inspector.take();
                done += steps;
                if let Some(escape) = escape {
                    return Outcome::Escaped(escape.to_string(), *arguments);
                }
                match launched {
                    Ok(Some(true)) => fast += 1,
                    Ok(Some(false)) => confined += 1,
                    Ok(None) => {}
                    Err(error) => return Outcome::Broken(format!("{error} with {arguments:x?}")),
                }
            }
        }
        if let Err(error) = self.testbed.unload(&loaded) {
            return Outcome::Broken(error.to_string());
        }
        Outcome::Ran { fast, confined, steps: done }
    }

    /// A program through guard and device.
    pub(crate) fn check(&mut self, text: &str, all: &[Arguments]) -> Outcome {
        let verified = match guarded(text) {
            Ok(verified) => verified,
            Err(outcome) => return outcome,
        };
        self.run(&verified, all)
    }
}

/// A program as the guard lets it through.
pub(crate) fn guarded(text: &str) -> Result<Verified, Outcome> {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let module = bulkhead_guard::parse(text).and_then(|module| bulkhead_guard::confine(&module));
        let module = module.map_err(|report| Outcome::Refused(report.to_string()))?;
        let printed = bulkhead_guard::print(&module);
        bulkhead_guard::verify(&printed).map_err(|report| Outcome::Unverified(report.to_string()))
    }));
    done.unwrap_or_else(|_| Err(Outcome::Broken("the guard panicked".to_owned())))
}

/// A text that the verifier lets through.
pub(crate) fn verified(text: &str) -> Result<Verified, Outcome> {
    let done = catch_unwind(AssertUnwindSafe(|| bulkhead_guard::verify(text)));
    match done {
        Ok(verified) => verified.map_err(|report| Outcome::Refused(report.to_string())),
        Err(_) => Err(Outcome::Broken("the verifier panicked".to_owned())),
    }
}

/// Pointers into a window, at its ends for the most part.
fn inside(random: &mut Random, slot: Slot) -> u64 {
    let (lower, upper) = (slot.read_write(), slot.read_only());
    let at = random.of(&[
        lower.start().0,
        lower.start().0,
        lower.end().0,
        lower.end().0,
        upper.start().0,
        upper.end().0,
    ]);
    let by = random.of(&[0, 16, 4096, 4, 48, 1 << 20]);
    if at == lower.end().0 || at == upper.end().0 { at - by.max(4) } else { at + by }
}

/// Pointers anywhere: at the ends of all that a slot has, in another's, at the ends of the address space.
fn anywhere(random: &mut Random, slot: Slot) -> u64 {
    let base = slot.base().0;
    let ends = [
        base,
        slot.lower_half().end().0,
        slot.range().end().0,
        slot.read_write().start().0,
        slot.read_write().end().0,
        slot.read_only().start().0,
        slot.read_only().end().0,
        slot.reach().start().0,
        slot.reach().end().0,
        slot.stores_reach().end().0,
        base + SLOT_STRIDE_BYTES,
        base - SLOT_STRIDE_BYTES + ZONE_BYTES,
        0,
    ];
    let any = random.word();
    let by = random.of(&[0, 4, 8, 16, 4096, 4096, 1 << 20, 64 << 20, any & 0xfff_fffc]);
    let at = random.of(&ends);
    match random.below(8) {
        0 => any,
        1..5 => at.wrapping_add(by),
        _ => at.wrapping_sub(by),
    }
}

fn number(random: &mut Random) -> u32 {
    const NUMBERS: &[u32] = &[
        0,
        1,
        1,
        2,
        3,
        4,
        7,
        16,
        30,
        31,
        63,
        64,
        100,
        127,
        255,
        255,
        256,
        480,
        1000,
        4096,
        0xffff,
        0x1_0000,
        40_000_000,
        0x4000_0000,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0xffff_ffff,
        0xffff_ff01,
        0xffff_ff81,
        0xffff_f000,
        0xffff_fffe,
        0xffff_fffc,
        0x0fff_ffff,
        0x1000_0000,
    ];
    if random.one_in(8) { u32::try_from(random.word() >> 32).unwrap() } else { random.of(NUMBERS) }
}

/// What a program is launched with: what a fast version asks for, hostile all the same, and anything.
pub(crate) fn arguments(random: &mut Random) -> Vec<Arguments> {
    const SHAPES: &[[u32; 3]] = &[
        [1, 1, 1],
        [1, 1, 1],
        [4, 1, 1],
        [32, 1, 1],
        [32, 1, 1],
        [33, 1, 1],
        [8, 4, 1],
        [64, 1, 1],
        [32, 2, 1],
        [16, 3, 1],
    ];
    const LAUNCHES: usize = 12;
    let slot = Slot::new(SLOT).unwrap();
    let mut made = Vec::with_capacity(LAUNCHES);
    for launch in 1..=LAUNCHES {
        let (last, hostile) = (launch == LAUNCHES, random.one_in(2));
        let mut pointer = || {
            if last || (hostile && random.one_in(2)) { anywhere(random, slot) } else { inside(random, slot) }
        };
        let (p, q) = (pointer(), pointer());
        let low = number(random);
        let high = if random.one_in(2) { number(random) } else { low };
        made.push(Arguments {
            p,
            q,
            n: number(random),
            m: number(random),
            w: u64::from(high) << 32 | u64::from(low),
            shape: random.of(SHAPES),
            version: if last { Version::Confined } else { Version::Chosen },
            stopped: random.one_in(32),
            steps_max: random.of(&STEPS_MAX),
            until_look: random.one_in(16),
        });
    }
    made
}
