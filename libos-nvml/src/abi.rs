//! The C symbols of `libnvidia-ml.so.1`: the only unsafe code of this crate.
//!
//! Each export is one row: the symbol, its arguments as [`args`] reads them, and the safe function that serves it. What a C
//! caller promises (a pointer is null or good for what the call's documentation says) is relied on in [`args`], and
//! nowhere else.

mod args;
mod layouts;
mod names;
mod served;
pub(crate) mod session;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use args::{Device, InOut, InOutSlice, Out, OutSlice, OutText, Text, Versioned};
pub(crate) use layouts::{
    ConfComputeSettings, ConfComputeState, FabricInfo, FabricInfoV2, FabricInfoV3, FieldValue, Memory,
    MemoryV2, PciInfo, PciInfoExt, PciInfoV1, PciInfoV2, ProcessInfo, ProcessInfoV1, Uuid, version_of,
};

#[cfg(test)]
pub(crate) use names::FAMILIES;
#[cfg(test)]
pub(crate) use served::SERVED;

use crate::status::{Answer, SUCCESS, Status};
use crate::trace;

/// Runs a call; a panic must not unwind into C. Where it fails, that is told to who asked for it.
fn call(symbol: &str, body: impl FnOnce() -> Answer) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => {
            trace::failed(symbol, status);
            status.code()
        }
        Err(_) => Status::UNKNOWN.code(),
    }
}
