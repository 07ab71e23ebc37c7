//! Calls about the driver as a whole: beginning, its version, its errors' names, its export tables.

use std::ffi::{c_char, c_void};

use super::{VERSION, driver, open};
use crate::abi::{In, Out};
use crate::report;
use crate::status::{Answer, Status, describe};

pub(crate) fn init(flags: u32) -> Answer {
    if flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    open().map(drop)
}

pub(crate) fn version(to: Out<i32>) -> Answer {
    to.set(VERSION.cast_signed());
    Ok(())
}

pub(crate) fn error_name(code: u32, to: Out<*const c_char>) -> Answer {
    describe_to(code, &to, |(name, _)| name.as_ptr())
}

pub(crate) fn error_string(code: u32, to: Out<*const c_char>) -> Answer {
    describe_to(code, &to, |(_, text)| text.as_ptr())
}

type Described = (&'static std::ffi::CStr, &'static std::ffi::CStr);

fn describe_to(code: u32, to: &Out<*const c_char>, part: fn(Described) -> *const c_char) -> Answer {
    let described = describe(code);
    to.set(described.map_or(std::ptr::null(), part));
    described.map(drop).ok_or(Status::INVALID_VALUE)
}

pub(crate) fn export_table(to: Out<*const c_void>, id: In<[u8; 16]>) -> Answer {
    match crate::abi::export_table(&id.0) {
        Some(table) => {
            to.set(table);
            Ok(())
        }
        None => {
            if report::tracing() {
                let id: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
                report::once(&format!("cuGetExportTable: no table {id}"));
            }
            to.set(std::ptr::null());
            Err(Status::INVALID_VALUE)
        }
    }
}

/// Profiling tools are not there; starting and stopping them is harmless, as without one on NVIDIA's driver.
pub(crate) fn profiler() -> Answer {
    driver().map(drop)
}
