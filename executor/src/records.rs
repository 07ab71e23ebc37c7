//! What each record asks of the device, after every name in it has been looked up.

use std::{collections::HashMap, sync::Arc};

use bulkhead_gpu::{EventId, FillPattern, Gpu, Launch};
use bulkhead_guard::limits::UNLOOKED_COST_MAX;
use bulkhead_ring::{Blocks, Pattern, Record};
use bulkhead_schema::{ErrorCode, limits};

use crate::{
    bindings::{Object, Use},
    device,
    fast::work_of,
    session::State,
    streams::Held,
};

/// A session's events that have been recorded.
#[derive(Default)]
pub(crate) struct Events {
    events: HashMap<u32, EventId>,
}

impl Events {
    pub(crate) fn destroy_all(&mut self, gpu: &dyn Gpu) -> Result<(), bulkhead_gpu::Error> {
        for (_, event) in self.events.drain() {
            gpu.destroy_event(event)?;
        }
        Ok(())
    }
}

/// Why a record was not carried out, though the session goes on.
struct Refused {
    code: ErrorCode,
    device: u32,
}

/// What a record came to.
enum Outcome {
    /// The device has work to do.
    Submitted,
    /// It does not.
    Nothing,
    /// It has no place in its stream's order: nobody waits for it, and a stream may end before it has passed.
    Aside,
    /// It comes again once what it waits for has passed.
    Held,
}

impl From<ErrorCode> for Refused {
    fn from(code: ErrorCode) -> Self {
        Self { code, device: 0 }
    }
}

/// Submits one record. A record that makes no sense is refused in the completion page; only the loss of the
/// device is an error.
pub(crate) fn submit(
    state: &mut State,
    position: u64,
    record: &Record,
    parameters: &[u64],
) -> Result<(), bulkhead_gpu::Error> {
    let stream = record.stream();
    match carry_out(state, position, record, parameters) {
        Ok(Ok(Outcome::Submitted)) => state.streams.submitted(stream, position),
        Ok(Ok(Outcome::Nothing)) => {
            state.streams.skipped(stream, position);
            Ok(())
        }
        Ok(Ok(Outcome::Aside | Outcome::Held)) => Ok(()),
        Ok(Err(refused)) => {
            tracing::debug!(position, ?record, code = ?refused.code, "record refused");
            state.streams.skipped(stream, position);
            state.streams.page().refuse(position, refused.code as u16, refused.device);
            Ok(())
        }
        Err(error @ bulkhead_gpu::Error::Lost { .. }) => Err(error),
        Err(error) => {
            let error = device::error(&error);
            tracing::debug!(position, ?record, %error, "record refused by the device");
            state.streams.skipped(stream, position);
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
) -> Result<Result<Outcome, Refused>, bulkhead_gpu::Error> {
    let gpu = &*state.gpu;
    match *record {
        Record::CreateStream { stream, .. } if stream >= state.reserved.streams => {
            return Ok(Err(ErrorCode::LimitReached.into()));
        }
        Record::CreateStream { stream, priority } => {
            return state.streams.create(stream, priority, gpu.info()).map(|()| Ok(Outcome::Aside));
        }
        Record::DestroyStream { stream } => {
            if state.streams.forget_lost(stream) {
                return Ok(Ok(Outcome::Aside));
            }
            if state.streams.get(stream).is_none() {
                return Ok(Err(ErrorCode::InvalidHandle.into()));
            }
            return match state.streams.destroy(stream)? {
                true => Ok(Ok(Outcome::Aside)),
                false => Ok(Err(ErrorCode::InvalidArgument.into())),
            };
        }
        Record::DestroyEvent { event, .. } => {
            if let Some(event) = state.events.events.remove(&event) {
                gpu.destroy_event(event)?;
            }
            return Ok(Ok(Outcome::Aside));
        }
        Record::Elapsed { start, end, reply, .. } => {
            let events = &state.events.events;
            let elapsed = match (events.get(&start), events.get(&end)) {
                (Some(start), Some(end)) => gpu.elapsed_ns(*start, *end)?,
                _ => None,
            };
            state.streams.page().answer(reply, position, elapsed.unwrap_or(f64::NAN).to_bits());
            return Ok(Ok(Outcome::Aside));
        }
        Record::Launch { .. }
        | Record::CopyToDevice { .. }
        | Record::CopyToHost { .. }
        | Record::CopyOnDevice { .. }
        | Record::Fill { .. }
        | Record::WaitOn { .. }
        | Record::RecordEvent { .. } => {}
    }
    // Stream 0 comes with the session.
    if record.stream() < state.reserved.streams.max(1) {
        state.streams.revive(record.stream(), gpu.info())?;
    }
    let Some(stream) = state.streams.get(record.stream()).map(|stream| stream.id) else {
        return Ok(Err(ErrorCode::InvalidHandle.into()));
    };
    let bindings = &state.bindings;
    match *record {
        Record::Launch { launch, .. } => {
            let Some(entry) = state.bindings.entry(launch.entry.slot, launch.entry.generation) else {
                return Ok(Err(ErrorCode::InvalidHandle.into()));
            };
            let entry = &mut entry.template;
            if launch.parameter_bytes as usize != entry.visible_bytes {
                return Ok(Err(ErrorCode::InvalidArgument.into()));
            }
            let blocks =
                launch.shape.grid.iter().try_fold(1, |blocks: u64, side| blocks.checked_mul((*side).into()));
            let Some(blocks) = blocks.filter(|blocks| *blocks <= limits::GRID_BLOCKS_MAX) else {
                return Ok(Err(ErrorCode::LaunchResources.into()));
            };
            for (to, word) in entry.block[..entry.visible_bytes].chunks_mut(8).zip(parameters) {
                to.copy_from_slice(&word.to_ne_bytes()[..to.len()]);
            }
            let (shape, together) = (launch.shape, launch.blocks);
            let launch = Launch {
                grid: shape.grid,
                block: shape.block,
                shared_bytes: shape.shared_bytes.max(entry.dynamic_shared_min),
                parameters: &entry.block,
            };
            let streams = &mut state.streams;
            let (version, unlooked) =
                entry.version(blocks, launch.block, launch.shared_bytes, |work| streams.have_room(work));
            match together {
                Blocks::Apart => gpu.launch(stream, version, &launch)?,
                Blocks::Together => gpu.launch_together(stream, version, &launch)?,
            }
            streams.works(record.stream(), unlooked);
            let name = Arc::clone(&entry.name);
            state.busy.launches(name, blocks, unlooked.max(work_of(UNLOOKED_COST_MAX, blocks, shape.block)));
        }
        Record::CopyToDevice { copy, .. } => {
            let to = bindings.device(copy.to, copy.to_offset, copy.bytes, Use::ReadWrite);
            let (Some(to), Some(from)) = (to, bindings.host(copy.from, copy.from_offset, copy.bytes)) else {
                return Ok(Err(ErrorCode::InvalidHandle.into()));
            };
            gpu.copy_to_device(stream, to, from)?;
            state.busy.copies(copy.bytes);
        }
        Record::CopyToHost { copy, .. } => {
            let to = bindings.host(copy.to, copy.to_offset, copy.bytes);
            let (Some(to), Some(from)) =
                (to, bindings.device(copy.from, copy.from_offset, copy.bytes, Use::Read))
            else {
                return Ok(Err(ErrorCode::InvalidHandle.into()));
            };
            gpu.copy_to_host(stream, to, from)?;
            state.busy.copies(copy.bytes);
        }
        Record::CopyOnDevice { copy, .. } => {
            let to = bindings.device(copy.to, copy.to_offset, copy.bytes, Use::ReadWrite);
            let (Some(to), Some(from)) =
                (to, bindings.device(copy.from, copy.from_offset, copy.bytes, Use::Read))
            else {
                return Ok(Err(ErrorCode::InvalidHandle.into()));
            };
            gpu.copy_on_device(stream, to, from, copy.bytes)?;
            state.busy.copies(copy.bytes);
        }
        Record::Fill { to, offset, pattern, count, .. } => {
            let range = count.checked_mul(pattern.bytes());
            if let Some(Object::Buffer { may: Use::Read, .. }) = bindings.get(to.slot, to.generation) {
                return Ok(Err(ErrorCode::InvalidHandle.into()));
            }
            let to = range.and_then(|bytes| bindings.device(to, offset, bytes, Use::ReadWrite));
            let Some(to) = to.filter(|to| to.0.is_multiple_of(pattern.bytes())) else {
                return Ok(Err(ErrorCode::InvalidArgument.into()));
            };
            let pattern = match pattern {
                Pattern::Bits8(value) => FillPattern::Bits8(value),
                Pattern::Bits16(value) => FillPattern::Bits16(value),
                Pattern::Bits32(value) => FillPattern::Bits32(value),
            };
            gpu.fill(stream, to, pattern, count)?;
        }
        Record::WaitOn { stream, on, position: until } => {
            let wait = Held { position, record: *record, parameters: Vec::new() };
            let held = state.streams.wait_on(stream, on, until, wait)?;
            return Ok(Ok(if held { Outcome::Held } else { Outcome::Nothing }));
        }
        Record::RecordEvent { event, .. } => {
            if event >= state.reserved.events.min(limits::EVENTS_MAX) {
                return Ok(Err(ErrorCode::LimitReached.into()));
            }
            let event = match state.events.events.get(&event) {
                Some(known) => *known,
                None => {
                    let made = gpu.create_event()?;
                    state.events.events.insert(event, made);
                    made
                }
            };
            gpu.record(event, stream)?;
        }
        Record::CreateStream { .. }
        | Record::DestroyStream { .. }
        | Record::DestroyEvent { .. }
        | Record::Elapsed { .. } => {}
    }
    Ok(Ok(Outcome::Submitted))
}
