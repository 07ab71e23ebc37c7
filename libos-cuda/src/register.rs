//! Memory of the program's own that it registers (`cuMemHostRegister`).
//!
//! Nobody can pin another process's pages, so the pages are exchanged: pinned memory of the session's, with their content,
//! takes their place, and gives it back when it is unregistered. The program sees the same bytes at the same address,
//! and kernels reach them where `cuMemHostGetDevicePointer` says. Only private memory can be exchanged, which nobody else
//! shares; other memory is registered for copies alone, which are staged as copies of any memory are.

mod calls;

use std::io;

pub(crate) use calls::*;

use crate::abi::{Host, PAGE_BYTES, Pages, Spare};
use crate::device::{HostBuffer, HostSpan, Session};
use crate::status::Status;

/// How the system names mapped memory that the kernel made for a session.
const OURS: &str = "/memfd:bulkhead-host";

/// What the program registered.
pub(crate) struct Registered {
    pub(crate) flags: u32,
    /// None where it serves copies alone.
    pub(crate) exchanged: Option<Exchanged>,
}

/// Pinned memory in the place of pages of the program's, which get their place again when this is dropped.
pub(crate) struct Exchanged {
    session: Session,
    /// None only where the pages could not be given back: then it is never used for anything else.
    buffer: Option<HostBuffer>,
    /// Where in the buffer the registered range begins.
    offset: u64,
    pages: Pages,
}

impl Exchanged {
    /// A part of what is registered.
    pub(crate) fn span(&self, offset: u64, bytes: u64) -> Option<HostSpan> {
        Some(self.buffer.as_ref()?.span(self.offset + offset, bytes))
    }

    /// Where kernels reach its first byte.
    pub(crate) fn address(&self) -> Option<u64> {
        self.buffer.as_ref()?.address()?.checked_add(self.offset)
    }

    /// Exchanges the pages around `bytes` of the program's.
    fn new(session: &Session, host: Host, bytes: usize, pages: Pages) -> Result<Exchanged, Failure> {
        // Pinned memory begins anywhere; what is mapped begins with a page.
        let room = pages.bytes.checked_add(PAGE_BYTES).ok_or(Failure::Memory(Status::OUT_OF_MEMORY))?;
        let buffer = session.allocate_mapped(room).map_err(|error| Failure::Memory(Status::of(&error)))?;
        let before = buffer.as_ptr().addr().wrapping_neg() % PAGE_BYTES;
        let within = usize::try_from(host.address()).unwrap_or(usize::MAX) - pages.start;
        let spare = Spare::of(&buffer, before, pages.bytes).map_err(|_| Failure::Mapping)?;
        let offset = (before + within) as u64;
        // From here on what was exchanged is given back, whatever happens.
        let exchanged = Exchanged { session: session.clone(), buffer: Some(buffer), offset, pages };
        replace(session, spare, pages, Shared::with(host, bytes, pages)).map_err(|_| Failure::Mapping)?;
        Ok(exchanged)
    }
}

impl Drop for Exchanged {
    fn drop(&mut self) {
        let Pages { start, bytes } = self.pages;
        // What the program unmapped, or mapped anew, is left alone.
        let given_back = mapped_in(start, start + bytes).and_then(|found| {
            for range in found.into_iter().filter(|range| range.is_ours) {
                let (start, end) = (range.start.max(start), range.end.min(start + bytes));
                let pages = Pages { start, bytes: end - start };
                replace(&self.session, Spare::private(pages.bytes)?, pages, Shared::BOTH)?;
            }
            Ok(())
        });
        if given_back.is_err() {
            // The program goes on with the memory it has, so nothing else may.
            std::mem::forget(self.buffer.take());
        }
    }
}

/// Why pages were not exchanged.
enum Failure {
    /// There is no memory for it.
    Memory(Status),
    /// The system does not do it for these.
    Mapping,
}

/// Whether the first and the last page also hold what was not registered.
#[derive(Clone, Copy)]
struct Shared {
    first: bool,
    last: bool,
}

impl Shared {
    const BOTH: Shared = Shared { first: true, last: true };

    fn with(host: Host, bytes: usize, pages: Pages) -> Shared {
        let start = usize::try_from(host.address()).unwrap_or(usize::MAX);
        Shared { first: start != pages.start, last: start + bytes != pages.start + pages.bytes }
    }
}

/// Puts spare pages in the place of the program's. Where a page may hold what is this library's own, its other thread is
/// held meanwhile, so that it does not store there.
fn replace(session: &Session, mut spare: Spare, pages: Pages, shared: Shared) -> io::Result<()> {
    let first = if shared.first { PAGE_BYTES } else { 0 };
    let last = if shared.last && pages.bytes > first { PAGE_BYTES } else { 0 };
    let between = pages.bytes - first - last;
    let alone = |spare: &mut Spare, offset: usize| -> io::Result<()> {
        let replaced = session.alone(|| spare.replace(pages.part(offset, PAGE_BYTES)));
        replaced.map_err(|error| io::Error::other(error.to_string()))?
    };
    if first > 0 {
        alone(&mut spare, 0)?;
    }
    spare.replace(pages.part(first, between))?;
    if last > 0 {
        alone(&mut spare, first + between)?;
    }
    Ok(())
}

/// One mapping of the process.
#[derive(Debug, PartialEq, Eq)]
struct Mapped {
    start: usize,
    end: usize,
    is_readable: bool,
    is_writable: bool,
    is_private: bool,
    is_stack: bool,
    is_ours: bool,
}

/// A line of `/proc/self/maps`.
fn mapping(line: &str) -> Option<Mapped> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let rights = words.next()?.as_bytes();
    let name = words.nth(3).unwrap_or_default();
    Some(Mapped {
        start,
        end,
        is_readable: rights.first() == Some(&b'r'),
        is_writable: rights.get(1) == Some(&b'w'),
        is_private: rights.get(3) == Some(&b'p'),
        is_stack: name.starts_with("[stack"),
        is_ours: rights.get(3) == Some(&b's') && name.starts_with(OURS),
    })
}

/// What is mapped between two addresses, in order.
fn mapped_in(start: usize, end: usize) -> io::Result<Vec<Mapped>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let reaches = |found: &Mapped| found.start < end && found.end > start;
    Ok(maps.lines().filter_map(mapping).filter(reaches).collect())
}

/// Whether the program's pages can be exchanged; an error where it cannot read and write all of them.
fn can_be_exchanged(pages: Pages) -> Result<bool, Status> {
    let Ok(found) = mapped_in(pages.start, pages.start + pages.bytes) else { return Ok(false) };
    let mut reached = pages.start;
    for range in &found {
        if range.start > reached || !range.is_readable || !range.is_writable {
            return Err(Status::INVALID_VALUE);
        }
        reached = range.end;
    }
    if reached < pages.start + pages.bytes {
        return Err(Status::INVALID_VALUE);
    }
    let is_private = found.iter().all(|range| range.is_private && !range.is_stack);
    Ok(is_private && !pages.hold_this_stack())
}

/// Why kernels do not reach something.
pub(crate) const ONLY_PRIVATE: &str = "kernels reach registered memory only where it is private memory of the program's (the heap, \
     variables, private mappings), in pages of which none is registered already and none is a stack; allocate it with \
     cudaMallocHost, or use cudaMemcpy, which works";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_systems_list_of_mappings_are_read() {
        let heap = mapping("55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0          [heap]").unwrap();
        assert_eq!((heap.start, heap.end), (0x55d0_c0a0_0000, 0x55d0_c0a2_1000));
        assert!(heap.is_readable && heap.is_writable && heap.is_private && !heap.is_stack && !heap.is_ours);
        let anonymous = mapping("7f0000000000-7f0000001000 r--s 00000000 00:00 0 ").unwrap();
        assert!(anonymous.is_readable && !anonymous.is_writable && !anonymous.is_private);
        let ours = "7f0000000000-7f0000001000 rw-s 00200000 00:01 77 /memfd:bulkhead-host (deleted)";
        assert!(mapping(ours).unwrap().is_ours);
        assert!(!mapping(&ours.replace("bulkhead-host", "other")).unwrap().is_ours);
        assert!(mapping("7ffd0-7ffe0 rw-p 00000000 00:00 0 [stack]").unwrap().is_stack);
        assert_eq!(mapping("nothing"), None);
        assert_eq!(mapping(""), None);
    }

    #[test]
    fn what_is_mapped_is_found_and_what_is_not_is_an_error() {
        let own = vec![0_u8; 3 * PAGE_BYTES];
        let pages = |start: usize, bytes| Pages { start: start / PAGE_BYTES * PAGE_BYTES, bytes };
        assert_eq!(can_be_exchanged(pages(own.as_ptr().addr(), 2 * PAGE_BYTES)), Ok(true));
        let on_the_stack = [0_u8; 2 * PAGE_BYTES];
        assert_eq!(can_be_exchanged(pages(on_the_stack.as_ptr().addr(), 4 * PAGE_BYTES)), Ok(false));
        let code = what_is_mapped_is_found_and_what_is_not_is_an_error as *const u8;
        assert_eq!(can_be_exchanged(pages(code.addr(), PAGE_BYTES)), Err(Status::INVALID_VALUE));
        assert_eq!(can_be_exchanged(pages(0, PAGE_BYTES)), Err(Status::INVALID_VALUE));
    }
}
