//! Looking at what kernels reach, and for how long they run: what a test holds confined code against.
//!
//! An [`Inspector`] is told the addresses that kernels may load from and store to. It sees each access before it happens; the
//! lanes of one that lies outside, or that would end the context, end in its place, so that a device outlives what is
//! found. It counts what each lane does between two *looks*, loads from the flag, and ends lanes that have done enough.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bulkhead_gpu::StreamId;
use parking_lot::Mutex;

use crate::alu::{LANES, Lanes};
use crate::code::{Op, Program, Region, SHARED_BASE};
use crate::exec::{Access, Did, Grid, Observer, Touch, Warp, Watch, Watched, lanes};

/// What an instruction that waits counts as: no more than the guard's table has for the shortest wait.
pub const YIELD: u64 = 16;

/// What kernels may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Where they may load.
    pub loads: Range<u64>,
    /// Where they may store, and do what is atomic.
    pub stores: Range<u64>,
    /// Where a load is a look.
    pub flag: Range<u64>,
    /// Instructions that a lane may do without a look. One that waits for long counts as [`YIELD`].
    pub unlooked_max: u64,
    /// Looks that a lane may take: few, where the flag tells it to end.
    pub looks_max: u32,
    /// Instructions of the warps of a block together after which its lanes end, at their next look or at once.
    pub steps_max: u64,
    /// Whether they end only at a look then.
    pub until_look: bool,
}

/// What a kernel did that it may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// It loads from this address.
    Loads(u64),
    /// It stores to this address.
    Stores(u64),
    /// It reaches for this address of its block's shared memory, of its thread's local memory, or in a constant bank.
    Leaves(u64),
    /// It reaches for an address that is no multiple of what it reaches for.
    Misaligned(u64),
    /// It has done too much without a look.
    NeverLooks,
    /// It has looked too often: what it saw told it to end.
    GoesOn,
    /// Its threads all wait, and none can come.
    Stuck,
}

/// Where it did that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escape {
    /// What it did.
    pub wrong: Wrong,
    /// Its entry.
    pub entry: String,
    /// The line of its text.
    pub line: u32,
    /// The lane, counted from the first of its block.
    pub thread: u32,
}

impl fmt::Display for Escape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wrong, entry, line, thread } = self;
        write!(f, "{wrong:x?} at line {line} of {entry}, thread {thread}")
    }
}

#[derive(Debug)]
struct State {
    rules: Rules,
    found: Option<Escape>,
    steps: u64,
}

/// Looks at what the kernels of a device do.
#[derive(Debug)]
pub struct Inspector(Arc<Mutex<State>>);

impl Inspector {
    /// One with these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Arc<Self> {
        Arc::new(Self(Arc::new(Mutex::new(State { rules, found: None, steps: 0 }))))
    }

    /// Other rules, for launches that come.
    pub fn set(&self, rules: Rules) {
        self.0.lock().rules = rules;
    }

    /// The first that was found since this was asked, and how many instructions warps did.
    #[must_use]
    pub fn take(&self) -> (Option<Escape>, u64) {
        let mut state = self.0.lock();
        (state.found.take(), std::mem::take(&mut state.steps))
    }
}

impl Observer for Inspector {
    fn launch(&self, _: StreamId, grid: &Grid) -> Option<Arc<dyn Watched>> {
        Some(Arc::new(Inspected {
            state: Arc::clone(&self.0),
            rules: self.0.lock().rules.clone(),
            program: Arc::clone(&grid.program),
            warps: grid.block_threads().div_ceil(32) as usize,
            shared: SHARED_BASE..SHARED_BASE + u64::from(grid.shared_bytes()),
            banks: (grid.constants.bytes.len() as u64, grid.parameters.len() as u64),
        }))
    }

    fn did(&self, _: StreamId, _: Did<'_>, _: Instant, _: Instant) {}
}

/// One launch.
#[derive(Debug, Clone)]
struct Inspected {
    state: Arc<Mutex<State>>,
    rules: Rules,
    program: Arc<Program>,
    warps: usize,
    shared: Range<u64>,
    /// Bytes of constant memory and of parameters.
    banks: (u64, u64),
}

impl Watched for Inspected {
    fn begin(&self) {}

    fn watch(&self) -> Box<dyn Watch> {
        let (unlooked, looks) = (vec![[0; LANES]; self.warps], vec![[0; LANES]; self.warps]);
        Box::new(Inspecting { launch: self.clone(), unlooked, looks, steps: 0, ends: false })
    }

    fn end(&self) {}
}

/// One block at a time.
#[derive(Debug)]
struct Inspecting {
    launch: Inspected,
    /// What each lane of each warp did since its last look.
    unlooked: Vec<[u64; LANES]>,
    /// How often each has looked.
    looks: Vec<[u32; LANES]>,
    steps: u64,
    /// Whether the lanes of the last step end.
    ends: bool,
}

impl Inspecting {
    fn find(&mut self, wrong: Wrong, warp: &Warp, pc: u32, lane: usize) {
        self.ends = true;
        let mut state = self.launch.state.lock();
        if state.found.is_none() {
            let place = self.launch.program.places.get(pc as usize).copied();
            state.found = Some(Escape {
                wrong,
                entry: self.launch.program.name.clone(),
                line: place.map_or(0, |place| place.line),
                thread: warp.number * 32 + lane.try_into().unwrap_or(0),
            });
        }
    }

    fn check(&self, access: &Access<'_>, at: u64) -> Option<Wrong> {
        let Inspected { rules, shared, banks, program, .. } = &self.launch;
        let within =
            |range: &Range<u64>| at >= range.start && at < range.end && access.bytes <= range.end - at;
        let stores = access.touch != Touch::Read;
        let wrong = match access.region {
            Region::Global | Region::Generic if stores => {
                (!within(&rules.stores)).then_some(Wrong::Stores(at))
            }
            Region::Global | Region::Generic => (!within(&rules.loads)).then_some(Wrong::Loads(at)),
            Region::Shared => (!within(shared)).then_some(Wrong::Leaves(at)),
            Region::Local => (!within(&(0..program.local_bytes.into()))).then_some(Wrong::Leaves(at)),
            Region::Constant => (!within(&(0..banks.0))).then_some(Wrong::Leaves(at)),
            Region::Parameter => (!within(&(0..banks.1))).then_some(Wrong::Leaves(at)),
        };
        // What is longer than 16 bytes comes in rows, and what is none of these in bytes.
        let whole = match access.bytes {
            bytes @ (1 | 2 | 4 | 8 | 16) => bytes,
            _ => 1,
        };
        wrong.or_else(|| (!at.is_multiple_of(whole)).then_some(Wrong::Misaligned(at)))
    }
}

impl Watch for Inspecting {
    fn begin(&mut self, _: [u32; 3]) {
        self.unlooked.fill([0; LANES]);
        self.looks.fill([0; LANES]);
        self.steps = 0;
    }

    fn step(&mut self, warp: &Warp, pc: u32, mask: u32, active: u32) {
        self.steps += 1;
        self.ends = false;
        let rules = &self.launch.rules;
        if self.steps > rules.steps_max && !rules.until_look {
            self.ends = true;
        }
        let unlooked = &mut self.unlooked[warp.number as usize];
        let waits = matches!(self.launch.program.code[pc as usize].op, Op::Yield);
        let each = if waits { YIELD } else { 1 };
        let mut most = 0;
        for (lane, done) in unlooked.iter_mut().enumerate() {
            *done += u64::from(mask >> lane & 1) * each;
            most = most.max(*done);
        }
        if most > rules.unlooked_max
            && let Some(lane) = lanes(mask).find(|lane| unlooked[*lane] > rules.unlooked_max)
        {
            self.find(Wrong::NeverLooks, warp, pc, lane);
        }
        if active != 0 && matches!(self.launch.program.code[pc as usize].op, Op::Trap) {
            self.ends = true;
        }
    }

    fn access(&mut self, warp: &Warp, access: &Access<'_>) {
        for lane in lanes(access.lanes) {
            let at = access.addresses[lane];
            if let Some(wrong) = self.check(access, at) {
                return self.find(wrong, warp, access.pc, lane);
            }
        }
        let rules = &self.launch.rules;
        let is_look = |lane: usize| rules.flag.contains(&access.addresses[lane]);
        if access.strong && access.touch == Touch::Read && access.region == Region::Global {
            let mut all = true;
            for lane in lanes(access.lanes) {
                if is_look(lane) {
                    self.unlooked[warp.number as usize][lane] = 0;
                    let looks = &mut self.looks[warp.number as usize][lane];
                    *looks += 1;
                    if *looks > rules.looks_max {
                        return self.find(Wrong::GoesOn, warp, access.pc, lane);
                    }
                } else {
                    all = false;
                }
            }
            self.ends |= all && self.steps > rules.steps_max;
        }
    }

    fn ends(&mut self) -> bool {
        self.ends
    }

    fn arrive(&mut self, _: &Warp, _: u32, _: u32, _: usize) {}

    fn open(&mut self, _: usize) {}

    fn come(&mut self, _: &Warp, _: u32, _: u32, _: &Lanes) {}

    fn meet(&mut self, _: &Warp, _: u32) {}

    fn stuck(&mut self, warps: &[Warp]) {
        if let Some(warp) = warps.first() {
            self.find(Wrong::Stuck, warp, warp.groups.first().map_or(0, |group| group.pc), 0);
        }
    }

    fn end(&mut self) {
        self.launch.state.lock().steps += self.steps;
    }
}
