//! What is known of the low bits of shared addresses: of which the clamp is made a multiple, and not the address.

use bulkhead_guard::{confine, parse, print, verify};

#[test]
fn an_address_of_which_nothing_is_known_is_made_a_multiple_itself() {
    let of = |variable: &str, base: &str| {
        let source = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n{variable}\n\
             .visible .entry k(.param .u32 n)\n{{\n.reg .b32 %r<8>;\nld.param.u32 %r1, [n];\nmov.u32 %r2, s;\n\
             {base}\nst.shared.u32 [%r3], %r1;\nret;\n}}\n"
        );
        print(&parse(&source).and_then(|module| confine(&module)).unwrap())
    };
    let (dynamic, fixed) = (".extern .shared .align 4 .b8 s[];", ".shared .align 4 .b8 s[8190];");
    let two = ".shared .align 4 .b8 s[8190];\n.shared .align 4 .b8 t[8190];";
    let (cut, min) = ("    and.b32 %bh_s, %bh_s, -4;\n", "    min.u32 %bh_s, %bh_s, %bh_lo;\n");
    let (behind, once) = ("    sub.s32 %bh_lo, %bh_lo, 4;\n", "    and.b32 %bh_lo, %bh_lo, -4;\n");
    let (between, max) = ("    sub.s32 %bh_lo, %bh_top, 4;\n", "    max.u32 %bh_s, %bh_s, %bh_low;\n");
    let last = "    min.u32 %bh_s, %bh_s, 8184;\n";
    for (variable, each, once) in [
        (dynamic, format!("{behind}{min}{cut}"), format!("{behind}{once}{min}")),
        (fixed, format!("{last}{cut}"), last.to_owned()),
        (two, format!("{between}{min}{max}{cut}"), format!("{between}{once}{min}{max}")),
    ] {
        let known = of(variable, "shl.b32 %r4, %r1, 2;\nadd.u32 %r3, %r2, %r4;");
        assert!(known.contains(&once) && !known.contains(&each), "{known}");
        verify(&known).unwrap();
        // Either way it stays inside.
        verify(&known.replace(&once, &each)).unwrap();
        for base in
            ["add.u32 %r3, %r2, %r1;", "shl.b32 %r4, %r1, 1;\nadd.u32 %r3, %r2, %r4;", "mov.u32 %r3, %r1;"]
        {
            let unknown = of(variable, base);
            assert!(unknown.contains(&each), "{unknown}");
            verify(&unknown).unwrap();
            assert!(verify(&unknown.replace(&each, &once)).is_err(), "{unknown}");
        }
        for (offset, is_known) in [(4, true), (2, false)] {
            let base = format!("mov.u32 %r5, s+{offset};\nshl.b32 %r4, %r1, 2;\nadd.u32 %r3, %r5, %r4;");
            let text = of(variable, &base);
            assert_eq!(text.contains(&each), !is_known, "{text}");
            verify(&text).unwrap();
        }
    }
}
