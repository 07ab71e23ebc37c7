//! CUDA's IPC, through the C symbols.

use super::*;
use crate::device::SturdyToken;

const NO_HANDLE: IpcHandle = IpcHandle([0; 64]);

fn handle_of(address: u64) -> IpcHandle {
    let mut handle = NO_HANDLE;
    ok(unsafe { cuIpcGetMemHandle(&raw mut handle, address) });
    handle
}

fn open(handle: IpcHandle) -> u64 {
    let mut address = 0;
    ok(unsafe { cuIpcOpenMemHandle_v2(&raw mut address, handle, 1) });
    address
}

/// A handle as another process makes it: an allocation of `bytes` bytes, `offset` into the pages that are shared.
fn from_elsewhere(token: u8, offset: u64, bytes: u64) -> IpcHandle {
    let token = SturdyToken(std::array::from_fn(|at| if at == 0 { token } else { at as u8 }));
    driver().unwrap().session.export_elsewhere(token, (offset + bytes).next_multiple_of(2 << 20));
    let parts = [&b"BHmemory"[..], &token.0, &offset.to_le_bytes(), &bytes.to_le_bytes(), &[0; 8]].concat();
    IpcHandle(parts.try_into().unwrap())
}

#[test]
fn an_allocation_has_one_handle_wherever_one_points_into_it_and_until_it_is_freed() {
    let _turn = begin();
    let (one, two) = (allocate(8 << 20), allocate(4096));
    let handle = handle_of(one);
    assert!(handle_of(one + 12345).0 == handle.0 && handle_of(two).0 != handle.0);
    assert_eq!(handle.0[48..56], (8_u64 << 20).to_le_bytes());
    let mut refused_handle = NO_HANDLE;
    refused(unsafe { cuIpcGetMemHandle(&raw mut refused_handle, two + 4096) }, Status::INVALID_VALUE);
    refused(unsafe { cuIpcGetMemHandle(null_mut(), one) }, Status::INVALID_VALUE);
    let mut pinned = null_mut();
    ok(unsafe { cuMemAllocHost_v2(&raw mut pinned, 64) });
    let host = pinned.addr() as u64;
    refused(unsafe { cuIpcGetMemHandle(&raw mut refused_handle, host) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemFreeHost(pinned) });
    assert!(refused_handle.0 == NO_HANDLE.0);

    driver().unwrap().session.take_asked();
    ok(unsafe { cuMemFree_v2(one) });
    ok(unsafe { cuMemFreeAsync(two, 0) });
    let frees = driver().unwrap().session.take_asked();
    let freed = |after| Asked::Free { after, exported: true };
    assert_eq!(frees, [freed(None), freed(Some(0))]);
}

#[test]
fn a_process_does_not_open_what_is_its_own() {
    let _turn = begin();
    let one = allocate(4096);
    let mut address = 0xBAD;
    refused(unsafe { cuIpcOpenMemHandle_v2(&raw mut address, handle_of(one), 1) }, Status::INVALID_CONTEXT);
    refused(unsafe { cuIpcCloseMemHandle(one) }, Status::INVALID_VALUE);
    assert_eq!(address, 0xBAD);
    ok(unsafe { cuMemFree_v2(one) });
}

#[test]
fn memory_of_another_process_is_memory_at_the_right_place() {
    let _turn = begin();
    let (offset, bytes) = (0x1_2200, 8192);
    let handle = from_elsewhere(1, offset, bytes);
    let imported = open(handle);
    let mut back = vec![0; 8192];
    let content: Vec<u8> = (0..=255).rev().cycle().take(8192).collect();
    ok(unsafe { cuMemcpyHtoD_v2(imported, content.as_ptr(), 8192) });
    ok(unsafe { cuMemsetD32_v2(imported + 4096, 0x0101_0101, 2) });
    ok(unsafe { cuMemcpyDtoH_v2(back.as_mut_ptr(), imported, 8192) });
    assert_eq!(
        (&back[..4096], &back[4096..4104], &back[4104..]),
        (&content[..4096], &[1; 8][..], &content[4104..])
    );
    refused(unsafe { cuMemcpyHtoD_v2(imported, content.as_ptr(), 8193) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemsetD32_v2(imported - 4, 0, 1) }, Status::INVALID_VALUE);

    let (mut start, mut length) = (0, 0);
    ok(unsafe { cuMemGetAddressRange_v2(&raw mut start, &raw mut length, imported + 5000) });
    assert_eq!((start, length as u64), (imported, bytes));
    let number = |attribute| {
        let mut value = 0u32;
        ok(unsafe { cuPointerGetAttribute((&raw mut value).cast(), attribute, imported + 1) });
        value
    };
    // Memory of the device's, mapped, and not to be handed on.
    assert_eq!((number(2), number(13), number(10)), (2, 1, 0));
    let mut again = NO_HANDLE;
    refused(unsafe { cuIpcGetMemHandle(&raw mut again, imported) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemFree_v2(imported) }, Status::INVALID_VALUE);
    ok(unsafe { cuIpcCloseMemHandle(imported) });
    refused(unsafe { cuMemcpyHtoD_v2(imported, content.as_ptr(), 1) }, Status::INVALID_VALUE);
}

#[test]
fn a_handle_that_is_opened_twice_is_one_address_until_it_is_closed_twice() {
    let _turn = begin();
    let handle = from_elsewhere(2, 0, 4096);
    let first = open(handle);
    let mut second = 0;
    ok(unsafe { cuIpcOpenMemHandle(&raw mut second, handle, 0) });
    assert_eq!(first, second);
    refused(unsafe { cuIpcCloseMemHandle(first + 1) }, Status::INVALID_VALUE);
    driver().unwrap().session.take_asked();
    ok(unsafe { cuIpcCloseMemHandle(first) });
    ok(unsafe { cuMemsetD32_v2(first, 0, 1) });
    assert_eq!(driver().unwrap().session.take_asked(), [Asked::Fill { stream: 0 }]);
    ok(unsafe { cuIpcCloseMemHandle(first) });
    assert!(driver().unwrap().session.take_asked().contains(&Asked::Unmap));
    refused(unsafe { cuIpcCloseMemHandle(first) }, Status::INVALID_VALUE);
}

#[test]
fn what_a_context_opened_ends_with_it() {
    let _turn = begin();
    let mut context = 0;
    ok(unsafe { cuCtxCreate_v2(&raw mut context, 0, 0) });
    let handle = from_elsewhere(3, 0, 4096);
    let first = open(handle);
    ok(unsafe { cuCtxDestroy_v2(context) });
    assert!(driver().unwrap().session.take_asked().contains(&Asked::Unmap));
    refused(unsafe { cuIpcCloseMemHandle(first) }, Status::INVALID_VALUE);
}

#[test]
fn handles_that_are_none_and_wrong_ones_are_refused() {
    let _turn = begin();
    let mut address = 0xBAD;
    let mut opened = |handle, flags| unsafe { cuIpcOpenMemHandle_v2(&raw mut address, handle, flags) };
    let handle = from_elsewhere(4, 512, 4096);
    refused(opened(NO_HANDLE, 1), Status::INVALID_VALUE);
    refused(opened(handle, 2), Status::INVALID_VALUE);
    let changed = |at: usize, to: u8| {
        let mut handle = handle;
        handle.0[at] = to;
        handle
    };
    // Another token; sizes and offsets beyond what was exported, up to those that overflow; no size.
    refused(opened(changed(20, 0xEE), 1), Status::INVALID_HANDLE);
    refused(opened(changed(50, 0x20), 1), Status::INVALID_VALUE);
    refused(opened(changed(42, 0x20), 1), Status::INVALID_VALUE);
    refused(opened(changed(55, 0xFF), 1), Status::INVALID_VALUE);
    refused(opened(changed(47, 0xFF), 1), Status::INVALID_VALUE);
    refused(opened(changed(49, 0), 1), Status::INVALID_VALUE);
    assert_eq!(address, 0xBAD);
    // What is open under another size is not opened a second time.
    let first = open(handle);
    let mut second = 0xBAD;
    refused(unsafe { cuIpcOpenMemHandle_v2(&raw mut second, changed(48, 4), 1) }, Status::INVALID_VALUE);
    assert_eq!(second, 0xBAD);
    ok(unsafe { cuIpcCloseMemHandle(first) });
}
