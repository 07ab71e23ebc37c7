//! What the program has freed, and where: for accesses of its kernels that come too late (`run --check`, `--sanitize`).

use std::backtrace::Backtrace;
use std::collections::VecDeque;

use crate::device::Freed;

/// As many as the client keeps from being given out again.
const FREED_MAX: usize = 4096;

/// One allocation that was.
struct One {
    start: u64,
    bytes: u64,
    /// Who freed it. Names are looked up only where they are told.
    by: Backtrace,
}

/// What was freed last, none of which is allocated again.
#[derive(Default)]
pub(crate) struct List(VecDeque<One>);

impl List {
    /// The caller frees memory.
    pub(crate) fn add(&mut self, start: u64, bytes: u64) {
        if self.0.len() >= FREED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(One { start, bytes, by: Backtrace::force_capture() });
    }

    /// Memory is allocated where some may have been freed.
    pub(crate) fn forget(&mut self, start: u64, bytes: u64) {
        let end = |start: u64, bytes: u64| start.saturating_add(bytes);
        self.0.retain(|one| one.start >= end(start, bytes) || start >= end(one.start, one.bytes));
    }

    /// What an address was in, if that is known.
    pub(crate) fn of(&self, address: u64) -> Option<Freed> {
        let one = self.0.iter().rev().find(|one| address.wrapping_sub(one.start) < one.bytes)?;
        Some(Freed { start: one.start, bytes: one.bytes, by: caller(&one.by.to_string()) })
    }
}

/// The program's function that called a function of CUDA's, and where, as far as its symbols tell.
pub(crate) fn caller(trace: &str) -> Option<String> {
    let mut frames: Vec<(&str, Option<&str>)> = Vec::new();
    for line in trace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some((_, known)) = frames.last_mut() {
                *known = Some(place);
            }
        } else if let Some((number, name)) = line.split_once(": ")
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            frames.push((name, None));
        }
    }
    // What nvcc puts between a launch and the driver is not the program's.
    let of_launches = |name: &str| name.contains("cudaLaunchKernel") || name.contains("__device_stub__");
    let is_cuda = |name: &str| name.starts_with("cuda") || name.starts_with("cuMem") || of_launches(name);
    let last = frames.iter().rposition(|(name, _)| is_cuda(name))?;
    let (name, place) = frames.get(last + 1).filter(|(name, _)| *name != "<unknown>")?;
    Some(place.map_or_else(|| (*name).to_owned(), |place| format!("{name} at {place}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &List, address: u64) -> Option<(u64, u64)> {
        list.of(address).map(|freed| (freed.start, freed.bytes))
    }

    #[test]
    fn the_last_that_an_address_was_in_is_found_until_it_is_allocated_again() {
        let mut list = List::default();
        list.add(0x1000, 0x100);
        list.add(0x1080, 0x100);
        assert_eq!(found(&list, 0x1000), Some((0x1000, 0x100)));
        assert_eq!(found(&list, 0x1080), Some((0x1080, 0x100)));
        assert_eq!((found(&list, 0xFFF), found(&list, 0x1180)), (None, None));
        list.forget(0x1100, 0x80);
        assert_eq!((found(&list, 0x1080), found(&list, 0x1100)), (Some((0x1000, 0x100)), None));
        list.forget(0xF00, 0x100);
        assert_eq!(found(&list, 0x1000), Some((0x1000, 0x100)));
        list.forget(0xF00, 0x101);
        assert_eq!(found(&list, 0x1000), None);
    }

    #[test]
    fn so_many_are_known() {
        let mut list = List::default();
        for index in 0..=FREED_MAX as u64 {
            list.add(index * 0x1000, 0x100);
        }
        assert_eq!((found(&list, 0), found(&list, 0x1000)), (None, Some((0x1000, 0x100))));
    }

    #[test]
    fn who_called_cuda_is_named_where_symbols_tell() {
        let trace = "   0: bulkhead::freed\n             at ./src/freed.rs:31:9\n   1: cuMemFree_v2\n   2: __cudart842\n   \
                     3: cudaFree\n   4: release(int*)\n             at ./src/app.cu:12:5\n   5: main\n";
        assert_eq!(caller(trace).unwrap(), "release(int*) at ./src/app.cu:12:5");
        assert_eq!(caller("   0: cuMemFree_v2\n   1: main\n").unwrap(), "main");
        for unknown in ["", "   0: main\n", "   0: cudaFree\n", "   0: cudaFree\n   1: <unknown>\n"] {
            assert_eq!(caller(unknown), None, "{unknown}");
        }
    }
}
