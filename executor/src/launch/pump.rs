//! The pump: takes records out of a session's ring and submits them.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use bulkhead_gpu::Error as DeviceError;
use bulkhead_ring::{Consumer, Ended, ProtocolError};
use bulkhead_schema::{Error, ErrorCode, limits};

use crate::{
    control::{link::report, lost::lose_device},
    device,
    launch::{records, rest::Rest, streams::Held},
    moments::gate::{NARROW, NARROW_STUCK},
    session::{Session, State, Swapped, waiter::Waiter},
};

/// Records taken before the session's state is let go for a moment.
const BATCH: u32 = 32;
/// The same where they may go to the device together.
const BATCH_OF_RUNS: u32 = 128;
/// How long an idle pump spins before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Turns of the spin loop between two looks at the clock.
const SPIN_TURNS: u32 = 200;
/// The same where a mark is to be written once another has passed.
const SPIN_TURNS_MARKING: u32 = 8;
/// Longest sleep with nothing to wait for.
const SLEEP: Duration = Duration::from_millis(500);
/// Longest sleep while somebody waits for the device.
const NAP: Duration = Duration::from_micros(50);

/// What ends a pump.
enum End {
    Protocol(ProtocolError),
    Order(&'static str),
    Broken(Error),
    Device(DeviceError),
}

impl From<DeviceError> for End {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// What a turn of the pump achieved.
enum Turn {
    /// Records were taken.
    Worked,
    /// There is no record.
    Idle,
    /// There are records, but the session has as much in flight as it may.
    Full,
    /// The session is held: its pages change, or are away.
    Held,
}

/// Runs until the session stops, breaks the protocol or loses the device.
pub(crate) fn run(session: &Session, mut consumer: Consumer) {
    let bound = session.state.lock().gpu.bind_thread();
    let ended = bound.map_err(End::Device).and_then(|()| pump(session, &mut consumer));
    let Err(end) = ended else { return };
    let error = match end {
        End::Protocol(error) => Error::new(ErrorCode::Protocol, format!("the ring: {error}")),
        End::Order(what) => Error::new(ErrorCode::Protocol, format!("the ring: {what}")),
        End::Device(error @ DeviceError::Lost { .. }) => lose_device(&session.link, &error),
        End::Broken(error) => error,
        End::Device(error) => device::error(&error),
    };
    // The kernel says so too, as often as the session's principal may cause a line.
    tracing::debug!(session = session.id, %error, "session ended");
    let mut state = session.state.lock();
    state.streams.forget_held();
    session.tell_kernel(&mut state, &error);
    state.streams.page().end(Ended { code: error.code as u16, device: error.device });
    drop(state);
    linger(session);
}

/// Serves those who wait for work to pass, in a session whose records are not taken any more.
fn linger(session: &Session) {
    while !session.stopping.load(Ordering::Acquire) {
        let mut state = session.state.lock();
        // What is in the ring will never be submitted: waiters wait for all that was.
        if wake_waiters(&mut state, u64::MAX, u64::MAX, session).is_err() {
            return;
        }
        drop(state);
        thread::sleep(NAP * 20);
    }
}

fn pump(session: &Session, consumer: &mut Consumer) -> Result<(), End> {
    let mut parameters = Vec::new();
    let mut idle_since: Option<Instant> = None;
    while !session.stopping.load(Ordering::Acquire) {
        // Whoever wakes the pump after this is not slept through.
        let bell = consumer.listen();
        let mut state = session.state.lock();
        let turn = turn(&mut state, consumer, &mut parameters)?;
        wake_waiters(&mut state, consumer.tail(), consumer.position(), session)?;
        let goes_on = !matches!(turn, Turn::Worked)
            && state.streams.is_about_to_go_on(|stream| consumer.opened(stream));
        let waiting = !state.waiters.is_empty() || goes_on || state.streams.call_gates();
        match turn {
            Turn::Worked => {
                idle_since = None;
                session.note_submission();
                parking_lot::MutexGuard::unlock_fair(state);
            }
            Turn::Full => {
                let waits_for_host = state.streams.hold_enough() && !goes_on;
                drop(state);
                // Whoever opens a barrier rings the bell.
                if waits_for_host {
                    consumer.sleep_since(bell, if waiting { NAP } else { SLEEP });
                } else {
                    thread::sleep(NAP / 10);
                }
            }
            Turn::Held => {
                idle_since = None;
                let nap = if waiting { NAP } else { SLEEP };
                // What is held back was taken out of the ring, and waits to go on all the same.
                let is_full = state.streams.hold_enough();
                if goes_on || !is_full && consumer.is_ready() {
                    want(&mut state, session);
                    session.resumed.wait_for(&mut state, nap);
                } else {
                    drop(state);
                    if is_full {
                        consumer.sleep_since(bell, nap);
                    } else {
                        consumer.park_since(bell, nap);
                    }
                }
            }
            Turn::Idle => {
                let turns = if state.streams.has_unmarked() { SPIN_TURNS_MARKING } else { SPIN_TURNS };
                drop(state);
                let since = *idle_since.get_or_insert_with(Instant::now);
                if consumer.spin(turns) {
                    continue;
                }
                if since.elapsed() > SPIN {
                    session.state.lock().streams.mark_all()?;
                    consumer.park_since(bell, if waiting { NAP } else { SLEEP });
                    if !waiting {
                        idle_since = None;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Tells the kernel, once, that a session that is swapped out has something to do.
fn want(state: &mut State, session: &Session) {
    if state.swapped == Some(Swapped::Quiet) {
        state.swapped = Some(Swapped::Wanted);
        report(session.link.reply(0, None, |mut reply| reply.set_wanted(session.id)));
    }
}

/// Submits what may go: first what was held back, then new records.
fn turn(state: &mut State, consumer: &mut Consumer, parameters: &mut Vec<u64>) -> Result<Turn, End> {
    if let Some(error) = &state.broken {
        return Err(End::Broken(error.clone()));
    }
    if state.pause.holds() {
        return Ok(Turn::Held);
    }
    if state.gate.is_closed() {
        // Whoever opens it after long wakes everybody.
        return Ok(if state.gate.is_shut() { Turn::Held } else { Turn::Full });
    }
    let mut worked = false;
    // What was held back counts against the cap like what is new. What is left of a grid may come again as soon as it went.
    for _ in 0..BATCH {
        if !has_room(state)? {
            break;
        }
        let Some(held) = state.streams.release(|stream| consumer.opened(stream))? else { break };
        submit(state, consumer, held.position, &held.record, &held.parameters, held.rest)?;
        worked = true;
    }
    let batch = if state.streams.forms_runs() { BATCH_OF_RUNS } else { BATCH };
    for _ in 0..batch {
        if state.streams.hold_enough() || !has_room(state)? {
            state.streams.mark_all()?;
            return Ok(if worked { Turn::Worked } else { Turn::Full });
        }
        let Some(record) = consumer.take().map_err(End::Protocol)? else {
            state.streams.mark_due()?;
            return Ok(if worked { Turn::Worked } else { Turn::Idle });
        };
        // The position that the client got when it pushed the record.
        let position = consumer.position() + 1;
        parameters.clear();
        if let Some(launch) = record.launch() {
            consumer.parameters(launch, parameters);
        }
        if let bulkhead_ring::Record::CreateStream { stream, priority } = record {
            consumer.note_priority(stream, priority);
        }
        consumer.release();
        if let bulkhead_ring::Record::WaitOn { position: wanted, .. } = record
            && wanted >= position
        {
            return Err(End::Order("a stream waits for a record that comes later"));
        }
        if !record.is_aside() && state.streams.is_held(record.stream()) {
            let held = Held { position, record, parameters: parameters.clone(), rest: None };
            state.streams.hold(record.stream(), held);
        } else {
            submit(state, consumer, position, &record, parameters, None)?;
        }
        worked = true;
    }
    state.streams.end_run()?;
    Ok(Turn::Worked)
}

/// Submits a record, unless it is a barrier that the host has opened.
fn submit(
    state: &mut State,
    consumer: &Consumer,
    position: u64,
    record: &bulkhead_ring::Record,
    parameters: &[u64],
    rest: Option<Box<Rest>>,
) -> Result<(), DeviceError> {
    match *record {
        bulkhead_ring::Record::HostBarrier { stream, number } if consumer.opened(stream) >= number => {
            state.streams.skipped(stream, position);
            Ok(())
        }
        _ => records::submit(state, position, record, parameters, rest),
    }
}

/// Whether the session may have more in flight; looks at the marks only where it must.
fn has_room(state: &mut State) -> Result<bool, DeviceError> {
    // Work that does not pass may wait for what is held back: kernels of several streams that wait for each other.
    let is_narrow = state.gate.is_narrow() && !state.goes_on_for(NARROW_STUCK);
    let most = if is_narrow { NARROW } else { limits::IN_FLIGHT_MAX };
    if state.streams.in_flight_at_most() < most {
        return Ok(true);
    }
    state.streams.mark_all()?;
    Ok(state.streams.in_flight() < most)
}

fn wake_waiters(state: &mut State, tail: u64, taken: u64, session: &Session) -> Result<(), DeviceError> {
    if state.waiters.is_empty() {
        return Ok(());
    }
    state.streams.mark_all()?;
    let mut waiting = std::mem::take(&mut state.waiters);
    // What is held back for long is refused what was unbound, once it is submitted: no revocation waits for it.
    let held_back = state.gate.is_shut();
    for waiter in &mut waiting {
        let position = waiter.position.unwrap_or(tail);
        let is_enough = held_back && waiter.is_drain();
        waiter.position = Some(if is_enough { position.min(taken) } else { position });
    }
    let passed = |waiter: &Waiter| {
        let position = waiter.position.unwrap_or(u64::MAX);
        let submitted = taken >= position;
        submitted
            && match waiter.stream {
                Some(stream) => state.streams.passed(stream, position),
                None if held_back && waiter.is_drain() => state.streams.all_begun_passed(position),
                None => state.streams.all_passed(position),
            }
    };
    let (done, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(passed);
    state.waiters = waiting;
    for waiter in done {
        waiter.done(&session.link);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
