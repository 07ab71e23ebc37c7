//! The export tables: functions that NVIDIA's runtime finds by the id of a table and a number in it.
//!
//! Which tables and numbers are called, and what they answer, was seen on driver 580 (facts in
//! docs/CAVEATS.md) and agrees with the public sources of ZLUDA. A number that was never seen called answers
//! `CUDA_ERROR_NOT_SUPPORTED`. Tables that are not here are refused, which their callers take well.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

use super::args::{Argument, ImagePointer, Out};
use super::callbacks::{Callback, Destructor};
use super::exported::call;
use super::{Function, NullStream};
use crate::handshake::{Facts, answer};
use crate::status::Status;
use crate::{context, driver, module, query, report, storage, stream};

/// An export table of `N` words; all but one begin with their size in bytes.
#[repr(transparent)]
struct Table<const N: usize>([Function; N]);

/// For each number of a table a function that is not there, and says so.
macro_rules! absent_ones {
    ($table:ident; $($number:literal)*) => { [$(Function(absent::<$table, $number> as *const c_void)),*] };
}

/// As many of them as the longest table has.
const fn absent_ones<const TABLE: u32>() -> [Function; 99] {
    absent_ones!(
        TABLE;
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41
        42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80
        81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98
    )
}

impl<const N: usize> Table<N> {
    /// A table of functions that are not there, with its size. The id of `TABLE` begins so.
    const fn sized<const TABLE: u32>() -> Table<N> {
        let mut table = Self::unsized_::<TABLE>();
        table.0[0] = Function(std::ptr::without_provenance(N * size_of::<usize>()));
        table
    }

    const fn unsized_<const TABLE: u32>() -> Table<N> {
        let ones = absent_ones::<TABLE>();
        let mut table = Table([Function(absent::<TABLE, 0> as *const c_void); N]);
        let mut number = 0;
        while number < N && number < ones.len() {
            table.0[number] = Function(ones[number].0);
            number += 1;
        }
        table
    }

    const fn with(mut self, number: usize, function: *const c_void) -> Table<N> {
        self.0[number] = Function(function);
        self
    }

    fn address(&'static self) -> *const c_void {
        self.0.as_ptr().cast()
    }
}

static CUDART: Table<13> = Table::sized::<0x6BD5_FB6C>()
    .with(1, load_wrapped as *const c_void)
    .with(2, primary_inactive as *const c_void)
    .with(6, load_wrapped_with as *const c_void)
    .with(7, nothing as *const c_void)
    .with(8, load_container_with as *const c_void)
    .with(12, nothing as *const c_void);

static RUNTIME_BUFFERS: Table<7> =
    Table::sized::<0xA094_798C>().with(2, buffer_1 as *const c_void).with(6, buffer_2 as *const c_void);

static CURRENT: Table<3> = Table::sized::<0x42D8_5A81>().with(2, current as *const c_void);

static STORAGE: Table<4> = Table::unsized_::<0xC693_336E>()
    .with(0, storage_put as *const c_void)
    .with(1, storage_delete as *const c_void)
    .with(2, storage_get as *const c_void);

static CONTEXT_CHECKS: Table<15> =
    Table::sized::<0x263E_8860>().with(2, context_check as *const c_void).with(3, nothing as *const c_void);

static DRIVER_CHECK: Table<3> = Table::sized::<0xD408_2055>().with(1, driver_check as *const c_void);

/// What cuBLAS and cuDNN ask whether the context is a plain one, and cuSOLVER for the ids of streams.
static LIBRARIES: Table<93> = Table::sized::<0x2131_8C60>()
    .with(4, context_is_plain as *const c_void)
    .with(39, id_of_stream as *const c_void)
    .with(51, object_of_stream as *const c_void);

/// What cuFFT asks for, and of it one function (facts: seen on driver 580, and in public sources of remoting projects).
static FUNCTIONS: Table<99> = Table::sized::<0x6E16_3FBE>().with(7, each_function as *const c_void);

/// What cuBLASLt asks for where numbers are halves, and does not look whether it got it. None of its functions is there.
static HALVES: Table<17> =
    Table::sized::<0x1734_DC26>().with(4, unserved as *const c_void).with(13, unserved as *const c_void);

/// The table of an id.
pub(crate) fn export_table(id: &[u8; 16]) -> Option<*const c_void> {
    Some(match u128::from_be_bytes(*id) {
        0x6BD5_FB6C_5BF4_E74A_8987_D939_12FD_9DF9 => CUDART.address(),
        0xA094_798C_2E74_2E74_93F2_0800_200C_0A66 => RUNTIME_BUFFERS.address(),
        0x42D8_5A81_23F6_CB47_8298_F6E7_8A3A_ECDC => CURRENT.address(),
        0xC693_336E_1121_DF11_A8C3_68F3_55D8_9593 => STORAGE.address(),
        0x263E_8860_7CD2_6143_92F6_BBD5_006D_FA7E => CONTEXT_CHECKS.address(),
        0xD408_2055_BDE6_704B_8D34_BA12_3C66_E1F2 => DRIVER_CHECK.address(),
        0x6E16_3FBE_B958_444D_835C_E182_AFF1_991E => FUNCTIONS.address(),
        known if known >> 96 == 0x1734_DC26 => HALVES.address(),
        known if known >> 96 == 0x2131_8C60 => LIBRARIES.address(),
        _ => return None,
    })
}

/// A number that was never seen called.
extern "C" fn absent<const TABLE: u32, const NUMBER: usize>() -> u32 {
    report::once(&format!(
        "a library called a private function of NVIDIA's driver that is not there: {NUMBER} of table {TABLE:08x}"
    ));
    Status::NOT_SUPPORTED.code()
}

/// A number that is called, and whose callers go on without.
extern "C" fn unserved() -> u32 {
    Status::NOT_SUPPORTED.code()
}

/// A number whose function was seen to do nothing.
extern "C" fn nothing() -> u32 {
    0
}

unsafe extern "C" fn load_wrapped(to: *mut u64, image: *const c_void) -> u32 {
    let load = || {
        // SAFETY: NVIDIA's runtime passes room for a module.
        let to = unsafe { Out::from_c(to) }?;
        // SAFETY: and an image.
        let image = unsafe { ImagePointer::from_c(image) }?;
        module::load(to, image)
    };
    call(|| crate::moving::again(load))
}

unsafe extern "C" fn load_wrapped_with(
    to: *mut u64,
    image: *const c_void,
    first: *mut c_void,
    second: *mut c_void,
    third: u32,
) -> u32 {
    if !first.is_null() || !second.is_null() || third != 0 {
        return absent::<0x6BD5_FB6C, 6>();
    }
    // SAFETY: the same arguments.
    unsafe { load_wrapped(to, image) }
}

unsafe extern "C" fn load_container_with(
    image: *const c_void,
    to: *mut u64,
    first: *mut c_void,
    second: *mut c_void,
    third: u32,
) -> u32 {
    // SAFETY: the same arguments in another order.
    unsafe { load_wrapped_with(to, image, first, second, third) }
}

/// The primary context's handle; it does not become active by this.
unsafe extern "C" fn primary_inactive(to: *mut u64, device: i32) -> u32 {
    call(|| {
        query::of(device)?;
        // SAFETY: NVIDIA's runtime passes room for a context.
        unsafe { Out::from_c(to) }?.set(context::primary());
        Ok(())
    })
}

/// Two buffers that the driver lends the runtime, and the sizes that it states for them.
static BUFFER_1: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
static BUFFER_2: [AtomicU64; 14] = [const { AtomicU64::new(0) }; 14];

unsafe extern "C" fn buffer_1(to: *mut *mut u64, size: *mut usize) -> u32 {
    // SAFETY: the same arguments.
    unsafe { lend(&BUFFER_1, to, size) }
}

unsafe extern "C" fn buffer_2(to: *mut *mut u64, size: *mut usize) -> u32 {
    // SAFETY: the same arguments.
    unsafe { lend(&BUFFER_2, to, size) }
}

/// # Safety
/// `to` and `size` are null or room for a value each.
unsafe fn lend(buffer: &'static [AtomicU64], to: *mut *mut u64, size: *mut usize) -> u32 {
    call(|| {
        // SAFETY: the caller's promise.
        let to = unsafe { Out::from_c(to) }?;
        // SAFETY: likewise.
        let size = unsafe { Out::from_c(size) }?;
        to.set(buffer.first().ok_or(Status::UNKNOWN)?.as_ptr());
        size.set(buffer.len());
        Ok(())
    })
}

unsafe extern "C" fn current(to: *mut u64) -> u32 {
    // SAFETY: NVIDIA's runtime passes room for a context.
    call(|| context::get_current(unsafe { Out::from_c(to) }?))
}

unsafe extern "C" fn storage_put(
    context: u64,
    key: *mut c_void,
    value: *mut c_void,
    destructor: <Destructor as Argument>::C,
) -> u32 {
    let [key, value] = [key, value].map(|pointer| Callback(pointer.expose_provenance()));
    call(|| storage::put(context, key, value, Destructor(destructor)))
}

unsafe extern "C" fn storage_delete(context: u64, key: *mut c_void) -> u32 {
    call(|| storage::delete(context, Callback(key.expose_provenance())))
}

unsafe extern "C" fn storage_get(to: *mut u64, context: u64, key: *mut c_void) -> u32 {
    let key = Callback(key.expose_provenance());
    // SAFETY: NVIDIA's runtime passes room for a value.
    call(|| storage::get(unsafe { Out::from_c(to) }?, context, key))
}

unsafe extern "C" fn context_check(_context: u64, to: *mut u32, _more: *mut c_void) -> u32 {
    // SAFETY: NVIDIA's runtime passes room for a value.
    call(|| unsafe { Out::from_c(to) }.map(|to| to.set(0)))
}

unsafe extern "C" fn context_is_plain(_context: u64, to: *mut u32) -> u32 {
    // SAFETY: NVIDIA's libraries pass room for a value.
    call(|| unsafe { Out::from_c(to) }.map(|to| to.set(1)))
}

const LEGACY_STREAM: u64 = 1;

/// An object that a stream of a context has, which cuSOLVER (13.0) asks for and hands to [`id_of_stream`]. On driver 580 it is an
/// address of the driver's own, one for the stream 0 and the legacy stream; here it is the stream's handle.
unsafe extern "C" fn object_of_stream(context: u64, stream: u64, to: *mut u64) -> u32 {
    if context == 0 {
        return Status::INVALID_HANDLE.code();
    }
    let object = if stream == 0 { LEGACY_STREAM } else { stream };
    // SAFETY: NVIDIA's libraries pass room for an address.
    call(|| unsafe { Out::from_c(to) }.map(|to| to.set(object)))
}

/// What `cuStreamGetId` answers, of such an object.
unsafe extern "C" fn id_of_stream(_context: u64, object: u64, to: *mut u64) -> u32 {
    // SAFETY: NVIDIA's libraries pass room for an id.
    call(|| unsafe { Out::from_c(to) }.and_then(|to| stream::id(NullStream::Legacy, object, to)))
}

/// Calls back for each function of a module, and says how many there are.
unsafe extern "C" fn each_function(
    _context: u64,
    module: u64,
    callback: Option<unsafe extern "C" fn(*mut c_void, u64, u64)>,
    with: *mut c_void,
) -> u32 {
    let handles = module::handles(module).unwrap_or_default();
    for handle in &handles {
        if let Some(callback) = callback {
            // SAFETY: whoever asks promised a function that takes these.
            unsafe { callback(with, *handle, module) };
        }
    }
    u32::try_from(handles.len()).unwrap_or(0)
}

unsafe extern "C" fn driver_check(version: u32, unix_seconds: u64, to: *mut [u64; 2]) -> u32 {
    call(|| {
        // SAFETY: NVIDIA's runtime passes room for 16 bytes.
        let to = unsafe { Out::from_c(to) }?;
        let device = driver::open()?.device();
        let address = |pointer: *const c_void| pointer.addr() as u64;
        let facts = Facts {
            driver_version: driver::VERSION,
            process: std::process::id(),
            thread: u32::try_from(super::thread_id() & 0xFFFF_FFFF).unwrap_or(0),
            cudart_table: address(CUDART.address()),
            check_table: address(DRIVER_CHECK.address()),
            check_function: address(driver_check as *const c_void),
            devices: vec![(device.uuid, query::pci(device))],
        };
        to.set(answer(version, unix_seconds, &facts).ok_or(Status::NOT_SUPPORTED)?);
        Ok(())
    })
}
