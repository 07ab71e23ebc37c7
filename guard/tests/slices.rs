//! What an entry reads of its grid: where the grid may be cut into slices, it reads that of all of them.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{HIDDEN_PARAMETERS, SLICE_PARAMETERS, VerifiedEntry, confine, parse, print, verify};

/// An entry with such a body; each thread stores `%r2` at its own place.
fn confined(body: &str) -> String {
    let text = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .b32 %r<8>;\n.reg .b16 %h<2>;\n.reg .b64 %d<8>;\n.reg .pred %q<2>;\n\
         ld.param.u64 %d1, [p];\nmov.u32 %r2, 0;\n{body}\nst.global.u32 [%d1], %r2;\nret;\n}}\n"
    );
    print(&parse(&text).and_then(|module| confine(&module)).unwrap())
}

fn entry(text: &str) -> VerifiedEntry {
    let verified = verify(text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    let [entry] = verified.entries() else { panic!("{:?}", verified.entries()) };
    entry.clone()
}

/// What the verifier says against a text in which something stands for something else.
#[track_caller]
fn refused(text: &str, from: &str, to: &str, why: &str) {
    assert!(text.contains(from), "no `{from}` in\n{text}");
    let broken = text.replacen(from, to, 1);
    let report = verify(&broken).expect_err("it is verified");
    let found = report.findings.iter().any(|finding| finding.to_string().contains(why));
    assert!(found, "{report}\n{broken}");
}

const READS: &str = "mov.u32 %r2, %ctaid.y;\nmov.u32 %r3, %nctaid.x;\nmad.lo.s32 %r2, %r2, %r3, %r3;\n\
    mul.wide.u32 %d2, %r2, 4;\nadd.s64 %d1, %d1, %d2;";

#[test]
fn what_is_read_of_the_grid_is_that_of_all_its_slices() {
    let text = confined(READS);
    for lines in [
        "ld.param.u32 %bh_lo, [__bh_first_y];\n    mov.u32 %bh_by, %ctaid.y;\n    add.s32 %bh_by, %bh_by, %bh_lo;\n",
        "ld.param.u32 %bh_lo, [__bh_more_x];\n    mov.u32 %bh_gx, %nctaid.x;\n    add.s32 %bh_gx, %bh_gx, %bh_lo;\n",
        "mov.u32 %r0, %bh_by;",
        "mov.u32 %r1, %bh_gx;",
    ] {
        assert_eq!(text.matches(lines).count(), 1, "{lines} in\n{text}");
    }
    for unread in ["%ctaid.x", "%nctaid.y", "mov.u32 %bh_bx", "[__bh_first_z]"] {
        assert!(!text.contains(unread), "{unread} in\n{text}");
    }
    let entry = entry(&text);
    assert!(entry.sliceable);
    let hidden = HIDDEN_PARAMETERS.len() + SLICE_PARAMETERS.len();
    assert_eq!((entry.parameters, entry.hidden), (1 + hidden, hidden));
}

#[test]
fn an_entry_that_reads_nothing_of_its_grid_is_as_it_was_and_may_be_cut() {
    let text = confined("mov.u32 %r2, %tid.x;");
    let entry = entry(&text);
    assert!(entry.sliceable && !text.contains("__bh_first"), "{text}");
    assert_eq!(entry.hidden, HIDDEN_PARAMETERS.len());
}

#[test]
fn a_fast_version_reads_the_grid_itself_and_may_not_be_cut() {
    let sum = "mov.u32 %r3, %ctaid.y;\nmul.wide.u32 %d2, %r3, 4;\nadd.s64 %d1, %d1, %d2;\nmov.u32 %r2, 5;";
    let text = confined(sum);
    let fast = text.find("__bh_fast_k").unwrap_or_else(|| panic!("no fast version in\n{text}"));
    let (slow, fast) = text.split_at(fast);
    assert!(slow.contains("%bh_by") && fast.contains("mov.u32 %r1, %ctaid.y;"), "{text}");
    assert!(!fast.contains("%bh_by"), "{text}");
    let entry = entry(&text);
    assert!(entry.fast.is_some() && entry.sliceable);
}

#[test]
fn a_grid_is_not_cut_where_it_would_show() {
    for body in ["mov.u32 %r2, %gridid;", "mov.u16 %h1, %ctaid.x;\ncvt.u32.u16 %r2, %h1;"] {
        let text = confined(&format!("mov.u32 %r4, %nctaid.x;\n{body}"));
        let entry = entry(&text);
        assert!(!entry.sliceable && entry.hidden == HIDDEN_PARAMETERS.len(), "{text}");
    }
    // What reads the device's own grid behind the sums loads, and is not cut.
    let text = confined(READS).replace("mov.u32 %r0, %bh_by;", "mov.u32 %r0, %ctaid.y;");
    assert!(!entry(&text).sliceable);
    let text = confined(READS).replace("mov.u32 %r1, %bh_gx;", "mov.u32 %r1, %nctaid.z;");
    assert!(!entry(&text).sliceable);
}

#[test]
fn sums_that_are_computed_otherwise_or_not_at_all_are_refused() {
    let text = confined(READS);
    let first = "    ld.param.u32 %bh_lo, [__bh_first_y];\n";
    let lines = format!("{first}    mov.u32 %bh_by, %ctaid.y;\n    add.s32 %bh_by, %bh_by, %bh_lo;\n");
    refused(&text, &lines, "", "`%bh_by` may be read before it is written");
    refused(
        &text,
        "mov.u32 %r0, %bh_by;",
        "mov.u32 %r0, %bh_bx;",
        "`%bh_bx` may be read before it is written",
    );
    for (from, to) in [
        (first, ""),
        ("[__bh_first_y]", "[__bh_first_x]"),
        ("[__bh_first_y]", "[__bh_more_y]"),
        ("mov.u32 %bh_by, %ctaid.y", "mov.u32 %bh_by, %ctaid.x"),
        ("add.s32 %bh_by, %bh_by, %bh_lo", "sub.s32 %bh_by, %bh_by, %bh_lo"),
        ("add.s32 %bh_gx, %bh_gx, %bh_lo", "add.s32 %bh_gx, %bh_gx, 1"),
    ] {
        refused(&text, from, to, "not verified");
    }
}

#[test]
fn nobody_else_writes_the_sums_or_reads_the_parameters() {
    let text = confined(READS);
    let read = "mov.u32 %r0, %bh_by;";
    for other in [
        "mov.u32 %bh_by, 7;",
        "add.s32 %bh_gx, %bh_gx, 1;",
        "ld.param.u32 %r0, [__bh_first_y];",
        "ld.global.u32 %bh_by, [%bh_a];",
    ] {
        refused(&text, read, &format!("{read}\n    {other}"), "not verified");
    }
    refused(&text, ".param .u32 __bh_first_x", ".param .u32 __bh_first_w", "not verified");
    refused(&text, "    .reg .b32 %bh_gz;\n", "", "`.reg .b32 %bh_gz` is missing");
}
