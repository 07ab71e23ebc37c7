//! Parameters that fast versions bound: what that proves, what a launch is asked for it, and what the verifier refuses.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use bulkhead_guard::{BoundTerm, confine, parse, print, verify};

/// Three rows that take turns, gone through by indices up to a parameter.
const SOURCE: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 first, .param .align 4 .b8 second[8])
{
    .reg .pred %q<4>;
    .reg .b32 %i<16>;
    .shared .align 4 .b8 rows[1560];
    ld.param.u32 %i0, [second+4];
    mov.u32 %i1, %tid.x;
    mov.u32 %i2, %ntid.x;
    mov.u32 %i3, rows;
    add.s32 %i4, %i3, 520;
    add.s32 %i5, %i3, 1040;
    mov.u32 %i6, 0;
AGAIN:
    setp.gt.s32 %q0, %i1, %i0;
    @%q0 bra NEXT;
    mov.u32 %i7, %i1;
TURN:
    setp.eq.s32 %q1, %i7, 0;
    shl.b32 %i8, %i7, 2;
    add.s32 %i9, %i5, %i8;
    @%q1 bra FIRST;
    add.s32 %i10, %i3, %i8;
    add.s32 %i11, %i4, %i8;
    ld.shared.u32 %i12, [%i10+-4];
    ld.shared.u32 %i13, [%i11];
    add.s32 %i12, %i12, %i13;
    st.shared.u32 [%i9], %i12;
    bra STEP;
FIRST:
    st.shared.u32 [%i9], %i6;
STEP:
    add.s32 %i7, %i7, %i2;
    setp.le.s32 %q2, %i7, %i0;
    @%q2 bra TURN;
NEXT:
    bar.sync 0;
    mov.u32 %i14, %i3;
    mov.u32 %i3, %i4;
    mov.u32 %i4, %i5;
    mov.u32 %i5, %i14;
    add.s32 %i6, %i6, 1;
    setp.lt.s32 %q3, %i6, %i0;
    @%q3 bra AGAIN;
    ret;
}
";

/// What the guard makes of a text: the confined version, and the fast one where there is one.
fn versions(source: &str) -> (String, Option<String>) {
    let module = parse(source).unwrap_or_else(|report| panic!("{report}"));
    let text = print(&confine(&module).unwrap_or_else(|report| panic!("{report}")));
    verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    match text.split_once(".visible .entry __bh_fast_") {
        Some((confined, fast)) => (confined.to_owned(), Some(format!(".visible .entry __bh_fast_{fast}"))),
        None => (text, None),
    }
}

/// What bounds the parameter.
fn lines() -> String {
    let load = |to| format!("ld.param.u32 {to}, [bh_v_second+4];");
    let test = "setp.gt.u32 %bh_q, %bh_lo, 255;\n    @%bh_q exit;";
    format!("{}\n    {test}\n    {}", load("%bh_lo"), load("%r0"))
}

fn masks(text: &str) -> usize {
    text.matches("and.b32 %bh_s, %bh_s").count()
}

#[test]
fn a_parameter_is_bounded_where_that_proves_accesses_in_loops() {
    let (confined, fast) = versions(SOURCE);
    let fast = fast.unwrap();
    assert!(masks(&confined) == 4 && !confined.contains("setp.gt.u32 %bh_q"), "{confined}");
    assert!(masks(&fast) == 0, "{fast}");
    assert!(fast.contains(&lines()), "{fast}");
    let verified = verify(&(confined + &fast)).unwrap();
    let version = verified.entries()[0].fast.clone().unwrap();
    assert_eq!(version.bounds, [BoundTerm { parameter: 1, offset: 4, most: 255 }]);
    assert!(version.shared.is_empty() && version.pointers.is_empty());
}

#[test]
fn what_no_bound_proves_stays_masked() {
    let cases = [
        // More is done with an address than that it is moved.
        ("mov.u32 %i5, %i14;", "add.s32 %i5, %i14, 4;"),
        ("mov.u32 %i5, %i14;", "@%q1 add.s32 %i5, %i5, 4; mov.u32 %i5, %i14;"),
        ("mov.u32 %i14, %i3;", "ld.shared.u32 %i14, [rows];"),
        // The index is not stepped by little, or not tested, or not only.
        ("add.s32 %i7, %i7, %i2;", "add.s32 %i7, %i7, %i12;"),
        ("add.s32 %i7, %i7, %i2;", "sub.s32 %i7, %i7, %i2;"),
        ("setp.le.s32 %q2, %i7, %i0;", "setp.ne.s32 %q2, %i7, %i0;"),
        ("setp.le.s32 %q2, %i7, %i0;", "setp.le.s32 %q2, %i12, %i0;"),
        ("setp.le.s32 %q2", "@%q1 bra TURN; setp.le.s32 %q2"),
        ("FIRST:", "FIRST: mov.u32 %i7, %i12;"),
        // The parameter is not what it was loaded as.
        ("mov.u32 %i1, %tid.x;", "mov.u32 %i1, %tid.x; add.s32 %i0, %i0, 1;"),
    ];
    for (from, to) in cases {
        assert!(SOURCE.contains(from), "{from}");
        let (confined, fast) = versions(&SOURCE.replace(from, to));
        assert!(fast.is_none_or(|fast| masks(&fast) > 0), "{to}\n{confined}");
    }
    // Of so small an array hardly any launch would keep the bound.
    let (_, fast) =
        versions(&SOURCE.replace("1560", "48").replace(", 520", ", 16").replace(", 1040", ", 32"));
    assert!(fast.is_none_or(|fast| !fast.contains("setp.gt.u32 %bh_q, %bh_lo")));
}

#[test]
fn the_verifier_takes_no_bound_that_does_not_prove_what_is_left_alone() {
    let (confined, fast) = versions(SOURCE);
    let fast = fast.unwrap();
    let both = |fast: &str| verify(&format!("{confined}{fast}"));
    assert!(both(&fast).is_ok());
    let lines = lines();
    assert!(fast.contains(&lines));
    let with = |new: &str| both(&fast.replace(&lines, new));
    // As much as the text itself is made for may be less.
    let less = with(&lines.replace("255", "17")).unwrap();
    assert_eq!(less.entries()[0].fast.as_ref().unwrap().bounds[0].most, 17);
    let (load, own) = ("ld.param.u32 %bh_lo, [bh_v_second+4];", "ld.param.u32 %r0, [bh_v_second+4];");
    let (test, end) = ("setp.gt.u32 %bh_q, %bh_lo, 255;", "@%bh_q exit;");
    for broken in [
        own.to_owned(),
        lines.replace("255", "256"),
        lines.replace("255", "-1"),
        lines.replace("255", "%r1"),
        lines.replace("setp.gt.u32", "setp.gt.s32"),
        lines.replace("setp.gt.u32", "setp.lt.u32"),
        lines.replace("setp.gt.u32", "@%p0 setp.gt.u32"),
        lines.replace("%bh_lo", "%bh_hi"),
        lines.replace("%bh_q", "%p0"),
        lines.replace("@%bh_q", "@!%bh_q"),
        lines.replace(end, "@%bh_q bra $L0;"),
        lines.replace("ld.param.u32", "ld.param.s32"),
        lines.replace(load, "ld.param.u32 %bh_lo, [bh_v_second];"),
        lines.replace(own, "ld.param.u32 %r0, [bh_v_second];"),
        lines.replace(own, "@%p0 ld.param.u32 %r0, [bh_v_second+4];"),
        lines.replace("bh_v_second+4", "bh_v_second+8"),
        lines.replace("bh_v_second+4", "bh_v_second+2"),
        lines.replace("[bh_v_second+4]", "[bh_v_third]"),
        lines.replace("[bh_v_second+4]", "[__bh_base]"),
        lines.replace(load, ""),
        lines.replace(test, ""),
        lines.replace(end, ""),
        lines.replace(own, ""),
        lines.replace(end, &format!("{end}\n    mov.u32 %r3, %tid.x;")),
        lines.replace(test, &format!("{test}\n    mov.u32 %r3, %tid.x;")),
        lines.replace(end, &format!("{end}\n$L99:")),
        format!("{lines}\n    add.s32 %r0, %r0, 1;"),
        format!("{lines}\n    {own}"),
    ] {
        let canonical = broken.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("\n");
        assert!(with(&canonical).is_err(), "{canonical}");
    }
    // The confined version is for all launches.
    let text = format!("{}{fast}", confined.replace(own, &lines));
    assert!(text.matches(&lines).count() == 2 && verify(&text).is_err());
    // The bounds of a fast version are few.
    let many = |count: usize| {
        let more = (0..count).map(|at| {
            format!("{}\n    ", lines.replace("bh_v_second+4", &format!("bh_v_third+{}", 4 * at + 4)))
        });
        let text = format!("{confined}{}", fast.replace(&lines, &(more.collect::<String>() + &lines)));
        verify(&text.replace("bh_v_second[8]", "bh_v_second[8],\n    .param .align 4 .b8 bh_v_third[64]"))
    };
    assert_eq!(many(3).unwrap().entries()[0].fast.as_ref().unwrap().bounds.len(), 4);
    assert!(many(4).is_err());
}

#[test]
fn a_bound_is_no_way_around_a_counter_or_around_zeroing() {
    let (confined, fast) = versions(SOURCE);
    let fast = fast.unwrap();
    // What a loop steps is set back in every turn.
    let step = fast.lines().find(|line| line.contains("add.s32 %r7, %r7, %r2;")).unwrap();
    let back = format!("    {}\n{step}", lines().replace("%r0", "%r7"));
    assert!(verify(&format!("{confined}{}", fast.replacen(step, &back, 1))).is_err());
    // Threads end that others wait for, where shared memory is zeroed.
    let first = "    mov.b32 %bh_low, bh_v_rows+1024;\n";
    assert!(fast.contains(first));
    let early = fast.replace(&format!("    {}\n", lines()), "");
    let early = early.replace(first, &format!("    {}\n{first}", lines()));
    assert!(verify(&format!("{confined}{early}")).is_err());
}

/// Threads end at a bound, and whoever has copies on their way would have to wait for them first.
#[test]
fn nothing_is_bounded_where_copies_may_be_on_their_way() {
    let copies = "    mov.u32 %i6, 0;\n    ld.param.u64 %d1, [first];\n    cp.async.ca.shared.global [%i3], [%d1], 4;\n    \
                  cp.async.wait_all;\n";
    let source = SOURCE.replace(".reg .b32 %i<16>;", ".reg .b32 %i<16>;\n    .reg .b64 %d<2>;").replacen(
        "    mov.u32 %i6, 0;\n",
        copies,
        1,
    );
    let (confined, fast) = versions(&source);
    let fast = fast.unwrap();
    let own = "ld.param.u32 %r0, [bh_v_second+4];";
    assert!(fast.contains(own) && !fast.contains(&lines()) && verify(&format!("{confined}{fast}")).is_ok());
    let report = verify(&format!("{confined}{}", fast.replacen(own, &lines(), 1))).unwrap_err();
    assert!(report.to_string().contains("copies may be on their way"), "{report}");
}
