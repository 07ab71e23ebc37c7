//! `bulkhead module`: gates in CUDA C become what `bulkhead serve --module` takes.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use bulkhead_client::{
    AcceptedGates, ErrorCode, Gates, Launch, ModuleHost, Moment, Parameters, Received, Session, Stream, Uses,
};
use bulkhead_tests::{
    kernel::Kernel,
    patience::until,
    place::{repository, toolchain_libraries},
    process::{Done, bulkhead, run},
    scratch::Scratch,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// Questions that are on their way at most, in `client/examples/echo`.
const ECHO_SLOTS: usize = 256;
const ECHO_CALLS: &[u8] = concat!(include_str!("../../client/examples/echo/tenant.ptx"), "\0").as_bytes();

/// A queue whose place is in an initial value, and what callers give it.
const QUEUE: &str = "\
#include <bulkhead_module.h>

namespace queue {
__device__ unsigned head = 16, tail;
}
static __device__ unsigned long long slots[64];

// No gate: nobody can call it.
__device__ unsigned place(unsigned at) { return at % 64; }

BULKHEAD_GATE unsigned push(const unsigned long long *from, unsigned count) {
    if (count > 8) return 0;
    const unsigned first = atomicAdd(&queue::head, count);
    for (unsigned at = 0; at < 8; at++) {
        if (at < count) slots[place(first + at)] = from[at];
    }
    bulkhead::write_register(bulkhead::at<unsigned>(4096), first);
    return first;
}
";

/// A gate that answers the badge of who calls, and with what else it is told.
const BADGES: &str = "\
.version 8.0
.target sm_75
.address_size 64
.extern .const .align 8 .u64 bulkhead_caller;
.extern .const .align 8 .u64 bulkhead_badge;
.visible .func (.param .b64 r) badge_of(.param .b64 plus)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [plus];
    ld.const.u64 %rd2, [bulkhead_badge];
    add.s64 %rd2, %rd2, %rd1;
    st.param.b64 [r], %rd2;
    ret;
}
.visible .func (.param .b64 r) caller_of()
{
    .reg .b64 %rd<4>;
    ld.const.u64 %rd1, [bulkhead_caller];
    st.param.b64 [r], %rd1;
    ret;
}
";

const ASKS: &[u8] = b".version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b64 r) badge_of(.param .b64 plus);
.extern .func (.param .b64 r) caller_of();
.visible .entry ask(.param .u64 out, .param .u64 plus)
{
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [plus];
    call (%rd3), badge_of, (%rd2);
    call (%rd4), caller_of, ();
    st.global.u64 [%rd1], %rd3;
    st.global.u64 [%rd1+8], %rd4;
    ret;
}
\0";

/// What the gates say of a session that accepted these: its badge and one more, and its number.
fn asked(session: &Session, gates: Gates) -> (u64, u64, AcceptedGates) {
    let accepted = session.accept_gates(gates).expect("gates are accepted");
    let image = session.load_image(ASKS).expect("the code loads");
    let to = session.allocate(16).expect("memory");
    let parameters = Parameters::new().buffer(&to).u64(1);
    let entry = image.entry("ask").expect("an entry");
    session.launch(Stream::DEFAULT, &entry, &Launch::linear(1, 1), &parameters).expect("a launch");
    let mut found = [0; 16];
    session.read(Stream::DEFAULT, &mut found, to.all()).expect("an answer");
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| found[at + byte]));
    (word(0), word(8), accepted)
}

#[test]
fn gates_read_the_badge_that_they_were_given_away_with_and_nobody_changes_it() {
    let scratch = Scratch::new();
    let file = write(&scratch, "badges.ptx", BADGES);
    let kernel = Kernel::with(&["--module", &format!("badges={}:2MiB", file.display())]);
    let host = kernel.open("host");
    let (module, _) = host.claim_module(kernel.module_token("badges")).expect("the module");
    let (large, small) = (1 << 63 | 5, 7);
    // By token, and what is derived of a token's; from a peer; and without a badge.
    let (first, second, third, fourth) =
        (kernel.open("first"), kernel.open("second"), kernel.open("third"), kernel.open("fourth"));
    let of_large = module.gates_with_badge(large).expect("gates");
    let restored = |session: &Session, gates: &Gates| match session
        .restore(gates.token(Uses::One).expect("a token"))
        .expect("a token is good")
    {
        Received::Gates(gates) => gates,
        _ => panic!("a token of gates stands for something else"),
    };
    let derived = of_large.derive().expect("derived");
    let given = restored(&first, &derived);
    let again = given.derive().expect("derived");
    let further = restored(&second, &again);
    let (badge, number, _of_second) = asked(&second, further);
    assert_eq!((badge, number), (large + 1, second.number().into()));
    let (badge, number, _of_first) = asked(&first, given);
    assert_eq!((badge, number), (large + 1, first.number().into()));
    let of_small = module.gates_with_badge(small).expect("gates");
    let (badge, number, of_third) = asked(&third, restored(&third, &of_small));
    assert_eq!((badge, number), (small + 1, third.number().into()));
    let without = module.gates().expect("gates");
    let (badge, _, _of_fourth) = asked(&fourth, restored(&fourth, &without));
    assert_eq!(badge, 1);
    // Others of the same module are refused as long as it has these, and are another caller's afterwards.
    let refused = third.accept_gates(restored(&third, &of_large)).err().expect("it has gates of that module");
    assert!(refused.to_string().contains("already"), "{refused}");
    of_small.revoke().expect("revoked").wait(Moment::Quiescent, PATIENCE).expect("quiescent");
    drop(of_third);
    let (badge, ..) = asked(&third, restored(&third, &of_large));
    assert_eq!(badge, large + 1);
}

fn module(arguments: &[&str]) -> Done {
    let compiler = toolchain_libraries().with_file_name("bin").join("nvcc");
    run(bulkhead(&["module"]).args(arguments).env("NVCC", compiler), PATIENCE)
}

fn write(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = scratch.path().join(name);
    std::fs::write(&path, text).expect("scratch can be written");
    path
}

#[test]
fn gates_in_cuda_c_become_ptx_and_their_variables_constants() {
    let scratch = Scratch::new();
    let file = write(&scratch, "queue.cu", QUEUE);
    let (file, rust) = (file.display().to_string(), scratch.path().join("window.rs").display().to_string());
    let done = module(&["build", &file, "--rust", &rust, "--json"]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let told: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(told["gates"].as_array().map(Vec::len), Some(1), "{}", done.told());
    assert_eq!(told["gates"][0]["name"], "push");
    assert_eq!(told["gates"][0]["arguments_bits"], serde_json::json!([64, 32]));
    let variables = told["window"]["variables"].as_array().expect("variables");
    let mut names: Vec<_> = variables.iter().filter_map(|found| found["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["queue::head", "queue::tail", "slots"]);
    let text = std::fs::read_to_string(&rust).expect("constants");
    for line in [
        "pub const QUEUE_HEAD: u64 = 0;",
        "pub const QUEUE_TAIL_BYTES: u64 = 4;",
        "pub const SLOTS_BYTES: u64 = 512;",
        "pub const INITIAL: &[u8] = &[16];",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // What was made is taken as it is.
    let made = scratch.path().join("queue.ptx").display().to_string();
    let shown = module(&["show", &made]);
    assert!(shown.code() == Some(0) && shown.stdout.contains("queue::head"), "{}", shown.told());
}

/// Has a thread end, also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The host half of `client/examples/echo`: adds the badge of who asks to each question until it is told to end.
fn answer(memory: &ModuleHost, ends: &AtomicBool) {
    let mut answered = [0; ECHO_SLOTS];
    while !ends.load(Ordering::Relaxed) {
        for (slot, last) in answered.iter_mut().enumerate() {
            let Some((number, badge)) = memory.message(32 * slot).filter(|(number, _)| number != last) else {
                continue;
            };
            let Some((_, value)) = memory.message(32 * slot + 16).filter(|(of, _)| *of == number) else {
                continue;
            };
            assert!(memory.post(32 * ECHO_SLOTS + 16 * slot, number, value.wrapping_add(badge)));
            *last = number;
        }
    }
}

/// Runs an entry of the echo's tenant on so many threads, and reads two words for each turn of each. `first` is the ticket that
/// the first one steals.
fn run_echo(session: &Session, entry: &str, threads: u32, turns: u32, first: u32) -> Vec<(u64, u64)> {
    let image = session.load_image(ECHO_CALLS).expect("the code loads");
    let count = (threads * turns) as usize;
    let to = session.allocate(16 * count as u64).expect("memory");
    let parameters = match entry {
        "ask" => Parameters::new().buffer(&to).u64(1000).u32(turns),
        "steal" => Parameters::new().buffer(&to).u32(first),
        _ => Parameters::new().buffer(&to),
    };
    let entry = image.entry(entry).expect("an entry");
    let launch = Launch::linear(threads, threads.min(64));
    session.launch(Stream::DEFAULT, &entry, &launch, &parameters).expect("a launch");
    let mut found = vec![0; 16 * count];
    session.read(Stream::DEFAULT, &mut found, to.all()).expect("an answer");
    let words: Vec<u64> = found.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    words.as_chunks::<2>().0.iter().map(|pair| (pair[0], pair[1])).collect()
}

#[test]
fn gates_and_a_host_thread_work_on_the_host_memory_that_a_window_ends_with() {
    let gates = repository().join("client/examples/echo/gates.ptx");
    let kernel = Kernel::with(&["--module", &format!("echo={}:4MiB", gates.display())]);
    let host = kernel.open("echo");
    let (module, bytes) = host.claim_module(kernel.module_token("echo")).expect("the module");
    assert_eq!(bytes, 4 << 20);
    let memory = module.host().expect("host memory");
    assert_eq!(memory.bytes(), 2 << 20);
    assert!(memory.word(memory.bytes()).is_none() && memory.word(2).is_none() && memory.wide(4).is_none());
    // What is behind the device's memory is the host half's to map.
    let refused = module.read_u64(2 << 20).expect_err("host memory");
    assert_eq!(refused.code, ErrorCode::InvalidArgument, "{refused}");
    module.read_u64((2 << 20) - 8).expect("the last word of the device's memory");

    let sessions = [(kernel.open("first"), 7), (kernel.open("second"), 1 << 40)];
    let given: Vec<_> =
        sessions.iter().map(|(_, badge)| module.gates_with_badge(*badge).expect("gates")).collect();
    let _accepted: Vec<_> = sessions
        .iter()
        .zip(&given)
        .map(|((session, _), gates)| {
            session.accept_gates_of(gates.token(Uses::One).expect("a token")).expect("gates")
        })
        .collect();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&ends);
        scope.spawn(|| answer(&memory, &ends));
        let asking: Vec<_> = sessions
            .iter()
            .map(|(session, badge)| scope.spawn(move || (run_echo(session, "ask", 192, 20, 0), *badge)))
            .collect();
        for asked in asking {
            let (answers, badge) = asked.join().expect("answers");
            assert!(answers.iter().zip(1000..).all(|((answer, _), value)| *answer == value + badge));
        }
        // A question that is on its way is nobody else's: RIGHTS.
        let ticket = u32::try_from(run_echo(&sessions[0].0, "leave", 1, 1, 0)[0].0).expect("a ticket");
        let stolen = run_echo(&sessions[1].0, "steal", 256, 1, ticket - 100);
        let others: Vec<_> =
            stolen.iter().enumerate().filter(|(_, (_, state))| *state != 0xFFFF_FFFE).collect();
        assert!(others.is_empty(), "{others:?}");
        let own = run_echo(&sessions[0].0, "steal", 256, 1, ticket - 100);
        let taken: Vec<_> = own.iter().enumerate().filter(|(_, (_, state))| *state == 0).collect();
        assert!(matches!(taken[..], [(100, (12, 0))]), "{taken:?}");
    });
}

#[test]
fn host_memory_of_a_module_is_charged_and_goes_with_it_and_the_next_finds_zeros() {
    let gates = repository().join("client/examples/echo/gates.ptx");
    let kernel = Kernel::with(&["--module", &format!("echo={}:4MiB", gates.display())]);
    let before =
        kernel.open("before").claim_module(kernel.module_token("echo")).map(|(module, _)| module.host());
    let held = before.expect("the module").expect("host memory");
    held.write(100, b"left behind");
    // That session is over; its mapping stays, and is nobody's any more.
    let (next, mut claimed) = (kernel.open("next"), None);
    until("the module is free", || {
        claimed = next.claim_module(kernel.module_token("echo")).ok();
        claimed.is_some()
    });
    let memory = claimed.expect("the module").0.host().expect("host memory");
    let mut found = vec![1; memory.bytes()];
    memory.read(0, &mut found);
    assert!(found.iter().all(|byte| *byte == 0));
    memory.write(100, b"of the next");
    let mut kept = [0; 11];
    held.read(100, &mut kept);
    assert_eq!(&kept, b"left behind");
    // Where gates have no managed variables there is none.
    let plain = repository().join("client/examples/audit_log/gates.ptx");
    let other = Kernel::with(&["--module", &format!("audit={}:2MiB", plain.display())]);
    let session = other.open("audit log");
    let (module, _) = session.claim_module(other.module_token("audit")).expect("the module");
    let refused = module.host().err().expect("no host memory");
    assert_eq!(refused.code, ErrorCode::NotFound, "{refused}");
}

/// Stores one word, and calls no gate.
const QUIET: &[u8] = b".version 8.0
.target sm_75
.address_size 64
.visible .entry quiet(.param .u64 out)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    st.global.u64 [%rd1], 1;
    ret;
}
\0";

#[test]
fn a_host_half_is_woken_by_launches_that_call_its_gates_and_by_no_others() {
    let scratch = Scratch::new();
    let gates = write(&scratch, "badges.ptx", BADGES);
    let kernel = Kernel::with(&["--module", &format!("badges={}:2MiB", gates.display())]);
    let host = kernel.open("host half");
    let (module, _) = host.claim_module(kernel.module_token("badges")).expect("the module");
    let activity = module.activity().expect("a page");
    // Whoever asks twice has the same page.
    let again = module.activity().expect("a page");
    let tenant = kernel.open("tenant");
    let image = tenant.load_image(QUIET).expect("the code loads");
    let to = tenant.allocate(8).expect("memory");
    let entry = image.entry("quiet").expect("an entry");
    tenant
        .launch(Stream::DEFAULT, &entry, &Launch::linear(1, 1), &Parameters::new().buffer(&to))
        .and_then(|fence| tenant.wait(fence))
        .expect("a launch");
    assert!(!activity.wait(Duration::from_millis(50)) && activity.in_flight() == 0, "no gate is called");
    for _ in 0..3 {
        let given = module.gates_with_badge(7).expect("gates");
        let received = tenant.restore(given.token(Uses::One).expect("a token")).expect("gates");
        let Received::Gates(received) = received else { panic!("no gates") };
        let (badge, _, accepted) = thread::scope(|scope| {
            let woken = scope.spawn(|| activity.wait(Duration::from_secs(20)));
            let asked = asked(&tenant, received);
            assert!(woken.join().expect("no panic"), "nobody woke the host half");
            asked
        });
        assert_eq!(badge, 8);
        until("the launch is not counted any more", || activity.in_flight() == 0);
        while activity.wait(Duration::ZERO) {}
        assert!(!activity.wait(Duration::from_millis(50)), "woken by nothing");
        let taken_back = accepted.close().expect("gates are given up");
        taken_back.wait(Moment::Quiescent, PATIENCE).expect("quiescent");
    }
    assert!(again.wait(Duration::ZERO) && again.in_flight() == 0);
    // A grid that the device is given in slices is one launch, until its last slice has passed.
    let given = module.gates_with_badge(7).expect("gates");
    let _accepted = tenant.accept_gates_of(given.token(Uses::One).expect("a token")).expect("gates");
    let image = tenant.load_image(ASKS).expect("the code loads");
    let (to, entry) = (tenant.allocate(16).expect("memory"), image.entry("ask").expect("an entry"));
    let parameters = Parameters::new().buffer(&to).u64(1);
    let launch = Launch::linear(600_000, 1);
    let fence = tenant.launch(Stream::DEFAULT, &entry, &launch, &parameters).expect("a launch");
    let mut most = 0;
    while !tenant.is_done(fence).expect("the session") {
        most = activity.in_flight().max(most);
    }
    assert_eq!(most, 1);
    until("the launch is not counted any more", || activity.in_flight() == 0);
}

#[test]
fn what_is_no_gate_is_refused_by_its_line_and_nothing_is_written() {
    let scratch = Scratch::new();
    for (from, to, line, message) in [
        ("if (count > 8) return 0;", "__syncthreads();", 12, "a gate may not have a barrier"),
        (
            "from[at]",
            "*(first > 9 ? from : slots)",
            15,
            "an address that may be the module's or the caller's",
        ),
        (
            "if (count > 8) return 0;",
            "while (atomicAdd(&queue::tail, 0) != count) {}",
            11,
            "a gate may not have a loop that is not known to end soon; give it a bound",
        ),
        ("push(", "push(ulonglong2 pair, ", 11, "of other than 32 or 64 bits"),
        ("return first;", "return blockIdx.x + (unsigned)*__nvvm_get_smem_pointer();", 18, "did not compile"),
    ] {
        assert!(QUEUE.contains(from));
        let file = write(&scratch, "queue.cu", &QUEUE.replacen(from, to, 1)).display().to_string();
        let done = module(&["build", &file]);
        assert_eq!(done.code(), Some(1), "{to}: {}", done.told());
        assert!(done.stderr.contains(message), "{to}: {}", done.told());
        let place = format!("queue.cu:{line}: ");
        assert!(done.stderr.contains(&place) || message == "did not compile", "{place}: {}", done.told());
        assert!(!scratch.path().join("queue.ptx").exists());
    }
}

#[test]
fn the_examples_gates_are_those_of_their_sources() {
    for name in ["audit_log", "echo"] {
        gates_are_those_of_their_source(name);
    }
}

fn gates_are_those_of_their_source(example: &str) {
    let scratch = Scratch::new();
    let folder = repository().join("client/examples").join(example);
    let (ptx, rust) = (scratch.path().join("gates.ptx"), scratch.path().join("window.rs"));
    let source = folder.join("gates.cu").display().to_string();
    let done =
        module(&["build", &source, "-o", &ptx.display().to_string(), "--rust", &rust.display().to_string()]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    for made in [ptx, rust] {
        let name = made.file_name().expect("a name");
        let kept = std::fs::read_to_string(folder.join(name)).expect("what is kept");
        let fresh = std::fs::read_to_string(&made).expect("what was made");
        assert!(kept == fresh, "{name:?} of {example} is not what `bulkhead module build` makes of gates.cu");
    }
}

#[test]
fn a_window_that_is_too_small_for_the_variables_is_refused_with_the_size_that_is_not() {
    let scratch = Scratch::new();
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .global .align 8 .b8 table[5000000];\n\
                .visible .func g()\n{\nret;\n}\n";
    let file = write(&scratch, "gates.ptx", text);
    let named = format!("big={}:4MiB", file.display());
    let done = run(&mut bulkhead(&["serve", "--backend", "software", "--module", &named]), PATIENCE);
    assert_eq!(done.code(), Some(1), "{}", done.told());
    assert!(done.stderr.contains("has a window of 4194304: give it 8MiB"), "{}", done.told());
}
