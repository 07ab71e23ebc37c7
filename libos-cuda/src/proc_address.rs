//! `cuGetProcAddress`: from a name and a version to a function.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::OnceLock;

use crate::abi::{FAMILIES, Function, Lookup, NullStream, Out, OutMaybe, Row, Text, rows};
use crate::report;
use crate::status::{Answer, Status};

/// Functions with the null stream as the flags' bit 1 says: the calling thread's own.
const PER_THREAD: u64 = 2;
const FLAGS: u64 = 3;

/// `CUdriverProcAddressQueryResult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Success = 0,
    NoSymbol = 1,
    VersionNotSufficient = 2,
}

fn by_name() -> &'static HashMap<&'static str, Vec<&'static Row>> {
    static BY_NAME: OnceLock<HashMap<&'static str, Vec<&'static Row>>> = OnceLock::new();
    BY_NAME.get_or_init(|| {
        let mut map: HashMap<&str, Vec<&Row>> = HashMap::new();
        // Whoever calls a refused one is told why it is not served.
        let refused =
            FAMILIES.iter().filter(|family| family.lookup == Lookup::Found).flat_map(|family| family.rows);
        for row in rows().chain(refused) {
            map.entry(row.name).or_default().push(row);
        }
        map
    })
}

/// The latest function of that name that a program of `version` knows, for its kind of null stream.
fn find(name: &str, version: i32, flags: u64) -> Result<&'static Row, Found> {
    let rows = by_name().get(name).ok_or(Found::NoSymbol)?;
    let latest = |null_stream: NullStream| {
        rows.iter()
            .filter(|row| row.null_stream == null_stream && row.since <= version)
            .max_by_key(|row| row.since)
            .copied()
    };
    let per_thread = if flags & PER_THREAD == 0 { None } else { latest(NullStream::PerThread) };
    per_thread.or_else(|| latest(NullStream::Legacy)).ok_or(Found::VersionNotSufficient)
}

pub(crate) fn get(name: Text, to: Out<*const c_void>, version: i32, flags: u64) -> Answer {
    look_up(&name.0, &to, version, flags).map_err(|_| Status::NOT_FOUND)
}

pub(crate) fn get_with_reason(
    name: Text,
    to: Out<*const c_void>,
    version: i32,
    flags: u64,
    found: OutMaybe<u32>,
) -> Answer {
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let answer = look_up(&name.0, &to, version, flags);
    found.set(answer.err().unwrap_or(Found::Success) as u32);
    answer.map_err(|_| Status::NOT_FOUND)
}

fn look_up(name: &str, to: &Out<*const c_void>, version: i32, flags: u64) -> Result<(), Found> {
    let function = find(name, version, flags).map(|row| row.function);
    to.set(function.map_or(std::ptr::null(), Function::pointer));
    if function.is_err() && report::tracing() {
        report::once(&format!("cuGetProcAddress: no {name} of version {version}"));
    }
    function.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, version: i32, flags: u64) -> Result<&'static str, Found> {
        find(name, version, flags).map(|row| row.symbol)
    }

    #[test]
    fn the_latest_function_that_the_program_knows_is_found() {
        assert_eq!(symbol("cuCtxGetDevice", 12080, 0), Ok("cuCtxGetDevice"));
        assert_eq!(symbol("cuCtxGetDevice", 13000, 0), Ok("cuCtxGetDevice_v2"));
        assert_eq!(symbol("cuMemAlloc", 2000, 0), Ok("cuMemAlloc"));
        assert_eq!(symbol("cuMemAllocAsync", 11010, 0), Err(Found::VersionNotSufficient));
        assert_eq!(symbol("cuMemAlloc", 99000, 0), Ok("cuMemAlloc_v2"));
        assert_eq!(symbol("cuNoSuchThing", 13000, 0), Err(Found::NoSymbol));
        assert_eq!(symbol("cuMemAlloc_v2", 13000, 0), Err(Found::NoSymbol));
    }

    #[test]
    fn a_refused_function_is_found_where_its_absence_would_not_be_understood() {
        assert_eq!(symbol("cuStreamWaitValue32", 12000, 0), Ok("cuStreamWaitValue32_v2"));
        assert_eq!(symbol("cuStreamWaitValue32", 12000, 2), Ok("cuStreamWaitValue32_v2_ptsz"));
        assert_eq!(symbol("cuTensorMapEncodeTiled", 11080, 0), Err(Found::VersionNotSufficient));
        assert_eq!(symbol("cuMemGetHandleForAddressRange", 13000, 0), Err(Found::NoSymbol));
        assert_eq!(symbol("cuMulticastCreate", 13000, 0), Ok("cuMulticastCreate"));
    }

    #[test]
    fn the_flags_choose_the_null_stream() {
        assert_eq!(symbol("cuLaunchKernel", 13000, 0), Ok("cuLaunchKernel"));
        assert_eq!(symbol("cuLaunchKernel", 13000, 1), Ok("cuLaunchKernel"));
        assert_eq!(symbol("cuLaunchKernel", 13000, 2), Ok("cuLaunchKernel_ptsz"));
        assert_eq!(symbol("cuLaunchKernel", 5000, 2), Ok("cuLaunchKernel"));
        assert_eq!(symbol("cuInit", 13000, 2), Ok("cuInit"));
    }
}
