//! Decisions of the verifier that no other test sees: `cargo run -p bulkhead-mutants` named them.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod written;

use bulkhead_guard::{Claims, Gates, parse, print, verify_claimed};
use written::{BODY, broken, broken_after, confined, findings};

/// What the zeroing of shared memory begins with.
const ZEROING: &str = "    mov.u32 %bh_hi, %ntid.x;\n    mov.u32 %bh_s, %tid.y;\n";

/// The first entry of the confined module alone.
fn alone() -> String {
    let text = confined();
    let entry = text.split("\n.visible .entry __bh_fast").next().unwrap();
    entry.trim_end().to_owned() + "\n"
}

#[track_caller]
fn refused(text: &str, why: &str) {
    let found = findings(text);
    assert!(found.iter().any(|finding| finding.contains(why)), "{why}: {found:?}\n{text}");
}

#[test]
fn a_barrier_interrupts_a_sequence() {
    assert_eq!(findings(&alone()), Vec::<String>::new());
    for line in ["    and.b32 %bh_lo, %bh_lo, -4;\n", "    mov.b64 %bh_a, {%bh_lo, %bh_hi};\n"] {
        broken_after(BODY, line, &format!("{line}    bar.sync 0;\n"), "interrupted");
        broken_after(BODY, line, &format!("    bar.sync 0;\n{line}"), "interrupted");
    }
}

#[test]
fn no_shared_access_stands_before_the_zeroing() {
    for access in [
        "ld.shared.u32 %r1, [bh_v_s+16]",
        "st.shared.u32 [bh_v_s+16], 1",
        "red.shared.add.u32 [bh_v_s+16], 1",
    ] {
        broken(ZEROING, &format!("    {access};\n{ZEROING}"), "may not have been zeroed");
    }
}

#[test]
fn shared_memory_is_zeroed_once() {
    let text = alone();
    let from = text.find(ZEROING).unwrap();
    let to = text[from..].find("    bar.sync 0;\n").unwrap() + from + "    bar.sync 0;\n".len();
    let twice = format!(
        "{}{}{}",
        &text[..to],
        text[from..to].replace("__bh_more", "$L7").replace("__bh_filled", "$L8"),
        &text[to..]
    );
    assert_ne!(findings(&twice), Vec::<String>::new());
    let again = format!("{}{}{}", &text[..to], &text[from..to], &text[to..]);
    assert_ne!(findings(&again), Vec::<String>::new());
}

#[test]
fn a_register_is_one_of_those_that_are_declared() {
    assert_eq!(findings(&alone().replace("    ret;", "    mov.u32 %r3, 7;\n    ret;")), Vec::<String>::new());
    broken_after(BODY, "    ret;", "    mov.u32 %r4, 7;\n    ret;", "`%r4` is not declared");
    broken_after(BODY, "    ret;", "    mov.u64 %d3, 7;\n    ret;", "`%d3` is not declared");
    broken_after(BODY, "    ret;", "    setp.eq.u32 %p1, 7, 7;\n    ret;", "`%p1` is not declared");
}

#[test]
fn an_access_asks_no_predicate_of_the_guards() {
    for access in
        ["ld.shared.u32 %r1, [bh_v_s+16]", "st.shared.u32 [bh_v_s+16], %r0", "ld.param.u32 %r1, [bh_v_n]"]
    {
        for predicate in ["@%bh_q", "@!%bh_q"] {
            broken_after(
                BODY,
                "    bar.sync 0;",
                &format!("    {predicate} {access};\n    bar.sync 0;"),
                "a reserved register as data",
            );
        }
    }
}

#[test]
fn only_shared_and_local_variables_are_written_by_their_symbol() {
    for access in [
        "st.param.u32 [bh_v_n], %r0",
        "st.const.u32 [bh_v___nv_table], %r0",
        "atom.shared.add.u32 %r1, [bh_v___nv_table], 1",
    ] {
        let text =
            confined().replacen("    bar.sync 0;\n$L0", &format!("    {access};\n    bar.sync 0;\n$L0"), 1);
        assert!(text.contains(access));
        assert_ne!(findings(&text), Vec::<String>::new(), "{access}");
    }
}

/// An entry with such a parameter, and this behind its prologue.
fn with_parameter(parameter: &str, body: &str) -> String {
    let text = alone().replacen(".param .u32 bh_v_n,", &format!(".param {parameter},"), 1);
    text.replacen("    ld.param.u32 %r0, [bh_v_n];\n", &format!("    {body}\n"), 1)
}

#[test]
fn a_parameter_is_read_as_widely_as_it_is_aligned() {
    let read = |parameter: &str, body: &str| findings(&with_parameter(parameter, body));
    let none = Vec::<String>::new();
    assert_eq!(read(".u32 bh_v_n", "ld.param.u32 %r0, [bh_v_n];"), none);
    assert_eq!(read(".align 4 .b8 bh_v_n[8]", "ld.param.u32 %r0, [bh_v_n+4];"), none);
    for (parameter, body) in [
        (".align 2 .b8 bh_v_n[8]", "ld.param.u32 %r0, [bh_v_n];"),
        (".align 4 .b8 bh_v_n[8]", "ld.param.u32 %r0, [bh_v_n+2];"),
        (".align 4 .b8 bh_v_n[8]", "ld.param.u32 %r0, [bh_v_n+8];"),
        (".align 4 .b8 bh_v_n[6]", "ld.param.u32 %r0, [bh_v_n+4];"),
        (".u16 bh_v_n", "ld.param.u32 %r0, [bh_v_n];"),
    ] {
        refused(&with_parameter(parameter, body), "an access outside its variable");
    }
}

#[test]
fn the_address_of_a_parameter_is_a_number_of_64_bits() {
    let read = |body: &str| findings(&with_parameter(".u32 bh_v_n", body));
    assert_eq!(read("mov.u64 %d1, bh_v_n;\n    mov.b32 %r0, 1;"), Vec::<String>::new());
    for body in
        ["mov.u32 %r0, bh_v_n;", "mov.b32 %r0, bh_v_n;", "cvta.param.u64 %d1, bh_v_n;\n    mov.b32 %r0, 1;"]
    {
        assert_ne!(read(body), Vec::<String>::new(), "{body}");
    }
}

/// What is claimed of a register proves an access in a fast version, and in no other.
#[test]
fn only_a_fast_version_rests_on_what_is_claimed() {
    let entry = |name: &str, body: &str| {
        format!(
            ".visible .entry {name}(.param .u64 bh_v_p, .param .u32 __bh_base, .param .u32 __bh_load, .param .u32 __bh_store)\n{{\n\
             .reg .pred %p<1>;\n.reg .b32 %r<2>;\n.reg .b64 %d<2>;\n.reg .pred %bh_q;\n.reg .b32 %bh_base;\n\
             .reg .b32 %bh_loadmask;\n.reg .b32 %bh_storemask;\n.reg .b32 %bh_lo;\n.reg .b32 %bh_hi;\n.reg .b32 %bh_s;\n\
             .reg .b32 %bh_low;\n.reg .b32 %bh_top;\n.reg .b32 %bh_zero;\n.reg .b32 %bh_n;\n.reg .b32 %bh_m;\n.reg .b64 %bh_a;\n\
             .reg .b64 %bh_o;\n.reg .b64 %bh_k;\nld.param.u32 %bh_base, [__bh_base];\n\
             ld.param.u32 %bh_loadmask, [__bh_load];\nld.param.u32 %bh_storemask, [__bh_store];\n{body}ret;\n}}\n"
        )
    };
    let proven = "ld.param.u64 %d0, [bh_v_p];\nld.global.u32 %r0, [%d0];\n";
    let module = |first: &str, second: &str| {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n{}{}",
            entry("bh_e_k", first),
            entry("__bh_fast_k", second)
        );
        let text = print(&parse(&text).unwrap());
        verify_claimed(
            &text,
            &"entry bh_e_k\nentry __bh_fast_k\n".parse::<Claims>().unwrap(),
            &Gates::default(),
        )
        .map_or_else(|report| report.to_string(), |_| String::new())
    };
    assert_eq!(module("", proven), "");
    let read = module(proven, "");
    assert!(read.contains("an access that is not confined"), "{read}");
}

/// The confined entry with this among its declarations.
fn declaring(more: &str) -> String {
    let shared = "    .shared .align 16 .b8 bh_v_s[8192];\n";
    let text = alone();
    assert!(text.contains(shared));
    text.replacen(shared, &format!("{shared}    {more}\n"), 1)
}

#[test]
fn a_body_declares_shared_variables_one_local_variable_and_nothing_else() {
    assert_eq!(findings(&declaring(".reg .b32 %bh_c<1>;")).len(), 1);
    for (more, why) in [
        (".shared .align 16 .b8 bh_v_s[16];", "a name that is declared twice"),
        (".shared .align 16 .b8 bh_v_n[16];", "a name that is declared twice"),
        (".shared .align 16 .b8 bh_v_t[16] = {1};", "a variable of this kind in a body"),
        (".shared .align 16 .b8 bh_v_t[0];", "a variable of this kind in a body"),
        (".extern .shared .align 16 .b8 bh_v_t[16];", "a directive in a body"),
        (".extern .shared .align 16 .b8 bh_v_t[];", "a directive in a body"),
        (".shared .align 8 .b8 bh_v_t[16];", "a shared variable that is not aligned"),
        (".local .align 16 .b8 bh_v_t[16];", "a local variable too many, too large or not aligned"),
        (".global .align 16 .b8 bh_v_t[16];", "a declaration of this state space in a body"),
        (".const .align 16 .b8 bh_v_t[16];", "a declaration of this state space in a body"),
        (".param .align 16 .b8 bh_v_t[16];", "a declaration of this state space in a body"),
    ] {
        refused(&print(&parse(&declaring(more)).unwrap()), why);
    }
    let large = alone().replace("bh_v_l[24]", "bh_v_l[1048576]");
    refused(&large, "a local variable too many, too large or not aligned");
}

/// What lanes write under a predicate that is not the same in all of them is not the same in all of them.
#[test]
fn a_predicate_that_differs_makes_what_it_guards_differ() {
    let waiting = |write: &str| {
        // Behind the first look: before it there may be one wait for the block, and that is the prologue's.
        let behind = "    @%bh_q exit;\n    mov.b32 %bh_zero, 0;\n";
        let text = alone();
        assert!(text.contains(behind));
        let text = text.replace(".reg .pred %p<1>;", ".reg .pred %p<3>;");
        let body = format!(
            "    @%bh_q exit;\n    mov.u32 %r2, %tid.x;\n    setp.lt.u32 %p1, %r2, 5;\n    setp.lt.u32 %p2, %r0, 5;\n    mov.u32 %r3, 0;\n    \
             {write}\n    setp.eq.u32 %p0, %r3, 0;\n    @%p0 bra $L0;\n    bar.sync 0;\n    mov.b32 %bh_zero, 0;\n"
        );
        findings(&text.replacen(behind, &body, 1))
    };
    assert_eq!(waiting("mov.u32 %r3, 1;"), Vec::<String>::new());
    assert_eq!(waiting("@%p2 mov.u32 %r3, 1;"), Vec::<String>::new());
    for write in ["@%p1 mov.u32 %r3, 1;", "@!%p1 mov.u32 %r3, 1;", "selp.b32 %r3, 1, 0, %p1;"] {
        assert_ne!(waiting(write), Vec::<String>::new(), "{write}");
    }
}

/// What pads shared memory is nobody's to name, though it is declared.
#[test]
fn nothing_names_the_guards_own_variable() {
    let padded = |body: &str| {
        let text = declaring(".shared .align 16 .b8 __bh_pad[16];");
        findings(&print(&parse(&text.replacen("    ret;", &format!("    {body}\n    ret;"), 1)).unwrap()))
    };
    // Beside it no variable is the first.
    let without = padded("mov.u32 %r2, 7;");
    assert_eq!(without.len(), 1);
    for body in ["mov.u32 %r2, __bh_pad;", "mov.u64 %d1, __bh_pad;", "ld.shared.u32 %r2, [__bh_pad];"] {
        assert!(padded(body).len() > without.len(), "{body}: {:?}", padded(body));
    }
}

/// The confined entry with the first of these lines replaced.
#[track_caller]
fn instead(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no `{from}` in\n{text}");
    text.replacen(from, to, 1)
}

const NO_SEQUENCE: &str = "an access that no sequence confines";

/// What is confined is one register; through another of the guard's nothing goes.
#[test]
fn an_access_goes_through_the_register_that_was_confined() {
    let text = alone();
    for other in ["%bh_lo", "%bh_hi", "%bh_low", "%bh_top", "%bh_base", "%bh_n"] {
        let access = format!("st.shared.u32 [{other}+1024]");
        refused(&instead(&text, "st.shared.u32 [%bh_s+1024]", &access), NO_SEQUENCE);
    }
    refused(&instead(&text, "st.shared.u32 [%bh_s+1024]", "st.shared.u32 [%bh_s+1026]"), NO_SEQUENCE);
    for other in ["%bh_o", "%bh_k", "%bh_a+4", "%bh_a+-4"] {
        refused(&instead(&text, "st.local.u32 [%bh_a]", &format!("st.local.u32 [{other}]")), NO_SEQUENCE);
        refused(
            &instead(&text, "ld.const.u32 %r3, [%bh_a]", &format!("ld.const.u32 %r3, [{other}]")),
            NO_SEQUENCE,
        );
    }
    for variable in
        [".extern .shared .align 16 .b8 s[];", ".shared .align 16 .b8 s[64];\n.shared .align 16 .b8 t[64];"]
    {
        let text = shared(variable, "st.shared.u32 [%r1], %r1;");
        let access = text.lines().find(|line| line.contains("st.shared.u32 [%bh_s")).unwrap();
        assert_eq!(findings(&text), Vec::<String>::new());
        for other in ["%bh_lo", "%bh_low", "%bh_top"] {
            refused(&instead(&text, access, &access.replace("%bh_s", other)), NO_SEQUENCE);
        }
    }
}

/// What is confined of an access of shared memory through a number that nothing is known of.
fn shared(variables: &str, access: &str) -> String {
    let source = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n{variables}\n.visible .entry k(.param .u64 n)\n{{\n\
         .reg .b32 %r<4>;\n.reg .b64 %d<4>;\n.reg .b16 %h<2>;\nld.param.u32 %r1, [n];\nld.param.u64 %d1, [n];\nmov.u16 %h1, 0;\n{access}\nret;\n}}\n"
    );
    print(&parse(&source).and_then(|module| bulkhead_guard::confine(&module)).unwrap())
}

#[test]
fn a_byte_of_shared_memory_is_aligned_anyhow() {
    let (fixed, dynamic) = (".shared .align 16 .b8 s[64];", ".extern .shared .align 16 .b8 s[];");
    let two = ".shared .align 16 .b8 s[64];\n.shared .align 16 .b8 t[64];";
    for variables in [fixed, dynamic, two] {
        for base in ["%r1", "%d1"] {
            let byte = shared(variables, &format!("st.shared.u8 [{base}], %h1;"));
            assert_eq!(findings(&byte), Vec::<String>::new(), "{byte}");
            assert!(!byte.contains("and.b32 %bh_s, %bh_s, -"), "{byte}");
            let half = shared(variables, &format!("st.shared.u16 [{base}], %h1;"));
            assert_eq!(findings(&half), Vec::<String>::new(), "{half}");
            refused(&instead(&half, "    and.b32 %bh_s, %bh_s, -2;\n", ""), NO_SEQUENCE);
        }
    }
}

/// Where a mask and an offset lead at most is the last place.
#[test]
fn a_mask_reaches_up_to_the_last_byte() {
    let source = written::SOURCE
        .replace("s[8192]", "s[1500]")
        .replace("[%r3], %r1;", "[%r3+8], %r1;\n    st.shared.u32 [%r3], %r1;");
    let text = print(&parse(&source).and_then(|module| bulkhead_guard::confine(&module)).unwrap());
    // Of 2,064 bytes from 2,048 on.
    let text = instead(&text, "st.shared.u32 [%bh_s+2056]", "st.shared.u32 [%bh_s+2060]");
    let mask =
        |most: u32| instead(&text, "and.b32 %bh_s, %bh_s, 2032;", &format!("and.b32 %bh_s, %bh_s, {most};"));
    for most in [2032, 2044, 2048] {
        assert_eq!(findings(&mask(most)), Vec::<String>::new(), "{most}");
    }
    for most in [2046, 2049, 2052] {
        refused(&mask(most), NO_SEQUENCE);
    }
}

#[test]
fn a_place_in_shared_memory_is_taken_from_a_variable_there() {
    let text = instead(&alone(), "mov.b32 %bh_s, %r2;", "mov.b32 %bh_s, bh_v_s;");
    let min = "    min.u32 %bh_s, %bh_s, 8188;\n";
    let text = instead(&text, min, &format!("{min}    and.b32 %bh_s, %bh_s, -4;\n"));
    assert_eq!(findings(&text), Vec::<String>::new(), "{text}");
    for other in ["bh_v_l", "bh_v___nv_table", "bh_v_n"] {
        refused(&instead(&text, "mov.b32 %bh_s, bh_v_s;", &format!("mov.b32 %bh_s, {other};")), NO_SEQUENCE);
    }
}

/// Parameters are read only, and aligned as they are declared.
#[test]
fn a_parameter_behind_a_register_is_read_as_widely_as_it_is_aligned() {
    let text = |parameter: &str, access: &str| {
        let body = format!(
            "mov.u64 %d1, bh_v_n;\n    mov.b64 %bh_o, bh_v_n;\n    sub.s64 %bh_a, %d1, %bh_o;\n    cvt.u32.u64 %bh_lo, %bh_a;\n    \
             min.u32 %bh_lo, %bh_lo, 60;\n    and.b32 %bh_lo, %bh_lo, -4;\n    cvt.u64.u32 %bh_a, %bh_lo;\n    \
             add.s64 %bh_a, %bh_o, %bh_a;\n    {access}"
        );
        with_parameter(parameter, &body)
    };
    let load = "ld.param.u32 %r0, [%bh_a];\n    mov.u32 %r0, 1;";
    for align in [4, 8, 16] {
        let text = text(&format!(".align {align} .b8 bh_v_n[64]"), load);
        assert_eq!(findings(&text), Vec::<String>::new(), "{text}");
    }
    for align in [1, 2] {
        refused(&text(&format!(".align {align} .b8 bh_v_n[64]"), load), NO_SEQUENCE);
    }
    let store = "mov.u32 %r0, 1;\n    st.param.u32 [%bh_a], %r0;";
    assert_ne!(findings(&text(".align 4 .b8 bh_v_n[64]", store)), Vec::<String>::new());
    let store = "st.param.u32 [%bh_a], 1;\n    mov.u32 %r0, 1;";
    assert_ne!(findings(&text(".align 4 .b8 bh_v_n[64]", store)), Vec::<String>::new());
}

/// An address in one memory leads nowhere in another.
#[test]
fn an_access_goes_to_the_memory_that_its_variable_is_in() {
    let lead = "mov.b64 %bh_o, bh_v___nv_table;\n    sub.s64 %bh_a, %d2, %bh_o;\n    cvt.u32.u64 %bh_lo, %bh_a;\n    \
                min.u32 %bh_lo, %bh_lo, 60;\n";
    for (variable, last) in [("bh_v_l", 20), ("bh_v_s", 8188), ("bh_v_n", 0)] {
        let other = lead.replace("bh_v___nv_table", variable).replace(", 60;", &format!(", {last};"));
        refused(&instead(&alone(), lead, &other), NO_SEQUENCE);
    }
    let lead = "mov.b64 %bh_o, bh_v_l;\n    sub.s64 %bh_a, %d1, %bh_o;\n    add.s64 %bh_a, %bh_a, 4;\n    \
                cvt.u32.u64 %bh_lo, %bh_a;\n    min.u32 %bh_lo, %bh_lo, 20;\n";
    for (variable, last) in [("bh_v___nv_table", 60), ("bh_v_s", 8188), ("bh_v_n", 0)] {
        let other = lead.replace("bh_v_l", variable).replace(", 20;", &format!(", {last};"));
        refused(&instead(&alone(), lead, &other), NO_SEQUENCE);
    }
}
