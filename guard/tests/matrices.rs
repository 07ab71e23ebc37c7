//! Matrices: the verifier against texts that the rewriter did not write.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{confine, parse, print, verify};

const SOURCE: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<32>;
    .reg .b64 %d<8>;
    .reg .pred %q<2>;
    .shared .align 16 .b8 s[1024];
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    setp.eq.u32 %q1, %r1, 0;
    mul.lo.u64 %d2, %d1, %d1;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r1];
    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r8, %r9, %r10, %r11, %r12, %r13, %r14, %r15}, [%r1], 24;
    wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%d2], {%r4, %r5, %r6, %r7}, %r1;
    @%q1 bra L;
    mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r4, %r5}, {%r4, %r5}, {%r6}, {%r4, %r5};
L:
    movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r4;
    ret;
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

/// A check that the warp is whole, behind the match on the number of its place.
const CHECK: &str = "    setp.ne.s32 %bh_q, %bh_lo, -1;
    @%bh_q exit;
    bar.warp.sync -1;
    activemask.b32 %bh_lo;
    setp.ne.s32 %bh_q, %bh_lo, -1;
    @%bh_q exit;
";
const ALIKE: &str = "    activemask.b32 %bh_m;
    match.any.sync.b32 %bh_m, %r0, %bh_m;
    setp.ne.s32 %bh_q, %bh_m, %r0;
    @%bh_q exit;
";
const PARTIAL: &str = "an instruction for whole warps where one may not be whole";
const ELSEWHERE: &str = "a wait for lanes that may wait elsewhere";

/// Lanes that the predicate leaves out have written no fragment on the device, which takes theirs too.
#[test]
fn a_matrix_with_a_predicate_is_branched_around() {
    let text = confined();
    for opcode in ["mma.sync.", "movmatrix.", "ldmatrix.", "wmma.load.", "wmma.store."] {
        let line = text.lines().find(|line| line.trim_start().starts_with(opcode)).unwrap();
        broken(line, &format!("    @%q1 {}", line.trim_start()), PARTIAL);
    }
    let line = "    movmatrix.sync.aligned.m8n8.trans.b16";
    let source = SOURCE.replace(line, &format!("@%q1 {line}"));
    assert_ne!(source, SOURCE);
    let text = print(&parse(&source).and_then(|module| confine(&module)).unwrap());
    verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    let line = text.lines().find(|line| line.contains("movmatrix.")).unwrap();
    assert!(line.starts_with("    movmatrix."), "{text}");
}

#[test]
fn every_straight_way_to_a_matrix_is_checked_once() {
    let text = confined();
    verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    // Again behind the branch and the label.
    assert_eq!(text.matches(CHECK).count(), 3, "{text}");
}

#[test]
fn no_check_that_the_warp_is_whole_may_be_missing() {
    let text = confined();
    for (at, _) in text.match_indices(CHECK) {
        let without = format!("{}{}", &text[..at], &text[at + CHECK.len()..]);
        let report = verify(&without).unwrap_err().to_string();
        assert!(report.contains(PARTIAL), "{report}");
    }
}

#[test]
fn a_check_that_does_not_hold_is_refused() {
    let reserved = "reserved register";
    // The end of the check, behind which all lanes go on together.
    let end = "    activemask.b32 %bh_lo;\n    setp.ne.s32 %bh_q, %bh_lo, -1;\n    @%bh_q exit;\n";
    let behind = |more: &str| format!("{end}{more}");
    for (from, to, why) in [
        ("    match.any.sync.b32 %bh_lo, 1, -1;\n", String::new(), reserved),
        ("match.any.sync.b32 %bh_lo, 2, -1;", "match.any.sync.b32 %bh_lo, 1, -1;".to_owned(), PARTIAL),
        ("match.any.sync.b32 %bh_lo, 1, -1;", "match.any.sync.b32 %bh_lo, %r0, -1;".to_owned(), PARTIAL),
        ("match.any.sync.b32 %bh_lo, 1, -1;", "match.any.sync.b32 %bh_lo, 1, 1;".to_owned(), PARTIAL),
        ("match.any.sync.b32 %bh_lo, 1, -1;", "match.all.sync.b32 %bh_lo, 1, -1;".to_owned(), PARTIAL),
        ("    bar.warp.sync -1;\n", String::new(), PARTIAL),
        ("    bar.warp.sync -1;\n", "    bar.warp.sync 1;\n".to_owned(), PARTIAL),
        ("    activemask.b32 %bh_lo;\n", String::new(), PARTIAL),
        (CHECK, CHECK.replacen("%bh_lo, -1;", "%bh_lo, 1;", 1), PARTIAL),
        (CHECK, CHECK.replacen("    @%bh_q exit;\n", "", 1), PARTIAL),
        (end, end.replace("%bh_lo, -1;", "%bh_lo, 1;"), PARTIAL),
        (end, end.replace("    @%bh_q exit;\n", ""), reserved),
        (end, end.replace("@%bh_q exit", "@!%bh_q exit"), PARTIAL),
        (end, behind("    @%p0 ret;\n"), PARTIAL),
        // Lanes find out who has the same mask, and the others end.
        (end, behind(ALIKE), PARTIAL),
        (
            end,
            behind(&ALIKE.replace("    match.any.sync.b32 %bh_m, %r0, %bh_m;\n", "").replace("%r0", "65535")),
            PARTIAL,
        ),
        (end, behind("$L7:\n"), PARTIAL),
        (end, behind("    bar.warp.sync %r0;\n"), ELSEWHERE),
        (end, behind("    shfl.sync.idx.b32 %r0, %r0, 0, 31, %r0;\n"), ELSEWHERE),
        (end, behind("    @%p0 bra $L0;\n"), PARTIAL),
    ] {
        let text = confined();
        assert!(text.contains(from), "no `{from}` in\n{text}");
        assert!(verify(&text.replacen(from, &to, 1)).is_err(), "`{from}` to `{to}`");
        if why != reserved {
            broken(from, &to, why);
        }
    }
}

#[test]
fn rows_and_lines_of_a_matrix_stay_in_shared_memory() {
    let (min, more) = ("min.u32 %bh_s, %bh_s, 272;", "min.u32 %bh_s, %bh_s, 288;");
    broken(min, more, "no sequence confines");
    broken("[%bh_s+1024], 24;", "[%bh_s+1024], 32;", "no sequence confines");
    broken("[%bh_s+1024], 24;", "[%bh_s+1040], 24;", "no sequence confines");
    broken("[%bh_s+1024], 24;", "[%bh_s+1008], 24;", "no sequence confines");
    broken("[%bh_s+1024], 24;", "[%bh_s+1024], 20;", "a stride that");
    broken("[%bh_s+1024], 24;", "[%bh_s+1024], %r0;", "no sequence confines");
    broken("[%bh_s+1024], 24;", "[%bh_s+1024], %bh_lo;", "no sequence confines");
    broken("[%bh_s+1024], 24;", "[%r0], 24;", "interrupted");
    broken("[%bh_s+1024], 24;", "[s+288], 24;", "interrupted");
    broken(
        "x4.shared.b16 {%r1, %r2, %r3, %r4}, [%bh_s+1024];",
        "x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r0];",
        "interrupted",
    );
}

#[test]
fn how_far_apart_lines_in_global_memory_are_is_cut() {
    let why = "a matrix with any stride";
    let begins = "    or.b32 %bh_s, %bh_storemask, %bh_base;
    add.s32 %bh_s, %bh_s, -1;
    min.u32 %bh_hi, %bh_hi, %bh_s;\n";
    broken(begins, "", "no sequence confines");
    broken("add.s32 %bh_s, %bh_s, -1;", "add.s32 %bh_s, %bh_s, 0;", "no sequence confines");
    broken("or.b32 %bh_s, %bh_storemask", "or.b32 %bh_s, %bh_loadmask", "no sequence confines");
    broken("    and.b32 %bh_lo, %r0, 16777208;\n", "", why);
    broken("    and.b32 %bh_lo, %r0, 16777208;\n", "    and.b32 %bh_lo, %r0, 33554424;\n", why);
    broken("    and.b32 %bh_lo, %r0, 16777208;\n", "    and.b32 %bh_lo, %r0, 16777212;\n", why);
    broken("{%r1, %r2, %r3, %r4}, %bh_lo;", "{%r1, %r2, %r3, %r4}, %r0;", why);
    broken("{%r1, %r2, %r3, %r4}, %bh_lo;", "{%r1, %r2, %r3, %r4}, %bh_hi;", why);
    broken("{%r1, %r2, %r3, %r4}, %bh_lo;", "{%r1, %r2, %r3, %r4}, 16777216;", "a stride that");
    broken("{%r1, %r2, %r3, %r4}, %bh_lo;", "{%r1, %r2, %r3, %r4}, -8;", "a stride that");
}
