//! CUDA's virtual memory management, through the C symbols.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use super::*;

const PAGE: usize = 2 << 20;
const READ_WRITE: AccessDescription = AccessDescription { location_type: 1, location_id: 0, flags: 3 };

fn plain() -> Properties {
    Properties::of_device(1, 0, 1)
}

fn shareable() -> Properties {
    Properties::of_device(1, 1, 1)
}

fn create(bytes: usize, properties: Properties) -> u64 {
    let mut handle = 0;
    ok(unsafe { cuMemCreate(&raw mut handle, bytes, &raw const properties, 0) });
    handle
}

fn reserve(bytes: usize) -> u64 {
    let mut start = 0;
    ok(unsafe { cuMemAddressReserve(&raw mut start, bytes, 0, 0, 0) });
    assert!(start.is_multiple_of(PAGE as u64) && start != 0);
    start
}

fn open_up(start: u64, bytes: usize, flags: u32) -> u32 {
    let description = AccessDescription { flags, ..READ_WRITE };
    unsafe { cuMemSetAccess(start, bytes, &raw const description, 1) }
}

fn access_of(address: u64) -> u64 {
    let (mut flags, location) = (9, [1, 0]);
    ok(unsafe { cuMemGetAccess(&raw mut flags, &raw const location, address) });
    flags
}

/// Reserved, made, mapped, open.
fn mapped(bytes: usize, properties: Properties) -> (u64, u64) {
    let (start, handle) = (reserve(bytes), create(bytes, properties));
    ok(unsafe { cuMemMap(start, bytes, 0, handle, 0) });
    ok(open_up(start, bytes, 3));
    (start, handle)
}

fn undo(start: u64, bytes: usize, handle: u64) {
    ok(unsafe { cuMemUnmap(start, bytes) });
    ok(unsafe { cuMemRelease(handle) });
    ok(unsafe { cuMemAddressFree(start, bytes) });
}

#[test]
fn the_attributes_and_the_granularity_tell_of_it() {
    let _turn = begin();
    for attribute in [102, 103] {
        let mut supported = -1;
        ok(unsafe { cuDeviceGetAttribute(&raw mut supported, attribute, 0) });
        assert_eq!(supported, 1, "{attribute}");
    }
    let mut bytes = 0;
    let properties = shareable();
    for option in [0, 1] {
        ok(unsafe { cuMemGetAllocationGranularity(&raw mut bytes, &raw const properties, option) });
        assert_eq!(bytes, PAGE);
    }
    let granularity = unsafe { cuMemGetAllocationGranularity(&raw mut bytes, &raw const properties, 2) };
    refused(granularity, Status::INVALID_VALUE);
}

#[test]
fn what_is_mapped_is_memory_while_it_is_open() {
    let _turn = begin();
    let (start, handle) = (reserve(4 * PAGE), create(2 * PAGE, plain()));
    let mut word = 0u32;
    let mut read = || unsafe { cuMemcpyDtoH_v2((&raw mut word).cast(), start + PAGE as u64, 4) };
    refused(read(), Status::INVALID_VALUE);
    ok(unsafe { cuMemMap(start + PAGE as u64, 2 * PAGE, 0, handle, 0) });
    assert_eq!(access_of(start + PAGE as u64), 0);
    refused(read(), Status::INVALID_VALUE);
    driver().unwrap().session.take_asked();
    ok(open_up(start + PAGE as u64, 2 * PAGE, 3));
    ok(open_up(start + PAGE as u64, 2 * PAGE, 3));
    let asked = driver().unwrap().session.take_asked();
    assert_eq!(asked, [Asked::Map { address: start + PAGE as u64 }], "it is mapped once");
    assert_eq!(access_of(start + 3 * PAGE as u64 - 1), 3);
    ok(unsafe { cuMemsetD32_v2(start + PAGE as u64, 77, PAGE / 2) });
    ok(read());
    let number = |attribute| {
        let mut value = 7u64;
        let address = start + PAGE as u64 + 12;
        ok(unsafe { cuPointerGetAttribute((&raw mut value).cast(), attribute, address) });
        value
    };
    // Of no context; its range.
    assert_eq!((number(1), number(11), number(12)), (0, start + PAGE as u64, 2 * PAGE as u64));
    refused(unsafe { cuMemFree_v2(start + PAGE as u64) }, Status::INVALID_VALUE);
    let mut handle_of_ipc = IpcHandle([0; 64]);
    refused(unsafe { cuIpcGetMemHandle(&raw mut handle_of_ipc, start + PAGE as u64) }, Status::INVALID_VALUE);

    // Taken back, the mapping is noted still, and what it held is there again.
    ok(open_up(start + PAGE as u64, 2 * PAGE, 0));
    assert_eq!(driver().unwrap().session.take_asked().last(), Some(&Asked::Unmap));
    refused(read(), Status::INVALID_VALUE);
    ok(open_up(start + PAGE as u64, 2 * PAGE, 3));
    ok(read());
    refused(unsafe { cuMemAddressFree(start, 4 * PAGE) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemUnmap(start + PAGE as u64, 2 * PAGE) });
    refused(unsafe { cuMemUnmap(start + PAGE as u64, 2 * PAGE) }, Status::INVALID_VALUE);
    refused(read(), Status::INVALID_VALUE);
    ok(unsafe { cuMemRelease(handle) });
    refused(unsafe { cuMemRelease(handle) }, Status::INVALID_HANDLE);
    refused(unsafe { cuMemAddressFree(start, 2 * PAGE) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemAddressFree(start, 4 * PAGE) });
    refused(unsafe { cuMemAddressFree(start, 4 * PAGE) }, Status::INVALID_VALUE);
    assert_eq!(word, 77);
}

#[test]
fn copies_and_fills_run_across_pieces_that_lie_side_by_side() {
    let _turn = begin();
    let start = reserve(8 * PAGE);
    let pieces: Vec<_> = [2, 1, 3].map(|pages| create(pages * PAGE, plain())).into();
    let places = [0, 2, 3, 6].map(|page| start + page * PAGE as u64);
    for (piece, place) in pieces.iter().zip(places.windows(2)) {
        ok(unsafe { cuMemMap(place[0], (place[1] - place[0]) as usize, 0, *piece, 0) });
    }
    ok(open_up(start, 6 * PAGE, 3));
    let content: Vec<u8> = (0..=250).cycle().take(3 * PAGE).collect();
    let from = start + PAGE as u64 + 100;
    ok(unsafe { cuMemcpyHtoD_v2(from, content.as_ptr(), content.len()) });
    let mut back = vec![0; content.len()];
    ok(unsafe { cuMemcpyDtoH_v2(back.as_mut_ptr(), from, back.len()) });
    assert!(back == content);
    let other = allocate(3 * PAGE);
    ok(unsafe { cuMemcpyDtoD_v2(other, from, 3 * PAGE) });
    back.fill(0);
    ok(unsafe { cuMemcpyDtoH_v2(back.as_mut_ptr(), other, back.len()) });
    assert!(back == content);
    // A word across no border, words across two.
    ok(unsafe { cuMemsetD32_v2(start, 0x0505_0505, 6 * PAGE / 4) });
    ok(unsafe { cuMemcpyDtoH_v2(back.as_mut_ptr(), from, back.len()) });
    assert!(back.iter().all(|byte| *byte == 5));
    // Rows, one of which lies in two pieces.
    ok(unsafe { cuMemsetD2D8_v2(start + 2 * PAGE as u64 - 96, 128, 9, 64, 3) });
    let side = |device, host: *mut u8, kind| Side2d {
        x: 0,
        y: 0,
        kind,
        host: host.addr() as u64,
        device,
        array: 0,
        pitch: 128,
    };
    let mut rows = vec![0u8; 128 * 6];
    let shape = Copy2d {
        from: side(start + 2 * PAGE as u64 - 96, null_mut(), 2),
        to: side(0, rows.as_mut_ptr(), 1),
        width: 100,
        height: 6,
    };
    ok(unsafe { cuMemcpy2D_v2(&raw const shape) });
    for (row, expected) in rows.chunks(128).zip([9, 9, 9, 5, 5, 5]) {
        assert!(row[..64].iter().all(|byte| *byte == expected) && row[64..100].iter().all(|byte| *byte == 5));
    }
    // Beyond the last piece there is nothing.
    let beyond = unsafe { cuMemcpyDtoH_v2(back.as_mut_ptr(), start + 5 * PAGE as u64, PAGE + 1) };
    refused(beyond, Status::INVALID_VALUE);
    refused(unsafe { cuMemsetD32_v2(start + 5 * PAGE as u64, 0, PAGE / 4 + 1) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemFree_v2(other) });
    for piece in pieces {
        ok(unsafe { cuMemRelease(piece) });
    }
    // Only whole mappings go.
    refused(unsafe { cuMemUnmap(start, PAGE) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemUnmap(start + PAGE as u64, 2 * PAGE) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemUnmap(start, 7 * PAGE) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemUnmap(start + 2 * PAGE as u64, PAGE) });
    refused(unsafe { cuMemUnmap(start, 6 * PAGE) }, Status::INVALID_VALUE);
    refused(open_up(start, 6 * PAGE, 3), Status::INVALID_VALUE);
    ok(unsafe { cuMemUnmap(start, 2 * PAGE) });
    ok(unsafe { cuMemUnmap(start + 3 * PAGE as u64, 3 * PAGE) });
    ok(unsafe { cuMemAddressFree(start, 8 * PAGE) });
}

#[test]
fn a_handle_is_good_until_it_is_released_as_often_as_it_was_taken() {
    let _turn = begin();
    let (start, handle) = mapped(PAGE, plain());
    let address = |at: u64| std::ptr::without_provenance_mut((start + at) as usize);
    let mut again = 0;
    ok(unsafe { cuMemRetainAllocationHandle(&raw mut again, address(4096)) });
    assert_eq!(again, handle);
    ok(unsafe { cuMemRelease(handle) });
    let mut found = plain();
    ok(unsafe { cuMemGetAllocationPropertiesFromHandle(&raw mut found, handle) });
    assert_eq!(found, plain());
    ok(unsafe { cuMemRelease(again) });
    refused(unsafe { cuMemRelease(handle) }, Status::INVALID_HANDLE);
    let properties = unsafe { cuMemGetAllocationPropertiesFromHandle(&raw mut found, handle) };
    refused(properties, Status::INVALID_HANDLE);
    // It is mapped still, and can be named again.
    ok(unsafe { cuMemsetD32_v2(start, 1, 4) });
    let mut named = 0;
    ok(unsafe { cuMemRetainAllocationHandle(&raw mut named, address(PAGE as u64 - 1)) });
    let beyond = unsafe { cuMemRetainAllocationHandle(&raw mut again, address(PAGE as u64)) };
    refused(beyond, Status::INVALID_VALUE);
    driver().unwrap().session.take_asked();
    undo(start, PAGE, named);
    let freed = driver().unwrap().session.take_asked();
    assert!(freed.iter().any(|asked| matches!(asked, Asked::Free { .. })), "{freed:?}");
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let _turn = begin();
    let mut to = 0xBAD;
    let mut created = |bytes, properties: Properties, flags| unsafe {
        cuMemCreate(&raw mut to, bytes, &raw const properties, flags)
    };
    for bytes in [0, 1, PAGE - 1, PAGE + 1, usize::MAX] {
        refused(created(bytes, plain(), 0), Status::INVALID_VALUE);
    }
    refused(created(PAGE, plain(), 1), Status::INVALID_VALUE);
    refused(created(1 << 50, plain(), 0), Status::OUT_OF_MEMORY);
    refused(created(PAGE, Properties::of_device(7, 0, 1), 0), Status::INVALID_VALUE);
    refused(created(PAGE, Properties { location_id: 1, ..plain() }, 0), Status::INVALID_DEVICE);
    for unsupported in [
        Properties::of_device(1, 0, 3),
        Properties::of_device(1, 8, 1),
        Properties { rdma: 1, ..plain() },
        Properties { usage: 1, ..plain() },
    ] {
        refused(created(PAGE, unsupported, 0), Status::NOT_SUPPORTED);
    }
    let mut reserved =
        |bytes, alignment, flags| unsafe { cuMemAddressReserve(&raw mut to, bytes, alignment, 0, flags) };
    for (bytes, alignment, flags) in [(0, 0, 0), (PAGE + 1, 0, 0), (PAGE, 3, 0), (PAGE, 0, 1)] {
        refused(reserved(bytes, alignment, flags), Status::INVALID_VALUE);
    }
    refused(reserved(1 << 40, 0, 0), Status::OUT_OF_MEMORY);
    assert_eq!(to, 0xBAD);

    let (start, handle) = (reserve(4 * PAGE), create(2 * PAGE, plain()));
    let page = PAGE as u64;
    let map = |at, bytes, offset, handle| unsafe { cuMemMap(at, bytes, offset, handle, 0) };
    for (at, bytes, offset, handle, status) in [
        (start, 2 * PAGE, 0, 0, Status::INVALID_HANDLE),
        (start, 2 * PAGE, 0, start, Status::INVALID_HANDLE),
        (start, PAGE, 0, handle, Status::NOT_SUPPORTED),
        (start, 3 * PAGE, 0, handle, Status::INVALID_VALUE),
        (start, 0, 0, handle, Status::INVALID_VALUE),
        (start, PAGE, PAGE, handle, Status::INVALID_VALUE),
        (start + 1, 2 * PAGE, 0, handle, Status::INVALID_VALUE),
        (start - page, 2 * PAGE, 0, handle, Status::INVALID_VALUE),
        (start + 3 * page, 2 * PAGE, 0, handle, Status::INVALID_VALUE),
        (u64::MAX - page + 1, 2 * PAGE, 0, handle, Status::INVALID_VALUE),
        (0, 2 * PAGE, 0, handle, Status::INVALID_VALUE),
    ] {
        refused(map(at, bytes, offset, handle), status);
    }
    ok(map(start + page, 2 * PAGE, 0, handle));
    for at in [start, start + page, start + 2 * page] {
        refused(map(at, 2 * PAGE, 0, handle), Status::INVALID_VALUE);
    }
    refused(open_up(start, PAGE, 3), Status::INVALID_VALUE);
    refused(open_up(start + page, PAGE, 3), Status::INVALID_VALUE);
    refused(open_up(start + page, 2 * PAGE, 1), Status::NOT_SUPPORTED);
    refused(open_up(start + page, 2 * PAGE, 2), Status::INVALID_VALUE);
    let of = |location_type, location_id| {
        let description = AccessDescription { location_type, location_id, flags: 3 };
        unsafe { cuMemSetAccess(start + page, 2 * PAGE, &raw const description, 1) }
    };
    refused(of(2, 0), Status::NOT_SUPPORTED);
    refused(of(1, 1), Status::INVALID_DEVICE);
    let none = unsafe { cuMemSetAccess(start + page, 2 * PAGE, null(), 0) };
    refused(none, Status::INVALID_VALUE);
    refused(unsafe { cuMemSetAccess(start + page, 2 * PAGE, null(), 1) }, Status::INVALID_VALUE);
    let description = READ_WRITE;
    let many = unsafe { cuMemSetAccess(start + page, 2 * PAGE, &raw const description, usize::MAX) };
    refused(many, Status::INVALID_VALUE);
    assert_eq!(access_of(start + page), 0);
    let mut flags = 0;
    let location = [1, 0];
    let elsewhere = unsafe { cuMemGetAccess(&raw mut flags, &raw const location, start) };
    refused(elsewhere, Status::INVALID_VALUE);
    refused(unsafe { cuMemUnmap(u64::MAX, 2) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemUnmap(start + page, 0) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemUnmap(start + page, 2 * PAGE) });
    ok(unsafe { cuMemRelease(handle) });
    ok(unsafe { cuMemAddressFree(start, 4 * PAGE) });
}

#[test]
fn small_reservations_lie_side_by_side_and_wishes_are_met_where_they_can_be() {
    let _turn = begin();
    driver().unwrap().session.take_asked();
    let starts: Vec<_> = (0..600).map(|_| reserve(2 * PAGE)).collect();
    let reserves = driver().unwrap().session.take_asked();
    let expected = Asked::Reserve { bytes: 1 << 30 };
    assert_eq!(reserves, vec![expected; 3], "256 in each");
    let distinct: HashSet<_> = starts.iter().collect();
    assert_eq!(distinct.len(), starts.len());
    // One that is free again is given to whoever wishes for it, and only then.
    ok(unsafe { cuMemAddressFree(starts[10], 2 * PAGE) });
    let mut start = 0;
    ok(unsafe { cuMemAddressReserve(&raw mut start, PAGE, 0, starts[10] + PAGE as u64, 0) });
    assert_eq!(start, starts[10] + PAGE as u64);
    let mut other = 0;
    ok(unsafe { cuMemAddressReserve(&raw mut other, PAGE, 0, start, 0) });
    assert_eq!(other, starts[10], "the first gap");
    let mut aligned = 0;
    ok(unsafe { cuMemAddressReserve(&raw mut aligned, PAGE, 32 << 20, 0, 0) });
    assert!(aligned.is_multiple_of(32 << 20));
    for small in [start, other, aligned] {
        ok(unsafe { cuMemAddressFree(small, PAGE) });
    }
    for (at, start) in starts.iter().enumerate().filter(|(at, _)| *at != 10) {
        ok(unsafe { cuMemAddressFree(*start, 2 * PAGE) });
        refused(unsafe { cuMemAddressFree(*start, 2 * PAGE) }, Status::INVALID_VALUE);
        assert_ne!(at, 10);
    }
    let back = driver().unwrap().session.take_asked();
    assert_eq!(back, vec![Asked::Unreserve; 3]);
    let large = reserve(100 << 30);
    assert_eq!(driver().unwrap().session.take_asked(), [Asked::Reserve { bytes: 100 << 30 }]);
    ok(unsafe { cuMemAddressFree(large, 100 << 30) });
}

fn export(handle: u64) -> OwnedFd {
    let mut descriptor = -1i32;
    ok(unsafe { cuMemExportToShareableHandle((&raw mut descriptor).cast(), handle, 1, 0) });
    assert!(descriptor >= 0);
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn import(descriptor: i32) -> Result<u64, u32> {
    let mut handle = 0;
    let pointer = std::ptr::without_provenance_mut(descriptor.cast_unsigned() as usize);
    match unsafe { cuMemImportFromShareableHandle(&raw mut handle, pointer, 1) } {
        0 => Ok(handle),
        code => Err(code),
    }
}

#[test]
fn a_descriptor_stands_for_the_memory_it_was_made_of() {
    let _turn = begin();
    let handle = create(2 * PAGE, shareable());
    let descriptor = export(handle);
    let copy = descriptor.try_clone().unwrap();
    drop(descriptor);
    let again = export(handle);
    let imported = import(copy.as_raw_fd()).unwrap();
    assert_ne!(imported, handle);
    let mut found = plain();
    ok(unsafe { cuMemGetAllocationPropertiesFromHandle(&raw mut found, imported) });
    assert_eq!(found, shareable());
    let start = reserve(2 * PAGE);
    ok(unsafe { cuMemMap(start, 2 * PAGE, 0, imported, 0) });
    ok(open_up(start, 2 * PAGE, 3));
    ok(unsafe { cuMemsetD32_v2(start, 1, 2 * PAGE / 4) });
    let mut types = 0u64;
    ok(unsafe { cuPointerGetAttribute((&raw mut types).cast(), 14, start) });
    assert_eq!(types, 1);
    drop((again, copy));
    undo(start, 2 * PAGE, imported);
    ok(unsafe { cuMemRelease(handle) });
    // What was not made to be exported is not, nor is there another kind of handle.
    let private = create(PAGE, plain());
    let mut descriptor = -1i32;
    let mut exported = |handle, kind, flags| unsafe {
        cuMemExportToShareableHandle((&raw mut descriptor).cast(), handle, kind, flags)
    };
    refused(exported(private, 1, 0), Status::INVALID_VALUE);
    refused(exported(private, 0, 0), Status::INVALID_VALUE);
    refused(exported(private, 8, 0), Status::NOT_SUPPORTED);
    refused(exported(private, 1, 1), Status::INVALID_VALUE);
    refused(exported(handle, 1, 0), Status::INVALID_HANDLE);
    assert_eq!(descriptor, -1);
    ok(unsafe { cuMemRelease(private) });
}

/// A memfd with such content, sealed.
fn forged(content: &[u8], seals: SealFlags) -> OwnedFd {
    let memory = rustix::fs::memfd_create("forged", MemfdFlags::ALLOW_SEALING).unwrap();
    assert_eq!(rustix::io::write(&memory, content).unwrap(), content.len());
    rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
    memory
}

#[test]
fn descriptors_that_stand_for_no_memory_are_refused_and_none_is_waited_for() {
    let _turn = begin();
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    let good = [&b"BHshared"[..], &[9; 32]].concat();
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    let folder: OwnedFd = std::fs::File::open("/").unwrap().into();
    let foreign = [
        pipe,
        socket.into(),
        file,
        folder,
        forged(b"", all),
        forged(&good[..39], all),
        forged(&[&good[..], b"x"].concat(), all),
        forged(&[0; 40], all),
        forged(&good, SealFlags::SHRINK | SealFlags::GROW),
        forged(&good, SealFlags::empty()),
    ];
    for (which, descriptor) in foreign.iter().enumerate() {
        assert_eq!(import(descriptor.as_raw_fd()), Err(Status::INVALID_VALUE.code()), "{which}");
    }
    // A token that nobody made, or that is not good any more.
    assert_eq!(import(forged(&good, all).as_raw_fd()), Err(Status::INVALID_HANDLE.code()));
    let closed = forged(&good, all).as_raw_fd();
    for none in [-1, i32::MAX, closed] {
        assert_eq!(import(none), Err(Status::INVALID_VALUE.code()), "{none}");
    }
    let (mut handle, wide) = (0, std::ptr::without_provenance_mut(usize::MAX));
    let code = unsafe { cuMemImportFromShareableHandle(&raw mut handle, wide, 1) };
    refused(code, Status::INVALID_VALUE);
    for kind in [0, 2, 8] {
        let code = unsafe { cuMemImportFromShareableHandle(&raw mut handle, null_mut(), kind) };
        refused(code, Status::NOT_SUPPORTED);
    }
}
