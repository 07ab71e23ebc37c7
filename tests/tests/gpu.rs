//! The same on a real GPU, where there is one. The hidden device nodes need root and a mount namespace.

use std::time::Duration;

use bulkhead_tests::{
    kernel::Kernel,
    leftovers,
    place::program,
    process::{Done, bulkhead, run},
    skip::skipped,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(180);

/// Whether there is a GPU; says so where there is none.
fn gpu() -> bool {
    let backend = run(&mut bulkhead(&["doctor", "--backend"]), PATIENCE);
    let found = backend.stdout.trim() == "cuda";
    if !found {
        skipped("no NVIDIA driver");
    }
    found
}

fn passed(done: &Done) {
    assert_eq!(done.code(), Some(0), "{}", done.told());
    assert!(done.stdout.contains("PASS "), "{}", done.told());
}

#[test]
fn the_demo_is_safe_on_a_gpu() {
    if !gpu() {
        return;
    }
    let done = run(&mut bulkhead(&["demo", "--backend", "cuda", "--json"]), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["safe"], &report["backend"]), (&Value::Bool(true), &Value::from("cuda")));
}

#[test]
fn a_program_passes_on_a_gpu() {
    if !gpu() {
        return;
    }
    let kernel = Kernel::on("cuda");
    passed(&run(&mut kernel.run_command(&program("vecadd")), PATIENCE));
    passed(&run(kernel.run_command(&program("vecadd")).arg("large"), PATIENCE));
}

#[test]
fn nothing_of_a_session_that_is_gone_is_seen_by_the_next_on_a_gpu() {
    if gpu() {
        leftovers::are_none(&Kernel::on("cuda")).unwrap();
    }
}

#[test]
fn the_driver_is_in_the_executor_and_not_in_the_kernel() {
    if !gpu() {
        return;
    }
    let kernel = Kernel::on("cuda");
    let maps = |process: u32| std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    assert!(maps(kernel.status().executor_pid).contains("libcuda.so"));
    let kernels = maps(kernel.pid());
    assert!(!kernels.contains("libcuda") && !kernels.contains("/dev/nvidia"), "{kernels}");
}

#[test]
fn a_program_that_sees_no_device_node_passes_on_a_gpu() {
    if !gpu() {
        return;
    }
    let kernel = Kernel::on("cuda");
    let run_command = kernel.run_command(&program("vecadd"));
    let mut hidden = std::process::Command::new("unshare");
    hidden.args(["--mount", "sh", "-euc"]);
    // Over every node an empty file, which no driver can use.
    hidden.arg(
        r#"for node in /dev/nvidia*; do [ -d "$node" ] || mount --bind /dev/null "$node"; done; exec "$@""#,
    );
    hidden.arg("sh").arg(run_command.get_program()).args(run_command.get_args());
    for (name, value) in run_command.get_envs() {
        match value {
            Some(value) => hidden.env(name, value),
            None => hidden.env_remove(name),
        };
    }
    let done = run(&mut hidden, PATIENCE);
    if done.stderr.contains("unshare") && done.stderr.contains("ermitted") {
        skipped("mount namespaces are not permitted here");
        return;
    }
    passed(&done);
}
