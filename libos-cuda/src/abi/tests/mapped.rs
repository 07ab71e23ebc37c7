//! Pinned memory that kernels reach, through the C symbols.

use super::*;

const MAPPED: u32 = 2;
const PORTABLE: u32 = 1;
const WRITE_COMBINED: u32 = 4;

fn pinned(bytes: usize, flags: u32) -> *mut u8 {
    let mut host = null_mut();
    ok(unsafe { cuMemHostAlloc(&raw mut host, bytes, flags) });
    host
}

fn on_device(host: *mut u8) -> u64 {
    let mut device = 0;
    ok(unsafe { cuMemHostGetDevicePointer_v2(&raw mut device, host, 0) });
    device
}

fn long(attribute: u32, address: u64) -> u64 {
    let mut value = 0u64;
    ok(unsafe { cuPointerGetAttribute((&raw mut value).cast(), attribute, address) });
    value
}

#[test]
fn the_device_says_that_it_reaches_pinned_memory_and_no_other() {
    let _turn = begin();
    for (attribute, expected) in [(19, 1), (41, 1), (91, 0), (99, 1)] {
        let mut value = -1;
        ok(unsafe { cuDeviceGetAttribute(&raw mut value, attribute, 0) });
        assert_eq!(value, expected, "attribute {attribute}");
    }
}

#[test]
fn pinned_memory_has_a_device_pointer_with_every_flag() {
    let _turn = begin();
    for flags in [0, PORTABLE, MAPPED, PORTABLE | MAPPED | WRITE_COMBINED] {
        let host = pinned(4096, flags);
        let device = on_device(host);
        // On the recording device the two differ, as where memory of the program's lies at the device's addresses.
        assert_ne!(device, host.addr() as u64);
        assert_eq!(on_device(host.wrapping_add(100)), device + 100);
        let address = host.addr() as u64 + 8;
        assert_eq!((long(3, address), long(4, address)), (device + 8, address));
        let mut told = 0;
        ok(unsafe { cuMemHostGetFlags(&raw mut told, host) });
        assert_eq!(told, flags | PORTABLE | MAPPED);
        let mut kind = 0u32;
        ok(unsafe { cuPointerGetAttribute((&raw mut kind).cast(), 2, address) });
        let mut mapped = 0u32;
        ok(unsafe { cuPointerGetAttribute((&raw mut mapped).cast(), 13, address) });
        assert_eq!((kind, mapped), (1, 1));
        ok(unsafe { cuMemFreeHost(host) });
    }
    let mut host = null_mut();
    for flags in [8, 16, u32::MAX] {
        refused(unsafe { cuMemHostAlloc(&raw mut host, 4096, flags) }, Status::INVALID_VALUE);
    }
}

#[test]
fn what_is_not_pinned_has_no_device_pointer() {
    let _turn = begin();
    let (host, device_memory) = (pinned(4096, 0), allocate(4096));
    let mut own = [0u8; 8];
    let mut device = 0xBAD;
    for address in [own.as_mut_ptr(), null_mut(), host.wrapping_add(4096), device_memory as *mut u8] {
        refused(unsafe { cuMemHostGetDevicePointer_v2(&raw mut device, address, 0) }, Status::INVALID_VALUE);
    }
    refused(unsafe { cuMemHostGetDevicePointer_v2(&raw mut device, host, 1) }, Status::INVALID_VALUE);
    assert_eq!(device, 0xBAD);
    ok(unsafe { cuMemFreeHost(host) });
    refused(unsafe { cuMemHostGetDevicePointer_v2(&raw mut device, host, 0) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemFree_v2(device_memory) });
}

#[test]
fn pinned_memory_is_filled_in_the_order_of_the_stream() {
    let _turn = begin();
    let host = pinned(4096, 0);
    driver().unwrap().session.take_asked();
    ok(unsafe { cuMemsetD32_v2(host.addr() as u64 + 64, 0x0102_0304, 3) });
    let mut found = [0u8; 20];
    unsafe { std::ptr::copy(host.wrapping_add(60), found.as_mut_ptr(), 20) };
    assert_eq!(found, [0, 0, 0, 0, 4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1, 0, 0, 0, 0]);
    refused(unsafe { cuMemsetD32_v2(host.addr() as u64 + 4092, 1, 2) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemFreeHost(host) });
}

symbols! {
    cuMemHostRegister_v2(*mut u8, usize, u32);
    cuMemHostUnregister(*mut u8);
}

#[test]
fn memory_of_the_programs_own_is_registered_once_and_given_back_once() {
    let _turn = begin();
    let mut own = vec![7_u8; 3 * 4096];
    let host = own.as_mut_ptr();
    ok(unsafe { cuMemHostRegister_v2(host, own.len(), PORTABLE) });
    let again = Status::HOST_MEMORY_ALREADY_REGISTERED;
    for (offset, bytes) in [(0, 1), (3 * 4096 - 1, 10), (100, 4096)] {
        refused(unsafe { cuMemHostRegister_v2(host.wrapping_add(offset), bytes, 0) }, again);
    }
    let address = host.addr() as u64 + 8;
    let mut kind = 0u32;
    ok(unsafe { cuPointerGetAttribute((&raw mut kind).cast(), 2, address) });
    assert_eq!((kind, long(4, address)), (1, address));
    let mut told = 0;
    ok(unsafe { cuMemHostGetFlags(&raw mut told, host) });
    assert_eq!(told & PORTABLE, PORTABLE);
    // The recording device's memory cannot be put in its place: it serves copies.
    let mut device = 0;
    refused(unsafe { cuMemHostGetDevicePointer_v2(&raw mut device, host, 0) }, Status::NOT_SUPPORTED);
    refused(unsafe { cuMemFreeHost(host) }, Status::INVALID_VALUE);
    for other in [host.wrapping_add(1), host.wrapping_add(4 * 4096), null_mut()] {
        refused(unsafe { cuMemHostUnregister(other) }, Status::HOST_MEMORY_NOT_REGISTERED);
    }
    ok(unsafe { cuMemHostUnregister(host) });
    refused(unsafe { cuMemHostUnregister(host) }, Status::HOST_MEMORY_NOT_REGISTERED);
    assert!(own.iter().all(|byte| *byte == 7));
    refused(unsafe { cuMemHostRegister_v2(own.as_mut_ptr(), own.len(), MAPPED) }, Status::NOT_SUPPORTED);
    let pinned = pinned(4096, 0);
    refused(unsafe { cuMemHostRegister_v2(pinned, 64, 0) }, again);
    refused(unsafe { cuMemHostUnregister(pinned) }, Status::HOST_MEMORY_NOT_REGISTERED);
    ok(unsafe { cuMemFreeHost(pinned) });
}

#[test]
fn what_is_no_memory_to_register_is_refused() {
    let _turn = begin();
    let mut own = [0_u8; 64];
    let host = own.as_mut_ptr();
    for (host, bytes, flags) in [
        (null_mut(), 64, 0),
        (host, 0, 0),
        (host, 64, 16),
        (host, usize::MAX, 0),
        (0x10_0000 as *mut u8, 64, 0),
        (usize::MAX as *mut u8, 1, 0),
    ] {
        refused(unsafe { cuMemHostRegister_v2(host, bytes, flags) }, Status::INVALID_VALUE);
    }
    for flags in [4, 8] {
        refused(unsafe { cuMemHostRegister_v2(host, 64, flags) }, Status::NOT_SUPPORTED);
    }
    // A stack is not exchanged, whatever the device.
    ok(unsafe { cuMemHostRegister_v2(host, 64, 0) });
    ok(unsafe { cuMemHostUnregister(host) });
}
