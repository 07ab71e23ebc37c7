//! Parameters of entries that are read by their address: what the verifier takes of that, and what not.

use bulkhead_guard::{confine, parse, print, verify};

/// The reason for what no sequence confines.
const SEQUENCE: &str = "an access that no sequence confines";

/// The findings against a text; none where it is verified.
fn findings(text: &str) -> Vec<String> {
    match verify(text) {
        Ok(_) => Vec::new(),
        Err(report) => report.findings.iter().map(ToString::to_string).collect(),
    }
}

/// A parameter that is read by its address.
const INDEXED: &str = ".version 8.0\n.target sm_90\n.address_size 64\n\
    .visible .entry k(.param .u64 p, .param .u64 n, .param .align 4 .b8 list[12], .param .align 4 .b8 rest[400])\n{\n\
    .reg .b32 %r<2>;\n.reg .b64 %d<3>;\nld.param.u64 %d0, [p];\nld.param.u64 %d1, [n];\nmov.b64 %d2, list;\n\
    add.s64 %d2, %d2, %d1;\nld.param.u32 %r0, [%d2+4];\nst.global.u32 [%d0], %r0;\nret;\n}\n";

#[test]
fn a_read_of_a_parameter_by_its_address_stays_inside() {
    let text = print(&confine(&parse(INDEXED).unwrap()).unwrap());
    assert_eq!(findings(&text), Vec::<String>::new(), "{text}");
    let broken = |from: &str, to: &str, why: &str| {
        assert!(text.contains(from), "no `{from}` in\n{text}");
        let found = findings(&text.replace(from, to));
        assert!(found.iter().any(|finding| finding.contains(why)), "{from} to {to}: {found:?}");
    };
    broken("min.u32 %bh_lo, %bh_lo, 8", "min.u32 %bh_lo, %bh_lo, 9", SEQUENCE);
    broken("min.u32 %bh_lo, %bh_lo, 8", "min.u32 %bh_lo, %bh_lo, 396", SEQUENCE);
    broken("min.u32 %bh_lo, %bh_lo, 8", "min.s32 %bh_lo, %bh_lo, 8", SEQUENCE);
    broken("and.b32 %bh_lo, %bh_lo, -4", "and.b32 %bh_lo, %bh_lo, -2", SEQUENCE);
    broken("    and.b32 %bh_lo, %bh_lo, -4;\n", "", SEQUENCE);
    broken("    min.u32 %bh_lo, %bh_lo, 8;\n", "", SEQUENCE);
    broken("cvt.u32.u64 %bh_lo", "cvt.s32.u64 %bh_lo", SEQUENCE);
    broken("cvt.u64.u32 %bh_a", "cvt.s64.s32 %bh_a", SEQUENCE);
    broken("ld.param.u32 %r0, [%bh_a]", "ld.param.u32 %r0, [%bh_a+4]", SEQUENCE);
    broken("ld.param.u32 %r0, [%bh_a]", "ld.param.u32 %r0, [%d2]", "not verified");
    broken("ld.param.u32 %r0, [%bh_a]", "ld.param.u64 %d2, [%bh_a]", SEQUENCE);
    broken("ld.param.u32 %r0, [%bh_a]", "st.param.u32 [%bh_a], %r0", "");
    broken("ld.param.u32 %r0, [%bh_a]", "ld.local.u32 %r0, [%bh_a]", "not verified");
    broken("mov.b64 %bh_o, bh_v_list", "mov.b64 %bh_o, __bh_base", SEQUENCE);
    broken("mov.b64 %bh_o, bh_v_list", "mov.b64 %bh_o, bh_v_p", SEQUENCE);
    broken("mov.b64 %d2, bh_v_list", "cvta.local.u64 %d2, bh_v_list", "not verified");
    broken("mov.b64 %d2, bh_v_list", "add.s64 %d2, %d1, bh_v_list", "not verified");
    // A read of eight bytes may not be aligned there, whatever its sequence says.
    let wide = text.replace("ld.param.u32 %r0, [%bh_a]", "ld.param.u64 %d2, [%bh_a]");
    let wide = wide
        .replace("min.u32 %bh_lo, %bh_lo, 8", "min.u32 %bh_lo, %bh_lo, 4")
        .replace("%bh_lo, -4", "%bh_lo, -8");
    assert!(findings(&wide).iter().any(|finding| finding.contains(SEQUENCE)), "{:?}", findings(&wide));
}

/// Entries that take the address of a parameter as a word: it is aligned as nothing in shared memory is.
const WORDS: [&str; 2] = [
    "mov.u32 %r2, list;\nadd.s32 %r3, %r2, 4096;\nmov.u32 %r0, %ctaid.x;\nshl.b32 %r0, %r0, 4;\n\
     add.s32 %r3, %r3, %r0;\nst.shared.u32 [%r3], %r1;\n",
    "mov.u32 %r1, list;\nadd.s32 %r2, %r1, 2147483632;\nadd.s32 %r3, %r2, 16;\nand.b32 %r4, %r3, 65535;\n\
     mul.wide.u32 %d2, %r4, 1;\nadd.s64 %d3, %d1, %d2;\nst.global.u32 [%d3], %r3;\n",
];

#[test]
fn the_address_of_a_parameter_is_no_word() {
    for body in WORDS {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .align 1 .b8 c[1], \
             .param .align 1 .b8 list[12])\n{{\n.reg .b32 %r<6>;\n.reg .b64 %d<4>;\n.shared .align 16 .b8 s[8192];\n\
             ld.param.u64 %d1, [p];\nmov.u32 %r1, 7;\nmov.u32 %r5, s;\nst.shared.u32 [%r5], %r1;\n{body}ret;\n}}\n"
        );
        // It is copied, as other addresses are that more is done with than reading, and lies at a multiple of 16 there.
        if let Ok(module) = confine(&parse(&text).unwrap()) {
            let text = print(&module);
            assert!(!text.contains("bh_v_list;"), "{text}");
            assert_eq!(findings(&text), Vec::<String>::new(), "{text}");
        }
    }
    let text = print(&confine(&parse(INDEXED).unwrap()).unwrap());
    for word in ["b32", "u32", "s32"] {
        let taken = text.replace("mov.b64 %d2, bh_v_list", &format!("mov.{word} %r0, bh_v_list"));
        assert!(taken != text);
        let found = findings(&taken);
        assert!(found.iter().any(|finding| finding.contains("may not be named here")), "{word}: {found:?}");
    }
}
