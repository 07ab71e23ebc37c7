//! One wrapper per call. Each answers the driver's own refusal.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicU64;

use super::{
    Context, Device, DeviceMemory, Driver, Entry, IMAGE, Kernel, Module, PinnedMemory, Refusal, Stream,
};

/// `CU_STREAM_NON_BLOCKING`
const STREAM_NON_BLOCKING: u32 = 1;
/// Threads of a launch.
const THREADS: u32 = 32;
/// What [`Kernel::Count`] adds to.
const WORD_BYTES: usize = 4;

fn check(call: &'static str, result: c_int) -> Result<(), Refusal> {
    match result {
        0 => Ok(()),
        code => Err(Refusal { call, code: code.cast_unsigned() }),
    }
}

impl Driver {
    /// `cuInit`
    pub fn init(&self) -> Result<(), Refusal> {
        // SAFETY: may be called at any time, any number of times.
        check("cuInit", unsafe { (self.init)(0) })
    }

    /// The driver's name for the code of a refusal, if it has one.
    #[must_use]
    pub fn name(&self, refusal: Refusal) -> Option<String> {
        let mut text: *const c_char = null();
        // SAFETY: `text` outlives the call; any code is an allowed argument.
        let named = unsafe { (self.error_name)(refusal.code.cast_signed(), &raw mut text) };
        if named != 0 || text.is_null() {
            return None;
        }
        // SAFETY: on success the driver gives a terminated string that lives as long as the library.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// `cuDriverGetVersion`: 13000 for CUDA 13.0.
    pub fn version(&self) -> Result<i32, Refusal> {
        let mut version = 0;
        // SAFETY: `version` outlives the call.
        check("cuDriverGetVersion", unsafe { (self.version)(&raw mut version) }).map(|()| version)
    }

    /// `cuDeviceGetCount`
    pub fn device_count(&self) -> Result<i32, Refusal> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        check("cuDeviceGetCount", unsafe { (self.device_count)(&raw mut count) }).map(|()| count)
    }

    /// `cuDeviceGet`
    pub fn device(&self, ordinal: i32) -> Result<Device, Refusal> {
        let mut device = 0;
        // SAFETY: `device` outlives the call; the driver checks the ordinal.
        check("cuDeviceGet", unsafe { (self.device)(&raw mut device, ordinal) }).map(|()| Device(device))
    }

    /// `cuDeviceGetName`
    pub fn device_name(&self, device: Device) -> Result<String, Refusal> {
        let mut name = [0_u8; 256];
        // SAFETY: `name` outlives the call and is as long as said; the driver checks the device.
        check("cuDeviceGetName", unsafe { (self.device_name)(name.as_mut_ptr().cast(), 256, device.0) })?;
        Ok(CStr::from_bytes_until_nul(&name)
            .map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned()))
    }

    /// `cuDevicePrimaryCtxRetain`; it is released by the end of the process.
    pub fn context_retain(&self, device: Device) -> Result<Context, Refusal> {
        let mut context = null_mut();
        // SAFETY: `context` outlives the call; the driver checks the device.
        check("cuDevicePrimaryCtxRetain", unsafe { (self.context_retain)(&raw mut context, device.0) })
            .map(|()| Context(context))
    }

    /// `cuCtxSetCurrent`
    pub fn context_bind(&self, context: Context) -> Result<(), Refusal> {
        // SAFETY: the context was retained and is never released.
        check("cuCtxSetCurrent", unsafe { (self.context_bind)(context.0) })
    }

    /// `cuCtxSynchronize`
    pub fn context_synchronize(&self) -> Result<(), Refusal> {
        // SAFETY: the driver checks that a context is current.
        check("cuCtxSynchronize", unsafe { (self.context_synchronize)() })
    }

    /// `cuModuleLoadData` of the image that there is; it is never unloaded.
    pub fn module_load(&self) -> Result<Module, Refusal> {
        let mut module = null_mut();
        // SAFETY: `module` outlives the call, and the text is terminated.
        check("cuModuleLoadData", unsafe { (self.module_load)(&raw mut module, IMAGE.as_ptr().cast()) })
            .map(|()| Module(module))
    }

    /// `cuModuleGetFunction`
    pub fn module_function(&self, module: Module, kernel: Kernel) -> Result<Entry, Refusal> {
        let name = match kernel {
            Kernel::Empty => c"empty",
            Kernel::Count => c"count",
        };
        let mut function = null_mut();
        // SAFETY: `function` outlives the call, the name is terminated, and the module is never unloaded.
        check("cuModuleGetFunction", unsafe {
            (self.module_function)(&raw mut function, module.0, name.as_ptr())
        })
        .map(|()| Entry(function))
    }

    /// `cuStreamCreate`, one that does not wait for the null stream; it is never destroyed.
    pub fn stream_create(&self) -> Result<Stream, Refusal> {
        let mut stream = null_mut();
        // SAFETY: `stream` outlives the call.
        check("cuStreamCreate", unsafe { (self.stream_create)(&raw mut stream, STREAM_NON_BLOCKING) })
            .map(|()| Stream(stream))
    }

    /// `cuStreamSynchronize`
    pub fn stream_synchronize(&self, stream: Stream) -> Result<(), Refusal> {
        // SAFETY: the stream is never destroyed.
        check("cuStreamSynchronize", unsafe { (self.stream_synchronize)(stream.0) })
    }

    /// `cuLaunchKernel` of one block of 32 threads, with its parameters as a compiled program passes them.
    #[inline]
    pub fn launch(&self, entry: Entry, stream: Stream, memory: &DeviceMemory) -> Result<(), Refusal> {
        assert!(memory.bytes >= WORD_BYTES);
        let mut pointer = memory.address;
        let mut parameters: [*mut c_void; 1] = [(&raw mut pointer).cast()];
        // SAFETY: the entry is one of `IMAGE`, whose only parameter has eight bytes, and the driver copies it before it
        // returns; the kernel stores into the first word of the memory only (asserted), which is not freed before the
        // kernel has ended: the driver waits there.
        check("cuLaunchKernel", unsafe {
            (self.launch)(entry.0, 1, 1, 1, THREADS, 1, 1, 0, stream.0, parameters.as_mut_ptr(), null_mut())
        })
    }

    /// `cuMemAlloc`
    pub fn allocate(&self, bytes: usize) -> Result<DeviceMemory, Refusal> {
        let mut address = 0;
        // SAFETY: `address` outlives the call.
        check("cuMemAlloc", unsafe { (self.allocate)(&raw mut address, bytes) })
            .map(|()| DeviceMemory { address, bytes })
    }

    /// `cuMemFree`
    pub fn free(&self, memory: DeviceMemory) -> Result<(), Refusal> {
        // SAFETY: the address was allocated, and is freed once: the value is consumed.
        check("cuMemFree", unsafe { (self.free)(memory.address) })
    }

    /// `cuMemHostAlloc`
    pub fn host_allocate(&self, bytes: usize) -> Result<PinnedMemory, Refusal> {
        let mut address = null_mut();
        // SAFETY: `address` outlives the call.
        check("cuMemHostAlloc", unsafe { (self.host_allocate)(&raw mut address, bytes, 0) })?;
        assert!(!address.is_null() && address.cast::<AtomicU64>().is_aligned());
        Ok(PinnedMemory { address, bytes })
    }

    /// `cuMemFreeHost`
    pub fn host_free(&self, memory: PinnedMemory) -> Result<(), Refusal> {
        // SAFETY: the address was allocated, and is freed once: the value is consumed. The driver waits for the copies.
        check("cuMemFreeHost", unsafe { (self.host_free)(memory.address) })
    }

    /// `cuMemcpyHtoD`, to the beginning of the memory.
    #[inline]
    pub fn copy_to_device(&self, to: &DeviceMemory, from: &[u8]) -> Result<(), Refusal> {
        assert!(from.len() <= to.bytes);
        // SAFETY: both ends are as long as the copy (asserted), and the driver has read the source when it returns.
        check("cuMemcpyHtoD", unsafe { (self.copy_to_device)(to.address, from.as_ptr().cast(), from.len()) })
    }

    /// `cuMemcpyDtoH`, from the beginning of the memory.
    #[inline]
    pub fn copy_to_host(&self, to: &mut [u8], from: &DeviceMemory) -> Result<(), Refusal> {
        assert!(to.len() <= from.bytes);
        // SAFETY: both ends are as long as the copy (asserted), and the driver has written when it returns.
        check("cuMemcpyDtoH", unsafe { (self.copy_to_host)(to.as_mut_ptr().cast(), from.address, to.len()) })
    }

    /// `cuMemcpyHtoDAsync` of all of the pinned memory.
    #[inline]
    pub fn copy_to_device_async(
        &self,
        to: &DeviceMemory,
        from: &PinnedMemory,
        stream: Stream,
    ) -> Result<(), Refusal> {
        assert!(from.bytes <= to.bytes);
        // SAFETY: both ends are as long as the copy (asserted); freeing either waits for it, and the pinned words are
        // atomics to everybody in this process.
        check("cuMemcpyHtoDAsync", unsafe {
            (self.copy_to_device_async)(to.address, from.address, from.bytes, stream.0)
        })
    }

    /// `cuMemcpyDtoHAsync` that fills all of the pinned memory.
    #[inline]
    pub fn copy_to_host_async(
        &self,
        to: &PinnedMemory,
        from: &DeviceMemory,
        stream: Stream,
    ) -> Result<(), Refusal> {
        assert!(to.bytes <= from.bytes);
        // SAFETY: as for the other direction.
        check("cuMemcpyDtoHAsync", unsafe {
            (self.copy_to_host_async)(to.address, from.address, to.bytes, stream.0)
        })
    }
}

impl PinnedMemory {
    /// Its 64-bit words, which copies in flight may read and write.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the driver gave `bytes` bytes there, not null and aligned (asserted in `host_allocate`), initialised by
        // the system, and they are freed by consuming `self`.
        unsafe { std::slice::from_raw_parts(self.address.cast(), self.bytes / size_of::<AtomicU64>()) }
    }
}
