//! The verifier against texts that the rewriter did not write: a confined module, broken in one way each.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{HIDDEN_PARAMETERS, PointerTerm, SharedTerm, along, confine, parse, print, verify};

#[path = "verifier/shared.rs"]
mod shared;

mod written;

use written::{BODY, SOURCE, broken, broken_after, confined, findings};

#[test]
fn the_confined_module_is_verified_and_its_entries_are_known() {
    let text = confined();
    let verified = verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    assert_eq!(verified.text(), text);
    let [entry] = verified.entries() else { panic!("{:?}", verified.entries()) };
    assert_eq!((entry.name.as_str(), entry.parameters, entry.hidden), ("k", 5, HIDDEN_PARAMETERS.len()));
}

#[test]
fn a_module_that_was_not_confined_is_refused() {
    let text = print(&parse(SOURCE).unwrap());
    assert!(!findings(&text).is_empty());
}

#[test]
fn text_that_is_not_canonical_is_refused() {
    let text = confined();
    for other in [
        format!("{text}\n"),
        text.replace("    ret;", "  ret;"),
        text.replace("ret;", "ret; // x"),
        text.replace(", 234;", ", 0xEA;"),
        text.replace("bar.sync 0;", "bar .sync 0;"),
    ] {
        assert_eq!(findings(&other), ["1:1: not verified: the text is not its own canonical print"]);
    }
}

const LOAD: &str = "    lop3.b32 %bh_hi, %bh_hi, %bh_loadmask, %bh_base, 234;\n";
const STORE: &str = "    lop3.b32 %bh_hi, %bh_hi, %bh_storemask, %bh_base, 234;\n";
const LEFT: &str = "shared memory that may not have been zeroed";
const SEQUENCE: &str = "an access that no sequence confines";
const LOOSE: &str = "an access that is not confined";

#[test]
fn a_missing_lop3_is_refused() {
    broken(LOAD, "", SEQUENCE);
    broken(STORE, "", SEQUENCE);
}

#[test]
fn a_lop3_with_another_table_or_order_is_refused() {
    broken(LOAD, &LOAD.replace("234", "235"), SEQUENCE);
    broken(LOAD, &LOAD.replace("%bh_loadmask, %bh_base", "%bh_base, %bh_loadmask"), SEQUENCE);
    broken(LOAD, &LOAD.replace("%bh_base", "%r0"), SEQUENCE);
    broken(LOAD, &LOAD.replace("%bh_hi, %bh_hi", "%bh_hi, %bh_lo"), SEQUENCE);
}

#[test]
fn a_store_under_the_load_mask_is_refused() {
    broken(STORE, LOAD, SEQUENCE);
    broken_after("8388608;", STORE, LOAD, SEQUENCE);
}

#[test]
fn a_reduction_under_the_load_mask_is_refused() {
    broken_after("st.global", STORE, LOAD, SEQUENCE);
}

#[test]
fn a_missing_alignment_is_refused() {
    broken("    and.b32 %bh_lo, %bh_lo, -4;\n", "", SEQUENCE);
    broken("%bh_lo, %bh_lo, -4;", "%bh_lo, %bh_lo, -2;", SEQUENCE);
    // Of a shared address that is known to be a multiple, the last place is one.
    let last = "min.u32 %bh_s, %bh_s, 8188;";
    for other in [8187, 8186, 8189] {
        broken(last, &last.replace("8188", &other.to_string()), SEQUENCE);
    }
}

#[test]
fn a_label_between_a_sequence_and_its_access_is_refused() {
    broken("    ld.global", "$L7:\n    ld.global", "a sequence without its access");
    broken(LOAD, &format!("{LOAD}$L7:\n"), "a sequence without its access");
}

#[test]
fn an_instruction_between_a_sequence_and_its_access_is_refused() {
    broken("    ld.global", "    mov.u32 %r0, 0;\n    ld.global", "is interrupted");
    broken("    ld.global", "    ret;\n    ld.global", "is interrupted");
    broken("    ld.global", "    mov.b64 %bh_a, %d0;\n    ld.global", SEQUENCE);
    broken("    ld.global", "    add.s64 %bh_a, %bh_a, %d0;\n    ld.global", SEQUENCE);
}

#[test]
fn a_predicate_on_a_sequence_is_refused() {
    broken("    lop3", "    @%p0 lop3", "a write to a reserved register");
}

#[test]
fn an_access_by_the_tenants_register_is_refused() {
    for access in
        ["ld.global.u32 %r0, [%d0]", "st.global.u8 [%d0+1], %r0", "atom.global.inc.u32 %r0, [%d0], %r0"]
    {
        broken_after(BODY, "    bar.sync 0;", &format!("    {access};\n    bar.sync 0;"), LOOSE);
    }
    broken("ld.global.u32 %r1, [%bh_a+4]", "ld.global.u32 %r1, [%d0+4]", "is interrupted");
    broken_after(
        BODY,
        "    bar.sync 0;",
        "    ld.global.u32 %r0, [4096];\n    bar.sync 0;",
        "an absolute address",
    );
}

#[test]
fn an_access_without_a_sequence_of_its_own_is_refused() {
    broken_after(BODY, "    bar.sync 0;", "    ld.global.u32 %r0, [%bh_a];\n    bar.sync 0;", SEQUENCE);
    broken_after(BODY, "    bar.sync 0;", "    st.shared.u32 [%bh_s], %r0;\n    bar.sync 0;", SEQUENCE);
    broken_after(BODY, "    bar.sync 0;", "    st.shared.u32 [%r0], %r0;\n    bar.sync 0;", LOOSE);
    broken_after(BODY, "    bar.sync 0;", "    st.local.u8 [%d0], %r0;\n    bar.sync 0;", LOOSE);
}

#[test]
fn an_offset_that_reaches_too_far_or_breaks_alignment_is_refused() {
    broken("[%bh_a+4]", "[%bh_a+8388608]", SEQUENCE);
    broken("[%bh_a+4]", "[%bh_a+-8388608]", SEQUENCE);
    broken("[%bh_a+4]", "[%bh_a+2]", SEQUENCE);
}

#[test]
fn a_write_to_a_reserved_register_is_refused() {
    let why = "a sequence without its access";
    for write in ["mov.b32 %bh_base, 0;", "mov.u32 %bh_storemask, -1;", "add.u32 %bh_loadmask, %r0, %r0;"] {
        broken("    ret;", &format!("    {write}\n    ret;"), "is interrupted");
        broken("$L0:", &format!("    {write}\n$L0:"), why);
        broken(
            "    mov.b64 {%bh_lo, %bh_hi}",
            &format!("    {write}\n    mov.b64 {{%bh_lo, %bh_hi}}"),
            SEQUENCE,
        );
    }
    broken("ld.global.u32 %r1, ", "ld.global.u32 %bh_base, ", "a reserved register that an access writes");
    broken(
        "ld.param.u64 %d0, [bh_v_p]",
        "ld.param.u32 %bh_base, [bh_v_n]",
        "a reserved register that an access writes",
    );
}

#[test]
fn a_reserved_register_or_parameter_that_is_read_is_refused() {
    broken("], %r1;", "], %bh_base;", "a reserved register as data");
    broken("    ret;", "    mov.b32 %r0, %bh_base;\n    ret;", "is interrupted");
    broken("    ret;", "    ld.param.u32 %r0, [__bh_base];\n    ret;", SEQUENCE);
}

#[test]
fn a_missing_zeroing_is_refused() {
    broken("    mov.b32 %r1, 0;\n", "", "`%r1` may be read before it is written");
    broken("    mov.b32 %r1, 0;", "    @%p0 mov.b32 %r1, 0;", "`%p0` may be read before it is written");
    broken_after(
        "[bh_v_n]",
        "    setp.eq.u32",
        "    @%p0 setp.eq.u32",
        "`%p0` may be read before it is written",
    );
}

#[test]
fn a_write_that_a_branch_skips_does_not_count() {
    let text = confined();
    let zero = "    mov.b32 %r1, 0;\n";
    let branch = "    @%p0 bra $L0;\n";
    assert!(text.contains(zero) && text.contains(branch));
    let moved = text.replacen(zero, "", 1).replacen(branch, &format!("{branch}{zero}"), 1);
    assert!(findings(&moved)[0].contains("`%r1` may be read before it is written"));
}

#[test]
fn a_register_that_is_not_declared_is_refused() {
    broken_after(
        BODY,
        "    bar.sync 0;",
        "    mov.u32 %r999, 0;\n    bar.sync 0;",
        "`%r999` is not declared",
    );
    broken_after(BODY, "    bar.sync 0;", "    mov.u32 %x, 0;\n    bar.sync 0;", "`%x` is not declared");
}

#[test]
fn the_prologue_has_to_be_whole() {
    let why = "the prologue lacks";
    broken("    ld.param.u32 %bh_base, [__bh_base];\n", "", why);
    broken("[__bh_load]", "[__bh_store]", why);
    broken("    ld.param.u32 %bh_base", "    mov.u32 %r0, 1;\n    ld.param.u32 %bh_base", why);
    broken("    ld.param.u32 %bh_base", "$L7:\n    ld.param.u32 %bh_base", why);
}

#[test]
fn local_memory_is_zeroed_on_every_path_to_an_access() {
    let why = "local memory that may not have been zeroed";
    broken("    st.local.b32 [bh_v_l+16], %bh_zero;\n", "", why);
    broken(
        "[bh_v_l], {%bh_zero, %bh_zero, %bh_zero, %bh_zero}",
        "[bh_v_l], {%bh_zero, %bh_zero, %bh_zero, %r0}",
        why,
    );
    broken("    mov.b32 %bh_zero, 0;\n    st.local", "    mov.b32 %bh_zero, 1;\n    st.local", why);
    let around = "    setp.eq.u32 %p0, %r0, 0;\n    @%p0 bra $L9;\n    mov.b32 %bh_zero, 0;\n    st.local.v4";
    let text = confined().replacen("    mov.b32 %bh_zero, 0;\n    st.local.v4", around, 1);
    let (before, after) = text.split_once("[bh_v_l+16], %bh_zero;\n").unwrap();
    let (next, rest) = after.split_once('\n').unwrap();
    for text in [
        // A branch goes around it, one way and the other.
        format!("{before}[bh_v_l+16], %bh_zero;\n$L9:\n{next}\n{rest}"),
        format!("{before}[bh_v_l+16], %bh_zero;\n    bra $L9;\n$L9:\n{next}\n{rest}"),
    ] {
        let found = findings(&text);
        assert!(found.iter().any(|finding| finding.contains(why)), "{found:?}\n{text}");
    }
}

#[test]
fn the_hidden_parameters_come_last_and_once() {
    let why = "last parameters are not the hidden ones";
    broken("__bh_base,", "base,", why);
    broken("    .param .u32 __bh_base,\n", "", why);
    broken("    .param .u32 __bh_store\n", "    .param .u32 __bh_store,\n    .param .u32 q\n", why);
    broken(".param .u32 __bh_load", ".param .u64 __bh_load", why);
    broken("    .param .u32 bh_v_n,", "    .param .u32 __bh_x,", "a parameter of this kind");
    broken(
        "    .param .u32 bh_v_n,",
        "    .param .u32 bh_v_n,\n    .param .u32 __bh_load,",
        "a parameter of this kind",
    );
    broken(".param .u64 bh_v_p", ".param .u64 .ptr .global .align 16 bh_v_p", "a parameter of this kind");
}

#[test]
fn a_declaration_that_the_form_does_not_have_is_refused() {
    broken("    .reg .b32 %bh_hi;\n", "", "`.reg .b32 %bh_hi` is missing");
    broken("    .reg .b64 %bh_a;", "    .reg .b32 %bh_a;", "`.reg .b64 %bh_a` is missing");
    broken_after(
        BODY,
        "    bar.sync 0;",
        "    .reg .b32 %x;\n    bar.sync 0;",
        "a declaration after the first instruction",
    );
    for pragma in ["\"unroll\"", "\"nounroll\", \"unroll\"", "nounroll"] {
        broken_after(
            BODY,
            "    bar.sync 0;",
            &format!("    .pragma {pragma};\n    bar.sync 0;"),
            "a directive in a body",
        );
    }
    broken(
        "    mov.b64 %bh_a",
        "    .pragma \"nounroll\";\n    mov.b64 %bh_a",
        "a sequence without its access",
    );
    broken_after(BODY, "    bar.sync 0;", "    {\n    }\n    bar.sync 0;", "a scope in a body");
    broken(".maxntid 256", ".noreturn", "does not bound the launch");
    broken(".maxntid 256", ".maxntid 256\n.maxntid 9", "does not bound the launch");
    broken(".const", ".global", "a module-scope variable of this kind");
    broken(".const .align 16", ".const .align 4", "a module-scope variable of this kind");
    broken(".visible .entry bh_e_k", ".func bh_e_k", "something other than an entry");
    broken(".visible .entry bh_e_k", ".weak .entry bh_e_k", "something other than an entry");
    broken(".local .align 16", ".local .align 8", "a local variable too many, too large or not aligned");
}

#[test]
fn a_clamp_that_does_not_hold_is_refused() {
    broken("min.u32 %bh_lo, %bh_lo, 20", "min.u32 %bh_lo, %bh_lo, 21", SEQUENCE);
    broken("min.u32 %bh_lo, %bh_lo, 20", "min.s32 %bh_lo, %bh_lo, 20", SEQUENCE);
    broken("min.u32 %bh_lo, %bh_lo, 60", "min.u32 %bh_lo, %bh_lo, 61", SEQUENCE);
    broken("    min.u32 %bh_lo, %bh_lo, 20;\n", "", SEQUENCE);
    broken("mov.b64 %bh_o, bh_v_l", "mov.b64 %bh_o, bh_v___nv_table", SEQUENCE);
    broken("mov.b64 %bh_o, bh_v_l", "mov.b64 %bh_o, bh_v_s", SEQUENCE);
    broken("st.local.u32 [%bh_a]", "st.local.u64 [%bh_a]", SEQUENCE);
    broken("st.local.u32 [%bh_a]", "st.global.u32 [%bh_a]", SEQUENCE);
    broken("add.s64 %bh_a, %bh_o, %bh_a", "add.s64 %bh_a, %bh_a, %bh_a", SEQUENCE);
}

#[test]
fn an_access_by_symbol_outside_its_variable_is_refused() {
    let why = "an access outside its variable";
    for access in [
        "st.shared.u32 [bh_v_s+8192], %r0",
        "ld.shared.u32 %r0, [bh_v_s+-4]",
        "ld.shared.u64 %d0, [bh_v_s+4]",
    ] {
        broken_after(BODY, "    bar.sync 0;", &format!("    {access};\n    bar.sync 0;"), why);
    }
    for access in [
        "ld.const.u32 %r0, [bh_v___nv_table+64]",
        "ld.param.u32 %r0, [bh_v_n+4]",
        "ld.local.u32 %r0, [bh_v_l+24]",
    ] {
        broken_after(BODY, "    bar.sync 0;", &format!("    {access};\n    bar.sync 0;"), why);
    }
    broken_after(
        BODY,
        "    bar.sync 0;",
        "    ld.shared.u32 %r0, [bh_v___nv_table];\n    bar.sync 0;",
        "an access to an unknown symbol",
    );
    broken_after(
        BODY,
        "    bar.sync 0;",
        "    st.global.u32 [bh_v___nv_table], %r0;\n    bar.sync 0;",
        "an access to an unknown symbol",
    );
}

#[test]
fn opcodes_that_are_not_in_the_table_are_refused() {
    let counts = ["bar.sync 1", "bar.sync 0, 64", "bar.arrive 0, 64"];
    for opcode in ["trap", "brkpt", "ld.u32 %r0, [%d0]", "frob %r0"].iter().chain(&counts) {
        let line = format!("    {opcode};\n    bar.sync 0;");
        broken_after(BODY, "    bar.sync 0;", &line, "a guarded session does not");
    }
    for hint in ["prefetch.global.L2 [%d0]", "discard.global.L2 [%d0], 128"] {
        broken_after(BODY, "    bar.sync 0;", &format!("    {hint};\n    bar.sync 0;"), "a cache hint");
    }
}

#[test]
fn control_flow_that_leaves_the_body_is_refused() {
    broken("bra $L0", "bra $L9", "`$L9` may not be named here");
    broken("bra $L0", "bra bh_v_s", "`bh_v_s` may not be named here");
    broken("    ret;\n", "", "a body that does not end");
    broken("    ret;\n", "    @%p0 ret;\n", "a body that does not end");
    broken("$L0:", "$L0:\n$L0:", "a label that is declared twice");
    broken_after(
        BODY,
        "    bar.sync 0;",
        "    cvta.shared.u64 %d0, bh_v_p;\n    bar.sync 0;",
        "does not take such an operand",
    );
    broken_after(BODY, "    bar.sync 0;", "    mov.u64 %d0, __bh_base;\n    bar.sync 0;", "not verified");
    broken_after(
        BODY,
        "    bar.sync 0;",
        "    mov.u64 %d0, k;\n    bar.sync 0;",
        "`k` may not be named here",
    );
}

#[test]
fn a_name_that_is_declared_twice_is_refused() {
    let again = "a name that is declared twice";
    broken(".shared .align 16 .b8 bh_v_s[8192]", ".shared .align 16 .b8 bh_v___nv_table[64]", again);
    broken(".shared .align 16 .b8 bh_v_s[8192]", ".shared .align 16 .b8 bh_v_p[64]", again);
    let text = confined();
    let entry = text.split_once(".visible").map(|(_, entry)| format!(".visible{entry}")).unwrap();
    assert!(findings(&format!("{text}{entry}"))[0].contains(again));
}

/// A module with an access whose space is found out when it runs.
fn split() -> String {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.entry k(.param .u64 p)\n{\n    \
                  .shared .b32 s[8];\n    .local .b32 l[4];\n    .reg .b32 %r<4>;\n    .reg .b64 %d<8>;\n    \
                  ld.param.u64 %d1, [p];\n    mov.u64 %d2, s;\n    cvta.shared.u64 %d2, %d2;\n    \
                  mov.u64 %d3, l;\n    cvta.local.u64 %d3, %d3;\n    ld.global.u64 %d4, [%d1];\n    \
                  ld.u32 %r2, [%d4];\n    st.u32 [%d4], %r2;\n    ret;\n}\n";
    print(&parse(source).and_then(|module| confine(&module)).unwrap())
}

#[test]
fn no_line_of_what_confines_a_split_access_may_be_missing() {
    let text = split();
    assert_eq!(findings(&text), [""; 0]);
    let (before, after) = text.split_at(text.find("    isspacep").unwrap());
    let lines: Vec<&str> = after.lines().collect();
    let mut guards = 0;
    for (at, line) in lines.iter().enumerate() {
        let rest: String = lines
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != at)
            .flat_map(|(_, line)| [line, "\n"])
            .collect();
        let refused = !findings(&format!("{before}{rest}")).is_empty();
        // A test, or an access with all that leads to it: one that is not there does no harm.
        let lead = line.contains("%bh_") && !line.contains('@');
        guards += usize::from(lead);
        assert!(refused || !lead, "`{line}` may be missing in\n{text}");
    }
    assert!(guards > 20, "{guards}");
}

#[test]
fn a_generic_access_is_refused_whatever_leads_to_it() {
    let text = split();
    for space in ["shared", "local", "global"] {
        for access in ["ld", "st"] {
            let (from, to) = (format!(" {access}.{space}.u32"), format!(" {access}.u32"));
            assert!(text.contains(&from));
            let found = findings(&text.replacen(&from, &to, 1));
            assert!(found.iter().any(|finding| finding.contains("a generic address")), "{from}: {found:?}");
            for other in ["shared", "local", "global"].into_iter().filter(|other| *other != space) {
                let other = format!(" {access}.{other}.u32");
                assert!(!findings(&text.replacen(&from, &other, 1)).is_empty(), "{from} for {other}");
            }
        }
    }
}

#[test]
fn calls_and_functions_are_refused() {
    let why = "a guarded session does not";
    for call in ["call f", "call.uni (%r0), f, (%r0)", "call %d0, f"] {
        broken_after(BODY, "    bar.sync 0;", &format!("    {call};\n    bar.sync 0;"), why);
    }
    let function = ".func f()\n{\n    ret;\n}\n.visible .entry bh_e_k";
    broken(".visible .entry bh_e_k", function, "something other than an entry");
    broken_after(BODY, "    bar.sync 0;", "    st.param.b32 [n], %r0;\n    bar.sync 0;", why);
    broken_after(
        BODY,
        "    bar.sync 0;",
        "    ld.param.u32 %r0, [__bh_argument0];\n    bar.sync 0;",
        "not verified",
    );
}

#[test]
fn the_terms_of_a_fast_version_are_what_its_accesses_rest_on() {
    let text = confined();
    let verified = verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    let fast = verified.entries()[0].fast.clone().unwrap();
    assert_eq!(fast.symbol, "__bh_fast_k");
    let term = PointerTerm { parameter: 0, offset: 0, align: 8, writes: true };
    assert_eq!(fast.pointers, [term]);
    // Without its stores it asks for less.
    let start = text.find("__bh_fast_k").unwrap();
    let (before, body) = text.split_at(start);
    let kept = body.lines().filter(|line| !line.contains("st.global") && !line.contains("red.global"));
    let reads = kept.flat_map(|line| [line, "\n"]).collect::<String>();
    let verified = verify(&format!("{before}{reads}")).unwrap_or_else(|report| panic!("{report}\n{reads}"));
    let fast = verified.entries()[0].fast.clone().unwrap();
    assert_eq!(fast.pointers, [PointerTerm { align: 4, writes: false, ..term }]);
}

#[test]
fn a_fast_version_leaves_nothing_alone_that_is_not_proven() {
    let broken = |from, to, why| broken_after("__bh_fast_k", from, to, why);
    let why = "an access that is not confined";
    broken("[%d0+4]", "[%d0+6]", why);
    broken("[%d0+8388608]", "[%d0+68719476733]", why);
    broken("[%d0+8388608]", "[%d0+68719476736]", why);
    broken(
        "red.global.add.u64 [%d0]",
        "mov.b64 %d1, %d0;\n    @%p0 bra $L9;\n    mov.b64 %d1, 0;\n$L9:\n    red.global.add.u64 [%d1]",
        why,
    );
    broken("red.global.add.u64 [%d0]", "red.global.add.u64 [%d0+4]", why);
    broken("ld.param.u64 %d0, [bh_v_p];", "ld.param.u64 %d0, [bh_v_p];\n    mov.b64 %d0, 0;", why);
    broken(
        "ld.param.u64 %d0, [bh_v_p];",
        "mov.b64 %d0, 0;\n    @%p0 ld.param.u64 %d0, [bh_v_p];",
        "before it is written",
    );
    broken("ld.param.u64 %d0, [bh_v_p];", "mov.b64 %d0, 0;", why);
    broken("ld.param.u64 %d0, [bh_v_p];", "ld.param.u64 %d0, [bh_v_p+4];", "an access outside its variable");
    broken("ld.param.u64 %d0, [bh_v_p];", "ld.param.u64 %d0, [__bh_base];", SEQUENCE);
    // The local variable and shared memory are confined as ever.
    broken("min.u32 %bh_lo, %bh_lo, 20", "min.u32 %bh_lo, %bh_lo, 21", SEQUENCE);
}

#[test]
fn a_fast_version_is_declared_as_the_entry_before_it() {
    let broken = |from, to, why| broken_after("__bh_fast_k", from, to, why);
    let why = "not declared as its entry";
    broken("__bh_fast_k", "__bh_fast_j", why);
    broken(".param .u32 bh_v_n", ".param .u64 bh_v_n", why);
    broken(".param .u32 bh_v_n", ".param .u32 bh_v_m", why);
    broken(".maxntid 256", ".maxntid 512", why);
    broken(".maxntid 256\n", "", why);
    let text = confined();
    let (fast, entry) =
        (text.find(".visible .entry __bh_fast_k").unwrap(), text.find(".visible .entry bh_e_k").unwrap());
    let [head, entry, fast] = [&text[..entry], &text[entry..fast], &text[fast..]];
    for text in
        [format!("{head}{fast}"), format!("{head}{fast}{entry}"), format!("{head}{entry}{fast}{fast}")]
    {
        let found = findings(&text);
        let follows = |finding: &String| finding.contains("a fast version that does not follow its entry");
        assert!(found.iter().any(follows), "{found:?}");
    }
}

#[test]
fn a_block_that_reaches_out_of_a_variable_is_asked_about() {
    let source = SOURCE.replace("mov.u32 %r3, s;", "mov.u32 %r3, %tid.x;\n    mad.lo.u32 %r3, %r3, 16, %r4;");
    let source = source.replace("ld.param.u32 %r1, [n];", "ld.param.u32 %r1, [n];\n    mov.u32 %r4, s;");
    let source = source
        .replace("ld.const.u32 %r4", "ld.const.u32 %r2")
        .replace("mov.u32 %r3, %tid.x;", "mov.u32 %r5, %tid.x;");
    let source = source.replace("mad.lo.u32 %r3, %r3, 16", "mad.lo.u32 %r3, %r5, 16");
    let text = print(&parse(&source).and_then(|module| confine(&module)).unwrap());
    let verified = verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    let fast = verified.entries()[0].fast.clone().unwrap();
    assert_eq!(
        fast.shared,
        [SharedTerm { by: along([16, 0, 0]), constant: 4, at_most: Some(8192) }],
        "{text}"
    );
    let (before, body) = text.split_at(text.find("__bh_fast_k").unwrap());
    let access = body.lines().find(|line| line.contains("st.shared.u32 [%r")).unwrap().trim();
    let with = |other: &str| findings(&format!("{before}{}", body.replacen(access, other, 1)));
    assert_eq!(with(&access.replace(']', "+8188]")), [""; 0]);
    assert!(with(&access.replace(']', "+8192]"))[0].contains("an access outside its variable"));
    assert!(with(&access.replace(']', "+-4]"))[0].contains("an access that is not confined"));
    assert!(with(&access.replace(']', "+2]"))[0].contains("an access that is not confined"));
    // A variable that the bounds leave out is not zeroed: another session's words may be in it.
    let taken = body
        .lines()
        .find(|line| line.trim().starts_with("mov.u32 %r") && line.ends_with(", bh_v_s;"))
        .unwrap();
    let other = body.replacen(taken, &taken.replace(", bh_v_s;", ", bh_v_t;"), 1);
    let declared = "    .shared .align 16 .b8 bh_v_s[8192];\n";
    let other = other.replacen(declared, &format!("{declared}    .shared .align 16 .b8 bh_v_t[8192];\n"), 1);
    let found = findings(&format!("{before}{other}"));
    assert!(found.iter().any(|finding| finding.contains("an access outside its variable")), "{found:?}");
    // So many terms and no more.
    let many = |count: u32| {
        let more = (1..count).map(|number| {
            format!(
                "    mad.lo.u32 %r2{number}, %r0, {}, %r100;\n    st.shared.u32 [%r2{number}], %r0;\n",
                16 + 4 * number
            )
        });
        let body = more.collect::<String>();
        let entry = |name: &str, body: &str| {
            text[text.find(".visible").unwrap()..text.find("ld.param.u64 %d0").unwrap()]
                .replace(".entry bh_e_k", &format!(".entry {name}"))
                + body
                + "    ret;\n}\n"
        };
        let top = "    mov.u32 %r0, %tid.x;\n    mov.b32 %r100, bh_v_s;\n    mad.lo.u32 %r101, %r0, 16, %r100;\n    st.shared.u32 [%r101], %r0;\n";
        let head = &text[..text.find(".visible").unwrap()];
        let text = format!("{head}{}{}", entry("bh_e_k", ""), entry("__bh_fast_k", &format!("{top}{body}")));
        let registers = text.find(".reg .b32 %r<").unwrap();
        let end = registers + text[registers..].find(';').unwrap();
        let text = text.replace(&text[registers..end], ".reg .b32 %r<300>");
        let text = print(&parse(&text).unwrap());
        findings(&text)
    };
    assert_eq!(many(16), [""; 0]);
    assert!(many(17)[0].contains("too many terms"), "{:?}", many(17));
}

#[test]
fn an_architecture_that_lacks_what_the_confined_form_is_written_in_is_refused() {
    for old in ["sm_20", "sm_61", "sm_62a"] {
        let found = findings(&confined().replacen(".target sm_75", &format!(".target {old}"), 1));
        assert!(found.iter().any(|finding| finding.contains("the header")), "{old}: {found:?}");
    }
}
