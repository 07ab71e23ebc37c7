//! Waiting, with an end.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// How long anything may take that ought to happen soon: far more than it needs, on a machine with other work.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
///
/// # Panics
/// Where it does not come about within [`PATIENCE`].
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Does something that might hang, on a thread of its own.
///
/// # Panics
/// Where it is not done within [`PATIENCE`], or panics itself.
pub fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::sync_channel(1);
    let worker = thread::spawn(move || {
        // Nobody waits any more where this fails.
        done.send(work()).unwrap_or_default();
    });
    match result.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} takes longer than {PATIENCE:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => panic!("{what} ended without a result"),
        },
    }
}
