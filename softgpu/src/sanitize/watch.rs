//! Watches a launch's blocks for a sanitizer.

use std::collections::HashMap;
use std::sync::Arc;

use super::bits;
use super::found::{Finding, Mistake, Other};
use super::global::{Does, Launch as Global, Race, Scope};
use super::meetings::{Meetings, Present, Purpose, Thread, Wrong, first};
use super::race::Races;
use super::shared::{FINDINGS_MAX, Shared};
use super::tool::Tool;
use super::touches::{Fence, How, Touches};
use crate::alu::{LANES, Lanes};
use crate::code::{Ask, BarrierMode, Op, Program, Region, SHARED_BASE};
use crate::exec::{Access, Grid, Group, State, Touch, Warp, Watch, Watched, lanes};

/// Bytes of global memory that are looked at for all lanes of a warp at once.
const SPAN: u64 = 4096;

/// A launch.
#[derive(Debug)]
pub(super) struct Launch {
    shared: Arc<Shared>,
    program: Arc<Program>,
    threads: [u32; 3],
    blocks: [u32; 3],
    bytes: usize,
    /// Global memory, where races for it are looked for.
    global: Option<Arc<Global>>,
}

impl Launch {
    /// Of a grid.
    pub(super) fn new(shared: Arc<Shared>, grid: &Grid) -> Self {
        let bytes = grid.shared_bytes() as usize;
        let looks = shared.looks_for(Tool::Races) && u32::try_from(grid.block_count()).is_ok();
        let global = looks.then(|| Arc::new(Global::new(grid.block_count())));
        let program = Arc::clone(&grid.program);
        Self { shared, program, threads: grid.threads, blocks: grid.blocks, bytes, global }
    }
}

impl Watched for Launch {
    fn begin(&self) {}

    fn watch(&self) -> Box<dyn Watch> {
        let Self { shared, program, threads, blocks, bytes, global } = self;
        let count = threads[0] * threads[1] * threads[2];
        let warps = count.div_ceil(32) as usize;
        Box::new(Watcher {
            shared: Arc::clone(shared),
            program: Arc::clone(program),
            threads: *threads,
            blocks: *blocks,
            count,
            block: [0; 3],
            exited: 0,
            counts: HashMap::new(),
            global: shared.looks_for(Tool::Initialization),
            written: shared.looks_for(Tool::Initialization).then(|| vec![0; bytes.div_ceil(64)]),
            races: shared.looks_for(Tool::Races).then(|| Races::new(*bytes, warps, global.clone())),
            meetings: shared.looks_for(Tool::Synchronization).then(|| Meetings::new(count)),
            ends: false,
        })
    }

    fn end(&self) {}
}

/// A mistake of an entry, and where others had a part in it.
type Place = (Mistake, u32, Option<u32>);

/// Watches one block after the other.
#[derive(Debug)]
struct Watcher {
    shared: Arc<Shared>,
    program: Arc<Program>,
    threads: [u32; 3],
    blocks: [u32; 3],
    /// Threads of a block.
    count: u32,
    block: [u32; 3],
    /// Threads of the block that have exited.
    exited: u32,
    /// How often what is known was made again.
    counts: HashMap<Place, u64>,
    global: bool,
    /// Which bytes of the block's shared memory were written.
    written: Option<Vec<u64>>,
    races: Option<Races>,
    meetings: Option<Meetings>,
    /// Whether the lanes of this step end, as their group waits for lanes that never come.
    ends: bool,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A mistake as it is found.
struct Made {
    mistake: Mistake,
    pc: u32,
    thread: Thread,
    other: Option<(u32, Thread)>,
    /// The block of the other.
    block: [u32; 3],
    address: u64,
    bytes: u64,
    allocation: Option<(u64, u64)>,
}

impl Watcher {
    fn tell(&mut self, made: &Made) {
        let place = (made.mistake, made.pc, made.other.map(|(pc, _)| pc));
        if let Some(count) = self.counts.get_mut(&place) {
            *count += 1;
            return;
        }
        if self.counts.len() < FINDINGS_MAX {
            self.counts.insert(place, 0);
        }
        self.shared.add(self.finding(made, 1));
    }

    fn finding(&self, made: &Made, count: u64) -> Finding {
        let at = |pc: u32| {
            let place = self.program.places.get(pc as usize).copied().unwrap_or_default();
            (place.line, place.column)
        };
        Finding {
            mistake: made.mistake,
            kernel: self.program.name.clone(),
            text: self.program.text,
            at: at(made.pc),
            block: self.block,
            thread: self.thread(made.thread),
            other: made.other.map(|(pc, thread)| Other {
                at: at(pc),
                block: made.block,
                thread: self.thread(thread),
            }),
            address: made.address,
            bytes: made.bytes,
            allocation: made.allocation,
            count,
        }
    }

    /// Adds what was counted here to what all know.
    fn flush(&mut self) {
        for ((mistake, pc, other), count) in std::mem::take(&mut self.counts) {
            if count > 0 {
                let other = other.map(|pc| (pc, Thread::default()));
                let (thread, block) = (Thread::default(), self.block);
                let made = Made { mistake, pc, thread, other, block, address: 0, bytes: 0, allocation: None };
                self.shared.add(self.finding(&made, count));
            }
        }
    }

    /// The coordinates of a thread.
    fn thread(&self, Thread { warp, lane }: Thread) -> [u32; 3] {
        let number = (warp * LANES + lane) as u32;
        let [x, y, _] = self.threads;
        [number % x, number / x % y, number / x / y]
    }

    fn wrong(&mut self, wrong: &[Wrong]) {
        for Wrong { mistake, pc, thread, other, about } in wrong {
            let made = Made {
                mistake: *mistake,
                pc: *pc,
                thread: *thread,
                other: *other,
                block: self.block,
                address: *about,
                bytes: 0,
                allocation: None,
            };
            self.tell(&made);
        }
    }

    fn reaches_global(&mut self, warp: usize, access: &Access<'_>) {
        let Access { pc, touch, lanes: mask, addresses, bytes, .. } = *access;
        let shared = Arc::clone(&self.shared);
        let memory = shared.memory.read();
        let low = lanes(mask).map(|lane| addresses[lane]).min().unwrap_or(0);
        let end = lanes(mask).map(|lane| addresses[lane].saturating_add(bytes)).max().unwrap_or(0);
        // Mostly lanes want neighbouring bytes, and all of them are written.
        if end - low <= SPAN && memory.unwritten(low, end - low).is_none() {
            return;
        }
        let mut fresh = 0;
        for lane in lanes(mask) {
            let Some((first, known)) = memory.unwritten(addresses[lane], bytes) else { continue };
            fresh |= 1 << lane;
            let half = |at| memory.unwritten(at, HALF_BYTES).is_none();
            let of_half = may_be_of_half(access)
                && (half(addresses[lane]) || half(addresses[lane].wrapping_add(HALF_BYTES)));
            if touch != Touch::Write && !of_half {
                let allocation = Some((known.address, known.bytes));
                let (mistake, thread) = (Mistake::GlobalUnwritten, Thread { warp, lane });
                let (other, block) = (None, self.block);
                self.tell(&Made { mistake, pc, thread, other, block, address: first, bytes, allocation });
            }
        }
        drop(memory);
        // Mostly others have written it before.
        if touch != Touch::Read && fresh != 0 {
            let mut memory = shared.memory.write();
            lanes(fresh).for_each(|lane| memory.write(addresses[lane], bytes));
        }
    }

    /// The coordinates of a block.
    fn block(&self, number: u32) -> [u32; 3] {
        let [x, y, _] = self.blocks;
        [number % x, number / x % y, number / x / y]
    }

    fn races_for_global(&mut self, warp: &Warp, access: &Access<'_>) {
        let Access { pc, touch, lanes: mask, addresses, bytes, strong, .. } = *access;
        let Some(races) = &mut self.races else { return };
        let number = warp.number as usize;
        let of_block = || self.program.of_block.binary_search(&pc).is_ok();
        let scope = match strong {
            false => Scope::Own,
            true if of_block() => Scope::Block,
            true => Scope::Device,
        };
        let counts = self.program.counting.binary_search(&pc).is_ok();
        let mut does = Does { pc, how: how(touch), scope, counts, lanes: mask, addresses, bytes };
        if strong {
            races.pass_on_global(number, &does);
        }
        // Mostly lanes want neighbouring bytes.
        let memory = self.shared.memory.read();
        let low = lanes(mask).map(|lane| addresses[lane]).min().unwrap_or(0);
        let end = lanes(mask).map(|lane| addresses[lane].saturating_add(bytes)).max().unwrap_or(0);
        let all = memory.known(low, end - low);
        if all.is_none() {
            let known = |lane: &usize| memory.known(addresses[*lane], bytes).is_some();
            does.lanes = lanes(mask).filter(known).fold(0, |mask, lane| mask | 1 << lane);
        }
        if does.lanes == 0 {
            return;
        }
        let mut found: Vec<(usize, Race)> = Vec::new();
        let program = &self.program;
        races.touch_global(
            number,
            &does,
            |lane| warp.stored(program, pc, lane),
            |lane, race| found.push((lane, race)),
        );
        let place = |race: &Race| memory.known(race.address, 1).map(|known| (known.address, known.bytes));
        let found: Vec<_> = found.iter().map(|(lane, race)| (*lane, *race, place(race))).collect();
        drop(memory);
        for (lane, race, allocation) in found {
            self.tell(&Made {
                mistake: race.mistake,
                pc,
                thread: Thread { warp: number, lane },
                other: Some((race.pc, Thread { warp: race.thread / LANES, lane: race.thread % LANES })),
                block: self.block(race.block),
                address: race.address,
                bytes,
                allocation,
            });
        }
    }

    fn reaches_shared(&mut self, warp: &Warp, access: &Access<'_>) {
        let Access { pc, touch, lanes: mask, addresses, bytes, strong, .. } = *access;
        let number = warp.number as usize;
        for lane in lanes(mask) {
            let Some(at) = addresses[lane].checked_sub(SHARED_BASE) else { continue };
            let (at, end) = (at as usize, (at.saturating_add(bytes)) as usize);
            if let Some(written) = &mut self.written {
                let reads = touch != Touch::Write;
                let half = |at: usize| bits::first(written, at, at + HALF_BYTES as usize, false).is_none();
                let of_half = may_be_of_half(access) && (half(at) || half(at + HALF_BYTES as usize));
                let unwritten = if reads && !of_half { bits::first(written, at, end, false) } else { None };
                if touch != Touch::Read {
                    bits::set(written, at, end, true);
                }
                if let Some(address) = unwritten.map(|at| at as u64) {
                    let mistake = Mistake::SharedUnwritten;
                    let (thread, other, block) = (Thread { warp: number, lane }, None, self.block);
                    self.tell(&Made { mistake, pc, thread, other, block, address, bytes, allocation: None });
                }
            }
            if let Some(races) = &mut self.races {
                let how = how(touch);
                let values = if touch == Touch::Write { warp.stored(&self.program, pc, lane) } else { None };
                let touches =
                    Touches { warp: number, lane, pc, how, strong, at, bytes: bytes as usize, values };
                if let Some(race) = races.touch(&touches) {
                    let made = Made {
                        mistake: race.mistake,
                        pc,
                        thread: Thread { warp: number, lane },
                        other: Some((race.pc, Thread { warp: race.warp, lane: race.lane })),
                        block: self.block,
                        address: race.at as u64,
                        bytes,
                        allocation: None,
                    };
                    self.tell(&made);
                }
            }
        }
    }
}

impl Watch for Watcher {
    fn begin(&mut self, block: [u32; 3]) {
        self.block = block;
        self.exited = 0;
        if let Some(written) = &mut self.written {
            written.fill(0);
        }
        if let Some(races) = &mut self.races {
            let [x, y, z] = block;
            let [wide, high, _] = self.blocks;
            races.restart(x + wide * (y + high * z));
        }
        if let Some(meetings) = &mut self.meetings {
            meetings.restart();
        }
    }

    fn step(&mut self, warp: &Warp, pc: u32, _: u32, active: u32) {
        self.ends = self.meetings.as_ref().is_some_and(|meetings| meetings.is_stuck(warp.number as usize));
        if let Op::Fence = self.program.code[pc as usize].op
            && let Some(races) = &mut self.races
        {
            let is_in = |list: &[u32]| list.binary_search(&pc).is_ok();
            let what = match () {
                () if is_in(&self.program.acquires) => Fence::Acquires,
                () if is_in(&self.program.of_block) => Fence::Block,
                () => Fence::Device,
            };
            races.fence(warp.number as usize, active, what);
        }
        if active != 0
            && let Some(Ask::Mask(mask)) = self.program.ask(pc)
            && let Some(meetings) = &self.meetings
        {
            let members = *mask.of(&warp.registers, &self.program.constants);
            let place = |lane: usize| {
                let is_there = |group: &&Group| group.mask >> lane & 1 == 1;
                warp.groups.iter().find(is_there).map_or(pc, place_of)
            };
            let mut told = Vec::new();
            let present = Present { mask: active, live: warp.live };
            meetings.ask(warp.number as usize, present, pc, &members, place, |wrong| told.push(wrong));
            self.wrong(&told);
        }
        if active != 0 && matches!(self.program.code[pc as usize].op, Op::Exit) {
            self.exited += active.count_ones();
            if let Some(meetings) = &mut self.meetings {
                meetings.exit(warp.number as usize, active, pc);
            }
        }
    }

    fn access(&mut self, warp: &Warp, access: &Access<'_>) {
        match access.region {
            Region::Global | Region::Generic => {
                if self.global {
                    self.reaches_global(warp.number as usize, access);
                }
                self.races_for_global(warp, access);
            }
            Region::Shared if self.program.zeroing.binary_search(&access.pc).is_err() => {
                self.reaches_shared(warp, access);
            }
            Region::Shared | Region::Local | Region::Constant | Region::Parameter => {}
        }
    }

    fn ends(&mut self) -> bool {
        self.ends
    }

    fn arrive(&mut self, warp: &Warp, pc: u32, active: u32, barrier: usize) {
        let Op::Barrier { mode, count, .. } = self.program.code[pc as usize].op else { return };
        let number = warp.number as usize;
        if let Some(races) = &mut self.races {
            races.arrive(number, active, barrier, mode != BarrierMode::Arrive);
        }
        if let Some(meetings) = &mut self.meetings
            && count.is_none()
        {
            meetings.arrive(number, active, pc, barrier);
        }
    }

    fn open(&mut self, barrier: usize) {
        if let Some(races) = &mut self.races {
            let all = races.waiting(barrier) + self.exited >= self.count;
            races.open(barrier, all);
        }
        let mut told = Vec::new();
        if let Some(meetings) = &mut self.meetings {
            meetings.open(barrier, |wrong| told.push(wrong));
        }
        self.wrong(&told);
    }

    fn come(&mut self, warp: &Warp, pc: u32, lanes: u32, members: &Lanes) {
        if let Some(meetings) = &mut self.meetings {
            meetings.come(warp.number as usize, Present { mask: lanes, live: warp.live }, pc, members);
        }
    }

    fn meet(&mut self, warp: &Warp, lanes: u32) {
        let number = warp.number as usize;
        if let Some(races) = &mut self.races {
            races.meet(number, lanes, warp.live);
        }
        let mut told = Vec::new();
        let program = &self.program;
        if let Some(meetings) = &mut self.meetings {
            let purpose = |pc: u32| purpose(program, pc);
            meetings
                .meet(number, Present { mask: lanes, live: warp.live }, purpose, |wrong| told.push(wrong));
        }
        self.wrong(&told);
    }

    fn stuck(&mut self, warps: &[Warp]) {
        if self.meetings.is_none() {
            return;
        }
        let waiting = warps.iter().flat_map(|warp| {
            let thread = |group: &Group| Thread { warp: warp.number as usize, lane: first(group.mask) };
            warp.groups.iter().map(move |group| (place_of(group), thread(group)))
        });
        let waiting: Vec<(u32, Thread)> = waiting.collect();
        let Some((pc, thread)) = waiting.first().copied() else { return };
        let other = waiting.iter().find(|(other, _)| *other != pc).copied();
        self.wrong(&[Wrong { mistake: Mistake::NeverMet, pc, thread, other, about: self.exited.into() }]);
    }

    fn end(&mut self) {
        self.flush();
    }
}

fn how(touch: Touch) -> How {
    match touch {
        Touch::Read => How::Read,
        Touch::Write => How::Write,
        Touch::Update => How::Update,
    }
}

/// What a group does, or waits at.
fn place_of(group: &Group) -> u32 {
    let behind = !matches!(group.state, State::Collective | State::Ready);
    group.pc.saturating_sub(behind.into())
}

/// What lanes meet for at a place.
fn purpose(program: &Program, pc: u32) -> Purpose {
    match program.ask(pc) {
        Some(Ask::Block) => Purpose::Block,
        Some(Ask::Group) => Purpose::Group,
        Some(Ask::Lanes) => {
            let votes = matches!(program.ask(pc + 1), Some(Ask::Left));
            let behind = program.code.get(pc as usize + 1 + usize::from(votes)..).unwrap_or_default();
            let waits =
                behind.iter().find(|inst| matches!(inst.op, Op::WarpBarrier { .. } | Op::Collective { .. }));
            let meets = waits.is_some_and(|inst| matches!(inst.op, Op::WarpBarrier { .. }));
            if meets { Purpose::Meeting } else { Purpose::Lanes }
        }
        Some(Ask::Left | Ask::Poll) => Purpose::Left,
        Some(Ask::Mask(_)) | None => Purpose::Meeting,
    }
}

const HALF_BYTES: u64 = 2;

/// Whether an access may be of an atomic operation on 16 bits, which reads and swaps the word around them: somebody else's 16
/// bits in it may not be written yet.
fn may_be_of_half(access: &Access<'_>) -> bool {
    access.strong && access.bytes == 2 * HALF_BYTES
}
