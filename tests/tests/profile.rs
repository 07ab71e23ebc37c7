//! `bulkhead run --profile`: what is counted comes to the lines of the program's own source.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{collections::BTreeSet, time::Duration};

use bulkhead_tests::{
    apace,
    place::{program, repository},
    process::{Done, run, run_privately_with},
    scratch::Scratch,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(180);

fn profiled(name: &str, options: &[&str]) -> Done {
    let path = program(name);
    let (mut command, _scratch) = run_privately_with(options, &[path.to_str().unwrap()]);
    run(&mut command, PATIENCE)
}

/// The JSON document behind a program's own output.
fn document(name: &str) -> Value {
    let done = profiled(name, &["--profile", "--json"]);
    assert_eq!(done.code(), Some(0), "{name}: {}", done.told());
    let mut lines = done.stdout.lines().rev();
    let document = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert!(lines.next().unwrap().starts_with("PASS "), "{name}: {}", done.told());
    document
}

fn kernel<'a>(document: &'a Value, name: &str) -> &'a Value {
    let kernels = document["kernels"].as_array().unwrap();
    kernels.iter().find(|kernel| kernel["name"].as_str().unwrap().contains(name)).unwrap()
}

/// What the line of the source with this text did in a kernel.
fn line<'a>(kernel: &'a Value, text: &str) -> &'a Value {
    let source = std::fs::read_to_string(repository().join("tests/programs/counted.cu")).unwrap();
    let number = source.lines().position(|line| line.ends_with(text)).unwrap() + 1;
    let is_it = |line: &&Value| {
        line["in"] == "source"
            && line["line"].as_u64() == Some(number as u64)
            && line["file"].as_str().unwrap().ends_with("counted.cu")
    };
    let found = kernel["lines"].as_array().unwrap().iter().find(is_it);
    &found.unwrap_or_else(|| panic!("{text} in {kernel:#}"))["counts"]
}

fn numbers(of: &Value, names: &[&str]) -> Vec<u64> {
    names.iter().map(|name| of[name].as_u64().unwrap()).collect()
}

#[test]
fn counts_of_a_program_are_those_that_pencil_and_paper_give_for_its_lines() {
    let document = document("counted");
    assert_eq!(document["kernels"].as_array().unwrap().len(), 3);
    let traffic = ["requests", "bytesAsked", "bytesUseful", "sectors", "bytesMoved"];

    // 20 warps of 32 threads, each with a word of another sector.
    let strided = kernel(&document, "strided");
    let stored = &line(strided, "// a sector each")["global"]["stored"];
    assert_eq!(numbers(stored, &traffic), [20, 2560, 2560, 640, 20480]);
    assert_eq!(numbers(strided, &["launches", "launchesNotCounted", "blocks", "threads"]), [1, 0, 10, 640]);
    let none = &line(strided, "// a sector each")["global"]["loaded"];
    assert_eq!(numbers(none, &traffic), [0; 5]);

    let conflicts = kernel(&document, "conflicts");
    let shared = ["requests", "bytesAsked", "passes", "passesLeast", "waysMost"];
    assert_eq!(numbers(&line(conflicts, "// four ways")["shared"], &shared), [2, 256, 8, 2, 4]);
    assert_eq!(numbers(&line(conflicts, "// no conflict")["shared"], &shared), [8, 1024, 8, 8, 1]);
    let stored = &line(conflicts, "// four ways")["global"]["stored"];
    assert_eq!(numbers(stored, &traffic), [2, 256, 256, 8, 256]);

    let contended = kernel(&document, "contended");
    let atomic = &line(contended, "// four rounds")["atomic"];
    assert_eq!(numbers(atomic, &["requests", "lanes", "rounds"]), [20, 640, 80]);

    for kernel in [strided, conflicts, contended] {
        // Every line is the program's own, and its instructions are those of all its lines.
        let lines = kernel["lines"].as_array().unwrap();
        assert!(lines.iter().all(|line| line["in"] == "source"), "{lines:#?}");
        let sum: u64 = lines.iter().map(|line| line["counts"]["warpInstructions"].as_u64().unwrap()).sum();
        assert_eq!(kernel["counts"]["warpInstructions"].as_u64(), Some(sum));
        // The guard is told apart.
        assert!(kernel["guard"]["warpInstructions"].as_u64().unwrap() > 0);
        assert_eq!(kernel["guard"]["global"]["stored"]["requests"].as_u64(), Some(0));
    }
}

#[test]
fn every_program_passes_while_it_is_profiled_and_all_lines_are_its_own() {
    let entries = std::fs::read_dir(repository().join("tests/programs")).unwrap();
    let names: BTreeSet<String> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| !name.starts_with("attack_") && !matches!(&**name, "out_of_range" | "faults"))
        .collect();
    apace::each(names, |name| {
        for kernel in document(&name)["kernels"].as_array().unwrap() {
            assert_eq!(kernel["launchesNotCounted"], 0, "{name}: {kernel:#}");
            let confined = kernel["lines"].as_array().unwrap().iter().find(|line| line["in"] == "confined");
            assert!(confined.is_none(), "{name}: {confined:#?}");
        }
    });
}

#[test]
fn the_table_names_kernels_and_lines_and_goes_to_standard_error_or_a_file() {
    let done = profiled("counted", &["--profile"]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let head = done.stderr.lines().next().unwrap();
    assert_eq!(head, "bulkhead: 3 kernels, 3 launches", "{}", done.told());
    let stored = done.stderr.lines().find(|line| line.contains("// a sector each")).unwrap();
    assert!(stored.contains("20.0 KiB") && stored.contains("12%"), "{stored}");

    let folder = Scratch::new();
    let file = folder.path().join("profile.txt");
    let done = profiled("counted", &[&format!("--profile={}", file.display())]);
    assert_eq!((done.code(), done.stderr.as_str()), (Some(0), ""), "{}", done.told());
    assert!(std::fs::read_to_string(file).unwrap().starts_with(head));
}

#[test]
fn a_trace_has_what_viewers_ask_for() {
    let folder = Scratch::new();
    let file = folder.path().join("trace.json");
    let done = profiled("streams", &["--trace", file.to_str().unwrap()]);
    assert_eq!((done.code(), done.stderr.as_str()), (Some(0), ""), "{}", done.told());
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let mut tracks = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for event in events {
        // The members that the format asks for: `ph`, `pid`, `tid`, `name`; `ts` and `dur` of slices; a scope of instants.
        assert!(event["name"].is_string() && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        let time = |name: &str| event[name].as_f64().is_some_and(|time| time >= 0.0);
        match event["ph"].as_str().unwrap() {
            "M" => assert!(event["args"]["name"].is_string(), "{event}"),
            "X" => {
                assert!(time("ts") && time("dur") && event["args"].is_object(), "{event}");
                tracks.insert(event["tid"].as_u64().unwrap());
                kinds.insert(event["cat"].as_str().unwrap());
            }
            "i" => assert!(time("ts") && event["s"] == "t", "{event}"),
            other => panic!("{other}: {event}"),
        }
    }
    assert!(tracks.len() > 1, "{events:#?}");
    assert!(kinds.contains("kernel") && kinds.contains("copy"), "{kinds:?}");
    // A stream does one thing after the other.
    for track in tracks {
        let slices = events.iter().filter(|event| event["ph"] == "X" && event["tid"].as_u64() == Some(track));
        let times = slices.map(|event| (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap()));
        let times: Vec<_> = times.collect();
        let apart = |pair: &[(f64, f64)]| pair[0].0 + pair[0].1 <= pair[1].0 + 0.001;
        assert!(times.windows(2).all(apart), "{times:?}");
    }
}

#[test]
fn a_profile_is_refused_where_others_could_be_seen_or_nothing_is_counted() {
    for (options, told) in [
        (&["--profile", "--socket", "/nowhere"][..], "cannot be used with"),
        (&["--profile", "--check"], "cannot be used with"),
        (&["--json"], "--json is for"),
    ] {
        let done = profiled("vecadd", options);
        assert!(!matches!(done.code(), Some(0)), "{}", done.told());
        assert!(done.stderr.contains(told) && !done.stdout.contains("PASS"), "{}", done.told());
    }
}

#[test]
fn a_program_that_launches_nothing_is_said_to_and_ends_as_it_would() {
    let scratch = Scratch::new();
    let trace = scratch.path().join("trace.json");
    let traced = format!("--trace={}", trace.display());
    for (options, program, code) in [
        (&["--profile"][..], &["true"][..], 0),
        (&[&traced], &["true"], 0),
        (&["--profile", "--json"], &["sh", "-c", "exit 3"], 3),
    ] {
        let (mut command, _scratch) = run_privately_with(options, program);
        let done = run(&mut command, PATIENCE);
        assert_eq!(done.code(), Some(code), "{options:?}: {}", done.told());
        assert_eq!(done.stderr, "bulkhead: the program launched no kernel\n", "{options:?}");
    }
    let document: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    assert!(document["traceEvents"].is_array(), "{document}");
}
