//! The heap that kernels' `malloc` takes from: one for a session, in memory of its own.
//!
//! The guard's bodies of `malloc` and `free` (`guard/src/confine/heap.ptx`, which says how a heap is laid out) find it by a
//! variable of their image's block. It is made when the first image that has one is loaded, made anew where another length is
//! asked for before kernels have allocated, and is there until the last such image and every [`Heap`] have been dropped.

mod state;

use std::fmt;
use std::sync::{Arc, Weak};

use bulkhead_schema::{Error, ErrorCode, ModuleData};
use parking_lot::Mutex;

use crate::{AddressRange, Buffer, Pattern, Session, Stream, faults::Watched};

use state::{Made, Place};

pub(crate) use state::State;

/// The variable that the heap's address is put into.
const VARIABLE: &str = "__bh_heap";
const ADDRESS_BYTES: u64 = 8;
/// Before the states of the chunks.
const HEADER_BYTES: u64 = 4096;
/// The least length of a chunk, as a power of two.
const CHUNK_SHIFT_MIN: u32 = 12;
/// So many chunks there are, unless they would be too short: each may have to be looked at.
const CHUNKS: u64 = 2048;
/// The state of a chunk, 0 where it is free.
const CHUNK_STATE_BYTES: u64 = 4;
/// For each chunk its state and the length of the run that begins there.
const WORDS_BYTES: u64 = CHUNK_STATE_BYTES + 4;
/// Chunks have a bit for so many bytes, as a power of two.
const BYTES_PER_MAP_BYTE_SHIFT: u32 = 7;
/// As much as CUDA's driver gives.
const BYTES_DEFAULT: u64 = 8 << 20;
/// Longer chunks than this makes would have too many blocks to count.
const BYTES_MAX: u64 = 64 << 30;

/// The heap of a session: holding it keeps what kernels have allocated there.
#[derive(Clone)]
pub struct Heap(Arc<Made>);

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("range", &self.0.range()).finish_non_exhaustive()
    }
}

/// Where what lies in a heap.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    chunks: u64,
    shift: u32,
    /// Before the first chunk.
    books_bytes: u64,
}

impl Layout {
    fn of(bytes: u64) -> Self {
        let wanted = bytes.div_ceil(CHUNKS).next_power_of_two().trailing_zeros();
        let shift = wanted.max(CHUNK_SHIFT_MIN);
        let chunks = bytes.div_ceil(1 << shift).max(1);
        let maps = chunks << (shift - BYTES_PER_MAP_BYTE_SHIFT);
        let books_bytes = (HEADER_BYTES + chunks * WORDS_BYTES + maps).next_multiple_of(HEADER_BYTES);
        Self { chunks, shift, books_bytes }
    }

    fn bytes(&self) -> u64 {
        self.books_bytes + (self.chunks << self.shift)
    }

    /// What the heap begins with where it lies at an address; the rest of the books is zero.
    fn header(&self, address: u64) -> [u8; 16] {
        let mut header = [0; 16];
        let chunks = u32::try_from(self.chunks).unwrap_or_default();
        let (first, counts) = header.split_at_mut(8);
        first.copy_from_slice(&(address + self.books_bytes).to_le_bytes());
        let (number, shift) = counts.split_at_mut(4);
        number.copy_from_slice(&chunks.to_le_bytes());
        shift.copy_from_slice(&self.shift.to_le_bytes());
        header
    }
}

impl Session {
    /// How many bytes the heap has that kernels allocate from, 8 MiB unless told. Where the heap is there already, this waits
    /// for all work that was submitted.
    ///
    /// # Errors
    /// `invalidArgument` where the heap is there with another length and holds what kernels have allocated, or would have more
    /// than 64 GiB; what [`Session::allocate`] says where memory is short. The heap is as it was then.
    pub fn set_heap_bytes(&self, bytes: u64) -> Result<(), Error> {
        if bytes > BYTES_MAX {
            let message = format!("a heap of {bytes} bytes; the limit is {BYTES_MAX}");
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        let mut state = self.inner.heap.lock();
        let before = state.wanted.unwrap_or(BYTES_DEFAULT);
        let moved = match state.made.upgrade() {
            Some(made) if before != bytes => Some(self.make_anew(&made, bytes)?),
            Some(_) | None => None,
        };
        state.wanted = Some(bytes);
        drop(state);
        moved.map_or(Ok(()), |old| self.list_without(old))
    }

    /// The heap for an image whose kernels allocate; `None` for others. The image is told of it by [`Session::tell_of_heap`].
    pub(crate) fn heap_for(&self, data: &ModuleData, stream: Stream) -> Result<Option<Heap>, Error> {
        let mut variables = data.variables.iter();
        if !variables.any(|variable| variable.name == VARIABLE && variable.bytes == ADDRESS_BYTES) {
            return Ok(None);
        }
        let mut state = self.inner.heap.lock();
        if let Some(made) = state.made.upgrade() {
            return Ok(Some(Heap(made)));
        }
        let layout = Layout::of(state.wanted.unwrap_or(BYTES_DEFAULT));
        let memory = self.make_heap(&layout, stream)?;
        let made = Arc::new(Made(Mutex::new(Place { memory, chunks: layout.chunks, images: Vec::new() })));
        state.made = Arc::downgrade(&made);
        Ok(Some(Heap(made)))
    }

    /// Writes where the heap is into an image's block, now and whenever it is made anew.
    pub(crate) fn tell_of_heap(
        &self,
        data: &Arc<dyn Watched>,
        heap: &Heap,
        stream: Stream,
    ) -> Result<(), Error> {
        let _state = self.inner.heap.lock();
        let mut place = heap.0.0.lock();
        place.images.retain(|image| image.strong_count() > 0);
        place.images.push(Arc::downgrade(data));
        self.tell(&**data, place.memory.address(), stream)
    }

    fn tell(&self, data: &dyn Watched, address: u64, stream: Stream) -> Result<(), Error> {
        let Some((at, _)) = data.place(VARIABLE) else { return Ok(()) };
        self.write(stream, data.range(at, ADDRESS_BYTES), &address.to_le_bytes())
    }

    fn make_heap(&self, layout: &Layout, stream: Stream) -> Result<Buffer, Error> {
        let memory = self.allocate_apart(layout.bytes())?;
        self.fill(stream, memory.range(0, layout.books_bytes), Pattern::Bits8(0))?;
        self.write(stream, memory.range(0, 16), &layout.header(memory.address()))?;
        Ok(memory)
    }

    /// Puts another heap in the place of one from which nothing is allocated. Returns where that was.
    fn make_anew(&self, made: &Made, bytes: u64) -> Result<AddressRange, Error> {
        // Kernels that run may allocate.
        for fence in self.outstanding() {
            self.poll(|| self.has_passed(fence))?;
        }
        let old = made.range();
        let mut place = made.0.lock();
        let stream = self.aside(Stream::DEFAULT);
        let mut states = vec![0; usize::try_from(place.chunks * CHUNK_STATE_BYTES).unwrap_or_default()];
        let range = place.memory.range(HEADER_BYTES, states.len() as u64);
        self.read(stream, &mut states, range)?;
        if states.iter().any(|byte| *byte != 0) {
            let message = "the heap of kernels has its length already, and kernels have allocated from it";
            return Err(Error::new(ErrorCode::InvalidArgument, message)
                .remedy("set it before the first kernel that allocates, or when all is freed"));
        }
        let layout = Layout::of(bytes);
        let memory = self.make_heap(&layout, stream)?;
        for image in place.images.iter().filter_map(Weak::upgrade) {
            self.tell(&*image, memory.address(), stream)?;
        }
        // Work of any stream may use it from here on.
        self.wait_quietly(self.fence(stream))?;
        (place.memory, place.chunks) = (memory, layout.chunks);
        Ok(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_has_room_for_what_was_asked_and_its_books_before_it() {
        for bytes in [0, 1, 4096, 5000, 8 << 20, (8 << 20) + 1, 100 << 20, 1 << 30, BYTES_MAX - 1, BYTES_MAX]
        {
            let layout = Layout::of(bytes);
            assert!(layout.chunks << layout.shift >= bytes, "{bytes}: {layout:?}");
            assert!((1..=CHUNKS).contains(&layout.chunks), "{bytes}: {layout:?}");
            assert!((CHUNK_SHIFT_MIN..=25).contains(&layout.shift), "{bytes}: {layout:?}");
            let maps = layout.chunks * (1 << layout.shift) / 16 / 8;
            assert!(layout.books_bytes >= HEADER_BYTES + 8 * layout.chunks + maps, "{bytes}: {layout:?}");
            assert!(layout.books_bytes.is_multiple_of(4096));
        }
        let header = Layout { chunks: 2048, shift: 12, books_bytes: 0x1_0000 }.header(0x2000_0000_0000);
        assert_eq!(header, [0, 0, 1, 0, 0, 0x20, 0, 0, 0, 8, 0, 0, 12, 0, 0, 0]);
    }
}
