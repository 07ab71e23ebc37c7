//! The table of protected windows: device addresses of modules, out of reach of every session.
//!
//! A module's gates reach its memory by accesses that are marked and confined to it: a power of two of bytes at the beginning
//! of its window. What else they do is confined to the caller's slot.

use crate::{MARGIN_BYTES, PAGE_BYTES, Range, SLOTS_BASE, WORKBENCH, slot::SINK_BYTES};

const GIB: u64 = 1 << 30;

/// Modules that have protected memory at one time.
pub const PROTECTED_WINDOWS: u32 = 32;
/// Device addresses of one module.
pub const PROTECTED_BYTES: u64 = 32 * GIB;
/// From one window to the next. What lies between them is never mapped, but for the margins.
const STRIDE_BYTES: u64 = 2 * PROTECTED_BYTES;
/// Where the first window starts.
const BASE: u64 = 0x1C00_0000_0000;

const _: () = {
    assert!(PROTECTED_BYTES.is_power_of_two(), "masks act on addresses");
    assert!(BASE.is_multiple_of(PROTECTED_BYTES) && STRIDE_BYTES.is_multiple_of(PROTECTED_BYTES));
    assert!(PROTECTED_BYTES + 2 * MARGIN_BYTES <= STRIDE_BYTES, "no window's margin reaches into another's");
    assert!(PROTECTED_BYTES.is_multiple_of(SINK_BYTES) && PROTECTED_BYTES.is_multiple_of(PAGE_BYTES));
    let end = BASE + PROTECTED_WINDOWS as u64 * STRIDE_BYTES;
    assert!(end <= WORKBENCH.start().0 && end <= SLOTS_BASE - MARGIN_BYTES, "below everything else");
};

/// One module's range of device addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProtectedWindow {
    index: u32,
}

impl ProtectedWindow {
    /// The window with this index; `None` where there is none.
    #[must_use]
    pub const fn new(index: u32) -> Option<Self> {
        if index < PROTECTED_WINDOWS { Some(Self { index }) } else { None }
    }

    /// Its index.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// All of it.
    #[must_use]
    pub const fn range(self) -> Range {
        let start = BASE + self.index as u64 * STRIDE_BYTES;
        Range::between(start, start + PROTECTED_BYTES)
    }

    /// All of it, with the margins that an offset added after confining reaches.
    #[must_use]
    pub const fn reach(self) -> Range {
        Range::between(self.range().start().0 - MARGIN_BYTES, self.range().end().0 + MARGIN_BYTES)
    }

    /// The memory of a module that has so many bytes; `None` where that is no power of two of whole pages, or too much.
    #[must_use]
    pub const fn memory(self, bytes: u64) -> Option<Range> {
        let fits = bytes.is_power_of_two() && bytes >= PAGE_BYTES && bytes <= PROTECTED_BYTES;
        let start = self.range().start().0;
        if fits { Some(Range::between(start, start + bytes)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DeviceAddress, SLOTS, Slot,
        testing::{Choices, seeds},
    };

    fn windows() -> impl Iterator<Item = ProtectedWindow> {
        (0..PROTECTED_WINDOWS).map(|index| ProtectedWindow::new(index).unwrap())
    }

    #[test]
    fn no_session_and_no_other_module_reaches_a_window() {
        for window in windows() {
            assert!(!window.reach().overlaps(WORKBENCH));
            for slot in (0..SLOTS).map(|index| Slot::new(index).unwrap()) {
                assert!(!window.reach().overlaps(slot.reach()));
            }
            for other in windows().filter(|other| *other != window) {
                assert!(!window.reach().overlaps(other.reach()));
            }
        }
        assert!(ProtectedWindow::new(PROTECTED_WINDOWS).is_none());
    }

    /// Where an address ends up that a marked access of a gate confines.
    fn confine(address: u64, memory: Range) -> DeviceAddress {
        DeviceAddress(address & (memory.bytes() - 1) | memory.start().0)
    }

    #[test]
    fn any_address_confined_lies_in_the_modules_memory_and_one_of_it_stays() {
        for seed in seeds() {
            println!("seed {seed}");
            let mut choices = Choices::new(seed);
            for window in windows() {
                for bytes in [PAGE_BYTES, 64 << 20, PROTECTED_BYTES] {
                    let memory = window.memory(bytes).unwrap();
                    assert!(window.range().contains(memory));
                    for _ in 0..300 {
                        let address = choices.next() << 32 ^ choices.next();
                        let confined = confine(address, memory);
                        assert!(memory.contains(Range::new(confined, 1).unwrap()), "{address:#x}");
                        assert_eq!(confine(confined.0, memory), confined);
                    }
                }
                for bytes in [0, 4096, 3 * PAGE_BYTES, 2 * PROTECTED_BYTES, u64::MAX] {
                    assert!(window.memory(bytes).is_none(), "{bytes}");
                }
            }
        }
    }
}
