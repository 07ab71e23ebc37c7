//! The CUDA driver that the process has: `libcuda.so.1`, opened by that name. On Bulkhead that is the library OS.
//!
//! Its calls as cuda.h declares them. Addresses of the device are numbers to the driver, which checks them; host memory is
//! passed as slices, and a callback gets a number in the place of a pointer.

use std::{ffi::c_void, sync::OnceLock};

use libloading::Library;

/// A `CUresult` that is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the CUDA driver answers {0}")]
pub struct Failed(pub u32);

impl Failed {
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: Self = Self(1);
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// `CUDA_ERROR_NOT_READY`.
    pub const NOT_READY: Self = Self(600);
}

/// An IPC handle of memory.
pub type MemoryHandle = [u8; 64];

/// As the driver takes it: in a struct, so by value in memory.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawHandle(MemoryHandle);
const _: () = assert!(size_of::<RawHandle>() == 64);

type HostFunction = extern "C" fn(*mut c_void);

macro_rules! calls {
    ($($field:ident $symbol:literal ($($kind:ty),*);)*) => {
        struct Calls { $($field: unsafe extern "C" fn($($kind),*) -> u32),* }

        impl Calls {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self { $($field: {
                    // SAFETY: cuda.h declares the function of this name so.
                    let symbol = unsafe {
                        library.get::<unsafe extern "C" fn($($kind),*) -> u32>(concat!($symbol, "\0").as_bytes())
                    };
                    *symbol?
                }),* })
            }
        }
    };
}

calls! {
    init "cuInit" (u32);
    device "cuDeviceGet" (*mut i32, i32);
    device_name "cuDeviceGetName" (*mut u8, i32, i32);
    retain "cuDevicePrimaryCtxRetain" (*mut usize, i32);
    set_current "cuCtxSetCurrent" (usize);
    current "cuCtxGetCurrent" (*mut usize);
    stream "cuStreamCreate" (*mut u64, u32);
    synchronize "cuStreamSynchronize" (u64);
    query "cuStreamQuery" (u64);
    stream_flags "cuStreamGetFlags" (u64, *mut u32);
    is_capturing "cuStreamIsCapturing" (u64, *mut u32);
    capture_mode "cuThreadExchangeStreamCaptureMode" (*mut u32);
    event "cuEventCreate" (*mut u64, u32);
    record "cuEventRecord" (u64, u64);
    wait_event "cuStreamWaitEvent" (u64, u64, u32);
    end_event "cuEventDestroy_v2" (u64);
    host_function "cuLaunchHostFunc" (u64, HostFunction, *mut c_void);
    allocate "cuMemAlloc_v2" (*mut u64, usize);
    free "cuMemFree_v2" (u64);
    range "cuMemGetAddressRange_v2" (*mut u64, *mut usize, u64);
    export "cuIpcGetMemHandle" (*mut RawHandle, u64);
    open "cuIpcOpenMemHandle_v2" (*mut u64, RawHandle, u32);
    close "cuIpcCloseMemHandle" (u64);
    copy "cuMemcpyAsync" (u64, u64, usize, u64);
    attribute "cuPointerGetAttribute" (*mut u32, u32, u64);
    to_host "cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, u64);
    to_device "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, u64);
}

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
const MEMORY_TYPE: u32 = 2;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_PEER_ACCESS: u32 = 1;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_LEGACY`: it and 0 are the legacy stream.
const LEGACY: u64 = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;
const NAME_BYTES: u8 = 255;

/// Numbers whose every pattern of bits is one.
pub trait Number: Copy + private::Sealed {}
impl Number for f32 {}
impl Number for f64 {}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A stream of the program's, by its handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stream(pub u64);

/// What is known of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// All that it was given has passed, and what its next work comes after.
    Idle,
    /// It has not.
    Busy,
    /// What it is given becomes a graph.
    Captures,
}

/// A point in a stream, once it is recorded.
#[derive(Debug)]
pub struct Event(u64);

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(driver) = Driver::get() {
            // SAFETY: takes a handle, which the driver looks up.
            result(unsafe { (driver.calls.end_event)(self.0) }).unwrap_or_default();
        }
    }
}

/// Memory of another process that is open here.
#[derive(Debug)]
pub struct Opened {
    address: u64,
    bytes: u64,
}

impl Opened {
    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How long it is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Ok(driver) = Driver::get() {
            // SAFETY: takes numbers only, and the address was opened.
            result(unsafe { (driver.calls.close)(self.address) }).unwrap_or_default();
        }
    }
}

/// Memory of the device's, of this process.
#[derive(Debug)]
pub struct Memory {
    address: u64,
    bytes: u64,
}

impl Memory {
    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How long it is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Ok(driver) = Driver::get() {
            let address = self.address;
            // SAFETY: takes a number only, and the driver waits for work that uses it.
            driver.beside_captures(|calls| result(unsafe { (calls.free)(address) })).unwrap_or_default();
        }
    }
}

fn result(code: u32) -> Result<(), Failed> {
    if code == 0 { Ok(()) } else { Err(Failed(code)) }
}

/// The driver.
pub struct Driver {
    calls: Calls,
    // Its functions are called for as long as the process lives.
    _library: Library,
}

impl Driver {
    /// The process's driver, which is opened and initialized by the first who asks.
    ///
    /// # Errors
    /// Why there is none.
    pub fn get() -> Result<&'static Self, String> {
        static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
        DRIVER.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self, String> {
        // SAFETY: the driver's library may run its initializers in any thread.
        let library = unsafe { Library::new("libcuda.so.1") };
        let library = library.map_err(|error| format!("no CUDA driver: {error}"))?;
        let calls =
            Calls::of(&library).map_err(|error| format!("another CUDA driver than expected: {error}"))?;
        // SAFETY: takes a number only.
        result(unsafe { (calls.init)(0) }).map_err(|Failed(code)| format!("cuInit answers {code}"))?;
        Ok(Self { calls, _library: library })
    }

    /// Makes the first device's primary context current where the thread has none.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn enter(&self) -> Result<(), Failed> {
        let (mut current, mut device) = (0, 0);
        // SAFETY: writes one word to a live variable.
        result(unsafe { (self.calls.current)(&raw mut current) })?;
        if current != 0 {
            return Ok(());
        }
        // SAFETY: as above.
        result(unsafe { (self.calls.device)(&raw mut device, 0) })?;
        // SAFETY: as above.
        result(unsafe { (self.calls.retain)(&raw mut current, device) })?;
        // SAFETY: takes a context that was just made.
        result(unsafe { (self.calls.set_current)(current) })
    }

    /// The first device's name.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn device_name(&self) -> Result<String, Failed> {
        let (mut name, mut device) = ([0; NAME_BYTES as usize], 0);
        // SAFETY: writes one number to a live variable.
        result(unsafe { (self.calls.device)(&raw mut device, 0) })?;
        // SAFETY: writes at most as many bytes as it is told.
        result(unsafe { (self.calls.device_name)(name.as_mut_ptr(), NAME_BYTES.into(), device) })?;
        Ok(String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned())
    }

    /// A stream that waits for no other.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn create_stream(&self) -> Result<Stream, Failed> {
        let mut stream = 0;
        // SAFETY: writes one word to a live variable.
        result(unsafe { (self.calls.stream)(&raw mut stream, NON_BLOCKING) })?;
        Ok(Stream(stream))
    }

    /// Waits until a stream has done what it was given.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn synchronize(&self, stream: Stream) -> Result<(), Failed> {
        // SAFETY: takes a handle, which the driver looks up.
        result(unsafe { (self.calls.synchronize)(stream.0) })
    }

    /// Whether what a stream is given becomes a graph.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn captures(&self, stream: Stream) -> Result<bool, Failed> {
        let mut capturing = 0;
        // SAFETY: writes one number to a live variable.
        result(unsafe { (self.calls.is_capturing)(stream.0, &raw mut capturing) })?;
        Ok(capturing != 0)
    }

    /// What a stream does. No other stream is asked, and none has work that it would not have without: what is asked of the
    /// legacy stream ends captures of others, and orders streams that have nothing to do with each other.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn activity(&self, stream: Stream) -> Result<Activity, Failed> {
        if self.captures(stream)? {
            return Ok(Activity::Captures);
        }
        if !self.is_done(stream)? {
            return Ok(Activity::Busy);
        }
        let mut flags = 0;
        // SAFETY: as above.
        result(unsafe { (self.calls.stream_flags)(stream.0, &raw mut flags) })?;
        if flags & NON_BLOCKING == 0 && stream.0 > LEGACY {
            // What a blocking stream does next comes after what the legacy stream was given, and so does a point in it.
            let event = self.create_event()?;
            self.record(&event, stream)?;
            if !self.is_done(stream)? {
                return Ok(Activity::Busy);
            }
        }
        Ok(Activity::Idle)
    }

    /// Whether a stream has done what it was given.
    fn is_done(&self, stream: Stream) -> Result<bool, Failed> {
        // SAFETY: takes a handle, which the driver looks up.
        match result(unsafe { (self.calls.query)(stream.0) }) {
            Ok(()) => Ok(true),
            Err(Failed::NOT_READY) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// An event, which nobody waits for before it is recorded.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn create_event(&self) -> Result<Event, Failed> {
        let mut event = 0;
        // SAFETY: writes one word to a live variable.
        result(unsafe { (self.calls.event)(&raw mut event, NO_TIMING) })?;
        Ok(Event(event))
    }

    /// Makes an event the point that a stream has come to by now.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn record(&self, event: &Event, stream: Stream) -> Result<(), Failed> {
        // SAFETY: takes handles, which the driver looks up.
        result(unsafe { (self.calls.record)(event.0, stream.0) })
    }

    /// Has a stream's next work come after an event.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn wait_for(&self, event: &Event, stream: Stream) -> Result<(), Failed> {
        // SAFETY: takes handles, which the driver looks up.
        result(unsafe { (self.calls.wait_event)(stream.0, event.0, 0) })
    }

    /// Has a stream call a function with a number once all before it has passed; what comes after it waits.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn call_host(&self, stream: Stream, function: HostCall, number: usize) -> Result<(), Failed> {
        // SAFETY: the function never looks behind the pointer, which is a number.
        result(unsafe {
            (self.calls.host_function)(stream.0, function.0, std::ptr::without_provenance_mut(number))
        })
    }

    /// Calls what CUDA forbids while streams capture, which may be another thread's: what is allocated and freed here has
    /// no part in it, and ends no capture of the program's.
    fn beside_captures<R>(&self, body: impl FnOnce(&Calls) -> R) -> R {
        let mut mode = RELAXED;
        // SAFETY: swaps one number with a live variable; the mode is this thread's.
        let is_swapped = result(unsafe { (self.calls.capture_mode)(&raw mut mode) }).is_ok();
        let done = body(&self.calls);
        if is_swapped {
            // SAFETY: as above.
            result(unsafe { (self.calls.capture_mode)(&raw mut mode) }).unwrap_or_default();
        }
        done
    }

    /// Memory of the device's. No capture ends by it.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn allocate(&self, bytes: u64) -> Result<Memory, Failed> {
        let mut address = 0;
        let room = usize::try_from(bytes).map_err(|_| Failed::OUT_OF_MEMORY)?;
        let to = &raw mut address;
        // SAFETY: writes one word to a live variable.
        self.beside_captures(|calls| result(unsafe { (calls.allocate)(to, room) }))?;
        Ok(Memory { address, bytes })
    }

    /// The allocation that an address lies in: where it begins, and how long it is.
    ///
    /// # Errors
    /// What the driver answers, where it is no address of memory of the device's.
    pub fn range(&self, address: u64) -> Result<(u64, u64), Failed> {
        let (mut start, mut bytes) = (0, 0);
        // SAFETY: writes two words to live variables.
        result(unsafe { (self.calls.range)(&raw mut start, &raw mut bytes, address) })?;
        Ok((start, bytes as u64))
    }

    /// What another process opens an allocation with.
    ///
    /// # Errors
    /// What the driver answers, where the allocation is of a kind that cannot be given.
    pub fn export(&self, address: u64) -> Result<MemoryHandle, Failed> {
        let mut handle = RawHandle([0; 64]);
        // SAFETY: writes 64 bytes to a live variable.
        result(unsafe { (self.calls.export)(&raw mut handle, address) })?;
        Ok(handle.0)
    }

    /// Whether an address is of memory that the driver knows, of whatever kind.
    #[must_use]
    pub fn knows(&self, address: u64) -> bool {
        let mut kind = 0;
        // SAFETY: writes one number to a live variable.
        result(unsafe { (self.calls.attribute)(&raw mut kind, MEMORY_TYPE, address) }).is_ok()
    }

    /// Has a stream copy memory that the driver [knows](Self::knows).
    ///
    /// # Errors
    /// What the driver answers, where it is not all of it that.
    pub fn copy_later(&self, to: u64, from: u64, bytes: u64, stream: Stream) -> Result<(), Failed> {
        if !self.knows(from + (bytes - 1)) || !self.knows(to + (bytes - 1)) {
            return Err(Failed::INVALID_VALUE);
        }
        let bytes = usize::try_from(bytes).map_err(|_| Failed::INVALID_VALUE)?;
        // SAFETY: memory that the program has allocated by the driver, as it says of it: the last byte of both is such.
        result(unsafe { (self.calls.copy)(to, from, bytes, stream.0) })
    }

    /// Opens an allocation of another process.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn import(&self, handle: &MemoryHandle) -> Result<Opened, Failed> {
        let mut address = 0;
        // SAFETY: writes one word to a live variable; the handle is bytes, which the driver checks.
        result(unsafe { (self.calls.open)(&raw mut address, RawHandle(*handle), LAZY_PEER_ACCESS) })?;
        // Closed where it is not known how long it is.
        let mut opened = Opened { address, bytes: 0 };
        let (start, bytes) = self.range(address)?;
        opened.bytes = bytes.saturating_sub(address.saturating_sub(start));
        Ok(opened)
    }

    /// Copies memory of the device's to the host, in a stream, and waits for it.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn copy_to_host<T: Number>(&self, to: &mut [T], from: u64, stream: Stream) -> Result<(), Failed> {
        let bytes = size_of_val(to);
        // SAFETY: writes as many bytes as there are; every pattern of bits is a number; waited for below.
        result(unsafe { (self.calls.to_host)(to.as_mut_ptr().cast(), from, bytes, stream.0) })?;
        self.synchronize(stream)
    }

    /// Copies host memory to the device, in a stream, and waits for it.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn copy_to_device<T: Number>(&self, to: u64, from: &[T], stream: Stream) -> Result<(), Failed> {
        let bytes = size_of_val(from);
        // SAFETY: reads as many bytes as there are; waited for below.
        result(unsafe { (self.calls.to_device)(to, from.as_ptr().cast(), bytes, stream.0) })?;
        self.synchronize(stream)
    }
}

/// A function that a stream calls, with a number.
#[derive(Clone, Copy)]
pub struct HostCall(HostFunction);

impl HostCall {
    /// As the driver calls it. The pointer that it gets is the number.
    #[must_use]
    pub fn new(function: HostFunction) -> Self {
        Self(function)
    }
}
