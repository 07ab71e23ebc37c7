//! Graphs: made, asked for, changed and launched.

use super::*;
use crate::abi::{InstantiateParameters, MemsetNode, UpdateResult};

symbols! {
    cuStreamBeginCapture_v2(u64, u32);
    cuStreamEndCapture(u64, *mut u64);
    cuStreamIsCapturing(u64, *mut u32);
    cuStreamQuery(u64);
    cuMemsetD32Async(u64, u32, usize, u64);
    cuMemcpyDtoDAsync_v2(u64, u64, usize, u64);
    cuGraphCreate(*mut u64, u32);
    cuGraphDestroy(u64);
    cuGraphClone(*mut u64, u64);
    cuGraphNodeFindInClone(*mut u64, u64, u64);
    cuGraphAddEmptyNode(*mut u64, u64, *const u64, usize);
    cuGraphAddMemsetNode(*mut u64, u64, *const u64, usize, *const MemsetNode, u64);
    cuGraphAddHostNode(*mut u64, u64, *const u64, usize, *const HostFunctionNode);
    cuGraphAddChildGraphNode(*mut u64, u64, *const u64, usize, u64);
    cuGraphAddKernelNode_v2(*mut u64, u64, *const u64, usize, *const KernelDescription);
    cuGraphKernelNodeGetParams_v2(u64, *mut KernelDescription);
    cuGraphChildGraphNodeGetGraph(u64, *mut u64);
    cuGraphAddNode_v2(*mut u64, u64, *const u64, *const u64, usize, *mut [u64; 32]);
    cuGraphGetNodes(u64, *mut u64, *mut usize);
    cuGraphGetEdges_v2(u64, *mut u64, *mut u64, *mut u64, *mut usize);
    cuGraphNodeGetType(u64, *mut u32);
    cuGraphAddDependencies_v2(u64, *const u64, *const u64, *const u64, usize);
    cuGraphRemoveDependencies_v2(u64, *const u64, *const u64, *const u64, usize);
    cuGraphDestroyNode(u64);
    cuGraphInstantiateWithFlags(*mut u64, u64, u64);
    cuGraphInstantiateWithParams(*mut u64, u64, *mut InstantiateParameters);
    cuGraphExecKernelNodeSetParams_v2(u64, u64, *const KernelDescription);
    cuGraphExecUpdate_v2(u64, u64, *mut UpdateResult);
    cuGraphExecDestroy(u64);
    cuGraphNodeSetEnabled(u64, u64, u32);
    cuGraphLaunch(u64, u64);
}

mod order;

pub(super) const GLOBAL: u32 = 0;
pub(super) const THREAD_LOCAL: u32 = 1;
pub(super) const RELAXED: u32 = 2;

/// `CUDA_KERNEL_NODE_PARAMS`, as a program fills it in.
#[derive(Clone, Copy)]
#[repr(C)]
struct KernelDescription {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: u64,
    context: u64,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
struct HostFunctionNode {
    function: extern "C" fn(*mut c_void),
    data: *mut c_void,
}

pub(super) fn stream(flags: u32) -> u64 {
    let mut stream = 0;
    ok(unsafe { cuStreamCreate(&raw mut stream, flags) });
    stream
}

pub(super) fn event() -> u64 {
    let mut event = 0;
    ok(unsafe { cuEventCreate(&raw mut event, 2) });
    event
}

pub(super) fn number(stream: u64) -> u32 {
    driver().unwrap().target(NullStream::Legacy, stream).unwrap().stream.index()
}

pub(super) fn asked() -> Vec<Asked> {
    driver().unwrap().session.take_asked()
}

/// What was asked in words, with letters for streams: first for these, then in the order in which they come.
pub(super) fn story(first: &[u64]) -> Vec<String> {
    let mut seen: Vec<u32> = first.iter().map(|stream| number(*stream)).collect();
    let mut letter = |stream: u32| {
        let at = seen.iter().position(|known| *known == stream).unwrap_or_else(|| {
            seen.push(stream);
            seen.len() - 1
        });
        char::from(b'a' + u8::try_from(at).unwrap())
    };
    asked()
        .into_iter()
        .map(|asked| match asked {
            Asked::Launch { stream, grid, .. } => format!("{} launch {}", letter(stream), grid[0]),
            Asked::Copy { stream } => format!("{} copy", letter(stream)),
            Asked::Fill { stream } => format!("{} fill", letter(stream)),
            Asked::Barrier { stream } => format!("{} barrier", letter(stream)),
            Asked::WaitOn { stream, other } => format!("{} after {}", letter(stream), letter(other)),
            other => format!("{other:?}"),
        })
        .collect()
}

pub(super) fn nothing() -> (u64, u64) {
    let (mut module, mut function) = (0, 0);
    ok(unsafe { cuModuleLoadData(&raw mut module, PTX.as_ptr()) });
    ok(unsafe { cuModuleGetFunction(&raw mut function, module, c"nothing".as_ptr()) });
    (module, function)
}

/// Launches blocks of which the number tells launches apart.
pub(super) fn launch(function: u64, blocks: u32, stream: u64) -> u32 {
    unsafe { cuLaunchKernel(function, blocks, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()) }
}

pub(super) fn begin_capture(stream: u64, mode: u32) {
    ok(unsafe { cuStreamBeginCapture_v2(stream, mode) });
}

pub(super) fn end_capture(stream: u64) -> Result<u64, u32> {
    let mut graph = 7;
    match unsafe { cuStreamEndCapture(stream, &raw mut graph) } {
        0 => Ok(graph),
        code => {
            assert_eq!(graph, 0);
            Err(code)
        }
    }
}

pub(super) fn instantiate(graph: u64) -> u64 {
    let mut exec = 0;
    ok(unsafe { cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) });
    exec
}

pub(super) fn node_count(graph: u64) -> usize {
    let mut count = 0;
    ok(unsafe { cuGraphGetNodes(graph, null_mut(), &raw mut count) });
    count
}

pub(super) fn empty(graph: u64, before: &[u64]) -> u64 {
    let mut node = 0;
    ok(unsafe { cuGraphAddEmptyNode(&raw mut node, graph, before.as_ptr(), before.len()) });
    node
}

pub(super) fn created() -> u64 {
    let mut graph = 0;
    ok(unsafe { cuGraphCreate(&raw mut graph, 0) });
    graph
}

pub(super) fn status(stream: u64) -> u32 {
    let mut status = 9;
    ok(unsafe { cuStreamIsCapturing(stream, &raw mut status) });
    status
}

#[test]
fn what_a_stream_captures_is_done_when_the_graph_is_launched_and_not_before() {
    let _turn = begin();
    let (module, function) = nothing();
    let (one, two) = (stream(1), stream(1));
    let (fork, join) = (event(), event());
    let (from, to) = (allocate(64), allocate(64));
    let content = [7u8; 64];
    ok(unsafe { cuMemcpyHtoD_v2(from, content.as_ptr(), 64) });
    asked();

    begin_capture(one, GLOBAL);
    ok(unsafe { cuMemcpyDtoDAsync_v2(to, from, 64, one) });
    ok(unsafe { cuEventRecord(fork, one) });
    assert_eq!(status(two), 0);
    ok(unsafe { cuStreamWaitEvent(two, fork, 0) });
    assert_eq!((status(one), status(two)), (1, 1));
    ok(launch(function, 1, one));
    ok(unsafe { cuMemsetD32Async(from, 5, 4, two) });
    ok(launch(function, 2, two));
    ok(unsafe { cuEventRecord(join, two) });
    ok(unsafe { cuStreamWaitEvent(one, join, 0) });
    ok(launch(function, 3, one));
    let graph = end_capture(one).unwrap();
    assert_eq!((status(one), status(two)), (0, 0));
    assert_eq!(asked(), []);
    assert_eq!(node_count(graph), 5);

    let exec = instantiate(graph);
    assert_eq!(asked(), []);
    ok(unsafe { cuGraphLaunch(exec, one) });
    let story = story(&[one]);
    let at = |text: &str| {
        story.iter().position(|told| told == text).unwrap_or_else(|| panic!("{text}: {story:?}"))
    };
    // The branch has a stream of its own, which waits for the copy, and is waited for.
    let forked = story.iter().rposition(|told| told == "b after a").unwrap();
    assert!(at("a copy") < forked && forked < at("b fill"), "{story:?}");
    // Neither branch waits for the other before they meet.
    assert!(at("a launch 1") < at("a after b"), "{story:?}");
    assert!(at("b fill") < at("b launch 2") && at("a copy") < at("a launch 1"), "{story:?}");
    assert!(at("b launch 2") < at("a after b") && at("a after b") < at("a launch 3"), "{story:?}");
    let mut back = [0u8; 64];
    ok(unsafe { cuMemcpyDtoH_v2(back.as_mut_ptr(), to, 64) });
    assert_eq!(back, content);

    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuGraphLaunch(exec, two) });
    ok(unsafe { cuGraphExecDestroy(exec) });
    refused(unsafe { cuGraphLaunch(exec, one) }, Status::INVALID_VALUE);
    refused(unsafe { cuGraphDestroy(graph) }, Status::INVALID_VALUE);
    for event in [fork, join] {
        ok(unsafe { cuEventDestroy_v2(event) });
    }
    for stream in [one, two] {
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
    for memory in [from, to] {
        ok(unsafe { cuMemFree_v2(memory) });
    }
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn a_second_launch_waits_for_the_first_in_whatever_stream_it_is() {
    let _turn = begin();
    let (module, function) = nothing();
    let (one, two) = (stream(1), stream(1));
    begin_capture(one, GLOBAL);
    ok(launch(function, 1, one));
    let graph = end_capture(one).unwrap();
    let exec = instantiate(graph);
    asked();
    ok(unsafe { cuGraphLaunch(exec, one) });
    ok(unsafe { cuGraphLaunch(exec, two) });
    assert_eq!(story(&[one, two]), ["a launch 1", "b after a", "b launch 1"]);
    ok(unsafe { cuGraphExecDestroy(exec) });
    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuStreamDestroy_v2(one) });
    ok(unsafe { cuStreamDestroy_v2(two) });
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn a_launch_into_the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let _turn = begin();
    let (module, function) = nothing();
    let blocking = stream(0);
    let graph = created();
    let mut node = 0;
    let kernel = KernelDescription {
        function,
        grid: [4, 1, 1],
        block: [1, 1, 1],
        shared_bytes: 0,
        parameters: null_mut(),
        extra: null_mut(),
        kernel: 0,
        context: 0,
    };
    ok(unsafe { cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, &raw const kernel) });
    let exec = instantiate(graph);
    ok(launch(function, 1, blocking));
    asked();
    ok(unsafe { cuGraphLaunch(exec, 0) });
    ok(launch(function, 2, blocking));
    assert_eq!(story(&[0, blocking]), ["a after b", "a launch 4", "b after a", "b launch 2"]);
    ok(unsafe { cuGraphExecDestroy(exec) });
    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuStreamDestroy_v2(blocking) });
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn parameters_are_those_of_the_moment_at_which_the_node_was_made() {
    let _turn = begin();
    let (module, function) = load();
    let one = stream(1);
    let (mut data, mut factor, mut pair, count) = (0x1234_u64, 1.5_f32, [1_u64, 2], AtomicU32::new(9));
    let mut pointers: [*mut c_void; 4] =
        [(&raw mut data).cast(), (&raw mut factor).cast(), (&raw mut pair).cast(), count.as_ptr().cast()];
    begin_capture(one, GLOBAL);
    ok(unsafe { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, one, pointers.as_mut_ptr(), null_mut()) });
    let graph = end_capture(one).unwrap();
    count.store(77, Ordering::Relaxed);
    let exec = instantiate(graph);
    let (mut node, mut nodes) = (0, 1);
    ok(unsafe { cuGraphGetNodes(graph, &raw mut node, &raw mut nodes) });
    asked();
    let launched = || match asked().pop() {
        Some(Asked::Launch { parameters, .. }) => u32::from_le_bytes(parameters[32..36].try_into().unwrap()),
        other => panic!("{other:?}"),
    };
    ok(unsafe { cuGraphLaunch(exec, one) });
    assert_eq!(launched(), 9);

    let mut told = KernelDescription {
        function: 0,
        grid: [0; 3],
        block: [0; 3],
        shared_bytes: 0,
        parameters: null_mut(),
        extra: null_mut(),
        kernel: 0,
        context: 0,
    };
    ok(unsafe { cuGraphKernelNodeGetParams_v2(node, &raw mut told) });
    assert_eq!((told.function, told.grid), (function, [1, 1, 1]));
    assert_eq!(unsafe { told.parameters.add(3).read().cast::<u32>().read() }, 9);

    // What the program reads there now is the next node's business alone.
    told.parameters = pointers.as_mut_ptr();
    ok(unsafe { cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const told) });
    count.store(78, Ordering::Relaxed);
    ok(unsafe { cuGraphLaunch(exec, one) });
    assert_eq!(launched(), 77);
    told.block = [4096, 1, 1];
    let set = unsafe { cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const told) };
    refused(set, Status::INVALID_VALUE);

    ok(unsafe { cuModuleUnload(module) });
    refused(unsafe { cuGraphLaunch(exec, one) }, Status::INVALID_HANDLE);
    ok(unsafe { cuGraphExecDestroy(exec) });
    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuStreamDestroy_v2(one) });
}

#[test]
fn nodes_and_dependencies_are_made_asked_for_and_taken_away() {
    let _turn = begin();
    let graph = created();
    let other = created();
    let one = empty(graph, &[]);
    let two = empty(graph, &[one]);
    let three = empty(graph, &[one, two]);
    let stranger = empty(other, &[]);
    let mut node = 0;
    for before in [vec![one, one], vec![stranger], vec![graph]] {
        let code = unsafe { cuGraphAddEmptyNode(&raw mut node, graph, before.as_ptr(), before.len()) };
        refused(code, Status::INVALID_VALUE);
    }
    let edges = |graph| {
        let (mut from, mut to, mut count) = ([0; 8], [0; 8], 8);
        let pointers = (from.as_mut_ptr(), to.as_mut_ptr());
        ok(unsafe { cuGraphGetEdges_v2(graph, pointers.0, pointers.1, null_mut(), &raw mut count) });
        from.into_iter().zip(to).take(count).collect::<Vec<_>>()
    };
    assert_eq!(edges(graph), [(one, two), (one, three), (two, three)]);
    let change = |from: u64, to: u64, add: bool| unsafe {
        match add {
            true => cuGraphAddDependencies_v2(graph, &raw const from, &raw const to, null(), 1),
            false => cuGraphRemoveDependencies_v2(graph, &raw const from, &raw const to, null(), 1),
        }
    };
    refused(change(one, two, true), Status::INVALID_VALUE);
    refused(change(three, one, false), Status::INVALID_VALUE);
    refused(change(one, stranger, true), Status::INVALID_VALUE);
    ok(change(one, three, false));
    assert_eq!(edges(graph), [(one, two), (two, three)]);
    // A cycle has no order.
    ok(change(three, one, true));
    let mut exec = 0;
    refused(unsafe { cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) }, Status::INVALID_VALUE);
    let mut how = InstantiateParameters { flags: 0, upload_stream: 0, error_node: 9, result: 9, padding: 0 };
    let made = unsafe { cuGraphInstantiateWithParams(&raw mut exec, graph, &raw mut how) };
    refused(made, Status::INVALID_VALUE);
    assert_eq!((how.result, how.error_node), (2, 0));
    refused(unsafe { cuGraphInstantiateWithFlags(&raw mut exec, graph, 4) }, Status::NOT_SUPPORTED);

    ok(unsafe { cuGraphDestroyNode(two) });
    assert_eq!(edges(graph), [(three, one)]);
    assert_eq!(node_count(graph), 2);
    refused(unsafe { cuGraphDestroyNode(two) }, Status::INVALID_VALUE);
    let exec = instantiate(graph);
    ok(unsafe { cuGraphExecDestroy(exec) });

    let (mut kind, mut room) = (0, 1);
    ok(unsafe { cuGraphNodeGetType(one, &raw mut kind) });
    assert_eq!(kind, 5);
    // Less room than there are nodes: the first of them.
    ok(unsafe { cuGraphGetNodes(graph, &raw mut node, &raw mut room) });
    assert_eq!((node, room), (one, 1));
    ok(unsafe { cuGraphDestroy(graph) });
    refused(unsafe { cuGraphNodeGetType(one, &raw mut kind) }, Status::INVALID_VALUE);
    ok(unsafe { cuGraphDestroy(other) });
}

#[test]
fn a_child_graph_s_nodes_run_between_those_before_and_behind_it() {
    let _turn = begin();
    let one = stream(1);
    let memory = allocate(64);
    let fill = |graph, before: &[u64], count: usize| {
        let mut node = 0;
        let what = MemsetNode {
            to: memory,
            pitch: 0,
            value: count as u32,
            element_bytes: 4,
            width: count,
            height: 1,
        };
        let before = (before.as_ptr(), before.len());
        ok(unsafe { cuGraphAddMemsetNode(&raw mut node, graph, before.0, before.1, &raw const what, 0) });
        node
    };
    let (graph, child) = (created(), created());
    let first = fill(graph, &[], 1);
    fill(child, &[], 16);
    fill(child, &[], 16);
    let mut nested = 0;
    ok(unsafe { cuGraphAddChildGraphNode(&raw mut nested, graph, &raw const first, 1, child) });
    fill(graph, &[nested], 3);
    // The child is a copy, which the program reaches and cannot destroy.
    fill(child, &[], 16);
    let mut embedded = 0;
    ok(unsafe { cuGraphChildGraphNodeGetGraph(nested, &raw mut embedded) });
    assert_ne!(embedded, child);
    assert_eq!(node_count(embedded), 2);
    refused(unsafe { cuGraphDestroy(embedded) }, Status::INVALID_VALUE);

    let exec = instantiate(graph);
    asked();
    ok(unsafe { cuGraphLaunch(exec, one) });
    assert_eq!(story(&[one]).iter().filter(|told| told.ends_with("fill")).count(), 4);
    let mut words = [0u32; 4];
    ok(unsafe { cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), memory, 16) });
    assert_eq!(words, [3, 3, 3, 16]);

    let (mut clone, mut found) = (0, 0);
    ok(unsafe { cuGraphClone(&raw mut clone, graph) });
    ok(unsafe { cuGraphNodeFindInClone(&raw mut found, nested, clone) });
    ok(unsafe { cuGraphDestroy(graph) });
    refused(unsafe { cuGraphClone(&raw mut clone, embedded) }, Status::INVALID_VALUE);
    ok(unsafe { cuGraphChildGraphNodeGetGraph(found, &raw mut embedded) });
    assert_eq!(node_count(embedded), 2);
    // However often a program nests graphs, they end.
    let mut deeper = Ok(());
    for _ in 0..100 {
        let code = unsafe { cuGraphAddChildGraphNode(&raw mut found, clone, null(), 0, clone) };
        if code != 0 {
            deeper = Err(code);
            break;
        }
    }
    assert!(deeper.is_err());
    for handle in [clone, child] {
        ok(unsafe { cuGraphDestroy(handle) });
    }
    ok(unsafe { cuGraphExecDestroy(exec) });
    ok(unsafe { cuMemFree_v2(memory) });
    ok(unsafe { cuStreamDestroy_v2(one) });
}

#[test]
fn an_executable_graph_takes_what_a_graph_of_its_shape_does() {
    let _turn = begin();
    let (module, function) = nothing();
    let one = stream(1);
    let captured = |blocks: &[u32]| {
        begin_capture(one, GLOBAL);
        for blocks in blocks {
            ok(launch(function, *blocks, one));
        }
        end_capture(one).unwrap()
    };
    let graphs = [captured(&[1, 2]), captured(&[3, 4]), captured(&[5]), created()];
    empty(graphs[3], &[]);
    empty(graphs[3], &[]);
    let exec = instantiate(graphs[0]);
    let update = |graph| {
        let mut result = UpdateResult { result: 9, padding: 0, node: 9, from: 9 };
        let code = unsafe { cuGraphExecUpdate_v2(exec, graph, &raw mut result) };
        (code, result.result)
    };
    let failure = Status::GRAPH_EXEC_UPDATE_FAILURE.code();
    asked();
    assert_eq!(update(graphs[1]), (0, 0));
    assert_eq!(update(graphs[2]), (failure, 2));
    assert_eq!(update(graphs[3]), (failure, 3));
    ok(unsafe { cuGraphLaunch(exec, one) });
    assert_eq!(story(&[one]), ["a launch 3", "a launch 4"]);
    // Nodes are still those of the graph that it was made of.
    let (mut nodes, mut count) = ([0; 2], 2);
    ok(unsafe { cuGraphGetNodes(graphs[0], nodes.as_mut_ptr(), &raw mut count) });
    ok(unsafe { cuGraphNodeSetEnabled(exec, nodes[0], 0) });
    ok(unsafe { cuGraphLaunch(exec, one) });
    assert_eq!(story(&[one]), ["a after a", "a launch 4"]);
    ok(unsafe { cuGraphExecDestroy(exec) });
    for graph in graphs {
        ok(unsafe { cuGraphDestroy(graph) });
    }
    ok(unsafe { cuStreamDestroy_v2(one) });
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn nodes_of_any_kind_are_described_in_one_structure() {
    let _turn = begin();
    let one = stream(1);
    let memory = allocate(64);
    let graph = created();
    let add = |words: &[u64], before: &[u64]| {
        let mut parameters = [0_u64; 32];
        parameters[..words.len()].copy_from_slice(words);
        let (mut node, list) = (0, (before.as_ptr(), before.len()));
        let to = (&raw mut node, parameters.as_mut_ptr().cast());
        match unsafe { cuGraphAddNode_v2(to.0, graph, list.0, null(), list.1, to.1) } {
            0 => Ok(node),
            code => Err(code),
        }
    };
    // A fill: kind, then address, pitch, value and the size of an element, width, height.
    let fill = add(&[2, 0, memory, 0, 4 << 32 | 0xAB, 16, 1], &[]).unwrap();
    let nothing = add(&[5], &[fill]).unwrap();
    let mut kinds = [0, 0];
    ok(unsafe { cuGraphNodeGetType(fill, &raw mut kinds[0]) });
    ok(unsafe { cuGraphNodeGetType(nothing, &raw mut kinds[1]) });
    assert_eq!(kinds, [2, 5]);
    assert_eq!(add(&[13], &[]), Err(Status::NOT_SUPPORTED.code()));
    assert_eq!(add(&[14], &[]), Err(Status::INVALID_VALUE.code()));
    assert_eq!(add(&[3], &[]), Err(Status::INVALID_VALUE.code()), "a host function that is null");
    let exec = instantiate(graph);
    ok(unsafe { cuGraphLaunch(exec, one) });
    let mut word = 0u32;
    ok(unsafe { cuMemcpyDtoH_v2((&raw mut word).cast(), memory + 60, 4) });
    assert_eq!(word, 0xAB);
    ok(unsafe { cuGraphExecDestroy(exec) });
    ok(unsafe { cuGraphDestroy(graph) });
    ok(unsafe { cuMemFree_v2(memory) });
    ok(unsafe { cuStreamDestroy_v2(one) });
}

#[test]
fn handles_of_graphs_that_were_never_given_are_refused() {
    let _turn = begin();
    let one = stream(1);
    let (mut value, mut count) = (0, 0);
    for handle in [0, 1, one, 0x3409_0000_0100_0000, 0x340A_0000_0100_0000, 0x340B_0000_0100_0000, u64::MAX] {
        let handle = handle | u64::from(handle > u64::from(u32::MAX)) << 20;
        refused(unsafe { cuGraphDestroy(handle) }, Status::INVALID_VALUE);
        refused(unsafe { cuGraphClone(&raw mut value, handle) }, Status::INVALID_VALUE);
        refused(unsafe { cuGraphGetNodes(handle, null_mut(), &raw mut count) }, Status::INVALID_VALUE);
        refused(unsafe { cuGraphDestroyNode(handle) }, Status::INVALID_VALUE);
        refused(unsafe { cuGraphLaunch(handle, one) }, Status::INVALID_VALUE);
        refused(unsafe { cuGraphExecDestroy(handle) }, Status::INVALID_VALUE);
        refused(unsafe { cuGraphInstantiateWithFlags(&raw mut value, handle, 0) }, Status::INVALID_VALUE);
    }
    ok(unsafe { cuStreamDestroy_v2(one) });
}
