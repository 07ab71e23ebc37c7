//! Whether a thread runs a function of the host's, which cannot wait for itself.

use std::cell::Cell;

thread_local! {
    static IS_IN: Cell<bool> = const { Cell::new(false) };
}

/// Whether a host function asks, which cannot wait for itself.
pub(crate) fn is_in() -> bool {
    IS_IN.get()
}

/// Notes that this thread runs one, or has.
pub(crate) fn set(is_in: bool) {
    IS_IN.set(is_in);
}
