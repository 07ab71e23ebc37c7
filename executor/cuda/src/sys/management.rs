//! NVIDIA's management library (NVML): what each process has taken of a device. The driver itself tells of its own process only.

use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::ManuallyDrop;

use bulkhead_gpu::Error;

const LIBRARY: &str = "libnvidia-ml.so.1";
/// `NVML_SUCCESS`, `NVML_ERROR_INSUFFICIENT_SIZE`
const SUCCESS: c_int = 0;
const TOO_MANY: c_int = 7;
/// Processes on one device that are told of.
const PROCESSES_MAX: usize = 1024;
/// What NVML says of memory that it does not know.
const UNKNOWN: u64 = u64::MAX;

/// `nvmlProcessInfo_t` as `nvmlDeviceGetComputeRunningProcesses_v3` has it (nvml.h of CUDA 13.0).
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    pid: c_uint,
    used_bytes: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

const _: () = assert!(size_of::<Process>() == 24 && std::mem::offset_of!(Process, used_bytes) == 8);

/// `nvmlMemory_t`: what there is, what is free, what is taken.
#[repr(C)]
#[derive(Clone, Copy)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

type Init = unsafe extern "C" fn() -> c_int;
type Find = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type Info = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;
type Processes = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut Process) -> c_int;

/// The library, with one device found.
pub(crate) struct Management {
    device: *mut c_void,
    processes: Processes,
    memory: Info,
    /// Never closed: it keeps the symbol where it is.
    _library: ManuallyDrop<libloading::Library>,
}

// SAFETY: NVML's calls may come from any thread, and a device's handle is good in all of them (nvml.h).
unsafe impl Send for Management {}
// SAFETY: as above.
unsafe impl Sync for Management {}

/// A device's UUID as NVML writes it.
fn name(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    format!("GPU-{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

impl Management {
    /// Opens the library, and finds the device of a UUID. The error says why not.
    pub(crate) fn open(uuid: &[u8; 16]) -> Result<Self, String> {
        // SAFETY: opening NVIDIA's library runs its constructors only, and they may run at any time.
        let library = unsafe { libloading::Library::new(LIBRARY) };
        let library = ManuallyDrop::new(library.map_err(|error| format!("{LIBRARY}: {error}"))?);
        let missing = |error: libloading::Error| error.to_string();
        // SAFETY: the type is that of the symbol in nvml.h, and versioned symbols do not change theirs.
        let init = unsafe { library.get::<Init>(b"nvmlInit_v2\0") };
        // SAFETY: as above.
        let find = unsafe { library.get::<Find>(b"nvmlDeviceGetHandleByUUID\0") };
        // SAFETY: as above.
        let processes = unsafe { library.get::<Processes>(b"nvmlDeviceGetComputeRunningProcesses_v3\0") };
        // SAFETY: as above.
        let memory = unsafe { library.get::<Info>(b"nvmlDeviceGetMemoryInfo\0") };
        let (init, find) = (*init.map_err(missing)?, *find.map_err(missing)?);
        let (processes, memory) = (*processes.map_err(missing)?, *memory.map_err(missing)?);
        let check = |call: &str, code: c_int| {
            if code == SUCCESS { Ok(()) } else { Err(format!("{call}: error {code}")) }
        };
        // SAFETY: takes nothing.
        check("nvmlInit", unsafe { init() })?;
        let uuid = CString::new(name(uuid)).map_err(|error| error.to_string())?;
        let mut device = std::ptr::null_mut();
        // SAFETY: the name ends with a NUL, and both outlive the call.
        check("nvmlDeviceGetHandleByUUID", unsafe { find(uuid.as_ptr(), &raw mut device) })?;
        Ok(Self { device, processes, memory, _library: library })
    }

    /// What is taken of the device in all, in bytes: by processes, by the driver itself, by nobody.
    pub(crate) fn taken_in_all(&self) -> Result<u64, Error> {
        let mut memory = Memory { total: 0, free: 0, used: 0 };
        // SAFETY: it outlives the call.
        match unsafe { (self.memory)(self.device, &raw mut memory) } {
            SUCCESS => Ok(memory.used),
            code => Err(Error::Refused(format!("nvmlDeviceGetMemoryInfo: error {code}"))),
        }
    }

    /// What each process has taken of the device, in bytes, of those that it is known of; and whether those are all: this one is
    /// among them.
    pub(crate) fn taken_memory(&self) -> Result<(Vec<(u32, u64)>, bool), Error> {
        let mut found =
            vec![Process { pid: 0, used_bytes: 0, gpu_instance: 0, compute_instance: 0 }; PROCESSES_MAX];
        let mut count = c_uint::try_from(found.len()).unwrap_or(0);
        // SAFETY: there is room for `count` processes, and both outlive the call.
        let code = unsafe { (self.processes)(self.device, &raw mut count, found.as_mut_ptr()) };
        if code != SUCCESS && code != TOO_MANY {
            return Err(Error::Refused(format!("nvmlDeviceGetComputeRunningProcesses: error {code}")));
        }
        found.truncate(count as usize);
        let is_known = |process: &&Process| process.used_bytes != UNKNOWN;
        let is_whole = code == SUCCESS
            && found.iter().all(|process| is_known(&process))
            && found.iter().any(|process| process.pid == std::process::id());
        let known = found.iter().filter(is_known);
        Ok((known.map(|process| (process.pid, process.used_bytes)).collect(), is_whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_as_nvml_names_it() {
        let uuid = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(name(&uuid), "GPU-12345678-9abc-def0-0102-030405060708");
    }
}
