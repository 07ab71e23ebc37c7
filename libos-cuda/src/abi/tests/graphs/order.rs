//! In which order a graph and what waits for it are done.

use super::*;

static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());

extern "C" fn note_order(data: *mut c_void) {
    ORDER.lock().push(data.addr());
}

#[test]
fn host_functions_of_a_graph_are_called_in_its_order_and_what_waits_for_them_comes_later() {
    let _turn = begin();
    let (module, function) = nothing();
    let one = stream(1);
    let graph = created();
    let host = |data: usize, before: &[u64]| {
        let mut node = 0;
        let what = HostFunctionNode { function: note_order, data: std::ptr::without_provenance_mut(data) };
        let before = (before.as_ptr(), before.len());
        ok(unsafe { cuGraphAddHostNode(&raw mut node, graph, before.0, before.1, &raw const what) });
        node
    };
    let first = host(1, &[]);
    let second = host(2, &[first]);
    let kernel = KernelDescription {
        function,
        grid: [6, 1, 1],
        block: [1, 1, 1],
        shared_bytes: 0,
        parameters: null_mut(),
        extra: null_mut(),
        kernel: 0,
        context: 0,
    };
    let mut node = 0;
    ok(unsafe { cuGraphAddKernelNode_v2(&raw mut node, graph, &raw const second, 1, &raw const kernel) });
    host(3, &[node]);
    let exec = instantiate(graph);
    ORDER.lock().clear();
    asked();
    ok(unsafe { cuGraphLaunch(exec, one) });
    assert_eq!(story(&[one]), ["a barrier", "a barrier", "a launch 6", "a barrier"]);
    ok(unsafe { cuStreamSynchronize(one) });
    assert_eq!(*ORDER.lock(), [1, 2, 3]);
    ok(unsafe { cuGraphExecDestroy(exec) });
    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuStreamDestroy_v2(one) });
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn a_launch_does_not_wait_for_host_functions_that_nothing_comes_behind() {
    let _turn = begin();
    let (one, two) = (stream(1), stream(1));
    let graph = created();
    let what = HostFunctionNode { function: note_order, data: std::ptr::without_provenance_mut(7) };
    let (mut node, first) = (0, empty(graph, &[]));
    for _ in 0..2 {
        ok(unsafe { cuGraphAddHostNode(&raw mut node, graph, &raw const first, 1, &raw const what) });
    }
    let exec = instantiate(graph);
    ORDER.lock().clear();
    let target = driver().unwrap().target(NullStream::Legacy, one).unwrap();
    // Without work there is nothing that could be held.
    let memory = allocate(64);
    driver().unwrap().session.hold(target.stream);
    ok(unsafe { cuMemsetD32Async(memory, 1, 4, one) });
    ok(unsafe { cuGraphLaunch(exec, one) });
    assert_eq!(*ORDER.lock(), []);
    refused(unsafe { cuStreamQuery(one) }, Status::NOT_READY);
    driver().unwrap().session.release(target.stream);
    ok(unsafe { cuGraphLaunch(exec, two) });
    ok(unsafe { cuStreamSynchronize(two) });
    assert_eq!(*ORDER.lock(), [7; 4]);
    ok(unsafe { cuMemFree_v2(memory) });
    ok(unsafe { cuGraphExecDestroy(exec) });
    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuStreamDestroy_v2(one) });
    ok(unsafe { cuStreamDestroy_v2(two) });
}

#[test]
fn a_graph_is_launched_where_there_are_no_more_streams() {
    let _turn = begin();
    let memory = allocate(4096);
    let graph = created();
    for branch in 0..10 {
        let mut node = 0;
        let to = memory + branch * 64;
        let what = MemsetNode { to, pitch: 0, value: 3, element_bytes: 4, width: 16, height: 1 };
        ok(unsafe { cuGraphAddMemsetNode(&raw mut node, graph, null(), 0, &raw const what, 0) });
    }
    let exec = instantiate(graph);
    let mut streams = Vec::new();
    let mut made = 0;
    while unsafe { cuStreamCreate(&raw mut made, 1) } == 0 {
        streams.push(made);
    }
    assert!(!streams.is_empty());
    ok(unsafe { cuGraphLaunch(exec, streams[0]) });
    let mut back = [0u32; 160];
    ok(unsafe { cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), memory, 640) });
    assert_eq!(back, [3; 160]);
    for stream in streams {
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
    ok(unsafe { cuGraphExecDestroy(exec) });
    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuMemFree_v2(memory) });
}
