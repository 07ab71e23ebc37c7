//! What bounds and zeroes shared memory.

use super::*;

#[test]
fn a_shared_clamp_that_does_not_hold_is_refused() {
    let min = "min.u32 %bh_s, %bh_s, 8188;";
    let behind = "sub.s32 %bh_s, %bh_s, %bh_low;";
    broken(&format!("    {min}\n"), "", SEQUENCE);
    broken(&format!("    {behind}\n"), "", SEQUENCE);
    broken(behind, "sub.s32 %bh_s, %bh_s, %bh_top;", SEQUENCE);
    broken(behind, "sub.s32 %bh_s, %bh_low, %bh_s;", SEQUENCE);
    broken(min, "min.s32 %bh_s, %bh_s, 8188;", SEQUENCE);
    for other in ["8192", "-4", "%bh_top", "%bh_lo", "%r1"] {
        broken(min, &min.replace("8188", other), SEQUENCE);
    }
    for other in ["u32 [%bh_s]", "u32 [%bh_s+1028]", "u32 [%bh_s+1020]", "u32 [%bh_s+-4]", "u64 [%bh_s+1024]"]
    {
        broken("st.shared.u32 [%bh_s+1024]", &format!("st.shared.{other}"), SEQUENCE);
    }
    broken("    mov.b32 %bh_s, %r2;\n", "", SEQUENCE);
    // Where another variable may come first nobody knows where this one is.
    broken(".visible .entry bh_e_k", ".shared .align 16 .b8 bh_v_t[16];\n.visible .entry bh_e_k", SEQUENCE);
}

#[test]
fn a_clamp_of_dynamic_shared_memory_that_does_not_hold_is_refused() {
    let source = SOURCE
        .replace(".visible .entry k", ".extern .shared .align 16 .b8 s[];\n.visible .entry k")
        .replace("    .shared .align 16 .b8 s[8192];\n", "");
    let text = print(&parse(&source).and_then(|module| confine(&module)).unwrap());
    let needs = |text: &str| verify(text).unwrap().entries()[0].dynamic_shared_min;
    assert_eq!(needs(&text), 4, "{text}");
    let broken = |from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from} in\n{text}");
        let found = findings(&changed);
        assert!(found.iter().any(|finding| finding.contains(SEQUENCE)), "{to}: {found:?}");
    };
    let (min, span) = ("min.u32 %bh_s, %bh_s, %bh_lo;", "sub.s32 %bh_lo, %bh_lo, 4;");
    broken("    min.u32 %bh_s, %bh_s, %bh_lo;\n", "");
    broken("    sub.s32 %bh_s, %bh_s, %bh_low;\n", "");
    broken("    sub.s32 %bh_lo, %bh_top, %bh_low;\n", "");
    broken("sub.s32 %bh_s, %bh_s, %bh_low;", "sub.s32 %bh_s, %bh_s, %bh_top;");
    broken("sub.s32 %bh_lo, %bh_top, %bh_low;", "mov.b32 %bh_lo, %bh_top;");
    broken(min, "min.u32 %bh_s, %bh_s, %bh_top;");
    broken(min, "min.s32 %bh_s, %bh_s, %bh_lo;");
    broken(min, "min.u32 %bh_s, %bh_s, 4096;");
    for other in ["3", "0", "-4", "16385"] {
        broken(span, &span.replace(" 4;", &format!(" {other};")));
    }
    for other in ["u32 [%bh_s]", "u32 [%bh_s+1028]", "u32 [%bh_s+1020]", "u64 [%bh_s+1024]"] {
        broken("st.shared.u32 [%bh_s+1024]", &format!("st.shared.{other}"));
    }
    // What a clamp leaves room for, the launch has to give.
    assert_eq!(needs(&text.replace(span, "sub.s32 %bh_lo, %bh_lo, 8192;")), 8192);
    // Dynamic shared memory lies behind what is static.
    broken(".visible .entry bh_e_k", ".shared .align 16 .b8 bh_v_other[16];\n.visible .entry bh_e_k");
}

#[test]
fn a_shared_clamp_between_two_addresses_that_does_not_hold_is_refused() {
    let source = SOURCE
        .replace(".visible .entry k", ".shared .align 16 .b8 t[16];\n.visible .entry k")
        .replace("s[8192];", "s[8192];\n    st.shared.u32 [t], 1;");
    let text = print(&parse(&source).and_then(|module| confine(&module)).unwrap());
    assert_eq!(findings(&text), [""; 0]);
    let broken = |from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from} in\n{text}");
        let found = findings(&changed);
        assert!(found.iter().any(|finding| finding.contains(SEQUENCE)), "{to}: {found:?}");
    };
    broken("    min.u32 %bh_s, %bh_s, %bh_lo;\n", "");
    broken("    max.u32 %bh_s, %bh_s, %bh_low;\n", "");
    broken("min.u32 %bh_s, %bh_s, %bh_lo;", "min.u32 %bh_s, %bh_s, %bh_top;");
    broken("min.u32 %bh_s, %bh_s, %bh_lo;", "min.s32 %bh_s, %bh_s, %bh_lo;");
    broken("%bh_lo, %bh_top, 4", "%bh_lo, %bh_top, 3");
    broken("%bh_lo, %bh_top, 4", "%bh_lo, %bh_top, 8209");
    for other in ["u32 [%bh_s+4]", "u32 [%bh_s+-4]", "u32 [%bh_s+1024]", "u64 [%bh_s]"] {
        broken("st.shared.u32 [%bh_s]", &format!("st.shared.{other}"));
    }
    broken("    mov.b32 %bh_s, %r2;\n", "");
}

#[test]
fn a_mask_that_lets_go_of_shared_memory_is_refused() {
    let source = SOURCE
        .replace("s[8192]", "s[1500]")
        .replace("[%r3], %r1;", "[%r3+8], %r1;\n    st.shared.u32 [%r3], %r1;");
    let text = print(&parse(&source).and_then(|module| confine(&module)).unwrap());
    assert_eq!(findings(&text), [""; 0]);
    let broken = |from: &str, to: &str, why: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from} in\n{text}");
        let found = findings(&changed);
        assert!(found.iter().any(|finding| finding.contains(why)), "{to}: {found:?}");
    };
    let mask = "and.b32 %bh_s, %bh_s, 2032;";
    for other in ["4092", "2045", "2056", "-4", "2042", "%r0"] {
        broken(mask, &mask.replace("2032", other), SEQUENCE);
    }
    broken(mask, &mask.replace("and.b32", "xor.b32"), SEQUENCE);
    broken(&format!("    {mask}\n"), "", SEQUENCE);
    broken(mask, "and.b32 %bh_s, %bh_s, 2032;\n    or.b32 %bh_s, %bh_s, %bh_low;", SEQUENCE);
    for other in
        ["u32 [%bh_s+2080]", "u32 [%bh_s+2054]", "u32 [%bh_s+2044]", "u32 [%bh_s+8]", "u64 [%bh_s+2060]"]
    {
        broken("st.shared.u32 [%bh_s+2056]", &format!("st.shared.{other}"), SEQUENCE);
    }
    // Where another variable may come first nobody knows where this one is.
    let other = ".shared .align 16 .b8 bh_v_other[16];\n.visible .entry bh_e_k";
    broken(".visible .entry bh_e_k", other, SEQUENCE);
    let none = ".extern .shared .align 16 .b8 bh_v_other[];\n.visible .entry bh_e_k";
    let changed = text.replacen(".visible .entry bh_e_k", none, 1);
    assert_eq!(findings(&changed), [""; 0], "{changed}");
    // A smaller variable, or bounds that begin elsewhere than they say.
    broken("bh_v_s[3088]", "bh_v_s[3072]", SEQUENCE);
    let bounds = "mov.b32 %bh_low, bh_v_s+1024;\n    add.s32 %bh_top, %bh_low, 2064;";
    for (start, covered) in [(1032, 2056), (1024, 2080), (1040, 2064), (4096, 0), (3088, 0)] {
        let other = format!("mov.b32 %bh_low, bh_v_s+{start};\n    add.s32 %bh_top, %bh_low, {covered};");
        broken(bounds, &other, "");
    }
    broken(bounds, "mov.b32 %bh_low, bh_v_s+1056;\n    add.s32 %bh_top, %bh_low, 2032;", SEQUENCE);
    // What comes before the bounds is not zeroed.
    for access in ["st.shared.u32 [bh_v_s], %r0", "ld.shared.u32 %r0, [bh_v_s+1020]"] {
        let why = "an access outside its variable";
        broken("    mov.u64 %d1, bh_v_l;\n", &format!("    {access};\n    mov.u64 %d1, bh_v_l;\n"), why);
    }
    let proven = text.replace("mov.u32 %r2, bh_v_s+1024", "mov.u32 %r2, bh_v_s+1020");
    assert!(findings(&proven).iter().any(|finding| finding.contains("an access outside its variable")));
}

#[test]
fn the_bounds_of_shared_memory_have_to_be_computed() {
    broken("    mov.b32 %bh_low, bh_v_s;\n    add.s32 %bh_top, %bh_low, 8192;\n", "", SEQUENCE);
    broken("add.s32 %bh_top, %bh_low, 8192;", "add.s32 %bh_top, %bh_low, 8193;", SEQUENCE);
    broken("mov.b32 %bh_low, bh_v_s;", "mov.b32 %bh_low, bh_v_l;", SEQUENCE);
    broken("mov.b32 %bh_low, bh_v_s;", "mov.b32 %bh_low, 0;", SEQUENCE);
    broken(".shared .align 16", ".shared .align 8", "a shared variable that is not aligned");
    // A variable that counts twice would make room for a span that is not there.
    let bounds = "    add.s32 %bh_top, %bh_low, 8192;\n";
    let again = "    mov.b32 %bh_s, bh_v_s;\n    min.u32 %bh_low, %bh_low, %bh_s;\n    add.s32 %bh_s, %bh_s, 8192;\n    \
                 max.u32 %bh_top, %bh_top, %bh_s;\n";
    broken(bounds, &format!("{bounds}{again}"), LEFT);
}

#[test]
fn a_shared_variable_that_the_bounds_leave_out_may_not_be_read() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.entry k()\n{\n    .shared .align 16 .b8 s[512];\n    \
                  .shared .align 16 .b8 t[512];\n    .reg .b32 %r<2>;\n    ld.shared.u32 %r1, [s];\n    \
                  ld.shared.u32 %r1, [t];\n    ret;\n}\n";
    let text = print(&parse(source).and_then(|module| confine(&module)).unwrap());
    assert_eq!(findings(&text), [""; 0]);
    let bounds = "    mov.b32 %bh_s, bh_v_t;\n    min.u32 %bh_low, %bh_low, %bh_s;\n    add.s32 %bh_s, %bh_s, 512;\n    \
                  max.u32 %bh_top, %bh_top, %bh_s;\n";
    assert!(text.contains(bounds), "{text}");
    let found = findings(&text.replace(bounds, ""));
    assert!(found[0].contains("an access outside its variable"), "{found:?}");
}

#[test]
fn what_dynamic_shared_memory_has_to_hold_is_told() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.extern .shared .align 16 .b8 t[];\n\
                  .entry k()\n{\n    .shared .b32 s;\n    .reg .b32 %r<2>;\n    mov.u32 %r1, t;\n    \
                  st.shared.u32 [%r1], %r1;\n    st.shared.u32 [%r1+96], %r1;\n    ret;\n}\n";
    let text = print(&parse(source).and_then(|module| confine(&module)).unwrap());
    let entry = verify(&text).unwrap().entries()[0].clone();
    assert_eq!(entry.dynamic_shared_min, 96, "100 bytes, less the 4 of a static variable\n{text}");
    for (from, to) in [("100", "16385"), ("mov.u32 %bh_lo, %dynamic_smem_size;", "mov.u32 %bh_lo, %clock;")] {
        assert!(!findings(&text.replace(from, to)).is_empty(), "{to}");
    }
    let (start, end) = (
        text.find("    mov.b32 %bh_s, bh_v_t;").unwrap(),
        text.find("    mov.u32 %bh_hi, %ntid.x;").unwrap(),
    );
    let without = [&text[..start], &text[end..]].concat();
    // What zeroes the little that is left would be another text.
    assert!(findings(&without).iter().any(|found| found.contains(LEFT)), "no dynamic memory in the bounds");
    let twice = [&text[..end], &text[start..]].concat();
    assert!(!findings(&twice).is_empty(), "the same dynamic memory counted twice");
    let entry = verify(&confined()).unwrap().entries()[0].clone();
    assert_eq!(entry.dynamic_shared_min, 0);
}
