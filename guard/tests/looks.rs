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
    ["%bh_n", "%bh_k", "%bh_c", "@%bh_q"].iter().any(|part| line.contains(part)) && !line.contains(".reg")
}

#[test]
fn every_branch_back_polls_now_and_then() {
    let text = confined(LOOPS);
    verify(&text).unwrap();
    // What is entered in its middle polls each time.
    assert!(!text.contains("%bh_c"), "{text}");
    assert_eq!(text.matches("ld.relaxed.sys.global.b32 %bh_n").count(), 3, "{text}");
    let entered = LOOPS.replace("@%q1 bra M;", "");
    let text = confined(&entered);
    verify(&text).unwrap();
    assert!(text.contains("%bh_c<2>"), "{text}");
    assert_eq!(text.matches("@%bh_q exit;").count(), 3, "one look, two polls:\n{text}");
}

#[test]
fn one_look_is_enough_without_a_loop() {
    let text = confined(STRAIGHT);
    verify(&text).unwrap();
    assert_eq!(text.matches("@%bh_q exit;").count(), 1, "{text}");
    assert!(!text.contains("%bh_c"), "{text}");
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
fn a_fast_version_polls_as_its_entry_does_and_looks_at_nothing_where_it_is_short() {
    let text = with_fast_version(LOOPS);
    verify(&text).unwrap();
    let (entry, fast) = text.split_once("__bh_fast_k").unwrap();
    let exits = |text: &str| text.matches("@%bh_q exit;").count();
    assert_eq!((exits(entry), exits(fast)), (exits(entry), exits(entry)), "{text}");
    let at = text.rfind("@%bh_q exit;").unwrap();
    refused(&text, &format!("{}{}", &text[..at], &text[at + "@%bh_q exit;\n    ".len()..]));

    let text = with_fast_version(STRAIGHT);
    let (entry, fast) = text.split_once("__bh_fast_k").unwrap();
    assert_eq!((exits(entry), exits(fast)), (1, 0), "{text}");
    // Its launches are bounded by what it does on its longest path: two accesses and seven instructions more.
    let verified = verify(&text).unwrap();
    assert_eq!(verified.entries()[0].fast.as_ref().unwrap().work, 2 * 16 + 7);
    // Where it does much, it looks.
    let more =
        STRAIGHT.replace("    st.", &format!("{}    st.", "    add.u32 %r3, %r3, %r1;\n".repeat(1100)));
    let text = with_fast_version(&more);
    let (_, fast) = text.split_once("__bh_fast_k").unwrap();
    assert_eq!(exits(fast), 1, "{text}");
    assert_eq!(verify(&text).unwrap().entries()[0].fast.as_ref().unwrap().work, 0);
    let (entry, fast) =
        (text.replace(fast, ""), fast.replace("    setp.lt.s32 %bh_q, %bh_n, 0;\n    @%bh_q exit;\n", ""));
    refused(&text, &format!("{entry}{fast}"));
}

#[test]
fn a_poll_reads_the_flag_and_ends_whom_it_ends() {
    let text = confined(LOOPS);
    // In the prologue, and in each poll.
    for (from, to) in [
        ("ld.relaxed.sys.global.b32 %bh_n", "ld.global.b32 %bh_n"),
        ("%bh_n, [%bh_k];", "%bh_n, [%bh_k+4];"),
        ("%bh_n, [%bh_k];", "%bh_n, [%bh_a];"),
        ("ld.relaxed.sys.global.b32 %bh_n, [%bh_k];", "ld.relaxed.sys.global.b32 %r3, [%bh_k];"),
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
        for (at, _) in text.match_indices(from) {
            refused(&text, &format!("{}{to}{}", &text[..at], &text[at + from.len()..]));
        }
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

/// A loop that counts its turns.
const COUNTED: &str = "
L:
    ld.global.u32 %r2, [%d1];
    add.u32 %r3, %r3, %r2;
    setp.ne.u32 %q1, %r2, 0;
    @%q1 bra L;
    st.global.u32 [%d1], %r3;
    ret;
}
";

#[test]
fn what_the_guard_itself_writes_counts_as_what_tenants_write() {
    let text = confined(COUNTED);
    let (before, rest) = text.split_once("    mov.u32 %bh_c0, ").unwrap();
    let (opening, turn) = rest.split_once(":\n").unwrap();
    let turn = turn.strip_prefix("    .pragma \"nounroll\";\n").unwrap_or(turn);
    let with = |count: usize, line: &dyn Fn(usize) -> String| {
        let more: String = (1..=count).map(line).collect();
        format!("{before}    mov.u32 %bh_c0, {opening}:\n{more}{turn}")
    };
    let look = |_| "    setp.lt.s32 %bh_q, %bh_n, 0;\n    @%bh_q exit;\n".to_owned();
    assert!(verify(&with(2, &look)).is_ok());
    refused(&text, &with(10_000, &look));
    let turns = |at| {
        let label = 1000 + at;
        format!(
            "    mov.u32 %bh_c{at}, 1;\n$L{label}:\n    add.s32 %bh_c{at}, %bh_c{at}, -1;\n\
             \u{20}   setp.gt.s32 %bh_q, %bh_c{at}, 0;\n    @%bh_q bra $L{label};\n"
        )
    };
    let loops = |count| with(count, &turns).replace("%bh_c<1>", &format!("%bh_c<{}>", count + 1));
    assert!(verify(&loops(2)).is_ok(), "{:?}", verify(&loops(2)));
    refused(&text, &loops(5_000));
}
