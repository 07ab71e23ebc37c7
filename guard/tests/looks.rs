//! Polls and looks, broken in one way each: the verifier refuses whatever may run on without a look at its flag.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{ast::Item, confine, is_fast_version, parse, print, verify};

const HEAD: &str = ".version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    .reg .pred %q<2>;
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    mov.u32 %r3, 0;
";

/// A loop in a loop, that a branch skips and another enters in its middle.
const LOOPS: &str = "
    setp.eq.u32 %q1, %r1, 0;
    @%q1 bra D;
    setp.eq.u32 %q1, %r1, 7;
    @%q1 bra M;
L:
    mov.u32 %r4, 0;
I:
    ld.global.u32 %r2, [%d1];
    add.u32 %r3, %r3, %r2;
M:
    add.u32 %r4, %r4, 1;
    setp.ne.u32 %q1, %r4, %r1;
    @%q1 bra I;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %q1, %r1, 0;
    @%q1 bra L;
    st.global.u32 [%d1], %r3;
D:
    ret;
}
";

/// No loop, and a store that one branch skips.
const STRAIGHT: &str = "
    setp.eq.u32 %q1, %r1, 0;
    @%q1 bra D;
    ld.global.u32 %r2, [%d1];
    add.u32 %r3, %r3, %r2;
    st.global.u32 [%d1], %r3;
D:
    ret;
}
";

fn confined(body: &str) -> String {
    let mut module = parse(&format!("{HEAD}{body}")).and_then(|module| confine(&module)).unwrap();
    // Its fast version polls and looks as it does.
    module.items.retain(|item| !matches!(item, Item::Function(entry) if is_fast_version(&entry.name)));
    print(&module)
}

#[track_caller]
fn refused(text: &str, broken: &str) {
    assert_ne!(text, broken, "nothing is broken");
    assert!(verify(broken).is_err(), "verified:\n{broken}");
}

/// The same with its fast version.
fn with_fast_version(body: &str) -> String {
    print(&parse(&format!("{HEAD}{body}")).and_then(|module| confine(&module)).unwrap())
}

/// The lines that have to do with the flag.
fn is_look(line: &str) -> bool {
    ["%bh_n", "%bh_k", "@%bh_q exit"].iter().any(|part| line.contains(part)) && !line.contains(".reg")
}

#[test]
fn every_label_that_a_branch_goes_back_to_has_a_poll() {
    let text = confined(LOOPS);
    verify(&text).unwrap();
    assert_eq!(text.matches("add.s32 %bh_n, %bh_n, -").count(), 2, "{text}");
    assert_eq!(
        text.matches("@%bh_q exit;").count(),
        3,
        "who enters in the middle may leave at once:\n{text}"
    );
    let entered = LOOPS.replace("@%q1 bra M;", "");
    let text = confined(&entered);
    assert_eq!(text.matches("@%bh_q exit;").count(), 2, "no look is needed beside the polls:\n{text}");
}

#[test]
fn one_look_is_enough_without_a_loop() {
    let text = confined(STRAIGHT);
    verify(&text).unwrap();
    assert_eq!(text.matches("@%bh_q exit;").count(), 1, "{text}");
    assert!(!text.contains("add.s32 %bh_n"), "{text}");
}

#[test]
fn an_entry_that_does_nothing_looks_at_nothing() {
    let text = confined("    ret;\n}\n");
    verify(&text).unwrap();
    assert!(!text.lines().any(is_look), "{text}");
}

#[test]
fn no_line_of_a_poll_or_a_look_may_be_missing_twice_or_elsewhere() {
    let mut broken = 0;
    for body in [LOOPS, STRAIGHT] {
        let text = confined(body);
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate().filter(|(_, line)| is_look(line)) {
            let join = |lines: &[&str]| lines.join("\n") + "\n";
            let mut without = lines.clone();
            without.remove(index);
            refused(&text, &join(&without));
            let mut swapped = lines.clone();
            swapped.swap(index, index + 1);
            refused(&text, &join(&swapped));
            // A whole look may stand twice, its last line alone may not.
            let mut twice = lines.clone();
            twice.insert(index, line);
            refused(&text, &join(&twice));
            broken += 3;
        }
    }
    assert!(broken > 30, "{broken}");
}

#[test]
fn a_fast_version_polls_and_looks_as_its_entry_does() {
    for (body, exits) in [(LOOPS, 3), (STRAIGHT, 1)] {
        let text = with_fast_version(body);
        verify(&text).unwrap();
        assert_eq!(text.matches("@%bh_q exit;").count(), 2 * exits, "{text}");
        let at = text.rfind("@%bh_q exit;").unwrap();
        refused(&text, &format!("{}{}", &text[..at], &text[at + "@%bh_q exit;\n    ".len()..]));
    }
}

#[test]
fn a_poll_counts_all_that_lies_between() {
    let text = confined(LOOPS);
    let mut polls = 0;
    for (at, _) in text.match_indices("add.s32 %bh_n, %bh_n, -") {
        let (before, after) = text.split_at(at + "add.s32 %bh_n, %bh_n, -".len());
        let (count, rest) = after.split_once(';').unwrap();
        let count: u64 = count.parse().unwrap();
        let with = |count: i64| format!("{before}{count};{rest}").replace("--", "");
        let count = i64::try_from(count).unwrap();
        refused(&text, &with(count - 1));
        refused(&text, &with(0));
        refused(&text, &with(-count));
        refused(&text, &with((1 << 30) + 1));
        verify(&with(count + 1)).unwrap();
        polls += 1;
    }
    assert_eq!(polls, 2);
}

#[test]
fn a_poll_reads_the_flag_and_ends_whom_it_ends() {
    let text = confined(LOOPS);
    for (from, to) in [
        ("@%bh_q ld.relaxed.sys.global.b32 %bh_n, [%bh_k];", "ld.relaxed.sys.global.b32 %bh_n, [%bh_k];"),
        ("@%bh_q ld.relaxed.sys", "@!%bh_q ld.relaxed.sys"),
        ("@%bh_q ld.relaxed.sys.global", "@%bh_q ld.global"),
        ("%bh_n, [%bh_k];\n    setp", "%bh_n, [%bh_k+4];\n    setp"),
        ("%bh_n, [%bh_k];\n    setp", "%bh_n, [%bh_a];\n    setp"),
        ("%bh_n, [%bh_k];\n    setp", "%r3, [%bh_k];\n    setp"),
        ("@%bh_q exit;", "@!%bh_q exit;"),
        ("@%bh_q exit;", "@%p0 exit;"),
        ("@%bh_q exit;", "exit;"),
        ("@%bh_q exit;", "@%bh_q bra $L0;"),
        ("setp.lt.s32 %bh_q, %bh_n, 0;", "setp.lt.u32 %bh_q, %bh_n, 0;"),
        ("setp.lt.s32 %bh_q, %bh_n, 0;", "setp.lt.s32 %bh_q, %bh_n, 1;"),
        ("or.b32 %bh_hi, %bh_base, %bh_loadmask;", "or.b32 %bh_hi, %bh_base, %bh_storemask;"),
        ("mov.u32 %bh_lo, %smid;", "mov.u32 %bh_lo, %tid.x;"),
        ("65408, -65536, 234", "65408, -131072, 234"),
        ("65408, -65536, 234", "65535, -65536, 234"),
        ("65408, -65536, 234", "65408, 0, 234"),
    ] {
        assert!(text.contains(from), "no `{from}` in\n{text}");
        refused(&text, &text.replacen(from, to, 1));
    }
}

#[test]
fn nothing_else_writes_what_counts_down() {
    for body in [LOOPS, STRAIGHT] {
        let text = confined(body);
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.iter().position(|line| line.contains("ld.param")).unwrap();
        for at in first..lines.len() {
            for write in [
                "mov.b32 %bh_n, 1000000;",
                "mov.b64 %bh_k, %d0;",
                "ld.global.u32 %bh_n, [%bh_a];",
                "add.s32 %bh_n, %bh_n, 1000;",
                "add.s32 %bh_n, %bh_n, -1;",
            ] {
                let mut more = lines.clone();
                let line = format!("    {write}");
                more.insert(at, &line);
                refused(&text, &(more.join("\n") + "\n"));
            }
        }
    }
}

#[test]
fn a_branch_back_to_a_label_without_a_poll_is_refused() {
    let text = confined(STRAIGHT);
    let label = text.lines().find(|line| line.starts_with("$L")).unwrap().trim_end_matches(':').to_owned();
    refused(&text, &text.replace("    ret;\n", &format!("    bra {label};\n")));
}

#[test]
fn global_memory_is_not_written_before_a_look_on_any_path() {
    let text = confined(STRAIGHT);
    let look = "    setp.lt.s32 %bh_q, %bh_n, 0;\n    @%bh_q exit;\n";
    let without = text.replace(look, "");
    refused(&text, &without);
    // Before the branch it holds on both paths; where the paths have met, on none that went around.
    let (before, after) = without.split_once("    setp.eq.u32").unwrap();
    verify(&format!("{before}{look}    setp.eq.u32{after}")).unwrap();
    let moved = without.replace("    ret;\n", "").replace("$L0:\n", "").replacen("}\n", "    ret;\n}\n", 1);
    let branch = without.lines().find(|line| line.contains("bra $L0")).unwrap();
    let target = moved.replace(branch, &format!("{branch}\n{look}$L0:").replace("$L0:", "")).replace(
        "    mov.b64 {%bh_lo, %bh_hi}, %d0;\n    lop3.b32 %bh_hi, %bh_hi, %bh_storemask",
        "$L0:\n    mov.b64 {%bh_lo, %bh_hi}, %d0;\n    lop3.b32 %bh_hi, %bh_hi, %bh_storemask",
    );
    assert!(target.contains(look) && target.contains("$L0:"), "{target}");
    refused(&text, &target);
}

#[test]
fn no_more_than_a_little_is_done_before_a_look() {
    let work = |count: usize| format!("{}    ret;\n}}\n", "    add.u32 %r3, %r3, %r1;\n".repeat(count));
    assert!(!confined(&work(50)).contains("exit;"));
    let text = confined(&work(70));
    verify(&text).unwrap();
    assert_eq!(text.matches("@%bh_q exit;").count(), 1);
    refused(&text, &text.replace("    setp.lt.s32 %bh_q, %bh_n, 0;\n    @%bh_q exit;\n", ""));
}
