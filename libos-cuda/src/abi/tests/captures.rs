//! Streams that capture: what they write down, and what they refuse.

use super::graphs::*;
use super::*;

symbols! {
    cuStreamQuery(u64);
    cuStreamGetCaptureInfo_v3(u64, *mut u32, *mut u64, *mut u64, *mut *const u64, *mut *const u64, *mut usize);
    cuStreamUpdateCaptureDependencies_v2(u64, *const u64, *const u64, usize, u32);
    cuThreadExchangeStreamCaptureMode(*mut u32);
    cuCtxSynchronize();
    cuEventSynchronize(u64);
    cuGraphNodeGetDependencies_v2(u64, *mut u64, *mut u64, *mut usize);
    cuStreamBeginCapture_v2(u64, u32);
    cuStreamIsCapturing(u64, *mut u32);
    cuGraphDestroy(u64);
    cuGraphExecDestroy(u64);
    cuGraphLaunch(u64, u64);
    cuMemsetD32Async(u64, u32, usize, u64);
    cuMemcpyDtoDAsync_v2(u64, u64, usize, u64);
}

#[test]
fn what_a_capturing_stream_cannot_do_makes_its_capture_invalid() {
    let _turn = begin();
    let (module, function) = nothing();
    let one = stream(1);
    let mut memory = 0;
    let calls: [(&str, &dyn Fn() -> u32); 4] = [
        ("wait", &|| unsafe { cuStreamSynchronize(one) }),
        ("query", &|| unsafe { cuStreamQuery(one) }),
        ("wait for all", &|| unsafe { cuCtxSynchronize() }),
        ("free", &|| unsafe { cuMemFree_v2(1 << 20) }),
    ];
    for (what, call) in calls {
        begin_capture(one, GLOBAL);
        ok(launch(function, 1, one));
        let code = call();
        assert_eq!(code, Status::STREAM_CAPTURE_UNSUPPORTED.code(), "{what}");
        assert_eq!(status(one), 2, "{what}");
        refused(launch(function, 1, one), Status::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(end_capture(one), Err(Status::STREAM_CAPTURE_INVALIDATED.code()), "{what}");
        assert_eq!(status(one), 0, "{what}");
        ok(launch(function, 1, one));
    }
    begin_capture(one, RELAXED);
    ok(unsafe { cuMemAlloc_v2(&raw mut memory, 64) });
    ok(unsafe { cuMemFree_v2(memory) });
    let graph = end_capture(one).unwrap();
    assert_eq!(node_count(graph), 0);
    ok(unsafe { cuGraphDestroy(graph) });
    assert_eq!(end_capture(one), Err(Status::ILLEGAL_STATE.code()));
    refused(unsafe { cuStreamBeginCapture_v2(0, GLOBAL) }, Status::STREAM_CAPTURE_UNSUPPORTED);
    refused(unsafe { cuStreamBeginCapture_v2(one, 3) }, Status::INVALID_VALUE);
    ok(unsafe { cuStreamDestroy_v2(one) });
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn a_branch_that_does_not_come_back_gives_no_graph() {
    let _turn = begin();
    let (module, function) = nothing();
    let (one, two) = (stream(1), stream(1));
    let fork = event();
    begin_capture(one, GLOBAL);
    ok(launch(function, 1, one));
    ok(unsafe { cuEventRecord(fork, one) });
    ok(unsafe { cuStreamWaitEvent(two, fork, 0) });
    ok(launch(function, 2, two));
    assert_eq!(end_capture(one), Err(Status::STREAM_CAPTURE_UNJOINED.code()));
    assert_eq!((status(one), status(two)), (0, 0));
    // Its event is of no capture any more, and of nothing that is done.
    refused(unsafe { cuEventQuery(fork) }, Status::CAPTURED_EVENT);
    refused(unsafe { cuEventSynchronize(fork) }, Status::CAPTURED_EVENT);
    refused(unsafe { cuStreamWaitEvent(two, fork, 0) }, Status::CAPTURED_EVENT);
    ok(unsafe { cuEventRecord(fork, two) });
    ok(unsafe { cuEventQuery(fork) });
    ok(unsafe { cuEventDestroy_v2(fork) });
    ok(unsafe { cuStreamDestroy_v2(one) });
    ok(unsafe { cuStreamDestroy_v2(two) });
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn captures_do_not_wait_for_what_is_not_theirs() {
    let _turn = begin();
    let (one, two) = (stream(1), stream(1));
    let (outside, inside, never) = (event(), event(), event());
    ok(unsafe { cuEventRecord(outside, two) });
    begin_capture(one, GLOBAL);
    ok(unsafe { cuStreamWaitEvent(one, never, 0) });
    refused(unsafe { cuStreamWaitEvent(one, outside, 0) }, Status::STREAM_CAPTURE_ISOLATION);
    assert_eq!(end_capture(one), Err(Status::STREAM_CAPTURE_INVALIDATED.code()));

    begin_capture(one, GLOBAL);
    begin_capture(two, GLOBAL);
    ok(unsafe { cuEventRecord(inside, one) });
    refused(unsafe { cuStreamWaitEvent(two, inside, 0) }, Status::STREAM_CAPTURE_MERGE);
    assert_eq!(end_capture(one), Err(Status::STREAM_CAPTURE_INVALIDATED.code()));
    assert_eq!(end_capture(two), Err(Status::STREAM_CAPTURE_INVALIDATED.code()));

    // With the flag, which is only for streams that capture, it becomes a node.
    refused(unsafe { cuStreamWaitEvent(one, outside, 1) }, Status::INVALID_VALUE);
    begin_capture(one, GLOBAL);
    ok(unsafe { cuStreamWaitEvent(one, outside, 1) });
    let graph = end_capture(one).unwrap();
    assert_eq!(node_count(graph), 1);
    let exec = instantiate(graph);
    asked();
    ok(unsafe { cuGraphLaunch(exec, one) });
    assert_eq!(story(&[one]), ["a after b"]);
    ok(unsafe { cuEventDestroy_v2(outside) });
    refused(unsafe { cuGraphLaunch(exec, one) }, Status::INVALID_HANDLE);
    ok(unsafe { cuGraphExecDestroy(exec) });
    ok(unsafe { cuGraphDestroy(graph) });
    for event in [inside, never] {
        ok(unsafe { cuEventDestroy_v2(event) });
    }
    ok(unsafe { cuStreamDestroy_v2(one) });
    ok(unsafe { cuStreamDestroy_v2(two) });
}

#[test]
fn the_legacy_stream_is_not_used_while_a_blocking_stream_captures() {
    let _turn = begin();
    let (blocking, free) = (stream(0), stream(1));
    let memory = allocate(64);
    begin_capture(free, RELAXED);
    ok(unsafe { cuMemsetD32_v2(memory, 1, 4) });
    let graph = end_capture(free).unwrap();
    ok(unsafe { cuGraphDestroy(graph) });

    begin_capture(blocking, RELAXED);
    let mut now = 0;
    refused(unsafe { cuStreamIsCapturing(0, &raw mut now) }, Status::STREAM_CAPTURE_IMPLICIT);
    assert_eq!(status(blocking), 1);
    refused(unsafe { cuMemsetD32_v2(memory, 1, 4) }, Status::STREAM_CAPTURE_IMPLICIT);
    assert_eq!(status(blocking), 2);
    assert_eq!(end_capture(blocking), Err(Status::STREAM_CAPTURE_INVALIDATED.code()));
    ok(unsafe { cuMemsetD32_v2(memory, 1, 4) });
    ok(unsafe { cuMemFree_v2(memory) });
    ok(unsafe { cuStreamDestroy_v2(blocking) });
    ok(unsafe { cuStreamDestroy_v2(free) });
}

#[test]
fn modes_say_which_threads_a_capture_restricts() {
    let _turn = begin();
    let one = stream(1);
    // Whether another thread of some mode may allocate while this one captures, and this one itself.
    let try_both = |captured: u32, other: u32| {
        begin_capture(one, captured);
        let elsewhere = std::thread::spawn(move || {
            let (mut context, mut mode) = (0, other);
            ok(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) });
            ok(unsafe { cuCtxSetCurrent(context) });
            ok(unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) });
            assert_eq!(mode, GLOBAL);
            let mut memory = 0;
            let code = unsafe { cuMemAlloc_v2(&raw mut memory, 64) };
            if code == 0 {
                ok(unsafe { cuMemFree_v2(memory) });
            }
            let wrong = end_capture(one).err();
            (code == 0, wrong)
        });
        let (elsewhere, wrong) = elsewhere.join().unwrap();
        if captured == RELAXED {
            assert_eq!(wrong, None);
            begin_capture(one, captured);
        } else {
            assert_eq!(wrong, Some(Status::STREAM_CAPTURE_WRONG_THREAD.code()));
        }
        let mut memory = 0;
        let here = unsafe { cuMemAlloc_v2(&raw mut memory, 64) } == 0;
        if here {
            ok(unsafe { cuMemFree_v2(memory) });
        }
        end_capture(one).ok();
        (elsewhere, here)
    };
    assert_eq!(try_both(GLOBAL, GLOBAL), (false, false));
    assert_eq!(try_both(GLOBAL, THREAD_LOCAL), (true, false));
    assert_eq!(try_both(THREAD_LOCAL, GLOBAL), (true, false));
    assert_eq!(try_both(RELAXED, GLOBAL), (true, true));
    ok(unsafe { cuStreamDestroy_v2(one) });
}

#[test]
fn a_stream_that_captures_says_into_what_and_behind_what() {
    let _turn = begin();
    let (module, function) = nothing();
    let one = stream(1);
    begin_capture(one, GLOBAL);
    ok(launch(function, 1, one));
    let (mut state, mut id, mut graph, mut nodes, mut count) = (0, 0, 0, null(), 0);
    let mut ask = || {
        let edges = null_mut();
        ok(unsafe {
            cuStreamGetCaptureInfo_v3(
                one,
                &raw mut state,
                &raw mut id,
                &raw mut graph,
                &raw mut nodes,
                edges,
                &raw mut count,
            )
        });
        (state, graph, unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec())
    };
    let (state, graph, before) = ask();
    assert_eq!((state, before.len()), (1, 1));
    // A node of the program's own, put behind that and before the next.
    let own = empty(graph, &before);
    ok(unsafe { cuStreamUpdateCaptureDependencies_v2(one, &raw const own, null(), 1, 1) });
    assert_eq!(ask().2, [own]);
    ok(launch(function, 2, one));
    let last = ask().2;
    let (mut found, mut length) = ([0; 4], 4);
    ok(unsafe { cuGraphNodeGetDependencies_v2(last[0], found.as_mut_ptr(), null_mut(), &raw mut length) });
    assert_eq!((found, length), ([own, 0, 0, 0], 1));
    assert_eq!(end_capture(one), Ok(graph));
    assert_eq!(node_count(graph), 3);
    refused(
        unsafe { cuStreamUpdateCaptureDependencies_v2(one, &raw const own, null(), 1, 1) },
        Status::ILLEGAL_STATE,
    );
    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuStreamDestroy_v2(one) });
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn a_stream_that_ends_takes_the_capture_with_it_that_began_there() {
    let _turn = begin();
    let (origin, branch) = (stream(1), stream(1));
    let fork = event();
    begin_capture(origin, GLOBAL);
    ok(unsafe { cuEventRecord(fork, origin) });
    ok(unsafe { cuStreamWaitEvent(branch, fork, 0) });
    let slot = number(branch);
    ok(unsafe { cuStreamDestroy_v2(branch) });
    assert_eq!(status(origin), 1);
    ok(unsafe { cuStreamDestroy_v2(origin) });
    // Nothing captures any more, in streams of the same numbers least of all.
    let again = [stream(1), stream(1)];
    assert!(again.iter().any(|stream| number(*stream) == slot));
    for stream in again {
        assert_eq!(status(stream), 0);
        ok(unsafe { cuStreamSynchronize(stream) });
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
    let memory = allocate(64);
    ok(unsafe { cuMemFree_v2(memory) });
    ok(unsafe { cuEventDestroy_v2(fork) });
}

#[test]
fn what_is_wrong_already_is_told_at_the_capture_and_nothing_is_no_node() {
    let _turn = begin();
    let one = stream(1);
    let memory = allocate(64);
    begin_capture(one, GLOBAL);
    refused(unsafe { cuMemsetD32Async(memory, 1, 17, one) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemsetD32Async(4096, 1, 1, one) }, Status::INVALID_VALUE);
    refused(unsafe { cuMemcpyDtoDAsync_v2(memory, memory + 32, 33, one) }, Status::INVALID_VALUE);
    refused(launch(1, 1, one), Status::INVALID_HANDLE);
    ok(unsafe { cuMemsetD32Async(memory, 1, 0, one) });
    ok(unsafe { cuMemcpyDtoDAsync_v2(0, 0, 0, one) });
    assert_eq!(status(one), 1);
    let graph = end_capture(one).unwrap();
    assert_eq!(node_count(graph), 0);
    ok(unsafe { cuGraphDestroy(graph) });

    // Memory that was freed since is an error of the launch.
    begin_capture(one, GLOBAL);
    ok(unsafe { cuMemsetD32Async(memory, 1, 16, one) });
    let graph = end_capture(one).unwrap();
    let exec = instantiate(graph);
    ok(unsafe { cuGraphLaunch(exec, one) });
    ok(unsafe { cuMemFree_v2(memory) });
    refused(unsafe { cuGraphLaunch(exec, one) }, Status::INVALID_VALUE);
    ok(unsafe { cuStreamSynchronize(one) });
    ok(unsafe { cuGraphExecDestroy(exec) });
    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuStreamDestroy_v2(one) });
}
