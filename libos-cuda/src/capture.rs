//! Streams that capture: what they are given becomes nodes of a graph, and is not done.
//!
//! A capture begins in one stream, its *origin*, and spreads to those that wait for an event recorded in it. Each stream
//! of a capture has the nodes that its next one comes behind. What CUDA forbids while a stream captures makes the capture
//! *invalid*: its streams take nothing more until it is ended, which then gives no graph.

mod calls;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

pub(crate) use calls::*;

use crate::graph::{Graph, Work};
use crate::order::{Order, Target};
use crate::report;
use crate::status::{Answer, Status};

/// How much a capture forbids elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Calls that could wait for its streams, in every thread.
    Global,
    /// In its own thread.
    ThreadLocal,
    /// None.
    Relaxed,
}

impl Mode {
    fn of(number: u32) -> Result<Mode, Status> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    fn number(self) -> u32 {
        match self {
            Mode::Global => 0,
            Mode::ThreadLocal => 1,
            Mode::Relaxed => 2,
        }
    }
}

thread_local! {
    /// How much of that the thread lets itself be forbidden.
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// What the graph of a capture is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// Made for it, and gone with it where it fails.
    Capture,
    /// One that the program had.
    Program,
}

struct Capture {
    origin: u32,
    mode: Mode,
    thread: usize,
    graph: Arc<Graph>,
    handle: u64,
    owner: Owner,
    /// Where streams of it were that have ended: others have to go on behind that.
    left: Vec<u32>,
    is_valid: bool,
}

/// A stream of a capture.
struct Member {
    capture: u64,
    /// It orders with the legacy stream, which therefore must not be used.
    is_blocking: bool,
    /// What its next node comes behind.
    before: Vec<u32>,
    /// The same as handles, as the program was last told.
    told: Box<[u64]>,
}

/// The point of a stream that captures, as an event keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    capture: u64,
    before: Vec<u32>,
}

#[derive(Default)]
struct State {
    /// The number of the last capture.
    last: u64,
    captures: BTreeMap<u64, Capture>,
    /// By the number of the stream.
    members: BTreeMap<u32, Member>,
}

impl State {
    fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.is_valid = false;
        }
    }

    /// Ends a capture for all of its streams.
    fn remove(&mut self, number: u64) -> Option<(Capture, Vec<(u32, Member)>)> {
        let capture = self.captures.remove(&number)?;
        let members = self.members.extract_if(.., |_, member| member.capture == number).collect();
        Some((capture, members))
    }

    /// The captures that a use of the legacy stream would tie to it.
    fn tied_to_legacy(&self) -> Vec<u64> {
        self.members.values().filter(|member| member.is_blocking).map(|member| member.capture).collect()
    }
}

/// All captures of the process.
#[derive(Default)]
pub(crate) struct Captures {
    /// How many there are: nothing else is looked at where there are none.
    running: AtomicUsize,
    /// A bit for each stream that is several of the program's: those cannot be written down one by one.
    pub(crate) shared: AtomicU64,
    state: Mutex<State>,
}

impl Captures {
    /// The capture that a stream's next work belongs to; an error where CUDA forbids the work.
    #[inline]
    pub(crate) fn of(&self, target: Target) -> Result<Option<Capturing<'_>>, Status> {
        if self.running.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        self.look_up(target)
    }

    #[cold]
    fn look_up(&self, target: Target) -> Result<Option<Capturing<'_>>, Status> {
        let mut state = self.state.lock();
        if target.order == Order::Legacy {
            let tied = state.tied_to_legacy();
            for capture in &tied {
                state.invalidate(*capture);
            }
            return if tied.is_empty() { Ok(None) } else { Err(Status::STREAM_CAPTURE_IMPLICIT) };
        }
        let stream = target.stream.index();
        let Some(number) = state.members.get(&stream).map(|member| member.capture) else { return Ok(None) };
        match state.captures.get(&number) {
            Some(capture) if capture.is_valid => Ok(Some(Capturing { state, stream, number })),
            Some(_) | None => Err(Status::STREAM_CAPTURE_INVALIDATED),
        }
    }

    /// A stream is waited for or asked about, or more than streams can write down is asked of it.
    #[inline]
    pub(crate) fn refuse(&self, target: Target) -> Answer {
        self.of(target)?.map_or(Ok(()), |capturing| Err(capturing.refuse()))
    }

    /// A call that could wait for streams that capture.
    #[inline]
    pub(crate) fn refuse_unsafe(&self) -> Answer {
        if self.running.load(Ordering::Acquire) == 0 { Ok(()) } else { self.refuse_by_mode() }
    }

    #[cold]
    fn refuse_by_mode(&self) -> Answer {
        let (mode, thread) = (MODE.get(), crate::abi::thread_id());
        let mut answer = Ok(());
        for capture in self.state.lock().captures.values_mut() {
            let is_forbidden = match (capture.thread == thread, capture.mode) {
                (_, Mode::Relaxed) => false,
                (true, Mode::Global | Mode::ThreadLocal) => mode != Mode::Relaxed,
                (false, Mode::Global) => mode == Mode::Global,
                (false, Mode::ThreadLocal) => false,
            };
            if is_forbidden {
                capture.is_valid = false;
                answer = Err(Status::STREAM_CAPTURE_UNSUPPORTED);
            }
        }
        answer
    }

    /// Everything is waited for, whatever captures.
    pub(crate) fn refuse_all(&self) -> Answer {
        if self.running.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.captures.values_mut().for_each(|capture| capture.is_valid = false);
        if state.captures.is_empty() { Ok(()) } else { Err(Status::STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// A call about an event whose last recording was captured.
    pub(crate) fn refuse_point(&self, point: &Point) -> Status {
        self.state.lock().invalidate(point.capture);
        Status::CAPTURED_EVENT
    }

    /// Has a stream that does not capture go on behind a point of a capture.
    pub(crate) fn join(&self, target: Target, point: &Point) -> Answer {
        let mut state = self.state.lock();
        let Some(capture) = state.captures.get_mut(&point.capture) else {
            return Err(Status::CAPTURED_EVENT);
        };
        if !capture.is_valid {
            return Err(Status::STREAM_CAPTURE_INVALIDATED);
        }
        if target.order == Order::Legacy {
            capture.is_valid = false;
            return Err(Status::STREAM_CAPTURE_IMPLICIT);
        }
        self.refuse_shared(target)?;
        let member = Member::new(point.capture, target, point.before.clone());
        state.members.insert(target.stream.index(), member);
        Ok(())
    }

    /// Refuses a stream that is several of the program's.
    pub(crate) fn refuse_shared(&self, target: Target) -> Answer {
        if self.shared.load(Ordering::SeqCst) & target.bit() == 0 {
            return Ok(());
        }
        report::once(
            "the program uses more streams than its session has, and a stream that others of it share cannot be captured: destroy some",
        );
        Err(Status::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// A stream ends; a capture that began in it ends too, any other goes on.
    pub(crate) fn forget(&self, stream: u32) {
        if self.running.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let Some(member) = state.members.remove(&stream) else { return };
        if state.captures.get(&member.capture).is_some_and(|capture| capture.origin == stream) {
            let removed = state.remove(member.capture);
            self.running.fetch_sub(1, Ordering::AcqRel);
            drop(state);
            // Without the lock: the graph ends with it, unless it is the program's, or the program destroyed it.
            if let Some((Capture { owner: Owner::Capture, graph, handle, .. }, _)) = removed {
                graph.end(handle);
            }
        } else if let Some(capture) = state.captures.get_mut(&member.capture) {
            capture.left.extend(member.before);
        }
    }
}

impl Member {
    fn new(capture: u64, target: Target, before: Vec<u32>) -> Member {
        Member { capture, is_blocking: target.order == Order::Blocking, before, told: Box::default() }
    }
}

/// A stream that captures, while its next work is looked at.
pub(crate) struct Capturing<'a> {
    state: MutexGuard<'a, State>,
    stream: u32,
    number: u64,
}

impl Capturing<'_> {
    /// Writes work down.
    pub(crate) fn add(mut self, work: Work) -> Answer {
        let added = self.try_add(work);
        if added.is_err() {
            self.state.invalidate(self.number);
        }
        added
    }

    fn try_add(&mut self, work: Work) -> Answer {
        let State { captures, members, .. } = &mut *self.state;
        let capture = captures.get(&self.number).ok_or(Status::UNKNOWN)?;
        let member = members.get_mut(&self.stream).ok_or(Status::UNKNOWN)?;
        let (id, _) = capture.graph.add(work, &member.before)?;
        member.before = vec![id];
        Ok(())
    }

    /// What was asked is not for streams that capture.
    pub(crate) fn refuse(mut self) -> Status {
        self.state.invalidate(self.number);
        Status::STREAM_CAPTURE_UNSUPPORTED
    }

    /// The point that the stream has come to.
    pub(crate) fn point(&self) -> Result<Point, Status> {
        let member = self.state.members.get(&self.stream).ok_or(Status::UNKNOWN)?;
        Ok(Point { capture: self.number, before: member.before.clone() })
    }

    /// Goes on behind an event's point too; an event without one has work that is not captured.
    pub(crate) fn wait(mut self, point: Option<&Point>) -> Answer {
        match point {
            Some(point) if point.capture == self.number => {
                let member = self.state.members.get_mut(&self.stream).ok_or(Status::UNKNOWN)?;
                for node in &point.before {
                    if !member.before.contains(node) {
                        member.before.push(*node);
                    }
                }
                Ok(())
            }
            Some(point) if self.state.captures.contains_key(&point.capture) => {
                self.state.invalidate(point.capture);
                self.state.invalidate(self.number);
                Err(Status::STREAM_CAPTURE_MERGE)
            }
            Some(_) | None => {
                self.state.invalidate(self.number);
                Err(Status::STREAM_CAPTURE_ISOLATION)
            }
        }
    }
}
