//! A confined module, to be broken in one way each.
#![allow(dead_code, reason = "not every program of tests uses all of it")]

use bulkhead_guard::{confine, parse, print, verify};

pub(crate) const SOURCE: &str = ".version 8.0
.target sm_75
.address_size 64
.const .align 4 .b8 __nv_table[64] = {1};
.visible .entry k(.param .u64 p, .param .u32 n)
.maxntid 256
{
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    .reg .pred %q<2>;
    .shared .align 16 .b8 s[8192];
    .local .align 8 .b8 l[24];
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    setp.eq.u32 %q1, %r1, 0;
    @%q1 bra L;
    ld.global.u32 %r2, [%d1+4];
    mov.u32 %r3, s;
    st.shared.u32 [%r3], %r1;
    mov.u64 %d2, l;
    st.local.u32 [%d2+4], %r1;
    mov.u64 %d3, __nv_table;
    ld.const.u32 %r4, [%d3];
    bar.sync 0;
L:
    st.global.u32 [%d1+8388608], %r2;
    red.global.add.u64 [%d1], 1;
    ret;
}
";

/// The first line after the prologue.
pub(crate) const BODY: &str = "    ld.param.u64 %d0, [bh_v_p];";

pub(crate) fn confined() -> String {
    print(&parse(SOURCE).and_then(|module| confine(&module)).unwrap())
}

/// The findings against `text`; none where it is verified.
pub(crate) fn findings(text: &str) -> Vec<String> {
    match verify(text) {
        Ok(_) => Vec::new(),
        Err(report) => report.findings.iter().map(ToString::to_string).collect(),
    }
}

/// Asserts that the confined module with the first `from` after `anchor` replaced by `to` is refused with `why`.
#[track_caller]
pub(crate) fn broken_after(anchor: &str, from: &str, to: &str, why: &str) {
    let text = confined();
    let start = text.find(anchor).unwrap_or_else(|| panic!("no `{anchor}` in\n{text}"));
    let (before, after) = text.split_at(start);
    assert!(after.contains(from), "no `{from}` after `{anchor}` in\n{text}");
    let found = findings(&format!("{before}{}", after.replacen(from, to, 1)));
    assert!(found.iter().any(|finding| finding.contains(why)), "{found:?}");
}

#[track_caller]
pub(crate) fn broken(from: &str, to: &str, why: &str) {
    broken_after("", from, to, why);
}
