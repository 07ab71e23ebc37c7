//! What connects devices. A session has one, so nothing leads anywhere: links are down, and there is no fabric.

use std::ffi::c_void;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::abi::{
    Device, FabricInfo, FabricInfoV2, FabricInfoV3, FieldValue, InOut, InOutSlice, Out, OutSlice, Versioned,
    version_of,
};
use crate::status::{Answer, SUCCESS, Status};

/// `NVML_NVLINK_MAX_LINKS`.
const LINKS: u32 = 36;
/// `nvmlNvLinkCapability_t`: how many there are.
const CAPABILITIES: u32 = 6;
/// `nvmlGpuP2PCapsIndex_t`: of the last kind before *unknown*.
const PEER_KINDS: u32 = 4;
/// Reads, writes and atomics: a device has them of its own memory.
const PEER_MEMORY: [u32; 3] = [0, 1, 3];
/// `NVML_P2P_STATUS_OK` and `NVML_P2P_STATUS_NOT_SUPPORTED`.
const PEER_OK: u32 = 0;
const PEER_NOT_SUPPORTED: u32 = 5;
/// `nvmlGpuTopologyLevel_t`: all of them, from *internal* to *system*.
const LEVELS: [u32; 6] = [0, 10, 20, 30, 40, 50];
/// `NVML_GPU_FABRIC_STATE_NOT_SUPPORTED`.
const NO_FABRIC: u32 = 0;
/// `NVML_FI_DEV_NVLINK_LINK_COUNT`.
const LINK_COUNT: u32 = 91;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED: u32 = 1;
/// Fields that are asked for at a time; NVML has fewer different ones.
const FIELDS_MAX: i32 = 1024;

/// The one pair is a device and itself.
pub(crate) fn peer(_device: Device, _other: Device, kind: u32, to: Out<u32>) -> Answer {
    if kind > PEER_KINDS {
        return Err(Status::INVALID_ARGUMENT);
    }
    to.set(if PEER_MEMORY.contains(&kind) { PEER_OK } else { PEER_NOT_SUPPORTED });
    Ok(())
}

pub(crate) fn ancestor(_device: Device, _other: Device, to: Out<u32>) -> Answer {
    to.set(LEVELS[0]);
    Ok(())
}

pub(crate) fn nearest(_device: Device, level: u32, count: InOut<u32>, _to: OutSlice<*mut c_void>) -> Answer {
    if !LEVELS.contains(&level) {
        return Err(Status::INVALID_ARGUMENT);
    }
    count.set(0);
    Ok(())
}

pub(crate) fn same_board(_device: Device, _other: Device, to: Out<i32>) -> Answer {
    to.set(1);
    Ok(())
}

pub(crate) fn state(_device: Device, link: u32, to: Out<u32>) -> Answer {
    if link >= LINKS {
        return Err(Status::INVALID_ARGUMENT);
    }
    to.set(0);
    Ok(())
}

pub(crate) fn capability(_device: Device, link: u32, kind: u32, to: Out<u32>) -> Answer {
    if link >= LINKS || kind >= CAPABILITIES {
        return Err(Status::INVALID_ARGUMENT);
    }
    to.set(0);
    Ok(())
}

pub(crate) fn fabric(_device: Device, to: Out<FabricInfo>) -> Answer {
    to.set(FabricInfo { cluster: [0; 16], status: SUCCESS, clique: 0, state: NO_FABRIC });
    Ok(())
}

pub(crate) fn fabric_versioned(_device: Device, to: Versioned) -> Answer {
    let (second, third) = (version_of::<FabricInfoV2>(2), version_of::<FabricInfoV3>(3));
    let (cluster, status, clique, state, health) = ([0; 16], SUCCESS, 0, NO_FABRIC, 0);
    let written = match to.version() {
        version if version == second => {
            to.write(version, FabricInfoV2 { version, cluster, status, clique, state, health })
        }
        version if version == third => {
            to.write(version, FabricInfoV3 { version, cluster, status, clique, state, health, summary: 0 })
        }
        _ => None,
    };
    written.ok_or(Status::VERSION_MISMATCH)
}

/// Each field has an answer of its own.
pub(crate) fn field_values(_device: Device, count: i32, values: InOutSlice<FieldValue>) -> Answer {
    let many = usize::try_from(count).map_err(|_| Status::INVALID_ARGUMENT)?;
    if many == 0 || count > FIELDS_MAX {
        return Err(Status::INVALID_ARGUMENT);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp_us = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    values.change(many, |asked| FieldValue {
        timestamp_us,
        latency_us: 0,
        value_type: UNSIGNED,
        answer: if asked.field == LINK_COUNT { SUCCESS } else { Status::NOT_SUPPORTED.code() },
        value: 0,
        ..asked
    });
    Ok(())
}
