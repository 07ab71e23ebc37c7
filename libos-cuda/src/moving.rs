//! Whether the process may still move to another session ([`driver::move_for`](crate::driver::move_for)): only while it has
//! nothing of the session's.
//!
//! Whoever makes something calls [`keep`] before it is there. The first keeps the process where it is, for good. Where the process is
//! just moving, `keep` waits; a call that then holds what is of the session before is done once more ([`again`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::status::{Answer, Status};

const OPEN: u8 = 0;
const KEPT: u8 = 1;
const MOVING: u8 = 2;
const MOVED: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(OPEN);

/// Held while a session is opened, also where the process moves to another.
static OPENING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether the process had moved when this thread's call began.
    static BEGAN_MOVED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call, and once more where it failed and the process has moved meanwhile: it had nothing, so that nothing was done.
pub(crate) fn again(call: impl Fn() -> Answer) -> Answer {
    let had_moved = STATE.load(Ordering::Acquire) == MOVED;
    BEGAN_MOVED.set(had_moved);
    let answer = call();
    if had_moved || answer.is_ok() || STATE.load(Ordering::Acquire) != MOVED {
        return answer;
    }
    BEGAN_MOVED.set(true);
    call()
}

/// Something of the session's is about to be there: the process stays where it is.
///
/// # Errors
/// `NOT_READY` where the process has moved since the call began: it is done once more.
pub(crate) fn keep() -> Answer {
    loop {
        match STATE.load(Ordering::Acquire) {
            KEPT => return Ok(()),
            OPEN => {
                if STATE.compare_exchange(OPEN, KEPT, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    return Ok(());
                }
            }
            MOVING => drop(opening()),
            _ if BEGAN_MOVED.get() => return Ok(()),
            _ => return Err(Status::NOT_READY),
        }
    }
}

/// Waits until nobody opens a session, and keeps others from it.
pub(crate) fn opening() -> MutexGuard<'static, ()> {
    OPENING.lock()
}

/// Whether the process is just moving.
pub(crate) fn is_under_way() -> bool {
    STATE.load(Ordering::Acquire) == MOVING
}

/// Begins to move the process; false where it has something, or has moved.
pub(crate) fn begin() -> bool {
    STATE.compare_exchange(OPEN, MOVING, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The process has moved, or stays where it is for good.
pub(crate) fn end(has_moved: bool) {
    BEGAN_MOVED.set(has_moved);
    STATE.store(if has_moved { MOVED } else { KEPT }, Ordering::Release);
}
