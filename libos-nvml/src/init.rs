//! `nvmlInit` and `nvmlShutdown`, which are counted.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::seen;
use crate::status::{Answer, Status};

/// `NVML_INIT_FLAG_NO_GPUS`, `NVML_INIT_FLAG_NO_ATTACH` and `NVML_INIT_FLAG_FORCE_INIT`: there is nothing that they change.
const FLAGS: u32 = 7;

static TIMES: AtomicU32 = AtomicU32::new(0);

pub(crate) fn init() -> Answer {
    seen::facts()?;
    let counted = TIMES.fetch_update(Ordering::AcqRel, Ordering::Acquire, |times| times.checked_add(1));
    counted.map(drop).map_err(|_| Status::INSUFFICIENT_RESOURCES)
}

pub(crate) fn init_with_flags(flags: u32) -> Answer {
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    init()
}

pub(crate) fn shutdown() -> Answer {
    let counted = TIMES.fetch_update(Ordering::AcqRel, Ordering::Acquire, |times| times.checked_sub(1));
    counted.map(drop).map_err(|_| Status::UNINITIALIZED)
}

/// That it was called oftener than its opposite.
pub(crate) fn require() -> Answer {
    if TIMES.load(Ordering::Acquire) == 0 { Err(Status::UNINITIALIZED) } else { Ok(()) }
}
