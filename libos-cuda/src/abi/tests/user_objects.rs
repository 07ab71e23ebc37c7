//! The program's own objects that graphs keep.

use std::time::{Duration, Instant};

use super::*;
use crate::abi::UpdateResult;

symbols! {
    cuUserObjectCreate(*mut u64, *mut c_void, Option<extern "C" fn(*mut c_void)>, u32, u32);
    cuUserObjectRetain(u64, u32);
    cuUserObjectRelease(u64, u32);
    cuGraphRetainUserObject(u64, u64, u32, u32);
    cuGraphReleaseUserObject(u64, u64, u32);
    cuGraphCreate(*mut u64, u32);
    cuGraphDestroy(u64);
    cuGraphClone(*mut u64, u64);
    cuGraphAddEmptyNode(*mut u64, u64, *const u64, usize);
    cuGraphAddChildGraphNode(*mut u64, u64, *const u64, usize, u64);
    cuGraphInstantiateWithFlags(*mut u64, u64, u64);
    cuGraphExecUpdate_v2(u64, u64, *mut UpdateResult);
    cuGraphExecDestroy(u64);
    cuGraphLaunch(u64, u64);
    cuMemsetD32Async(u64, u32, usize, u64);
}

static ENDED: AtomicU32 = AtomicU32::new(0);
const MOVE: u32 = 1;

extern "C" fn end(data: *mut c_void) {
    ENDED.fetch_add(data.addr() as u32, Ordering::SeqCst);
}

/// An object with so many references of the program's, which counts as 1 when it ends.
fn object(count: u32) -> u64 {
    let mut object = 0;
    let data = std::ptr::without_provenance_mut(1);
    ok(unsafe { cuUserObjectCreate(&raw mut object, data, Some(end), count, 1) });
    object
}

fn graph() -> u64 {
    let mut graph = 0;
    ok(unsafe { cuGraphCreate(&raw mut graph, 0) });
    graph
}

/// That so many have ended, and no more.
fn ended(count: u32) {
    let begun = Instant::now();
    while ENDED.load(Ordering::SeqCst) < count && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(ENDED.load(Ordering::SeqCst), count);
}

#[test]
fn an_object_ends_with_its_last_reference() {
    let _turn = begin();
    ENDED.store(0, Ordering::SeqCst);
    let one = object(2);
    ok(unsafe { cuUserObjectRetain(one, 3) });
    ok(unsafe { cuUserObjectRelease(one, 4) });
    ended(0);
    refused(unsafe { cuUserObjectRelease(one, 2) }, Status::INVALID_VALUE);
    ok(unsafe { cuUserObjectRelease(one, 1) });
    ended(1);
    refused(unsafe { cuUserObjectRetain(one, 1) }, Status::INVALID_VALUE);

    let mut none = 0;
    let data = null_mut();
    for (destroy, count, flags) in
        [(None, 1, 1), (Some(end as _), 0, 1), (Some(end as _), 1 << 31, 1), (Some(end as _), 1, 0)]
    {
        refused(
            unsafe { cuUserObjectCreate(&raw mut none, data, destroy, count, flags) },
            Status::INVALID_VALUE,
        );
    }
    refused(unsafe { cuUserObjectRelease(0, 1) }, Status::INVALID_VALUE);
}

#[test]
fn a_graph_its_copies_and_what_contains_it_keep_an_object() {
    let _turn = begin();
    ENDED.store(0, Ordering::SeqCst);
    let (one, graph, outer) = (object(1), graph(), graph());
    refused(unsafe { cuGraphRetainUserObject(graph, one, 2, MOVE) }, Status::INVALID_VALUE);
    ok(unsafe { cuGraphRetainUserObject(graph, one, 1, MOVE) });
    ok(unsafe { cuGraphRetainUserObject(graph, one, 1, 0) });
    refused(unsafe { cuUserObjectRelease(one, 1) }, Status::INVALID_VALUE);
    refused(unsafe { cuGraphReleaseUserObject(graph, one, 3) }, Status::INVALID_VALUE);
    ok(unsafe { cuGraphReleaseUserObject(graph, one, 1) });
    let (mut clone, mut child) = (0, 0);
    ok(unsafe { cuGraphClone(&raw mut clone, graph) });
    ok(unsafe { cuGraphAddChildGraphNode(&raw mut child, outer, null(), 0, graph) });
    ok(unsafe { cuGraphReleaseUserObject(graph, one, 1) });
    refused(unsafe { cuGraphReleaseUserObject(graph, one, 1) }, Status::INVALID_VALUE);
    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuGraphDestroy(clone) });
    ended(0);
    let mut exec = 0;
    ok(unsafe { cuGraphInstantiateWithFlags(&raw mut exec, outer, 0) });
    ok(unsafe { cuGraphDestroy(outer) });
    ended(0);
    ok(unsafe { cuGraphExecDestroy(exec) });
    ended(1);
}

#[test]
fn an_object_lasts_until_the_launch_that_may_use_it_is_done() {
    let _turn = begin();
    ENDED.store(0, Ordering::SeqCst);
    let (mut stream, mut exec, mut node) = (0, 0, 0);
    ok(unsafe { cuStreamCreate(&raw mut stream, 1) });
    let graphs = [graph(), graph()];
    for graph in graphs {
        ok(unsafe { cuGraphAddEmptyNode(&raw mut node, graph, null(), 0) });
        ok(unsafe { cuGraphRetainUserObject(graph, object(1), 1, MOVE) });
    }
    ok(unsafe { cuGraphInstantiateWithFlags(&raw mut exec, graphs[0], 0) });
    ok(unsafe { cuGraphDestroy(graphs[0]) });
    let target = driver().unwrap().target(NullStream::Legacy, stream).unwrap();
    let session = &driver().unwrap().session;
    let memory = allocate(64);
    session.hold(target.stream);
    ok(unsafe { cuMemsetD32Async(memory, 1, 16, stream) });
    ok(unsafe { cuGraphLaunch(exec, stream) });
    let mut updated = UpdateResult { result: 0, padding: 0, node: 0, from: 0 };
    ok(unsafe { cuGraphExecUpdate_v2(exec, graphs[1], &raw mut updated) });
    ok(unsafe { cuGraphDestroy(graphs[1]) });
    ended(0);
    session.release(target.stream);
    ended(1);
    ok(unsafe { cuGraphExecDestroy(exec) });
    ended(2);
    ok(unsafe { cuMemFree_v2(memory) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
}
