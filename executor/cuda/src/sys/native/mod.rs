//! The calls of whatever `libcuda.so.1` the loader finds, as a program makes them: for measuring.
//!
//! [`Driver::open`] opens the library by exactly that name, so that the same process measures NVIDIA's driver or
//! Bulkhead's, by where `LD_LIBRARY_PATH` leads. It shares nothing with the backend, which must find NVIDIA's.
//!
//! Device memory, pinned memory and entries are values that only the driver makes, and every copy is checked
//! against their sizes. The only kernels are those of `IMAGE`, whose parameters and stores are known here.
//!
//! # Trusts
//! The library, to be a CUDA driver.

mod calls;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUfunction, CUmodule, CUstream};

/// The name that programs open.
pub const LIBRARY: &str = "libcuda.so.1";

/// Two kernels of one pointer parameter: `empty` does nothing, and each thread of `count` adds one to the
/// 32-bit word there.
const IMAGE: &CStr = c"
.version 8.0
.target sm_75
.address_size 64

.visible .entry empty(
	.param .u64 p
)
{
	ret;
}

.visible .entry count(
	.param .u64 p
)
{
	.reg .b64 %rd<3>;

	ld.param.u64 %rd1, [p];
	cvta.to.global.u64 %rd2, %rd1;
	red.global.add.u32 [%rd2], 1;
	ret;
}
";

/// Why there is no driver to call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The loader does not open the library.
    #[error("{0}")]
    Library(String),
    /// The library lacks a symbol.
    #[error("{LIBRARY} has no {0}")]
    Symbol(&'static str),
}

/// A call that was answered with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} answered {code}")]
pub struct Refusal {
    /// Its symbol.
    pub call: &'static str,
    /// `CUresult`
    pub code: u32,
}

/// A device, by CUDA's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device(CUdevice);

/// A device's primary context.
#[derive(Debug, Clone, Copy)]
pub struct Context(CUcontext);

/// A loaded `IMAGE`.
#[derive(Debug, Clone, Copy)]
pub struct Module(CUmodule);

/// One of the kernels that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Does nothing.
    Empty,
    /// Each thread adds one to the first word of the memory.
    Count,
}

/// An entry of a loaded `IMAGE`.
#[derive(Debug, Clone, Copy)]
pub struct Entry(CUfunction);

/// A stream.
#[derive(Debug, Clone, Copy)]
pub struct Stream(CUstream);

/// Memory of a device. Not freed when dropped: freeing is a call that can fail, and that is measured.
#[derive(Debug)]
pub struct DeviceMemory {
    address: CUdeviceptr,
    bytes: usize,
}

/// Pinned host memory, for asynchronous copies. Not freed when dropped, as above.
#[derive(Debug)]
pub struct PinnedMemory {
    address: *mut c_void,
    bytes: usize,
}

/// The loader's own words, where it said any.
fn reason(error: &libloading::Error) -> String {
    let said = std::error::Error::source(error).map(ToString::to_string);
    said.unwrap_or_else(|| format!("{LIBRARY}: {error}"))
}

macro_rules! symbols {
    ($($field:ident = $symbol:literal ( $($argument:ty),* );)*) => {
        /// A driver's library, open.
        pub struct Driver {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// Keeps the symbols where they are: never closed, a driver may have threads of its own.
            _library: ManuallyDrop<libloading::Library>,
        }

        impl Driver {
            /// Opens the library that the loader finds as [`LIBRARY`].
            ///
            /// # Errors
            /// What is missing.
            pub fn open() -> Result<Self, Unusable> {
                // SAFETY: opening a CUDA driver runs its constructors only, and they may run at any time; that it is one is
                // trusted (crate::sys::native).
                let library = unsafe { libloading::Library::new(LIBRARY) };
                let library = library.map_err(|error| Unusable::Library(reason(&error)))?;
                let library = ManuallyDrop::new(library);
                $(
                    // SAFETY: the type is that of the symbol in cuda.h of CUDA 13.0, and a driver never changes the type of a
                    // versioned symbol.
                    let symbol = unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) -> c_int>(concat!($symbol, "\0").as_bytes())
                    };
                    let Ok($field) = symbol.map(|symbol| *symbol) else { return Err(Unusable::Symbol($symbol)) };
                )*
                Ok(Self { $($field,)* _library: library })
            }
        }
    };
}

symbols! {
    init = "cuInit"(c_uint);
    error_name = "cuGetErrorName"(c_int, *mut *const c_char);
    version = "cuDriverGetVersion"(*mut c_int);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device = "cuDeviceGet"(*mut CUdevice, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, CUdevice);
    context_retain = "cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
    context_bind = "cuCtxSetCurrent"(CUcontext);
    context_synchronize = "cuCtxSynchronize"();
    module_load = "cuModuleLoadData"(*mut CUmodule, *const c_void);
    module_function = "cuModuleGetFunction"(*mut CUfunction, CUmodule, *const c_char);
    stream_create = "cuStreamCreate"(*mut CUstream, c_uint);
    stream_synchronize = "cuStreamSynchronize"(CUstream);
    launch = "cuLaunchKernel"(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
    );
    allocate = "cuMemAlloc_v2"(*mut CUdeviceptr, usize);
    free = "cuMemFree_v2"(CUdeviceptr);
    host_allocate = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost"(*mut c_void);
    copy_to_device = "cuMemcpyHtoD_v2"(CUdeviceptr, *const c_void, usize);
    copy_to_host = "cuMemcpyDtoH_v2"(*mut c_void, CUdeviceptr, usize);
    copy_to_device_async = "cuMemcpyHtoDAsync_v2"(CUdeviceptr, *const c_void, usize, CUstream);
    copy_to_host_async = "cuMemcpyDtoHAsync_v2"(*mut c_void, CUdeviceptr, usize, CUstream);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_the_library_names_what_is_missing_or_finds_a_driver() {
        match Driver::open() {
            Err(missing) => {
                let text = missing.to_string();
                assert!(text.contains(LIBRARY), "{text}");
                println!("skipped: {text}");
            }
            Ok(driver) => assert!(driver.version().is_ok_and(|version| version >= 12_000)),
        }
    }

    #[test]
    fn a_refusal_names_the_call_and_its_code() {
        let refusal = Refusal { call: "cuMemAlloc", code: 2 };
        assert_eq!(refusal.to_string(), "cuMemAlloc answered 2");
    }
}
