//! Where all lanes of a warp are together.

use super::*;

pub(super) const ASK: &str = "setp.ne.s32 %bh_q, %bh_lo, %bh_m;";

#[test]
fn lanes_begin_together_and_stay_so_where_all_go_the_same_way() {
    // By what is the same for all: a parameter, and how often all of them were here.
    let turns = "    mov.u32 %r4, 0;
A:
    bar.sync 0;
    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %q2, %r4, %r1;
    @%q2 bra A;
    setp.eq.u32 %q3, %r1, 5;
    @%q3 bra B;
    bar.sync 0;
    bra C;
B:
    shfl.sync.bfly.b32 %r3, %r2, 2, 31, -1;
C:
    bar.sync 0;";
    let text = of(&whole(turns));
    assert_eq!((count(&text, ASK), count(&text, "activemask")), (0, 0), "{text}");
    // By what is not: the lane's number, what only some of them have counted, what is in memory.
    let add = "    add.u32 %r4, %r4, 1;\n";
    for (with, asked) in [
        (turns.replace("%r4, %r4, 1;", "%r4, %r4, %r2;"), 3),
        (turns.replace(add, &format!("    @%q1 bra D;\n{add}D:\n")), 3),
        (turns.replace(add, &format!("    @%q1 {}", add.trim_start())), 3),
        (turns.replace("%r4, 0;", "%r4, %laneid;"), 3),
        (turns.replace(add, &format!("{add}    ld.global.u32 %r4, [%d1];\n")), 3),
        (turns.replace("setp.eq.u32 %q3, %r1, 5;", "setp.eq.u32 %q3, %r2, 5;"), 2),
        (turns.replace("@%q2 bra A", "@%q1 bra A"), 3),
        (format!("    @%q1 bra B;\n{turns}"), 3),
    ] {
        let text = of(&whole(&with));
        assert_eq!(count(&text, ASK), asked, "{with}\n{text}");
    }
}

#[test]
fn lanes_come_out_of_a_loop_in_which_nothing_waits_however_many_turns_they_take() {
    let turns = "    mov.u32 %r4, 0;
A:
    add.u32 %r4, %r4, %r2;
    setp.lt.u32 %q2, %r4, 100;
    setp.eq.u32 %q3, %r4, 50;
    @%q3 bra B;
    @%q2 bra A;
    add.u32 %r3, %r4, 1;
B:
    bar.sync 0;
    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;";
    let text = of(&whole(turns));
    assert_eq!((count(&text, ASK), count(&text, "activemask")), (0, 0), "{text}");
    // What they have counted there is not the same.
    let counted = format!(
        "{turns}\n    setp.eq.u32 %q2, %r4, 7;\n    @%q2 bra C;\n    bar.sync 0;\nC:\n    bar.sync 0;"
    );
    assert_eq!(count(&of(&whole(&counted)), ASK), 2);
    // Where something waits in it, or it goes on to where somebody waits, they have to be asked.
    let waits = turns.replace("    @%q2 bra A;", "    bar.warp.sync -1;\n    @%q2 bra A;");
    assert_eq!(count(&of(&whole(&waits)), ASK), 1);
    let further = turns.replace("    add.u32 %r3, %r4, 1;", "    bar.warp.sync -1;");
    assert_eq!(count(&of(&whole(&further)), ASK), 1);
}

#[test]
fn lanes_that_went_on_before_the_others_were_asked_are_not_together_with_them() {
    // Those that go to L wait there for the block, while the others would wait for them to be asked.
    let body = "    @%q1 bra K;
    bar.warp.sync -1;
K:
    @%q1 bra L;
    bar.sync 0;
L:
    bar.sync 0;";
    let text = of(&whole(body));
    assert_eq!(count(&text, ASK), 2, "{text}");
    let last = text.split("__bh_fast_k").next().unwrap().rfind("    vote.sync.ballot").unwrap();
    let end = last + text[last..].find("    bar.sync").unwrap();
    let without = format!("{}{}", &text[..last], &text[end..]);
    assert!(findings(&without).contains(ALONE), "{without}");
}

#[test]
fn lanes_that_branch_by_an_index_are_asked() {
    let body = "    bar.warp.sync -1;
    bar.sync 0;
    mov.u32 %r4, %r2;
T: .branchtargets A, B;
    brx.idx %r4, T;
A:
    bar.sync 0;
B:
    bar.sync 0;";
    assert_eq!(count(&of(&whole(body)), ASK), 2);
}

/// What goes by the warp's number.
const BY_WARP: &str = "    mov.u32 %r4, %tid.x;
    shr.u32 %r5, %r4, 5;
    and.b32 %r6, %r4, 31;
    setp.eq.u32 %q2, %r5, 0;
    @%q2 bra A;
    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
A:
    bar.sync 0;
    mul.wide.u32 %d2, %r6, 4;
    add.s64 %d2, %d1, %d2;
    st.global.u32 [%d2], %r6;";

pub(super) fn rows(text: &str) -> bool {
    verify(text).unwrap().entries()[0].fast.as_ref().unwrap().rows
}

#[test]
fn a_warp_that_is_a_row_of_its_block_goes_one_way_by_its_number() {
    let text = of(&whole(BY_WARP));
    assert_eq!(count(&text, ASK), 1, "{text}");
    let fast = text.split("__bh_fast_k").nth(1).unwrap();
    assert!(!fast.contains(ASK) && rows(&text), "{text}");
    // What does not go by it is no term.
    assert!(!rows(&of(&whole(&BY_WARP.replace("shr.u32 %r5, %r4, 5;", "mov.u32 %r5, %r1;")))));
    for other in
        ["shr.u32 %r5, %r4, 4;", "and.b32 %r5, %r4, 16;", "shr.u32 %r5, %r2, 5;", "shl.b32 %r5, %r4, 27;"]
    {
        let text = of(&whole(&BY_WARP.replace("shr.u32 %r5, %r4, 5;", other)));
        assert!(text.split("__bh_fast_k").nth(1).unwrap().contains(ASK), "{other}\n{text}");
    }
    let high = of(&whole(&BY_WARP.replace("shr.u32 %r5, %r4, 5;", "and.b32 %r5, %r4, 992;")));
    assert!(!high.split("__bh_fast_k").nth(1).unwrap().contains(ASK), "{high}");
    // Launches that do not promise it have to be asked.
    let (entry, of_rows) = text.split_at(text.find(".visible .entry __bh_fast_k").unwrap());
    let renamed = of_rows.replace("__bh_fast_k", "bh_e_k");
    assert!(
        findings(&format!("{}{renamed}", entry.split(".visible").next().unwrap())).contains("not verified")
    );
}

#[test]
fn no_branch_promises_that_all_lanes_go_the_same_way() {
    let text =
        of(&whole("    @%q1 bra.uni A;\n    mov.u32 %r3, 1;\n    bra.uni B;\nA:\n    mov.u32 %r3, 2;\nB:"));
    assert!(text.contains("bra $L") && !text.contains(".uni"), "{text}");
    let branch = text.lines().find(|line| line.contains("@%p0 bra $L")).unwrap();
    let promise = text.replacen(branch, &branch.replace("bra", "bra.uni"), 1);
    assert!(findings(&promise).contains("`.uni` of `bra`"), "{promise}");
    let promise = text.replacen("    ret;", "    ret.uni;", 1);
    assert!(findings(&promise).contains("`.uni` of `ret`"), "{promise}");
}

/// A barrier's line in both versions of an entry, which nothing but barriers waits in.
#[track_caller]
fn barriers(body: &str, line: &str, other: &str) {
    let text = of(&whole(body));
    assert!(text.contains(line) && !text.contains(other), "`{line}`, not `{other}`, in\n{text}");
}

#[test]
fn a_barrier_promises_all_lanes_of_a_warp_only_where_they_are_proven_to_come() {
    let together =
        ["bar.sync 0;", "barrier.sync 0;", "barrier.sync.aligned 0;", "bar.red.popc.u32 %r3, 0, %q1;"];
    for wait in together {
        let body = format!("    mov.u32 %r3, 0;\n    {wait}");
        barriers(&body, "    bar.", "barrier.");
        // Whoever ends is not waited for, nor is who goes to where he ends.
        barriers(&format!("    mov.u32 %r3, 0;\n    @%q1 ret;\n    {wait}"), "    bar.", "barrier.");
        // A loop that all turn alike.
        let turns = format!(
            "    mov.u32 %r3, 0;\nL:\n    add.u32 %r3, %r3, 1;\n    {wait}\n    setp.lt.u32 %q2, %r3, %r1;\n    @%q2 bra L;"
        );
        if !wait.contains("red") {
            barriers(&turns, "    bar.", "barrier.");
        }
        for apart in [
            format!("    mov.u32 %r3, 0;\n    @%q1 bra A;\n    {wait}\nA:"),
            format!("    mov.u32 %r3, 0;\n    @%q1 bra A;\n    {wait}\n    bra B;\nA:\n    {wait}\nB:"),
            format!("    mov.u32 %r3, 0;\n    @%q1 {wait}"),
            format!(
                "    mov.u32 %r3, 0;\nL:\n    add.u32 %r4, %r2, %r3;\n    {wait}\n    add.u32 %r3, %r3, 1;\n    setp.lt.u32 %q2, %r4, 9;\n    @%q2 bra L;"
            ),
        ] {
            barriers(&apart, "barrier.", "    bar.");
            let text = of(&whole(&apart));
            let promise = text.replacen("barrier.", "bar.", 1);
            assert!(findings(&promise).contains("a barrier for all lanes of a warp"), "{promise}");
            let promise = text.replacen("barrier.sync 0", "barrier.sync.aligned 0", 1);
            assert!(promise == text || findings(&promise).contains("a barrier for all lanes"), "{promise}");
        }
    }
}
