//! Names that mean something to the assembler, in texts that are otherwise confined.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{confine, parse, print, verify};

/// Names that ptxas 13.0 takes for a register of its own and for words that the system keeps, and two that it takes for a
/// tenant's.
const NAMES: [&str; 5] = ["A7", "__nv_reservedSMEM_offset_0_alias", "__cuda_x", "RZ", "bh_x"];

/// A variable, a parameter, a local variable and a table, each with a name of its own.
fn source(names: [&str; 4]) -> String {
    let [shared, parameter, local, table] = names;
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.shared .align 16 .b8 {shared}[8192];\n\
         .const .align 4 .b8 __nv_{table}[4] = {{1}};\n.visible .entry k(.param .u32 {parameter})\n{{\n\
         .reg .b32 %r<5>;\n.local .b32 {local}[4];\nld.param.u32 %r1, [{parameter}];\nst.shared.u32 [{shared}+4], %r1;\n\
         mov.u32 %r3, {shared};\nst.shared.u32 [%r3], %r1;\nst.local.v2.u32 [{local}], {{%r1, %r1}};\n\
         ld.const.u32 %r4, [__nv_{table}];\nret;\n}}\n"
    )
}

fn confined(names: [&str; 4]) -> String {
    let text = print(&confine(&parse(&source(names)).unwrap()).unwrap());
    verify(&text).unwrap();
    text
}

#[test]
fn no_name_of_a_tenants_variable_reaches_the_assembler_as_it_is() {
    for name in NAMES {
        for place in 0..4 {
            let mut names = ["s", "p", "l", "t"];
            names[place] = name;
            let text = confined(names);
            let words = text.split(|byte: char| !(byte.is_alphanumeric() || "_$%.".contains(byte)));
            let own = |word: &&str| word.ends_with(name) && !word.starts_with(['.', '%']);
            let found: Vec<&str> = words.filter(own).collect();
            assert!(
                found.len() >= 2 && found.iter().all(|word| word.starts_with("bh_v_")),
                "{found:?}\n{text}"
            );
        }
    }
}

#[test]
fn a_confined_text_with_a_name_of_another_kind_is_refused() {
    let text = confined(["s", "p", "l", "t"]);
    for own in ["bh_v_s", "bh_v_p", "bh_v_l", "bh_v___nv_t"] {
        for name in NAMES.into_iter().chain(["v", "bh_v", "Bh_v_s", "$bh_v_s"]) {
            let renamed = text.replace(own, name);
            assert!(renamed != text && verify(&renamed).is_err(), "{renamed}");
        }
    }
}

#[test]
fn an_entry_is_not_called_like_a_variable_of_the_confined_form_or_a_function_of_the_assembler() {
    for name in [
        "bh_v_s",
        "__cuda_sm70_warpsync",
        "__internal_x",
        "__nv_reservedSMEM_offset_0_alias",
        "A7",
        "$",
        "$__internal_0_$__cuda_sm20_div_u64",
    ] {
        let source = source(["s", "p", "l", "t"]).replace(".entry k", &format!(".entry {name}"));
        assert!(confine(&parse(&source).unwrap()).unwrap_err().to_string().contains("is reserved"), "{name}");
        let text = confined(["s", "p", "l", "t"]).replace(".entry k", &format!(".entry {name}"));
        assert!(verify(&text.replace("__bh_fast_k", &format!("__bh_fast_{name}"))).is_err(), "{text}");
    }
}
