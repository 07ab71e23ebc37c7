//! Threads of kernels that cannot go on end, their session is told, and it goes on.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::{Duration, Instant};

use bulkhead_client::{
    AddressRange, ErrorCode, Launch, Options, Parameters, Session, Stray, Stream, ViolationKind,
};
use bulkhead_tests::{kernel::Kernel, neighbour::Neighbour};

const FIRST: Stream = Stream::DEFAULT;

/// Stores the number of each thread; those beyond the last end with a trap, and who is to wait for ever does.
const PTX: &[u8] = b".version 8.0\n.target sm_75\n.address_size 64\n.file 1 \"kernels.cu\"\n\
.visible .entry count(.param .u64 to, .param .u32 last, .param .u32 wait)\n{\n\
.reg .pred %p;\n.reg .b32 %i, %last, %wait;\n.reg .b64 %to;\n\
ld.param.u64 %to, [to];\nld.param.u32 %last, [last];\nld.param.u32 %wait, [wait];\n\
mov.u32 %i, %tid.x;\nsetp.gt.u32 %p, %i, %last;\n.loc 1 7 1\n@%p trap;\n\
AGAIN:\nsetp.ne.u32 %p, %wait, 0;\n@%p bra AGAIN;\n\
mad.wide.u32 %to, %i, 4, %to;\nst.global.u32 [%to], %i;\nret;\n}\n";

fn numbers(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_session_is_told_once_of_threads_that_ended_and_goes_on() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let session = kernel.open("trapped");
    let image = session.load_image(PTX).unwrap();
    let entry = image.entry("count").unwrap();
    let to = session.allocate(256).unwrap();
    let launch = |last: u32| {
        session.write(FIRST, to.all(), &[0xFF; 256]).unwrap();
        let parameters = Parameters::new().buffer(&to).u32(last).u32(0);
        session.launch(FIRST, &entry, &Launch::linear(64, 64), &parameters).unwrap()
    };
    for _ in 0..2 {
        session.wait(launch(63)).unwrap();
        let error = session.wait(launch(59)).unwrap_err();
        assert_eq!(error.code, ErrorCode::Trapped, "{error}");
        let expected: Vec<String> = (60..64)
            .map(|thread| format!("kernels.cu:7: count: block: [0,0,0], thread: [{thread},0,0] met a trap"))
            .collect();
        let mut told: Vec<&str> = error.message.lines().collect();
        told.sort_unstable();
        assert_eq!(told, expected);
        let mut found = session.take_violations();
        found.records.sort_unstable_by_key(|record| record.thread);
        assert_eq!((found.records.len(), found.lost), (4, 0));
        assert!(found.records.iter().all(|record| record.kind == ViolationKind::Trap));
        assert_eq!(found.records[3].thread, [63, 0, 0]);
        session.wait(session.fence(FIRST)).unwrap();
        // The threads that went on have stored, and no others.
        let mut bytes = [0; 256];
        session.read(FIRST, &mut bytes, to.all()).unwrap();
        let stored = numbers(&bytes);
        assert!(stored.iter().zip(0..).all(|(word, i)| *word == if i < 60 { i } else { u32::MAX }));
        neighbour.work();
    }
    assert_eq!(kernel.status().executor_starts, 1);
}

#[test]
fn a_call_of_nobodys_number_is_told_with_the_number() {
    const CALLS: &[u8] = b".version 8.0\n.target sm_75\n.address_size 64\n.file 1 \"kernels.cu\"\n\
.func store(.param .u64 to)\n{\n.reg .b64 %to;\nld.param.u64 %to, [to];\nst.global.u32 [%to], 7;\nret;\n}\n\
.global .align 8 .u64 table[3] = {store, 0, 77};\n\
.visible .entry calls(.param .u64 to)\n{\n.reg .b32 %i;\n.reg .b64 %to, %at, %from;\n\
ld.param.u64 %to, [to];\nmov.u32 %i, %tid.x;\nmad.wide.u32 %to, %i, 4, %to;\n\
mov.u64 %at, table;\nmad.wide.u32 %from, %i, 8, %at;\nld.global.u64 %from, [%from];\n\
shape: .callprototype _ (.param .u64 _);\n.loc 1 9 1\n\
{\n.param .u64 given;\nst.param.u64 [given], %to;\ncall %from, (given), shape;\n}\nret;\n}\n";
    let kernel = Kernel::start();
    let session = kernel.open("calls");
    let image = session.load_image(CALLS).unwrap();
    let to = session.allocate(12).unwrap();
    session.write(FIRST, to.all(), &[0xFF; 12]).unwrap();
    let parameters = Parameters::new().buffer(&to);
    let calls = image.entry("calls").unwrap();
    let launched = session.launch(FIRST, &calls, &Launch::linear(3, 3), &parameters).unwrap();
    let error = session.wait(launched).unwrap_err();
    assert_eq!(error.code, ErrorCode::Trapped, "{error}");
    let mut told: Vec<&str> = error.message.lines().collect();
    told.sort_unstable();
    let who = |thread| format!("kernels.cu:9: calls: block: [0,0,0], thread: [{thread},0,0]");
    let called = |thread, number| format!("{} called {number:#x}, which is no function", who(thread));
    assert_eq!(told, [called(1, 0), called(2, 77)]);
    let mut bytes = [0; 12];
    session.read(FIRST, &mut bytes, to.all()).unwrap();
    assert_eq!(numbers(&bytes), [7, u32::MAX, u32::MAX]);
}

#[test]
fn a_read_is_told_too_and_nothing_that_is_read_meanwhile_is_lost() {
    let kernel = Kernel::start();
    let session = kernel.open("trapped");
    let image = session.load_image(PTX).unwrap();
    let to = session.allocate(256).unwrap();
    let parameters = Parameters::new().buffer(&to).u32(10).u32(0);
    session.launch(FIRST, &image.entry("count").unwrap(), &Launch::linear(64, 64), &parameters).unwrap();
    let mut bytes = [0; 256];
    let error = session.read(FIRST, &mut bytes, to.all()).unwrap_err();
    assert_eq!(error.code, ErrorCode::Trapped, "{error}");
    session.read(FIRST, &mut bytes, to.all()).unwrap();
    assert_eq!(numbers(&bytes)[..11], (0..11).collect::<Vec<_>>());
}

#[test]
fn who_waits_for_threads_that_wait_for_ever_is_told_of_the_one_that_ended() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let session = kernel.open("waits");
    let image = session.load_image(PTX).unwrap();
    let to = session.allocate(256).unwrap();
    let parameters = Parameters::new().buffer(&to).u32(62).u32(1);
    let entry = image.entry("count").unwrap();
    let fence = session.launch(FIRST, &entry, &Launch::linear(64, 64), &parameters).unwrap();
    let error = session.wait(fence).unwrap_err();
    assert_eq!(error.code, ErrorCode::Trapped, "{error}");
    assert!(!session.is_done(fence).unwrap(), "the kernel has no end");
    drop((image, entry, to, session));
    let began = Instant::now();
    kernel.without(&["waits"]);
    println!("ended after {:?}", began.elapsed().min(Duration::from_secs(60)));
    neighbour.work();
    assert_eq!(kernel.status().executor_starts, 1);
}

#[test]
fn a_thread_that_ends_late_in_a_long_kernel_is_told_of_at_the_wait_for_it() {
    const LATE: &[u8] =
        b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry late(.param .u32 turns)\n{\n\
        .reg .pred %p;\n.reg .b32 %i, %turns;\nld.param.u32 %turns, [turns];\nmov.u32 %i, 0;\n\
        AGAIN:\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, %turns;\n@%p bra AGAIN;\ntrap;\n}\n";
    let kernel = Kernel::start();
    let session = kernel.open("late");
    let image = session.load_image(LATE).unwrap();
    // So long that who waits has looked before it ends.
    let parameters = Parameters::new().u32(1_500_000);
    let launch = Launch::linear(1, 1);
    let fence = session.launch(FIRST, &image.entry("late").unwrap(), &launch, &parameters).unwrap();
    assert_eq!(session.wait(fence).unwrap_err().code, ErrorCode::Trapped);
    session.wait(session.fence(FIRST)).unwrap();
}

#[test]
fn what_a_long_kernel_tells_again_and_again_is_counted_to_the_last() {
    const ASTRAY: &[u8] = b".version 8.0\n.target sm_75\n.address_size 64\n\
        .visible .entry astray(.param .u64 to, .param .u32 times)\n{\n\
        .reg .pred %p;\n.reg .b32 %i, %times;\n.reg .b64 %to;\n\
        ld.param.u64 %to, [to];\nld.param.u32 %times, [times];\nmov.u32 %i, 0;\n\
        AGAIN:\nst.global.u32 [%to], %i;\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, %times;\n@%p bra AGAIN;\nret;\n}\n";
    let kernel = Kernel::start();
    let options = Options { stray: Stray::Told, ..kernel.options("astray") };
    let session = Session::open(&options).unwrap();
    let image = session.load_image(ASTRAY).unwrap();
    let entry = image.entry("astray").unwrap();
    let to = session.allocate(256).unwrap();
    session.list_memory(vec![AddressRange { start: to.address() + 4096, bytes: 4 }]).unwrap();
    // So long that who waits for it, and who waits for others, has looked before it ends.
    let times = 200_000;
    let parameters = Parameters::new().buffer(&to).u32(times);
    let fence = session.launch(FIRST, &entry, &Launch::linear(32, 32), &parameters).unwrap();
    let other = session.create_stream(0).unwrap();
    let parameters = Parameters::new().buffer(&to).u32(1);
    let mut expected = 32 * u64::from(times);
    while !session.has_passed(fence) {
        session.wait(session.launch(other, &entry, &Launch::linear(1, 1), &parameters).unwrap()).unwrap();
        expected += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    session.wait(fence).unwrap();
    let found = session.take_violations();
    let told: u64 = found.records.iter().map(|record| record.times).sum();
    assert_eq!((told, found.lost), (expected, 0));
}
