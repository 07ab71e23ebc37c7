//! Memory pools, through the C symbols, and what of them other processes have.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use super::*;
use crate::abi::Location;
use crate::abi::layouts::PoolProperties;
use crate::device::SturdyToken;

symbols! {
    cuDeviceGetDefaultMemPool(*mut u64, i32);
    cuDeviceGetMemPool(*mut u64, i32);
    cuDeviceSetMemPool(i32, u64);
    cuMemGetDefaultMemPool(*mut u64, *const Location, u32);
    cuMemGetMemPool(*mut u64, *const Location, u32);
    cuMemSetMemPool(*const Location, u32, u64);
    cuMemPoolCreate(*mut u64, *const PoolProperties);
    cuMemPoolDestroy(u64);
    cuMemPoolGetAttribute(u64, u32, *mut c_void);
    cuMemPoolSetAttribute(u64, u32, *mut c_void);
    cuMemPoolTrimTo(u64, usize);
    cuMemPoolSetAccess(u64, *const AccessDescription, usize);
    cuMemPoolGetAccess(*mut u32, u64, *const Location);
    cuMemPoolExportToShareableHandle(*mut c_void, u64, u32, u64);
    cuMemPoolImportFromShareableHandle(*mut u64, *mut c_void, u32, u64);
    cuMemPoolExportPointer(*mut IpcHandle, u64);
    cuMemPoolImportPointer(*mut u64, u64, *const IpcHandle);
    cuMemAllocFromPoolAsync(*mut u64, usize, u64, u64);
}

static DEVICE: Location = Location { kind: 1, id: 0 };
const NOTHING: IpcHandle = IpcHandle([0; 64]);

fn properties(handle_types: u32) -> PoolProperties {
    PoolProperties {
        kind: 1,
        handle_types,
        location: DEVICE,
        security: 0,
        bytes_max: 0,
        usage: 0,
        reserved: [0; 54],
    }
}

fn create(properties: PoolProperties) -> u64 {
    let mut pool = 0;
    ok(unsafe { cuMemPoolCreate(&raw mut pool, &raw const properties) });
    pool
}

fn from_pool(pool: u64, bytes: usize) -> u64 {
    let mut address = 0;
    ok(unsafe { cuMemAllocFromPoolAsync(&raw mut address, bytes, pool, 0) });
    address
}

fn number(pool: u64, attribute: u32) -> u64 {
    let mut value = 0u64;
    ok(unsafe { cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) });
    value
}

fn default_pool() -> u64 {
    let mut pool = 0;
    ok(unsafe { cuDeviceGetDefaultMemPool(&raw mut pool, 0) });
    pool
}

fn pool_of(address: u64) -> u64 {
    let mut pool = 0u64;
    ok(unsafe { cuPointerGetAttribute((&raw mut pool).cast(), 17, address) });
    pool
}

#[test]
fn a_pool_counts_what_was_allocated_from_it() {
    let _turn = begin();
    let pool = create(properties(0));
    let before = number(default_pool(), 7);
    let (one, two) = (from_pool(pool, 4096), from_pool(pool, 100));
    assert_eq!([5, 6, 7, 8].map(|attribute| number(pool, attribute)), [4196; 4]);
    assert_eq!((number(default_pool(), 7), pool_of(one)), (before, pool));
    ok(unsafe { cuMemFreeAsync(one, 0) });
    assert_eq!((number(pool, 7), number(pool, 8)), (100, 4196));
    let (mut zero, mut one) = (0u64, 1u64);
    let set = |attribute, value: &mut u64| unsafe {
        cuMemPoolSetAttribute(pool, attribute, (&raw mut *value).cast())
    };
    refused(set(8, &mut one), Status::INVALID_VALUE);
    ok(set(8, &mut zero));
    assert_eq!(number(pool, 8), 100);
    let mut threshold = 12345;
    ok(set(4, &mut threshold));
    assert_eq!((number(pool, 4), number(default_pool(), 4)), (12345, 0));
    ok(unsafe { cuMemPoolTrimTo(pool, 0) });
    // It goes; what was allocated from it stays until it is freed.
    ok(unsafe { cuMemPoolDestroy(pool) });
    refused(unsafe { cuMemPoolDestroy(pool) }, Status::INVALID_VALUE);
    let mut address = 0;
    let code = unsafe { cuMemAllocFromPoolAsync(&raw mut address, 64, pool, 0) };
    refused(code, Status::INVALID_VALUE);
    ok(unsafe { cuMemsetD32_v2(two, 1, 25) });
    ok(unsafe { cuMemFree_v2(two) });
}

#[test]
fn plain_allocations_come_from_the_device_s_current_pool() {
    let _turn = begin();
    let current = || {
        let mut pool = 0;
        ok(unsafe { cuDeviceGetMemPool(&raw mut pool, 0) });
        pool
    };
    let of = |pool: u64| {
        let mut address = 0;
        ok(unsafe { cuMemAllocAsync(&raw mut address, 64, 0) });
        assert_eq!(pool_of(address), pool);
        ok(unsafe { cuMemFreeAsync(address, 0) });
    };
    let (default, pool) = (default_pool(), create(properties(0)));
    assert_eq!(current(), default);
    of(default);
    ok(unsafe { cuDeviceSetMemPool(0, pool) });
    assert_eq!(current(), pool);
    of(pool);
    let plain = allocate(64);
    assert_eq!(pool_of(plain), 0);
    ok(unsafe { cuMemFree_v2(plain) });
    ok(unsafe { cuMemPoolDestroy(pool) });
    assert_eq!(current(), default);
    refused(unsafe { cuMemPoolDestroy(default) }, Status::INVALID_VALUE);

    let pool = create(properties(0));
    let mut found = 0;
    ok(unsafe { cuMemSetMemPool(&raw const DEVICE, 1, pool) });
    ok(unsafe { cuMemGetMemPool(&raw mut found, &raw const DEVICE, 1) });
    assert_eq!(found, pool);
    ok(unsafe { cuMemGetDefaultMemPool(&raw mut found, &raw const DEVICE, 1) });
    assert_eq!(found, default);
    for (location, kind, status) in [
        (Location { kind: 1, id: 1 }, 1, Status::INVALID_DEVICE),
        (Location { kind: 1, id: 0 }, 2, Status::NOT_SUPPORTED),
        (Location { kind: 2, id: 0 }, 1, Status::NOT_SUPPORTED),
        (Location { kind: 9, id: 0 }, 1, Status::INVALID_VALUE),
    ] {
        refused(unsafe { cuMemGetMemPool(&raw mut found, &raw const location, kind) }, status);
    }
    refused(unsafe { cuDeviceSetMemPool(0, 0) }, Status::INVALID_VALUE);
    ok(unsafe { cuMemPoolDestroy(pool) });
}

#[test]
fn a_pool_gives_no_more_than_its_size_in_whole_pages() {
    let _turn = begin();
    let pool = create(PoolProperties { bytes_max: 1, ..properties(0) });
    let whole = from_pool(pool, 2 << 20);
    let mut more = 0;
    let code = unsafe { cuMemAllocFromPoolAsync(&raw mut more, 1, pool, 0) };
    refused(code, Status::OUT_OF_MEMORY);
    ok(unsafe { cuMemFreeAsync(whole, 0) });
    ok(unsafe { cuMemFreeAsync(from_pool(pool, 2 << 20), 0) });
    ok(unsafe { cuMemPoolDestroy(pool) });
}

#[test]
fn pools_that_cannot_be_are_refused() {
    let _turn = begin();
    let good = properties(1);
    let mut pool = 0xBAD;
    let located = |kind, id| PoolProperties { location: Location { kind, id }, ..good };
    for (wrong, status) in [
        (PoolProperties { kind: 2, ..good }, Status::NOT_SUPPORTED),
        (properties(2), Status::NOT_SUPPORTED),
        (properties(9), Status::NOT_SUPPORTED),
        (PoolProperties { usage: 2, ..good }, Status::NOT_SUPPORTED),
        (PoolProperties { security: 1, ..good }, Status::INVALID_VALUE),
        (PoolProperties { reserved: [1; 54], ..good }, Status::INVALID_VALUE),
        (located(1, 1), Status::INVALID_DEVICE),
        (located(3, 0), Status::NOT_SUPPORTED),
        (located(0, 0), Status::INVALID_VALUE),
    ] {
        refused(unsafe { cuMemPoolCreate(&raw mut pool, &raw const wrong) }, status);
    }
    refused(unsafe { cuMemPoolCreate(&raw mut pool, null()) }, Status::INVALID_VALUE);
    assert_eq!(pool, 0xBAD);
}

#[test]
fn the_device_reads_and_writes_what_is_in_its_pools_and_nobody_else_does() {
    let _turn = begin();
    let pool = default_pool();
    let access = |location_type, location_id, flags| {
        let description = AccessDescription { location_type, location_id, flags };
        unsafe { cuMemPoolSetAccess(pool, &raw const description, 1) }
    };
    ok(access(1, 0, 3));
    refused(access(1, 0, 0), Status::INVALID_VALUE);
    refused(access(1, 0, 1), Status::INVALID_VALUE);
    refused(access(1, 1, 3), Status::INVALID_DEVICE);
    refused(access(2, 0, 3), Status::NOT_SUPPORTED);
    refused(unsafe { cuMemPoolSetAccess(pool, null(), 1) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemPoolSetAccess(pool, null(), usize::MAX) }, Status::INVALID_VALUE);
    let mut flags = 9;
    ok(unsafe { cuMemPoolGetAccess(&raw mut flags, pool, &raw const DEVICE) });
    assert_eq!(flags, 3);
    let host = Location { kind: 2, id: 0 };
    ok(unsafe { cuMemPoolGetAccess(&raw mut flags, pool, &raw const host) });
    assert_eq!(flags, 0);
    let other = Location { kind: 1, id: 1 };
    let code = unsafe { cuMemPoolGetAccess(&raw mut flags, pool, &raw const other) };
    refused(code, Status::INVALID_DEVICE);
}

fn export(pool: u64) -> OwnedFd {
    let mut descriptor = -1i32;
    ok(unsafe { cuMemPoolExportToShareableHandle((&raw mut descriptor).cast(), pool, 1, 0) });
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn import(descriptor: &OwnedFd) -> Result<u64, u32> {
    let mut pool = 0;
    let pointer = std::ptr::without_provenance_mut(descriptor.as_raw_fd().cast_unsigned() as usize);
    match unsafe { cuMemPoolImportFromShareableHandle(&raw mut pool, pointer, 1, 0) } {
        0 => Ok(pool),
        code => Err(code),
    }
}

fn import_pointer(pool: u64, exported: &IpcHandle) -> Result<u64, u32> {
    let mut address = 0;
    match unsafe { cuMemPoolImportPointer(&raw mut address, pool, exported) } {
        0 => Ok(address),
        code => Err(code),
    }
}

fn token(number: u8) -> SturdyToken {
    SturdyToken(std::array::from_fn(|at| if at == 0 { number } else { 0xA0 }))
}

/// A descriptor as another process makes it, which is there.
fn pool_elsewhere(number: u8) -> OwnedFd {
    driver().unwrap().session.there_is(token(number), true);
    descriptor(&[&b"BH-pools"[..], &token(number).0].concat())
}

fn descriptor(content: &[u8]) -> OwnedFd {
    let memory = rustix::fs::memfd_create("elsewhere", MemfdFlags::ALLOW_SEALING).unwrap();
    assert_eq!(rustix::io::write(&memory, content).unwrap(), content.len());
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&memory, all).unwrap();
    memory
}

/// What stands for an allocation of another process, in the pool of this number.
fn pointer_elsewhere(pool: u8, memory: u8, offset: u64, bytes: u64) -> IpcHandle {
    driver().unwrap().session.export_elsewhere(token(memory), (offset + bytes).next_multiple_of(2 << 20));
    let (from, size, name) = (offset.to_le_bytes(), bytes.to_le_bytes(), token(pool).0);
    let parts = [&b"BHpooled"[..], &token(memory).0, &from, &size, &name[..8]].concat();
    IpcHandle(parts.try_into().unwrap())
}

#[test]
fn a_pool_of_another_process_gives_its_allocations() {
    let _turn = begin();
    let descriptor = pool_elsewhere(1);
    let pool = import(&descriptor).unwrap();
    drop(descriptor);
    let exported = pointer_elsewhere(1, 50, 0x1200, 8192);
    let (one, two) = (import_pointer(pool, &exported).unwrap(), import_pointer(pool, &exported).unwrap());
    assert_ne!(one, two, "each is freed for itself");
    assert_eq!((pool_of(one), number(pool, 7)), (pool, 16384));
    let content: Vec<u8> = (0..=255).cycle().take(8192).collect();
    let mut back = vec![0; 8192];
    ok(unsafe { cuMemcpyHtoD_v2(one, content.as_ptr(), 8192) });
    ok(unsafe { cuMemcpyDtoH_v2(back.as_mut_ptr(), one, 8192) });
    assert_eq!(back, content);
    refused(unsafe { cuMemcpyHtoD_v2(one, content.as_ptr(), 8193) }, Status::INVALID_VALUE);
    let mut types = 0u64;
    ok(unsafe { cuPointerGetAttribute((&raw mut types).cast(), 14, one) });
    assert_eq!(types, 1);

    // It is freed, and not closed; nothing is allocated from the pool, nor passed on.
    refused(unsafe { cuIpcCloseMemHandle(one) }, Status::INVALID_VALUE);
    let (mut more, mut handle, mut none) = (0, NOTHING, -1i32);
    let code = unsafe { cuMemAllocFromPoolAsync(&raw mut more, 64, pool, 0) };
    refused(code, Status::INVALID_VALUE);
    refused(unsafe { cuDeviceSetMemPool(0, pool) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemPoolExportPointer(&raw mut handle, one) }, Status::INVALID_VALUE);
    let code = unsafe { cuMemPoolExportToShareableHandle((&raw mut none).cast(), pool, 1, 0) };
    refused(code, Status::INVALID_VALUE);
    let session = &driver().unwrap().session;
    session.take_asked();
    ok(unsafe { cuMemFreeAsync(one, 0) });
    assert!(session.take_asked().contains(&Asked::Unmap));
    ok(unsafe { cuMemPoolDestroy(pool) });
    ok(unsafe { cuMemsetD32_v2(two, 0, 2048) });
    ok(unsafe { cuMemFree_v2(two) });
    assert!(session.take_asked().contains(&Asked::Unmap));
    refused(unsafe { cuMemFree_v2(two) }, Status::INVALID_VALUE);
}

#[test]
fn pointers_of_other_pools_and_what_stands_for_none_are_refused() {
    let _turn = begin();
    let (one, two) = (import(&pool_elsewhere(2)).unwrap(), import(&pool_elsewhere(3)).unwrap());
    let exported = pointer_elsewhere(2, 51, 512, 4096);
    let wrong = Err(Status::INVALID_VALUE.code());
    assert_eq!(import_pointer(two, &exported), wrong);
    assert_eq!(import_pointer(default_pool(), &exported), wrong);
    assert_eq!(import_pointer(one, &NOTHING), wrong);
    let changed = |at: usize, to: u8| {
        let mut changed = exported;
        changed.0[at] = to;
        import_pointer(one, &changed)
    };
    // No such memory; sizes and offsets beyond what was exported, up to those that overflow; no size; another pool.
    for (at, to) in [(0, 0), (20, 0xEE), (50, 0x20), (42, 0x20), (55, 0xFF), (47, 0xFF), (49, 0), (57, 1)] {
        assert_eq!(changed(at, to), wrong, "byte {at}");
    }
    let address = import_pointer(one, &exported).unwrap();
    ok(unsafe { cuMemFree_v2(address) });
    // A handle of CUDA's IPC is none, nor the other way round.
    let (mut legacy, mut opened) = (exported, 0);
    refused(unsafe { cuIpcOpenMemHandle_v2(&raw mut opened, exported, 1) }, Status::INVALID_VALUE);
    legacy.0[..8].copy_from_slice(b"BHmemory");
    legacy.0[56..].fill(0);
    assert_eq!(import_pointer(one, &legacy), wrong);
    // The process has ended.
    driver().unwrap().session.there_is(token(2), false);
    assert_eq!(import_pointer(one, &exported), wrong);
    for pool in [one, two] {
        ok(unsafe { cuMemPoolDestroy(pool) });
    }
}

#[test]
fn what_is_exported_of_a_pool_says_so_and_is_not_imported_where_it_comes_from() {
    let _turn = begin();
    let (pool, private) = (create(properties(1)), create(properties(0)));
    let (one, plain) = (from_pool(pool, 4 << 20), from_pool(private, 4096));
    let mut exported = NOTHING;
    ok(unsafe { cuMemPoolExportPointer(&raw mut exported, one + 4096) });
    assert_eq!(&exported.0[..8], b"BHpooled");
    assert_eq!(exported.0[48..56], (4_u64 << 20).to_le_bytes());
    let imported = import(&export(pool)).unwrap();
    assert_eq!(import_pointer(imported, &exported), Err(Status::INVALID_VALUE.code()));
    let mut nothing = NOTHING;
    for address in [plain, allocate(64), 0x1234] {
        refused(unsafe { cuMemPoolExportPointer(&raw mut nothing, address) }, Status::INVALID_VALUE);
    }
    let descriptor_of = |pool, kind, flags| {
        let mut descriptor = -1i32;
        unsafe { cuMemPoolExportToShareableHandle((&raw mut descriptor).cast(), pool, kind, flags) }
    };
    refused(descriptor_of(private, 1, 0), Status::INVALID_VALUE);
    refused(descriptor_of(default_pool(), 1, 0), Status::INVALID_VALUE);
    refused(descriptor_of(pool, 0, 0), Status::INVALID_VALUE);
    refused(descriptor_of(pool, 8, 0), Status::NOT_SUPPORTED);
    refused(descriptor_of(pool, 1, 1), Status::INVALID_VALUE);

    // The pool is there for others until its last allocation has gone.
    let descriptor = export(pool);
    ok(unsafe { cuMemPoolDestroy(pool) });
    ok(unsafe { cuMemPoolDestroy(import(&descriptor).unwrap()) });
    ok(unsafe { cuMemFreeAsync(one, 0) });
    assert_eq!(import(&descriptor), Err(Status::INVALID_VALUE.code()));
    ok(unsafe { cuMemFree_v2(plain) });
    for pool in [private, imported] {
        ok(unsafe { cuMemPoolDestroy(pool) });
    }
    let mut types = -1;
    ok(unsafe { cuDeviceGetAttribute(&raw mut types, 119, 0) });
    assert_eq!(types, 1);
}

#[test]
fn descriptors_that_stand_for_no_pool_are_refused() {
    let _turn = begin();
    let wrong = Err(Status::INVALID_VALUE.code());
    // One of memory without addresses, one of nothing, one of a pool that has gone.
    for content in [[&b"BHshared"[..], &token(9).0].concat(), vec![0; 40], Vec::new()] {
        assert_eq!(import(&descriptor(&content)), wrong);
    }
    let gone = pool_elsewhere(4);
    driver().unwrap().session.there_is(token(4), false);
    assert_eq!(import(&gone), wrong);
    let mut handle = 0;
    let good = pool_elsewhere(5);
    let memory = std::ptr::without_provenance_mut(good.as_raw_fd().cast_unsigned() as usize);
    refused(unsafe { cuMemImportFromShareableHandle(&raw mut handle, memory, 1) }, Status::INVALID_VALUE);
    let code = unsafe { cuMemPoolImportFromShareableHandle(&raw mut handle, memory, 8, 0) };
    refused(code, Status::NOT_SUPPORTED);
    let code = unsafe { cuMemPoolImportFromShareableHandle(&raw mut handle, memory, 1, 1) };
    refused(code, Status::INVALID_VALUE);
}
