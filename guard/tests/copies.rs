//! Asynchronous copies: the verifier against texts that the rewriter did not write, and every body that copies awaits
//! what it has begun.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{confine, parse, print, verify};

const SOURCE: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    .reg .pred %q<2>;
    .shared .align 16 .b8 s[8192];
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    setp.eq.u32 %q1, %r1, 0;
    mul.lo.u64 %d2, %d1, %d1;
L:
    cp.async.cg.shared.global [%r1], [%d2], 16, %r1;
    cp.async.ca.shared.global [%r1], [%d2], 4, %q1;
    @!%q1 bra L;
    @%q1 ret;
    st.global.u32 [%d2], %r1;
    exit;
}
";

fn confined() -> String {
    print(&parse(SOURCE).and_then(|module| confine(&module)).unwrap())
}

/// Asserts that the confined module with the first `from` replaced by `to` is refused with `why`.
#[track_caller]
fn broken(from: &str, to: &str, why: &str) {
    let text = confined();
    assert!(text.contains(from), "no `{from}` in\n{text}");
    let found = match verify(&text.replacen(from, to, 1)) {
        Ok(_) => Vec::new(),
        Err(report) => report.findings.iter().map(ToString::to_string).collect(),
    };
    assert!(found.iter().any(|finding| finding.contains(why)), "`{from}` to `{to}`: {found:?}");
}

#[test]
fn the_confined_module_is_verified() {
    let text = confined();
    verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
}

#[test]
fn both_addresses_of_a_copy_have_to_be_confined() {
    let copy = "cp.async.cg.shared.global [%bh_s+1024], [%bh_a], 16, %bh_lo;";
    for (other, why) in [
        ("cp.async.cg.shared.global [%r0], [%bh_a], 16, %bh_lo;", "not confined"),
        ("cp.async.cg.shared.global [%bh_s+1024], [%d1], 16, %bh_lo;", "not confined"),
        ("cp.async.cg.shared.global [%bh_s+1040], [%bh_a], 16, %bh_lo;", "no sequence confines"),
        ("cp.async.cg.shared.global [%bh_s+1008], [%bh_a], 16, %bh_lo;", "no sequence confines"),
        ("cp.async.cg.shared.global [%bh_s], [%bh_a], 16, %bh_lo;", "no sequence confines"),
        ("cp.async.cg.shared.global [%bh_s+1024], [%bh_a+8], 16, %bh_lo;", "no sequence confines"),
        ("cp.async.cg.shared.global [%bh_s+1024], [%bh_a+8388608], 16, %bh_lo;", "no sequence confines"),
        ("cp.async.cg.shared.global [%bh_a], [%bh_a], 16, %bh_lo;", "no sequence confines"),
        ("cp.async.cg.shared.global [%bh_s+1024], [%bh_s+1024], 16, %bh_lo;", "no sequence confines"),
        ("cp.async.cg.shared.global [%bh_s+1024], [%bh_k], 16, %bh_lo;", "no sequence confines"),
        ("cp.async.ca.shared.global [%bh_s+1024], [%bh_a], 8, %bh_lo;", "no sequence confines"),
    ] {
        broken(copy, other, why);
    }
}

#[test]
fn no_line_of_what_confines_a_copy_may_be_missing_or_stand_elsewhere() {
    let text = confined();
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("cp.async.cg")).unwrap();
    let first = lines.iter().position(|line| line.contains("mov.b32 %bh_s, %r0")).unwrap();
    assert_eq!(at - first, 9, "{text}");
    for gone in first..at {
        let left: Vec<&str> =
            lines.iter().enumerate().filter(|(index, _)| *index != gone).map(|(_, line)| *line).collect();
        assert!(verify(&format!("{}\n", left.join("\n"))).is_err(), "without `{}`", lines[gone]);
        if gone + 1 < at {
            let mut swapped = lines.clone();
            swapped.swap(gone, gone + 1);
            let text = format!("{}\n", swapped.join("\n"));
            assert!(verify(&text).is_err(), "`{}` later", lines[gone]);
        }
    }
}

#[test]
fn a_copy_takes_no_more_than_it_writes() {
    let copy = "cp.async.cg.shared.global [%bh_s+1024], [%bh_a], 16, %bh_lo;";
    let cut = "    min.u32 %bh_lo, %r0, 16;\n";
    for (from, to) in [
        (copy, "cp.async.cg.shared.global [%bh_s+1024], [%bh_a], 16, %r0;"),
        (copy, "cp.async.cg.shared.global [%bh_s+1024], [%bh_a], 16, %bh_hi;"),
        (copy, "cp.async.cg.shared.global [%bh_s+1024], [%bh_a], 16, 17;"),
        (copy, "cp.async.cg.shared.global [%bh_s+1024], [%bh_a], 16, -1;"),
        (cut, ""),
        (cut, "    min.s32 %bh_lo, %r0, 16;\n"),
        (cut, "    min.u32 %bh_lo, %r0, 32;\n"),
        (cut, "    min.u32 %bh_lo, %bh_hi, 16;\n"),
    ] {
        broken(from, to, "from more than it writes");
    }
    broken("[%bh_a], 4, %p0;", "[%bh_a], 4, %bh_q;", "from more than it writes");
    broken("[%bh_a], 16, %bh_lo;", "[%bh_a], %r0, %bh_lo;", "copies 4, 8 or 16 bytes");
}

#[test]
fn an_end_waits_for_copies_under_its_own_predicate() {
    let why = "an end that does not wait for copies";
    let text = confined();
    assert_eq!(text.matches("@%p0 cp.async.wait_all;\n    @%p0 ret;\n").count(), 1, "{text}");
    broken("    @%p0 cp.async.wait_all;\n    @%p0 ret;\n", "    @%p0 ret;\n", why);
    broken("    @%p0 cp.async.wait_all;\n", "    @!%p0 cp.async.wait_all;\n", why);
    broken("    @%p0 cp.async.wait_all;\n", "    cp.async.wait_all;\n", why);
    broken("    @%p0 cp.async.wait_all;\n", "    cp.async.commit_group;\n", why);
    broken("    @%p0 cp.async.wait_all;\n", "    cp.async.wait_group 0;\n", why);
    broken("    cp.async.wait_all;\n    exit;\n", "    cp.async.wait_all;\n$L9:\n    exit;\n", why);
    broken("    @%bh_q cp.async.wait_all;\n", "", "not looked at in time");
}
