//! Names that mean something to the assembler, in texts that are otherwise confined.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{confine, parse, print, verify};

const SOURCE: &str = ".version 8.0\n.target sm_75\n.address_size 64\n.shared .align 16 .b8 s[8192];\n.const .align 4 .b8 table[4] = {1};\n\
    .visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<5>;\n    mov.u32 %r3, s;\n    mov.u32 %r1, %tid.x;\n\
    st.shared.u32 [%r3], %r1;\nret;\n}\n";

#[test]
fn a_variable_that_the_assembler_takes_for_a_register_is_refused() {
    let source = SOURCE.replace(".shared .align 16 .b8 s[8192];\n", "").replace("    mov.u32 %r3, s;\n", "");
    let source = source.replace("st.shared.u32 [%r3]", "st.shared.u32 [s]");
    let source = source.replacen(".const", ".visible .shared .align 16 .b32 s;\n.const", 1);
    let text = print(&confine(&parse(&source).unwrap()).unwrap());
    verify(&text).unwrap();
    let renamed = text.replace("b32 s;", "b32 A7;").replace(", s;", ", A7;").replace("[s]", "[A7]");
    assert!(renamed.matches("A7").count() > 2, "{renamed}");
    assert!(verify(&renamed).is_err(), "{renamed}");
}

#[test]
fn shared_memory_that_the_assembler_takes_for_the_systems_is_refused() {
    let own = ".shared .align 16 .b8 s[8192];\n";
    let source = SOURCE.replace(own, "").replacen(".const", &format!("{own}.const"), 1);
    let text = print(&confine(&parse(&source).unwrap()).unwrap());
    verify(&text).unwrap();
    for name in ["__nv_reservedSMEM_offset_0_alias", "__nv_reservedSMEM_allocation_mask"] {
        let renamed = text.replace("b8 s[", &format!("b8 {name}[")).replace(", s;", &format!(", {name};"));
        assert!(renamed.contains(&format!("{name}[8192]")), "{renamed}");
        assert!(verify(&renamed).is_err(), "{renamed}");
    }
}
