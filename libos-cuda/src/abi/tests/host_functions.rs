//! Functions of the program's in the order of streams.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::graphs::{created, instantiate};
use super::*;
use crate::abi::MemsetNode;

symbols! {
    cuCtxSynchronize();
    cuGraphAddMemsetNode(*mut u64, u64, *const u64, usize, *const MemsetNode, u64);
    cuGraphDestroy(u64);
    cuGraphExecDestroy(u64);
    cuGraphLaunch(u64, u64);
    cuMemsetD32Async(u64, u32, usize, u64);
    cuStreamQuery(u64);
}

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

#[test]
fn a_stream_that_a_host_function_may_not_destroy_is_there_afterwards() {
    static TOLD: AtomicU32 = AtomicU32::new(99);
    extern "C" fn destroy(stream: *mut c_void) {
        on_a_thread(|| TOLD.store(unsafe { cuStreamDestroy_v2(stream.addr() as u64) }, Ordering::SeqCst));
    }
    let _turn = begin();
    let (stream, memory) = (stream(), allocate(64));
    let number = std::ptr::without_provenance_mut(usize::try_from(stream).unwrap());
    ok(unsafe { cuLaunchHostFunc(stream, destroy, number) });
    ok(unsafe { cuStreamSynchronize(stream) });
    refused(TOLD.load(Ordering::SeqCst), Status::NOT_PERMITTED);
    ok(unsafe { cuMemsetD32Async(memory, 7, 1, stream) });
    ok(unsafe { cuStreamSynchronize(stream) });
    ok(unsafe { cuMemFree_v2(memory) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
    refused(unsafe { cuStreamSynchronize(stream) }, Status::INVALID_HANDLE);
}

/// A host function that stays in its stream until the test lets it go.
struct Gate(AtomicU32);

/// Lets a host function go at the latest when the test ends, or fails.
struct Held(&'static Gate);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.open();
    }
}

const SHUT: u32 = 0;
const OPEN: u32 = 1;
const PASSED: u32 = 2;

impl Gate {
    const fn new() -> Gate {
        Gate(AtomicU32::new(SHUT))
    }

    fn give(&'static self, stream: u64) -> Held {
        extern "C" fn stay(gate: *mut c_void) {
            // SAFETY: given below, and static.
            let gate = unsafe { &*gate.cast::<Gate>() };
            while gate.0.load(Ordering::SeqCst) == SHUT {
                std::thread::sleep(Duration::from_millis(1));
            }
            gate.0.store(PASSED, Ordering::SeqCst);
        }
        self.0.store(SHUT, Ordering::SeqCst);
        ok(unsafe { cuLaunchHostFunc(stream, stay, std::ptr::from_ref(self).cast_mut().cast()) });
        Held(self)
    }

    fn open(&self) {
        // One that has passed has passed.
        self.0.compare_exchange(SHUT, OPEN, Ordering::SeqCst, Ordering::SeqCst).ok();
    }

    fn has_passed(&self) -> bool {
        self.0.load(Ordering::SeqCst) == PASSED
    }
}

/// Whether something holds within ten seconds.
fn comes(ready: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !ready() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    ready()
}

/// Long enough for a thread to do what it should not.
fn a_while() {
    std::thread::sleep(Duration::from_millis(30));
}

#[test]
fn whoever_waits_for_host_functions_waits_for_none_that_were_given_later() {
    static FIRST: Gate = Gate::new();
    static SECOND: Gate = Gate::new();
    let _turn = begin();
    let (mut stream, memory) = (0, allocate(64));
    ok(unsafe { cuStreamCreate(&raw mut stream, 0) });
    let waits: [(&str, &(dyn Fn() -> u32 + Sync)); 4] = [
        ("cuStreamSynchronize", &|| unsafe { cuStreamSynchronize(stream) }),
        ("cuCtxSynchronize", &|| unsafe { cuCtxSynchronize() }),
        ("a legacy copy", &|| unsafe { cuMemcpyDtoH_v2([0u8; 4].as_mut_ptr(), memory, 4) }),
        ("cuMemFree", &|| unsafe { cuMemFree_v2(allocate(64)) }),
    ];
    for (name, wait) in waits {
        std::thread::scope(|scope| {
            let first = FIRST.give(stream);
            let waiting = scope.spawn(|| on_a_thread(|| ok(wait())));
            a_while();
            assert!(!waiting.is_finished(), "{name} does not wait");
            let _second = SECOND.give(stream);
            drop(first);
            assert!(comes(|| waiting.is_finished()), "{name} waits for what was given later");
        });
    }
    ok(unsafe { cuMemFree_v2(memory) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn whoever_submits_behind_a_host_function_does_not_wait() {
    static GATE: Gate = Gate::new();
    let _turn = begin();
    let (mut one, mut two, mut event) = (0, 0, 0);
    for stream in [&mut one, &mut two] {
        ok(unsafe { cuStreamCreate(&raw mut *stream, 0) });
    }
    ok(unsafe { cuEventCreate(&raw mut event, 0) });
    let memory = allocate(64);
    let gate = GATE.give(one);
    ok(unsafe { cuMemsetD32Async(memory, 1, 1, one) });
    ok(unsafe { cuEventRecord(event, one) });
    ok(unsafe { cuStreamWaitEvent(two, event, 0) });
    ok(unsafe { cuMemsetD32Async(memory, 2, 1, two) });
    ok(unsafe { cuMemsetD32Async(memory, 3, 1, 0) });
    for stream in [one, two, 0] {
        refused(unsafe { cuStreamQuery(stream) }, Status::NOT_READY);
    }
    refused(unsafe { cuEventQuery(event) }, Status::NOT_READY);
    assert!(!GATE.has_passed());
    drop(gate);
    ok(unsafe { cuStreamSynchronize(0) });
    assert!(GATE.has_passed());
    ok(unsafe { cuEventQuery(event) });
    ok(unsafe { cuEventDestroy_v2(event) });
    ok(unsafe { cuMemFree_v2(memory) });
    for stream in [one, two] {
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
}

#[test]
fn a_host_function_that_waits_holds_up_no_other_stream() {
    static GATE: Gate = Gate::new();
    static BEHIND: Gate = Gate::new();
    static OTHER: Gate = Gate::new();
    let _turn = begin();
    let (held, free) = (stream(), stream());
    let gate = GATE.give(held);
    drop(BEHIND.give(held));
    drop(OTHER.give(free));
    assert!(comes(|| OTHER.has_passed()), "one stream's function waits for another's");
    ok(unsafe { cuStreamSynchronize(free) });
    a_while();
    assert!(!BEHIND.has_passed(), "a stream's functions overtook each other");
    drop(gate);
    ok(unsafe { cuStreamSynchronize(held) });
    assert!(GATE.has_passed() && BEHIND.has_passed());
    for stream in [held, free] {
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
}

#[test]
fn a_graph_behind_a_host_function_holds_up_no_graph_of_another_stream() {
    static GATES: [Gate; 4] = [const { Gate::new() }; 4];
    let _turn = begin();
    let memory = allocate(4096);
    let graph = created();
    for branch in 0..4 {
        let mut node = 0;
        let what = MemsetNode {
            to: memory + branch * 64,
            pitch: 0,
            value: 3,
            element_bytes: 4,
            width: 16,
            height: 1,
        };
        ok(unsafe { cuGraphAddMemsetNode(&raw mut node, graph, null(), 0, &raw const what, 0) });
    }
    // More branches behind the functions than there are streams for.
    let held = [stream(), stream(), stream(), stream()];
    let free = stream();
    let gates: Vec<Held> = GATES.iter().zip(held).map(|(gate, stream)| gate.give(stream)).collect();
    let execs: Vec<u64> = (0..12).map(|_| instantiate(graph)).collect();
    for (exec, stream) in execs.iter().zip(held) {
        ok(unsafe { cuGraphLaunch(*exec, stream) });
    }
    for exec in &execs[held.len()..] {
        ok(unsafe { cuGraphLaunch(*exec, free) });
        assert!(comes(|| unsafe { cuStreamQuery(free) } == 0), "a graph waits for another stream's");
    }
    for stream in held {
        refused(unsafe { cuStreamQuery(stream) }, Status::NOT_READY);
    }
    drop(gates);
    for stream in held {
        ok(unsafe { cuStreamSynchronize(stream) });
    }
    // What was held is free again, also for another stream.
    driver().unwrap().session.take_asked();
    ok(unsafe { cuGraphLaunch(execs[0], free) });
    let asked = driver().unwrap().session.take_asked();
    let used: HashSet<u32> = asked
        .iter()
        .filter_map(|asked| if let Asked::Fill { stream } = asked { Some(*stream) } else { None })
        .collect();
    assert_eq!(used.len(), 4, "{asked:?}");
    for exec in execs {
        ok(unsafe { cuGraphExecDestroy(exec) });
    }
    ok(unsafe { cuGraphDestroy(graph) });
    for stream in held.into_iter().chain([free]) {
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
    ok(unsafe { cuMemFree_v2(memory) });
}

#[test]
fn host_functions_keep_the_order_of_the_legacy_stream_and_blocking_ones() {
    static FIRST: Gate = Gate::new();
    static SECOND: Gate = Gate::new();
    static THIRD: Gate = Gate::new();
    const LEGACY: u64 = 1;
    let _turn = begin();
    let (mut one, mut two) = (0, 0);
    for stream in [&mut one, &mut two] {
        ok(unsafe { cuStreamCreate(&raw mut *stream, 0) });
    }
    let first = FIRST.give(one);
    drop(SECOND.give(LEGACY));
    drop(THIRD.give(two));
    a_while();
    assert!(!SECOND.has_passed(), "the legacy stream does not wait for a blocking one");
    assert!(!THIRD.has_passed(), "a blocking stream does not wait for the legacy one");
    drop(first);
    ok(unsafe { cuStreamSynchronize(two) });
    assert!(FIRST.has_passed() && SECOND.has_passed() && THIRD.has_passed());
    for stream in [one, two] {
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
}

#[test]
fn memory_is_freed_when_the_host_functions_of_every_stream_have_returned() {
    static SLOW: Gate = Gate::new();
    static QUICK: Gate = Gate::new();
    let _turn = begin();
    let (slow, quick, memory) = (stream(), stream(), allocate(64));
    std::thread::scope(|scope| {
        let _slow = SLOW.give(slow);
        drop(QUICK.give(quick));
        assert!(comes(|| QUICK.has_passed()));
        let freeing = scope.spawn(|| on_a_thread(|| ok(unsafe { cuMemFree_v2(memory) })));
        a_while();
        assert!(!freeing.is_finished(), "one function's return counts as another's");
    });
    for stream in [slow, quick] {
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
}

#[test]
fn a_stream_has_a_thread_for_its_host_functions_as_long_as_it_has_some() {
    extern "C" fn nothing(_: *mut c_void) {}
    fn threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with("bulkhead-host-w")).count()
    }
    static GATES: [Gate; 3] = [const { Gate::new() }; 3];
    let _turn = begin();
    assert!(comes(|| threads() == 0), "of the tests before");
    let streams = [stream(), stream(), stream()];
    let held: Vec<Held> = GATES.iter().zip(streams).map(|(gate, stream)| gate.give(stream)).collect();
    for stream in streams.repeat(100) {
        ok(unsafe { cuLaunchHostFunc(stream, nothing, null_mut()) });
    }
    assert!(comes(|| threads() == 3), "{}", threads());
    a_while();
    assert_eq!(threads(), 3);
    drop(held);
    for stream in streams {
        ok(unsafe { cuStreamSynchronize(stream) });
    }
    assert!(comes(|| threads() == 0), "they stay");
    // And begin again.
    ok(unsafe { cuLaunchHostFunc(streams[0], nothing, null_mut()) });
    for stream in streams {
        ok(unsafe { cuStreamSynchronize(stream) });
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
}
