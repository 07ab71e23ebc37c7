//! The SDK's examples do what they say, on a kernel that serves.

use std::{process::Command, time::Duration};

use bulkhead_tests::{
    kernel::Kernel,
    place::{example, repository},
    process::{Done, run},
};

fn ran(kernel: &Kernel, name: &str) -> Done {
    let mut command = Command::new(example(name));
    let done = run(command.env("BULKHEAD_SOCKET", kernel.socket()), Duration::from_secs(60));
    assert_eq!(done.code(), Some(0), "{name}: {}", done.told());
    done
}

#[test]
fn saxpy_computes_what_the_cpu_computes() {
    let kernel = Kernel::start();
    let done = ran(&kernel, "saxpy");
    assert!(done.stdout.contains("as the CPU computes it"), "{}", done.told());
    assert_eq!(kernel.without(&["saxpy example"]).charged_bytes, 0);
}

#[test]
fn two_sessions_work_side_by_side_and_apart() {
    let kernel = Kernel::start();
    let done = ran(&kernel, "two_sessions");
    for told in ["first  session: 50 rounds", "second session: 50 rounds", "by the first one's handle: "] {
        assert!(done.stdout.contains(told), "{}", done.told());
    }
    assert_eq!(kernel.without(&["first", "second"]).charged_bytes, 0);
}

#[test]
fn tenants_append_to_the_audit_log_and_cannot_forge_it() {
    let gates = repository().join("client/examples/audit_log/gates.ptx");
    let kernel = Kernel::with(&["--module", &format!("audit={}:2MiB", gates.display())]);
    let done = ran(&kernel, "audit_log");
    for told in [
        "the log has 2097152 bytes",
        "first appends record 0 and reads 500 there",
        "second reads 0 in the first one's record",
        "says 500\nrecord 1: session",
        "second is refused: ",
        "first appends record 2",
    ] {
        assert!(done.stdout.contains(told), "{told}: {}", done.told());
    }
    assert_eq!(kernel.without(&["audit log", "first", "second"]).charged_bytes, 0);
}

#[test]
fn without_a_kernel_an_example_says_how_to_get_one() {
    let mut command = Command::new(example("saxpy"));
    let done = run(command.env("BULKHEAD_SOCKET", "/nonexistent/kernel.sock"), Duration::from_secs(60));
    assert_eq!(done.code(), Some(1), "{}", done.told());
    assert!(done.stderr.contains("bulkhead serve"), "{}", done.told());
}
