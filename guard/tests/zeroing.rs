//! That shared memory is zeroed before anything needs it: the verifier refuses every text in which it may not be.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{confine, parse, print, verify};

const SOURCE: &str = ".version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    .shared .align 16 .b8 SIZE;
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    st.shared.u32 [s+4], %r1;
    bar.sync 0;
    ld.shared.u32 %r2, [s];
    st.global.u32 [%d1], %r2;
    ret;
}
";

/// The findings against `text`; none where it is verified.
fn findings(text: &str) -> Vec<String> {
    match verify(text) {
        Ok(_) => Vec::new(),
        Err(report) => report.findings.iter().map(ToString::to_string).collect(),
    }
}

const POLL: &str =
    "    setp.lt.s32 %bh_q, %bh_n, 0;\n    @%bh_q exit;\n    ld.relaxed.sys.global.b32 %bh_n, [%bh_k];\n";

/// Little shared memory, and behind what a thread loads.
const LITTLE: &str = ".version 8.0\n.target sm_75\n.address_size 64\n.entry k(.param .u64 p, .param .u32 n)\n{\n    \
    .shared .align 16 .b8 s[128];\n    .reg .b32 %r<4>;\n    .reg .b64 %d<4>;\n    .reg .pred %p<2>;\n    \
    ld.param.u64 %d1, [p];\n    ld.param.u32 %r1, [n];\n    setp.eq.u32 %p1, %r1, 0;\n    mov.u32 %r2, 1;\n    \
    @%p1 bra L;\n    ld.global.u32 %r2, [%d1];\nL:\n    st.shared.u32 [s+4], %r2;\n    bar.sync 0;\n    \
    ld.shared.u32 %r3, [s];\n    st.global.u32 [%d1], %r3;\n    ret;\n}\n";

#[test]
fn shared_memory_is_zeroed_where_every_thread_comes_by_and_before_anything_needs_it() {
    let text = print(&parse(LITTLE).and_then(|module| confine(&module)).unwrap());
    assert_eq!(findings(&text), [""; 0]);
    // Up to where its first entry ends: the confined one.
    let (entry, _) = text.split_once("\n}\n").unwrap();
    let start = entry.find("    mov.u32 %bh_lo, %ntid.x;").unwrap();
    let (before, rest) = entry.split_at(start);
    let (zeroing, after) = rest.split_at(rest.find("bar.sync 0;\n").unwrap() + 12);
    assert!(before.ends_with("$L0:\n"), "{entry}");
    assert!(before.contains("ld.global") && !zeroing.contains("%tid.y"), "{entry}");
    let begin = before.find("    ld.param.u64 %d0").unwrap();
    let (prologue, loads) = before.split_at(begin);
    let with = |entry: String| findings(&format!("{entry}\n}}\n"));
    let body = after;
    assert_eq!(with(format!("{prologue}{zeroing}{loads}{body}")), [""; 0]);
    let join = loads.trim_end().trim_end_matches("$L0:");
    let exit = "    @%p0 exit;\n";
    let late =
        body.replacen("    st.shared", &format!("    st.shared.u32 [s+8], %r0;\n{zeroing}    st.shared"), 1);
    let then = |line: &str| body.replacen("    bar.sync 0;\n", &format!("    bar.sync 0;\n{POLL}{line}"), 1);
    let behind = body.replacen("    bar.sync 0;\n", &format!("    bar.sync 0;\n{zeroing}"), 1);
    for (what, entry) in [
        ("goes around it", format!("{prologue}{join}{zeroing}$L0:\n{body}")),
        ("is missing", format!("{prologue}{loads}{body}")),
        ("comes behind a store", format!("{prologue}{loads}{late}")),
        ("comes behind a barrier", format!("{prologue}{loads}{behind}")),
        (
            "comes behind an end",
            format!("{prologue}{}{zeroing}{body}", loads.replace("$L0:", &format!("{exit}$L0:"))),
        ),
        ("comes again", format!("{prologue}{loads}{zeroing}{}", then("    @%p0 bra $L0;\n"))),
        ("comes twice", format!("{prologue}{loads}{zeroing}{zeroing}{body}")),
        ("is gone to", format!("{prologue}{loads}{zeroing}{}", then("    @%p0 bra __bh_more;\n"))),
    ] {
        assert!(!with(entry.clone()).is_empty(), "zeroing that {what}:\n{entry}");
    }
}

#[test]
fn a_prologue_that_leaves_shared_memory_as_it_was_is_refused() {
    // Of whole vectors, and of two bytes more, whose last ones are zeroed by bytes; of little; in several variables.
    for (size, first) in [
        ("s[8192]", "    mov.u32 %bh_hi, %ntid.x;"),
        ("s[8194]", "    mov.u32 %bh_hi, %ntid.x;"),
        ("s[256]", "    mov.u32 %bh_lo, %ntid.x;"),
        ("s[250]", "    mov.u32 %bh_lo, %ntid.x;"),
    ] {
        let source = SOURCE.replace("SIZE", size);
        let text = print(&parse(&source).and_then(|module| confine(&module)).unwrap());
        assert_eq!(findings(&text), [""; 0]);
        let start = text.find(first).unwrap();
        let (before, rest) = text.split_at(start);
        let (zeroing, after) = rest.split_at(rest.find("bar.sync 0;\n").unwrap() + 12);
        let lines: Vec<&str> = zeroing.split_inclusive('\n').collect();
        assert!(lines.len() > 14 && lines.last() == Some(&"    bar.sync 0;\n"), "{zeroing}");
        for (index, line) in lines.iter().enumerate() {
            let mut without = lines.clone();
            without.remove(index);
            let mut twice = lines.clone();
            twice.insert(index, line);
            // One barrier more is the body's.
            let last = index + 1 == lines.len();
            for lines in [without, twice].into_iter().take(if last { 1 } else { 2 }) {
                let changed = format!("{before}{}{after}", lines.concat());
                assert!(!findings(&changed).is_empty(), "{line} in\n{changed}");
            }
        }
        assert!(!findings(&format!("{before}{after}")).is_empty());
        for (from, to) in [
            ("%bh_top, -16", "%bh_top, -32"),
            ("mov.b32 %bh_zero, 0", "mov.b32 %bh_zero, 1"),
            ("%bh_lo, 4", "%bh_lo, 5"),
            ("@%bh_q bra", "@!%bh_q bra"),
            ("bra __bh_more", "bra __bh_filled"),
        ] {
            let changed = format!("{before}{}{after}", zeroing.replacen(from, to, 1));
            assert!(!findings(&changed).is_empty(), "{to}");
        }
    }
}

#[test]
fn a_large_local_variable_is_zeroed_in_all_its_turns() {
    // Whole turns, and 13 bytes more.
    for (size, turns) in [("20480", 80), ("20493", 80), ("507904", 1984)] {
        let source = SOURCE.replace(".shared .align 16 .b8 SIZE", &format!(".local .align 16 .b8 s[{size}]"));
        let source = source.replace("st.shared", "st.local").replace("ld.shared", "ld.local");
        let text = print(&parse(&source).and_then(|module| confine(&module)).unwrap());
        assert_eq!(findings(&text), [""; 0]);
        // Of its first entry: nothing tells of the other one.
        let text = format!("{}\n}}\n", text.split_once("\n}\n").unwrap().0);
        assert_eq!(findings(&text), [""; 0]);
        let start = text.find("    mov.b32 %bh_zero, 0;").unwrap();
        let (before, rest) = text.split_at(start);
        assert!(before.ends_with("    @%bh_q exit;\n"), "nothing looks at the flag before\n{text}");
        // A poll stands behind what takes half of what there is between two.
        let ends = ["    st.local.u32", "    or.b32 %bh_hi, %bh_base"].map(|line| rest.find(line));
        let (zeroing, after) = rest.split_at(ends.into_iter().flatten().min().unwrap());
        let lines: Vec<&str> = zeroing.split_inclusive('\n').collect();
        assert_eq!(lines.len(), if size.ends_with('3') { 28 } else { 24 }, "{zeroing}");
        for (index, line) in lines.iter().enumerate() {
            let mut without = lines.clone();
            without.remove(index);
            let changed = format!("{before}{}{after}", without.concat());
            assert!(!findings(&changed).is_empty(), "{line} in\n{changed}");
        }
        let turns_less = format!("%bh_lo, {}", turns - 1);
        for (from, to) in [
            ("mov.b32 %bh_zero, 0", "mov.b32 %bh_zero, 1"),
            ("%bh_o, bh_v_s", "%bh_o, bh_v_s+16"),
            (&format!("%bh_lo, {turns}"), &turns_less),
            (&format!("%bh_lo, {turns}"), "%bh_lo, 1000000"),
            ("%bh_lo, -1", "%bh_lo, -2"),
            ("%bh_o, 256", "%bh_o, 272"),
            ("@%bh_q bra", "@!%bh_q bra"),
            ("@%bh_q bra", "bra"),
            ("[%bh_o+16], {%bh_zero", "[%bh_o+16], {%r0"),
        ] {
            assert!(zeroing.contains(from), "{from}");
            let changed = format!("{before}{}{after}", zeroing.replacen(from, to, 1));
            assert!(!findings(&changed).is_empty(), "{to}");
        }
        let gone_to = after.replacen(
            "    bar.sync 0;\n",
            &format!("    bar.sync 0;\n{POLL}    bra __bh_clearing;\n"),
            1,
        );
        assert!(!findings(&format!("{before}{zeroing}{gone_to}")).is_empty());
        // Its label is one.
        let often = format!("{before}{}{after}", zeroing.repeat(2));
        assert!(!findings(&often).is_empty());
    }
}
