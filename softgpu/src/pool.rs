//! The threads that run the blocks of grids.
//!
//! A stream's thread works on its own launch; the pool's threads help whichever launches there are. So a
//! launch always moves on, and launches of several streams run at once, however few cores there are.
//!
//! A thread keeps several blocks of a launch in work when they take long: blocks may wait for one another
//! as far as a real device would keep them resident.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::compiled::Engine;
use crate::exec::{Block, Core, Dispatch, Grid, Progress, Random};
use crate::health::Health;
use crate::memory::space::AddressSpace;
use crate::room::{Patience, Room, Taken, Taker};

/// Blocks that one thread keeps in work at most.
const RESIDENT_MAX: usize = 32;
/// Memory that the blocks of one thread take at most, beyond the first block.
const RESIDENT_BYTES_MAX: u64 = 64 << 20;
/// How long a thread works on one launch before its entry is worth compiling, however short its blocks are.
const LONG: Duration = Duration::from_millis(10);
/// How long a thread waits for room for a block at a time.
const WAIT: Duration = Duration::from_millis(10);
/// How whoever made a launch waits, who asks until there is room.
const IN_TURN: Patience = Patience::InTurn(WAIT);
/// How long a pool thread stays with one launch.
const STAY: Duration = Duration::from_millis(5);

/// A launch that is running.
#[derive(Debug)]
struct Job {
    dispatch: Arc<Dispatch>,
    room: Taker,
    /// Threads that may work on it: the pool's, and whose launch it is.
    workers: u64,
    next: AtomicU64,
    failed: AtomicBool,
    helpers: Mutex<usize>,
    alone: Condvar,
}

impl Job {
    fn grid(&self) -> &Grid {
        &self.dispatch.grid
    }

    /// Its entry turns out to run for long.
    fn meanwhile(&self) {
        let Dispatch { grid, engine, compiled, watched: _ } = &*self.dispatch;
        compiled.meanwhile(&grid.program, *engine, grid.threads);
    }

    fn take(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number + 1 == self.in_work_max() {
            self.room.stop_waiting();
        }
        (number < self.grid().block_count()).then_some(number)
    }

    /// How many blocks all threads together keep in work.
    fn in_work_max(&self) -> u64 {
        (self.resident_max() as u64).saturating_mul(self.workers).min(self.grid().block_count())
    }

    fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.grid().block_count() && !self.failed.load(Ordering::Relaxed)
    }

    fn resident_max(&self) -> usize {
        if self.grid().together {
            return usize::MAX;
        }
        let fits = RESIDENT_BYTES_MAX / self.block_bytes().max(1);
        usize::try_from(fits).map_or(RESIDENT_MAX, |fits| fits.clamp(1, RESIDENT_MAX))
    }

    /// Host memory that a block takes.
    fn block_bytes(&self) -> u64 {
        let warps = u64::from(self.grid().block_threads().div_ceil(32));
        warps * self.grid().program.warp_bytes() + u64::from(self.grid().shared_bytes())
    }

    /// Whether one of its blocks could begin now: not where others stand before it in the queue for room.
    fn has_room(&self) -> bool {
        self.grid().together || self.room.could_take(self.block_bytes())
    }

    /// A block that has not begun, where there is room for it.
    fn block(&self, patience: Patience) -> Option<Block> {
        // Those of a grid that is on the device as a whole have theirs already.
        let bytes = if self.grid().together { 0 } else { self.block_bytes() };
        Some(Block::new(&self.dispatch, self.room.take(bytes, patience)?))
    }

    /// Room for all blocks of a grid, where they wait for each other; none where nobody can run any more.
    fn room_for_all(&self, health: &Health) -> Option<Taken> {
        let blocks = if self.grid().together { self.grid().block_count() } else { 0 };
        let bytes = self.block_bytes().saturating_mul(blocks);
        let mut waits = std::iter::from_fn(|| (!health.is_lost()).then(|| self.room.take(bytes, IN_TURN)));
        let taken = waits.find_map(|taken| taken);
        self.room.stop_waiting();
        taken
    }

    /// Runs blocks until there are none, or, between two of them, until it has done so for as long as it may.
    fn work(&self, core: &mut Core, health: &Health, stay: Option<Duration>) {
        let resident_max = self.resident_max();
        let since = Instant::now();
        // One look at the clock for a block: there are many short ones.
        let mut now = since;
        let mut is_long = false;
        // In boxes: they go to and fro.
        let mut resident: VecDeque<Box<Block>> = VecDeque::new();
        let mut spare: VecDeque<Box<Block>> = VecDeque::new();
        let start = |spare: &mut VecDeque<Box<Block>>, patience| {
            if spare.is_empty() {
                spare.push_back(Box::new(self.block(patience)?));
            }
            let number = self.take()?;
            let mut block = spare.pop_back()?;
            block.restart(number);
            Some(block)
        };
        loop {
            if self.failed.load(Ordering::Relaxed) || health.is_lost() {
                return;
            }
            let Some(mut block) = resident.pop_front() else {
                if stay.is_some_and(|stay| now.duration_since(since) > stay) {
                    return;
                }
                let patience = if stay.is_none() { IN_TURN } else { Patience::None };
                match start(&mut spare, patience) {
                    Some(block) => resident.push_back(block),
                    // Whose launch it is waits for room.
                    None if stay.is_none() && self.has_more() => {}
                    None => return,
                }
                continue;
            };
            let ran = block.run(core, now);
            now = Instant::now();
            match ran {
                Ok(Progress::Finished) => {
                    spare.push_back(block);
                    if !is_long && now.duration_since(since) > LONG {
                        is_long = true;
                        self.meanwhile();
                    }
                }
                Ok(Progress::Going) => {
                    self.meanwhile();
                    if resident.len() + 1 < resident_max
                        && self.has_more()
                        && let Some(more) = start(&mut spare, Patience::None)
                    {
                        resident.push_back(more);
                    }
                    resident.push_back(block);
                }
                Err((fault, place)) => {
                    self.failed.store(true, Ordering::Relaxed);
                    health.lose(fault.lost(&place));
                    return;
                }
            }
        }
    }
}

impl Job {
    /// Runs all blocks in an order that is drawn from a seed.
    fn work_drawn(&self, seed: u64, core: &mut Core, health: &Health) {
        let mut random = Random::new(seed, self.grid().number);
        // Clocks do not go back.
        core.steps.get_or_insert_default();
        let resident_max = self.resident_max();
        let mut resident: Vec<Block> = Vec::new();
        let mut spare: Vec<Block> = Vec::new();
        while !health.is_lost() {
            while resident.len() < resident_max && self.has_more() {
                let patience = if resident.is_empty() { IN_TURN } else { Patience::None };
                let Some(mut block) = spare.pop().or_else(|| self.block(patience)) else { break };
                let Some(number) = self.take() else { break };
                block.restart(number);
                resident.push(block);
            }
            if resident.is_empty() {
                if self.has_more() {
                    continue;
                }
                return;
            }
            let index = random.index(resident.len());
            match resident[index].step(core, &mut random) {
                Ok(Progress::Finished) => spare.push(resident.swap_remove(index)),
                Ok(Progress::Going) => {}
                Err((fault, place)) => {
                    health.lose(fault.lost(&place));
                    return;
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct Jobs {
    list: Vec<Arc<Job>>,
    closed: bool,
}

#[derive(Debug)]
struct Shared {
    jobs: Mutex<Jobs>,
    more: Condvar,
    health: Arc<Health>,
    room: Arc<Room>,
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of so many threads.
    pub(crate) fn new(
        threads: usize,
        space: &Arc<AddressSpace>,
        health: &Arc<Health>,
    ) -> std::io::Result<Self> {
        let (health, room) = (Arc::clone(health), Arc::new(Room::new()));
        let shared = Arc::new(Shared { jobs: Mutex::default(), more: Condvar::new(), health, room });
        let mut pool = Self { shared, threads: Vec::with_capacity(threads) };
        for number in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let mut core = Core::new(Arc::clone(space), number);
            let thread = std::thread::Builder::new()
                .name(format!("softgpu-{number}"))
                .spawn(move || shared.help(&mut core))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Runs a grid to its end; faults go to `health`.
    pub(crate) fn run(&self, dispatch: Arc<Dispatch>, core: &mut Core) {
        let grid = &dispatch.grid;
        let alone = grid.block_count() == 1 || grid.schedule.is_some();
        let watched = dispatch.watched.clone();
        if let Some(watched) = &watched {
            watched.begin();
        }
        let job = Arc::new(Job {
            dispatch,
            room: Taker::new(&self.shared.room),
            workers: self.threads.len() as u64 + 1,
            next: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            helpers: Mutex::new(0),
            alone: Condvar::new(),
        });
        let health = &self.shared.health;
        let Some(_room) = job.room_for_all(health) else {
            watched.iter().for_each(|watched| watched.end());
            return;
        };
        let Dispatch { grid, engine, compiled, watched: _ } = &*job.dispatch;
        let threads = grid.block_count().saturating_mul(grid.block_threads().into());
        let prepare = || compiled.before(&grid.program, *engine, grid.threads, threads);
        // Where nothing is to be interpreted, nobody begins before.
        if *engine == Engine::Compiled && grid.schedule.is_none() {
            health.watch(prepare);
        }
        if !grid.together {
            job.room.wait_in_turn(job.block_bytes());
        }
        if !alone {
            self.shared.jobs.lock().list.push(Arc::clone(&job));
            self.shared.more.notify_all();
        }
        health.watch(|| {
            if let Some(seed) = grid.schedule {
                return job.work_drawn(seed, core, health);
            }
            prepare();
            job.work(core, health, None);
        });
        core.forget();
        job.room.stop_waiting();
        if !alone {
            self.shared.jobs.lock().list.retain(|other| !Arc::ptr_eq(other, &job));
            let mut helpers = job.helpers.lock();
            while *helpers > 0 {
                job.alone.wait(&mut helpers);
            }
        }
        if let Some(watched) = &watched {
            watched.end();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.jobs.lock().closed = true;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the software GPU panicked");
            }
        }
    }
}

impl Shared {
    /// A pool thread's life.
    fn help(&self, core: &mut Core) {
        while let Some(job) = self.next_job() {
            self.health.watch(|| job.work(core, &self.health, Some(STAY)));
            core.forget();
            let mut helpers = job.helpers.lock();
            *helpers -= 1;
            if *helpers == 0 {
                job.alone.notify_all();
            }
        }
    }

    /// Joins the launch with the fewest helpers that has blocks left, and room for one. Where a launch waits for room, helpers
    /// do not wait with it: the first in the queue may need all of them.
    fn next_job(&self) -> Option<Arc<Job>> {
        let mut jobs = self.jobs.lock();
        loop {
            if jobs.closed {
                return None;
            }
            let open = || jobs.list.iter().filter(|job| job.has_more());
            if let Some(job) = open().filter(|job| job.has_room()).min_by_key(|job| *job.helpers.lock()) {
                // Counted under the lock of the list, from which the stream takes the job before it waits.
                *job.helpers.lock() += 1;
                return Some(Arc::clone(job));
            }
            if open().next().is_some() {
                self.more.wait_for(&mut jobs, WAIT);
            } else {
                self.more.wait(&mut jobs);
            }
        }
    }
}
