//! Lanes of a warp as bits of a mask.

use crate::alu::LANES;

/// The lanes of a mask.
#[inline(always)]
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

/// The lowest lane of a mask.
pub(crate) fn first(mask: u32) -> usize {
    mask.trailing_zeros() as usize & 31
}

/// A condition that is the same for all lanes.
pub(crate) fn all_or_none(condition: bool) -> u32 {
    if condition { u32::MAX } else { 0 }
}
