//! `bulkhead bench` measures, checks what it measures, and judges only what can be compared.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{os::unix::fs::symlink, time::Duration};

use bulkhead_tests::{
    place,
    process::{Done, bulkhead, run},
    scratch::Scratch,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(180);

fn quick(more: &[&str]) -> Done {
    let arguments = [&["bench", "--quick", "--backend", "software"], more].concat();
    run(&mut bulkhead(&arguments), PATIENCE)
}

/// The report of a quick bench, every figure of which was measured.
fn measured(only: &str) -> (Value, Done) {
    let done = quick(&["--json", "--only", only]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["complete"], &report["judged"]), (&Value::Bool(true), &Value::Bool(false)));
    for figure in report["figures"].as_array().unwrap() {
        assert!(figure["bulkhead"]["median"].as_f64().is_some_and(|value| value > 0.0), "{figure:#}");
        assert_eq!((&figure["native"]["median"], &figure["met"]), (&Value::Null, &Value::Null), "{figure:#}");
    }
    (report, done)
}

fn names(report: &Value) -> Vec<&str> {
    report["figures"].as_array().unwrap().iter().filter_map(|figure| figure["name"].as_str()).collect()
}

/// But those that have kernels of their own: see below.
#[test]
fn a_quick_bench_on_the_software_gpu_measures_every_figure_and_judges_none() {
    let (report, done) =
        measured("launches,copies,allocations,ping,sessions,revocation,cleanup,dataflow,capabilities");
    assert!(report["native"]["absent"].is_string(), "{report:#}");
    let figures = names(&report);
    assert_eq!(figures.len(), 42);
    for figure in [
        "launch_ns",
        "pinned_h2d",
        "ping_p50_ns",
        "alloc_free_4kib_ns",
        "alloc_free_1mib_ns",
        "alloc_free_64mib_ns",
        "session_open_ms",
        "session_close_ms",
        "revoke_severed_ms",
        "revoke_descendant_ns",
        "revoke_quiescent_us",
        "revoke_reclaimed_ms",
        "cleanup_returned_ms",
        "cleanup_ping_max_ms",
        "dataflow_speedup",
        "caps_check_ns",
        "caps_revoke_ns",
    ] {
        assert!(figures.contains(&figure), "{figure}");
    }
    let library = report["bulkhead"]["library"].as_str().unwrap();
    assert!(library.ends_with("/libcuda.so"), "Bulkhead's own library was measured, not {library}");
    assert!(done.stderr.contains("launch_ns"), "the table goes to stderr: {}", done.told());
}

#[test]
fn a_loss_swapping_and_loading_are_measured_on_kernels_of_their_own() {
    let (report, _) = measured("failover,swapping,loading");
    let expected = ["failover_ms", "failover_moved_ms", "swap_gb_s", "swap_turn_ms"];
    assert_eq!(names(&report)[..4], expected);
    assert_eq!(names(&report)[4..], ["load_cold_ms", "load_kept_ms", "load_shared_ms"]);
}

#[test]
fn only_the_figures_that_were_asked_for_are_in_the_table() {
    let done = quick(&["--only", "ping", "--rounds", "2"]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    assert!(done.stdout.contains("ping_p50_ns") && done.stdout.contains("medians of 2 rounds"));
    assert!(!done.stdout.contains("launch_ns"), "{}", done.stdout);
}

#[test]
fn a_library_that_is_called_libcuda_so_is_not_taken_for_the_driver() {
    let scratch = Scratch::new();
    let ours = place::bulkhead().with_file_name("libcuda.so");
    symlink(ours, scratch.path().join("libcuda.so")).unwrap();
    let mut command = bulkhead(&["doctor", "--json"]);
    let found = |done: &Done| {
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "libcuda").unwrap()
    };
    let without = found(&run(&mut command, PATIENCE));
    let with = found(&run(command.env("LD_LIBRARY_PATH", scratch.path()), PATIENCE));
    assert_eq!(with, without);
}
