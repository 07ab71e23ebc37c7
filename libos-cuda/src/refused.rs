//! Calls that are understood and not served, each with what to do instead.

use crate::abi::{IpcHandle, Out};
use crate::context::driver_and_current;
use crate::report;
use crate::status::{Answer, Status};

fn refuse(call: &str, why: &str) -> Answer {
    driver_and_current()?;
    report::refused(call, why);
    Err(Status::NOT_SUPPORTED)
}

pub(crate) fn event_handle(_to: Out<IpcHandle>, _event: u64) -> Answer {
    refuse(
        "cuIpcGetEventHandle",
        "events are not shared between processes; wait with cudaEventSynchronize and tell",
    )
}

pub(crate) fn open_event(_to: Out<u64>, _handle: IpcHandle) -> Answer {
    refuse(
        "cuIpcOpenEventHandle",
        "events are not shared between processes; wait with cudaEventSynchronize and tell",
    )
}
