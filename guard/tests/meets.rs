//! Waits for lanes of a warp: what the rewriter makes of them, and the verifier against texts that it did not write.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{confine, parse, print, verify};

const HEAD: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<32>;
    .reg .b64 %d<8>;
    .reg .pred %q<4>;
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %laneid;
    setp.lt.u32 %q1, %r2, 7;
";

fn source(body: &str) -> String {
    format!("{HEAD}{body}\n    st.global.u32 [%d1], %r3;\n    ret;\n}}\n")
}

fn confined(body: &str) -> String {
    let text = print(&parse(&source(body)).and_then(|module| confine(&module)).unwrap());
    verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    text
}

fn findings(text: &str) -> String {
    match verify(text) {
        Ok(_) => String::new(),
        Err(report) => report.to_string(),
    }
}

/// Asserts that a confined body with the first `from` replaced by `to` is refused with `why`.
#[track_caller]
fn broken(body: &str, from: &str, to: &str, why: &str) {
    let text = confined(body);
    assert!(text.contains(from), "no `{from}` in\n{text}");
    let text = text.replacen(from, to, 1);
    let found = findings(&text);
    assert!(found.contains(why), "`{from}` to `{to}`: {found:?}\n{text}");
}

/// How often a line stands in the version for all launches.
fn count(text: &str, line: &str) -> usize {
    text.split("__bh_fast_k").next().unwrap().matches(line).count()
}

/// Asserts that these lines stand in a confined body, one behind the other.
#[track_caller]
fn holds(text: &str, lines: &[&str]) {
    let lines: String = lines.iter().map(|line| format!("    {line};\n")).collect();
    assert!(text.contains(&lines), "no\n{lines}in\n{text}");
}

const SHUFFLES: &str = "    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
    add.u32 %r3, %r3, %r2;
    shfl.sync.bfly.b32 %r3, %r3, 2, 31, 0xffffffff;";
const MASKED: &str = "    shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r1;
    vote.sync.ballot.b32 %r3, %q1, %r1;";
const BLOCK: &str = "    vote.sync.ballot.b32 %r3, %q1, -1;
    @%q1 bra L;
    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
L:
    bar.sync 0;
    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
    bar.warp.sync -1;
    barrier.sync 0;";
const ELSEWHERE: &str = "a wait for lanes that may wait elsewhere";
const ALONE: &str = "a barrier where lanes of a warp may wait elsewhere";

#[test]
fn all_lanes_meet_once_for_all_waits_of_a_straight_way() {
    let text = confined(SHUFFLES);
    holds(
        &text,
        &[
            "bar.warp.sync -1",
            "activemask.b32 %bh_m",
            "shfl.sync.bfly.b32 %r2, %r1, 1, 31, %bh_m",
            "add.u32 %r2, %r2, %r1",
            "shfl.sync.bfly.b32 %r2, %r2, 2, 31, %bh_m",
        ],
    );
    assert_eq!(count(&text, "bar.warp.sync"), 1, "{text}");
}

#[test]
fn a_barrier_of_the_warp_is_where_all_lanes_meet_already() {
    let text = confined(&format!("    bar.warp.sync -1;\n    add.u32 %r2, %r2, 1;\n{SHUFFLES}"));
    holds(&text, &["bar.warp.sync -1", "activemask.b32 %bh_m", "add.u32 %r1, %r1, 1"]);
    assert_eq!(count(&text, "bar.warp.sync"), 1, "{text}");
}

#[test]
fn a_register_that_holds_a_mask_of_all_lanes_only_is_one() {
    let text = confined("    mov.b32 %r5, -1;\n    shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r5;");
    assert!(text.contains("bar.warp.sync -1") && !text.contains("match.any"), "{text}");
    let twice =
        "    mov.b32 %r5, -1;\n    @%q1 mov.b32 %r5, 7;\n    shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r5;";
    assert!(confined(twice).contains("match.any.sync.b32 %bh_m"));
}

#[test]
fn lanes_of_a_mask_find_each_other() {
    let text = confined(MASKED);
    holds(
        &text,
        &[
            "activemask.b32 %bh_m",
            "match.any.sync.b32 %bh_m, %r0, %bh_m",
            "setp.ne.s32 %bh_q, %bh_m, %r0",
            "@%bh_q exit",
            "shfl.sync.bfly.b32 %r2, %r1, 1, 31, %bh_m",
            "vote.sync.ballot.b32 %r2, %p0, %bh_m",
        ],
    );
    // Another mask, and the same register with something else in it.
    let again = confined(&format!("{MASKED}\n    add.u32 %r1, %r1, 1;\n    elect.sync %r3|%q2, %r1;"));
    assert_eq!(count(&again, "match.any.sync.b32 %bh_m"), 2, "{again}");
    let number = confined("    bar.warp.sync 0xffff0000;");
    holds(
        &number,
        &["activemask.b32 %bh_m", "setp.ne.s32 %bh_q, %bh_m, -65536", "@%bh_q exit", "bar.warp.sync %bh_m"],
    );
}

#[test]
fn who_waits_under_a_predicate_branches_around() {
    let text = confined("    @%q1 shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;");
    holds(&text, &["@!%p0 bra $L0", "bar.warp.sync -1", "activemask.b32 %bh_m"]);
    assert!(text.contains("    shfl.sync.bfly.b32 %r2, %r1, 1, 31, %bh_m;\n$L0:\n"), "{text}");
}

#[test]
fn where_blocks_wait_lanes_meet_by_votes_and_barriers_ask_for_all() {
    let text = confined(BLOCK);
    let meets = ["vote.sync.ballot.b32 %bh_m, 1, -1", "activemask.b32 %bh_m"];
    let asks = [
        "vote.sync.ballot.b32 %bh_m, 1, -1",
        "activemask.b32 %bh_lo",
        "setp.ne.s32 %bh_q, %bh_lo, %bh_m",
        "@%bh_q exit",
        "bar.sync 0",
        "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1",
        "bar.warp.sync -1",
        "bar.sync 0",
    ];
    holds(&text, &meets);
    // All come as far as nothing leads away.
    holds(&text, &asks);
    assert_eq!(count(&text, meets[0]), 3, "{text}");
    let only = confined("    bar.sync 0;\n    barrier.sync 0;");
    assert!(!only.contains("vote") && !only.contains("%bh_m,"), "{only}");
}

#[test]
fn a_wait_for_lanes_without_its_sequence_is_refused() {
    let here = "    activemask.b32 %bh_m;\n";
    broken(SHUFFLES, here, "", ELSEWHERE);
    broken(SHUFFLES, here, &format!("{here}$L7:\n"), ELSEWHERE);
    broken(SHUFFLES, here, &format!("{here}    @%p0 bra $L7;\n$L7:\n"), ELSEWHERE);
    broken(SHUFFLES, here, "    activemask.b32 %r2;\n", ELSEWHERE);
    broken(SHUFFLES, "31, %bh_m;", "31, -1;", ELSEWHERE);
    broken(SHUFFLES, "31, %bh_m;", "31, %r0;", ELSEWHERE);
    broken(SHUFFLES, "31, %bh_m;", "31, %bh_lo;", ELSEWHERE);
    broken(SHUFFLES, "%r1, 1, 31, %bh_m;", "%bh_m, 1, 31, %bh_m;", "a reserved register as data");
    broken(SHUFFLES, "shfl.sync.bfly.b32 %r2, %r1", "@%p0 shfl.sync.bfly.b32 %r2, %r1", ELSEWHERE);
    broken(SHUFFLES, "bar.warp.sync -1", "bar.warp.sync 65535", ELSEWHERE);
    broken(SHUFFLES, "bar.warp.sync -1", "@%p0 bar.warp.sync -1", ELSEWHERE);
    broken(SHUFFLES, here, &format!("{here}    mov.b32 %bh_m, %r0;\n"), "not verified");
    broken(SHUFFLES, here, "    mov.b32 %bh_m, -1;\n", "not verified");
    broken(SHUFFLES, here, "    @%p0 activemask.b32 %bh_m;\n", "not verified");
    broken(SHUFFLES, "bar.warp.sync -1", "vote.sync.ballot.b32 %r2, 1, -1", ELSEWHERE);
}

#[test]
fn lanes_of_a_mask_that_do_not_find_each_other_are_refused() {
    let found = "    match.any.sync.b32 %bh_m, %r0, %bh_m;\n";
    broken(MASKED, found, "    match.any.sync.b32 %bh_m, %r0, -1;\n", "not verified");
    broken(MASKED, found, "    match.any.sync.b32 %bh_m, %r1, %bh_m;\n", "not verified");
    broken(MASKED, found, "    and.b32 %bh_m, %bh_m, %r0;\n", "not verified");
    broken(MASKED, "    activemask.b32 %bh_m;\n", "", "not verified");
    broken(MASKED, "    @%bh_q exit;\n    shfl", "    shfl", "not verified");
}

#[test]
fn a_barrier_of_the_block_where_lanes_may_be_elsewhere_is_refused() {
    let asks = "    activemask.b32 %bh_lo;\n    setp.ne.s32 %bh_q, %bh_lo, %bh_m;\n    @%bh_q exit;\n";
    broken(BLOCK, asks, "    activemask.b32 %bh_m;\n", ALONE);
    broken(BLOCK, asks, "", "not verified");
    broken(BLOCK, "@%bh_q exit;\n    bar.sync", "@!%bh_q exit;\n    bar.sync", "not verified");
    // Something goes back to there; a label alone changes nothing.
    broken(BLOCK, "    bar.sync 0;\n", "$L7:\n    bar.sync 0;\n    @%p0 bra $L7;\n", ALONE);
    assert_eq!(findings(&confined(BLOCK).replacen("    bar.sync 0;\n", "$L7:\n    bar.sync 0;\n", 1)), "");
    broken(BLOCK, "    bar.sync 0;\n", "    @%p0 bar.sync 0;\n", ALONE);
    broken(
        BLOCK,
        "bar.warp.sync -1;\n    bar.sync 0;\n",
        "bar.warp.sync -1;\n$L7:\n    barrier.sync 0;\n    @%p0 bra $L7;\n",
        ALONE,
    );
    let meet = "vote.sync.ballot.b32 %bh_m, 1, -1;\n    activemask.b32 %bh_m;";
    broken(
        BLOCK,
        meet,
        "bar.warp.sync -1;\n    activemask.b32 %bh_m;",
        "lanes of a warp that meet in two ways",
    );
    broken(BLOCK, "    bar.warp.sync -1;\n", "$L7:\n    bar.warp.sync -1;\n    @%p0 bra $L7;\n", ALONE);
    broken(SHUFFLES, "    shfl", "    bar.sync 0;\n    shfl", ALONE);
}

/// Two ways that meet before the second barrier.
const WAYS: &str = "    bar.sync 0;
    @%q1 bra A;
    add.u32 %r3, %r2, 5;
    bra B;
A:
    add.u32 %r3, %r2, 6;
B:
    bar.sync 0;
    shfl.sync.bfly.b32 %r3, %r3, 1, 31, -1;";

#[test]
fn lanes_whose_ways_have_met_are_together_again() {
    let text = confined(WAYS);
    assert_eq!(count(&text, "vote.sync.ballot.b32 %bh_m, 1, -1;"), 1, "{text}");
    assert_eq!(count(&text, "1, 31, -1;"), 1, "{text}");
    // Where somebody waits on one of them, where one goes around, and where a way comes back, they have to be asked.
    let add = "    add.u32 %r3, %r2, 5;\n";
    let on_one = WAYS.replace(add, &format!("{add}    shfl.sync.bfly.b32 %r3, %r3, 2, 31, -1;\n"));
    let of_some = WAYS.replace(add, &format!("{add}    shfl.sync.bfly.b32 %r3, %r3, 2, 31, %r1;\n"));
    let around = WAYS.replace("bra B;", "bra C;") + "\nC:\n    bar.sync 0;";
    let again = WAYS
        .replace("B:\n", "B:\n    add.u32 %r2, %r2, 1;\n    setp.lt.u32 %q1, %r2, %r1;\n    @%q1 bra A;\n");
    for (body, asked) in [(on_one, 3), (of_some, 2), (around, 3), (again, 2)] {
        let text = confined(&body);
        assert_eq!(count(&text, "vote.sync.ballot.b32 %bh_m, 1, -1;"), asked, "{text}");
    }
}

#[test]
fn a_barrier_behind_ways_on_which_somebody_waits_or_that_have_not_met_is_refused() {
    let add = "    add.u32 %r2, %r1, 5;\n";
    for wait in [
        "    vote.sync.ballot.b32 %bh_m, 1, -1;\n    activemask.b32 %bh_m;\n    shfl.sync.bfly.b32 %r2, %r2, 2, 31, %bh_m;\n",
        "    activemask.b32 %bh_m;\n    shfl.sync.bfly.b32 %r2, %r2, 2, 31, %bh_m;\n",
        "    vote.sync.ballot.b32 %bh_m, 1, -1;\n    activemask.b32 %bh_lo;\n    setp.ne.s32 %bh_q, %bh_lo, %bh_m;\n    @%bh_q exit;\n    bar.sync 0;\n",
        "    vote.sync.ballot.b32 %bh_lo, 1, -1;\n    activemask.b32 %bh_lo;\n    setp.ne.s32 %bh_q, %bh_lo, -1;\n    @%bh_q exit;\n",
    ] {
        broken(WAYS, add, &format!("{add}{wait}"), ALONE);
    }
    broken(WAYS, add, &format!("{add}    shfl.sync.bfly.b32 %r2, %r2, 2, 31, -1;\n"), ELSEWHERE);
    broken(WAYS, add, &format!("{add}    bar.sync 0;\n"), ALONE);
    let text = confined(WAYS);
    let behind = text.replacen("    bar.sync 0;\n    shfl", "    bar.sync 0;\n$L8:\n    shfl", 1);
    assert_eq!(findings(&behind), "");
    let around = behind.replacen("    bra $L1;\n", "    bra $L8;\n", 1);
    assert_ne!(behind, around, "{behind}");
    assert!(findings(&around).contains(ALONE), "{around}");
}
