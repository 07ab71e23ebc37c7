//! `bulkhead run --check` and `--sanitize`: what kernels do with memory that was freed, and beyond the end of what has
//! neighbours, is told, and changes nothing else that is told.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::Duration;

use bulkhead_tests::{
    place::{program, repository},
    process::{Done, run, run_privately_with},
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(300);

fn ran(name: &str, options: &[&str], mistake: &[&str]) -> Done {
    let path = program(name);
    let program = [&[path.to_str().unwrap(), "small"], mistake].concat();
    let (mut command, _scratch) = run_privately_with(options, &program);
    run(&mut command, PATIENCE)
}

/// The JSON document behind a program's own output.
fn document(done: &Done) -> Value {
    serde_json::from_str(done.stdout.lines().next_back().unwrap_or_else(|| panic!("{}", done.told())))
        .unwrap()
}

/// Number of the one line of a program's source that ends with a text.
fn line(program: &str, text: &str) -> u64 {
    let source = repository().join("tests/programs").join(program).with_extension("cu");
    let source = std::fs::read_to_string(source).unwrap();
    let found: Vec<usize> =
        source.lines().enumerate().filter(|(_, line)| line.ends_with(text)).map(|(at, _)| at).collect();
    assert_eq!(found.len(), 1, "{text}");
    found[0] as u64 + 1
}

const AFTER_FREE: &str = "useAfterFree";

/// Of a finding its kind, its line, what is told, and how often (0: as often as it is).
type Expected = (&'static str, &'static str, &'static str, u64);

/// The mistakes of `memory_mistakes`: name, and what is found.
fn mistakes() -> Vec<(&'static str, Vec<Expected>)> {
    let list = "use after free, byte 8 of 16 bytes at ";
    vec![
        // Each word once, and nothing of it is lost.
        ("early", vec![(AFTER_FREE, "// scribbled", "use after free, byte 0 of 1048576 bytes at ", 262_144)]),
        (
            "early_and_behind",
            vec![
                (AFTER_FREE, "// scribbled", "use after free, byte 0 of 1048576 bytes at ", 262_144),
                ("astray", "// stored", "0 bytes behind the end of 512 bytes at ", 1),
            ],
        ),
        ("behind", vec![("astray", "// beyond", "0 bytes behind the end of 512 bytes at ", 1)]),
        ("before", vec![("astray", "// beyond", "4 bytes before 512 bytes at ", 1)]),
        ("store", vec![("astray", "// stored", "4 bytes before 512 bytes at ", 2)]),
        ("second_kernel", vec![(AFTER_FREE, "// beyond", "use after free, byte 0 of 512 bytes at ", 128)]),
        ("in_order", vec![(AFTER_FREE, "// beyond", "use after free, byte 0 of 512 bytes at ", 128)]),
        ("pinned", vec![(AFTER_FREE, "// beyond", "use after free, byte 0 of 512 bytes at ", 128)]),
        (
            "list",
            vec![
                (AFTER_FREE, "// followed", list, 1),
                (AFTER_FREE, "// next", "use after free, byte 0 of 16 bytes at ", 1),
            ],
        ),
        ("array", vec![("astray", "// array", "the array has 512 bytes", 1)]),
        ("variable", vec![("astray", "// table", "0 bytes behind the end of 16 bytes at ", 2)]),
    ]
}

/// Those of `heap_mistakes`.
fn heap_mistakes() -> Vec<(&'static str, Vec<Expected>)> {
    let late = "use after free, or of what malloc has not given";
    let free = "where malloc has given nothing: freed twice, or never allocated";
    vec![
        ("overflow", vec![("astray", "// written", "0 bytes behind the end of 40 bytes at ", 64)]),
        ("large", vec![("astray", "// written", "0 bytes behind the end of 8000 bytes at ", 1)]),
        ("late", vec![(AFTER_FREE, "// late", late, 1)]),
        ("twice", vec![("wrongFree", "// freed twice", free, 1)]),
        ("inside", vec![("wrongFree", "// freed inside", free, 1)]),
        ("other_kernel", vec![(AFTER_FREE, "// looked", late, 1)]),
    ]
}

fn are_told(program: &str, mistakes: Vec<(&'static str, Vec<Expected>)>) {
    for (name, expected) in mistakes {
        let done = ran(program, &["--sanitize=memcheck", "--json"], &[name]);
        assert_eq!(done.code(), Some(1), "{name}: {}", done.told());
        assert!(done.stdout.contains("PASS "), "{name}: {}", done.told());
        let document = document(&done);
        let findings = document["findings"].as_array().unwrap();
        assert_eq!(findings.len(), expected.len(), "{name}: {document:#}");
        for (kind, text, what, count) in expected {
            let is_this = |finding: &&Value| {
                finding["kind"] == kind && finding["line"].as_u64() == Some(line(program, text))
            };
            let finding = findings.iter().find(is_this).unwrap_or_else(|| panic!("{name}: {document:#}"));
            assert!(finding["what"].as_str().unwrap().contains(what), "{name}: {document:#}");
            assert!(count == 0 || finding["count"].as_u64() == Some(count), "{name}: {document:#}");
        }
    }
}

#[test]
fn accesses_to_what_was_freed_and_to_a_neighbour_are_told_as_what_they_are() {
    are_told("memory_mistakes", mistakes());
}

#[test]
fn what_kernels_do_wrong_with_their_own_heap_is_told() {
    are_told("heap_mistakes", heap_mistakes());
}

#[test]
fn a_run_that_only_checks_tells_them_too() {
    let memory = mistakes().into_iter().map(|mistake| ("memory_mistakes", mistake));
    let heap = heap_mistakes().into_iter().map(|mistake| ("heap_mistakes", mistake));
    for (program, (name, expected)) in memory.chain(heap) {
        let done = ran(program, &["--check", "--json"], &[name]);
        assert_eq!(done.code(), Some(1), "{name}: {}", done.told());
        assert!(done.stdout.contains("PASS "), "{name}: {}", done.told());
        let document = document(&done);
        for (_, _, what, _) in expected {
            let is_told = |record: &Value| record["what"].as_str().unwrap().contains(what);
            assert!(document["records"].as_array().unwrap().iter().any(is_told), "{name}: {document:#}");
        }
    }
}

#[test]
fn the_same_programs_without_a_mistake_have_none() {
    for program in ["memory_mistakes", "heap_mistakes"] {
        for options in [&["--check"][..], &["--sanitize"], &["--sanitize", "--schedule", "3"]] {
            let done = ran(program, options, &[]);
            assert_eq!(done.code(), Some(0), "{}", done.told());
            assert!(done.stderr.ends_with("bulkhead: 0 errors\n"), "{}", done.told());
        }
    }
    // Its heap moves once the code is loaded: what kernels may access is listed anew.
    let done = ran("device_heap", &["--check"], &[]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
}

#[test]
fn calls_that_failed_are_told_and_counted_where_that_is_asked_for() {
    for (name, call) in [
        ("launch", "cuLaunchKernel"),
        ("copy", "cuMemcpyHtoD_v2"),
        ("fill", "cuMemsetD8_v2"),
        ("free", "cuMemFree_v2"),
    ] {
        for (options, code) in [("--sanitize", 0), ("--sanitize=apicheck", 1)] {
            let done = ran("call_mistakes", &[options, "--json"], &[name]);
            assert_eq!(done.code(), Some(code), "{name}: {}", done.told());
            let document = document(&done);
            let [failed] = &document["failedCalls"].as_array().unwrap()[..] else { panic!("{document:#}") };
            assert_eq!((&failed["call"], &failed["code"]), (&call.into(), &1.into()), "{document:#}");
            let told = format!("{call} failed with CUDA_ERROR_INVALID_VALUE (1): invalid argument");
            assert!(done.stderr.contains(&told), "{name}: {}", done.told());
        }
    }
    let done = ran("call_mistakes", &["--sanitize=apicheck"], &[]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    assert!(done.stderr.ends_with("bulkhead: 0 errors\n"), "{}", done.told());
}
