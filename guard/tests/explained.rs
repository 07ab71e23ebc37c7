//! What is told of calls and generic accesses: what becomes of each, where it stands in the text.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::examine;

const SOURCE: &str = "\
.version 8.0
.target sm_75
.address_size 64
.func (.param .b32 o) read(.param .b64 a)
{
    .reg .b32 x;
    .reg .b64 y;
    ld.param.u64 y, [a]; // register
    ld.u32 x, [y+4]; // by-space
    st.param.b32 [o], x; // register
    ret;
}
.func never()
{
    .reg .b64 y;
    mov.u64 y, 0;
    st.u32 [y], 1; // not-called
    ret;
}
.visible .entry k(.param .u64 p)
{
    .shared .b32 s[8];
    .reg .b32 %r<4>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [p]; // inside
    mov.u64 %d2, s;
    cvta.shared.u64 %d2, %d2;
    call (%r1), read, (%d1);
    call (%r2), read, (%d2);
    st.u32 [%d2], %r1; // shared-clamp
    ld.global.u64 %d3, [%d1]; // proven
    st.u32 [%d3], %r2; // by-space
    red.add.u32 [%d1], 1; // proven
    ret;
}
";

#[test]
fn what_becomes_of_accesses_through_calls_and_generic_pointers_is_told() {
    let examination = examine(SOURCE);
    assert!(examination.report.is_empty(), "{}", examination.report);
    let told: Vec<(u32, &str)> = examination
        .accesses()
        .iter()
        .map(|access| (access.span.place.line, access.handling.word()))
        .collect();
    let lines = SOURCE.lines().zip(1..);
    let expected: Vec<(u32, &str)> =
        lines.filter_map(|(line, number)| Some((number, line.split_once("// ")?.1))).collect();
    assert_eq!(told, expected);
}
