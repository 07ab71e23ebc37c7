//! `bulkhead bench` measures, checks what it measures, and judges only what can be compared.

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

#[test]
fn a_quick_bench_on_the_software_gpu_measures_every_figure_and_judges_none() {
    let done = quick(&["--json"]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["complete"], &report["judged"]), (&Value::Bool(true), &Value::Bool(false)));
    assert!(report["native"]["absent"].is_string(), "{report:#}");
    let figures = report["figures"].as_array().unwrap();
    assert!(figures.len() >= 20);
    for figure in figures {
        assert!(figure["bulkhead"]["median"].as_f64().is_some_and(|value| value > 0.0), "{figure:#}");
        assert_eq!((&figure["native"]["median"], &figure["met"]), (&Value::Null, &Value::Null), "{figure:#}");
    }
    let library = report["bulkhead"]["library"].as_str().unwrap();
    assert!(library.ends_with("/libcuda.so"), "Bulkhead's own library was measured, not {library}");
    assert!(done.stderr.contains("launch_ns"), "the table goes to stderr: {}", done.told());
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
