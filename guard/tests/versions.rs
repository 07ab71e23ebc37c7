//! Loops in two versions: what the verifier asks of the check that chooses.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use bulkhead_guard::{confine, parse, print, verify};

/// One pointer that is stepped by a register and stored through, one that is loaded through and stays.
const SOURCE: &str = ".version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    .reg .pred %q<4>;
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    ld.global.u64 %d2, [%d1];
    ld.global.u64 %d3, [%d1+8];
    mul.wide.s32 %d4, %r1, 4;
    mov.u32 %r2, 0;
L:
    ld.global.u32 %r3, [%d2+8];
    add.s64 %d5, %d3, %d4;
    st.global.u32 [%d5], %r3;
    add.s64 %d3, %d5, 8;
    add.s32 %r2, %r2, 1;
    setp.lt.s32 %q1, %r2, %r1;
    @%q1 bra L;
    ret;
}
";

fn confined(source: &str) -> String {
    print(&parse(source).and_then(|module| confine(&module)).unwrap_or_else(|report| panic!("{report}")))
}

fn findings(text: &str) -> Vec<String> {
    let report = verify(text).err();
    report.map_or(Vec::new(), |report| report.findings.iter().map(ToString::to_string).collect())
}

/// The check, as it stands in the fast version.
const CHECK: &str = "    mov.b32 %bh_s, 0;
    mov.b64 {%bh_lo, %bh_hi}, %d1;
    add.s32 %bh_hi, %bh_hi, -16;
    lop3.b32 %bh_hi, %bh_hi, 95, %bh_base, 154;
    or.b32 %bh_s, %bh_s, %bh_hi;
    lop3.b32 %bh_s, %bh_lo, 3, %bh_s, 234;
    mov.b64 {%bh_lo, %bh_hi}, %d2;
    add.s32 %bh_hi, %bh_hi, -16;
    lop3.b32 %bh_hi, %bh_hi, 31, %bh_base, 154;
    or.b32 %bh_s, %bh_s, %bh_hi;
    lop3.b32 %bh_s, %bh_lo, 3, %bh_s, 234;
    setp.ne.s32 %bh_q, %bh_s, 0;
    add.s64 %bh_a, %d3, 1048576;
    setp.ge.or.u64 %bh_q, %bh_a, 2097152, %bh_q;
    @%bh_q bra $L";

#[test]
fn every_line_of_a_check_has_to_be_there() {
    let text = confined(SOURCE);
    assert_eq!(findings(&text), [""; 0], "{text}");
    assert_eq!(text.matches(CHECK).count(), 1, "{text}");
    let lines: Vec<&str> = CHECK.split_inclusive('\n').collect();
    for (index, line) in lines.iter().enumerate() {
        let mut without = lines.clone();
        without.remove(index);
        assert!(!findings(&text.replace(CHECK, &without.concat())).is_empty(), "without {line}");
    }
    let at = text.find(CHECK).unwrap();
    let end = at
        + text[at..].find("bra").unwrap()
        + text[at + text[at..].find("bra").unwrap()..].find('\n').unwrap();
    // Not at all, and with something of the tenant's between it and the loop.
    for other in [String::new(), format!("{}\n    mov.b64 %d2, %d0;", &text[at..end])] {
        let changed = format!("{}{other}{}", &text[..at], &text[end..]);
        let changed = print(&parse(&changed).unwrap());
        assert!(!findings(&changed).is_empty(), "{changed}");
    }
}

#[test]
fn a_check_that_asks_for_less_is_refused() {
    let text = confined(SOURCE);
    let at = text.find(CHECK).unwrap();
    let (before, rest) = text.split_at(at);
    let broken = |from: &str, to: &str| {
        let changed = format!("{before}{}", rest.replacen(from, to, 1));
        assert_ne!(changed, text, "{from}");
        assert!(!findings(&changed).is_empty(), "{from} {to}\n{changed}");
    };
    broken("31, %bh_base, 154", "95, %bh_base, 154");
    broken("31, %bh_base, 154", "127, %bh_base, 154");
    broken("95, %bh_base, 154", "127, %bh_base, 154");
    broken("31, %bh_base, 154", "%bh_storemask, %bh_base, 154");
    broken("%bh_hi, -16", "%bh_hi, -8");
    broken("%bh_hi, -16", "%bh_hi, 0");
    broken("%bh_base, 154", "%bh_base, 234");
    broken("%bh_lo, 3, %bh_s", "%bh_lo, 1, %bh_s");
    broken("%bh_lo, 3, %bh_s", "%bh_lo, 2, %bh_s");
    broken("{%bh_lo, %bh_hi}, %d2", "{%bh_lo, %bh_hi}, %d1");
    broken("setp.ne.s32", "setp.eq.s32");
    broken("setp.ge.or.u64", "setp.ge.and.u64");
    broken("setp.ge.or.u64", "setp.ge.or.s64");
    broken("1048576", "2097152");
    broken("2097152", "4194304");
    broken("1048576", "1048575");
    // So much that the pointer leaves the zones while the loop turns.
    let far = rest.replacen("1048576", "1073741824", 1).replacen("2097152", "2147483648", 1);
    assert!(findings(&format!("{before}{far}"))[0].contains("an access that is not confined"));
    broken("%bh_a, %d3", "%bh_a, %d1");
    broken("@%bh_q bra", "@!%bh_q bra");
}

#[test]
fn a_pointer_that_goes_elsewhere_in_a_checked_loop_is_refused() {
    let text = confined(SOURCE);
    let at = text.find(CHECK).unwrap();
    let (before, rest) = text.split_at(at);
    let stepped = "    add.s64 %d2, %d4, 8;\n";
    assert!(rest.contains(stepped), "{rest}");
    let closing = {
        let from = rest.find("    setp.lt.s32 %bh_q, %r1, %bh_c0;\n").unwrap();
        let line = from + rest[from..].find("bra").unwrap();
        rest[from..=line + rest[line..].find('\n').unwrap()].to_owned()
    };
    let broken = |from: &str, to: &str| {
        let changed = format!("{before}{}", rest.replacen(from, to, 1));
        assert_ne!(changed, text, "{from}");
        assert!(!findings(&changed).is_empty(), "{from} {to}\n{changed}");
    };
    for other in [
        "    add.s64 %d2, %d4, 68719476736;\n",
        "    add.s64 %d2, %d4, %d0;\n",
        "    mul.lo.s64 %d2, %d4, 2;\n",
        "    mov.b64 %d2, %d1;\n",
        "    @%p0 add.s64 %d2, %d4, 8;\n",
        "    add.s64 %d2, %d4, 2;\n",
        "    ld.global.u64 %d2, [%d1+16];\n",
        "    add.s64 %d2, %d4, 8;\n    mul.wide.s32 %d3, %r0, 64;\n",
        "    add.s64 %d2, %d4, 8;\n$L40:\n",
        "    add.s64 %d2, %d4, 8;\n    bra $L40;\n$L40:\n",
    ] {
        broken(stepped, other);
    }
    // Going back in a second place, behind which the pointer has come further.
    broken(&closing, &format!("{closing}    add.s64 %d2, %d2, 68719476736;\n{closing}"));
    // In an entry that is not a fast version, and is given no terms.
    let slow = text.replace("__bh_fast_k", "bh_e_j");
    assert!(findings(&slow).iter().any(|finding| finding.contains("a check without its loop")));
}

#[test]
fn loops_in_which_threads_wait_for_one_another_have_one_version() {
    for together in
        ["bar.sync 0;", "shfl.sync.down.b32 %r4, %r3, 1, 31, -1;", "vote.sync.any.pred %q2, %q2, -1;"]
    {
        let source =
            SOURCE.replace("    add.s64 %d3, %d5, 8;", &format!("    {together}\n    add.s64 %d3, %d5, 8;"));
        let text = confined(&source);
        assert_eq!(findings(&text), [""; 0], "{text}");
        assert!(text.contains("__bh_fast_k") && !text.contains("%bh_base, 154"), "{text}");
    }
}

#[test]
fn what_a_first_turn_would_have_left_is_not_known_behind_the_loop() {
    // The anchor goes so far that nothing is known of what is computed from it, but in a turn that it begins at its start.
    let text = confined(SOURCE);
    let at = text.find(CHECK).unwrap();
    let (before, rest) = text.split_at(at);
    let registers = before.rfind(".reg .b64 %d<5>;").unwrap();
    let before = format!("{}.reg .b64 %d<6>;{}", &before[..registers], &before[registers + 16..]);
    let rest = rest.replacen("    add.s64 %d4, %d2, %d3;\n    st.global.u32 [%d4], %r2;\n", "", 1);
    let rest = rest.replacen(
        "    add.s64 %d2, %d4, 8;\n",
        "    add.s64 %d5, %d2, 16;\n    add.s64 %d2, %d2, 140737488355328;\n",
        1,
    );
    let behind = "    bra $L3;\n$L2:\n";
    assert!(rest.contains(behind), "{rest}");
    let forged = rest.replacen(behind, &format!("    ld.global.u32 %r2, [%d5];\n{behind}"), 1);
    assert_eq!(findings(&format!("{before}{rest}")), [""; 0], "but for the access\n{rest}");
    let found = findings(&format!("{before}{forged}"));
    assert!(
        found.iter().any(|finding| finding.contains("an access that is not confined")),
        "{found:?}\n{forged}"
    );
}

#[test]
fn a_checked_loop_turns_no_more_often_than_its_pointers_were_proven_for() {
    // What gathers lanes was counted among the instructions that bound the turns, and cost nothing: the more of it, the
    // fewer turns the proof went by, and the loop turned as often as before.
    let text = confined(SOURCE);
    let at = text.find(CHECK).unwrap();
    let (before, rest) = text.split_at(at);
    let wait = "    bar.warp.sync -1;\n".repeat(1100);
    let add = "    add.s64 %d4, %d2, %d3;\n";
    assert!(rest.contains(add), "{rest}");
    let much = format!("{before}{}", rest.replacen(add, &format!("{wait}{add}"), 1));
    assert!(!findings(&much).is_empty());
}
