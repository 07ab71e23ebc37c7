//! How long kernels may run, and what becomes of those that run on.
//!
//! A session's kernels are told to end by its [flag](crate::watch::flag) when the session closes, when they run for longer than
//! they may, and when somebody has waited for too long to load code, which has to wait until no kernel runs. What
//! does not end then, although [neighbours](crate::watch::neighbours) leave it room, cannot be ended on its own: the executor ends,
//! and a standby goes on with the other sessions.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_gpu::{Error as DeviceError, Gpu};
use bulkhead_schema::{Error, ErrorCode};

use crate::{
    control::lost::lose_device,
    executor::Executor,
    launch::streams::{
        Load,
        rates::{bytes_per_second, unlooked_per_second},
    },
    moments::keeper::{Keeper, Keeps},
    session::{Ender, Session, State, Stopped},
    watch::{clock, neighbours::Seen},
};

/// How often sessions are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long kernels that were told to end may run on. What is to be copied, and blocks that have to start before they
/// end, take their time besides. The threads of a block, and the lanes of each warp, do what they do between two looks one
/// after the other where they are made to: 39 million loads of device memory that wait for each other took 6.2 s so, and
/// the 22 million that the checker lets through 4.1 s (an H200, decision 0090). What ptxas spills, and code that no cache holds,
/// may take 25 s (computed, decision 0092).
const GRACE: Duration = Duration::from_secs(30);
/// The same on the software GPU, which shares its processors with everybody else's programs.
const SOFTWARE_GRACE: Duration = Duration::from_secs(5);
/// What is added where kernels reach host memory: 39 million such loads took 44 s there, 22 million take 25.7 s, and
/// what all threads of the device may do in random words of it takes some 13 (0.39 ms for each thread's store, an H200).
const HOST_GRACE: Duration = Duration::from_secs(50);
/// At least so many blocks are started by the software GPU in a second.
const SOFTWARE_BLOCKS_PER_SECOND: u64 = 10_000;
/// No work is waited for longer than this.
const GRACE_MAX: Duration = Duration::from_secs(120);
/// CUDA_ERROR_LAUNCH_TIMEOUT.
const LAUNCH_TIMEOUT: u32 = 702;

/// The life of the thread that looks at sessions.
pub(crate) fn run(executor: &Weak<Executor>, gpu: &dyn Gpu) {
    if let Err(error) = gpu.bind_thread() {
        tracing::error!(%error, "the warden");
    }
    let mut keeper = Keeper::new(Instant::now());
    let mut oldest = Oldest::default();
    while let Some(executor) = executor.upgrade() {
        let now = Instant::now();
        let device_now = clock::now(gpu.info().backend);
        let mut seen = Seen::default();
        let mut is_kept = executor.kept.swap(false, Ordering::AcqRel);
        let mut going_on = Vec::new();
        let neighbours = *executor.neighbours.lock();
        for session in executor.sessions() {
            let mut state = session.state.lock();
            state.look(now);
            let is_busy = state.busy.since.is_some();
            match &mut state.stopped {
                Some(stopped) => {
                    stopped.clocks.look(device_now, neighbours);
                    is_kept |= stopped.clocks.are_kept(device_now, neighbours);
                    seen.ending += u32::from(is_busy);
                }
                None => {
                    seen.busy |= is_busy;
                    seen.passed = seen.passed.wrapping_add(state.streams.passed_count());
                }
            }
            let Some(stuck) = state.busy.stuck else { continue };
            let is_stopped = state.stopped.is_some();
            drop(state);
            going_on.push(GoingOn { session, stuck, is_stopped });
        }
        end_who_goes_on(&executor, going_on, now, is_kept, &mut oldest);
        executor.neighbours.lock().look(device_now, seen);
        executor.pulse.beat();
        if let Some(keeps) = keeper.look(&executor, now) {
            end_for(&executor, &keeps, now);
        }
        drop(executor);
        thread::sleep(LOOK);
    }
}

/// A session none of whose work has passed on a stream that has some, and since when.
struct GoingOn {
    session: Arc<Session>,
    stuck: Instant,
    is_stopped: bool,
}

/// Ends sessions whose kernels run for longer than they may, or, where the work of one that is over `is_kept` waiting, whose
/// have run for longest.
///
/// What has not passed may wait for the device behind what has not passed for longer. So only the time counts in which a
/// session's work is the oldest; and all of it where that is four times as long as is allowed, whoever else is there.
fn end_who_goes_on(
    executor: &Executor,
    mut all: Vec<GoingOn>,
    now: Instant,
    is_kept: bool,
    oldest: &mut Oldest,
) {
    all.sort_by_key(|going_on| going_on.stuck);
    let had = oldest.look(all.first().map(|first| (first.session.id, first.stuck)), now);
    let running = |going_on: &&GoingOn| !going_on.is_stopped;
    if is_kept && let Some(GoingOn { session, .. }) = all.iter().find(running) {
        let why = format!("`{}` keeps work of a session that is over from the device", name_of(session));
        end(session, why, "run shorter kernels");
    }
    let Some(most) = executor.patience.kernel else { return };
    for (place, GoingOn { session, stuck, .. }) in all.iter().enumerate().filter(|(_, found)| running(found))
    {
        let all_of_it = now.saturating_duration_since(*stuck);
        let ran = if place == 0 { had } else { Duration::ZERO };
        if ran > most || all_of_it > most * 4 {
            let (name, ran) = (name_of(session), ran.max(all_of_it).as_secs_f32());
            let why = format!(
                "`{name}`, or what was launched before it, ran for {ran:.1} s, and {most:?} are allowed"
            );
            end(session, why, "run shorter kernels, or serve with a larger --kernel-seconds");
        }
    }
}

fn name_of(session: &Session) -> String {
    session.state.lock().busy.named().to_owned()
}

fn end(session: &Session, why: String, remedy: &str) {
    // The kernel says so too, as often as the session's principal may cause a line.
    tracing::debug!(session = session.id, why, "a session's kernels are ended");
    session.end(Ender::Executor, Error::new(ErrorCode::LaunchTimeout, why).remedy(remedy));
}

/// The session whose work has gone on for longest, and since when it is that one: what others have may wait for it.
#[derive(Debug, Default)]
struct Oldest(Option<(u32, Instant, Instant)>);

impl Oldest {
    /// Notes which one it is, and since when its work has not passed; for how long it has had the device.
    fn look(&mut self, oldest: Option<(u32, Instant)>, now: Instant) -> Duration {
        let Some((id, stuck)) = oldest else {
            self.0 = None;
            return Duration::ZERO;
        };
        let since = match self.0 {
            Some((before, then, since)) if (before, then) == (id, stuck) => since,
            // What began while nothing else ran has had it from the start.
            None => stuck,
            Some(_) => now,
        };
        self.0 = Some((id, stuck, since));
        now.saturating_duration_since(since)
    }
}

/// Ends a session whose work keeps somebody waiting; says for what.
fn end_for(executor: &Executor, keeps: &Keeps, now: Instant) {
    let state = keeps.session.state.lock();
    let since = state.busy.since.unwrap_or(now);
    let (name, ran) = (state.busy.named().to_owned(), now.saturating_duration_since(since).as_secs_f32());
    drop(state);
    let (waited, to) = (executor.patience.loading, keeps.to);
    let why = format!(
        "`{name}` and what came before it ran for {ran:.1} s without a gap, and somebody waited {waited:?} to {to}"
    );
    end(&keeps.session, why, "leave gaps between kernels, or serve with a larger --loading-seconds");
}

/// How long kernels that were told to end may run on.
fn grace(backend: &str, load: Load, reaches_host: bool) -> Duration {
    let per_second = unlooked_per_second(backend);
    let (grace, starting) = match backend {
        "software" => {
            let starting = load.blocks / SOFTWARE_BLOCKS_PER_SECOND;
            (SOFTWARE_GRACE, starting.saturating_add(load.unlooked.div_ceil(per_second)))
        }
        _ => (GRACE, load.work / per_second),
    };
    let host = if reaches_host { HOST_GRACE } else { Duration::ZERO };
    let moving = Duration::from_secs(load.moved.div_ceil(bytes_per_second(backend)));
    let all = grace + host + moving.min(GRACE_MAX) + Duration::from_secs(starting).min(GRACE_MAX);
    all.min(GRACE_MAX)
}

/// Ends the executor where kernels that were told to end run on, though neighbours leave them room.
pub(crate) fn check_stopped(executor: &Executor, session: &Session, state: &mut State) {
    let backend = state.gpu.info().backend;
    let Some(Stopped { clocks, load }) = &mut state.stopped else { return };
    let grace = grace(backend, *load, state.reaches_host);
    let (now, neighbours) = (clock::now(backend), *executor.neighbours.lock());
    if clocks.are_kept(now, neighbours) {
        executor.kept.store(true, Ordering::Release);
    }
    if !clocks.are_over(now, neighbours, grace) {
        return;
    }
    let name = state.busy.named();
    tracing::error!(session = session.id, entry = name, "a kernel does not end: the executor does");
    let reason = format!("`{name}` of a session that is over does not end");
    lose_device(&session.link, &DeviceError::Lost { code: LAUNCH_TIMEOUT, reason });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_counts_in_which_nobody_has_gone_on_for_longer() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut oldest = Oldest::default();
        assert_eq!(oldest.look(Some((1, at(0))), at(3)), Duration::from_secs(3), "from the start");
        assert_eq!(oldest.look(Some((1, at(0))), at(4)), Duration::from_secs(4));
        // The first has passed: the second may have waited for it since 1.
        assert_eq!(oldest.look(Some((2, at(1))), at(5)), Duration::ZERO);
        assert_eq!(oldest.look(Some((2, at(1))), at(7)), Duration::from_secs(2));
        // Another kernel of the same session.
        assert_eq!(oldest.look(Some((2, at(6))), at(8)), Duration::ZERO);
        assert_eq!(oldest.look(None, at(9)), Duration::ZERO);
        assert_eq!(oldest.look(Some((2, at(9))), at(10)), Duration::from_secs(1));
    }

    #[test]
    fn kernels_that_reach_host_memory_have_longer_to_end() {
        let load = Load::default();
        let (plain, host) = (grace("cuda", load, false), grace("cuda", load, true));
        assert!(
            plain > Duration::from_secs(25),
            "what loads spilled registers one after the other: {plain:?}"
        );
        assert!(host > Duration::from_secs(44), "what loads one after the other took: {host:?}");
        let moved = Load { moved: u64::MAX, ..load };
        assert_eq!(grace("cuda", moved, true), GRACE_MAX);
    }

    #[test]
    fn what_is_to_be_copied_and_filled_takes_its_time_besides() {
        let seconds =
            |backend, bytes| grace(backend, Load { moved: bytes, ..Load::default() }, false).as_secs();
        assert_eq!([0, 1, 8 << 30].map(|bytes| seconds("cuda", bytes)), [30, 31, 34]);
        assert_eq!([0, 1, 512 << 20].map(|bytes| seconds("software", bytes)), [5, 6, 9]);
        // And what never looks at the flag: all that may be there.
        let load = Load { unlooked: 1 << 24, ..Load::default() };
        assert_eq!(grace("software", load, false), SOFTWARE_GRACE + Duration::from_secs(4));
    }
}
