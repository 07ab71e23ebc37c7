//! The session's memory, and its process.

use crate::abi::{
    Device, InOut, Memory, MemoryV2, Out, OutSlice, ProcessInfo, ProcessInfoV1, Versioned, version_of,
};
use crate::seen::{Now, now};
use crate::status::{Answer, Status};

/// What stands for no instance of MIG's.
const NO_INSTANCE: u32 = u32::MAX;

/// What is not free is in use, by whomever: so `cuMemGetInfo` has it.
fn used(now: &Now) -> u64 {
    now.total_bytes.saturating_sub(now.free_bytes)
}

pub(crate) fn info(_device: Device, to: Out<Memory>) -> Answer {
    let now = now()?;
    to.set(Memory { total: now.total_bytes, free: now.free_bytes, used: used(&now) });
    Ok(())
}

pub(crate) fn info_versioned(_device: Device, to: Versioned) -> Answer {
    let version = version_of::<MemoryV2>(2);
    if to.version() != version {
        return Err(Status::VERSION_MISMATCH);
    }
    let now = now()?;
    let (total, free, used) = (now.total_bytes, now.free_bytes, used(&now));
    to.write(version, MemoryV2 { version, padding: 0, total, reserved: 0, free, used })
        .ok_or(Status::VERSION_MISMATCH)
}

/// This process, where it has a session.
fn own() -> Result<Option<ProcessInfo>, Status> {
    Ok(now()?.own_bytes.map(|used_bytes| ProcessInfo {
        pid: std::process::id(),
        padding: 0,
        used_bytes,
        gpu_instance: NO_INSTANCE,
        compute_instance: NO_INSTANCE,
    }))
}

/// Says how many there are, and writes them where there is room for all.
fn list<T: Copy>(count: &InOut<u32>, to: &OutSlice<T>, processes: &[T]) -> Answer {
    let room = count.get();
    let there = u32::try_from(processes.len()).map_err(|_| Status::UNKNOWN)?;
    if room < there {
        count.set(there);
        return Err(Status::INSUFFICIENT_SIZE);
    }
    to.write(processes)?;
    count.set(there);
    Ok(())
}

pub(crate) fn processes(_device: Device, count: InOut<u32>, to: OutSlice<ProcessInfo>) -> Answer {
    list(&count, &to, own()?.as_slice())
}

pub(crate) fn processes_v1(_device: Device, count: InOut<u32>, to: OutSlice<ProcessInfoV1>) -> Answer {
    let own = own()?.map(|own| ProcessInfoV1 { pid: own.pid, padding: 0, used_bytes: own.used_bytes });
    list(&count, &to, own.as_slice())
}

/// A session has no graphics, and no server of MPS's.
pub(crate) fn no_processes<T: Copy>(_device: Device, count: InOut<u32>, _to: OutSlice<T>) -> Answer {
    count.set(0);
    Ok(())
}
