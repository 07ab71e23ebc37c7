//! Atomics, from the standard library or from loom.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::mutant::{Mutant, is_switched_on};

/// Orders what was stored before what is loaded next, for everybody who does the same.
pub(crate) fn store_load(without: Mutant) {
    if !is_switched_on(without) {
        fence(Ordering::SeqCst);
    }
}

/// One turn of a spin loop.
pub(crate) fn spin() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
