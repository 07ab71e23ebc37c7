//! Calls that are refused, and those that keep what changes nothing.

use super::*;
use crate::abi::FAMILIES;

symbols! {
    cuCtxEnablePeerAccess(u64, u32);
    cuCtxDisablePeerAccess(u64);
    cuGetProcAddress_v2(*const c_char, *mut *const c_void, i32, u64, *mut u32);
    cuStreamGetAttribute(u64, u32, *mut [u32; 16]);
    cuStreamSetAttribute(u64, u32, *const [u32; 16]);
    cuStreamCopyAttributes(u64, u64);
    cuStreamWaitValue32_v2(u64, u64, u32, u32);
    cuStreamCreateWithPriority(*mut u64, u32, i32);
    cuStreamWriteValue32_v2(u64, u64, u32, u32);
    cuStreamGetGreenCtx(u64, *mut u64);
    cuStreamDestroy(u64);
    cuEventDestroy(u64);
    cuCtxCreate(*mut u64, u32, i32);
    cuCtxPushCurrent(u64);
    cuCtxPopCurrent(*mut u64);
    cuCtxDestroy(u64);
    cuDeviceGetProperties(*mut [i32; 14], i32);
    cuDeviceGetExecAffinitySupport(*mut i32, u32, i32);
    cuCtxGetExecAffinity(*mut [u32; 2], u32);
    cuDeviceGetHostAtomicCapabilities(*mut u32, *const u32, u32, i32);
    cuDeviceGetP2PAtomicCapabilities(*mut u32, *const u32, u32, i32, i32);
}

#[test]
fn every_call_that_is_not_served_is_refused_with_a_reason() {
    let code = unsafe { cuStreamWaitValue32_v2(0, 0, 1, 0) };
    refused(code, Status::NOT_SUPPORTED);
    let mut found: *const c_void = null();
    ok(unsafe { cuGetProcAddress_v2(c"cuStreamWaitValue32".as_ptr(), &raw mut found, 13000, 0, null_mut()) });
    assert!(!found.is_null());
    let mut why = 7;
    let absent = c"cuMemGetHandleForAddressRange".as_ptr();
    let code = unsafe { cuGetProcAddress_v2(absent, &raw mut found, 13000, 0, &raw mut why) };
    refused(code, Status::NOT_FOUND);
    assert_eq!((found.is_null(), why), (true, 1));
    assert!(FAMILIES.iter().all(|family| !family.rows.is_empty()));
}

#[test]
fn a_stream_keeps_the_hints_that_it_is_given() {
    let _turn = begin();
    let (mut one, mut other, mut value) = (0, 0, [7; 16]);
    ok(unsafe { cuStreamCreateWithPriority(&raw mut one, 1, -2) });
    ok(unsafe { cuStreamCreateWithPriority(&raw mut other, 1, 0) });
    ok(unsafe { cuStreamGetAttribute(one, 3, &raw mut value) });
    assert_eq!(value[..2], [1, 0], "the host waits as the driver likes");
    ok(unsafe { cuStreamGetAttribute(one, 8, &raw mut value) });
    assert_eq!(value[0].cast_signed(), -2);
    ok(unsafe { cuStreamSetAttribute(one, 8, &raw const value) });
    refused(unsafe { cuStreamSetAttribute(other, 8, &raw const value) }, Status::NOT_SUPPORTED);
    let window = [5; 16];
    ok(unsafe { cuStreamSetAttribute(one, 1, &raw const window) });
    ok(unsafe { cuStreamCopyAttributes(other, one) });
    ok(unsafe { cuStreamGetAttribute(other, 1, &raw mut value) });
    assert_eq!(value, window);
    refused(unsafe { cuStreamGetAttribute(one, 77, &raw mut value) }, Status::INVALID_VALUE);
    ok(unsafe { cuStreamDestroy_v2(one) });
    refused(unsafe { cuStreamGetAttribute(one, 1, &raw mut value) }, Status::INVALID_HANDLE);
    ok(unsafe { cuStreamCreateWithPriority(&raw mut one, 1, 0) });
    ok(unsafe { cuStreamGetAttribute(one, 1, &raw mut value) });
    assert_eq!(value, [0; 16], "of the stream before");
    ok(unsafe { cuStreamDestroy_v2(one) });
    ok(unsafe { cuStreamDestroy_v2(other) });
}

#[test]
fn there_is_no_peer() {
    let _turn = begin();
    let mut context = 0;
    ok(unsafe { cuCtxGetCurrent(&raw mut context) });
    refused(unsafe { cuCtxEnablePeerAccess(context, 0) }, Status::PEER_ACCESS_UNSUPPORTED);
    refused(unsafe { cuCtxEnablePeerAccess(context, 1) }, Status::INVALID_VALUE);
    refused(unsafe { cuCtxDisablePeerAccess(context) }, Status::PEER_ACCESS_NOT_ENABLED);
}

#[test]
fn what_the_device_has_not_is_said_not_to_be_there() {
    let _turn = begin();
    let (mut none, mut affinity) = (7, [7; 2]);
    ok(unsafe { cuDeviceGetExecAffinitySupport(&raw mut none, 0, 0) });
    assert_eq!(none, 0);
    refused(unsafe { cuDeviceGetExecAffinitySupport(&raw mut none, 1, 0) }, Status::INVALID_VALUE);
    refused(unsafe { cuDeviceGetExecAffinitySupport(&raw mut none, 0, 1) }, Status::INVALID_DEVICE);
    refused(unsafe { cuCtxGetExecAffinity(&raw mut affinity, 0) }, Status::UNSUPPORTED_EXEC_AFFINITY);
    let (add_and_exchange, mut can) = ([0, 8], [7; 2]);
    let asked = add_and_exchange.as_ptr();
    ok(unsafe { cuDeviceGetHostAtomicCapabilities(can.as_mut_ptr(), asked, 2, 0) });
    assert_eq!(can, [0; 2]);
    refused(
        unsafe { cuDeviceGetHostAtomicCapabilities(can.as_mut_ptr(), asked, 0, 0) },
        Status::INVALID_VALUE,
    );
    refused(
        unsafe { cuDeviceGetHostAtomicCapabilities(can.as_mut_ptr(), [13].as_ptr(), 1, 0) },
        Status::INVALID_VALUE,
    );
    refused(
        unsafe { cuDeviceGetP2PAtomicCapabilities(can.as_mut_ptr(), asked, 2, 0, 0) },
        Status::INVALID_DEVICE,
    );
    let mut stream = 0;
    ok(unsafe { cuStreamCreate(&raw mut stream, 1) });
    let mut green = 7;
    ok(unsafe { cuStreamGetGreenCtx(stream, &raw mut green) });
    assert_eq!(green, 0);
    ok(unsafe { cuStreamDestroy(stream) });
    refused(unsafe { cuStreamGetGreenCtx(stream, &raw mut green) }, Status::INVALID_HANDLE);
}

#[test]
fn a_word_is_written_in_a_stream_s_order() {
    let _turn = begin();
    let (at, mut seen) = (allocate(64), [7u32; 2]);
    ok(unsafe { cuMemsetD32_v2(at, 3, 16) });
    ok(unsafe { cuStreamWriteValue32_v2(0, at + 4, 0xC0FFEE, 0) });
    ok(unsafe { cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), at, 8) });
    assert_eq!(seen, [3, 0xC0FFEE]);
    refused(unsafe { cuStreamWriteValue32_v2(0, at + 2, 1, 0) }, Status::INVALID_VALUE);
    refused(unsafe { cuStreamWriteValue32_v2(0, at, 1, 2) }, Status::INVALID_VALUE);
    refused(unsafe { cuStreamWriteValue32_v2(0, at + 64, 1, 0) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemFree_v2(at) });
}

#[test]
fn old_forms_that_say_the_same_are_served() {
    let _turn = begin();
    let (mut context, mut popped, mut event) = (0, 0, 0);
    ok(unsafe { cuCtxCreate(&raw mut context, 0, 0) });
    ok(unsafe { cuCtxPushCurrent(context) });
    ok(unsafe { cuCtxPopCurrent(&raw mut popped) });
    assert_eq!(popped, context);
    ok(unsafe { cuEventCreate(&raw mut event, 0) });
    ok(unsafe { cuEventDestroy(event) });
    refused(unsafe { cuEventQuery(event) }, Status::INVALID_HANDLE);
    ok(unsafe { cuCtxDestroy(context) });
    let (mut properties, mut threads) = ([0; 14], 0);
    ok(unsafe { cuDeviceGetProperties(&raw mut properties, 0) });
    ok(unsafe { cuDeviceGetAttribute(&raw mut threads, 1, 0) });
    assert_eq!((properties[0], properties[9]), (threads, 32));
}
