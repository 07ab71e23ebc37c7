//! What each record asks of the device, after every name in it has been looked up.

use bulkhead_gpu::{ArrayCopy, DeviceAddress, StreamId};
use bulkhead_ring::{self as ring, Blocks, Record};
use bulkhead_schema::{ErrorCode, limits};

use crate::{
    device,
    launch::{
        graphs, launches,
        moves::{self, Move},
        outcome::{Outcome, Refused},
        rest::Rest,
        streams::{Held, Load},
    },
    session::{
        State,
        bindings::{Object, Use},
        waiter::Waiter,
    },
};

/// Submits one record, or what is `rest` of a launch. A record that makes no sense is refused in the completion page;
/// only the loss of the device is an error.
pub(crate) fn submit(
    state: &mut State,
    position: u64,
    record: &Record,
    parameters: &[u64],
    rest: Option<Box<Rest>>,
) -> Result<(), bulkhead_gpu::Error> {
    let stream = record.stream();
    let goes_on = matches!(record, Record::Launch { launch, .. } if launch.blocks == Blocks::Apart);
    if !goes_on {
        state.streams.end_run()?;
    }
    match carry_out(state, position, record, parameters, rest) {
        Ok(Ok(Outcome::Submitted)) => state.streams.submitted(stream, position),
        Ok(Ok(Outcome::Nothing)) => {
            state.streams.skipped(stream, position);
            Ok(())
        }
        Ok(Ok(Outcome::Aside | Outcome::Held)) => Ok(()),
        Ok(Err(refused)) => {
            tracing::debug!(position, ?record, code = ?refused.code, "record refused");
            if !record.is_aside() {
                state.streams.skipped(stream, position);
            }
            state.streams.page().refuse(position, refused.code as u16, refused.device);
            Ok(())
        }
        Err(error @ bulkhead_gpu::Error::Lost { .. }) => Err(error),
        Err(error) => {
            let error = device::error(&error);
            tracing::debug!(position, ?record, %error, "record refused by the device");
            if !record.is_aside() {
                state.streams.skipped(stream, position);
            }
            state.streams.page().refuse(position, error.code as u16, error.device);
            Ok(())
        }
    }
}

fn carry_out(
    state: &mut State,
    position: u64,
    record: &Record,
    parameters: &[u64],
    rest: Option<Box<Rest>>,
) -> Result<Result<Outcome, Refused>, bulkhead_gpu::Error> {
    let is_of_the_driver = matches!(
        record,
        Record::Node { .. }
            | Record::After { .. }
            | Record::MakeGraph { .. }
            | Record::LaunchGraph { .. }
            | Record::DestroyGraph { .. }
            | Record::CopyArray { .. }
    );
    if is_of_the_driver && !state.streams.is_alone() {
        return Ok(Err(ErrorCode::NotSupported.into()));
    }
    if let Some(done) = beside_streams(state, position, record, parameters)? {
        return Ok(done);
    }
    let gpu = &*state.gpu;
    // Stream 0 comes with the session.
    if record.stream() < state.reserved.streams.max(1) {
        state.streams.revive(record.stream(), gpu.info())?;
    }
    let Some(stream) = state.streams.get(record.stream()).map(|stream| stream.id) else {
        return Ok(Err(ErrorCode::InvalidHandle.into()));
    };
    let bindings = &state.bindings;
    if let Some(found) = Move::find(bindings, record) {
        return match found {
            Ok(found) => moves::submit(state, position, record, found),
            Err(code) => Ok(Err(code.into())),
        };
    }
    match *record {
        Record::Launch { launch, .. } => {
            return match rest {
                Some(rest) => launches::go_on(state, position, record, &launch, rest),
                None => launches::launch(state, position, record, &launch, parameters),
            };
        }
        Record::LaunchGraph { graph, .. } => {
            if let Some(name) = state.graphs.name(graph) {
                state.busy.launches(name);
            }
            let refused = |error: &bulkhead_gpu::Error| {
                let error = device::error(error);
                state.streams.page().refuse(position, error.code as u16, error.device);
            };
            if let Err(code) = state.graphs.launch(gpu, stream, graph, refused)? {
                return Ok(Err(code.into()));
            }
        }
        Record::CopyArray { copy, .. } => return copy_array(state, record.stream(), stream, copy),
        Record::WaitOn { stream, on, position: until } => {
            let wait = Held { position, record: *record, parameters: Vec::new(), rest: None };
            let held = state.streams.wait_on(stream, on, until, wait)?;
            return Ok(Ok(if held { Outcome::Held } else { Outcome::Nothing }));
        }
        Record::HostBarrier { stream, number } => {
            let barrier = Held { position, record: *record, parameters: Vec::new(), rest: None };
            state.streams.wait_for_host(stream, number, barrier);
            return Ok(Ok(Outcome::Held));
        }
        Record::RecordEvent { event, .. } => {
            if event >= state.reserved.events.min(limits::EVENTS_MAX) {
                return Ok(Err(ErrorCode::LimitReached.into()));
            }
            gpu.record(state.events.get_or_create(gpu, event)?, stream)?;
        }
        Record::CopyToDevice { .. }
        | Record::CopyToHost { .. }
        | Record::CopyOnDevice { .. }
        | Record::Fill { .. }
        | Record::CreateStream { .. }
        | Record::DestroyStream { .. }
        | Record::DestroyEvent { .. }
        | Record::Elapsed { .. }
        | Record::Node { .. }
        | Record::After { .. }
        | Record::MakeGraph { .. }
        | Record::DestroyGraph { .. } => {}
    }
    Ok(Ok(Outcome::Submitted))
}

/// Copies between an array of the driver's and memory that the session names.
fn copy_array(
    state: &mut State,
    number: u32,
    stream: StreamId,
    copy: ring::ArrayCopy,
) -> Result<Result<Outcome, Refused>, bulkhead_gpu::Error> {
    let ring::ArrayCopy { array, at, row_bytes, rows, shape, to_array, .. } = copy;
    let copied = ArrayCopy { array, at, memory: DeviceAddress(0), row_bytes, rows, shape, to_array };
    let Some(bytes) = copied.bytes() else { return Ok(Err(ErrorCode::InvalidArgument.into())) };
    let may = if to_array { Use::Read } else { Use::ReadWrite };
    let memory = match state.bindings.device(copy.memory, copy.offset, bytes, may) {
        Ok(memory) => memory,
        Err(code) => return Ok(Err(code.into())),
    };
    state.gpu.copy_array(stream, &ArrayCopy { memory, ..copied })?;
    state.streams.loads(number, Load { moved: bytes, ..Load::default() });
    Ok(Ok(Outcome::Submitted))
}

/// Carries out what is no work of a stream; none where the record is that.
fn beside_streams(
    state: &mut State,
    position: u64,
    record: &Record,
    parameters: &[u64],
) -> Result<Option<Result<Outcome, Refused>>, bulkhead_gpu::Error> {
    let gpu = &*state.gpu;
    let aside = |done: Result<(), ErrorCode>| done.map(|()| Outcome::Aside).map_err(Refused::from);
    Ok(Some(match *record {
        Record::CreateStream { stream, .. } if stream >= state.reserved.streams => {
            Err(ErrorCode::LimitReached.into())
        }
        Record::CreateStream { stream, priority } => {
            state.streams.create(stream, priority, gpu.info())?;
            Ok(Outcome::Aside)
        }
        Record::DestroyStream { stream } => {
            if state.streams.forget_lost(stream) {
                Ok(Outcome::Aside)
            } else if state.streams.get(stream).is_none() {
                Err(ErrorCode::InvalidHandle.into())
            } else if state.streams.destroy(stream)? {
                Ok(Outcome::Aside)
            } else {
                Err(ErrorCode::InvalidArgument.into())
            }
        }
        Record::DestroyEvent { event, .. } => {
            state.events.destroy(gpu, event)?;
            Ok(Outcome::Aside)
        }
        Record::Elapsed { start, end, reply, .. } => {
            let elapsed = match (state.events.get(start), state.events.get(end)) {
                (Some(start), Some(end)) => gpu.elapsed_ns(start, end)?,
                _ => None,
            };
            state.streams.page().answer(reply, position, elapsed.unwrap_or(f64::NAN).to_bits());
            Ok(Outcome::Aside)
        }
        Record::Node { place, work, .. } => {
            let outcome = if place.is_change { Outcome::Nothing } else { Outcome::Aside };
            let found = graphs::find(&mut state.bindings, &state.grants, &work, parameters);
            state.graphs.node(gpu, place, found)?.map(|()| outcome).map_err(Refused::from)
        }
        Record::After { graph, count, nodes, .. } => aside(state.graphs.after(graph, count, nodes)),
        Record::MakeGraph { graph, .. } => aside(state.graphs.make(gpu, graph)?),
        Record::DestroyGraph { graph, .. } => match state.graphs.destroy(gpu, graph)? {
            Some(images) => {
                let images = images.into_iter().map(|image| Object::Image { image, entries: Vec::new() });
                state.waiters.push(Waiter::release(images.collect()));
                Ok(Outcome::Aside)
            }
            None => Err(ErrorCode::InvalidHandle.into()),
        },
        Record::LaunchGraph { .. }
        | Record::Launch { .. }
        | Record::CopyToDevice { .. }
        | Record::CopyToHost { .. }
        | Record::CopyOnDevice { .. }
        | Record::CopyArray { .. }
        | Record::Fill { .. }
        | Record::WaitOn { .. }
        | Record::HostBarrier { .. }
        | Record::RecordEvent { .. } => return Ok(None),
    }))
}
