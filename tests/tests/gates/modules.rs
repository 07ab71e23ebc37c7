//! Several modules, what the linter says of calls, and what is shown of it.

use super::*;

#[test]
fn gates_are_those_of_the_kernels_start_whatever_becomes_of_their_file() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let log = Log::claim(&kernel);
    // As if somebody had called whoever it pleases.
    gates(&scratch, &GATES.replace("ld.const.u64 %caller, [bulkhead_caller];", "mov.u64 %caller, 1;"));
    let caller = Caller::new(&kernel, "caller", &log.gates);
    assert_eq!((caller.append(7), log.record(0)), (0, (caller.number(), 7)));
    std::fs::remove_file(scratch.path().join("log.ptx")).expect("it is there");
    let other = Caller::new(&kernel, "other", &log.gates);
    assert_eq!((other.append(8), log.record(1)), (1, (other.number(), 8)));
}

#[test]
fn what_the_assembler_makes_of_calls_passes_the_linter() {
    let ptxas = place::repository().join(".toolchain/cuda/bin/ptxas");
    if !ptxas.exists() {
        return skipped("no ptxas: tests/test.sh installs one");
    }
    let scratch = Scratch::new();
    let example = place::repository().join("client/examples/audit_log");
    let (gates, tenant) = (example.join("gates.ptx"), example.join("tenant.ptx"));
    let (text, cubin) = (scratch.path().join("text.ptx"), scratch.path().join("code.cubin"));
    let mut guard = process::bulkhead(&["guard", "--gates"]);
    let done = process::run(guard.arg(&gates).arg(&tenant).arg("-o").arg(&text), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let mut assemble = std::process::Command::new(ptxas);
    let done = process::run(assemble.args(["-arch=sm_90a", "-o"]).arg(&cubin).arg(&text), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let lint = |gates: &[&std::ffi::OsStr]| {
        let mut lint = process::bulkhead(&["lint", "--json"]);
        process::run(lint.arg(&cubin).arg("--text").arg(&text).args(gates), PATIENCE)
    };
    let done = lint(&["--gates".as_ref(), gates.as_os_str()]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    for entry in ["append", "read", "forge"] {
        assert!(done.stdout.contains(&format!("\"{entry}\"")), "{}", done.told());
    }
    let done = lint(&[]);
    assert_eq!(done.code(), Some(1), "{}", done.told());
    assert!(done.stderr.contains("a gate that is not granted"), "{}", done.told());
}

#[test]
fn of_two_modules_that_have_a_name_in_common_a_session_calls_one() {
    let scratch = Scratch::new();
    let file = gates(&scratch, GATES);
    let modules = ["log", "twin"].map(|name| format!("{name}={}:2MiB", file.display()));
    let kernel = Kernel::with(&["--module", &modules[0], "--module", &modules[1]]);
    let log = Log::claim(&kernel);
    let session = kernel.open("twin");
    let (twin, _) = session.claim_module(kernel.module_token("twin")).expect("the other module");
    let given = twin.gates().expect("gates");
    let caller = Caller::new(&kernel, "caller", &log.gates);
    let refused = caller.session.accept_gates_of(given.token(Uses::One).expect("a token")).map(drop);
    let refused = refused.expect_err("whose gate would a call be of?");
    assert_eq!(refused.code, ErrorCode::InvalidArgument, "{refused}");
    assert!(refused.message.contains("log_append"), "{refused}");
    // It is as if that had not been tried; and who has accepted the other's has called the other.
    assert_eq!(caller.append(1), 0);
    let other = Caller::new(&kernel, "other", &given);
    assert_eq!((other.append(2), other.append(3)), (0, 1));
    assert_eq!((log.count(), twin.read_u64(0).expect("a word")), (1, 2));
    assert_eq!((caller.own(0), other.own(0)), (1, 2));
}

#[test]
fn who_has_a_module_and_who_may_call_it_is_shown() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let shown = |arguments: &[&str]| {
        let mut status = process::bulkhead(&["status", "--socket"]);
        let done = process::run(status.arg(kernel.socket()).args(arguments), PATIENCE);
        assert_eq!(done.code(), Some(0), "{}", done.told());
        done.stdout
    };
    let modules = || {
        let status: serde_json::Value = serde_json::from_str(&shown(&["--json"])).expect("JSON");
        status["devices"][0]["modules"].clone()
    };
    let module = |session: Option<u32>, callers: &[u32]| {
        let bytes = WINDOW_BYTES;
        serde_json::json!([{ "name": "log", "bytes": bytes, "session": session, "callers": callers }])
    };
    assert_eq!(modules(), module(None, &[]));
    assert!(shown(&[]).contains("module log: 2 MiB, nobody's, called by nobody"), "{}", shown(&[]));
    let log = Log::claim(&kernel);
    let (first, second) = (kernel.open("first"), kernel.open("second"));
    let accept = |session: &Session| {
        session.accept_gates_of(log.gates.token(Uses::One).expect("a token")).expect("gates are accepted")
    };
    let (_first, accepted) = (accept(&first), accept(&second));
    let host = log.session.number();
    assert_eq!(modules(), module(Some(host), &[first.number(), second.number()]));
    let line = format!("session {host}'s, called by {}, {}", first.number(), second.number());
    assert!(shown(&[]).contains(&line), "{}", shown(&[]));
    let revocation = accepted.close().expect("they are there");
    assert!(revocation.wait(Moment::Quiescent, PATIENCE).expect("an answer").reached);
    assert_eq!(modules(), module(Some(host), &[first.number()]));
}
