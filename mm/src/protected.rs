//! The table of protected windows: device addresses of modules, out of reach of every session.
//!
//! A module's gates reach its window by accesses that are marked and confined to it, as a session's are to its slot;
//! what else they do is confined to the caller's slot.

use crate::{DeviceAddress, MARGIN_BYTES, PAGE_BYTES, Range, SLOTS_BASE, WORKBENCH, slot::SINK_BYTES};

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
    assert!(
        PROTECTED_BYTES.is_power_of_two() && PROTECTED_BYTES > u32::MAX as u64,
        "masks act on high words"
    );
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

    /// High word of the first address.
    #[must_use]
    pub const fn base_high(self) -> u32 {
        (self.range().start().0 >> 32) as u32
    }

    /// Mask of the high word that keeps a marked access in the window.
    #[must_use]
    pub const fn mask_high(self) -> u32 {
        ((PROTECTED_BYTES - 1) >> 32) as u32
    }

    /// Where an address ends up that a marked access of the module confines.
    #[must_use]
    pub const fn confine(self, address: u64) -> DeviceAddress {
        let high = ((address >> 32) as u32 & self.mask_high()) | self.base_high();
        DeviceAddress((high as u64) << 32 | (address & u32::MAX as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        SLOTS, Slot,
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

    #[test]
    fn any_address_confined_lies_in_the_window_and_one_of_the_window_stays() {
        for seed in seeds() {
            println!("seed {seed}");
            let mut choices = Choices::new(seed);
            for window in windows() {
                for _ in 0..1000 {
                    let address = choices.next() << 32 ^ choices.next();
                    let confined = window.confine(address);
                    assert!(window.range().contains(Range::new(confined, 1).unwrap()), "{address:#x}");
                    assert_eq!(window.confine(confined.0), confined);
                }
            }
        }
    }
}
