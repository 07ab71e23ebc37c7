//! Calls that begin, end and ask about captures.

use std::sync::atomic::Ordering;

use super::{Capture, MODE, Member, Mode, Owner, State};
use crate::abi::{EdgeData, InOut, InSlice, NullStream, Out, OutMaybe};
use crate::driver::{Driver, driver_and_current};
use crate::graph;
use crate::order::{Order, Target};
use crate::status::{Answer, Status};

/// `CUstreamCaptureStatus`.
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

/// `CUstreamUpdateCaptureDependencies_flags`.
const ADD: u32 = 0;
const REPLACE: u32 = 1;

/// Most nodes that a call may name.
const NAMED_MAX: usize = 1 << 20;

fn named(null: NullStream, stream: u64) -> Result<(&'static Driver, Target), Status> {
    let (driver, _) = driver_and_current()?;
    Ok((driver, driver.target(null, stream)?))
}

/// A graph of the program's that a capture goes into, behind some of its nodes.
struct Destination {
    graph: u64,
    before: Vec<u64>,
}

/// Begins a capture, into a graph of the program's where it names one.
fn start(driver: &'static Driver, target: Target, mode: u32, into: Option<Destination>) -> Answer {
    let mode = Mode::of(mode)?;
    if target.order == Order::Legacy {
        return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
    }
    driver.streams.captures.refuse_shared(target)?;
    let (graph, handle, owner, before) = match into {
        Some(Destination { graph: handle, before }) => {
            let graph = graph::graph(driver, handle)?;
            let before = graph.numbers(&before)?;
            (graph, handle, Owner::Program, before)
        }
        None => {
            let (graph, handle) = graph::make(driver)?;
            (graph, handle, Owner::Capture, Vec::new())
        }
    };
    let captures = &driver.streams.captures;
    let mut state = captures.state.lock();
    let origin = target.stream.index();
    if state.members.contains_key(&origin) {
        drop(state);
        if owner == Owner::Capture {
            graph::destroy(handle)?;
        }
        return Err(Status::ILLEGAL_STATE);
    }
    state.last += 1;
    let number = state.last;
    let thread = crate::abi::thread_id();
    let capture = Capture { origin, mode, thread, graph, handle, owner, left: Vec::new(), is_valid: true };
    state.captures.insert(number, capture);
    state.members.insert(origin, Member::new(number, target, before));
    captures.running.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

pub(crate) fn begin(null: NullStream, stream: u64, mode: u32) -> Answer {
    let (driver, target) = named(null, stream)?;
    start(driver, target, mode, None)
}

/// As CUDA 10.0 had it: the strictest mode.
pub(crate) fn begin_1(null: NullStream, stream: u64) -> Answer {
    begin(null, stream, Mode::Global.number())
}

pub(crate) fn begin_to_graph(
    null: NullStream,
    stream: u64,
    graph: u64,
    before: InSlice<u64>,
    edges: InSlice<EdgeData>,
    count: usize,
    mode: u32,
) -> Answer {
    edges.check(count)?;
    let (driver, target) = named(null, stream)?;
    start(driver, target, mode, Some(Destination { graph, before: before.read(count)? }))
}

pub(crate) fn end(null: NullStream, stream: u64, to: Out<u64>) -> Answer {
    to.set(0);
    let (driver, target) = named(null, stream)?;
    let captures = &driver.streams.captures;
    let mut state = captures.state.lock();
    let origin = target.stream.index();
    let number = state.members.get(&origin).map(|member| member.capture).ok_or(Status::ILLEGAL_STATE)?;
    let capture = state.captures.get(&number).ok_or(Status::ILLEGAL_STATE)?;
    if capture.origin != origin {
        state.invalidate(number);
        return Err(Status::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != crate::abi::thread_id() {
        return Err(Status::STREAM_CAPTURE_WRONG_THREAD);
    }
    let (capture, members) = state.remove(number).ok_or(Status::UNKNOWN)?;
    captures.running.fetch_sub(1, Ordering::AcqRel);
    drop(state);
    let ends = members.iter().find(|(stream, _)| *stream == origin);
    let ends = ends.map(|(_, member)| member.before.clone()).unwrap_or_default();
    let answer = if !capture.is_valid {
        Err(Status::STREAM_CAPTURE_INVALIDATED)
    } else if members.iter().all(|(_, member)| capture.graph.lead_to(&member.before, &ends))
        && capture.graph.lead_to(&capture.left, &ends)
    {
        Ok(())
    } else {
        Err(Status::STREAM_CAPTURE_UNJOINED)
    };
    match answer {
        Ok(()) => to.set(capture.handle),
        // The program may have destroyed it already.
        Err(_) if capture.owner == Owner::Capture => graph::destroy(capture.handle).unwrap_or_default(),
        Err(_) => {}
    }
    answer
}

/// What a stream of a capture has: status, number, graph, nodes.
struct Info {
    status: u32,
    number: u64,
    graph: u64,
    nodes: *const u64,
    count: usize,
}

fn info(null: NullStream, stream: u64) -> Result<Option<Info>, Status> {
    let (driver, target) = named(null, stream)?;
    let captures = &driver.streams.captures;
    if captures.running.load(Ordering::Acquire) == 0 {
        return Ok(None);
    }
    let mut state = captures.state.lock();
    if target.order == Order::Legacy {
        // Only asked: the captures stay valid.
        return match state.tied_to_legacy().is_empty() {
            true => Ok(None),
            false => Err(Status::STREAM_CAPTURE_IMPLICIT),
        };
    }
    let State { captures, members, .. } = &mut *state;
    let Some(member) = members.get_mut(&target.stream.index()) else { return Ok(None) };
    let capture = captures.get(&member.capture).ok_or(Status::UNKNOWN)?;
    // A node that the program destroyed since is not told.
    member.told = capture.graph.handles(&member.before).unwrap_or_default().into();
    Ok(Some(Info {
        status: if capture.is_valid { ACTIVE } else { INVALIDATED },
        number: member.capture,
        graph: capture.handle,
        nodes: member.told.as_ptr(),
        count: member.told.len(),
    }))
}

pub(crate) fn is_capturing(null: NullStream, stream: u64, to: Out<u32>) -> Answer {
    to.set(info(null, stream)?.map_or(NONE, |info| info.status));
    Ok(())
}

pub(crate) fn capture_info(null: NullStream, stream: u64, to: Out<u32>, id: OutMaybe<u64>) -> Answer {
    let info = info(null, stream)?;
    to.set(info.as_ref().map_or(NONE, |info| info.status));
    id.set(info.map_or(0, |info| info.number));
    Ok(())
}

pub(crate) fn capture_info_2(
    null: NullStream,
    stream: u64,
    to: Out<u32>,
    id: OutMaybe<u64>,
    graph: OutMaybe<u64>,
    nodes: OutMaybe<*const u64>,
    count: OutMaybe<usize>,
) -> Answer {
    let info = info(null, stream)?;
    let info = info.unwrap_or(Info { status: NONE, number: 0, graph: 0, nodes: std::ptr::null(), count: 0 });
    to.set(info.status);
    id.set(info.number);
    graph.set(info.graph);
    nodes.set(info.nodes);
    count.set(info.count);
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn capture_info_3(
    null: NullStream,
    stream: u64,
    to: Out<u32>,
    id: OutMaybe<u64>,
    graph: OutMaybe<u64>,
    nodes: OutMaybe<*const u64>,
    edges: OutMaybe<u64>,
    count: OutMaybe<usize>,
) -> Answer {
    // No list: every dependency is a full one.
    edges.set(0);
    capture_info_2(null, stream, to, id, graph, nodes, count)
}

fn change_before(null: NullStream, stream: u64, nodes: &InSlice<u64>, count: usize, flags: u32) -> Answer {
    if count > NAMED_MAX || flags > REPLACE {
        return Err(Status::INVALID_VALUE);
    }
    let nodes = nodes.read(count)?;
    let (driver, target) = named(null, stream)?;
    let Some(mut capturing) = driver.streams.captures.of(target)? else {
        return Err(Status::ILLEGAL_STATE);
    };
    let (stream, number) = (capturing.stream, capturing.number);
    let State { captures, members, .. } = &mut *capturing.state;
    let capture = captures.get(&number).ok_or(Status::UNKNOWN)?;
    let member = members.get_mut(&stream).ok_or(Status::UNKNOWN)?;
    let nodes = capture.graph.numbers(&nodes)?;
    let mut before = if flags == ADD { member.before.clone() } else { Vec::new() };
    before.extend(nodes);
    let mut seen = std::collections::BTreeSet::new();
    before.retain(|node| seen.insert(*node));
    member.before = before;
    Ok(())
}

pub(crate) fn update_dependencies(
    null: NullStream,
    stream: u64,
    nodes: InSlice<u64>,
    count: usize,
    flags: u32,
) -> Answer {
    change_before(null, stream, &nodes, count, flags)
}

pub(crate) fn update_dependencies_2(
    null: NullStream,
    stream: u64,
    nodes: InSlice<u64>,
    edges: InSlice<EdgeData>,
    count: usize,
    flags: u32,
) -> Answer {
    edges.check(count)?;
    change_before(null, stream, &nodes, count, flags)
}

/// Swaps how much the thread lets itself be forbidden.
pub(crate) fn exchange_mode(mode: InOut<u32>) -> Answer {
    let old = MODE.replace(Mode::of(mode.get())?);
    mode.set(old.number());
    Ok(())
}
