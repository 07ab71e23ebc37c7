//! The SDK's examples do what they say, on a kernel that serves.

use std::{process::Command, time::Duration};

use bulkhead_tests::{
    kernel::Kernel,
    place::example,
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
fn without_a_kernel_an_example_says_how_to_get_one() {
    let mut command = Command::new(example("saxpy"));
    let done = run(command.env("BULKHEAD_SOCKET", "/nonexistent/kernel.sock"), Duration::from_secs(60));
    assert_eq!(done.code(), Some(1), "{}", done.told());
    assert!(done.stderr.contains("bulkhead serve"), "{}", done.told());
}
