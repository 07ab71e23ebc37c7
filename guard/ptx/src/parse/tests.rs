//! Tests of the parser together with the canonical print.
#![allow(clippy::panic, reason = "tests")]

use super::parse;
use crate::limits;
use crate::print::print;

const HEADER: &str = ".version 9.0\n.target sm_75\n.address_size 64\n";

fn in_body(body: &str) -> String {
    format!("{HEADER}.visible .entry k(.param .u64 p){{\n{body}\n}}\n")
}

fn findings(text: &str) -> Vec<String> {
    match parse(text) {
        Ok(_) => Vec::new(),
        Err(report) => report.findings.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_canonical_print_is_a_fixed_point() {
    let text = in_body(
        ".reg .b32 %r<4>, a;\n.reg .pred %p;\n{ .reg .f64 %q; }\nL: @!%p bra.uni L;\n\
         st.global.v2.u32 [%rd1+-8], {%r1, %r2};\nsetp.eq.s32 %p|%q, %r1, -5;\nmov.f32 %f, 0f3f800000;\n\
         mov.f64 %d, 1.5; mov.b64 {%r1,_}, x; mov.u32 %r1, %tid.x; mov.u32 %r1, v.x; mov.u64 %d, s+16;\n\
         and.pred %p, !%p, %q; ld.global.u32 %r1,[16]; call (a), f, (b, c); .pragma \"nounroll\"; ret;",
    );
    let module = parse(&text).unwrap();
    let printed = print(&module);
    assert_eq!(print(&parse(&printed).unwrap()), printed);
    assert!(printed.contains("    st.global.v2.u32 [%rd1+-8], {%r1, %r2};\n"), "{printed}");
    assert!(printed.contains("    @!%p bra.uni L;\n"), "{printed}");
}

#[test]
fn every_error_is_reported_with_its_line_and_column() {
    let text = in_body("ld.global.u32 %r1, [%r2+%r3];\nmov.u32 %r1, {;\nadd.u32 %r1, %r2\n, ?;\nret;");
    assert_eq!(
        findings(&text),
        [
            "5:25: expected an offset, found `%r3`",
            "6:15: expected an operand, found `;`",
            "8:3: expected an operand, found `?`",
        ]
    );
}

#[test]
fn bytes_that_are_not_ptx_are_refused_also_in_comments() {
    for byte in ["\0", "\u{a0}", "\x0b", "\x0c", "#", "`", "\x7f"] {
        let text = in_body(&format!("// x {byte}\nret;"));
        assert_eq!(parse(&text).is_err(), byte != "#" && byte != "`", "{byte:?}");
        assert!(parse(&in_body(&format!("{byte} ret;"))).is_err(), "{byte:?}");
    }
    assert!(parse(&format!("{}\0", in_body("ret;"))).is_err());
}

#[test]
fn debug_directives_are_kept() {
    let text = in_body(".loc 1 2 3\n ret;\n.loc 1 2 3, function_name L+4, inlined_at 1 2 3\n")
        + ".file 1 \"a.cu\", 12, 13\n.section .debug_str { .b8 1,2 L: .b32 L, .debug_str+4, L-M }\n";
    let printed = print(&parse(&text).unwrap());
    let lines: Vec<&str> = printed.lines().map(str::trim).collect();
    for line in [
        ".loc 1 2 3",
        ".loc 1 2 3, function_name L + 4, inlined_at 1 2 3",
        ".file 1 \"a.cu\", 12, 13",
        ".b8 1, 2",
        "L:",
        ".b32 L",
        ".b32 .debug_str+4",
        ".b32 L-M",
    ] {
        assert!(lines.contains(&line), "{line} in\n{printed}");
    }
    assert_eq!(parse(&printed).unwrap(), parse(&text).unwrap());
}

#[test]
fn braces_may_nest_only_so_deep() {
    let nested = |depth: usize| in_body(&format!("{}{}", "{".repeat(depth), "}".repeat(depth)));
    assert_eq!(findings(&nested(limits::NESTING_MAX - 1)), [""; 0]);
    let deep = findings(&nested(100_000));
    assert_eq!(deep.len(), 1, "{deep:?}");
    assert!(deep[0].contains("braces inside one another"), "{deep:?}");
}

#[test]
fn operands_may_nest_only_so_deep() {
    let text = in_body(&format!("mov.b64 {};", "{".repeat(100_000)));
    assert!(findings(&text)[0].contains("lists inside one another"));
}

#[test]
fn a_text_beyond_the_limit_is_not_read() {
    let text = " ".repeat(limits::TEXT_BYTES_MAX + 1);
    assert_eq!(findings(&text), ["0:0: more bytes of text than the limit of 67108864"]);
}

#[test]
fn an_opcode_may_be_spread_over_blanks_and_comments() {
    let text = in_body("st .global /* x */\n.u32 [%rd1], %r1;");
    assert!(print(&parse(&text).unwrap()).contains("    st.global.u32 [%rd1], %r1;\n"));
}

#[test]
fn a_body_without_an_end_is_an_error() {
    assert_eq!(findings(&format!("{HEADER}.entry k() {{ ret;")).len(), 1);
}
