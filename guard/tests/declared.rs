//! What a module and its entries declare besides their bodies: `cargo run -p bulkhead-mutants` named decisions that no other
//! test sees.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod written;

use bulkhead_guard::limits::{CONSTANT_BYTES_MAX, PARAMETER_BYTES_MAX};
use bulkhead_guard::{Gates, Stray, add_gates, confine, confine_with, parse, print, verify, verify_with};
use written::{SOURCE, confined, findings};

/// The first entry of the confined module alone, as the printer has it.
fn alone() -> String {
    let text = confined();
    let entry = text.split("\n.visible .entry __bh_fast").next().unwrap();
    entry.trim_end().to_owned() + "\n"
}

/// That with the first of these lines replaced, as the printer has it.
#[track_caller]
fn instead(from: &str, to: &str) -> String {
    let text = alone();
    assert!(text.contains(from), "no `{from}` in\n{text}");
    let changed = text.replacen(from, to, 1);
    print(&parse(&changed).unwrap_or_else(|report| panic!("{to}: {report}")))
}

/// With these declarations of variables before the entry.
#[track_caller]
fn with(variables: &str) -> String {
    instead(".visible .entry bh_e_k", &format!("{variables}\n.visible .entry bh_e_k"))
}

#[track_caller]
fn refused(text: &str, why: &str) {
    let found = findings(text);
    assert!(found.iter().any(|finding| finding.contains(why)), "{why}: {found:?}\n{text}");
}

#[track_caller]
fn accepted(text: &str) {
    assert_eq!(findings(text), Vec::<String>::new(), "{text}");
}

#[test]
fn the_version_the_architecture_and_the_width_of_addresses_are_known() {
    for version in ["6.0", "8.9", "9.0"] {
        accepted(&instead(".version 8.0", &format!(".version {version}")));
    }
    for version in ["5.0", "5.9", "9.1", "10.0", "1.0"] {
        refused(&instead(".version 8.0", &format!(".version {version}")), "the header");
    }
    for target in ["sm_69", "sm_75, debug", "sm_75, sm_90", "compute_90"] {
        refused(&instead(".target sm_75", &format!(".target {target}")), "the header");
    }
    refused(&instead(".address_size 64", ".address_size 32"), "the header");
}

#[test]
fn constant_variables_are_together_as_large_as_their_bank() {
    let left = CONSTANT_BYTES_MAX - 64;
    let constant = |bytes: u64| with(&format!(".const .align 16 .b8 bh_v_c[{bytes}];"));
    accepted(&constant(left));
    refused(&constant(left + 1), "a variable too many");
    let two = |first: u64, second: u64| {
        with(&format!(".const .align 16 .b8 bh_v_c[{first}];\n.const .align 16 .b8 bh_v_d[{second}];"))
    };
    accepted(&two(32 << 10, left - (32 << 10)));
    refused(&two(32 << 10, 32 << 10), "a variable too many");
    refused(&two(u64::MAX / 2, 16), "");
}

#[test]
fn variables_of_other_memory_are_none_of_the_constant_bank() {
    let constant = format!(".const .align 16 .b8 bh_v_c[{}];", CONSTANT_BYTES_MAX - 64);
    let shared = format!("{constant}\n.shared .align 16 .b8 bh_v_t[1024];");
    let found = findings(&with(&shared));
    assert!(
        !found.is_empty() && found.iter().all(|finding| !finding.contains("a variable too many")),
        "{found:?}"
    );
}

#[test]
fn names_of_variables_are_declared_once() {
    for (first, second) in [
        (".const .align 16 .b8 bh_v_c[16];", ".const .align 16 .b8 bh_v_c[16];"),
        (".const .align 16 .b8 bh_v_c[16];", ".const .align 16 .b8 bh_v_c[32];"),
        (".const .align 16 .b8 bh_v_c[16];", ".extern .shared .align 16 .b8 bh_v_c[];"),
        (".extern .shared .align 16 .b8 bh_v_c[];", ".extern .shared .align 16 .b8 bh_v_c[];"),
    ] {
        refused(&with(&format!("{first}\n{second}")), "a variable too many");
    }
}

#[test]
fn only_names_of_dynamic_shared_memory_are_aligned_alike() {
    accepted(&with(".const .align 32 .b8 bh_v_c[32];\n.extern .shared .align 16 .b8 bh_v_t[];"));
    accepted(&with(".const .align 64 .b8 bh_v_c[64];\n.const .align 32 .b8 bh_v_d[64];"));
    let sized = ".shared .align 32 .b8 bh_v_t[64];\n.extern .shared .align 16 .b8 bh_v_u[];";
    let found = findings(&with(sized));
    assert!(found.iter().all(|finding| !finding.contains("of another alignment")), "{found:?}");
    let apart = ".extern .shared .align 32 .b8 bh_v_t[];\n.extern .shared .align 16 .b8 bh_v_u[];";
    refused(&with(apart), "dynamic shared memory of another alignment");
}

#[test]
fn module_scope_variables_are_constants_or_shared_and_aligned_for_any_access() {
    let kind = "a module-scope variable of this kind";
    accepted(&with(".const .align 16 .b8 bh_v_c[16] = {1, 2};"));
    accepted(&with(".visible .const .align 16 .b8 bh_v_c[16];"));
    accepted(&with(".extern .shared .align 16 .b8 bh_v_t[];"));
    for variable in [
        ".const .align 8 .b8 bh_v_c[16];",
        ".const .align 16 .b64 bh_v_c[2] = {bh_v___nv_table};",
        ".const .align 16 .b64 bh_v_c[2] = {1, bh_v___nv_table};",
        ".const .align 16 .b64 bh_v_c[2] = {generic(bh_v___nv_table)};",
        ".const .align 16 .b8 bh_v_c[];",
        ".extern .const .align 16 .b8 bh_v_c[16];",
        ".weak .const .align 16 .b8 bh_v_c[16];",
        ".shared .align 8 .b8 bh_v_t[16];",
        ".shared .align 16 .b8 bh_v_t[16] = {1};",
        ".shared .align 16 .b8 bh_v_t[];",
        ".extern .shared .align 16 .b8 bh_v_t[16];",
        ".extern .shared .align 16 .b8 bh_v_t[] = {1};",
        ".extern .shared .align 8 .b8 bh_v_t[];",
        ".weak .shared .align 16 .b8 bh_v_t[16];",
        ".global .align 16 .b8 bh_v_t[16];",
        ".local .align 16 .b8 bh_v_t[16];",
    ] {
        refused(&with(variable), kind);
    }
    for variable in [".const .align 16 .b8 bh_v_c[4][0];", ".const .align 16 .b8 bh_v_c[0][4];"] {
        refused(&with(variable), "a variable without a size");
    }
}

#[test]
fn an_entry_is_called_as_the_tenant_calls_it_behind_a_prefix() {
    let why = "an entry with a name of another kind";
    for name in ["bh_e_k2", "bh_e__", "bh_e_bh_e_k", "bh_e___bh_fast_k"] {
        accepted(&instead(".entry bh_e_k", &format!(".entry {name}")));
    }
    for name in ["k", "bh_e_", "bh_v_k", "__bh_k"] {
        refused(&instead(".entry bh_e_k", &format!(".entry {name}")), why);
    }
}

#[test]
fn an_entry_has_no_attributes() {
    let attributes = instead(".entry bh_e_k", ".entry .attribute(.unified(1, 2)) bh_e_k");
    refused(&attributes, "something other than an entry with a body");
}

#[test]
fn parameters_are_plain_and_together_as_many_bytes_as_there_may_be() {
    let parameter = |declared: &str| {
        let text = instead("    .param .u32 bh_v_n,", &format!("    .param {declared},"));
        let load = "    ld.param.u32 %r0, [bh_v_n];\n";
        assert!(text.contains(load), "{text}");
        text.replacen(load, "    mov.u32 %r0, 1;\n", 1)
    };
    // The hidden ones are 12 bytes and 8 to align them, the pointer is 8 and as many to align it.
    let most = PARAMETER_BYTES_MAX - 20 - 16 - 4;
    accepted(&parameter(&format!(".align 4 .b8 bh_v_n[{most}]")));
    refused(&parameter(&format!(".align 4 .b8 bh_v_n[{}]", most + 1)), "too many bytes of parameters");
    for declared in
        [".align 4 .b8 bh_v_n[0]", ".align 4 .b8 bh_v_n[2][0]", ".v2 .u32 bh_v_n", ".v4 .f32 bh_v_n"]
    {
        refused(&parameter(declared), "a parameter of this kind");
    }
    let register = instead("    .param .u32 bh_v_n,", "    .reg .u32 bh_v_n,");
    refused(&register, "a parameter of this kind");
    let again = parameter(".u32 bh_v_n").replacen(
        ".param .u32 bh_v_n,",
        ".param .u32 bh_v_n,\n    .param .u32 bh_v_n,",
        1,
    );
    refused(&again, "a name that is declared twice");
    let as_variable = parameter(".u32 bh_v___nv_table");
    refused(&as_variable, "a name that is declared twice");
}

#[test]
fn what_bounds_a_launch_stands_once() {
    for bounds in [".maxntid 256\n.minnctapersm 2", ".maxntid 256, 1, 1", ".maxnreg 64", ".reqntid 32"] {
        accepted(&instead(".maxntid 256", bounds));
    }
    for bounds in [
        ".maxntid 256\n.maxntid 256",
        ".maxntid 256\n.minnctapersm 2\n.maxntid 256",
        ".maxntid 256\n.minnctapersm 2\n.minnctapersm 2",
        ".maxntid 256\n.noreturn",
        ".noreturn\n.maxntid 256",
    ] {
        refused(&instead(".maxntid 256", bounds), "a directive that does not bound the launch");
    }
}

/// A launch gives as much dynamic shared memory as both versions need.
#[test]
fn a_fast_version_may_need_more_dynamic_shared_memory() {
    let source = SOURCE
        .replace(".visible .entry k", ".extern .shared .align 16 .b8 s[];\n.visible .entry k")
        .replace("    .shared .align 16 .b8 s[8192];\n", "")
        .replace("mov.u32 %r3, s;", "mov.u32 %r3, s;\n    xor.b32 %r3, %r3, %r2;");
    let text = print(&parse(&source).and_then(|module| confine(&module)).unwrap());
    let span = "sub.s32 %bh_lo, %bh_lo, 4;";
    let (first, second) = text.split_at(text.find("__bh_fast_k").unwrap());
    assert!(first.contains(span) && second.contains(span), "{text}");
    let needs = |first: &str, second: &str| {
        verify(&format!("{first}{second}")).unwrap().entries()[0].dynamic_shared_min
    };
    let more = |text: &str| text.replace(span, "sub.s32 %bh_lo, %bh_lo, 8192;");
    assert_eq!(needs(first, second), 4);
    assert_eq!(needs(first, &more(second)), 8192);
    assert_eq!(needs(&more(first), second), 8192);
}

/// What a launch gives an entry is given to its fast version too: the windows of modules among it.
#[test]
fn a_fast_version_calls_gates_of_the_same_modules() {
    let gate = |name: &str| {
        format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .func (.param .b32 r) {name}(.param .b64 a)\n{{\n\
             .reg .b32 %r<2>;\n.pragma \"bulkhead protected\";\natom.global.add.u32 %r1, [0], 1;\nst.param.b32 [r], %r1;\nret;\n}}\n"
        )
    };
    let mut gates = Gates::default();
    for name in ["one", "two"] {
        add_gates(&mut gates, name, &gate(name)).unwrap();
    }
    let source = ".version 8.0\n.target sm_90\n.address_size 64\n.extern .func (.param .b32 r) one(.param .b64 a);\n\
        .visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<2>;\n.reg .b64 %d<2>;\nld.param.u64 %d1, [p];\n\
        call (%r1), one, (%d1);\nst.global.u32 [%d1], %r1;\nret;\n}\n";
    let text = print(&confine_with(&parse(source).unwrap(), Stray::Silent, &gates).unwrap());
    let (first, second) = text.split_at(text.find(".visible .entry __bh_fast_k").unwrap());
    let other = |text: &str| {
        assert!(text.contains("__bh_g0_one"), "{text}");
        text.replace("__bh_g0_one", "__bh_g0_two")
    };
    let verified = |first: &str, second: &str| verify_with(&format!("{first}{second}"), &gates);
    assert_eq!(verified(first, second).unwrap().entries()[0].modules, ["one"]);
    assert_eq!(verified(&other(first), &other(second)).unwrap().entries()[0].modules, ["two"]);
    for (first, second) in [(first, other(second).as_str()), (other(first).as_str(), second)] {
        let report = verified(first, second).unwrap_err().to_string();
        assert!(report.contains("a fast version that calls gates of other modules"), "{report}");
    }
}
