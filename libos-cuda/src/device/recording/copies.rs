//! Copies and fills, which are done at once.

use std::sync::atomic::Ordering;

use super::super::{Error, ErrorCode};
use super::{Asked, DeviceRange, Fence, HOST_GENERATION, HostSpan, Pattern, Session, Stream, error};

impl Session {
    pub(crate) fn copy_to_device(
        &self,
        stream: Stream,
        to: DeviceRange,
        from: HostSpan,
    ) -> Result<Fence, Error> {
        let mut state = self.state.lock();
        let host = state.host(from)?;
        for (to, from) in state.device(to)?.iter_mut().zip(&host[from.offset as usize..]) {
            *to = from.load(Ordering::Relaxed);
        }
        state.submit(stream, Asked::Copy { stream: stream.0 })
    }

    pub(crate) fn copy_to_host(
        &self,
        stream: Stream,
        to: HostSpan,
        from: DeviceRange,
    ) -> Result<Fence, Error> {
        let mut state = self.state.lock();
        let host = state.host(to)?;
        for (to, from) in host[to.offset as usize..].iter().zip(state.device(from)?.iter()) {
            to.store(*from, Ordering::Relaxed);
        }
        state.submit(stream, Asked::Copy { stream: stream.0 })
    }

    pub(crate) fn copy_on_device(
        &self,
        stream: Stream,
        to: DeviceRange,
        from: DeviceRange,
    ) -> Result<Fence, Error> {
        let mut state = self.state.lock();
        let content = state.device(from)?.to_vec();
        state.device(to)?.copy_from_slice(&content);
        state.submit(stream, Asked::Copy { stream: stream.0 })
    }

    pub(crate) fn fill(&self, stream: Stream, to: DeviceRange, pattern: Pattern) -> Result<Fence, Error> {
        let unit = match pattern {
            Pattern::Bits8(value) => vec![value],
            Pattern::Bits16(value) => value.to_le_bytes().to_vec(),
            Pattern::Bits32(value) => value.to_le_bytes().to_vec(),
        };
        let mut state = self.state.lock();
        if to.handle.generation == HOST_GENERATION {
            let span = HostSpan { handle: to.handle, offset: to.offset, bytes: to.bytes };
            let host = state.host(span)?;
            let range = host.iter().skip(to.offset as usize).take(to.bytes as usize);
            range.zip(unit.iter().cycle()).for_each(|(byte, value)| byte.store(*value, Ordering::Relaxed));
            return state.submit(stream, Asked::Fill { stream: stream.0 });
        }
        let range = state.device(to)?;
        if range.len() % unit.len() != 0 {
            return error(ErrorCode::InvalidArgument, "not a whole number of elements");
        }
        for element in range.chunks_mut(unit.len()) {
            element.copy_from_slice(&unit);
        }
        state.submit(stream, Asked::Fill { stream: stream.0 })
    }

    pub(crate) fn write(&self, stream: Stream, to: DeviceRange, from: &[u8]) -> Result<(), Error> {
        // What waits for the host is not staged.
        self.wait(self.fence(stream))?;
        let mut state = self.state.lock();
        state.device(to)?.copy_from_slice(from);
        state.submit(stream, Asked::Copy { stream: stream.0 }).map(drop)
    }

    pub(crate) fn read(&self, stream: Stream, to: &mut [u8], from: DeviceRange) -> Result<(), Error> {
        self.wait(self.fence(stream))?;
        let mut state = self.state.lock();
        to.copy_from_slice(state.device(from)?);
        state.submit(stream, Asked::Copy { stream: stream.0 }).map(drop)
    }
}
