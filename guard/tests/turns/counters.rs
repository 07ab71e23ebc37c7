//! Counters of loops, and where a loop with one is entered.

use super::*;

/// A loop in a loop, which goes on early.
const NEST: &str = ".version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u32 i, .param .u32 n, .param .u32 s, .param .u64 p)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    .reg .pred %q<4>;
    ld.param.u32 %r1, [i];
    ld.param.u32 %r2, [n];
    ld.param.u64 %d1, [p];
    mov.u32 %r5, 1;
    mov.u32 %r3, 0;
O:
    add.s32 %r1, %r1, 1;
    mov.u32 %r3, 0;
I:
    add.s32 %r5, %r5, %r3;
    setp.lt.s32 %q2, %r5, 0;
    @%q2 bra SKIP;
    add.s32 %r3, %r3, 1;
SKIP:
    add.s32 %r3, %r3, 1;
    setp.le.s32 %q1, %r3, %r2;
    @%q1 bra I;
    setp.lt.s32 %q1, %r1, %r2;
    @%q1 bra O;
    st.global.u32 [%d1], %r5;
    ret;
}
";

#[test]
fn a_counter_is_one_loop_s_alone_and_set_before_it_only() {
    let text = confined(NEST);
    assert!(text.contains("%bh_c<2>"), "{text}");
    for (from, to) in [
        ("%bh_c1, %bh_c1, -1;", "%bh_c0, %bh_c0, -1;"),
        ("setp.gt.and.s32 %bh_q, %bh_c1, 0", "setp.gt.and.s32 %bh_q, %bh_c0, 0"),
        ("setp.gt.and.s32 %bh_q, %bh_c1, 0", "setp.ge.and.s32 %bh_q, %bh_c1, 0"),
        ("setp.gt.and.s32 %bh_q, %bh_c1, 0", "setp.gt.or.s32 %bh_q, %bh_c1, 0"),
        ("    add.s32 %bh_c1, %bh_c1, -1;\n", ""),
        ("add.s32 %bh_c1, %bh_c1, -1;", "add.s32 %bh_c1, %bh_c1, 1;"),
    ] {
        refused(&text, from, to);
    }
    // However often a loop turns, all its turns are bounded, be the path short or not.
    let one = confined(&with("-1", "gt.s32", "%r2"));
    let set = one.lines().find(|line| line.contains("mov.u32 %bh_c0")).unwrap().trim();
    let turns = |turns: u64| format!("mov.u32 %bh_c0, {turns};");
    verify(&one.replacen(set, &turns(CHUNK_COST_MAX / 64), 1)).unwrap();
    for most in [CHUNK_COST_MAX / 3, CHUNK_COST_MAX / 2] {
        assert!(most * 5 < PATH_COST_MAX);
        refused(&one, set, &turns(most));
    }
    for counter in ["%bh_c0", "%bh_c1"] {
        let set = text.lines().find(|line| line.contains(&format!("mov.u32 {counter}"))).unwrap().trim();
        refused(&text, set, &format!("mov.u32 {counter}, {CHUNK_COST_MAX};"));
        refused(&text, set, &format!("mov.u32 {counter}, 0;"));
        refused(&text, set, &format!("mov.u32 {counter}, -1;"));
        refused(&text, set, &format!("mov.u32 {counter}, %r0;"));
    }
}

/// The line of a label, by what stands behind it.
fn label_before<'a>(text: &'a str, line: &str) -> &'a str {
    let (before, _) = text.split_once(line).unwrap();
    before.lines().rev().find_map(|line| line.strip_suffix(':')).unwrap()
}

#[test]
fn a_loop_with_a_counter_is_entered_at_its_beginning_only() {
    let text = confined(NEST);
    let first = text.lines().find(|line| line.contains("mov.u32 %bh_c0")).unwrap();
    // From before it, to where it turns and into its middle; from behind it, likewise.
    let turns: Vec<&str> = ["%bh_c0", "%bh_c1"]
        .iter()
        .map(|counter| {
            let (_, after) = text.split_once(&format!("mov.u32 {counter}, ")).unwrap();
            after.lines().find_map(|line| line.strip_suffix(':')).unwrap()
        })
        .collect();
    let poll = POLL.trim_end();
    for turn in &turns {
        let before = format!("    setp.lt.s32 %p0, %r0, 9;\n    @%p0 bra {turn};\n{first}");
        refused(&text, first, &before);
        let behind = format!("{}\n    bra {turn};\n}}\n", poll);
        refused(&text, "    ret;\n}\n", &behind);
    }
    let skip = label_before(&text, "setp.le.s32").to_owned();
    refused(&text, "    ret;\n}\n", &format!("{}\n    bra {skip};\n}}\n", poll));
    refused(&text, first, &format!("    setp.lt.s32 %p0, %r0, 9;\n    @%p0 bra {skip};\n{first}"));
}

#[test]
fn any_number_of_loops_in_a_row_polls_between_them() {
    let one = "    mov.u32 %r6, 0;\nL:\n    add.s32 %r5, %r5, %r6;\n    add.s32 %r6, %r6, 1;\n    setp.lt.s32 %q1, %r6, %r2;\n    @%q1 bra L;\n";
    let row: String = (0..200)
        .map(|index| one.replace("L:", &format!("L{index}:")).replace("bra L", &format!("bra L{index}")))
        .collect();
    let (head, _) = LOOP.split_once("L:\n").unwrap();
    let text = confined(&format!("{head}{row}    st.global.u32 [%d1], %r5;\n    ret;\n}}\n"));
    let values = HashMap::from([("n", 2000)]);
    let ran = run(&text, &values, 2_000_000);
    assert!(ran.between as u64 <= PATH_COST_MAX && ran.polls > 1, "{ran:?}");
    // Without the polls between them it is too much.
    let without = without_polls_between(&text);
    assert!(text != without && verify(&without).is_err(), "verified without a poll");
}
