//! Modules where there is a standby: what gates keep, who may call them and what the host half reaches outlive the executor.

use std::{path::PathBuf, time::Duration};

use bulkhead_client::{Error, ErrorCode, Image, Launch, Parameters, Pattern, Session, Stream};
use bulkhead_module::{codes, door};
use bulkhead_tests::{
    kernel::Kernel,
    module::{self, Module},
    patience::until,
    place::repository,
    process::{self, bulkhead, run},
    scratch::Scratch,
    storage::Served,
};
use rustix::process::Rlimit;

const PATIENCE: Duration = Duration::from_secs(120);

/// Adds to counters, reads them, and asks for ever.
const COUNTS: &[u8] = b".version 6.0
.target sm_70
.address_size 64
.extern .func (.param .b32 code) counter_add(.param .b32 key, .param .b64 by, .param .b64 before);
.extern .func (.param .b32 code) counter_get(.param .b32 key, .param .b64 value);
.visible .entry add(.param .u64 out, .param .u64 by)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [by];
    add.s64 %rd3, %rd1, 8;
    call (%r2), counter_add, (3, %rd2, %rd3);
    st.global.u32 [%rd1], %r2;
    ret;
}
.visible .entry forever(.param .u64 out, .param .u64 by)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    add.s64 %rd3, %rd1, 8;
    st.global.u32 [%rd1+16], 1;
TURN:
    call (%r2), counter_get, (0, %rd3);
    bra TURN;
}
\0";

/// Submits a command for a buffer that it does not have.
const SUBMITS: &[u8] = b".version 6.0
.target sm_70
.address_size 64
.extern .func (.param .b32 code) storage_submit(.param .b32 ticket, .param .b32 extent, .param .b32 operation, .param .b64 block, .param .b32 count);
.visible .entry submit(.param .u64 out, .param .u64 block)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [block];
    call (%r2), storage_submit, (77, 0, 2, %rd2, 1);
    st.global.u32 [%rd1], %r2;
    ret;
}
\0";

fn protected() -> Kernel {
    let kernel = Kernel::with(&["--standby"]);
    has_standby(&kernel);
    kernel
}

fn has_standby(kernel: &Kernel) {
    until("a standby is ready", || kernel.status().standby_pid != 0);
}

/// Kills the executor, and waits until the standby serves and these have moved to it.
fn lose_executor(kernel: &Kernel, sessions: &[&Session]) {
    let before: Vec<_> = sessions.iter().map(|session| session.moves()).collect();
    let executor = kernel.status().executor_pid;
    process::kill(executor);
    until("the standby serves", || ![0, executor].contains(&kernel.status().executor_pid));
    for (session, before) in sessions.iter().zip(before) {
        until("a session moves", || session.moves() > before);
        told_of_loss(session);
    }
}

/// Work that was in flight is reported once, by whoever waits next.
fn told_of_loss(session: &Session) {
    let word = session.allocate(4).expect("the session goes on");
    let filled = session.fill(Stream::DEFAULT, word.all(), Pattern::Bits32(1)).expect("the session goes on");
    if let Err(error) = session.wait(filled) {
        assert_eq!(error.code, ErrorCode::WorkLost, "{error}");
    }
}

fn counter() -> PathBuf {
    repository().join("modules/examples/counter/gates.ptx")
}

fn open(module: &Module, words: &str) -> door::Opened {
    door::open(&module.socket(), words).unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// Runs an entry that was loaded before on one thread: what the gate answers, and the word behind.
fn call(session: &Session, image: &Image, entry: &str, value: u64) -> Result<(u32, u64), Error> {
    let to = session.allocate(24)?;
    let parameters = Parameters::new().buffer(&to).u64(value);
    session.launch(Stream::DEFAULT, &image.entry(entry)?, &Launch::linear(1, 1), &parameters)?;
    let mut found = [0; 24];
    session.read(Stream::DEFAULT, &mut found, to.all())?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| found[at + byte]));
    Ok((u32::try_from(word(0)).expect("a code"), word(8)))
}

#[test]
fn what_gates_keep_and_whose_it_is_outlives_the_executor_and_the_next() {
    let module = Module::start(protected(), Scratch::new(), "counter", &counter(), &[]);
    let kernel = &module.kernel;
    let sessions = [kernel.open("one"), kernel.open("two")];
    let opened = [open(&module, ""), open(&module, "")];
    let accepted: Vec<_> = sessions
        .iter()
        .zip(&opened)
        .map(|(session, opened)| session.accept_gates_of(opened.token).expect("gates"))
        .collect();
    let images = sessions.each_ref().map(|session| session.load_image(COUNTS).expect("the code loads"));
    for (session, (image, by)) in sessions.iter().zip(images.iter().zip([5, 70])) {
        assert_eq!(call(session, image, "add", by).expect("a call"), (codes::DONE, 0));
    }
    for losses in 1..=2 {
        has_standby(kernel);
        lose_executor(kernel, &sessions.each_ref());
        for (session, (image, by)) in sessions.iter().zip(images.iter().zip([5, 70])) {
            assert_eq!(
                call(session, image, "add", by).expect("a call"),
                (codes::DONE, losses * by),
                "{losses} losses"
            );
        }
    }
    // Who comes later has an instance of its own, and who lets go has none.
    let (late, opens) = (kernel.open("late"), open(&module, ""));
    let _gates = late.accept_gates_of(opens.token).expect("gates");
    let image = late.load_image(COUNTS).expect("the code loads");
    assert_eq!(call(&late, &image, "add", 1).expect("a call"), (codes::DONE, 0));
    let [first, second] = opened;
    drop(first);
    until("its gates are gone", || call(&sessions[0], &images[0], "add", 1).is_err());
    assert_eq!(call(&sessions[1], &images[1], "add", 0).expect("a call"), (codes::DONE, 210));
    drop((accepted, second, opens));
    // The window goes from where it is now, and from where it would go on.
    has_standby(kernel);
    let stopped = run(bulkhead(&["module", "stop", "counter", "--socket"]).arg(kernel.socket()), PATIENCE);
    assert_eq!(stopped.code(), Some(0), "{}", stopped.told());
    until("nothing is charged for it", || {
        kernel.status().sessions.iter().all(|session| !session.name.contains("counter"))
    });
}

#[test]
fn a_kernel_that_is_lost_in_a_gate_leaves_the_module_to_others() {
    let module = Module::start(protected(), Scratch::new(), "counter", &counter(), &[]);
    let kernel = &module.kernel;
    let (busy, neighbour) = (kernel.open("busy"), kernel.open("neighbour"));
    let (opened, others) = (open(&module, ""), open(&module, ""));
    let _gates = busy.accept_gates_of(opened.token).expect("gates");
    let _others = neighbour.accept_gates_of(others.token).expect("gates");
    let [of_busy, of_neighbour] =
        [&busy, &neighbour].map(|session| session.load_image(COUNTS).expect("the code loads"));
    let (to, beside) = (busy.allocate(24).expect("memory"), busy.create_stream(0).expect("a stream"));
    let forever = of_busy.entry("forever").expect("an entry");
    busy.launch(Stream::DEFAULT, &forever, &Launch::linear(1, 1), &Parameters::new().buffer(&to).u64(0))
        .expect("a launch");
    until("the kernel runs", || {
        let mut word = [0; 4];
        busy.read(beside, &mut word, to.range(16, 4)).expect("it is read");
        word[0] == 1
    });
    lose_executor(kernel, &[&busy, &neighbour]);
    assert_eq!(call(&neighbour, &of_neighbour, "add", 9).expect("a call"), (codes::DONE, 0));
    assert_eq!(call(&busy, &of_busy, "add", 1).expect("a call"), (codes::DONE, 0));
    // Its kernel is gone: its instance closes at once.
    drop(opened);
    until("its gates are gone", || call(&busy, &of_busy, "add", 1).is_err());
    assert_eq!(call(&neighbour, &of_neighbour, "add", 9).expect("a call"), (codes::DONE, 9));
}

#[test]
fn storage_goes_on_in_the_standby_and_who_had_it_open_opens_it_again() {
    let served = Served::on(protected(), &module::gates("storage"), "2MiB");
    served.right("write:data", &["fill", "5", "512"]);
    for (old, new) in [("5", "6"), ("6", "7")] {
        let session = served.kernel.open("open before");
        let opened = open(&served, "read:data");
        let _gates = session.accept_gates_of(opened.token).expect("gates");
        let image = session.load_image(SUBMITS).expect("the code loads");
        let (before, _) = call(&session, &image, "submit", 0).expect("a call");
        assert!(![codes::DONE, codes::REVOKED].contains(&before), "{before}");
        has_standby(&served.kernel);
        lose_executor(&served.kernel, &[&session]);
        // What its gates may have left half done is nobody's any more.
        until("its instance is revoked", || {
            call(&session, &image, "submit", 0).expect("a call").0 == codes::REVOKED
        });
        served.right("read:data", &["check", old, "512"]);
        served.right("write:data", &["fill", new, "512"]);
    }
    served.right("read:data", &["check", "7", "512"]);
}

#[test]
fn a_host_half_without_a_place_for_the_next_page_goes_on_when_there_is_one() {
    let served = Served::on(protected(), &module::gates("storage"), "2MiB");
    let session = served.kernel.open("open before");
    let opened = open(&served, "write:data");
    let _gates = session.accept_gates_of(opened.token).expect("gates");
    let image = session.load_image(SUBMITS).expect("the code loads");
    let half = served.host_half();
    let number = u32::try_from(half.as_raw_nonzero().get()).expect("a process");
    let before = process::descriptors_max(number);
    process::set_descriptors_max(number, Rlimit { current: Some(0), ..before });
    lose_executor(&served.kernel, &[&session]);
    // Long enough for it to ask for its page more than once.
    std::thread::sleep(Duration::from_millis(500));
    assert_ne!(call(&session, &image, "submit", 0).expect("a call").0, codes::REVOKED);
    process::set_descriptors_max(number, before);
    until("its instance is revoked", || {
        call(&session, &image, "submit", 0).expect("a call").0 == codes::REVOKED
    });
    drop(opened);
    served.right("write:data", &["fill", "6", "512"]);
    served.right("read:data", &["check", "6", "512"]);
    assert_eq!(served.host_half(), half, "another host half serves");
}
