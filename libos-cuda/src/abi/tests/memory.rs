//! Allocations, copies and fills.

use super::*;
use crate::memory::What;

#[test]
fn memory_is_copied_between_every_two_places() {
    let _turn = begin();
    let (one, two) = (allocate(4096), allocate(4096));
    let content: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let mut back = vec![0; 4096];
    ok(unsafe { cuMemcpyHtoD_v2(one, content.as_ptr(), 4096) });
    ok(unsafe { cuMemcpyDtoD_v2(two + 96, one, 4000) });
    ok(unsafe { cuMemcpyDtoH_v2(back.as_mut_ptr(), two + 96, 4000) });
    assert_eq!(back[..4000], content[..4000]);

    let mut pinned = null_mut();
    ok(unsafe { cuMemAllocHost_v2(&raw mut pinned, 4096) });
    ok(unsafe { cuMemcpyDtoHAsync_v2(pinned.wrapping_add(8), one, 4088, 0) });
    ok(unsafe { cuStreamSynchronize(0) });
    ok(unsafe { cuMemcpy(two, pinned.addr() as u64 + 8, 4088) });
    ok(unsafe { cuMemcpy(back.as_mut_ptr().addr() as u64, two, 4088) });
    assert_eq!(back[..4088], content[..4088]);
    ok(unsafe { cuMemFreeHost(pinned) });

    refused(unsafe { cuMemcpyHtoD_v2(one + 1, content.as_ptr(), 4096) }, Status::INVALID_VALUE);
    refused(
        unsafe { cuMemcpyHtoD_v2(content.as_ptr().addr() as u64, content.as_ptr(), 4) },
        Status::INVALID_VALUE,
    );
    refused(unsafe { cuMemcpyDtoD_v2(one + 1, one, 16) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemcpyDtoH_v2(null_mut(), one, 0) });
    refused(unsafe { cuMemcpyDtoH_v2(null_mut(), one, 1) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemFree_v2(one) });
    refused(unsafe { cuMemFree_v2(one) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemFree_v2(two + 1) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemcpyHtoD_v2(one, content.as_ptr(), 1) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemFree_v2(two) });
}

#[test]
fn bad_sizes_and_addresses_of_allocations_are_refused_and_change_nothing() {
    let _turn = begin();
    let free = || {
        let (mut free, mut total) = (0, 0);
        ok(unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) });
        assert!(free <= total);
        free
    };
    let before = free();
    let mut address = 0xBAD;
    refused(unsafe { cuMemAlloc_v2(&raw mut address, 0) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemAlloc_v2(&raw mut address, 1 << 50) }, Status::OUT_OF_MEMORY);
    refused(unsafe { cuMemAlloc_v2(&raw mut address, usize::MAX) }, Status::OUT_OF_MEMORY);
    refused(unsafe { cuMemAllocAsync(&raw mut address, 0, 0) }, Status::INVALID_VALUE);
    let pitched = |width, height, element| {
        let (mut address, mut pitch) = (0, 0);
        unsafe { cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, width, height, element) }
    };
    refused(pitched(0, 4, 4), Status::INVALID_VALUE);
    refused(pitched(4, 0, 4), Status::INVALID_VALUE);
    refused(pitched(4, 4, 3), Status::INVALID_VALUE);
    refused(pitched(usize::MAX, 4, 4), Status::INVALID_VALUE);
    assert_eq!((address, free()), (0xBAD, before));

    let mut pitch = 0;
    ok(unsafe { cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, 1000, 7, 8) });
    assert_eq!(pitch, 1024);
    assert!(free() <= before - 7 * 1024);
    let (mut start, mut bytes) = (0, 0);
    ok(unsafe { cuMemGetAddressRange_v2(&raw mut start, &raw mut bytes, address + 7 * 1024 - 1) });
    assert_eq!((start, bytes), (address, 7 * 1024));
    refused(
        unsafe { cuMemGetAddressRange_v2(&raw mut start, &raw mut bytes, address + 7 * 1024) },
        Status::NOT_FOUND,
    );
    ok(unsafe { cuMemFree_v2(0) });
    ok(unsafe { cuMemFreeAsync(0, 0) });
    ok(unsafe { cuMemFree_v2(address) });
    assert_eq!(free(), before);
    refused(unsafe { cuMemFreeAsync(address, 0) }, Status::INVALID_VALUE);
}

#[test]
fn a_free_in_a_stream_s_order_waits_for_that_stream_alone() {
    let _turn = begin();
    let mut stream = 0;
    ok(unsafe { cuStreamCreate(&raw mut stream, 1) });
    let frees = || {
        let asked = driver().unwrap().session.take_asked();
        let free = |asked: &Asked| if let Asked::Free { after, .. } = asked { Some(*after) } else { None };
        asked.iter().filter_map(free).collect::<Vec<_>>()
    };
    let mut address = 0;
    ok(unsafe { cuMemAllocAsync(&raw mut address, 4096, stream) });
    ok(unsafe { cuMemFreeAsync(address, stream) });
    assert!(matches!(frees()[..], [Some(index)] if index != 0), "the stream's own");
    ok(unsafe { cuMemAllocAsync(&raw mut address, 4096, stream) });
    ok(unsafe { cuMemFreeAsync(address, 0) });
    assert_eq!(frees(), [Some(0)]);
    ok(unsafe { cuMemAllocAsync(&raw mut address, 4096, stream) });
    ok(unsafe { cuMemFree_v2(address) });
    assert_eq!(frees(), [None]);
    ok(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn rows_of_different_pitches_are_copied_and_filled() {
    let _turn = begin();
    let device = allocate(64 * 10);
    let content: Vec<u8> = (0..100).collect();
    let side = |kind, host, device, pitch| Side2d { x: 2, y: 1, kind, host, device, array: 0, pitch };
    let out = Copy2d {
        from: side(1, content.as_ptr().addr() as u64, 0, 10),
        to: side(2, 0, device, 64),
        width: 7,
        height: 8,
    };
    ok(unsafe { cuMemsetD2D8_v2(device, 64, 0xCC, 60, 10) });
    ok(unsafe { cuMemcpy2D_v2(&raw const out) });
    let mut back = [0xAAu8; 100];
    let into =
        Copy2d { from: out.to, to: side(1, back.as_mut_ptr().addr() as u64, 0, 10), width: 8, height: 8 };
    ok(unsafe { cuMemcpy2D_v2(&raw const into) });
    for row in 0..10 {
        for column in 0..10 {
            let expected = match (row, column) {
                (1..9, 2..9) => content[row * 10 + column],
                // One column more than was copied: what the fill left.
                (1..9, 9) => 0xCC,
                _ => 0xAA,
            };
            assert_eq!(back[row * 10 + column], expected, "{row} {column}");
        }
    }
    let narrow = Copy2d { to: Side2d { pitch: 8, ..out.to }, ..out };
    refused(unsafe { cuMemcpy2D_v2(&raw const narrow) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemsetD32_v2(device + 2, 0, 1) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemFree_v2(device) });
}

#[test]
fn an_array_that_somebody_still_holds_frees_nothing_but_its_own_memory() {
    let _turn = begin();
    let driver = driver().unwrap();
    let mut context = 0;
    ok(unsafe { cuCtxCreate_v2(&raw mut context, 0, 0) });
    let (mut array, float) = (0, 0x20);
    let described = ArrayDescription { width: 64, height: 16, format: float, channels: 1 };
    ok(unsafe { cuArrayCreate_v2(&raw mut array, &raw const described) });
    let held = driver.arrays.get(array).unwrap();
    assert!(driver.memory.overlaps(held.address, 1));
    ok(unsafe { cuCtxDestroy_v2(context) });
    assert!(!driver.memory.overlaps(held.address, 1));

    // As where the device has nothing better to give than what is free again.
    let address = held.address;
    let buffer = driver.session.allocate(4096).unwrap();
    driver.memory.insert(address, 4096, What::Device(buffer), 0).unwrap();
    drop(held);
    assert!(driver.memory.overlaps(address, 1));
    driver.memory.release(address).unwrap();
}
