//! Copies between ordinary memory and the device, through pinned memory of the session.
//!
//! Large copies are cut into pieces that several threads stage, each with pieces of its own: one thread's copy is
//! slower than the link to the device.
//!
//! A copy waits first until its stream has come to it, where barriers are closed. Where another thread gives the stream a barrier
//! in that moment, the copy waits in a lane of its own: whoever opens the barrier may need copies of other streams.

mod staging;

use std::{collections::VecDeque, iter, sync::Arc, thread};

use bulkhead_ring::Record;
use parking_lot::{Mutex, MutexGuard};

use crate::{
    DeviceRange, Error, ErrorCode, Fence, Session, Stream,
    session::{copied_to_device, copied_to_host},
};
use staging::{Lane, PIECES_PER_LANE};

pub(crate) use staging::Staging;

/// Bytes of a staged piece.
const PIECE_BYTES: usize = 4 << 20;
/// Copying threads for large copies, at most.
const THREADS_MAX: usize = 4;
/// A copy from here on is large.
const LARGE_BYTES: usize = 2 * PIECE_BYTES;
/// Lanes for copies that may wait for the host, and the bytes of their pieces.
const TIED_LANES: usize = 8;
const TIED_PIECE_BYTES: usize = 256 << 10;

/// Whether a copy is submitted where it may have to wait for the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tied {
    No,
    Maybe,
}

impl Session {
    /// Copies ordinary memory to the device. Returns when `from` may be changed again.
    ///
    /// # Errors
    /// Where the lengths differ, memory is short, or the session is over.
    pub fn write(&self, stream: Stream, to: DeviceRange, from: &[u8]) -> Result<(), Error> {
        check(to, from.len())?;
        self.settle(stream)?;
        self.pass_barriers(stream)?;
        let staging = self.staged()?;
        let threads = threads(from.len());
        in_parallel(threads, |thread| {
            let pieces = from.chunks(PIECE_BYTES).enumerate().skip(thread).step_by(threads);
            let mut pieces = pieces.map(|(index, bytes)| (index * PIECE_BYTES, bytes));
            let mut lane = staging.lanes[thread].lock();
            let refused = self.write_in(&mut lane, &staging, stream, Tied::No, to, &mut pieces)?;
            drop(lane);
            let Some(refused) = refused else { return Ok(()) };
            let mut smaller = iter::once(refused).chain(pieces).flat_map(|(at, bytes)| {
                let smaller = bytes.chunks(TIED_PIECE_BYTES).enumerate();
                smaller.map(move |(index, bytes)| (at + index * TIED_PIECE_BYTES, bytes))
            });
            let mut lane = tied_lane(&staging, self);
            self.write_in(&mut lane, &staging, stream, Tied::Maybe, to, &mut smaller).map(drop)
        })
    }

    /// Has pieces copied that are staged in a lane, up to the first that may not be, which it answers.
    fn write_in<'a>(
        &self,
        lane: &mut Lane,
        staging: &Staging,
        stream: Stream,
        tied: Tied,
        to: DeviceRange,
        pieces: &mut impl Iterator<Item = (usize, &'a [u8])>,
    ) -> Result<Option<(usize, &'a [u8])>, Error> {
        for (at, bytes) in pieces {
            let piece = lane.piece();
            if let Some(fence) = lane.fences[piece] {
                self.wait_quietly(fence)?;
            }
            let offset = lane.offset(piece);
            staging.pinned.memory.write(offset, bytes);
            let span = staging.pinned.span(offset as u64, bytes.len() as u64);
            let record = copied_to_device(stream, part(to, at, bytes.len()), span)?;
            let Some(fence) = self.push_staged(&record, tied)? else { return Ok(Some((at, bytes))) };
            lane.fences[piece] = Some(fence);
        }
        Ok(None)
    }

    /// Copies device memory to ordinary memory, after the work submitted to the stream before. Returns when it is
    /// there.
    ///
    /// # Errors
    /// Where the lengths differ, memory is short, or the session is over.
    pub fn read(&self, stream: Stream, to: &mut [u8], from: DeviceRange) -> Result<(), Error> {
        check(from, to.len())?;
        self.settle(stream)?;
        self.pass_barriers(stream)?;
        let staging = self.staged()?;
        let threads = threads(to.len());
        let mut parts: Vec<Vec<(usize, &mut [u8])>> = (0..threads).map(|_| Vec::new()).collect();
        for (index, bytes) in to.chunks_mut(PIECE_BYTES).enumerate() {
            parts[index % threads].push((index * PIECE_BYTES, bytes));
        }
        let parts: Vec<_> = parts.into_iter().map(Mutex::new).collect();
        in_parallel(threads, |thread| {
            let mut pieces = std::mem::take(&mut *parts[thread].lock()).into_iter();
            let mut lane = staging.lanes[thread].lock();
            let refused = self.read_in(&mut lane, &staging, stream, Tied::No, from, &mut pieces)?;
            drop(lane);
            let Some(refused) = refused else { return Ok(()) };
            let mut smaller = iter::once(refused).chain(pieces).flat_map(|(at, bytes)| {
                let smaller = bytes.chunks_mut(TIED_PIECE_BYTES).enumerate();
                smaller.map(move |(index, bytes)| (at + index * TIED_PIECE_BYTES, bytes))
            });
            let mut lane = tied_lane(&staging, self);
            self.read_in(&mut lane, &staging, stream, Tied::Maybe, from, &mut smaller).map(drop)
        })
    }

    /// Reads pieces that are staged in a lane, up to the first that may not be, which it answers.
    fn read_in<'a>(
        &self,
        lane: &mut Lane,
        staging: &Staging,
        stream: Stream,
        tied: Tied,
        from: DeviceRange,
        pieces: &mut impl Iterator<Item = (usize, &'a mut [u8])>,
    ) -> Result<Option<(usize, &'a mut [u8])>, Error> {
        let mut under_way: VecDeque<(usize, Fence, &mut [u8])> = VecDeque::new();
        let mut refused = None;
        loop {
            while refused.is_none() && under_way.len() < PIECES_PER_LANE {
                let Some((at, bytes)) = pieces.next() else { break };
                let piece = lane.piece();
                if let Some(fence) = lane.fences[piece] {
                    self.wait_quietly(fence)?;
                }
                let span = staging.pinned.span(lane.offset(piece) as u64, bytes.len() as u64);
                let record = copied_to_host(stream, span, part(from, at, bytes.len()))?;
                match self.push_staged(&record, tied)? {
                    Some(fence) => {
                        lane.fences[piece] = Some(fence);
                        under_way.push_back((piece, fence, bytes));
                    }
                    None => refused = Some((at, bytes)),
                }
            }
            let Some((piece, fence, bytes)) = under_way.pop_front() else { return Ok(refused) };
            self.wait_quietly(fence)?;
            staging.pinned.memory.read(lane.offset(piece), bytes);
        }
    }

    fn push_staged(&self, record: &Record, tied: Tied) -> Result<Option<Fence>, Error> {
        match tied {
            Tied::No => self.push_untied(record),
            Tied::Maybe => self.push(record).map(Some),
        }
    }

    /// Waits until the stream has done what it was given, where that may be behind a barrier: pieces that wait for the host
    /// would be missed by copies that do not.
    fn pass_barriers(&self, stream: Stream) -> Result<(), Error> {
        if self.barriers().any_closed() { self.wait_quietly(self.fence(stream)) } else { Ok(()) }
    }

    fn staged(&self) -> Result<Arc<Staging>, Error> {
        let mut staging = self.staging().lock();
        if let Some(staging) = &*staging {
            return Ok(Arc::clone(staging));
        }
        // Held until the session ends, and not by a buffer: that would hold the session in turn.
        let tied_start = THREADS_MAX * PIECES_PER_LANE * PIECE_BYTES;
        let tied_bytes = PIECES_PER_LANE * TIED_PIECE_BYTES;
        let (_, pinned) = self.allocate_pinned(tied_start + TIED_LANES * tied_bytes)?;
        let lanes = (0..THREADS_MAX).map(|lane| Lane::new(lane * PIECES_PER_LANE * PIECE_BYTES, PIECE_BYTES));
        let tied =
            (0..TIED_LANES).map(|lane| Lane::new(tied_start + lane * tied_bytes, TIED_PIECE_BYTES)).collect();
        let made = Arc::new(Staging { pinned, lanes: lanes.collect(), tied });
        *staging = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// A lane whose copies may wait for the host: one that nobody waits in, if there is one.
fn tied_lane<'a>(staging: &'a Staging, session: &Session) -> MutexGuard<'a, Lane> {
    let free = |lane: &MutexGuard<'_, Lane>| lane.fences.iter().flatten().all(|one| session.has_passed(*one));
    let found = staging.tied.iter().filter_map(Mutex::try_lock).find(free);
    found.unwrap_or_else(|| staging.tied[0].lock())
}

fn check(range: DeviceRange, bytes: usize) -> Result<(), Error> {
    if range.bytes == bytes as u64 {
        return Ok(());
    }
    Err(Error::new(ErrorCode::InvalidArgument, "the ranges of a copy differ in length"))
}

fn part(range: DeviceRange, offset: usize, bytes: usize) -> DeviceRange {
    DeviceRange { handle: range.handle, offset: range.offset + offset as u64, bytes: bytes as u64 }
}

fn threads(bytes: usize) -> usize {
    if bytes < LARGE_BYTES {
        return 1;
    }
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    THREADS_MAX.min(cores).min(bytes.div_ceil(PIECE_BYTES)).max(1)
}

/// Runs `work` for each of `count` lanes, on threads of their own where there are several.
fn in_parallel(count: usize, work: impl Fn(usize) -> Result<(), Error> + Sync) -> Result<(), Error> {
    if count == 1 {
        return work(0);
    }
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|lane| scope.spawn(move || work(lane))).collect();
        let panicked = |_| Err(Error::new(ErrorCode::Internal, "a copying thread panicked"));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })
}
