//! The memory that host code and the host half share: a ring of requests, an answer for each buffer, and the buffers.
//!
//! The caller writes a request at the ring's tail, and the tail behind it. The host half copies requests in order, and answers each in
//! the word of its buffer: the request's mark, and a code. A buffer has one request at a time, so nothing is ever full.

use bulkhead_client::ModuleHost;
use bulkhead_module::SHARED_START;

use crate::rules::Request;

/// Buffers, and requests on their way.
pub const BUFFERS: u32 = 256;
/// Bytes of a buffer.
pub const BUFFER_BYTES: usize = 4096;
/// How many requests the caller has written: a word of 32 bits that wraps.
pub const TAIL: usize = SHARED_START;
/// Where the requests are.
pub const REQUESTS: usize = 4096;
/// Bytes of a request.
pub const REQUEST_BYTES: usize = 32;
/// Where the answers are: a word of 64 bits for each buffer, the code in its low half and the mark in the other.
pub const ANSWERS: usize = REQUESTS + BUFFERS as usize * REQUEST_BYTES;
/// Where the buffers are.
pub const DATA: usize = 16384;
/// Bytes of all.
pub const SHARED_BYTES: u64 = (DATA + BUFFERS as usize * BUFFER_BYTES) as u64;

const _: () = assert!(
    TAIL + 4 <= REQUESTS && ANSWERS + BUFFERS as usize * 8 <= DATA && DATA.is_multiple_of(BUFFER_BYTES)
);

/// Where a request lies that was written as the `number`th.
#[must_use]
pub fn request(number: u32) -> usize {
    REQUESTS + (number % BUFFERS) as usize * REQUEST_BYTES
}

/// Where a buffer's answer lies. The buffer is one that there is.
#[must_use]
pub fn answer(buffer: u32) -> usize {
    ANSWERS + (buffer % BUFFERS) as usize * 8
}

/// Where a buffer lies. The buffer is one that there is.
#[must_use]
pub fn data(buffer: u32) -> usize {
    DATA + (buffer % BUFFERS) as usize * BUFFER_BYTES
}

/// Writes a request.
pub fn put(memory: &ModuleHost, number: u32, request: &Request) {
    let Request { buffer, operation, extent, count, block, mark, target } = *request;
    let mut bytes = [0; REQUEST_BYTES];
    let words = [buffer, operation, extent, count].into_iter().flat_map(u32::to_le_bytes);
    let words = words.chain(block.to_le_bytes()).chain(mark.to_le_bytes()).chain(target.to_le_bytes());
    bytes.iter_mut().zip(words).for_each(|(to, byte)| *to = byte);
    memory.write(self::request(number), &bytes);
}

/// Copies a request, whatever it says.
#[must_use]
pub fn take(memory: &ModuleHost, number: u32) -> Request {
    let mut bytes = [0; REQUEST_BYTES];
    memory.read(request(number), &mut bytes);
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    Request {
        buffer: word(0),
        operation: word(4),
        extent: word(8),
        count: word(12),
        block: u64::from(word(16)) | u64::from(word(20)) << 32,
        mark: word(24),
        target: word(28),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_for_c_lays_the_memory_out_in_the_same_way() {
        let header = include_str!("../include/bulkhead_storage_host.h");
        for (name, value) in [
            ("TAIL", TAIL as u64),
            ("REQUESTS", REQUESTS as u64),
            ("ANSWERS", ANSWERS as u64),
            ("DATA", DATA as u64),
            ("BYTES", SHARED_BYTES),
        ] {
            assert!(header.contains(&format!("#define BULKHEAD_STORAGE_{name} {value}\n")), "{name}");
        }
        assert!(header.contains(&format!("#define BULKHEAD_STORAGE_BUFFERS {BUFFERS}u\n")));
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let (memory, _descriptor) = ModuleHost::create(SHARED_BYTES).unwrap();
        let request =
            Request { buffer: 1, operation: 2, extent: 3, count: 4, block: 5 << 40 | 6, mark: 7, target: 8 };
        put(&memory, u32::MAX, &request);
        assert_eq!(take(&memory, u32::MAX), request);
        assert_eq!(take(&memory, BUFFERS - 1), request);
        assert_eq!(take(&memory, 0), Request::default());
    }
}
