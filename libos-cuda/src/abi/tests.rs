//! Calls through the C symbols, on the recording device, as a program makes them.

#![allow(
    clippy::cast_possible_truncation,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "every call here is a C program's, and keeps to its documentation"
)]

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::{AccessDescription, ArrayDescription, Copy2d, IpcHandle, NullStream, Properties, Side2d, rows};
use crate::context::CreateParameters;
use crate::device::Asked;
use crate::driver::driver;
use crate::status::Status;
use crate::tests::header;

mod launches;

mod memory;

const PTX: &CStr = c".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry scale(.param .u64 data, \
    .param .f32 factor, .param .align 8 .b8 pair[16], .param .u32 count) { ret; }\n.visible .entry nothing() { ret; }\n";

mod batches;
mod captures;
mod events;
mod graphs;
mod host_functions;
mod ipc;
mod logs;
mod managed;
mod mapped;
mod pools;
mod refused;
mod user_objects;
mod virtual_memory;

/// A process has one driver: tests that look at its record take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Initialized, with the primary context current on this thread.
fn begin() -> MutexGuard<'static, ()> {
    let turn = TURN.lock();
    ok(unsafe { cuInit(0) });
    let mut context = 0;
    ok(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) });
    ok(unsafe { cuCtxSetCurrent(context) });
    driver().unwrap().session.take_asked();
    turn
}

/// What another thread of the program does.
fn on_a_thread(work: impl FnOnce()) {
    let mut context = 0;
    ok(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) });
    ok(unsafe { cuCtxSetCurrent(context) });
    work();
}

fn ok(code: u32) {
    assert_eq!(code, 0, "{:?}", crate::status::describe(code));
}

#[track_caller]
fn refused(code: u32, status: Status) {
    assert_eq!(code, status.code(), "{:?} instead of {status:?}", crate::status::describe(code));
}

macro_rules! symbols {
    ($($name:ident($($kind:ty),*);)*) => {
        unsafe extern "C" { $(fn $name($(_: $kind),*) -> u32;)* }
    };
}
use symbols;

symbols! {
    cuInit(u32);
    cuDevicePrimaryCtxRetain(*mut u64, i32);
    cuCtxSetCurrent(u64);
    cuCtxGetCurrent(*mut u64);
    cuCtxPushCurrent_v2(u64);
    cuCtxPopCurrent_v2(*mut u64);
    cuArrayCreate_v2(*mut u64, *const ArrayDescription);
    cuCtxCreate_v2(*mut u64, u32, i32);
    cuCtxCreate_v4(*mut u64, *const CreateParameters, u32, i32);
    cuCtxDestroy_v2(u64);
    cuDeviceGetName(*mut u8, i32, i32);
    cuDeviceGetPCIBusId(*mut u8, i32, i32);
    cuDeviceGetByPCIBusId(*mut i32, *const c_char);
    cuDeviceGetAttribute(*mut i32, u32, i32);
    cuMemAlloc_v2(*mut u64, usize);
    cuMemFree_v2(u64);
    cuMemAllocAsync(*mut u64, usize, u64);
    cuMemFreeAsync(u64, u64);
    cuMemAllocPitch_v2(*mut u64, *mut usize, usize, usize, u32);
    cuMemGetAddressRange_v2(*mut u64, *mut usize, u64);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAllocHost_v2(*mut *mut u8, usize);
    cuMemFreeHost(*mut u8);
    cuMemHostAlloc(*mut *mut u8, usize, u32);
    cuMemHostGetDevicePointer_v2(*mut u64, *mut u8, u32);
    cuMemHostGetFlags(*mut u32, *mut u8);
    cuMemcpyHtoD_v2(u64, *const u8, usize);
    cuMemcpyDtoH_v2(*mut u8, u64, usize);
    cuMemcpyDtoD_v2(u64, u64, usize);
    cuMemcpyDtoHAsync_v2(*mut u8, u64, usize, u64);
    cuMemcpy(u64, u64, usize);
    cuMemcpy2D_v2(*const Copy2d);
    cuMemsetD32_v2(u64, u32, usize);
    cuMemsetD2D8_v2(u64, usize, u8, usize, usize);
    cuIpcGetMemHandle(*mut IpcHandle, u64);
    cuIpcOpenMemHandle(*mut u64, IpcHandle, u32);
    cuIpcOpenMemHandle_v2(*mut u64, IpcHandle, u32);
    cuIpcCloseMemHandle(u64);
    cuMemGetAllocationGranularity(*mut usize, *const Properties, u32);
    cuMemCreate(*mut u64, usize, *const Properties, u64);
    cuMemRelease(u64);
    cuMemRetainAllocationHandle(*mut u64, *mut c_void);
    cuMemGetAllocationPropertiesFromHandle(*mut Properties, u64);
    cuMemAddressReserve(*mut u64, usize, usize, u64, u64);
    cuMemAddressFree(u64, usize);
    cuMemMap(u64, usize, usize, u64, u64);
    cuMemUnmap(u64, usize);
    cuMemSetAccess(u64, usize, *const AccessDescription, usize);
    cuMemGetAccess(*mut u64, *const [u32; 2], u64);
    cuMemExportToShareableHandle(*mut c_void, u64, u32, u64);
    cuMemImportFromShareableHandle(*mut u64, *mut c_void, u32);
    cuPointerGetAttribute(*mut c_void, u32, u64);
    cuPointerGetAttributes(u32, *const u32, *const *mut c_void, u64);
    cuModuleLoadData(*mut u64, *const c_char);
    cuModuleGetFunction(*mut u64, u64, *const c_char);
    cuModuleUnload(u64);
    cuLibraryLoadData(*mut u64, *const c_char, *const u32, *const *mut c_void, u32, *const u32, *const *mut c_void, u32);
    cuLibraryGetKernel(*mut u64, u64, *const c_char);
    cuLibraryGetModule(*mut u64, u64);
    cuLibraryUnload(u64);
    cuFuncSetAttribute(u64, u32, i32);
    cuFuncGetParamInfo(u64, usize, *mut usize, *mut usize);
    cuLaunchKernel(u64, u32, u32, u32, u32, u32, u32, u32, u64, *mut *mut c_void, *mut *mut c_void);
    cuLaunchKernel_ptsz(u64, u32, u32, u32, u32, u32, u32, u32, u64, *mut *mut c_void, *mut *mut c_void);
    cuLaunchHostFunc(u64, extern "C" fn(*mut c_void), *mut c_void);
    cuStreamCreate(*mut u64, u32);
    cuStreamGetId(u64, *mut u64);
    cuStreamDestroy_v2(u64);
    cuStreamSynchronize(u64);
    cuEventCreate(*mut u64, u32);
    cuEventDestroy_v2(u64);
    cuEventRecord(u64, u64);
    cuEventQuery(u64);
    cuEventElapsedTime_v2(*mut f32, u64, u64);
    cuStreamWaitEvent(u64, u64, u32);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut i32, u64, i32, usize);
    cuOccupancyMaxPotentialBlockSize(*mut i32, *mut i32, u64, Option<extern "C" fn(i32) -> usize>, usize, i32);
    cuGetErrorName(u32, *mut *const c_char);
    cuGetExportTable(*mut *const c_void, *const [u8; 16]);
}

fn allocate(bytes: usize) -> u64 {
    let mut address = 0;
    ok(unsafe { cuMemAlloc_v2(&raw mut address, bytes) });
    address
}

fn load() -> (u64, u64) {
    let (mut module, mut function) = (0, 0);
    ok(unsafe { cuModuleLoadData(&raw mut module, PTX.as_ptr()) });
    ok(unsafe { cuModuleGetFunction(&raw mut function, module, c"scale".as_ptr()) });
    (module, function)
}

#[test]
fn symbols_and_versions_are_those_of_the_headers() {
    let Some(cuda) = header("cuda.h") else { return };
    let types = ["cudaTypedefs.h", "cudaProfilerTypedefs.h"].map(|name| header(name).unwrap()).concat();
    for row in rows() {
        let per_thread = row.null_stream == NullStream::PerThread;
        let plain = row.symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        assert_eq!(per_thread, plain != row.symbol, "{}", row.symbol);
        let declared =
            [format!("{plain}("), format!("{plain})"), format!(" {plain}\n"), format!(" {plain} \n")];
        // The profiler's calls are declared in a header that the compiler's packages lack.
        let profiler = plain.starts_with("cuProfiler");
        assert!(
            profiler || declared.iter().any(|text| cuda.contains(text)),
            "{} is not in cuda.h",
            row.symbol
        );
        let suffix = row.symbol.strip_prefix(plain).unwrap();
        let prototype = format!("PFN_{}_v{}{suffix})", row.name, row.since);
        assert!(types.contains(&prototype), "{} has no {prototype}", row.symbol);
    }
}

#[test]
fn the_newest_form_of_every_function_is_there() {
    let Some(types) = header("cudaTypedefs.h") else { return };
    let mut checked = 0;
    for part in types.split("(CUDAAPI *PFN_").skip(1) {
        let name = part.split(')').next().unwrap();
        let plain = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let (function, version) = plain.rsplit_once("_v").unwrap();
        let version: i32 = version.parse().unwrap();
        let newest = rows().filter(|row| row.name == function).map(|row| row.since).max();
        if let Some(newest) = newest {
            assert!(
                newest >= version,
                "a program that knows {function} of {version} would get that of {newest}"
            );
            checked += 1;
        }
    }
    assert!(checked > 200, "{checked}");
}

#[test]
fn a_symbol_has_one_row() {
    let mut seen = HashSet::new();
    assert!(rows().all(|row| seen.insert(row.symbol)));
    let mut versions = HashSet::new();
    assert!(rows().all(|row| versions.insert((
        row.name,
        row.since,
        row.null_stream == NullStream::PerThread
    ))));
}

#[test]
fn each_thread_has_a_null_stream_of_its_own() {
    let _turn = begin();
    let (module, _) = load();
    let mut function = 0;
    ok(unsafe { cuModuleGetFunction(&raw mut function, module, c"nothing".as_ptr()) });
    let launch = move || {
        let mut context = 0;
        ok(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) });
        ok(unsafe { cuCtxSetCurrent(context) });
        for _ in 0..2 {
            ok(unsafe { cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, 0, null_mut(), null_mut()) });
        }
    };
    std::thread::spawn(launch).join().unwrap();
    std::thread::scope(|scope| scope.spawn(launch).join().unwrap());
    let streams: Vec<u32> = driver()
        .unwrap()
        .session
        .take_asked()
        .into_iter()
        .filter_map(|asked| if let Asked::Launch { stream, .. } = asked { Some(stream) } else { None })
        .collect();
    assert_eq!(streams.len(), 4);
    assert!(streams[0] != 0 && streams[0] == streams[1] && streams[2] == streams[3], "{streams:?}");
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn events_are_points_of_streams() {
    let _turn = begin();
    let (mut stream, mut start, mut end, mut untimed) = (0, 0, 0, 0);
    ok(unsafe { cuStreamCreate(&raw mut stream, 1) });
    ok(unsafe { cuEventCreate(&raw mut start, 0) });
    ok(unsafe { cuEventCreate(&raw mut end, 1) });
    ok(unsafe { cuEventCreate(&raw mut untimed, 2) });
    ok(unsafe { cuEventQuery(start) });
    let mut elapsed = 0.0;
    refused(unsafe { cuEventElapsedTime_v2(&raw mut elapsed, start, end) }, Status::INVALID_HANDLE);
    for event in [start, end, untimed] {
        ok(unsafe { cuEventRecord(event, stream) });
    }
    ok(unsafe { cuEventElapsedTime_v2(&raw mut elapsed, start, end) });
    assert_eq!(elapsed, 1.5);
    refused(unsafe { cuEventElapsedTime_v2(&raw mut elapsed, start, untimed) }, Status::INVALID_HANDLE);

    let session = &driver().unwrap().session;
    let target = driver().unwrap().target(NullStream::Legacy, stream).unwrap();
    session.hold(target.stream);
    ok(unsafe { cuEventRecord(end, stream) });
    refused(unsafe { cuEventQuery(end) }, Status::NOT_READY);
    refused(unsafe { cuEventElapsedTime_v2(&raw mut elapsed, start, end) }, Status::NOT_READY);
    session.take_asked();
    ok(unsafe { cuStreamWaitEvent(0, end, 0) });
    assert_eq!(session.take_asked(), [Asked::WaitOn { stream: 0, other: target.stream.index() }]);
    session.release(target.stream);
    ok(unsafe { cuEventQuery(end) });
    for event in [start, end, untimed] {
        ok(unsafe { cuEventDestroy_v2(event) });
    }
    refused(unsafe { cuEventQuery(end) }, Status::INVALID_HANDLE);
    ok(unsafe { cuStreamDestroy_v2(stream) });
    refused(unsafe { cuStreamSynchronize(stream) }, Status::INVALID_HANDLE);
}

static CALLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn note_call(data: *mut c_void) {
    // Work may not be given to the stream that waits for this function.
    let refusal = unsafe { cuStreamSynchronize(data.addr() as u64) };
    CALLED.store(refusal, Ordering::SeqCst);
}

#[test]
fn a_host_function_runs_after_the_work_before_it() {
    let _turn = begin();
    let mut stream = 0;
    ok(unsafe { cuStreamCreate(&raw mut stream, 0) });
    let target = driver().unwrap().target(NullStream::Legacy, stream).unwrap();
    let session = &driver().unwrap().session;
    let mut event = 0;
    ok(unsafe { cuEventCreate(&raw mut event, 0) });
    session.hold(target.stream);
    ok(unsafe { cuEventRecord(event, stream) });
    CALLED.store(12345, Ordering::SeqCst);
    let data = std::ptr::without_provenance_mut(stream as usize);
    // The worker has no current context, so the function's own call is refused for that.
    ok(unsafe { cuLaunchHostFunc(stream, note_call, data) });
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(CALLED.load(Ordering::SeqCst), 12345);
    session.release(target.stream);
    ok(unsafe { cuStreamSynchronize(stream) });
    assert_eq!(CALLED.load(Ordering::SeqCst), Status::INVALID_CONTEXT.code());
    ok(unsafe { cuEventDestroy_v2(event) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn contexts_form_a_stack() {
    let _turn = begin();
    let (mut primary, mut one, mut popped, mut now) = (0, 0, 0, 0);
    ok(unsafe { cuCtxGetCurrent(&raw mut primary) });
    ok(unsafe { cuCtxCreate_v2(&raw mut one, 0, 0) });
    ok(unsafe { cuCtxGetCurrent(&raw mut now) });
    assert_eq!(now, one);
    let memory = allocate(64);
    ok(unsafe { cuCtxPushCurrent_v2(primary) });
    ok(unsafe { cuCtxPopCurrent_v2(&raw mut popped) });
    assert_eq!(popped, primary);
    ok(unsafe { cuCtxDestroy_v2(one) });
    ok(unsafe { cuCtxGetCurrent(&raw mut now) });
    assert_eq!(now, primary);
    refused(unsafe { cuCtxSetCurrent(one) }, Status::CONTEXT_IS_DESTROYED);
    refused(unsafe { cuMemFree_v2(memory) }, Status::INVALID_VALUE);
    ok(unsafe { cuCtxPopCurrent_v2(null_mut()) });
    refused(unsafe { cuMemAlloc_v2(&raw mut popped, 64) }, Status::INVALID_CONTEXT);
}

#[test]
fn a_context_may_be_created_with_parameters_that_ask_for_nothing() {
    let _turn = begin();
    let mut context = 0;
    let none = CreateParameters { affinities: 0, affinity_count: 0, padding: 0, graphics: 0 };
    for parameters in [null(), &raw const none] {
        ok(unsafe { cuCtxCreate_v4(&raw mut context, parameters, 0, 0) });
        ok(unsafe { cuCtxDestroy_v2(context) });
    }
    let affine = CreateParameters { affinities: 1 << 20, affinity_count: 1, ..none };
    let refusal = unsafe { cuCtxCreate_v4(&raw mut context, &raw const affine, 0, 0) };
    refused(refusal, Status::UNSUPPORTED_EXEC_AFFINITY);
    let shared = CreateParameters { graphics: 1 << 20, ..none };
    refused(unsafe { cuCtxCreate_v4(&raw mut context, &raw const shared, 0, 0) }, Status::NOT_SUPPORTED);
}

#[test]
fn questions_are_answered_from_what_the_session_knows() {
    let _turn = begin();
    let mut text = [0xFFu8; 32];
    ok(unsafe { cuDeviceGetName(text.as_mut_ptr(), 10, 0) });
    assert_eq!(&text[..11], b"Recording\0\xFF");
    refused(unsafe { cuDeviceGetName(text.as_mut_ptr(), 0, 0) }, Status::INVALID_VALUE);
    refused(unsafe { cuDeviceGetName(text.as_mut_ptr(), 32, 1) }, Status::INVALID_DEVICE);
    ok(unsafe { cuDeviceGetPCIBusId(text.as_mut_ptr(), 32, 0) });
    let bus = CStr::from_bytes_until_nul(&text).unwrap();
    assert_eq!(bus, c"0001:19:03.0");
    let mut device = -1;
    ok(unsafe { cuDeviceGetByPCIBusId(&raw mut device, bus.as_ptr()) });
    assert_eq!(device, 0);
    refused(
        unsafe { cuDeviceGetByPCIBusId(&raw mut device, c"0002:19:03.0".as_ptr()) },
        Status::INVALID_DEVICE,
    );
    let attribute = |number| {
        let mut value = -1;
        let code = unsafe { cuDeviceGetAttribute(&raw mut value, number, 0) };
        if code == 0 { Ok(value) } else { Err(code) }
    };
    assert_eq!(attribute(75), Ok(9));
    assert_eq!(attribute(83), Ok(1), "managed memory is there, whatever the device says");
    assert_eq!(attribute(9999), Err(1));
    let mut name = null();
    ok(unsafe { cuGetErrorName(719, &raw mut name) });
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"CUDA_ERROR_LAUNCH_FAILED");
    refused(unsafe { cuGetErrorName(4242, &raw mut name) }, Status::INVALID_VALUE);
    assert!(name.is_null());
}

#[test]
fn pointers_tell_what_they_point_to() {
    let _turn = begin();
    let device = allocate(4096);
    let mut kind = 0u32;
    ok(unsafe { cuPointerGetAttribute((&raw mut kind).cast(), 2, device + 100) });
    assert_eq!(kind, 2);
    let host = [0u8; 16];
    let address = host.as_ptr().addr() as u64;
    refused(unsafe { cuPointerGetAttribute((&raw mut kind).cast(), 2, address) }, Status::INVALID_VALUE);
    let (mut start, mut ordinal, mut managed) = (1u64, 7i32, 0xFFFF_FFFFu32);
    let attributes = [11u32, 9, 8];
    let rooms: [*mut c_void; 3] =
        [(&raw mut start).cast(), (&raw mut ordinal).cast(), (&raw mut managed).cast()];
    ok(unsafe { cuPointerGetAttributes(3, attributes.as_ptr(), rooms.as_ptr(), device + 4095) });
    assert_eq!((start, ordinal, managed), (device, 0, 0));
    ok(unsafe { cuPointerGetAttributes(3, attributes.as_ptr(), rooms.as_ptr(), address) });
    assert_eq!((start, ordinal, managed), (0, -2, 0));
    ok(unsafe { cuMemFree_v2(device) });
}

/// With 32 registers a thread, 256 static bytes, and the recording device's sm_90 numbers.
#[test]
fn occupancy_is_what_the_device_s_numbers_allow() {
    let _turn = begin();
    let (module, function) = load();
    let fit = |threads, shared| {
        let mut blocks = -1;
        ok(unsafe {
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function, threads, shared)
        });
        blocks
    };
    assert_eq!(fit(1024, 0), 2);
    assert_eq!(fit(256, 0), 8);
    assert_eq!(fit(32, 0), 32);
    // 100 KiB and the rest twice are more than 228 KiB hold three times.
    assert_eq!(fit(256, 100 << 10), 2);
    assert_eq!(fit(1025, 0), 0);
    let (mut grid, mut block) = (0, 0);
    let shared_of: Option<extern "C" fn(i32) -> usize> = None;
    ok(unsafe { cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, function, shared_of, 0, 0) });
    assert_eq!((grid, block), (32, 1024));
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn export_tables_begin_with_their_size() {
    let mut table: *const c_void = null();
    let id = 0x6BD5_FB6C_5BF4_E74A_8987_D939_12FD_9DF9u128.to_be_bytes();
    ok(unsafe { cuGetExportTable(&raw mut table, &raw const id) });
    assert_eq!(unsafe { table.cast::<usize>().read() }, 13 * 8);
    let unknown = [1; 16];
    refused(unsafe { cuGetExportTable(&raw mut table, &raw const unknown) }, Status::INVALID_VALUE);
    assert!(table.is_null());
}

/// As cuSOLVER does: a stream has an object, and that an id.
#[test]
fn a_library_finds_the_id_of_a_stream_by_its_object() {
    type Find = unsafe extern "C" fn(u64, u64, *mut u64) -> u32;
    let _turn = begin();
    let mut table: *const c_void = null();
    let id = 0x2131_8C60_9714_3248_8CA6_41FF_7324_C8F2u128.to_be_bytes();
    ok(unsafe { cuGetExportTable(&raw mut table, &raw const id) });
    let [object_of, id_of] = [51, 39].map(|number| {
        let function = unsafe { table.cast::<*const c_void>().add(number).read() };
        unsafe { std::mem::transmute::<*const c_void, Find>(function) }
    });
    let (mut context, mut stream) = (0, 0);
    ok(unsafe { cuCtxGetCurrent(&raw mut context) });
    ok(unsafe { cuStreamCreate(&raw mut stream, 1) });
    for (name, same) in [(0, 1), (1, 0), (stream, stream)] {
        let (mut object, mut again, mut found, mut id) = (0, 0, 0, 0);
        assert_eq!(unsafe { object_of(context, name, &raw mut object) }, 0);
        assert_eq!(unsafe { object_of(context, same, &raw mut again) }, 0);
        assert_eq!(object, again);
        assert_eq!(unsafe { id_of(context, object, &raw mut found) }, 0);
        ok(unsafe { cuStreamGetId(name, &raw mut id) });
        assert_eq!(found, id);
    }
    let mut object = 0;
    assert_ne!(unsafe { object_of(0, 0, &raw mut object) }, 0, "there is no context");
    ok(unsafe { cuStreamDestroy_v2(stream) });
}
