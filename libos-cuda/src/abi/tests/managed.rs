//! Managed memory, through the C symbols.

use super::*;
use crate::abi::Location;

symbols! {
    cuMemAllocManaged(*mut u64, usize, u32);
    cuMemAdvise(u64, usize, u32, i32);
    cuMemAdvise_v2(u64, usize, u32, Location);
    cuMemPrefetchAsync(u64, usize, i32, u64);
    cuMemPrefetchAsync_v2(u64, usize, Location, u32, u64);
    cuMemRangeGetAttribute(*mut c_void, usize, u32, u64, usize);
    cuStreamAttachMemAsync(u64, u64, usize, u32);
}

const DEVICE: Location = Location { kind: 1, id: 0 };
const HOST: Location = Location { kind: 2, id: 0 };
const NODE: Location = Location { kind: 3, id: 4 };

fn managed(bytes: usize) -> u64 {
    let mut address = 0;
    ok(unsafe { cuMemAllocManaged(&raw mut address, bytes, 1) });
    address
}

fn attribute(attribute: u32, address: u64) -> u64 {
    let mut value = 0u64;
    ok(unsafe { cuPointerGetAttribute((&raw mut value).cast(), attribute, address) });
    value
}

fn told(attribute: u32, address: u64, bytes: usize) -> i32 {
    let mut value = -77;
    ok(unsafe { cuMemRangeGetAttribute((&raw mut value).cast(), 4, attribute, address, bytes) });
    value
}

#[test]
fn managed_memory_has_one_address_and_says_so() {
    let _turn = begin();
    let address = managed(8192);
    let inside = address + 100;
    assert_eq!((attribute(3, inside), attribute(4, inside)), (inside, inside));
    assert_eq!((attribute(2, inside), attribute(8, inside), attribute(11, inside)), (2, 1, address));
    let plain = allocate(64);
    assert_eq!(attribute(8, plain), 0);
    ok(unsafe { cuMemFree_v2(plain) });
    let mut failed = 0xBAD;
    for (bytes, flags) in [(0, 1), (64, 0), (64, 3), (64, 4)] {
        refused(unsafe { cuMemAllocManaged(&raw mut failed, bytes, flags) }, Status::INVALID_VALUE);
    }
    assert_eq!(failed, 0xBAD);
    refused(unsafe { cuMemFreeHost(address as *mut u8) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemFree_v2(address + 1) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemFree_v2(address) });
    refused(unsafe { cuMemFree_v2(address) }, Status::INVALID_VALUE);
}

#[test]
fn advice_and_prefetches_are_told_of_the_pages_they_were_for() {
    let _turn = begin();
    let address = managed(1 << 20);
    // None is preferred, nothing was fetched.
    assert_eq!([1, 2, 4, 5, 7].map(|asked| told(asked, address, 1 << 20)), [0, -2, -2, 0, 0]);
    ok(unsafe { cuMemAdvise(address, 1 << 20, 1, 0) });
    ok(unsafe { cuMemAdvise(address, 1 << 19, 3, -1) });
    ok(unsafe { cuMemAdvise_v2(address + (1 << 19), 1 << 19, 3, NODE) });
    assert_eq!([1, 2, 5].map(|asked| told(asked, address, 1 << 19)), [1, -1, 2]);
    assert_eq!([5, 6].map(|asked| told(asked, address + (1 << 19), 1 << 19)), [3, 4]);
    assert_eq!([1, 2, 5].map(|asked| told(asked, address, 1 << 20)), [1, -2, 0]);
    ok(unsafe { cuMemAdvise_v2(address, 1 << 20, 4, DEVICE) });
    assert_eq!(told(2, address, 1 << 19), -2);
    for location in [DEVICE, HOST] {
        ok(unsafe { cuMemAdvise_v2(address, 1 << 20, 5, location) });
    }
    let mut listed = [9; 3];
    ok(unsafe { cuMemRangeGetAttribute(listed.as_mut_ptr().cast(), 12, 3, address, 64) });
    assert_eq!(listed, [0, -1, -2]);
    ok(unsafe { cuMemPrefetchAsync(address, 1 << 20, 0, 0) });
    assert_eq!([4, 7, 8].map(|asked| told(asked, address, 1 << 20)), [0, 1, 0]);
    ok(unsafe { cuMemPrefetchAsync_v2(address, 4096, HOST, 0, 0) });
    assert_eq!((told(4, address, 4096), told(4, address, 4097)), (-1, -2));
    ok(unsafe { cuMemFree_v2(address) });
}

#[test]
fn advice_that_cannot_be_is_refused_and_changes_nothing() {
    let _turn = begin();
    let (address, plain) = (managed(8192), allocate(4096));
    let invalid = Status::INVALID_VALUE;
    for (at, bytes) in
        [(plain, 64), (address, 0), (address, 8193), (address + 8192, 1), (0, 1), (address, usize::MAX)]
    {
        refused(unsafe { cuMemAdvise(at, bytes, 1, 0) }, invalid);
        refused(unsafe { cuMemPrefetchAsync(at, bytes, 0, 0) }, invalid);
        let mut value = 0u32;
        refused(unsafe { cuMemRangeGetAttribute((&raw mut value).cast(), 4, 1, at, bytes) }, invalid);
    }
    for advice in [0, 7] {
        refused(unsafe { cuMemAdvise(address, 64, advice, 0) }, invalid);
    }
    refused(unsafe { cuMemAdvise(address, 64, 3, 1) }, Status::INVALID_DEVICE);
    refused(unsafe { cuMemAdvise_v2(address, 64, 5, NODE) }, invalid);
    refused(unsafe { cuMemAdvise_v2(address, 64, 3, Location { kind: 9, id: 0 }) }, invalid);
    refused(unsafe { cuMemPrefetchAsync(address, 64, 1, 0) }, Status::INVALID_DEVICE);
    refused(unsafe { cuMemPrefetchAsync_v2(address, 64, DEVICE, 1, 0) }, invalid);
    let mut value = [0u32; 2];
    for (attribute, size) in [(0, 4), (9, 4), (1, 8), (2, 0), (3, 0), (3, 6)] {
        let to = value.as_mut_ptr().cast();
        refused(unsafe { cuMemRangeGetAttribute(to, size, attribute, address, 64) }, invalid);
    }
    assert_eq!([1, 2, 4].map(|asked| told(asked, address, 8192)), [0, -2, -2]);
    for (at, bytes, flags) in [
        (address, 5, 1),
        (address + 1, 0, 1),
        (plain, 0, 1),
        (address, 0, 0),
        (address, 0, 3),
        (address, 0, 4),
    ] {
        refused(unsafe { cuStreamAttachMemAsync(0, at, bytes, flags) }, invalid);
    }
    ok(unsafe { cuStreamAttachMemAsync(0, address, 8192, 2) });
    for freed in [address, plain] {
        ok(unsafe { cuMemFree_v2(freed) });
    }
}
