//! A deterministic simulation of kernel, executor and clients around the real capability tree, ledger, region and pause.
//!
//! One seed is one run. A *step* is one thing that happens somewhere: a client pushes a record, asks for something or
//! dies; a message arrives; the pump takes a record; the device does a piece of work; the kernel looks around; the
//! executor dies and its standby takes over. What has happened is kept apart from what the parts under test believe,
//! and compared at the moment it matters.
//!
//! # Invariants
//! 1. No operation is admitted by a capability whose revocation is severed.
//! 2. The device touches no page through a mapping whose revocation was quiescent, nor one of another session, nor a hole.
//! 3. No handle is issued twice.
//! 4. Ranges and access only shrink.
//! 5. Exactly the descendants end.
//! 6. Ledger and tree count what is there; nothing once all is closed.
//! 7. Every record that was taken completes, is refused, or is reported lost, exactly once.
//! 8. What is revoked is reclaimed, or quarantined from its deadline on until the context is gone; and all of it is back
//!    once every client is gone.
//! 9. Pages of a session change only while it has nothing on the device.
//! 10. A session that was swapped out sees the bytes again that it saw last, whenever an executor dies.
//! 11. Guarded sessions, which share a context, and isolated ones, each with a process of its own, share no page; a page that
//!     a process keeps against its word is nobody else's before that process is gone.
//! 12. The context that guarded sessions share does not end for what an isolated one does.

mod alone;
mod books;
mod choices;
mod client;
mod device;
mod executor;
mod fault;
mod kernel;
mod module;
mod protocol;
mod replies;
mod sim;
mod swap;
mod tally;

pub use fault::Fault;
pub use sim::{Failure, Sim};
pub use tally::{Event, Tally};

/// What went wrong.
pub(crate) type Checked = Result<(), &'static str>;

/// Sessions at a time.
pub(crate) const SESSIONS: usize = 4;
/// Streams of a session.
pub(crate) const STREAMS: usize = 2;
/// Places for a page in a session's window.
pub(crate) const PLACES: u8 = 12;
/// Pages of the device.
pub(crate) const PAGES: u8 = 24;

/// One value per place of a window.
pub(crate) type PerPlace<T> = [T; PLACES as usize];

/// Fails with `what` where a check does not hold.
pub(crate) fn ensure(holds: bool, what: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(what) }
}
