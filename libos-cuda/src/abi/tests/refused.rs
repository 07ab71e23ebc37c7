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
}

#[test]
fn every_call_that_is_not_served_is_refused_with_a_reason() {
    let code = unsafe { cuStreamWaitValue32_v2(0, 0, 1, 0) };
    refused(code, Status::NOT_SUPPORTED);
    let mut found: *const c_void = null();
    ok(unsafe { cuGetProcAddress_v2(c"cuStreamWaitValue32".as_ptr(), &raw mut found, 13000, 0, null_mut()) });
    assert!(!found.is_null());
    let mut why = 7;
    let absent = c"cuMulticastCreate".as_ptr();
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
