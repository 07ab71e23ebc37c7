//! Versions, and what is asked of the machine.

use bulkhead_client::driver_version as version_of_driver;
use bulkhead_schema::CUDA_VERSION;

use crate::abi::{ConfComputeSettings, ConfComputeState, Out, OutText, Versioned, version_of};
use crate::status::{Answer, Status};

pub(crate) fn cuda_version(to: Out<i32>) -> Answer {
    to.set(CUDA_VERSION.cast_signed());
    Ok(())
}

pub(crate) fn driver_version(to: OutText, room: u32) -> Answer {
    to.write(room, &version_of_driver())
}

pub(crate) fn nvml_version(to: OutText, room: u32) -> Answer {
    to.write(room, &format!("{}.{}", CUDA_VERSION / 1000, version_of_driver()))
}

/// Of this process alone; cut to what fits, as NVML does.
pub(crate) fn process_name(process: u32, to: OutText, room: u32) -> Answer {
    let most = room.checked_sub(1).ok_or(Status::INVALID_ARGUMENT)?;
    if process != std::process::id() {
        return Err(Status::NOT_FOUND);
    }
    let path = std::env::current_exe().map_err(|_| Status::UNKNOWN)?;
    let mut name = path.to_string_lossy().into_owned();
    while name.len() > most as usize {
        name.pop();
    }
    to.write(room, &name)
}

/// What a session does is not confidential to whoever has the machine.
pub(crate) fn conf_compute_state(to: Out<ConfComputeState>) -> Answer {
    to.set(ConfComputeState { environment: 0, feature: 0, tools: 0 });
    Ok(())
}

pub(crate) fn conf_compute_settings(to: Versioned) -> Answer {
    let version = version_of::<ConfComputeSettings>(1);
    let settings = ConfComputeSettings { version, environment: 0, feature: 0, tools: 0, multi_gpu: 0 };
    to.write(version, settings).ok_or(Status::VERSION_MISMATCH)
}

/// There are no units (S-class systems), and no devices that somebody excluded.
pub(crate) fn none(to: Out<u32>) -> Answer {
    to.set(0);
    Ok(())
}
