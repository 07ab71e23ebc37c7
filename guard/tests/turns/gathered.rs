//! Loops that wait for lanes: what gathers these takes of what may be done between two polls.

use std::fmt::Write as _;

use bulkhead_guard::verify;

use super::{LOOP, confined};

#[test]
fn lines_that_gather_lanes_count_where_nothing_else_does() {
    let body = "    mov.u32 %r4, 31;\n    mov.u32 %r5, 1;\nL:\n    shfl.sync.bfly.b32 %r5, %r5, 1, 31, -1;\n    add.s32 %r1, %r1, 1;\n    setp.lt.s32 %q1, %r1, %r2;\n    @%q1 bra L;\n    st.global.u32 [%d1], %r5;\n    ret;\n}\n";
    let (head, _) = LOOP.split_once("    mov.u32 %r4, 31;\n").unwrap();
    let text = confined(&format!("{head}    @%q0 bra E;\n{body}").replace("    @%q0 bra E;\n", ""));
    let wait = text.lines().find(|line| line.contains("shfl.sync")).unwrap();
    // More gathering than a loop may cost in all its turns, which the one line that counts does not pay for.
    let gather: String =
        (100..4100).map(|place| format!("    match.any.sync.b32 %bh_m, {place}, -1;\n")).collect();
    let much = text.replacen(wait, &format!("{gather}{wait}"), 1);
    assert!(verify(&much).is_err(), "verified");
}

#[test]
fn loops_in_loops_whose_lanes_are_gathered_at_every_wait_poll_in_time() {
    let head = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .b64 %d;\n\
                .reg .b32 %x, %y, %c;\n.reg .pred %p, %low;\nld.param.u64 %d, [p];\nmov.u32 %c, %tid.x;\n\
                mov.u32 %x, 0;\nsetp.lt.u32 %low, %c, 7;\n";
    for loops in 1..=6 {
        let mut text = head.to_owned();
        for number in 0..loops {
            writeln!(text, "OUTER{number}:\nINNER{number}:").unwrap();
            for wait in 0..12 {
                writeln!(
                    text,
                    "@%low bra L{number}_{wait};\nadd.u32 %c, %c, 1;\nL{number}_{wait}:\n\
                     movmatrix.sync.aligned.m8n8.trans.b16 %x, %x;"
                )
                .unwrap();
            }
            for label in ["INNER", "OUTER"] {
                writeln!(
                    text,
                    "ld.volatile.global.u32 %y, [%d];\nsetp.ne.u32 %p, %y, 1;\n@%p bra {label}{number};"
                )
                .unwrap();
            }
        }
        text.push_str("st.global.u32 [%d], %c;\nret;\n}\n");
        confined(&text);
    }
}

#[test]
fn whoever_polls_before_the_first_look_looks_first_since_lanes_meet_before_a_poll() {
    confined(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .b64 %d;\n\
         .reg .b32 %x, %c;\n.reg .pred %odd, %low, %over;\n\
         ld.global.u32 %x, [%d];\n@%odd bra END;\n@%low bra END;\n\
         L:\nbar.warp.sync 0xffff;\n@%over bra END;\nbra L;\nbarrier.sync 0;\n@%low bra L;\n\
         END:\nst.global.u32 [%d], %c;\nret;\n}\n",
    );
}
