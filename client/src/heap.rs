//! The heap that kernels' `malloc` takes from: one for a session, in memory of its own.
//!
//! The guard's bodies of `malloc` and `free` (`guard/src/confine/heap.ptx`, which says how a heap is laid out) find it by a
//! variable of their image's block. It is made when the first image that has one is loaded, and is there until the last
//! such image and every [`Heap`] have been dropped.

mod state;

use std::fmt;
use std::sync::Arc;

use bulkhead_schema::{Error, ErrorCode, ModuleData};

use crate::{Buffer, Pattern, Session, Stream, Variables};

pub(crate) use state::State;

/// The variable that the heap's address is put into.
const VARIABLE: &str = "__bh_heap";
/// Before the states of the chunks.
const HEADER_BYTES: u64 = 4096;
/// The least length of a chunk, as a power of two.
const CHUNK_SHIFT_MIN: u32 = 12;
/// So many chunks there are, unless they would be too short: each may have to be looked at.
const CHUNKS: u64 = 2048;
/// For each chunk its state and the length of the run that begins there.
const WORDS_BYTES: u64 = 8;
/// Chunks have a bit for so many bytes, as a power of two.
const BYTES_PER_MAP_BYTE_SHIFT: u32 = 7;
/// As much as CUDA's driver gives.
const BYTES_DEFAULT: u64 = 8 << 20;
/// Longer chunks than this makes would have too many blocks to count.
const BYTES_MAX: u64 = 64 << 30;

/// The heap of a session: holding it keeps what kernels have allocated there.
#[derive(Clone)]
pub struct Heap(Arc<Buffer>);

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("address", &self.0.address()).finish_non_exhaustive()
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
    /// How many bytes the heap has that kernels allocate from, 8 MiB unless told. It is made when the first image is loaded
    /// whose kernels do.
    ///
    /// # Errors
    /// `invalidArgument` where it is there already, or would have more than 64 GiB.
    pub fn set_heap_bytes(&self, bytes: u64) -> Result<(), Error> {
        let mut state = self.inner.heap.lock();
        if state.made.strong_count() > 0 && state.wanted.unwrap_or(BYTES_DEFAULT) != bytes {
            return Err(Error::new(ErrorCode::InvalidArgument, "the heap of kernels has its length already")
                .remedy("set it before code that allocates is loaded"));
        }
        if bytes > BYTES_MAX {
            let message = format!("a heap of {bytes} bytes; the limit is {BYTES_MAX}");
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        state.wanted = Some(bytes);
        Ok(())
    }

    /// Makes the heap known to an image's block, if its kernels allocate.
    pub(crate) fn place_heap(
        &self,
        data: &ModuleData,
        block: &Variables,
        stream: Stream,
    ) -> Result<Option<Heap>, Error> {
        let variable =
            data.variables.iter().find(|variable| variable.name == VARIABLE && variable.bytes == 8);
        let Some(variable) = variable else { return Ok(None) };
        let heap = self.heap(stream)?;
        let address = heap.0.address().to_le_bytes();
        self.write(stream, block.range(variable.at, variable.bytes), &address)?;
        Ok(Some(heap))
    }

    fn heap(&self, stream: Stream) -> Result<Heap, Error> {
        let mut state = self.inner.heap.lock();
        if let Some(made) = state.made.upgrade() {
            return Ok(Heap(made));
        }
        let layout = Layout::of(state.wanted.unwrap_or(BYTES_DEFAULT));
        let memory = self.allocate_apart(layout.bytes())?;
        self.fill(stream, memory.range(0, layout.books_bytes), Pattern::Bits8(0))?;
        self.write(stream, memory.range(0, 16), &layout.header(memory.address()))?;
        let made = Arc::new(memory);
        state.made = Arc::downgrade(&made);
        Ok(Heap(made))
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
