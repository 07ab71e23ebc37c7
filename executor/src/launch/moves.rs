//! Copies and fills: whole, or in pieces where the device has as much to move as it may.

use bulkhead_gpu::{DeviceAddress, Error, FillPattern, Gpu, HostRange, StreamId};
use bulkhead_ring::{Copy, Pattern, Record};
use bulkhead_schema::ErrorCode;

use crate::{
    launch::{
        outcome::{Outcome, Refused},
        streams::{Held, Load},
    },
    session::{
        State,
        bindings::{Bindings, Use},
    },
};

/// What the device is asked to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    ToDevice { to: DeviceAddress, from: HostRange },
    ToHost { to: HostRange, from: DeviceAddress },
    OnDevice { to: DeviceAddress, from: DeviceAddress, bytes: u64 },
    Fill { to: DeviceAddress, pattern: FillPattern, of_pattern: u64, count: u64 },
}

impl Move {
    /// Looks up what a record names; none where it is another record.
    pub(crate) fn find(bindings: &Bindings, record: &Record) -> Option<Result<Self, ErrorCode>> {
        Some(match *record {
            Record::CopyToDevice { copy, .. } => {
                let to = bindings.device(copy.to, copy.to_offset, copy.bytes, Use::ReadWrite);
                let from = bindings.host(copy.from, copy.from_offset, copy.bytes);
                to.and_then(|to| from.map(|from| Self::ToDevice { to, from }))
            }
            Record::CopyToHost { copy, .. } => {
                let to = bindings.host(copy.to, copy.to_offset, copy.bytes);
                let from = bindings.device(copy.from, copy.from_offset, copy.bytes, Use::Read);
                to.and_then(|to| from.map(|from| Self::ToHost { to, from }))
            }
            Record::CopyOnDevice { copy, .. } => {
                let to = bindings.device(copy.to, copy.to_offset, copy.bytes, Use::ReadWrite);
                let from = bindings.device(copy.from, copy.from_offset, copy.bytes, Use::Read);
                to.and_then(|to| from.map(|from| Self::OnDevice { to, from, bytes: copy.bytes }))
            }
            Record::Fill { to, offset, pattern, count, .. } => {
                let range = count.checked_mul(pattern.bytes()).ok_or(ErrorCode::InvalidArgument);
                let to = range.and_then(|bytes| bindings.device(to, offset, bytes, Use::ReadWrite));
                let is_whole = |to: DeviceAddress| to.0.is_multiple_of(pattern.bytes());
                let to = to.and_then(|to| is_whole(to).then_some(to).ok_or(ErrorCode::InvalidArgument));
                let of_pattern = pattern.bytes();
                let pattern = match pattern {
                    Pattern::Bits8(value) => FillPattern::Bits8(value),
                    Pattern::Bits16(value) => FillPattern::Bits16(value),
                    Pattern::Bits32(value) => FillPattern::Bits32(value),
                };
                to.map(|to| Self::Fill { to, pattern, of_pattern, count })
            }
            _ => return None,
        })
    }

    /// How much it is.
    pub(crate) fn bytes(&self) -> u64 {
        match *self {
            Self::ToDevice { from: host, .. } | Self::ToHost { to: host, .. } => host.bytes as u64,
            Self::OnDevice { bytes, .. } => bytes,
            Self::Fill { of_pattern, count, .. } => count * of_pattern,
        }
    }

    /// The first so many bytes of it, of which there are more: whole patterns.
    fn first(self, part: u64) -> Self {
        let short = |host: HostRange| HostRange {
            bytes: usize::try_from(part).map_or(host.bytes, |part| part.min(host.bytes)),
            ..host
        };
        match self {
            Self::ToDevice { to, from } => Self::ToDevice { to, from: short(from) },
            Self::ToHost { to, from } => Self::ToHost { to: short(to), from },
            Self::OnDevice { to, from, .. } => Self::OnDevice { to, from, bytes: part },
            Self::Fill { to, pattern, of_pattern, .. } => {
                Self::Fill { to, pattern, of_pattern, count: part / of_pattern }
            }
        }
    }

    fn ask(&self, gpu: &dyn Gpu, stream: StreamId) -> Result<(), Error> {
        match *self {
            Self::ToDevice { to, from } => gpu.copy_to_device(stream, to, from),
            Self::ToHost { to, from } => gpu.copy_to_host(stream, to, from),
            Self::OnDevice { to, from, bytes } => gpu.copy_on_device(stream, to, from, bytes),
            Self::Fill { to, pattern, count, .. } => gpu.fill(stream, to, pattern, count),
        }
    }
}

/// What is left of a record whose first so many bytes were moved.
fn rest_of(record: &Record, done: u64) -> Record {
    let rest = |copy: Copy| Copy {
        to_offset: copy.to_offset + done,
        from_offset: copy.from_offset + done,
        bytes: copy.bytes - done,
        ..copy
    };
    match *record {
        Record::CopyToDevice { stream, copy } => Record::CopyToDevice { stream, copy: rest(copy) },
        Record::CopyToHost { stream, copy } => Record::CopyToHost { stream, copy: rest(copy) },
        Record::CopyOnDevice { stream, copy } => Record::CopyOnDevice { stream, copy: rest(copy) },
        Record::Fill { stream, to, offset, pattern, count } => {
            let (offset, count) = (offset + done, count - done / pattern.bytes());
            Record::Fill { stream, to, offset, pattern, count }
        }
        other => other,
    }
}

/// Submits as much of a copy or a fill as there is room for, and holds the rest back.
pub(crate) fn submit(
    state: &mut State,
    position: u64,
    record: &Record,
    all: Move,
) -> Result<Result<Outcome, Refused>, Error> {
    let index = record.stream();
    let Some(stream) = state.streams.get(index).map(|stream| stream.id) else {
        return Ok(Err(ErrorCode::InvalidHandle.into()));
    };
    let bytes = all.bytes();
    let moved = state.streams.may_move(index, position, bytes);
    let load = Load { moved, ..Load::default() };
    if moved == bytes {
        all.ask(&*state.gpu, stream)?;
        state.streams.loads(index, load);
        return Ok(Ok(Outcome::Submitted));
    }
    if moved > 0 {
        all.first(moved).ask(&*state.gpu, stream)?;
        state.streams.sliced(index, position, load)?;
    }
    let held = Held { position, record: rest_of(record, moved), parameters: Vec::new(), rest: None };
    state.streams.hold_moving(index, held, bytes - moved);
    Ok(Ok(Outcome::Held))
}
