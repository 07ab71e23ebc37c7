//! Loops that need no counter, since they are known to end by themselves.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use bulkhead_guard::{confine, parse, print, verify};

/// A loop whose register begins as `set` leaves it.
fn source(set: &str, step: i64, compare: &str, bound: &str) -> String {
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n)\n{{\n    \
         .reg .b32 %r<8>;\n    .reg .b64 %d<8>;\n    .reg .pred %q<4>;\n    ld.param.u64 %d1, [p];\n    \
         ld.param.u32 %r1, [n];\n    mov.u32 %r3, 1;\n    {set}\nL:\n    mul.lo.s32 %r3, %r3, 7;\n    \
         add.s32 %r2, %r2, {step};\n    setp.{compare} %q1, %r2, {bound};\n    @%q1 bra L;\n    \
         st.global.u32 [%d1], %r3;\n    ret;\n}}\n"
    )
}

fn confined(source: &str) -> String {
    print(&parse(source).and_then(|module| confine(&module)).unwrap_or_else(|report| panic!("{report}")))
}

fn findings(text: &str) -> Vec<String> {
    let report = verify(text).err();
    report.map_or(Vec::new(), |report| report.findings.iter().map(ToString::to_string).collect())
}

/// Whether a loop ends after at most so many turns.
fn ends(mut value: u32, step: i64, compare: &str, bound: i64, most: u32) -> bool {
    let [step, bound] = [step, bound].map(|number| u32::try_from(number & 0xffff_ffff).unwrap());
    for _ in 0..most {
        value = value.wrapping_add(step);
        let (one, other) = (value.cast_signed(), bound.cast_signed());
        let goes_on = match compare {
            "lt.s32" => one < other,
            "le.s32" => one <= other,
            "gt.s32" => one > other,
            "ge.s32" => one >= other,
            "lt.u32" => value < bound,
            "le.u32" => value <= bound,
            "gt.u32" => value > bound,
            "ge.u32" => value >= bound,
            "ne.s32" => one != other,
            _ => panic!("{compare}"),
        };
        if !goes_on {
            return true;
        }
    }
    false
}

const COMPARES: [&str; 9] =
    ["lt.s32", "le.s32", "gt.s32", "ge.s32", "lt.u32", "le.u32", "gt.u32", "ge.u32", "ne.s32"];

#[test]
fn no_loop_goes_without_a_counter_that_turns_for_long() {
    let firsts = [0_i64, 1, 7, 8, 9, 0x7fff_ffff, 0x7fff_fff0, -1, -0x8000_0000];
    let steps = [1, 2, 3, -1, -2, -3, 1 << 30, -(1 << 30), (1 << 30) - 1, 0x7fff_ffff];
    let bounds = [0, 1, 2, 8, 9, 4000, -5, 0x7fff_ffff, 0x7fff_fffe];
    let (mut without, mut all) = (0, 0);
    for first in firsts {
        for step in steps {
            for compare in COMPARES {
                for bound in bounds {
                    let source = source(&format!("mov.u32 %r2, {first};"), step, compare, &bound.to_string());
                    let text = confined(&source);
                    assert_eq!(findings(&text), [""; 0], "{source}\n{text}");
                    all += 1;
                    if !text.contains("%bh_c") {
                        without += 1;
                        let value = u32::try_from(first & 0xffff_ffff).unwrap();
                        assert!(ends(value, step, compare, bound, 1 << 15), "{source}");
                    }
                }
            }
        }
    }
    assert!(without > all / 10, "{without} of {all}");
}

#[test]
fn what_is_left_over_by_an_unrolled_loop_needs_no_counter() {
    let left = "and.b32 %r2, %r1, 3; setp.eq.s32 %q2, %r2, 0; @%q2 bra OUT; mov.u32 %r4, 5;";
    let with = |set: &str, step: i64, compare: &str, bound: &str| {
        let source = source(set, step, compare, bound);
        let source = source.replace("    st.global", "OUT:\n    st.global");
        let text = confined(&source);
        assert_eq!(findings(&text), [""; 0], "{text}");
        !text.contains("%bh_c")
    };
    assert!(with(left, -1, "ne.s32", "0"));
    assert!(with("mov.u32 %r2, 0; bra NEXT; NEXT: mov.u32 %r2, 0;", 2, "ne.s32", "8"));
    assert!(with("mov.u32 %r2, 0; and.b32 %r4, %r1, 31;", 1, "lt.s32", "%r4"));
    // Where the register may be zero, the turns are all that 32 bits count.
    for may_be_zero in [
        "and.b32 %r2, %r1, 3;",
        "and.b32 %r2, %r1, 3; setp.eq.s32 %q2, %r2, 1; @%q2 bra OUT;",
        "and.b32 %r2, %r1, 3; setp.eq.s32 %q2, %r2, 0; @!%q2 bra OUT;",
        "and.b32 %r2, %r1, 3; setp.ne.s32 %q2, %r2, 0; @%q2 bra OUT;",
        "and.b32 %r2, %r1, 3; setp.eq.s32 %q2, %r1, 0; @%q2 bra OUT;",
        "and.b32 %r2, %r1, 3; setp.eq.s32 %q2, %r2, 0; setp.eq.s32 %q2, %r1, 0; @%q2 bra OUT;",
        "and.b32 %r2, %r1, 3; setp.eq.s32 %q2, %r2, 0; and.b32 %r2, %r1, 3; @%q2 bra OUT;",
        "and.b32 %r2, %r1, 3; setp.eq.s32 %q2, %r2, 0; NEXT: @%q2 bra OUT;",
        "setp.eq.s32 %q2, %r1, 0; and.b32 %r2, %r1, 3; @%q2 bra OUT;",
        "and.b32 %r2, %r1, 3; @%q1 bra OUT; setp.eq.s32 %q2, %r2, 0; @%q2 exit;",
    ] {
        assert!(!with(may_be_zero, -1, "ne.s32", "0"), "{may_be_zero}");
    }
    // Somebody else comes to the loop, or what it begins as is not known there.
    assert!(!with(
        "mov.u32 %r2, %r1; setp.eq.s32 %q2, %r1, 0; @%q2 bra L; mov.u32 %r2, 0;",
        2,
        "ne.s32",
        "8"
    ));
    assert!(with("mov.u32 %r2, 0; NEXT: mov.u32 %r4, 5;", 2, "ne.s32", "8"));
    let either = "mov.u32 %r2, 0; @%q1 bra NEXT; mov.u32 %r2, 4; NEXT: mov.u32 %r4, 5;";
    assert!(!with(either, 2, "ne.s32", "8"));
    assert!(with(either, 2, "lt.s32", "8"));
    assert!(!with("mov.u32 %r2, 0; NEXT: mov.u32 %r2, %r1; @%q1 bra NEXT;", 2, "ne.s32", "8"));
    assert!(!with("mov.u32 %r2, 0;", 1, "lt.s32", "%r1"));
    assert!(!with("@%q1 mov.u32 %r2, 0;", 1, "lt.s32", "8"));
}

#[test]
fn a_loop_without_a_counter_that_may_turn_on_is_refused() {
    let text = confined(&source("mov.u32 %r2, 0;", 2, "ne.s32", "8"));
    assert_eq!(findings(&text), [""; 0], "{text}");
    let broken = |from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from} in\n{text}");
        let changed = print(&parse(&changed).unwrap());
        assert!(!findings(&changed).is_empty(), "{from} {to}\n{changed}");
    };
    let step = "    add.s32 %r2, %r2, 2;\n";
    assert!(text.contains(step) && text.contains("    @%p0 bra $L0;\n"), "{text}");
    broken("mov.u32 %r2, 0;", "mov.u32 %r2, %r0;");
    broken("mov.u32 %r2, 0;", "mov.u32 %r2, 1;");
    broken("mov.u32 %r2, 0;", "mov.u32 %r2, 8;");
    broken("$L0:", "mov.u32 %r2, %r0;\n$L0:");
    let elsewhere = "    setp.eq.s32 %p0, %r0, 0;\n    @%p0 bra $L7;\n    mov.u32 %r2, 1;\n$L7:\n$L0:";
    broken("$L0:", elsewhere);
    broken("$L0:", "$L7:\n    mov.u32 %r2, %r0;\n$L0:");
    broken(
        "mov.u32 %r2, 0;",
        "mov.u32 %r2, 0;\n    setp.eq.s32 %p0, %r0, 0;\n    @%p0 bra $L0;\n    mov.u32 %r2, 1;",
    );
    broken(step, "    add.s32 %r2, %r2, 3;\n");
    broken(step, "    add.s32 %r2, %r2, -2;\n");
    broken(step, "    add.s32 %r2, %r2, %r0;\n");
    broken(step, "    @%p0 add.s32 %r2, %r2, 2;\n");
    broken(step, "");
    broken(step, &format!("{step}{step}"));
    broken(step, &format!("{step}    mov.u32 %r2, 0;\n"));
    broken(step, &format!("{step}$L7:\n"));
    broken(step, &format!("{step}    bra $L7;\n$L7:\n"));
    broken(step, &format!("    setp.eq.s32 %p0, %r0, 0;\n    @%p0 bra $L0;\n{step}"));
    broken("setp.ne.s32 %p0, %r2, 8", "setp.ne.s32 %p0, %r2, 7");
    broken("setp.ne.s32 %p0, %r2, 8", "setp.ne.s32 %p0, %r0, 8");
    broken("setp.ne.s32 %p0, %r2, 8", "setp.ge.s32 %p0, %r2, 8");
    broken("    @%p0 bra $L0;\n", "    @!%p0 bra $L0;\n");
    broken("    @%p0 bra $L0;\n", "    bra $L0;\n");
    // Going back from somewhere else, where the register is beyond all that ends the loop.
    broken(
        "    @%p0 bra $L0;\n",
        "    @%p0 bra $L0;\n    mov.u32 %r2, 9;\n    setp.ne.s32 %p0, %r2, 8;\n    @%p0 bra $L0;\n",
    );
    let poll = "    or.b32 %bh_hi, %bh_base, %bh_loadmask;\n    mov.u32 %bh_lo, %smid;\n    shl.b32 %bh_lo, %bh_lo, 7;\n    \
                lop3.b32 %bh_lo, %bh_lo, 65408, -65536, 234;\n    mov.b64 %bh_k, {%bh_lo, %bh_hi};\n    \
                ld.relaxed.sys.global.b32 %bh_n, [%bh_k];\n    setp.lt.s32 %bh_q, %bh_n, 0;\n    @%bh_q exit;\n";
    broken("    @%p0 bra $L0;\n", &format!("    @%p0 bra $L0;\n    mov.u32 %r2, 9;\n{poll}    bra $L0;\n"));
    // More than may be done without a look.
    let long = confined(&source("mov.u32 %r2, 0;", 1, "lt.s32", "700"));
    let longer = long.replacen("%r2, 700", "%r2, 700000", 1);
    assert!(
        !long.contains("%bh_c")
            && findings(&longer)
                .iter()
                .any(|found| found.contains("does not poll") || found.contains("in time"))
    );
}
