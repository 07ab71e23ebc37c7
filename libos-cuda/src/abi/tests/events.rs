//! Events that processes share, through the C symbols. The other process is the test, which writes what it would.

use std::time::Duration;

use super::*;
use crate::device::{Stream, SturdyToken};

symbols! {
    cuCtxRecordEvent(u64, u64);
    cuCtxWaitEvent(u64, u64);
    cuIpcGetEventHandle(*mut IpcHandle, u64);
    cuIpcOpenEventHandle(*mut u64, IpcHandle);
    cuEventSynchronize(u64);
    cuEventElapsedTime(*mut f32, u64, u64);
    cuStreamQuery(u64);
    cuCtxSynchronize();
    cuMemsetD32Async(u64, u32, usize, u64);
}

const NO_HANDLE: IpcHandle = IpcHandle([0; 64]);
/// Without time, for other processes.
const SHARED: u32 = 2 | 4;
const SLOT: usize = 512;
const GENERATION: u32 = 7;

/// Words of a slot: which event it is, its latest recording's cell, and of the first cell how often one began and ended.
const LATEST: usize = 1;
const BEGUN: usize = 8;
const ENDED: usize = 16;
/// The first cell's token, in bytes.
const RECORDER: usize = 256;

fn create(flags: u32) -> u64 {
    let mut event = 0;
    ok(unsafe { cuEventCreate(&raw mut event, flags) });
    event
}

fn stream() -> u64 {
    let mut stream = 0;
    ok(unsafe { cuStreamCreate(&raw mut stream, 1) });
    stream
}

fn handle_of(event: u64) -> IpcHandle {
    let mut handle = NO_HANDLE;
    ok(unsafe { cuIpcGetEventHandle(&raw mut handle, event) });
    handle
}

/// The token of a handle, and where the slot lies.
fn named(handle: IpcHandle) -> (SturdyToken, usize) {
    let offset = u64::from_le_bytes(*handle.0[40..].first_chunk().unwrap());
    (SturdyToken(*handle.0[8..].first_chunk().unwrap()), offset as usize)
}

fn token(number: u8) -> SturdyToken {
    SturdyToken(std::array::from_fn(|at| if at == 0 { number } else { 0xE0 }))
}

/// An event of another process, in a page of its own, with its handle.
struct Elsewhere {
    token: SturdyToken,
    handle: IpcHandle,
}

impl Elsewhere {
    const AT: usize = 3 * SLOT;

    fn new(number: u8) -> Elsewhere {
        let token = token(number);
        let mut content = vec![0; 2 << 20];
        content[Self::AT..Self::AT + 4].copy_from_slice(&GENERATION.to_le_bytes());
        driver().unwrap().session.export_content(token, content);
        let offset = (Self::AT as u64).to_le_bytes();
        let parts = [&b"BH-event"[..], &token.0, &offset, &GENERATION.to_le_bytes(), &[0; 12]].concat();
        Elsewhere { token, handle: IpcHandle(parts.try_into().unwrap()) }
    }

    fn open(&self) -> u64 {
        let mut event = 0;
        ok(unsafe { cuIpcOpenEventHandle(&raw mut event, self.handle) });
        event
    }

    fn slot<R>(&self, with: impl FnOnce(&mut [u8]) -> R) -> R {
        let session = &driver().unwrap().session;
        session.elsewhere(self.token, |bytes| with(&mut bytes[Self::AT..Self::AT + SLOT]))
    }

    fn set(&self, word: usize, value: u32) {
        self.slot(|bytes| bytes[word * 4..][..4].copy_from_slice(&value.to_le_bytes()));
    }

    fn word(&self, word: usize) -> u32 {
        self.slot(|bytes| u32::from_le_bytes(*bytes[word * 4..].first_chunk().unwrap()))
    }

    /// Another process, which is there, records it, and its stream is not there yet.
    fn record(&self, number: u32, recorder: SturdyToken) {
        driver().unwrap().session.there_is(recorder, true);
        self.slot(|bytes| bytes[RECORDER..][..32].copy_from_slice(&recorder.0));
        self.set(BEGUN, number);
        self.set(LATEST, 1);
    }
}

#[test]
fn an_event_for_other_processes_is_one_in_this_process_too() {
    let _turn = begin();
    let (event, stream, other) = (create(SHARED), stream(), stream());
    ok(unsafe { cuEventQuery(event) });
    ok(unsafe { cuEventSynchronize(event) });
    ok(unsafe { cuEventRecord(event, stream) });
    let session = &driver().unwrap().session;
    let (token, at) = named(handle_of(event));
    let word = |word: usize| {
        session.exported(token, |bytes| u32::from_le_bytes(*bytes[at + word * 4..].first_chunk().unwrap()))
    };
    let cell = word(LATEST) as usize - 1;
    assert_eq!(word(BEGUN + cell), word(ENDED + cell), "its stream is there");
    ok(unsafe { cuEventQuery(event) });
    ok(unsafe { cuEventSynchronize(event) });

    // As if its stream were not there yet.
    let number = word(ENDED + cell);
    let set = |value: u32| {
        let at = at + (ENDED + cell) * 4;
        session.exported(token, |bytes| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()));
    };
    set(number.wrapping_sub(1));
    session.take_asked();
    ok(unsafe { cuStreamWaitEvent(other, event, 0) });
    let waits = session.take_asked();
    assert!(matches!(waits[..], [Asked::Copy { .. }, Asked::WaitOn { .. }]), "on the device: {waits:?}");
    set(number);

    let mut time = 0.0;
    refused(unsafe { cuEventElapsedTime(&raw mut time, event, event) }, Status::INVALID_HANDLE);
    ok(unsafe { cuEventDestroy_v2(event) });
    assert_eq!(word(0), 0, "others find it gone");
    refused(unsafe { cuEventRecord(event, stream) }, Status::INVALID_HANDLE);
    for stream in [stream, other] {
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
}

#[test]
fn an_event_of_another_process_has_come_when_its_stream_has() {
    let _turn = begin();
    let elsewhere = Elsewhere::new(1);
    let (event, again) = (elsewhere.open(), elsewhere.open());
    ok(unsafe { cuEventQuery(event) });
    ok(unsafe { cuEventSynchronize(event) });
    elsewhere.record(1, token(101));
    refused(unsafe { cuEventQuery(event) }, Status::NOT_READY);
    refused(unsafe { cuEventQuery(again) }, Status::NOT_READY);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| ok(unsafe { cuEventSynchronize(event) }));
        std::thread::sleep(Duration::from_millis(250));
        assert!(!waits.is_finished());
        elsewhere.set(ENDED, 1);
    });
    ok(unsafe { cuEventQuery(event) });

    // This process records it as well, in the next cell, and under its own token.
    ok(unsafe { cuEventRecord(again, 0) });
    let cell = elsewhere.word(LATEST) as usize - 1;
    assert_eq!((cell, elsewhere.word(BEGUN + cell), elsewhere.word(ENDED + cell)), (1, 1, 1));
    let recorder = elsewhere.slot(|bytes| SturdyToken(*bytes[RECORDER + 32..].first_chunk().unwrap()));
    assert!(driver().unwrap().session.restore(recorder).is_ok());
    let mut time = 0.0;
    refused(unsafe { cuEventElapsedTime(&raw mut time, event, again) }, Status::INVALID_HANDLE);

    driver().unwrap().session.take_asked();
    ok(unsafe { cuEventDestroy_v2(event) });
    assert!(!driver().unwrap().session.take_asked().contains(&Asked::Unmap));
    ok(unsafe { cuEventDestroy_v2(again) });
    assert!(driver().unwrap().session.take_asked().contains(&Asked::Unmap));
}

#[test]
fn later_work_of_a_stream_waits_for_another_process_and_that_of_others_does_not() {
    let _turn = begin();
    let elsewhere = Elsewhere::new(2);
    let (event, stream, other) = (elsewhere.open(), stream(), stream());
    let memory = allocate(4096);
    elsewhere.record(4, token(102));
    ok(unsafe { cuStreamWaitEvent(stream, event, 0) });
    ok(unsafe { cuMemsetD32Async(memory, 1, 1, other) });
    refused(unsafe { cuStreamQuery(stream) }, Status::NOT_READY);
    ok(unsafe { cuStreamQuery(other) });
    std::thread::scope(|scope| {
        ok(unsafe { cuMemsetD32Async(memory, 2, 1, stream) });
        let waits = scope.spawn(|| on_a_thread(|| ok(unsafe { cuStreamSynchronize(stream) })));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished());
        // A recording that comes later is not waited for.
        elsewhere.set(LATEST, 2);
        elsewhere.set(BEGUN + 1, 1);
        elsewhere.set(ENDED, 4);
    });
    ok(unsafe { cuStreamSynchronize(stream) });
    ok(unsafe { cuStreamQuery(stream) });
    let mut found = [0; 4];
    ok(unsafe { cuMemcpyDtoH_v2(found.as_mut_ptr(), memory, 4) });
    assert_eq!(found, [2, 0, 0, 0]);
    elsewhere.set(ENDED + 1, 1);
    ok(unsafe { cuEventDestroy_v2(event) });
    ok(unsafe { cuMemFree_v2(memory) });
    for stream in [stream, other] {
        ok(unsafe { cuStreamDestroy_v2(stream) });
    }
}

#[test]
fn a_host_function_behind_an_event_of_another_process_runs_after_it() {
    static RAN: AtomicU32 = AtomicU32::new(0);
    extern "C" fn run(_: *mut c_void) {
        RAN.store(1, Ordering::SeqCst);
    }
    let _turn = begin();
    let elsewhere = Elsewhere::new(3);
    let (event, stream) = (elsewhere.open(), stream());
    elsewhere.record(1, token(103));
    ok(unsafe { cuStreamWaitEvent(stream, event, 0) });
    std::thread::scope(|scope| {
        scope.spawn(|| on_a_thread(|| ok(unsafe { cuLaunchHostFunc(stream, run, null_mut()) })));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(RAN.load(Ordering::SeqCst), 0);
        elsewhere.set(ENDED, 1);
    });
    ok(unsafe { cuStreamSynchronize(stream) });
    assert_eq!(RAN.load(Ordering::SeqCst), 1);
    ok(unsafe { cuEventDestroy_v2(event) });
    ok(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn nobody_waits_for_a_process_that_has_ended() {
    let _turn = begin();
    let session = &driver().unwrap().session;
    let elsewhere = Elsewhere::new(4);
    let (event, stream) = (elsewhere.open(), stream());
    let memory = allocate(64);
    // Who recorded it is gone.
    elsewhere.record(1, token(104));
    ok(unsafe { cuStreamWaitEvent(stream, event, 0) });
    session.there_is(token(104), false);
    refused(unsafe { cuEventSynchronize(event) }, Status::INVALID_HANDLE);
    refused(unsafe { cuStreamSynchronize(stream) }, Status::INVALID_HANDLE);
    // That is told once.
    ok(unsafe { cuMemsetD32Async(memory, 2, 1, stream) });
    ok(unsafe { cuStreamSynchronize(stream) });
    // Its cell is free for others once all are in use.
    for _ in 0..9 {
        ok(unsafe { cuEventRecord(event, stream) });
    }
    ok(unsafe { cuEventSynchronize(event) });
    // A stream that nobody uses after that tells nobody.
    elsewhere.record(elsewhere.word(BEGUN) + 1, token(104));
    ok(unsafe { cuStreamWaitEvent(stream, event, 0) });
    session.there_is(token(104), false);
    ok(unsafe { cuStreamDestroy_v2(stream) });
    ok(unsafe { cuCtxSynchronize() });

    // Whose event it is is gone, and the memory with it.
    elsewhere.record(elsewhere.word(BEGUN) + 1, token(105));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| refused(unsafe { cuEventSynchronize(event) }, Status::INVALID_HANDLE));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waits.is_finished());
        elsewhere.slot(|bytes| bytes.fill(0));
    });
    refused(unsafe { cuEventQuery(event) }, Status::INVALID_HANDLE);
    refused(unsafe { cuEventRecord(event, 0) }, Status::INVALID_HANDLE);
    refused(unsafe { cuStreamWaitEvent(0, event, 0) }, Status::INVALID_HANDLE);
    ok(unsafe { cuEventDestroy_v2(event) });
    ok(unsafe { cuMemFree_v2(memory) });
}

#[test]
fn whatever_another_process_writes_into_an_event_makes_this_one_wait_or_go_on() {
    let _turn = begin();
    let elsewhere = Elsewhere::new(5);
    let event = elsewhere.open();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0..2000 {
        elsewhere.slot(|bytes| {
            for byte in bytes.iter_mut().skip(4) {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                *byte = (state >> 56) as u8;
            }
        });
        let code = unsafe { cuEventQuery(event) };
        assert!([0, Status::NOT_READY.code()].contains(&code), "{code}");
        // These look whether somebody is there, which takes a moment.
        if round % 500 == 0 {
            let code = unsafe { cuEventSynchronize(event) };
            assert!([0, Status::INVALID_HANDLE.code()].contains(&code), "{code}");
            ok(unsafe { cuEventRecord(event, 0) });
        }
    }
    // A token of something that is no process.
    driver().unwrap().session.export_elsewhere(token(106), 4096);
    elsewhere.slot(|bytes| bytes[8..].fill(0));
    elsewhere.record(1, token(106));
    driver().unwrap().session.there_is(token(106), false);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| ok(unsafe { cuEventSynchronize(event) }));
        std::thread::sleep(Duration::from_millis(250));
        assert!(!waits.is_finished());
        elsewhere.set(ENDED, 1);
    });
    ok(unsafe { cuEventDestroy_v2(event) });
}

#[test]
fn handles_of_events_that_are_none_and_wrong_ones_are_refused() {
    let _turn = begin();
    let (mut event, mut handle) = (0xBAD, NO_HANDLE);
    refused(unsafe { cuEventCreate(&raw mut event, 4) }, Status::INVALID_VALUE);
    let plain = create(2);
    refused(unsafe { cuIpcGetEventHandle(&raw mut handle, plain) }, Status::INVALID_HANDLE);
    refused(unsafe { cuIpcGetEventHandle(&raw mut handle, 0) }, Status::INVALID_HANDLE);
    let own = create(SHARED);
    refused(unsafe { cuIpcGetEventHandle(null_mut(), own) }, Status::INVALID_VALUE);
    let own_handle = handle_of(own);
    assert!(handle_of(own).0 == own_handle.0);
    let mut opened = |handle| unsafe { cuIpcOpenEventHandle(&raw mut event, handle) };
    refused(opened(own_handle), Status::INVALID_CONTEXT);
    refused(opened(NO_HANDLE), Status::INVALID_VALUE);
    let elsewhere = Elsewhere::new(6);
    let changed = |at: usize, to: u8| {
        let mut handle = elsewhere.handle;
        handle.0[at] = to;
        handle
    };
    // Another token; odd offsets and such beyond what was shared, up to those that overflow; another event's number, and none.
    refused(opened(changed(20, 0xEE)), Status::INVALID_HANDLE);
    for (at, to) in [(40, 1), (42, 0x20), (47, 0xFF), (48, 0), (60, 1), (0, b'x')] {
        refused(opened(changed(at, to)), Status::INVALID_VALUE);
    }
    refused(opened(changed(48, 9)), Status::INVALID_HANDLE);
    refused(opened(changed(41, 0)), Status::INVALID_HANDLE);
    assert_eq!(event, 0xBAD);
    // One that was opened is not passed on.
    let imported = elsewhere.open();
    refused(unsafe { cuIpcGetEventHandle(&raw mut handle, imported) }, Status::INVALID_HANDLE);
    assert!(handle.0 == NO_HANDLE.0);
    for event in [plain, own, imported] {
        ok(unsafe { cuEventDestroy_v2(event) });
    }
    let mut supported = -1;
    ok(unsafe { cuDeviceGetAttribute(&raw mut supported, 125, 0) });
    assert_eq!(supported, 1);
}

#[test]
fn a_process_has_as_many_events_for_others_as_its_pages_hold() {
    let _turn = begin();
    let mut events = Vec::new();
    let full = loop {
        let mut event = 0;
        match unsafe { cuEventCreate(&raw mut event, SHARED) } {
            0 => events.push(event),
            code => break code,
        }
    };
    refused(full, Status::OUT_OF_MEMORY);
    assert_eq!(events.len(), 65_536);
    let last = events.pop().unwrap();
    let before = handle_of(last);
    ok(unsafe { cuEventDestroy_v2(last) });
    let again = create(SHARED);
    let after = handle_of(again);
    assert!(
        before.0[..48] == after.0[..48] && before.0[48..] != after.0[48..],
        "the same slot, another event"
    );
    for event in events.into_iter().chain([again]) {
        ok(unsafe { cuEventDestroy_v2(event) });
    }
    driver().unwrap().session.release(Stream::DEFAULT);
}

#[test]
fn an_event_of_a_context_stands_for_all_its_streams_and_its_later_work_waits() {
    let _turn = begin();
    let (mut context, mut one, mut two, mut event) = (0, 0, 0, 0);
    ok(unsafe { cuCtxCreate_v2(&raw mut context, 0, 0) });
    ok(unsafe { cuStreamCreate(&raw mut one, 1) });
    ok(unsafe { cuEventCreate(&raw mut event, 2) });
    let memory = allocate(64);
    let session = &driver().unwrap().session;
    let target = |handle| driver().unwrap().target(NullStream::Legacy, handle).unwrap();
    let held = target(one);
    session.hold(held.stream);
    ok(unsafe { cuMemsetD32Async(memory, 1, 16, one) });
    session.take_asked();
    ok(unsafe { cuCtxRecordEvent(context, event) });
    let waits: Vec<u32> = session
        .take_asked()
        .into_iter()
        .filter_map(|asked| if let Asked::WaitOn { other, .. } = asked { Some(other) } else { None })
        .collect();
    assert!(waits.contains(&held.stream.index()) && waits.contains(&0), "{waits:?}");
    session.release(held.stream);
    ok(unsafe { cuEventSynchronize(event) });

    // Streams that are there wait, and those that come later begin behind it.
    ok(unsafe { cuCtxWaitEvent(context, event) });
    let waiting = |asked: &[Asked], index| {
        asked.iter().any(|asked| matches!(asked, Asked::WaitOn { stream, .. } if *stream == index))
    };
    let asked = session.take_asked();
    assert!(waiting(&asked, held.stream.index()) && waiting(&asked, 0), "{asked:?}");
    ok(unsafe { cuStreamCreate(&raw mut two, 1) });
    let asked = session.take_asked();
    assert!(waiting(&asked, target(two).stream.index()), "{asked:?}");

    let (mut primary, mut other) = (0, 0);
    ok(unsafe { cuDevicePrimaryCtxRetain(&raw mut primary, 0) });
    refused(unsafe { cuCtxRecordEvent(primary, event) }, Status::INVALID_HANDLE);
    refused(unsafe { cuCtxRecordEvent(3, event) }, Status::INVALID_CONTEXT);
    refused(unsafe { cuCtxWaitEvent(primary, 3) }, Status::INVALID_HANDLE);
    // Another context's new streams do not.
    ok(unsafe { cuCtxPushCurrent_v2(primary) });
    session.take_asked();
    ok(unsafe { cuStreamCreate(&raw mut other, 1) });
    assert!(!waiting(&session.take_asked(), target(other).stream.index()));
    ok(unsafe { cuStreamDestroy_v2(other) });
    ok(unsafe { cuCtxPopCurrent_v2(null_mut()) });
    ok(unsafe { cuCtxDestroy_v2(context) });
    refused(unsafe { cuCtxWaitEvent(context, event) }, Status::CONTEXT_IS_DESTROYED);
}
