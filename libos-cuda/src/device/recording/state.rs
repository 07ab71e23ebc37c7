//! What a recording session has, and what it was asked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use parking_lot::Mutex;

use super::super::{Error, ErrorCode, SturdyToken};
use super::values::{Asked, DeviceRange, Fence, HostSpan, Stream, error};

#[derive(Default)]
pub(super) struct State {
    pub(super) asked: Vec<Asked>,
    pub(super) positions: Vec<u64>,
    /// Buffers by slot: address and content. A freed one is `None`.
    pub(super) buffers: Vec<Option<Vec<u8>>>,
    pub(super) hosts: Vec<Option<Arc<Vec<AtomicU8>>>>,
    pub(super) streams: Vec<bool>,
    pub(super) entries: Vec<String>,
    pub(super) elsewhere: Elsewhere,
    /// The end of what was put aside.
    pub(super) reserved_up_to: u64,
    /// Fences beyond this position of a stream are not reached while it is held.
    pub(super) held: Vec<Option<u64>>,
    /// Barriers: stream and position.
    pub(super) closed: Arc<Mutex<BTreeSet<(u32, u64)>>>,
    /// Waits of streams for others: stream, position, and what has to pass.
    pub(super) waits: Vec<(u32, u64, Fence)>,
}

impl State {
    pub(super) fn submit(&mut self, stream: Stream, asked: Asked) -> Result<Fence, Error> {
        if !self.streams[stream.0 as usize] {
            return error(ErrorCode::InvalidHandle, "no such stream");
        }
        self.asked.push(asked);
        self.positions[stream.0 as usize] += 1;
        Ok(self.fence(stream))
    }

    pub(super) fn fence(&self, stream: Stream) -> Fence {
        Fence { stream: stream.0, position: self.positions[stream.0 as usize] }
    }

    /// Whether a fence has passed: nothing before it is held, and neither is what its stream waits for.
    pub(super) fn has_passed(&self, fence: Fence) -> bool {
        let closed = self.closed.lock();
        let (mut looked, mut open) = (BTreeSet::new(), vec![fence]);
        while let Some(Fence { stream, position }) = open.pop() {
            let is_held = self.held[stream as usize].is_some_and(|held| position > held);
            if is_held || closed.range((stream, 0)..=(stream, position)).next().is_some() {
                return false;
            }
            let waits = self.waits.iter().filter(|(of, at, _)| *of == stream && *at <= position);
            open.extend(
                waits
                    .map(|(_, _, other)| *other)
                    .filter(|other| looked.insert((other.stream, other.position))),
            );
        }
        true
    }

    pub(super) fn device(&mut self, range: DeviceRange) -> Result<&mut [u8], Error> {
        let missing = Error::new(ErrorCode::InvalidHandle, "no such buffer");
        let buffer =
            self.buffers.get_mut(range.handle.slot as usize).and_then(Option::as_mut).ok_or(missing)?;
        let outside = Error::new(ErrorCode::InvalidArgument, "outside the buffer");
        buffer.get_mut(range.offset as usize..(range.offset + range.bytes) as usize).ok_or(outside)
    }

    pub(super) fn host(&self, span: HostSpan) -> Result<Arc<Vec<AtomicU8>>, Error> {
        let missing = Error::new(ErrorCode::InvalidHandle, "no such host buffer");
        let host = self.hosts.get(span.handle.slot as usize).and_then(Option::as_ref).ok_or(missing)?;
        match host.get(span.offset as usize..(span.offset + span.bytes) as usize) {
            Some(_) => Ok(host.clone()),
            None => error(ErrorCode::InvalidArgument, "outside the host buffer"),
        }
    }
}

/// What other sessions have.
#[derive(Default)]
pub(super) struct Elsewhere {
    /// What they exported: sizes by token.
    pub(super) exported: Vec<(SturdyToken, u64)>,
    /// What is in it, where that is not zeros.
    pub(super) contents: Vec<(SturdyToken, Vec<u8>)>,
    /// What was imported, and as which buffer.
    pub(super) imported: Vec<(SturdyToken, u32)>,
    /// Points to signal, this session's as well.
    pub(super) signals: Vec<SturdyToken>,
    pub(super) signals_made: u8,
}

impl Elsewhere {
    pub(super) fn bytes(&self, token: SturdyToken) -> Result<u64, Error> {
        let known = self.exported.iter().find(|(known, _)| *known == token);
        known.map(|(_, bytes)| *bytes).ok_or_else(not_good)
    }
}

fn not_good() -> Error {
    Error::new(ErrorCode::NotFound, "the token is not good")
}
