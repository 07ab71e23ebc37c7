//! What the usual form rests on and the verifier does not see again: it is made otherwise, and passes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{Gates, Stray, confine, confine_verified, parse, print, verify};

/// A loop that ends by itself, behind a label that a loop with a counter goes back to, with a poll's label before that.
const SOURCE: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<4>;
    .reg .b32 %r<4>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, 0;
    mov.u32 %r2, 0;
    mov.u32 %r3, 0;
L1:
    setp.lt.s32 %p1, %r2, 3;
L2:
    @!%p1 bra DONE;
    st.global.u32 [%d1], %r3;
    add.s32 %r2, %r2, 1;
    add.s32 %r3, %r3, 1;
    setp.lt.s32 %p2, %r3, 100;
    @%p2 bra L2;
    mov.u32 %r2, 0;
    mov.u32 %r3, 0;
    add.s32 %r1, %r1, 1;
    setp.lt.s32 %p3, %r1, 100000;
    @%p3 bra L1;
DONE:
    ret;
}
";

#[test]
fn what_the_verifier_does_not_see_again_is_made_without() {
    let module = parse(SOURCE).unwrap();
    // Once it does, another text belongs here.
    assert!(verify(&print(&confine(&module).unwrap())).is_err());
    let confined = confine_verified(&module, Stray::Silent, &Gates::default()).unwrap();
    let verified = verify(&print(&confined)).unwrap();
    assert!(verified.entries().iter().all(|entry| entry.fast.is_none()));
}
