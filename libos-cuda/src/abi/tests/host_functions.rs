//! Functions of the program's in the order of streams.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;

static SEEN: AtomicU64 = AtomicU64::new(0);

fn stream() -> u64 {
    let mut stream = 0;
    ok(unsafe { cuStreamCreate(&raw mut stream, 1) });
    stream
}

/// Notes whether the memory is there still when the function ends.
extern "C" fn look_late(memory: *mut c_void) {
    std::thread::sleep(Duration::from_millis(50));
    let (mut start, mut bytes) = (0, 0);
    let found = unsafe { cuMemGetAddressRange_v2(&raw mut start, &raw mut bytes, memory.addr() as u64) };
    SEEN.store(if found == 0 { start } else { 0 }, Ordering::SeqCst);
}

#[test]
fn memory_is_freed_when_host_functions_that_were_given_have_returned() {
    let _turn = begin();
    let (stream, memory) = (stream(), allocate(64));
    let number = std::ptr::without_provenance_mut(usize::try_from(memory).unwrap());
    ok(unsafe { cuLaunchHostFunc(stream, look_late, number) });
    ok(unsafe { cuMemFree_v2(memory) });
    assert_eq!(SEEN.load(Ordering::SeqCst), memory);
    ok(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn a_host_function_may_free_and_waits_for_none() {
    static FREED: AtomicU32 = AtomicU32::new(99);
    extern "C" fn free(memory: *mut c_void) {
        // Others are behind this one.
        std::thread::sleep(Duration::from_millis(20));
        FREED.store(unsafe { cuMemFree_v2(memory.addr() as u64) }, Ordering::SeqCst);
    }
    extern "C" fn nothing(_: *mut c_void) {}
    let _turn = begin();
    let (stream, memory) = (stream(), allocate(64));
    let number = std::ptr::without_provenance_mut(usize::try_from(memory).unwrap());
    ok(unsafe { cuLaunchHostFunc(stream, free, number) });
    ok(unsafe { cuLaunchHostFunc(stream, nothing, null_mut()) });
    ok(unsafe { cuStreamSynchronize(stream) });
    assert_eq!(FREED.load(Ordering::SeqCst), 0);
    ok(unsafe { cuStreamDestroy_v2(stream) });
}
