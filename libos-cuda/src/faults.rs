//! What a kernel's traps and failed assertions do to the program: one error for every call from then on, as NVIDIA's
//! driver has it, and the records in words on stderr.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::device::Error;
use crate::report;
use crate::status::{SUCCESS, Status};

/// What every call answers, once a kernel has ended so.
static STOPPED: AtomicU32 = AtomicU32::new(SUCCESS);

/// A thread of a kernel ended before its time.
#[cold]
pub(crate) fn stop(status: Status, error: &Error) -> Status {
    report::plainly(&error.message);
    // The first stays.
    match STOPPED.compare_exchange(SUCCESS, status.code(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => status,
        Err(first) => Status::known(first).unwrap_or(status),
    }
}

/// What every call answers where a kernel has ended so.
#[inline]
pub(crate) fn stopped() -> Option<Status> {
    match STOPPED.load(Ordering::Relaxed) {
        SUCCESS => None,
        code => Status::known(code),
    }
}
