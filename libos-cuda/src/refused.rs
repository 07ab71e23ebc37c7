//! Calls that are understood and not served, each with what to do instead.

use crate::abi::{Host, IpcHandle, Out};
use crate::context::driver_and_current;
use crate::report;
use crate::status::{Answer, Status};

fn refuse(call: &str, why: &str) -> Answer {
    driver_and_current()?;
    report::refused(call, why);
    Err(Status::NOT_SUPPORTED)
}

pub(crate) fn host_register(_host: Host, _bytes: usize, _flags: u32) -> Answer {
    refuse(
        "cuMemHostRegister",
        "memory of the program's own cannot be pinned; allocate it with cudaMallocHost or cudaHostAlloc",
    )
}

pub(crate) fn host_unregister(_host: Host) -> Answer {
    driver_and_current()?;
    Err(Status::HOST_MEMORY_NOT_REGISTERED)
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

pub(crate) fn managed(_to: Out<u64>, _bytes: usize, _flags: u32) -> Answer {
    refuse("cuMemAllocManaged", "managed memory is not there; use cudaMalloc and cudaMemcpy")
}

pub(crate) fn texture(_to: Out<u64>, _resource: u64, _texture: u64, _view: u64) -> Answer {
    refuse("cuTexObjectCreate", "a guarded session has no textures: read the memory directly")
}

pub(crate) fn surface(_to: Out<u64>, _resource: u64) -> Answer {
    refuse("cuSurfObjectCreate", "a guarded session has no surfaces: use the memory directly")
}
