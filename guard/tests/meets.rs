//! Waits for lanes of a warp: what the rewriter makes of them, and the verifier against texts that it did not write.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{Gates, confine, parse, print, verify, verify_claimed};

#[path = "meets/together.rs"]
mod together;

use together::{ASK, rows};

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

/// Some lanes of a warp go around the body.
fn source(body: &str) -> String {
    whole(&format!("    @%q1 bra DONE;\n{body}\nDONE:"))
}

/// All lanes go through the body.
fn whole(body: &str) -> String {
    format!("{HEAD}{body}\n    st.global.u32 [%d1], %r3;\n    ret;\n}}\n")
}

fn confined(body: &str) -> String {
    of(&source(body))
}

fn of(source: &str) -> String {
    let text = print(&parse(source).and_then(|module| confine(&module)).unwrap());
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

/// How often lanes with the same mask find each other, in the version for all launches.
fn groups(text: &str) -> usize {
    text.split("__bh_fast_k").next().unwrap().lines().filter(|line| is_alike(line)).count()
}

fn is_alike(line: &str) -> bool {
    line.trim().starts_with("match.any.sync.b32 %bh_m, ") && line.ends_with(", %bh_m;")
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
            "match.any.sync.b32 %bh_m, 1, -1",
            "shfl.sync.bfly.b32 %r2, %r1, 1, 31, %bh_m",
            "add.u32 %r2, %r2, %r1",
            "shfl.sync.bfly.b32 %r2, %r2, 2, 31, %bh_m",
        ],
    );
    assert_eq!(count(&text, "match.any.sync"), 1, "{text}");
    assert!(!text.contains("bar.warp.sync") && !text.contains("activemask"), "{text}");
}

#[test]
fn a_barrier_of_the_warp_beside_other_waits_is_for_the_lanes_that_have_met() {
    let text = confined(&format!("    bar.warp.sync -1;\n    add.u32 %r2, %r2, 1;\n{SHUFFLES}"));
    let met = ["match.any.sync.b32 %bh_m, 1, -1", "bar.warp.sync %bh_m", "add.u32 %r1, %r1, 1"];
    holds(&text, &met);
    assert_eq!(count(&text, "match.any.sync"), 1, "{text}");
    // By itself it is where all lanes meet.
    let alone = confined("    bar.warp.sync -1;\n    bar.warp.sync 0xffffffff;");
    holds(&alone, &["bar.warp.sync -1", "bar.warp.sync -1"]);
    assert!(!alone.contains("match.any.sync"), "{alone}");
}

#[test]
fn each_place_where_lanes_meet_has_a_number_of_its_own() {
    let text = confined(&format!("{SHUFFLES}\n    @%q1 bra L;\n{SHUFFLES}\nL:\n{SHUFFLES}"));
    for place in 1..4 {
        assert_eq!(count(&text, &format!("match.any.sync.b32 %bh_m, {place}, -1;")), 1, "{text}");
    }
    for same in ["1", "0x1", "4294967297", "-4294967295", "2147483648", "0"] {
        let same = text.replace("%bh_m, 2, -1;", &format!("%bh_m, {same}, -1;"));
        assert!(findings(&same).contains("not verified"), "{same}");
    }
}

#[test]
fn a_register_that_holds_a_mask_of_all_lanes_only_is_one() {
    let text = confined("    mov.b32 %r5, -1;\n    shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r5;");
    assert!(text.contains("match.any.sync.b32 %bh_m, 1, -1"), "{text}");
    assert_eq!(groups(&text), 0, "{text}");
    let twice =
        "    mov.b32 %r5, -1;\n    @%q1 mov.b32 %r5, 7;\n    shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r5;";
    assert_eq!(groups(&confined(twice)), 1);
}

/// As `cooperative_groups::binary_partition` is compiled: a ballot of all lanes, then waits of those that voted the same.
#[test]
fn a_register_may_hold_a_mask_of_all_lanes_first_and_another_later() {
    let ballot = "vote.sync.ballot.b32 %r3, %q1, %r5;";
    let shuffle = "shfl.sync.bfly.b32 %r4, %r2, 1, 31, %r5;";
    let reused = format!("    mov.u32 %r5, -1;\n    {ballot}\n    xor.b32 %r5, %r3, %r5;\n    {shuffle}");
    let text = confined(&reused);
    let voted = ["match.any.sync.b32 %bh_m, 2, -1", "vote.sync.ballot.b32 %bh_lo, 1, -1"];
    holds(&text, &voted[..1]);
    assert!(text.contains("vote.sync.ballot.b32 %r3, %p0, %bh_m"), "{text}");
    assert_eq!(groups(&text), 1, "{text}");
    // Where two ways meet, it has to hold on both.
    let ways = |other: &str| {
        format!(
            "    mov.u32 %r5, -1;\n    @%q1 bra OTHER;\n    bra.uni MEET;\nOTHER:\n    {other}\nMEET:\n    {ballot}\n    mov.u32 %r5, 3;"
        )
    };
    assert_eq!(groups(&confined(&ways("mov.u32 %r5, 0xffffffff;"))), 0);
    assert_eq!(groups(&confined(&ways("mov.u32 %r5, 1;"))), 1);
    // So where a loop comes back.
    let turned = |last: &str| {
        format!(
            "    mov.u32 %r5, -1;\nAGAIN:\n    {ballot}\n    {last}\n    @%q1 bra AGAIN;\n    mov.u32 %r5, 3;"
        )
    };
    assert_eq!(groups(&confined(&turned("mov.u32 %r5, -1;"))), 0);
    assert_eq!(groups(&confined(&turned("mov.u32 %r5, 7;"))), 1);
}

#[test]
fn lanes_of_a_mask_find_each_other() {
    let text = confined(MASKED);
    // They go around until none of those that are left and in the mask is elsewhere.
    holds(
        &text,
        &[
            "match.any.sync.b32 %bh_m, 1, -1",
            "vote.sync.ballot.b32 %r3, 1, -1",
            "match.any.sync.b32 %r4, %r0, %bh_m",
            "lop3.b32 %r4, %r3, %r0, %r4, 64",
            "setp.ne.s32 %p1, %r4, 0",
        ],
    );
    holds(
        &text,
        &[
            "match.any.sync.b32 %bh_m, 2, -1",
            "vote.sync.ballot.b32 %bh_lo, 1, -1",
            "match.any.sync.b32 %bh_m, %r0, %bh_m",
            "shfl.sync.bfly.b32 %r2, %r1, 1, 31, %bh_m",
            "vote.sync.ballot.b32 %r2, %p0, %bh_m",
        ],
    );
    // Another mask, and the same register with something else in it.
    let again = confined(&format!("{MASKED}\n    add.u32 %r1, %r1, 1;\n    elect.sync %r3|%q2, %r1;"));
    assert_eq!((groups(&again), loops(&again)), (2, 2), "{again}");
    let number = confined("    bar.warp.sync 0xffff0000;");
    holds(&number, &["match.any.sync.b32 %bh_m, -65536, %bh_m", "bar.warp.sync %bh_m"]);
}

/// What stands in front of a group, and lanes may go around, waits for all as well: those that went on wait for each other.
#[test]
fn what_lanes_may_jump_over_waits_for_lanes_of_a_group_that_stands_further_on() {
    let group = "    shfl.sync.bfly.b32 %r3, %r2, 1, 31, 0xff80;";
    for wait in ["    bar.sync 0;", "    bar.warp.sync -1;", "    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;"] {
        let text = of(&whole(&format!("    @%q1 bra G;\n{wait}\n    bra E;\nG:\n{group}\nE:")));
        assert_eq!(loops(&text), 2, "{text}");
    }
}

#[test]
fn lanes_meet_where_a_loop_polls_beside_groups() {
    let spin = "A:\n    ld.global.u32 %r4, [%d1];\n    setp.eq.u32 %q2, %r4, 0;\n    @%q2 bra A;\n";
    assert_eq!(count(&confined(spin), POLL), 0);
    let text = confined(&format!("{spin}    shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r1;"));
    assert_eq!(count(&text, POLL), 1, "{text}");
    // Lanes do not stay together around a loop in which they may meet others.
    let lanes = "    setp.eq.u32 %q2, %r2, %r1;\nA:\n    @%q2 bra B;\n    add.u32 %r2, %r2, 1;\n    setp.eq.u32 %q2, %r2, %r1;\n    bra A;\nB:\n";
    let text = of(&whole(&format!(
        "{lanes}    vote.sync.ballot.b32 %r3, %q1, -1;\n    shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r1;"
    )));
    assert_eq!((loops(&text), count(&text, POLL)), (1, 1), "{text}");
}

#[test]
fn an_instruction_for_whole_warps_behind_lanes_that_have_found_each_other_is_refused() {
    let body = "    movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2;";
    let alike = "    match.any.sync.b32 %bh_m, %r1, %bh_m;\n";
    let meets = "    match.any.sync.b32 %bh_m, 40, -1;\n    match.any.sync.b32 %bh_lo, 1, -1;\n";
    let asks = "    match.any.sync.b32 %bh_lo, 1, -1;\n";
    let text = confined(body);
    let before = text.replacen(asks, meets, 1);
    assert_eq!(findings(&before), "");
    let behind = before.replacen("    movmatrix", &format!("{alike}    movmatrix"), 1);
    assert_ne!(behind, before);
    assert!(findings(&behind).contains("whole"), "{}\n{behind}", findings(&behind));
}

/// How often lanes go around until all that they wait for have come, in the version for all launches.
fn loops(text: &str) -> usize {
    let before = text.split("__bh_fast_k").next().unwrap();
    let is_vote = |line: &&str| line.starts_with("    vote.sync.ballot.b32 %r") && line.ends_with(", 1, -1;");
    before.lines().filter(is_vote).count() - before.matches(POLL).count()
}

/// The vote of lanes that meet where a loop polls, and how that begins.
const POLL: &str = ", 1, -1;\n    or.b32 %bh_hi, %bh_base, %bh_loadmask;";

#[test]
fn whoever_comes_where_lanes_of_a_group_may_be_on_their_way_waits_for_all() {
    let wait = "    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;\n";
    let group = "    shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r1;\n";
    // Nothing comes back to what stands before the first group; what stands directly behind is there with it.
    for (body, expected) in [
        (format!("{wait}{group}"), 1),
        (format!("{group}{wait}"), 2),
        (format!("{group}{wait}{wait}    bar.sync 0;\n    bar.warp.sync -1;"), 2),
        (format!("{group}    @%q1 bra L;\nL:\n{wait}    @%q1 bra K;\nK:\n    bar.sync 0;"), 3),
        (format!("{group}    @%q1 bra L;\nL:\n    movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2;"), 2),
        // What a loop comes back to stands behind.
        (format!("L:\n{wait}    @%q2 bra K;\nK:\n{group}    setp.lt.u32 %q2, %r3, %r1;\n    @%q2 bra L;"), 2),
        (format!("{wait}{wait}"), 0),
        // All of them are there, and of them those.
        (format!("{group}    @%q1 bra L;\nL:\n{wait}{group}"), 2),
    ] {
        let text = of(&whole(&format!("    setp.eq.u32 %q2, %r1, 0;\n{body}")));
        assert_eq!(loops(&text), expected, "{body}\n{text}");
    }
}

#[test]
fn who_waits_under_a_predicate_branches_around() {
    let text = confined("    @%q1 shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;");
    holds(&text, &["@!%p0 bra $L1", "match.any.sync.b32 %bh_m, 1, -1"]);
    assert!(text.contains("    shfl.sync.bfly.b32 %r2, %r1, 1, 31, %bh_m;\n$L1:\n"), "{text}");
}

#[test]
fn a_barrier_of_the_block_under_a_predicate_is_branched_around_beside_instructions_for_warps() {
    let text = confined("    movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2;\n    @%q1 bar.sync 0;");
    let left = "vote.sync.ballot.b32 %bh_lo, 1, -1";
    holds(&text, &["@!%p0 bra $L1", "match.any.sync.b32 %bh_m, 1, -1", left]);
}

#[test]
fn whole_warps_are_asked_for_behind_a_wait_that_stands_directly_before() {
    let text = confined("    bar.warp.sync 0xffff;\n    movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2;");
    holds(&text, &["match.any.sync.b32 %bh_m, 65535, %bh_m", "bar.warp.sync %bh_m"]);
    holds(&text, &["match.any.sync.b32 %bh_lo, 4, -1", "vote.sync.ballot.b32 %bh_hi, 1, -1"]);
}

#[test]
fn where_blocks_wait_lanes_meet_by_votes_and_barriers_ask_for_all() {
    let text = confined(BLOCK);
    let meets = ["match.any.sync.b32 %bh_m, 1, -1", "vote.sync.ballot.b32 %bh_lo, 1, -1"];
    let asks = [
        "match.any.sync.b32 %bh_m, 3, -1",
        "vote.sync.ballot.b32 %bh_lo, 1, -1",
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
    assert_eq!(count(&text, meets[1]), 3, "{text}");
    let only = confined("    bar.sync 0;\n    barrier.sync 0;");
    assert!(!only.contains("vote") && !only.contains("%bh_m,"), "{only}");
}

#[test]
fn a_wait_for_lanes_without_its_sequence_is_refused() {
    let here = "    match.any.sync.b32 %bh_m, 1, -1;\n";
    broken(SHUFFLES, here, "", ELSEWHERE);
    broken(SHUFFLES, here, "    activemask.b32 %bh_m;\n", "not verified");
    broken(SHUFFLES, here, "    match.any.sync.b32 %bh_m, 1, 65535;\n", "not verified");
    broken(SHUFFLES, here, "    match.any.sync.b32 %bh_m, %r0, -1;\n", "not verified");
    broken(SHUFFLES, here, "    match.all.sync.b32 %bh_m, 1, -1;\n", "not verified");
    broken(SHUFFLES, here, "    bar.warp.sync -1;\n", ELSEWHERE);
    broken(SHUFFLES, here, &format!("{here}$L7:\n"), ELSEWHERE);
    broken(SHUFFLES, here, &format!("{here}    @%p0 bra $L7;\n$L7:\n"), ELSEWHERE);
    broken(SHUFFLES, here, "    match.any.sync.b32 %r2, 1, -1;\n", ELSEWHERE);
    broken(SHUFFLES, "31, %bh_m;", "31, -1;", ELSEWHERE);
    broken(SHUFFLES, "31, %bh_m;", "31, %r0;", ELSEWHERE);
    broken(SHUFFLES, "31, %bh_m;", "31, %bh_lo;", ELSEWHERE);
    broken(SHUFFLES, "%r1, 1, 31, %bh_m;", "%bh_m, 1, 31, %bh_m;", "a reserved register as data");
    broken(SHUFFLES, "shfl.sync.bfly.b32 %r2, %r1", "@%p0 shfl.sync.bfly.b32 %r2, %r1", ELSEWHERE);
    broken(SHUFFLES, here, &format!("{here}    mov.b32 %bh_m, %r0;\n"), "not verified");
    broken(SHUFFLES, here, "    mov.b32 %bh_m, -1;\n", "not verified");
    broken(SHUFFLES, here, "    @%p0 match.any.sync.b32 %bh_m, 1, -1;\n", "not verified");
    broken(SHUFFLES, here, "    vote.sync.ballot.b32 %r2, 1, -1;\n", ELSEWHERE);
}

#[test]
fn lanes_of_a_mask_that_do_not_find_each_other_are_refused() {
    let found = "    match.any.sync.b32 %bh_m, %r0, %bh_m;\n";
    let meets = "    match.any.sync.b32 %bh_m, 2, -1;\n    vote.sync.ballot.b32 %bh_lo, 1, -1;\n";
    broken(MASKED, found, "    match.any.sync.b32 %bh_m, %r0, -1;\n", "not verified");
    broken(MASKED, found, "    match.all.sync.b32 %bh_m, %r0, %bh_m;\n", "not verified");
    broken(MASKED, found, "    @%p0 match.any.sync.b32 %bh_m, %r0, %bh_m;\n", "not verified");
    broken(MASKED, found, "    match.any.sync.b64 %bh_m, %d0, %bh_m;\n", "not verified");
    broken(MASKED, found, "    match.any.sync.b32 %bh_m, %r0, %bh_lo;\n", "not verified");
    broken(MASKED, found, "    and.b32 %bh_m, %bh_m, %r0;\n", "not verified");
    broken(MASKED, &format!("{meets}{found}"), found, "not verified");
    broken(MASKED, found, &format!("$L99:\n{found}"), "not verified");
    broken(MASKED, found, &format!("    @%p0 bra $L99;\n$L99:\n{found}"), "not verified");
    broken(MASKED, "    vote.sync.ballot.b32 %bh_lo, 1, -1;\n", "", "lanes of a warp that meet in two ways");
    // The vote of a meeting is the program's only directly behind it, and of all lanes.
    let vote = "    vote.sync.ballot.b32 %r3, 1, -1;\n";
    for other in [
        "    vote.sync.ballot.b32 %r3, 1, 65535;\n",
        "    vote.sync.ballot.b32 %r3, %p0, -1;\n",
        "    vote.sync.ballot.b32 %r3, 0, -1;\n",
        "    @%p0 vote.sync.ballot.b32 %r3, 1, -1;\n",
        "    vote.sync.any.pred %p1, 1, -1;\n",
        "    add.u32 %r2, %r1, 1;\n    vote.sync.ballot.b32 %r3, 1, -1;\n",
        "$L99:\n    vote.sync.ballot.b32 %r3, 1, -1;\n",
        "    vote.sync.ballot.b32 %r3, 1, -1;\n    vote.sync.ballot.b32 %r3, 1, -1;\n",
    ] {
        broken(MASKED, vote, other, ELSEWHERE);
    }
    broken(MASKED, vote, "", "lanes of a warp that meet in two ways");
    broken(MASKED, vote, "    vote.sync.ballot.b32 %bh_s, 1, -1;\n", "not verified");
    // Whose lanes they are is a promise to the program alone.
    let others = confined(MASKED).replacen(found, "    match.any.sync.b32 %bh_m, %r1, %bh_m;\n", 1);
    assert_eq!(findings(&others), "");
    // The mask is a register of the tenant's that was written.
    for (mask, why) in [
        ("%r400", "may be read before it is written"),
        ("%d0", "no register of 32 bits"),
        ("%clock", "no register of 32 bits"),
        ("%bh_hi", "a reserved register as data"),
        ("%bh_m", "a reserved register as data"),
    ] {
        broken(MASKED, found, &found.replace("%r0", mask), why);
    }
}

#[test]
fn a_barrier_of_the_block_where_lanes_may_be_elsewhere_is_refused() {
    let asks = "    setp.ne.s32 %bh_q, %bh_lo, %bh_m;\n    @%bh_q exit;\n";
    broken(BLOCK, asks, "", ALONE);
    let vote = "    vote.sync.ballot.b32 %bh_lo, 1, -1;\n";
    broken(BLOCK, &format!("{vote}{asks}"), asks, "not verified");
    broken(BLOCK, &format!("{vote}{asks}"), "", ALONE);
    broken(BLOCK, vote, "", "lanes of a warp that meet in two ways");
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
    let meet = "    match.any.sync.b32 %bh_m, 1, -1;\n";
    broken(BLOCK, meet, &format!("    bar.warp.sync -1;\n{meet}"), "lanes of a warp that meet in two ways");
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
    assert_eq!(count(&text, ASK), 1, "{text}");
    assert_eq!(count(&text, "1, 31, -1;"), 1, "{text}");
    // Where somebody waits on one of them, where one goes around, and where one comes back from where somebody waits, they
    // have to be asked.
    let add = "    add.u32 %r3, %r2, 5;\n";
    let on_one = WAYS.replace(add, &format!("{add}    shfl.sync.bfly.b32 %r3, %r3, 2, 31, -1;\n"));
    let of_some = WAYS.replace(add, &format!("{add}    shfl.sync.bfly.b32 %r3, %r3, 2, 31, %r1;\n"));
    let around = WAYS.replace("bra B;", "bra C;") + "\nC:\n    bar.sync 0;";
    let again = WAYS
        .replace("B:\n", "B:\n    add.u32 %r2, %r2, 1;\n    setp.lt.u32 %q1, %r2, %r1;\n    @%q1 bra A;\n");
    let behind = format!("{WAYS}\n    @%q1 bra A;");
    for (body, asked) in [(on_one, 3), (of_some, 3), (around, 3), (again, 1), (behind, 2)] {
        let text = confined(&body);
        assert_eq!(count(&text, "vote.sync.ballot.b32 %bh_lo, 1, -1;"), asked, "{text}");
    }
}

#[test]
fn a_barrier_behind_ways_on_which_somebody_waits_or_that_have_not_met_is_refused() {
    let add = "    add.u32 %r2, %r1, 5;\n";
    for wait in [
        "    match.any.sync.b32 %bh_m, 9, -1;\n    vote.sync.ballot.b32 %bh_lo, 1, -1;\n    shfl.sync.bfly.b32 %r2, %r2, 2, 31, %bh_m;\n",
        "    match.any.sync.b32 %bh_m, 9, -1;\n    shfl.sync.bfly.b32 %r2, %r2, 2, 31, %bh_m;\n",
        "    match.any.sync.b32 %bh_m, 9, -1;\n    vote.sync.ballot.b32 %bh_lo, 1, -1;\n    setp.ne.s32 %bh_q, %bh_lo, %bh_m;\n    @%bh_q exit;\n    bar.sync 0;\n",
        "    match.any.sync.b32 %bh_lo, 9, -1;\n    vote.sync.ballot.b32 %bh_hi, 1, -1;\n    setp.ne.s32 %bh_q, %bh_lo, -1;\n    @%bh_q exit;\n    bar.warp.sync -1;\n    activemask.b32 %bh_lo;\n    setp.ne.s32 %bh_q, %bh_lo, -1;\n    @%bh_q exit;\n",
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

#[test]
fn all_barriers_of_a_body_are_of_one_kind() {
    let one = of(&whole(
        "    bar.red.or.pred %q2, 0, %q1;\n    selp.u32 %r3, 1, 2, %q2;\n    bar.red.or.pred %q2, 0, !%q1;",
    ));
    assert_eq!(one.matches("bar.red.or.pred").count(), 4, "{one}");
    let other = one.replacen("bar.red.or.pred", "bar.red.and.pred", 1);
    assert!(findings(&other).contains("barriers of several kinds"), "{other}");
    // A count of those for which a predicate holds stands for each.
    let body = "    mov.u32 %r3, 0;\n    @%q1 bra A;\n    bar.red.and.pred %q2, 0, %q1;\n    bra B;\nA:\n    bar.sync 0;\nB:\n    @%q1 bar.red.or.pred %q3, 0, !%q2;\n    bar.red.popc.u32 %r4, 0, %q3;";
    let text = of(&whole(body));
    let before = text.split("__bh_fast_k").next().unwrap();
    let barriers: Vec<&str> =
        before.lines().filter(|line| line.contains("bar.") || line.contains("barrier.")).collect();
    assert_eq!(barriers.len(), 4, "{text}");
    assert!(barriers.iter().all(|line| line.contains("red.popc.u32")), "{barriers:?}");
}

#[test]
fn whoever_claims_that_warps_are_rows_has_launches_asked_for_it() {
    // Half a warp of a block of 16 by 2 would come to the barrier.
    let text = of(&whole(
        "    mov.u32 %r4, %tid.y;
    setp.ne.u32 %q2, %r4, 0;
    @%q2 bra L;
    bar.sync 0;
L:",
    ));
    let (entry, fast) = text.split_at(text.find(".visible .entry __bh_fast_k").unwrap());
    assert!(fast.contains("barrier.sync 0;") && !rows(&text), "{text}");
    let hostile = format!("{entry}{}", fast.replace("barrier.sync 0;", "bar.sync 0;"));
    let predicate = fast.lines().find(|line| line.contains("setp.ne.u32")).unwrap();
    let mut words = predicate.split([' ', ',']).filter(|word| word.starts_with('%'));
    let (predicate, register) = (words.next().unwrap(), words.next().unwrap());
    let uniform = format!("entry __bh_fast_k\nsame {register}\nsame {predicate}\n");
    // What is claimed of numbers stays.
    let lanes =
        |line: &&str| line.ends_with(" together") || line.starts_with("same ") || line.starts_with("row");
    let all = bulkhead_guard::claims(&hostile, &Gates::default()).to_string();
    let numbers: String = all.lines().filter(|line| !lanes(line)).map(|line| format!("{line}\n")).collect();
    let claimed = |claims: &str| {
        verify_claimed(&hostile, &format!("{numbers}{claims}").parse().unwrap(), &Gates::default())
    };
    assert!(claimed(&uniform).is_err());
    let verified = claimed(&format!("{uniform}rows\n")).unwrap();
    assert!(verified.entries()[0].fast.as_ref().unwrap().rows, "{hostile}");
    // Others are launched in any shape.
    assert!(claimed(&format!("{uniform}rows\nentry bh_e_k\nrows\n")).is_err());
}

#[test]
fn what_is_known_of_registers_holds_over_the_zeroing() {
    let shared = "    .shared .align 16 .b8 sh[16];
    setp.eq.u32 %q2, %r1, 0;
    ld.global.u32 %r7, [%d1];
    @%q2 bra L;
    vote.sync.ballot.b32 %r3, %q2, -1;
    st.shared.u32 [sh], %r3;
L:
    setp.eq.u32 %q2, %r2, 0;
    mov.u32 %r3, 0;
    @%q2 st.global.u32 [%d1], %r7;";
    let local = "    .local .align 16 .b8 lo[9000];
    mov.u32 %r3, 0;
    mov.u32 %r5, %r1;
    st.local.u32 [lo+16], %r2;
    setp.eq.u32 %q2, %r5, 0;
    @%q2 bra L;
    bar.sync 0;
    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
L:
    mov.u32 %r5, %laneid;
    ld.local.u32 %r4, [lo+16];
    add.u32 %r3, %r3, %r4;
    add.u32 %r3, %r3, %r5;";
    for body in [shared, local] {
        let text = of(&whole(body));
        assert!(text.contains("__bh_"), "{text}");
    }
}
