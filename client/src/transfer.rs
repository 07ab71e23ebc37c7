//! Copies between ordinary memory and the device, through pinned memory of the session.
//!
//! Large copies are cut into pieces that several threads stage, each with pieces of its own: one thread's copy is
//! slower than the link to the device.

use std::{sync::Arc, thread};

use parking_lot::Mutex;

use crate::{DeviceRange, Error, ErrorCode, Fence, Session, Stream, buffer::Pinned};

/// Bytes of a staged piece.
const PIECE_BYTES: usize = 4 << 20;
/// Pieces per thread: one is copied while the other travels.
const PIECES_PER_THREAD: usize = 2;
/// Copying threads for large copies, at most.
const THREADS_MAX: usize = 4;
/// A copy from here on is large.
const LARGE_BYTES: usize = 2 * PIECE_BYTES;

/// Pinned memory that copies are staged in.
pub(crate) struct Staging {
    pinned: Pinned,
    lanes: Vec<Mutex<Lane>>,
}

/// One thread's pieces, and the work that uses each.
#[derive(Default)]
struct Lane {
    fences: [Option<Fence>; PIECES_PER_THREAD],
    next: usize,
}

impl Lane {
    fn piece(&mut self) -> usize {
        let piece = self.next;
        self.next = (piece + 1) % PIECES_PER_THREAD;
        piece
    }
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
        let pieces: Vec<(usize, &[u8])> = from.chunks(PIECE_BYTES).enumerate().collect();
        let threads = threads(from.len());
        in_parallel(threads, |thread| {
            let mut lane = staging.lanes[thread].lock();
            for (index, bytes) in pieces.iter().skip(thread).step_by(threads) {
                let piece = lane.piece();
                if let Some(fence) = lane.fences[piece] {
                    self.wait_quietly(fence)?;
                }
                let offset = staging.offset(thread, piece);
                staging.pinned.memory.write(offset, bytes);
                let range = part(to, index * PIECE_BYTES, bytes.len());
                let span = staging.pinned.span(offset as u64, bytes.len() as u64);
                lane.fences[piece] = Some(self.copy_to_device(stream, range, span)?);
            }
            Ok(())
        })
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
        let mut lanes: Vec<Vec<(usize, &mut [u8])>> = (0..threads).map(|_| Vec::new()).collect();
        for (index, bytes) in to.chunks_mut(PIECE_BYTES).enumerate() {
            lanes[index % threads].push((index, bytes));
        }
        let lanes: Vec<_> = lanes.into_iter().map(Mutex::new).collect();
        in_parallel(threads, |thread| {
            let mut lane = staging.lanes[thread].lock();
            let mut pieces = std::mem::take(&mut *lanes[thread].lock()).into_iter();
            let mut under_way: std::collections::VecDeque<(usize, Fence, &mut [u8])> = Default::default();
            loop {
                while under_way.len() < PIECES_PER_THREAD {
                    let Some((index, bytes)) = pieces.next() else { break };
                    let piece = lane.piece();
                    if let Some(fence) = lane.fences[piece] {
                        self.wait_quietly(fence)?;
                    }
                    let range = part(from, index * PIECE_BYTES, bytes.len());
                    let span = staging.pinned.span(staging.offset(thread, piece) as u64, bytes.len() as u64);
                    let fence = self.copy_to_host(stream, span, range)?;
                    lane.fences[piece] = Some(fence);
                    under_way.push_back((piece, fence, bytes));
                }
                let Some((piece, fence, bytes)) = under_way.pop_front() else { return Ok(()) };
                self.wait_quietly(fence)?;
                staging.pinned.memory.read(staging.offset(thread, piece), bytes);
            }
        })
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
        let (_, pinned) = self.allocate_pinned(THREADS_MAX * PIECES_PER_THREAD * PIECE_BYTES)?;
        let lanes = (0..THREADS_MAX).map(|_| Mutex::default()).collect();
        let made = Arc::new(Staging { pinned, lanes });
        *staging = Some(Arc::clone(&made));
        Ok(made)
    }
}

impl Staging {
    fn offset(&self, thread: usize, piece: usize) -> usize {
        (thread * PIECES_PER_THREAD + piece) * PIECE_BYTES
    }
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
