//! Copies and prefetches in batches, and copies between contexts.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::abi::{BatchOperand, BatchedCopy3d, Copy3d, CopyAttributes, Location, Side3d};

symbols! {
    cuMemcpyBatchAsync(*const u64, *const u64, *const usize, usize, *const CopyAttributes, *const usize, usize, *mut usize, u64);
    cuMemcpyBatchAsync_v2(*const u64, *const u64, *const usize, usize, *const CopyAttributes, *const usize, usize, u64);
    cuMemcpyBatchAsync_v2_ptsz(*const u64, *const u64, *const usize, usize, *const CopyAttributes, *const usize, usize, u64);
    cuMemcpy3DBatchAsync(usize, *const BatchedCopy3d, *mut usize, u64, u64);
    cuMemcpy3DBatchAsync_v2(usize, *const BatchedCopy3d, u64, u64);
    cuMemcpy3DPeer(*const Copy3d);
    cuMemcpy3DPeerAsync(*const Copy3d, u64);
    cuMemPrefetchBatchAsync(*const u64, *const usize, usize, *const Location, *const usize, usize, u64, u64);
    cuMemDiscardBatchAsync(*const u64, *const usize, usize, u64, u64);
    cuMemDiscardAndPrefetchBatchAsync(*const u64, *const usize, usize, *const Location, *const usize, usize, u64, u64);
    cuMemAllocManaged(*mut u64, usize, u32);
    cuMemRangeGetAttribute(*mut c_void, usize, u32, u64, usize);
    cuArrayCreate_v2(*mut u64, *const crate::abi::ArrayDescription);
    cuArrayDestroy(u64);
    cuStreamBeginCapture(u64);
    cuStreamEndCapture(u64, *mut u64);
    cuGraphGetNodes(u64, *mut u64, *mut usize);
    cuGraphDestroy(u64);
}

const NOWHERE: Location = Location { kind: 0, id: 0 };
const DEVICE: Location = Location { kind: 1, id: 0 };
const HOST: Location = Location { kind: 2, id: 0 };

fn attributes(order: u32) -> CopyAttributes {
    CopyAttributes { order, hints: [NOWHERE; 2], flags: 0 }
}

fn stream() -> u64 {
    let mut stream = 0;
    ok(unsafe { cuStreamCreate(&raw mut stream, 1) });
    stream
}

fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

#[test]
fn a_batch_copies_between_every_two_places() {
    let _turn = begin();
    let (stream, one, two) = (stream(), allocate(64), allocate(64));
    let content: Vec<u8> = (0..64).collect();
    let back = [0u8; 32];
    ok(unsafe { cuMemcpyHtoD_v2(one, content.as_ptr(), 64) });
    let to = [two, two + 16, address(&back)];
    let from = [one + 32, address(&content), one + 8];
    let (sizes, attributes, firsts) = ([16, 16, 32], [attributes(1), attributes(2)], [0, 1]);
    let batch = |count, said, stream| unsafe {
        let (attributes, firsts) = (attributes.as_ptr(), firsts.as_ptr());
        cuMemcpyBatchAsync_v2(
            to.as_ptr(),
            from.as_ptr(),
            sizes.as_ptr(),
            count,
            attributes,
            firsts,
            said,
            stream,
        )
    };
    ok(batch(3, 2, stream));
    ok(unsafe { cuStreamSynchronize(stream) });
    let mut there = [0u8; 32];
    ok(unsafe { cuMemcpyDtoH_v2(there.as_mut_ptr(), two, 32) });
    assert_eq!((&there[..16], &there[16..]), (&content[32..48], &content[..16]));
    // SAFETY of the test: the copy wrote it by its address.
    assert_eq!(unsafe { std::ptr::read_volatile(&raw const back) }, content[8..40]);

    for (count, said, stream) in [(0, 1, stream), (3, 0, stream), (1, 2, stream), (1, 1, 0), (1, 1, 1)] {
        refused(batch(count, said, stream), Status::INVALID_VALUE);
    }
    let own = unsafe {
        let said = attributes.as_ptr();
        cuMemcpyBatchAsync_v2_ptsz(to.as_ptr(), from.as_ptr(), sizes.as_ptr(), 1, said, firsts.as_ptr(), 1, 0)
    };
    ok(own);
    ok(unsafe { cuMemFree_v2(one) });
    ok(unsafe { cuMemFree_v2(two) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn a_batch_says_which_copy_failed() {
    let _turn = begin();
    let (stream, one) = (stream(), allocate(64));
    let (to, from, sizes) = ([one, one + 32, one + 60], [one + 16, one, one], [8, 8, 8]);
    let mut failed = 7;
    let mut batch = |orders: [u32; 2], firsts: [usize; 2]| {
        let attributes = orders.map(attributes);
        failed = 7;
        let code = unsafe {
            let (to, from, sizes) = (to.as_ptr(), from.as_ptr(), sizes.as_ptr());
            cuMemcpyBatchAsync(
                to,
                from,
                sizes,
                3,
                attributes.as_ptr(),
                firsts.as_ptr(),
                2,
                &raw mut failed,
                stream,
            )
        };
        (code, failed)
    };
    let invalid = Status::INVALID_VALUE.code();
    assert_eq!(batch([1, 3], [0, 1]), (invalid, 2), "beyond the allocation");
    assert_eq!(batch([1, 0], [0, 1]), (invalid, usize::MAX), "no order");
    assert_eq!(batch([1, 1], [1, 2]), (invalid, usize::MAX), "the first has nothing said of it");
    assert_eq!(batch([1, 1], [0, 3]), (invalid, usize::MAX), "there is no such copy");
    assert_eq!(batch([1, 1], [0, 0]), (invalid, usize::MAX), "twice");
    ok(unsafe { cuMemFree_v2(one) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn a_source_that_ends_with_the_call_is_read_by_then() {
    let _turn = begin();
    let (stream, one) = (stream(), allocate(64));
    let mut pinned = null_mut();
    ok(unsafe { cuMemAllocHost_v2(&raw mut pinned, 64) });
    let batch = |order| {
        let (to, from, sizes) = ([one], [pinned.expose_provenance() as u64], [64usize]);
        let (said, firsts) = ([attributes(order)], [0usize]);
        let (said, firsts) = (said.as_ptr(), firsts.as_ptr());
        ok(unsafe {
            cuMemcpyBatchAsync_v2(to.as_ptr(), from.as_ptr(), sizes.as_ptr(), 1, said, firsts, 1, stream)
        });
    };
    let session = &driver().unwrap().session;
    let target = driver().unwrap().target(NullStream::Legacy, stream).unwrap();
    session.hold(target.stream);
    batch(1);
    batch(3);
    let is_released = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            is_released.store(true, Ordering::SeqCst);
            session.release(target.stream);
        });
        batch(2);
        assert!(is_released.load(Ordering::SeqCst));
    });
    ok(unsafe { cuMemFreeHost(pinned) });
    ok(unsafe { cuMemFree_v2(one) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn a_stream_that_captures_writes_a_batch_down() {
    let _turn = begin();
    let (stream, one) = (stream(), allocate(64));
    let (to, from, sizes) = ([one, one + 8], [one + 32, one + 40], [8usize; 2]);
    let batch = |order| {
        let (said, firsts) = ([attributes(order)], [0usize]);
        let (said, firsts) = (said.as_ptr(), firsts.as_ptr());
        unsafe {
            cuMemcpyBatchAsync_v2(to.as_ptr(), from.as_ptr(), sizes.as_ptr(), 2, said, firsts, 1, stream)
        }
    };
    let (mut graph, mut count) = (0, 0);
    ok(unsafe { cuStreamBeginCapture(stream) });
    ok(batch(1));
    ok(unsafe { cuStreamEndCapture(stream, &raw mut graph) });
    ok(unsafe { cuGraphGetNodes(graph, null_mut(), &raw mut count) });
    assert_eq!(count, 2);
    ok(unsafe { cuGraphDestroy(graph) });
    // What ends with the call cannot be read by a launch.
    ok(unsafe { cuStreamBeginCapture(stream) });
    refused(batch(2), Status::STREAM_CAPTURE_UNSUPPORTED);
    refused(unsafe { cuStreamEndCapture(stream, &raw mut graph) }, Status::STREAM_CAPTURE_INVALIDATED);
    ok(unsafe { cuMemFree_v2(one) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn a_batch_of_shapes_goes_between_pointers_and_arrays() {
    let _turn = begin();
    let (stream, linear) = (stream(), allocate(256));
    let mut array = 0;
    // `CU_AD_FORMAT_UNSIGNED_INT8`, two of them.
    let asked = crate::abi::ArrayDescription { width: 8, height: 4, format: 1, channels: 2 };
    ok(unsafe { cuArrayCreate_v2(&raw mut array, &raw const asked) });
    let content: Vec<u8> = (0..64).collect();
    ok(unsafe { cuMemcpyHtoD_v2(linear, content.as_ptr(), 64) });
    let pointer = |at, row| BatchOperand { kind: 1, padding: 0, at, rest: [row, 0, 0] };
    let place = |x, y| BatchOperand { kind: 2, padding: 0, at: array, rest: [x, y, 0] };
    let op = |from, to, extent| BatchedCopy3d { from, to, extent, order: 1, flags: 0 };
    // Four elements of three rows each way, rows eight elements apart at first, and packed in the end.
    let there = op(pointer(linear, 8), place(2, 1), [4, 3, 1]);
    ok(unsafe { cuMemcpy3DBatchAsync_v2(1, &raw const there, 0, stream) });
    let back = op(place(2, 1), pointer(linear + 128, 0), [4, 3, 1]);
    let mut failed = 7;
    ok(unsafe { cuMemcpy3DBatchAsync(1, &raw const back, &raw mut failed, 0, stream) });
    let mut packed = [0u8; 24];
    ok(unsafe { cuStreamSynchronize(stream) });
    ok(unsafe { cuMemcpyDtoH_v2(packed.as_mut_ptr(), linear + 128, 24) });
    let expected = [&content[..8], &content[16..24], &content[32..40]].concat();
    assert_eq!(packed[..], expected);

    let bad = [
        op(pointer(linear, 3), place(0, 0), [4, 1, 1]),
        op(pointer(linear, 0), place(0, 0), [4, 0, 1]),
        op(pointer(linear, 0), place(6, 0), [4, 1, 1]),
        op(BatchOperand { kind: 3, ..pointer(linear, 0) }, place(0, 0), [4, 1, 1]),
        BatchedCopy3d { order: 0, ..there },
    ];
    for bad in bad {
        let both = [there, bad];
        refused(
            unsafe { cuMemcpy3DBatchAsync(2, both.as_ptr(), &raw mut failed, 0, stream) },
            Status::INVALID_VALUE,
        );
        assert_eq!(failed, 1, "{bad:?}");
    }
    refused(unsafe { cuMemcpy3DBatchAsync_v2(1, &raw const there, 1, stream) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemcpy3DBatchAsync_v2(1, &raw const there, 0, 0) }, Status::INVALID_VALUE);
    ok(unsafe { cuArrayDestroy(array) });
    ok(unsafe { cuMemFree_v2(linear) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn a_shape_is_copied_between_contexts_of_the_one_device() {
    let _turn = begin();
    let (one, two) = (allocate(64), allocate(64));
    let mut context = 0;
    ok(unsafe { cuCtxGetCurrent(&raw mut context) });
    let content: Vec<u8> = (0..64).collect();
    ok(unsafe { cuMemcpyHtoD_v2(one, content.as_ptr(), 64) });
    let side = |at, context| Side3d { context, ..Side3d::of_pointer(at, 16, 4) };
    let copy = Copy3d { from: side(one, context), to: side(two, context), width: 8, height: 4, depth: 1 };
    ok(unsafe { cuMemcpy3DPeer(&raw const copy) });
    let mut back = [0u8; 64];
    ok(unsafe { cuMemcpyDtoH_v2(back.as_mut_ptr(), two, 64) });
    assert_eq!(back[16..24], content[16..24]);
    let mistaken = Copy3d { to: side(two, 77), ..copy };
    refused(unsafe { cuMemcpy3DPeer(&raw const mistaken) }, Status::INVALID_CONTEXT);
    refused(unsafe { cuMemcpy3DPeerAsync(&raw const mistaken, 0) }, Status::INVALID_CONTEXT);
    ok(unsafe { cuMemcpy3DPeerAsync(&raw const copy, 0) });
    ok(unsafe { cuMemFree_v2(one) });
    ok(unsafe { cuMemFree_v2(two) });
}

#[test]
fn prefetches_and_discards_in_batches_are_hints_about_managed_memory() {
    let _turn = begin();
    let (stream, device) = (stream(), allocate(4096));
    let mut managed = 0;
    ok(unsafe { cuMemAllocManaged(&raw mut managed, 8192, 1) });
    let (at, sizes, places, firsts) =
        ([managed, managed + 4096], [4096usize; 2], [DEVICE, HOST], [0usize, 1]);
    let prefetch = |at: [u64; 2], stream| unsafe {
        let (places, firsts) = (places.as_ptr(), firsts.as_ptr());
        cuMemPrefetchBatchAsync(at.as_ptr(), sizes.as_ptr(), 2, places, firsts, 2, 0, stream)
    };
    let prefetched = |address| {
        let mut value = 7i32;
        ok(unsafe { cuMemRangeGetAttribute((&raw mut value).cast(), 4, 4, address, 4096) });
        value
    };
    ok(prefetch(at, stream));
    assert_eq!((prefetched(managed), prefetched(managed + 4096)), (0, -1));
    refused(prefetch(at, 0), Status::INVALID_VALUE);
    refused(prefetch([managed, device], stream), Status::INVALID_VALUE);
    let discard = |at: [u64; 2]| unsafe { cuMemDiscardBatchAsync(at.as_ptr(), sizes.as_ptr(), 2, 0, stream) };
    ok(discard(at));
    refused(discard([managed, device]), Status::INVALID_VALUE);
    let both = unsafe {
        let (at, sizes, places, firsts) = (at.as_ptr(), sizes.as_ptr(), places.as_ptr(), firsts.as_ptr());
        cuMemDiscardAndPrefetchBatchAsync(at, sizes, 2, places.add(1), firsts, 1, 0, stream)
    };
    ok(both);
    assert_eq!(prefetched(managed), -1);
    ok(unsafe { cuMemFree_v2(managed) });
    ok(unsafe { cuMemFree_v2(device) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
}
