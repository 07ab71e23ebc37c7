//! The driver's calls as a native program makes them, for comparison.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::{
    CUfunction, CUresult, CUstream, cuLaunchKernel, cuModuleGetFunction, cuModuleLoadData, cuStreamCreate,
    cuStreamSynchronize,
};

fn check(result: CUresult) -> Result<(), String> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("{result:?}")) }
}

/// A stream and an entry whose parameters are a 64-bit and four 32-bit values.
pub(crate) struct Native {
    function: CUfunction,
    stream: CUstream,
}

impl Native {
    /// In the calling thread's context.
    pub(crate) fn new(ptx: &CStr, name: &CStr) -> Result<Self, String> {
        let (mut module, mut function, mut stream) = (null_mut(), null_mut(), null_mut());
        // SAFETY: both pointers outlive the call, and the text is terminated.
        check(unsafe { cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()) })?;
        // SAFETY: as above; the module is loaded and stays so.
        check(unsafe { cuModuleGetFunction(&raw mut function, module, name.as_ptr()) })?;
        // SAFETY: `stream` outlives the call.
        check(unsafe { cuStreamCreate(&raw mut stream, 1) })?;
        Ok(Self { function, stream })
    }

    pub(crate) fn launch_parameters(&self, mut pointer: u64, mut words: [u32; 4]) -> Result<(), String> {
        let [a, b, c, d] = &mut words;
        let mut parameters: [*mut c_void; 5] = [
            (&raw mut pointer).cast(),
            std::ptr::from_mut(a).cast(),
            std::ptr::from_mut(b).cast(),
            std::ptr::from_mut(c).cast(),
            std::ptr::from_mut(d).cast(),
        ];
        // SAFETY: the entry has these five parameters, and the driver copies them before it returns.
        check(unsafe {
            cuLaunchKernel(
                self.function,
                1,
                1,
                1,
                32,
                1,
                1,
                0,
                self.stream,
                parameters.as_mut_ptr(),
                null_mut(),
            )
        })
    }

    pub(crate) fn launch_buffer(&self, block: &[u8; 24]) -> Result<(), String> {
        let mut bytes = block.len();
        let mut extra: [*mut c_void; 5] = [
            std::ptr::without_provenance_mut(1),
            block.as_ptr().cast_mut().cast(),
            std::ptr::without_provenance_mut(2),
            (&raw mut bytes).cast(),
            null_mut(),
        ];
        // SAFETY: the buffer is as long as the entry's parameters, and the driver copies it before it returns.
        check(unsafe {
            cuLaunchKernel(self.function, 1, 1, 1, 32, 1, 1, 0, self.stream, null_mut(), extra.as_mut_ptr())
        })
    }

    pub(crate) fn synchronize(&self) -> Result<(), String> {
        // SAFETY: the stream lives as long as the process.
        check(unsafe { cuStreamSynchronize(self.stream) })
    }
}
