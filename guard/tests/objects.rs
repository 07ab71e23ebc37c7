//! The verifier against parts of registers where none may be, and against barrier objects that the device would count on.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{confine, parse, print, verify};

const SOURCE: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<4>;
    .reg .b64 %d<4>;
    .reg .pred %q<2>;
    .shared .align 8 .b64 s[32];
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    setp.eq.u32 %q1, %r1, 0;
    @%q1 mbarrier.arrive.shared.b64 _, [s];
    st.global.u32 [%d1], %r1;
    ret;
}
";

/// Stands behind the prologue.
const FIRST: &str = "    ld.param.u32 %r0, [bh_v_n];";

/// What is found in the confined text with a line more.
fn findings_with(line: &str) -> Vec<String> {
    let text = print(&parse(SOURCE).and_then(|module| confine(&module)).unwrap());
    assert!(text.contains(FIRST) && !text.contains("mbarrier"), "{text}");
    let text = text.replacen(FIRST, &format!("{FIRST}\n    {line}"), 1);
    match verify(&text) {
        Ok(_) => Vec::new(),
        Err(report) => report.findings.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn parts_of_registers_stand_in_video_instructions_only_and_not_of_the_guards() {
    for (line, why) in [
        ("vadd.u32.u32.u32 %r0, %bh_base.b0, %r0;", "a sequence that is interrupted"),
        ("vadd.u32.u32.u32 %bh_s.h0, %r0, %r0, %r0;", "a sequence that is interrupted"),
        ("vset4.u32.u32.lt %bh_base.b310, %r0, %r0, %r0;", "a sequence that is interrupted"),
        ("vmad.u32.u32.u32 %r0, -%bh_lo.h1, %r0, %r0;", "a sequence that is interrupted"),
        ("add.u32 %r0, %r0.h1, 1;", "a part of a register"),
        ("vadd.u32.u32.u32 %r0, %r0.h7654, -1;", ""),
        ("vadd.u32.u32.u32 %r0, %r9.b1, 1;", "`%r9`"),
        ("vadd.u32.u32.u32 %tid.x, %r0, 1;", "does not take such an operand 1"),
    ] {
        let found = findings_with(line);
        if why.is_empty() {
            // Which parts there are the assembler knows.
            assert_eq!(found, Vec::<String>::new(), "{line}");
        } else {
            assert!(found.iter().any(|finding| finding.contains(why)), "{line}: {found:?}");
        }
    }
    assert_eq!(findings_with("vadd.u32.u32.u32.sat %r0.h0, %r0.b3, %r0, %r0;"), Vec::<String>::new());
}

#[test]
fn objects_that_the_device_counts_on_are_refused() {
    for line in [
        "mbarrier.init.shared.b64 [%bh_s], 1;",
        "mbarrier.inval.shared.b64 [bh_v_s];",
        "mbarrier.arrive.shared.b64 _, [bh_v_s];",
        "mbarrier.arrive_drop.expect_tx.shared.b64 _, [bh_v_s], 4;",
        "mbarrier.test_wait.parity.shared.b64 %p0, [bh_v_s], 1;",
        "mbarrier.try_wait.parity.shared.b64 %p0, [bh_v_s], 1, 100000;",
        "mbarrier.complete_tx.shared.b64 [bh_v_s], 16;",
        "mbarrier.pending_count.b64 %r0, %d0;",
        "cp.async.mbarrier.arrive.noinc.shared.b64 [bh_v_s];",
    ] {
        let found = findings_with(line);
        assert!(
            found.iter().any(|finding| finding.contains("barrier objects (`mbarrier`)")),
            "{line}: {found:?}"
        );
    }
}
