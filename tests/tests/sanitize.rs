//! `bulkhead run --sanitize`: each mistake of a kernel is told with its line, and programs without any have none.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{collections::BTreeSet, time::Duration};

use bulkhead_tests::{
    apace, patience,
    place::{bulkhead as bulkhead_under_test, program, repository},
    process::{Done, bulkhead, kill, run, run_privately_with},
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(300);

fn sanitized(name: &str, options: &[&str], arguments: &[&str]) -> Done {
    let path = program(name);
    let program = [&[path.to_str().unwrap()], arguments].concat();
    let (mut command, _scratch) = run_privately_with(options, &program);
    run(&mut command, PATIENCE)
}

/// The JSON document behind a program's own output.
fn document(done: &Done) -> Value {
    serde_json::from_str(done.stdout.lines().next_back().unwrap()).unwrap()
}

/// Number of the one line of the program's source that ends with a text.
fn line(text: &str) -> u64 {
    let source = std::fs::read_to_string(repository().join("tests/programs/sanitize.cu")).unwrap();
    let found: Vec<usize> =
        source.lines().enumerate().filter(|(_, line)| line.ends_with(text)).map(|(at, _)| at).collect();
    assert_eq!(found.len(), 1, "{text}");
    found[0] as u64 + 1
}

/// What a mistake of the program is told as.
struct Told {
    tool: &'static str,
    kind: &'static str,
    line: &'static str,
    what: &'static str,
    count: u64,
    /// Where the other thread was.
    other: Option<&'static str>,
}

/// One of nobody else's.
fn told(tool: &'static str, kind: &'static str, line: &'static str, what: &'static str, count: u64) -> Told {
    Told { tool, kind, line, what, count, other: None }
}

/// One in which another thread had a part.
fn two(tool: &'static str, kind: &'static str, lines: [&'static str; 2], count: u64) -> Told {
    Told { tool, kind, line: lines[0], what: "", count, other: Some(lines[1]) }
}

#[test]
fn each_mistake_is_told_once_with_its_line_its_count_and_the_other_thread() {
    let race = "racecheck";
    let sync = "synccheck";
    let beyond = "0 bytes behind the end of 256 bytes at ";
    let unwritten = "of global memory that nobody has written: byte 0 of the 256 bytes at ";
    let copied = "of global memory that nobody has written: byte 252 of the 256 bytes at ";
    // Which thread of a race comes second is the schedule's choice.
    let expected: Vec<(&str, Vec<Told>)> = vec![
        ("beyond", vec![told("memcheck", "astray", "// beyond", beyond, 1)]),
        ("misaligned", vec![told("memcheck", "misaligned", "// misaligned", "misaligned", 63)]),
        (
            "shared_beyond",
            vec![told("memcheck", "astray", "// shared beyond", "the block has 256 bytes", 64)],
        ),
        ("unwritten", vec![told("initcheck", "globalUnwritten", "// unwritten", unwritten, 64)]),
        ("copied", vec![told("initcheck", "globalUnwritten", "// unwritten", copied, 1)]),
        (
            "shared_unwritten",
            vec![told("initcheck", "sharedUnwritten", "// shared unwritten", "byte 256", 2)],
        ),
        ("no_object", vec![told("initcheck", "sharedUnwritten", "// no object", "byte 0 was", 1)]),
        (
            "write_after_write",
            vec![two(race, "writeAfterWrite", ["// write after write", "// write after write"], 63)],
        ),
        ("warp_race", vec![two(race, "readAfterWrite", ["// warp race", "// warp written"], 32)]),
        (
            "barrier_exited",
            vec![two(sync, "barrierWithoutExited", ["// barrier exited", "} // barrier exited's end"], 1)],
        ),
        ("barrier_apart", vec![two(sync, "barrierApart", ["// barrier apart", "// elsewhere"], 1)]),
        ("barriers_in_a_line", vec![two(sync, "barrierApart", ["// one line"; 2], 1)]),
        ("lanes_exited", vec![two(sync, "lanesExited", ["// lanes exited", "} // lanes exited's end"], 16)]),
        ("own_lane", vec![told(sync, "ownLaneNotNamed", "// own lane", "mask 0xffff ", 16)]),
        (
            "masks_differ",
            vec![told(sync, "neverMet", "// masks differ", "wait elsewhere and do not come", 1)],
        ),
        ("lanes_elsewhere", vec![two(sync, "neverMet", ["// lanes elsewhere", "// their others"], 1)]),
    ];
    for (name, mistakes) in expected {
        let done = sanitized("sanitize", &["--sanitize", "--json"], &["small", name]);
        assert_eq!(done.code(), Some(1), "{name}: {}", done.told());
        assert!(done.stdout.contains("PASS "), "{name}: {}", done.told());
        let document = document(&done);
        let findings = document["findings"].as_array().unwrap();
        assert_eq!(findings.len(), mistakes.len(), "{name}: {document:#}");
        assert_eq!(document["errors"].as_u64(), Some(mistakes.len() as u64), "{document:#}");
        for (finding, mistake) in findings.iter().zip(mistakes) {
            let is = |member: &str, value: &str| assert_eq!(finding[member], value, "{name}: {document:#}");
            is("tool", mistake.tool);
            is("kind", mistake.kind);
            assert!(finding["file"].as_str().unwrap().ends_with("sanitize.cu"), "{document:#}");
            assert_eq!(finding["line"].as_u64(), Some(line(mistake.line)), "{name}: {document:#}");
            assert!(finding["text"].as_str().unwrap().ends_with(mistake.line), "{name}: {document:#}");
            assert!(finding["what"].as_str().unwrap().contains(mistake.what), "{name}: {document:#}");
            assert_eq!(finding["count"].as_u64(), Some(mistake.count), "{name}: {document:#}");
            let other = &finding["other"];
            assert_eq!(other["line"].as_u64(), mistake.other.map(line), "{name}: {document:#}");
            assert_ne!(other["thread"], finding["thread"], "{name}: {document:#}");
        }
        assert!(done.stderr.contains("sanitize.cu:"), "{}", done.told());
        assert!(done.stderr.ends_with("error\n") || done.stderr.ends_with("errors\n"), "{}", done.told());
    }
}

#[test]
fn races_between_warps_are_told_whichever_comes_first() {
    for (name, lines, kinds) in [
        (
            "read_after_write",
            ["// written", "// read after write"],
            &["writeAfterRead", "readAfterWrite"][..],
        ),
        ("write_after_read", ["// write after read", "// read early"], &["writeAfterRead", "readAfterWrite"]),
        ("not_awaited", ["// handed on", "// not awaited"], &["writeAfterRead", "readAfterWrite"]),
        ("unlocked", ["// unlocked"; 2], &["writeAfterWrite", "readAfterWrite"]),
        (
            "counted",
            ["// counted"; 2],
            &["globalWriteAfterWrite", "globalReadAfterWrite", "globalWriteAfterRead"],
        ),
        ("gathered", ["// found", "// gathered"], &["globalReadAfterWrite"]),
    ] {
        for options in
            [&["--sanitize=racecheck", "--json"][..], &["--sanitize=racecheck", "--json", "--schedule", "3"]]
        {
            let done = sanitized("sanitize", options, &["small", name]);
            let document = document(&done);
            let findings = document["findings"].as_array().unwrap();
            assert!(!findings.is_empty() && done.code() == Some(1), "{name}: {}", done.told());
            for finding in findings {
                let pair = [&finding["line"], &finding["other"]["line"]].map(|line| line.as_u64().unwrap());
                let [one, other] = lines.map(line);
                assert!(pair == [one, other] || pair == [other, one], "{name}: {document:#}");
                assert!(kinds.iter().any(|kind| finding["kind"] == *kind), "{name}: {document:#}");
                assert_eq!(finding["tool"], "racecheck");
            }
        }
    }
}

#[test]
fn threads_that_would_wait_for_each_other_for_ever_are_told_and_the_executor_is_not_lost() {
    let done = sanitized("sanitize", &["--sanitize", "--json"], &["small", "never_met"]);
    assert_eq!(done.code(), Some(1), "{}", done.told());
    let document = document(&done);
    let [finding] = &document["findings"].as_array().unwrap()[..] else { panic!("{document:#}") };
    assert_eq!((&finding["tool"], &finding["kind"]), (&"synccheck".into(), &"neverMet".into()));
    assert_eq!(finding["line"].as_u64(), Some(line("// never met")));
    assert_eq!(finding["other"]["line"].as_u64(), Some(line("// the other half")));
    assert_eq!(document["executorLost"], false, "{document:#}");
    assert!(done.stdout.contains("PASS "), "{}", done.told());
}

#[test]
fn what_was_found_before_the_executor_was_lost_is_told() {
    let path = program("sanitize");
    let script =
        r#""$0" small barrier_exited; : > "$TMPDIR/held"; while [ -e "$TMPDIR/held" ]; do sleep 0.02; done"#;
    let words = ["/bin/sh", "-c", script, path.to_str().unwrap()];
    let (mut command, scratch) = run_privately_with(&["--sanitize", "--json"], &words);
    let held = scratch.path().join("held");
    let place = scratch.path().to_str().unwrap().to_owned();
    let killer = std::thread::spawn(move || {
        patience::until("the program has run", || held.exists());
        kill(process_with(&["executor", &place]));
        std::fs::remove_file(held).unwrap();
    });
    let done = run(&mut command, PATIENCE);
    killer.join().unwrap();
    assert_eq!(done.code(), Some(1), "{}", done.told());
    let document = document(&done);
    let [finding] = &document["findings"].as_array().unwrap()[..] else { panic!("{document:#}") };
    assert_eq!(finding["kind"], "barrierWithoutExited");
    assert_eq!(finding["line"].as_u64(), Some(line("// barrier exited")), "{document:#}");
    assert_eq!(document["executorLost"], true, "{document:#}");
}

/// The process whose arguments have all of these in them.
fn process_with(texts: &[&str]) -> u32 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = numbers.find(|number| {
        let arguments = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        texts.iter().all(|text| arguments.contains(text))
    });
    found.unwrap()
}

#[test]
fn memory_that_is_not_freed_is_told_with_its_size() {
    let done = sanitized("sanitize", &["--sanitize=leakcheck", "--json"], &["small", "leak"]);
    assert_eq!(done.code(), Some(1), "{}", done.told());
    let document = document(&done);
    assert_eq!((document["errors"].as_u64(), document["allocations"].as_u64()), (Some(1), Some(2)));
    let [leak] = &document["leaks"].as_array().unwrap()[..] else { panic!("{document:#}") };
    assert_eq!((leak["allocation"].as_u64(), leak["bytes"].as_u64()), (Some(2), Some(256)), "{document:#}");
}

#[test]
fn only_the_tools_that_are_named_look() {
    for (tools, name, code) in [
        ("--sanitize=racecheck,synccheck,leakcheck,memcheck", "unwritten", 0),
        ("--sanitize=initcheck", "unwritten", 1),
        ("--sanitize=initcheck,synccheck,leakcheck,memcheck", "warp_race", 0),
        ("--sanitize=racecheck,initcheck,leakcheck,memcheck", "barrier_exited", 0),
        ("--sanitize=racecheck,initcheck,synccheck,memcheck", "leak", 0),
        ("--sanitize=racecheck,initcheck,leakcheck,synccheck", "misaligned", 0),
        ("--sanitize=memcheck", "misaligned", 1),
    ] {
        let done = sanitized("sanitize", &[tools], &["small", name]);
        assert_eq!(done.code(), Some(code), "{tools} {name}: {}", done.told());
        let end = if code == 0 { "bulkhead: 0 errors\n" } else { "bulkhead: 1 error\n" };
        assert!(done.stderr.ends_with(end), "{tools} {name}: {}", done.told());
    }
}

#[test]
fn programs_without_a_mistake_have_none() {
    let entries = std::fs::read_dir(repository().join("tests/programs")).unwrap();
    let names: BTreeSet<String> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        // These have mistakes, what the sanitizer takes for some (`warps`: waits and a barrier that threads exit instead of
        // coming to), take minutes, or wait for other processes both ways (`shared_events`) or for who launches
        // (`host_functions`), where launches that wait for what was launched before do not get on.
        .filter(|name| {
            let waits = ["shared_events", "host_functions"];
            let left_out = ["out_of_range", "faults", "virtual_memory", "ipc", "warps"];
            !name.starts_with("attack_") && !waits.contains(&&**name) && !left_out.contains(&&**name)
        })
        .collect();
    assert!(names.contains("sanitize") && names.contains("cooperative"), "{names:?}");
    apace::each(names, |name| {
        let done = sanitized(&name, &["--sanitize"], &[]);
        assert_eq!(done.code(), Some(0), "{name}: {}", done.told());
        assert!(done.stderr.ends_with("bulkhead: 0 errors\n"), "{name}: {}", done.told());
    });
}

#[test]
fn mistakes_that_are_put_into_right_kernels_are_found() {
    let runner = repository().join("tests/mutants/mutants.py");
    let mut command = std::process::Command::new("python3");
    command.arg(runner).args(["--sample", "--json", "--bulkhead"]).arg(bulkhead_under_test());
    let done = run(&mut command, PATIENCE);
    let document = document(&done);
    assert_eq!(done.code(), Some(0), "{document:#}");
    assert_eq!(document["programs"], document["programsWithoutFindings"], "{document:#}");
    assert!(document["expected"].as_u64() >= Some(5), "{document:#}");
    assert_eq!(document["expected"], document["expectedAndFound"], "{document:#}");
}

#[test]
fn what_cannot_be_sanitized_is_refused() {
    for (options, told) in [
        (&["--sanitize", "--socket", "/nowhere"][..], "cannot be used with"),
        (&["--sanitize", "--check"], "cannot be used with"),
        (&["--sanitize", "--profile"], "cannot be used with"),
        (&["--sanitize", "--gates", "token"], "cannot be used with"),
        (&["--sanitize=nothing"], "invalid value"),
    ] {
        let done = sanitized("vecadd", options, &[]);
        assert!(!matches!(done.code(), Some(0)), "{}", done.told());
        assert!(done.stderr.contains(told) && !done.stdout.contains("PASS"), "{}", done.told());
    }
    let path = program("vecadd");
    let mut command = bulkhead(&["run", "--sanitize", "--backend", "cuda", "--", path.to_str().unwrap()]);
    let done = run(&mut command, PATIENCE);
    let told = "only the software GPU looks for mistakes of kernels";
    assert!(done.code() == Some(1) && done.stderr.contains(told), "{}", done.told());
}

#[test]
fn a_program_that_used_no_device_is_told_so() {
    let (mut command, _scratch) = run_privately_with(&["--sanitize", "--json"], &["/bin/true"]);
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let told = "ended before it used the device: nothing was looked at";
    assert!(done.stderr.contains(told) && !done.stderr.contains("lost"), "{}", done.told());
    let document = document(&done);
    assert_eq!(
        (&document["deviceUsed"], &document["executorLost"]),
        (&false.into(), &false.into()),
        "{document:#}"
    );
}

#[test]
fn a_failed_assertion_is_told_with_its_place_and_its_thread() {
    let done = sanitized("faults", &["--sanitize=memcheck"], &["small", "assert"]);
    assert_eq!(done.code(), Some(1), "{}", done.told());
    let source = std::fs::read_to_string(repository().join("tests/programs/faults.cu")).unwrap();
    let line = source.lines().position(|line| line.contains("assert(i != 133)")).unwrap() + 1;
    let mut told = done.stderr.lines().skip_while(|line| !line.starts_with("memcheck "));
    let place = told.next().unwrap();
    assert!(place.contains(&format!("faults.cu:{line} asserts(")), "{}", done.told());
    let what = told.next().unwrap();
    assert!(
        what.contains("`i != 133` failed") && what.ends_with("block (2, 0, 0), thread (5, 0, 0)"),
        "{what}"
    );
}
