//! A word by which one side of shared memory says that it sleeps, and the other sees that it has to wake it: what host halves of
//! protected modules and host code share.
//!
//! Whoever sleeps [says](say) so, looks for work once more, and sleeps only where there is none. Whoever leaves work stores it, asks
//! whether it [has to wake](has_to_wake) the other, and then does, by a socket for instance. So one of them sees the other.

use crate::{
    mutant::Mutant,
    sync::{AtomicU32, Ordering, store_load},
};

/// Says whether this side sleeps. What it loads after this is no older.
pub fn say(word: &AtomicU32, sleeps: bool) {
    word.store(u32::from(sleeps), Ordering::Relaxed);
    store_load(Mutant::NoFenceOfTheConsumer);
}

/// Whether the other side has to be woken, for what was stored before this.
#[must_use]
pub fn has_to_wake(word: &AtomicU32) -> bool {
    store_load(Mutant::NoFenceOfTheProducer);
    word.load(Ordering::Relaxed) != 0
}
