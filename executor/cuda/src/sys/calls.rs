//! One wrapper per driver call.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};

use bulkhead_gpu::{Access, DeviceAddress, FillPattern, HostAddress, Launch};
use cudarc::driver::sys::{
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1, CUlaunchConfig, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1,
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUuuid,
};

use super::{Code, Context, Driver, Event, Function, Module, Physical, Stream};

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`, `CU_LAUNCH_PARAM_END`: macros in cuda.h.
const LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
const LAUNCH_PARAM_BUFFER_SIZE: usize = 2;
const LAUNCH_PARAM_END: usize = 0;
/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`
const HOST_REGISTER_FLAGS: u32 = 1 | 2;
/// `CU_STREAM_NON_BLOCKING`
const STREAM_NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DEFAULT`: an event that takes a timestamp.
const EVENT_DEFAULT: u32 = 0;
/// `CU_EVENT_DISABLE_TIMING`
const EVENT_DISABLE_TIMING: u32 = 2;
/// `CU_STREAM_WRITE_VALUE_DEFAULT`: with the memory barrier before it.
const WRITE_VALUE_DEFAULT: u32 = 0;
/// `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`
const GRANULARITY_RECOMMENDED: c_int = 1;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, as an argument.
const HANDLE_TYPE_DESCRIPTOR: c_int = 1;

unsafe extern "C" {
    fn fflush(stream: *mut c_void) -> c_int;
}

/// A parameter block in the form that launches take it in.
pub(super) struct LaunchBuffer<'a> {
    bytes: usize,
    extra: [*mut c_void; 5],
    block: std::marker::PhantomData<&'a [u8]>,
}

impl<'a> LaunchBuffer<'a> {
    pub(super) fn new(block: &'a [u8]) -> Self {
        let extra = [
            with_exposed_provenance_mut(LAUNCH_PARAM_BUFFER_POINTER),
            block.as_ptr().cast_mut().cast(),
            with_exposed_provenance_mut(LAUNCH_PARAM_BUFFER_SIZE),
            null_mut(),
            with_exposed_provenance_mut(LAUNCH_PARAM_END),
        ];
        Self { bytes: block.len(), extra, block: std::marker::PhantomData }
    }

    /// The list that the driver reads; valid while this is neither moved nor dropped.
    pub(super) fn extra(&mut self) -> *mut *mut c_void {
        self.extra[3] = (&raw mut self.bytes).cast();
        self.extra.as_mut_ptr()
    }
}

fn location(device: c_int) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// Pinned memory of the device, exportable as a file descriptor.
fn properties(device: c_int) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: location(device),
        win32HandleMetaData: null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// Zeros behind an image that nobody has checked.
const FOREIGN_PADDING_BYTES: usize = 4096;

impl Driver {
    pub(crate) fn init(&self) -> Result<(), Code> {
        // SAFETY: may be called at any time, any number of times.
        Code::check(unsafe { (self.init)(0) })
    }

    fn text(
        &self,
        call: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
        code: Code,
    ) -> Option<String> {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: `text` outlives the call; any code is an allowed argument.
        Code::check(unsafe { call(code.0.cast_signed(), &raw mut text) }).ok()?;
        if text.is_null() {
            return None;
        }
        // SAFETY: on success the driver gives a terminated string that lives as long as the library.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// `cuGetErrorName`, for a code the driver knows.
    pub(crate) fn error_name(&self, code: Code) -> Option<String> {
        self.text(self.error_name, code)
    }

    /// `cuGetErrorString`, for a code the driver knows.
    pub(crate) fn error_string(&self, code: Code) -> Option<String> {
        self.text(self.error_string, code)
    }

    pub(crate) fn driver_version(&self) -> Result<c_int, Code> {
        let mut version = 0;
        // SAFETY: `version` outlives the call.
        Code::check(unsafe { (self.driver_version)(&raw mut version) }).map(|()| version)
    }

    pub(crate) fn device_count(&self) -> Result<c_int, Code> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        Code::check(unsafe { (self.device_count)(&raw mut count) }).map(|()| count)
    }

    pub(crate) fn device(&self, ordinal: c_int) -> Result<c_int, Code> {
        let mut device = 0;
        // SAFETY: `device` outlives the call; the driver checks the ordinal.
        Code::check(unsafe { (self.device)(&raw mut device, ordinal) }).map(|()| device)
    }

    pub(crate) fn device_name(&self, device: c_int) -> Result<String, Code> {
        let mut name = [0_u8; 256];
        // SAFETY: `name` outlives the call and is as long as said; the driver checks the device.
        Code::check(unsafe { (self.device_name)(name.as_mut_ptr().cast(), 256, device) })?;
        Ok(CStr::from_bytes_until_nul(&name)
            .map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned()))
    }

    pub(crate) fn device_uuid(&self, device: c_int) -> Result<[u8; 16], Code> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` outlives the call; the driver checks the device.
        Code::check(unsafe { (self.device_uuid)(&raw mut uuid, device) })?;
        Ok(uuid.bytes.map(i8::cast_unsigned))
    }

    pub(crate) fn device_memory(&self, device: c_int) -> Result<u64, Code> {
        let mut bytes = 0_usize;
        // SAFETY: `bytes` outlives the call; the driver checks the device.
        Code::check(unsafe { (self.device_memory)(&raw mut bytes, device) }).map(|()| bytes as u64)
    }

    pub(crate) fn device_attribute(&self, device: c_int, attribute: c_int) -> Result<c_int, Code> {
        let mut value = 0;
        // SAFETY: `value` outlives the call; the driver checks attribute and device.
        Code::check(unsafe { (self.device_attribute)(&raw mut value, attribute, device) }).map(|()| value)
    }

    pub(crate) fn context_retain(&self, device: c_int) -> Result<Context, Code> {
        let mut context = null_mut();
        // SAFETY: `context` outlives the call; the driver checks the device.
        Code::check(unsafe { (self.context_retain)(&raw mut context, device) }).map(|()| Context::of(context))
    }

    pub(crate) fn context_release(&self, device: c_int) -> Result<(), Code> {
        // SAFETY: the driver checks the device and counts the retentions.
        Code::check(unsafe { (self.context_release)(device) })
    }

    pub(crate) fn context_bind(&self, context: Context) -> Result<(), Code> {
        // SAFETY: the context was retained by the `Cuda` that holds it, and is released when that is dropped.
        Code::check(unsafe { (self.context_bind)(context.pointer()) })
    }

    pub(crate) fn granularity(&self, device: c_int) -> Result<usize, Code> {
        let mut bytes = 0;
        let properties = properties(device);
        // SAFETY: both pointers outlive the call.
        Code::check(unsafe {
            (self.granularity)(&raw mut bytes, &raw const properties, GRANULARITY_RECOMMENDED)
        })
        .map(|()| bytes)
    }

    /// Answers where the driver put the reservation, which need not be `hint`.
    pub(crate) fn reserve(&self, hint: DeviceAddress, bytes: usize) -> Result<DeviceAddress, Code> {
        let mut at = 0;
        // SAFETY: `at` outlives the call; a reservation touches no memory.
        Code::check(unsafe { (self.reserve)(&raw mut at, bytes, 0, hint.0, 0) }).map(|()| DeviceAddress(at))
    }

    pub(crate) fn unreserve(&self, at: DeviceAddress, bytes: usize) -> Result<(), Code> {
        // SAFETY: the driver checks that this is a reservation without mappings.
        Code::check(unsafe { (self.unreserve)(at.0, bytes) })
    }

    pub(crate) fn memory_create(&self, device: c_int, bytes: usize) -> Result<Physical, Code> {
        let mut handle = 0;
        let properties = properties(device);
        // SAFETY: both pointers outlive the call.
        Code::check(unsafe { (self.memory_create)(&raw mut handle, bytes, &raw const properties, 0) })
            .map(|()| Physical(handle))
    }

    pub(crate) fn memory_release(&self, memory: Physical) -> Result<(), Code> {
        // SAFETY: the handle was taken out of its table, so this is its one release; mappings keep what they need.
        Code::check(unsafe { (self.memory_release)(memory.0) })
    }

    pub(crate) fn memory_export(&self, memory: Physical) -> Result<OwnedFd, Code> {
        let mut descriptor: c_int = -1;
        let to = (&raw mut descriptor).cast();
        // SAFETY: for this type of handle the driver writes an `int`, which outlives the call; the handle is pinned in
        // its table.
        Code::check(unsafe { (self.memory_export)(to, memory.0, HANDLE_TYPE_DESCRIPTOR, 0) })?;
        if descriptor < 0 {
            return Err(Code::INVALID_HANDLE);
        }
        // SAFETY: on success the driver has opened a descriptor for the caller, who closes it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    pub(crate) fn memory_import(&self, descriptor: BorrowedFd<'_>) -> Result<Physical, Code> {
        let mut handle = 0;
        let number = usize::try_from(descriptor.as_raw_fd()).map_err(|_| Code::INVALID_VALUE)?;
        let from = with_exposed_provenance_mut(number);
        // SAFETY: `handle` outlives the call; for this type of handle the pointer is the descriptor's number, nothing
        // is read through it; the driver refuses a descriptor that is not memory, and leaves it open.
        Code::check(unsafe { (self.memory_import)(&raw mut handle, from, HANDLE_TYPE_DESCRIPTOR) })
            .map(|()| Physical(handle))
    }

    /// Free and total bytes of the device that the thread is bound to.
    pub(crate) fn memory_info(&self) -> Result<(usize, usize), Code> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both numbers outlive the call.
        Code::check(unsafe { (self.memory_info)(&raw mut free, &raw mut total) }).map(|()| (free, total))
    }

    pub(crate) fn map(&self, at: DeviceAddress, bytes: usize, memory: Physical) -> Result<(), Code> {
        // SAFETY: the handle is pinned in its table; the driver checks the range against reservations and mappings.
        Code::check(unsafe { (self.map)(at.0, bytes, 0, memory.0, 0) })
    }

    pub(crate) fn set_access(
        &self,
        device: c_int,
        at: DeviceAddress,
        bytes: usize,
        access: Access,
    ) -> Result<(), Code> {
        let flags = match access {
            Access::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Access::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let descriptor = CUmemAccessDesc { location: location(device), flags };
        // SAFETY: the descriptor outlives the call; the driver checks that the range is mapped.
        Code::check(unsafe { (self.set_access)(at.0, bytes, &raw const descriptor, 1) })
    }

    pub(crate) fn unmap(&self, at: DeviceAddress, bytes: usize) -> Result<(), Code> {
        // SAFETY: the range lies in reservations of device addresses, so no host memory goes away.
        Code::check(unsafe { (self.unmap)(at.0, bytes) })
    }

    pub(crate) fn host_register(&self, at: HostAddress, bytes: usize) -> Result<(), Code> {
        // SAFETY: pins pages of this process; the driver refuses a range that is not mapped.
        Code::check(unsafe {
            (self.host_register)(with_exposed_provenance_mut(at.0), bytes, HOST_REGISTER_FLAGS)
        })
    }

    pub(crate) fn host_unregister(&self, at: HostAddress) -> Result<(), Code> {
        // SAFETY: the range was taken out of the register, so no later call names it.
        Code::check(unsafe { (self.host_unregister)(with_exposed_provenance_mut(at.0)) })
    }

    pub(crate) fn host_device_address(&self, at: HostAddress) -> Result<DeviceAddress, Code> {
        let mut address = 0;
        // SAFETY: `address` outlives the call; the driver checks that `at` is registered.
        Code::check(unsafe {
            (self.host_device_address)(&raw mut address, with_exposed_provenance_mut(at.0), 0)
        })
        .map(|()| DeviceAddress(address))
    }

    pub(crate) fn stream_create(&self, priority: i32) -> Result<Stream, Code> {
        let mut stream = null_mut();
        // SAFETY: `stream` outlives the call; the driver clamps the priority.
        Code::check(unsafe { (self.stream_create)(&raw mut stream, STREAM_NON_BLOCKING, priority) })
            .map(|()| Stream::of(stream))
    }

    pub(crate) fn stream_destroy(&self, stream: Stream) -> Result<(), Code> {
        // SAFETY: the handle was taken out of its table, so this is its last use.
        Code::check(unsafe { (self.stream_destroy)(stream.pointer()) })
    }

    /// Empties the buffers of C's library, into which the driver prints.
    pub(crate) fn flush_output(&self) {
        // SAFETY: null stands for all of the C library's streams, which the call locks. What is lost is the tenant's output.
        unsafe { fflush(null_mut()) };
    }

    pub(crate) fn stream_synchronize(&self, stream: Stream) -> Result<(), Code> {
        // SAFETY: the handle is pinned in its table.
        Code::check(unsafe { (self.stream_synchronize)(stream.pointer()) })
    }

    pub(crate) fn stream_query(&self, stream: Stream) -> Result<(), Code> {
        // SAFETY: the handle is pinned in its table, or is the context's own.
        Code::check(unsafe { (self.stream_query)(stream.pointer()) })
    }

    pub(crate) fn event_create(&self) -> Result<Event, Code> {
        self.event_with(EVENT_DEFAULT)
    }

    /// One that takes no timestamp, which costs the stream less.
    pub(crate) fn event_create_untimed(&self) -> Result<Event, Code> {
        self.event_with(EVENT_DISABLE_TIMING)
    }

    fn event_with(&self, flags: u32) -> Result<Event, Code> {
        let mut event = null_mut();
        // SAFETY: `event` outlives the call.
        Code::check(unsafe { (self.event_create)(&raw mut event, flags) }).map(|()| Event::of(event))
    }

    /// Has what comes to a stream wait for what an event was recorded behind.
    pub(crate) fn stream_wait(&self, stream: Stream, event: Event) -> Result<(), Code> {
        // SAFETY: the stream is pinned in its table, and the event lives as long as the stream that it belongs to.
        Code::check(unsafe { (self.stream_wait)(stream.pointer(), event.pointer(), 0) })
    }

    pub(crate) fn event_destroy(&self, event: Event) -> Result<(), Code> {
        // SAFETY: the handle was taken out of its table, so this is its last use.
        Code::check(unsafe { (self.event_destroy)(event.pointer()) })
    }

    pub(crate) fn event_record(&self, event: Event, stream: Stream) -> Result<(), Code> {
        // SAFETY: both handles are pinned in their tables.
        Code::check(unsafe { (self.event_record)(event.pointer(), stream.pointer()) })
    }

    /// Milliseconds.
    pub(crate) fn event_elapsed(&self, start: Event, end: Event) -> Result<f32, Code> {
        let mut milliseconds = 0.0;
        // SAFETY: both handles are pinned in their tables; `milliseconds` outlives the call.
        Code::check(unsafe { (self.event_elapsed)(&raw mut milliseconds, start.pointer(), end.pointer()) })
            .map(|()| milliseconds)
    }

    /// Loads a cubin, as `ptxas` wrote it.
    pub(crate) fn module_load(&self, cubin: &[u8]) -> Result<Module, Code> {
        let mut module = null_mut();
        // SAFETY: both pointers outlive the call. The driver reads as far as the ELF header says; the bytes
        // are the output of the trusted `ptxas`, checked by the caller to be an ELF file of this length.
        Code::check(unsafe { (self.module_load)(&raw mut module, cubin.as_ptr().cast()) })
            .map(|()| Module::of(module))
    }

    /// Loads what a tenant gave, in a process that is that tenant's alone. The driver looks at what it is.
    pub(crate) fn module_load_foreign(&self, image: &[u8]) -> Result<Module, Code> {
        // It reads as far as a header says, whatever that is: zeros stand behind what was given.
        let mut padded = Vec::with_capacity(image.len() + FOREIGN_PADDING_BYTES);
        padded.extend_from_slice(image);
        padded.resize(image.len() + FOREIGN_PADDING_BYTES, 0);
        let mut module = null_mut();
        // SAFETY: both pointers outlive the call. Where a header claims more than there is, the driver reads beyond it or
        // faults: this process serves the session that gave the image, and no other.
        Code::check(unsafe { (self.module_load)(&raw mut module, padded.as_ptr().cast()) })
            .map(|()| Module::of(module))
    }

    /// The function of a name; `None` where the module has none.
    pub(crate) fn module_function(&self, module: Module, name: &CStr) -> Result<Option<Function>, Code> {
        let mut function = null_mut();
        // SAFETY: all pointers outlive the call, and the module is loaded: it leaves its table before it is unloaded.
        match Code::check(unsafe {
            (self.module_function)(&raw mut function, module.pointer(), name.as_ptr())
        }) {
            Ok(()) => Ok(Some(Function::of(function))),
            Err(Code::NOT_FOUND) => Ok(None),
            Err(code) => Err(code),
        }
    }

    /// Address and length of the variable of a name; `None` where the module has none.
    pub(crate) fn module_global(
        &self,
        module: Module,
        name: &CStr,
    ) -> Result<Option<(DeviceAddress, usize)>, Code> {
        let (mut at, mut bytes) = (0, 0);
        // SAFETY: as `module_function`.
        let found =
            unsafe { (self.module_global)(&raw mut at, &raw mut bytes, module.pointer(), name.as_ptr()) };
        match Code::check(found) {
            Ok(()) => Ok(Some((DeviceAddress(at), bytes))),
            Err(Code::NOT_FOUND) => Ok(None),
            Err(code) => Err(code),
        }
    }

    pub(crate) fn module_unload(&self, module: Module) -> Result<(), Code> {
        // SAFETY: the image and all its entries were taken out of their tables, so this is the last use.
        Code::check(unsafe { (self.module_unload)(module.pointer()) })
    }

    pub(crate) fn module_functions(&self, module: Module) -> Result<Vec<Function>, Code> {
        let mut count = 0;
        // SAFETY: `count` outlives the call; the module was just loaded and is nobody else's yet.
        Code::check(unsafe { (self.module_function_count)(&raw mut count, module.pointer()) })?;
        let mut functions = vec![null_mut(); count as usize];
        // SAFETY: `functions` has room for `count` handles; the module as above.
        Code::check(unsafe { (self.module_functions)(functions.as_mut_ptr(), count, module.pointer()) })?;
        Ok(functions.into_iter().map(Function::of).collect())
    }

    pub(crate) fn function_name(&self, function: Function) -> Result<String, Code> {
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: `name` outlives the call; the function's module is loaded and nobody else's yet.
        Code::check(unsafe { (self.function_name)(&raw mut name, function.pointer()) })?;
        if name.is_null() {
            return Ok(String::new());
        }
        // SAFETY: on success the driver gives a terminated string that lives as long as the module.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Offset and size of a parameter.
    pub(crate) fn function_parameter(
        &self,
        function: Function,
        index: usize,
    ) -> Result<(usize, usize), Code> {
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: both pointers outlive the call; the function's module is loaded; the driver checks the index.
        Code::check(unsafe {
            (self.function_parameter)(function.pointer(), index, &raw mut offset, &raw mut bytes)
        })
        .map(|()| (offset, bytes))
    }

    pub(crate) fn function_attribute(&self, function: Function, attribute: c_int) -> Result<c_int, Code> {
        let mut value = 0;
        // SAFETY: `value` outlives the call; the function is pinned in its table or its module nobody else's yet.
        Code::check(unsafe { (self.function_attribute)(&raw mut value, attribute, function.pointer()) })
            .map(|()| value)
    }

    pub(crate) fn function_set_attribute(
        &self,
        function: Function,
        attribute: c_int,
        value: c_int,
    ) -> Result<(), Code> {
        // SAFETY: the function is pinned in its table; the driver checks attribute and value.
        Code::check(unsafe { (self.function_set_attribute)(function.pointer(), attribute, value) })
    }

    pub(crate) fn launch(&self, stream: Stream, function: Function, launch: &Launch<'_>) -> Result<(), Code> {
        let [grid_x, grid_y, grid_z] = launch.grid;
        let [block_x, block_y, block_z] = launch.block;
        let mut buffer = LaunchBuffer::new(launch.parameters);
        // SAFETY: function and stream are pinned in their tables; the buffer holds as many bytes as the entry
        // has parameters (checked by the caller), and the driver copies it before it returns, without writing to it.
        Code::check(unsafe {
            (self.launch)(
                function.pointer(),
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                launch.shared_bytes,
                stream.pointer(),
                null_mut(),
                buffer.extra(),
            )
        })
    }

    /// With all blocks there at once, or the driver refuses (720), and in clusters of so many blocks, as is asked for.
    pub(crate) fn launch_with(
        &self,
        stream: Stream,
        function: Function,
        launch: &Launch<'_>,
        sides: Option<[u8; 3]>,
        together: bool,
    ) -> Result<(), Code> {
        let mut buffer = LaunchBuffer::new(launch.parameters);
        let cooperative = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
            pad: [0; 4],
            value: CUlaunchAttributeValue { cooperative: i32::from(together) },
        };
        let [x, y, z] = sides.unwrap_or([1; 3]).map(|side| u32::from(side.max(1)));
        let clusters = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value: CUlaunchAttributeValue {
                clusterDim: CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z },
            },
        };
        // The second is left out where the blocks form none.
        let mut attributes = [cooperative, clusters];
        let [grid_x, grid_y, grid_z] = launch.grid;
        let [block_x, block_y, block_z] = launch.block;
        let config = CUlaunchConfig {
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: launch.shared_bytes,
            hStream: stream.pointer(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: if sides.is_some() { 2 } else { 1 },
        };
        // SAFETY: as `launch`; the configuration names no more attributes than there are, and all live until the driver returns.
        Code::check(unsafe {
            (self.launch_with)(&raw const config, function.pointer(), null_mut(), buffer.extra())
        })
    }

    pub(crate) fn copy_to_device(
        &self,
        stream: Stream,
        to: DeviceAddress,
        from: HostAddress,
        bytes: usize,
    ) -> Result<(), Code> {
        // SAFETY: the stream is pinned in its table, the host range is pinned in the register of host memory, and the
        // device range lies in a reservation of device addresses.
        Code::check(unsafe {
            (self.copy_to_device)(to.0, with_exposed_provenance(from.0), bytes, stream.pointer())
        })
    }

    pub(crate) fn copy_to_host(
        &self,
        stream: Stream,
        to: HostAddress,
        from: DeviceAddress,
        bytes: usize,
    ) -> Result<(), Code> {
        // SAFETY: as for `copy_to_device`; nobody has a Rust reference to registered memory but through atomics.
        Code::check(unsafe {
            (self.copy_to_host)(with_exposed_provenance_mut(to.0), from.0, bytes, stream.pointer())
        })
    }

    pub(crate) fn copy_on_device(
        &self,
        stream: Stream,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: usize,
    ) -> Result<(), Code> {
        // SAFETY: the stream is pinned in its table; both ranges lie in reservations of device addresses.
        Code::check(unsafe { (self.copy_on_device)(to.0, from.0, bytes, stream.pointer()) })
    }

    pub(crate) fn fill(
        &self,
        stream: Stream,
        to: DeviceAddress,
        pattern: FillPattern,
        count: usize,
    ) -> Result<(), Code> {
        let result = match pattern {
            // SAFETY: the stream is pinned in its table; the range lies in a reservation of device addresses.
            FillPattern::Bits8(value) => unsafe { (self.fill8)(to.0, value, count, stream.pointer()) },
            // SAFETY: as above.
            FillPattern::Bits16(value) => unsafe { (self.fill16)(to.0, value, count, stream.pointer()) },
            // SAFETY: as above.
            FillPattern::Bits32(value) => unsafe { (self.fill32)(to.0, value, count, stream.pointer()) },
        };
        Code::check(result)
    }

    pub(crate) fn write_value64(&self, stream: Stream, at: DeviceAddress, value: u64) -> Result<(), Code> {
        // SAFETY: the stream is pinned in its table; the address is that of registered host memory, pinned in its register.
        Code::check(unsafe { (self.write_value64)(stream.pointer(), at.0, value, WRITE_VALUE_DEFAULT) })
    }
}
