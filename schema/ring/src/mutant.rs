//! Bugs that a test under loom switches on, to see that it would notice.
#![cfg_attr(not(loom), expect(unreachable_pub, reason = "what switches them on is there under loom only"))]

/// One bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The producer looks whether the consumer is parked before its tail is seen.
    NoFenceOfTheProducer,
    /// The consumer looks for a record before it is seen to be parked.
    NoFenceOfTheConsumer,
    /// Whoever wakes the consumer wakes a sleeper only, and not the one about to sleep.
    WakeWithoutTheBell,
    /// Whoever wakes the consumer has it not sleep, and does not wake it.
    BellWithoutTheWake,
    /// Whatever was stored before a wake-up need not be seen after it.
    RelaxedBell,
}

#[cfg(loom)]
std::thread_local! {
    // loom runs all threads of a model on one.
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Switches a bug on, for all models of this thread.
#[cfg(loom)]
pub fn switch_on(mutant: Mutant) {
    ON.set(Some(mutant));
}

/// Whether it is there. Never outside of loom.
pub(crate) fn is_switched_on(mutant: Mutant) -> bool {
    #[cfg(loom)]
    return ON.get() == Some(mutant);
    #[cfg(not(loom))]
    {
        _ = mutant;
        false
    }
}
