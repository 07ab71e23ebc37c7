//! Streams, events and fences as a client names them.

use bulkhead_schema::limits;

/// A sequence of work done in order. Streams of a session run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream(pub(crate) u32);

impl Stream {
    /// The stream that every session has.
    pub const DEFAULT: Self = Self(0);

    /// Its index in the session.
    #[must_use]
    pub fn index(self) -> u32 {
        self.0
    }
}

/// A timestamp that the device takes when a stream gets there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event(pub(crate) u32);

/// A point of a stream: it has passed once all work submitted to the stream before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    pub(crate) stream: Stream,
    pub(crate) position: u64,
}

impl Fence {
    /// The stream.
    #[must_use]
    pub fn stream(self) -> Stream {
        self.stream
    }
}

pub use bulkhead_ring::Pattern;

/// Indices of streams or events: which are free, and what a taken one was used for last.
pub(crate) struct Indices<T> {
    taken: Vec<Option<T>>,
    free: Vec<u32>,
    most: u32,
}

impl<T> Indices<T> {
    pub(crate) fn new(most: u32) -> Self {
        Self { taken: Vec::new(), free: Vec::new(), most }
    }

    /// Takes a free index; `None` when all are taken.
    pub(crate) fn take(&mut self, value: T) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            self.taken[index as usize] = Some(value);
            return Some(index);
        }
        let index = u32::try_from(self.taken.len()).ok().filter(|index| *index < self.most)?;
        self.taken.push(Some(value));
        Some(index)
    }

    /// How many indices there were ever: all below it.
    pub(crate) fn used(&self) -> usize {
        self.taken.len()
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.taken.get(index as usize)?.as_ref()
    }

    pub(crate) fn set(&mut self, index: u32, value: T) -> Option<()> {
        *self.taken.get_mut(index as usize)?.as_mut()? = value;
        Some(())
    }

    /// Frees an index.
    pub(crate) fn free(&mut self, index: u32) -> Option<T> {
        let value = self.taken.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(value)
    }
}

/// A session's streams: index 0 is always there. Destroyed ones wait for their work to pass before their index is
/// used again.
pub(crate) struct Streams {
    pub(crate) indices: Indices<()>,
    pub(crate) retiring: Vec<u32>,
    /// Position of the latest record of each stream.
    pub(crate) latest: Vec<u64>,
    /// Position of the latest record of each stream behind which work may wait for the host: a barrier, or a wait for another
    /// stream.
    tied: Vec<u64>,
    /// Positions that the streams were seen to have passed: the page need not be asked again about those.
    pub(crate) passed: Vec<u64>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        let mut indices = Indices::new(limits::STREAMS_MAX);
        indices.take(());
        Self {
            indices,
            retiring: Vec::new(),
            latest: vec![0; limits::STREAMS_MAX as usize],
            tied: vec![0; limits::STREAMS_MAX as usize],
            passed: vec![0; limits::STREAMS_MAX as usize],
        }
    }

    pub(crate) fn latest(&self, stream: u32) -> u64 {
        self.latest.get(stream as usize).copied().unwrap_or(0)
    }

    pub(crate) fn tied(&self, stream: u32) -> u64 {
        self.tied.get(stream as usize).copied().unwrap_or(0)
    }

    /// Notes that what comes behind a record may wait for the host.
    pub(crate) fn tie(&mut self, stream: u32, position: u64) {
        if let Some(tied) = self.tied.get_mut(stream as usize) {
            *tied = position;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_not_given_twice_and_comes_back_when_freed() {
        let mut indices = Indices::new(3);
        assert_eq!([indices.take('a'), indices.take('b'), indices.take('c')], [Some(0), Some(1), Some(2)]);
        assert_eq!(indices.take('d'), None);
        assert_eq!(indices.free(1), Some('b'));
        assert_eq!(indices.free(1), None);
        assert_eq!((indices.take('e'), indices.get(1)), (Some(1), Some(&'e')));
    }
}
