//! `bulkhead guard`: a file is confined and verified by itself, without a kernel.

use std::{path::Path, process::Command, time::Duration};

use bulkhead_tests::{
    process::{Done, bulkhead, run},
    scratch::Scratch,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

const ACCEPTED: &str = "\
.version 8.0
.target sm_75
.address_size 64
.visible .entry copy(.param .u64 p)
{
    .reg .b32 %r<4>;
    .reg .b64 %d<4>;
    .shared .b32 tile[32];
    ld.param.u64 %d1, [p];
    ld.global.u32 %r1, [%d1+4];
    prefetch.global.L2 [%d1];
    mov.u32 %r2, tile;
    st.shared.u32 [%r2], %r1;
    st.global.u32 [%d1], %r1;
    ret;
}
";

const REFUSED: &str = "\
.version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 p)
{
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [p];
    add.u64 %d2, %d1, ?;
    pmevent 1;
    ldu.global.u64 %d3, [%d1];
    ret;
}
";

fn guard(arguments: &[&str]) -> Done {
    run(bulkhead(&["guard"]).args(arguments), PATIENCE)
}

fn file(scratch: &Scratch, name: &str, text: &str) -> String {
    let path = scratch.path().join(name);
    std::fs::write(&path, text).expect("scratch can be written");
    path.to_string_lossy().into_owned()
}

#[test]
fn a_file_is_confined_and_verified_without_a_kernel() {
    let scratch = Scratch::new();
    let path = file(&scratch, "copy.ptx", ACCEPTED);
    let printed = guard(&[&path]);
    assert_eq!((printed.code(), printed.stderr.as_str()), (Some(0), ""), "{}", printed.told());
    for line in [
        ".visible .entry bh_e_copy(",
        "lop3.b32 %bh_hi, %bh_hi, %bh_storemask, %bh_base, 234;",
        "ld.global.u32 %r0, [%bh_a+4];",
    ] {
        assert!(printed.stdout.contains(line), "{}", printed.told());
    }
    let out = scratch.path().join("out.ptx");
    let written = guard(&[&path, "-o", out.to_str().unwrap()]);
    assert_eq!((written.code(), written.stdout.as_str()), (Some(0), ""), "{}", written.told());
    assert_eq!(std::fs::read_to_string(&out).unwrap(), printed.stdout);
    let mut piped = Command::new("sh");
    let program = bulkhead(&[]).get_program().to_owned();
    piped.args(["-c", "\"$0\" guard - < \"$1\""]).arg(program).arg(&path);
    assert_eq!(run(&mut piped, PATIENCE).stdout, printed.stdout);
}

#[test]
fn everything_against_a_file_is_told_at_once_with_its_line() {
    let scratch = Scratch::new();
    let path = file(&scratch, "k.ptx", REFUSED);
    let out = scratch.path().join("out.ptx");
    let refused = guard(&[&path, "-o", out.to_str().unwrap()]);
    assert_eq!((refused.code(), refused.stdout.as_str()), (Some(1), ""), "{}", refused.told());
    assert!(!Path::new(&out).exists(), "what is refused is not written");
    for told in [
        format!("{path}:8:23: expected an operand, found `?`"),
        "     8 |     add.u64 %d2, %d1, ?;\n       |                       ^\n".to_owned(),
        format!("{path}:9:5: a guarded session does not allow `pmevent`"),
        format!("{path}:10:5: a guarded session does not support `ldu`"),
        "is refused: 3 findings".to_owned(),
    ] {
        assert!(refused.stderr.contains(&told), "{told}\n{}", refused.told());
    }
}

#[test]
fn how_each_access_is_kept_is_explained() {
    let scratch = Scratch::new();
    let path = file(&scratch, "copy.ptx", ACCEPTED);
    let table = guard(&[&path, "--explain"]);
    assert_eq!(table.code(), Some(0), "{}", table.told());
    assert!(table.stdout.starts_with("copy\n") && !table.stdout.contains("bh_"), "{}", table.told());
    for (instruction, handling) in [
        ("ld.param.u64 %d1, [p]", "inside its variable"),
        ("ld.global.u32 %r1, [%d1+4]", "proven: 4 bytes from the pointer in `p`"),
        ("prefetch.global.L2 [%d1]", "left out"),
        ("st.shared.u32 [%r2], %r1", "proven: inside `tile`"),
        ("st.global.u32 [%d1], %r1", "proven: 0 bytes from the pointer in `p`"),
    ] {
        let line = table.stdout.lines().find(|line| line.contains(instruction));
        assert!(line.is_some_and(|line| line.contains(handling)), "{instruction}: {}", table.told());
        let annotated = guard(&[&path, "--explain=ptx"]);
        let line = annotated.stdout.lines().find(|line| line.contains(instruction));
        assert!(
            line.is_some_and(|line| line.contains(&format!("// guard: {handling}"))),
            "{}",
            annotated.told()
        );
    }
    let refused = guard(&[&file(&scratch, "k.ptx", REFUSED), "--explain"]);
    assert_eq!(refused.code(), Some(1), "{}", refused.told());
    assert!(refused.stdout.contains("refused: a guarded session does not support `ldu`"));
}

#[test]
fn what_is_claimed_of_lanes_is_told() {
    const WAITS: &str = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n    .reg .b32 %r<3>;\n    .reg .pred %p;\n\
        mov.u32 %r1, %laneid;\n    setp.eq.u32 %p, %r1, 3;\n    @%p bra A;\n    mov.u32 %r2, 7;\n    bra B;\nA:\n    mov.u32 %r2, 8;\nB:\n    bar.sync 0;\n    ret;\n}\n";
    let scratch = Scratch::new();
    let told = guard(&[&file(&scratch, "k.ptx", WAITS), "--explain=claims"]);
    assert_eq!(told.code(), Some(0), "{}", told.told());
    let lines: Vec<&str> = told.stdout.lines().collect();
    assert_eq!(lines[0], "entry bh_e_k", "{}", told.told());
    let heading = lines.iter().find_map(|line| line.split_once(" heading "));
    assert!(
        heading.is_some_and(|(_, to)| lines.contains(&format!("{to} together").as_str())),
        "{}",
        told.told()
    );
}

#[test]
fn json_has_the_span_of_every_finding_and_access() {
    let scratch = Scratch::new();
    for (text, accepted) in [(ACCEPTED, true), (REFUSED, false)] {
        let told = guard(&[&file(&scratch, "k.ptx", text), "--json", "--explain"]);
        assert_eq!(told.code(), Some(i32::from(!accepted)), "{}", told.told());
        let report: Value = serde_json::from_str(&told.stdout).unwrap();
        assert_eq!(report["accepted"], accepted);
        assert!(!accepted || report["entries"][0]["name"] == "copy", "{}", told.told());
        assert!(!told.stdout.contains("bh_e_") && !told.stdout.contains("bh_v_"), "{}", told.told());
        let of = |value: &Value| {
            let at = |name: &str| usize::try_from(value["span"][name].as_u64().unwrap()).unwrap();
            text[at("start")..at("end")].to_owned()
        };
        let findings: Vec<String> = report["findings"].as_array().unwrap().iter().map(of).collect();
        let expected: &[&str] = if accepted { &[] } else { &["?", "pmevent 1", "ldu.global.u64 %d3, [%d1]"] };
        assert_eq!(findings, expected);
        for access in report["accesses"].as_array().unwrap() {
            assert_eq!(of(access), access["instruction"].as_str().unwrap());
        }
    }
}

#[test]
fn a_window_is_filled_in_for_the_hidden_parameters() {
    let scratch = Scratch::new();
    let path = file(&scratch, "copy.ptx", ACCEPTED);
    let filled = guard(&[&path, "--window", "0x10000000000:512G"]);
    assert_eq!(filled.code(), Some(0), "{}", filled.told());
    assert!(!filled.stdout.contains("__bh_base"), "{}", filled.told());
    assert!(filled.stdout.contains(".entry copy("), "who runs it finds it by its name: {}", filled.told());
    for line in ["mov.u32 %bh_base, 256;", "mov.u32 %bh_loadmask, 127;", "mov.u32 %bh_storemask, 127;"] {
        assert!(filled.stdout.contains(line), "{}", filled.told());
    }
    let told = guard(&[&path, "--window", "0x10000000000:512G", "--json"]);
    let report: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(report["hidden_parameters"][0]["name"], "__bh_base");
    assert_eq!(report["hidden_parameters"][0]["value"], 256);
}

#[test]
fn what_is_no_ptx_is_told_how_to_become_it() {
    let scratch = Scratch::new();
    let source = file(&scratch, "add.cu", "__global__ void add(int *to) { *to += 1; }\n");
    let binary = guard(&[std::env::current_exe().unwrap().to_str().unwrap()]);
    for done in [guard(&[&source]), binary] {
        assert!(done.code() == Some(1) && done.stderr.contains("nvcc -ptx"), "{}", done.told());
    }
    let broken = guard(&[&file(&scratch, "broken.ptx", ".version 8.0\n.target nothing\n")]);
    assert!(broken.code() == Some(1) && !broken.stderr.contains("nvcc"), "{}", broken.told());
}

#[test]
fn shell_completions_know_the_options_of_guard() {
    for shell in ["bash", "zsh", "fish"] {
        let done = run(&mut bulkhead(&["completions", shell]), PATIENCE);
        for option in ["window", "explain"] {
            assert!(done.stdout.contains(option), "{shell} does not know --{option}");
        }
    }
}

#[test]
fn a_text_may_call_the_gates_of_files_that_are_named() {
    let scratch = Scratch::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guard/filetests/gates");
    let [gates, calls] = ["log.ptx", "confine/call.ptx"].map(|name| folder.join(name).display().to_string());
    let done = guard(&["--json", "--gates", &gates, &calls]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let report: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(report["entries"][0]["hidden_parameters"], 7);
    assert_eq!(report["entries"][0]["modules"][0], gates);
    assert_eq!(report["entries"][0]["parameters"], 1);
    let done = guard(&[&calls]);
    assert_eq!(done.code(), Some(1));
    assert!(done.stderr.contains("a call of `log_append`, which has no body here"), "{}", done.stderr);
    let broken = file(&scratch, "broken.ptx", &REFUSED.replace(".visible .entry k", ".visible .func k"));
    let done = guard(&["--gates", &broken, &calls]);
    assert_eq!(done.code(), Some(1));
    assert!(done.stderr.contains("has no gates that can be granted"), "{}", done.stderr);
}

/// A loop that is counted, with labels inside, so that turns of it become one.
fn branching(labels: usize) -> String {
    let inside: String = (0..labels)
        .map(|label| {
            format!("    setp.gt.u32 %q1, %r1, {label};\n    @%q1 bra in{label};\n    add.u32 %r2, %r2, %r1;\nin{label}:\n")
        })
        .collect();
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n)\n{{\n    \
         .reg .b32 %r<4>;\n    .reg .b64 %d<2>;\n    .reg .pred %q<2>;\n    ld.param.u64 %d1, [p];\n    \
         ld.param.u32 %r1, [n];\n    mov.u32 %r2, 0;\nloop:\n{inside}    shr.u32 %r1, %r1, 1;\n    \
         setp.ne.u32 %q1, %r1, 0;\n    @%q1 bra loop;\n    st.global.u32 [%d1], %r2;\n    ret;\n}}\n"
    )
}

#[test]
fn what_comes_out_is_the_same_in_every_process() {
    let scratch = Scratch::new();
    let path = file(&scratch, "loop.ptx", &branching(6));
    let first = guard(&[&path]);
    assert!(first.stdout.contains("$L20:"), "{}", first.stdout);
    for _ in 0..6 {
        assert!(guard(&[&path]).stdout == first.stdout, "another text");
    }
}
