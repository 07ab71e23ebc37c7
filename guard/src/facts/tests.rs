use super::*;
use crate::access;
use crate::ast::Item;

const GIB: i128 = 1 << 30;

/// What proves the last access of a body, as its parameter, how far it begins from the pointer, and the alignment.
fn proof(body: &str) -> Option<(String, i128, i128, u64)> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b)\n{{\n\
         .reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %d<10>;\n\
         ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b];\n{body}\nret;\n}}\n"
    );
    let module = crate::parse(&text).unwrap();
    let Some(Item::Function(function)) = module.items.first() else { unreachable!() };
    let statements = function.body.as_deref().unwrap();
    let mut facts = Facts::of(statements);
    let mut last = None;
    for statement in statements {
        let instruction = match statement {
            Statement::Instruction(instruction) => instruction,
            Statement::Label(..) => {
                facts.label();
                continue;
            }
            _ => continue,
        };
        let row = table::check(instruction).unwrap();
        for access in access::decode(row, instruction).unwrap().iter() {
            if access.space == Space::Global {
                last = Some(facts.proof(access));
            }
        }
        facts.learn(instruction);
    }
    match last.expect("the body has an access")? {
        Proof::Pointer(proof) => Some((proof.root.parameter.to_owned(), proof.low, proof.high, proof.align)),
        Proof::Shared(_) | Proof::Checked => unreachable!("it is an access of global memory"),
    }
}

#[track_caller]
fn proven(body: &str, parameter: &str, low: i128, high: i128, align: u64) {
    assert_eq!(proof(body), Some((parameter.to_owned(), low, high, align)), "{body}");
}

#[track_caller]
fn open(body: &str) {
    assert_eq!(proof(body), None, "{body}");
}

#[test]
fn a_pointer_and_an_index_reach_as_far_as_the_index() {
    proven("ld.global.u32 %r0, [%d0+8];", "a", 8, 8, 4);
    proven(
        "mul.wide.s32 %d2, %r1, 4; add.s64 %d3, %d1, %d2; ld.global.u32 %r0, [%d3];",
        "b",
        -8 * GIB,
        8 * GIB - 4,
        4,
    );
    proven(
        "mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d2, %d1; ld.global.u32 %r0, [%d3];",
        "b",
        0,
        16 * GIB - 4,
        4,
    );
    proven("mad.wide.s32 %d2, %r1, -2, %d0; ld.global.u16 %r0, [%d2];", "a", -4 * GIB + 2, 4 * GIB, 2);
    proven(
        "cvt.s64.s32 %d2, %r1; shl.b64 %d3, %d2, 3; sub.s64 %d4, %d0, %d3; ld.global.u64 %d5, [%d4];",
        "a",
        -16 * GIB + 8,
        16 * GIB,
        8,
    );
    proven(
        "mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 12; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3];",
        "a",
        0,
        1023 * 12,
        4,
    );
    proven("and.b64 %d2, %d1, 255; add.s64 %d3, %d0, %d2; ld.global.u8 %r0, [%d3];", "a", 0, 255, 1);
    proven(
        "selp.b64 %d2, 16, 64, %p0; add.s64 %d3, %d0, %d2; ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%d3];",
        "a",
        16,
        64,
        16,
    );
    proven(
        "and.b32 %r1, %r2, -4; mul.wide.u32 %d2, %r1, 2; add.s64 %d3, %d0, %d2; ld.global.u64 %d4, [%d3];",
        "a",
        0,
        8 * GIB - 2,
        8,
    );
}

#[test]
fn the_last_byte_of_the_zone_is_the_last() {
    let wide = |by: &str, offset: &str| {
        format!("mul.wide.s32 %d2, %r1, {by}; add.s64 %d3, %d0, %d2; st.global.u32 [%d3{offset}], %r0;")
    };
    proven(&wide("32", ""), "a", -64 * GIB, 64 * GIB - 32, 4);
    proven(&wide("32", "+28"), "a", -64 * GIB + 28, 64 * GIB - 4, 4);
    open(&wide("32", "+32"));
    open(&wide("32", "+-4"));
    open(&wide("36", ""));
    proven("ld.global.u8 %r0, [%d0+68719476735];", "a", 64 * GIB - 1, 64 * GIB - 1, 1);
    open("ld.global.u8 %r0, [%d0+68719476736];");
    open("mul.wide.u32 %d2, %r1, 16; add.s64 %d3, %d0, %d2; ld.global.u64 %d4, [%d3+16];");
}

#[test]
fn what_may_not_be_aligned_is_not_proven() {
    open("ld.global.u32 %r0, [%d0+2];");
    open("mul.wide.s32 %d2, %r1, 2; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3];");
    open("mul.wide.s32 %d2, %r1, 4; add.s64 %d3, %d0, %d2; ld.global.v2.u32 {%r0, %r1}, [%d3];");
    // The low bits of a product that wraps around are those of the product.
    let wraps = |by: &str| {
        format!(
            "mul.lo.s32 %r1, %r2, {by}; cvt.u64.u32 %d2, %r1; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3];"
        )
    };
    proven(&wraps("4"), "a", 0, 4 * GIB - 1, 4);
    open(&wraps("6"));
}

#[test]
fn a_number_that_wraps_around_is_any() {
    // Without wrapping it would begin with 5, and the access with 1.
    let low =
        "add.u32 %r1, %r2, 5; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3+-16];";
    proven(low, "a", -16, 16 * GIB - 20, 4);
    // A sum beyond what is signed is negative.
    let sum = "mov.u32 %r1, %ctaid.x; add.s32 %r2, %r1, %r1; mul.wide.s32 %d2, %r2, 4; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3];";
    proven(sum, "a", -8 * GIB, 8 * GIB - 4, 4);
    let small = "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ntid.x; mul.lo.s32 %r3, %r1, %r2; mul.wide.s32 %d2, %r3, 4; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3];";
    proven(small, "a", 0, 65_534 * 1024 * 4, 4);
}

#[test]
fn what_is_not_known_at_all_times_is_not_known() {
    let access = "add.s64 %d3, %d0, %d2; ld.global.u8 %r0, [%d3];";
    proven(&format!("cvt.u64.u32 %d2, %r1; {access}"), "a", 0, 4 * GIB - 1, 1);
    open(access);
    open(&format!("@%p0 cvt.u64.u32 %d2, %r1; {access}"));
    // What is written again is known until then, and until somebody may come from elsewhere.
    let index = "cvt.u64.u32 %d2, %r1;";
    let written = [
        format!("{index} {access} mov.b64 %d2, %d1;"),
        format!("mov.b64 %d2, %d1; {index} {access}"),
        format!("mov.b64 %d2, %d1; bra L; L: {index} @%p0 bra L; {access}"),
    ];
    for body in written {
        proven(&body, "a", 0, 4 * GIB - 1, 1);
    }
    open(&format!("mov.b64 %d2, %d1; {index} L: {access} bra L;"));
    open(&format!("{index} mov.b64 %d2, %d1; {access}"));
    open(&format!("{index} @%p0 mov.b64 %d2, %d1; {access}"));
    open(&format!("{index} mov.b64 {{%r1, %r2}}, %d1; ld.global.v2.u64 {{%d4, %d2}}, [%d1]; {access}"));
    open(&format!(
        "mov.b64 %d3, %d1; mov.b64 %d2, %d1; {index} add.s64 %d3, %d0, %d2; L: ld.global.u8 %r0, [%d3]; bra L;"
    ));
    open(&format!("mov.b64 %d4, 0; bra M; L: {access} bra M; M: cvt.u64.u32 %d2, %r1; bra L;"));
    // A pointer that a loop moves on.
    open("mov.b64 %d2, %d0; L: ld.global.u32 %r0, [%d2]; add.s64 %d2, %d2, 4; bra L;");
    // One of whose parts something else is made.
    open("mov.b64 {%r1, %r2}, %d0; mov.b64 %d2, {%r1, %r2}; ld.global.u8 %r0, [%d2];");
}

#[test]
fn a_pointer_is_one_whole_parameter_and_numbers() {
    open("add.s64 %d2, %d0, %d1; ld.global.u8 %r0, [%d2];");
    open("sub.s64 %d2, %d0, %d1; ld.global.u8 %r0, [%d2];");
    open("cvt.u64.u32 %d2, %r1; sub.s64 %d3, %d2, %d0; ld.global.u8 %r0, [%d3];");
    open("shl.b64 %d2, %d0, 1; ld.global.u8 %r0, [%d2];");
    open("mul.lo.s64 %d2, %d0, 1; ld.global.u8 %r0, [%d2];");
    open("and.b64 %d2, %d0, -16; ld.global.u8 %r0, [%d2];");
    open("selp.b64 %d2, %d0, %d1, %p0; ld.global.u8 %r0, [%d2];");
    open("cvt.u64.u32 %d2, %r1; ld.global.u8 %r0, [%d2];");
    open("ld.global.u64 %d2, [%d0]; ld.global.u8 %r0, [%d2];");
    open("cvta.to.shared.u64 %d2, %d0; ld.global.u8 %r0, [%d2];");
    // Of an offset that comes from memory nothing is known.
    open("ld.global.u64 %d2, [%d0]; add.s64 %d3, %d0, %d2; ld.global.u8 %r0, [%d3];");
    proven(
        "ld.global.u32 %r1, [%d0]; mul.wide.s32 %d2, %r1, 1; add.s64 %d3, %d1, %d2; ld.global.u8 %r0, [%d3];",
        "b",
        -2 * GIB,
        2 * GIB - 1,
        1,
    );
    proven("selp.b64 %d2, %d0, %d0, %p0; ld.global.u8 %r0, [%d2];", "a", 0, 0, 1);
}

/// Where the last access of a body ends at most in `tile`, in any block and by the thread's place in it.
fn shared(body: &str) -> Option<(u64, u64, [u64; 3])> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n\
         .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<10>; .shared .align 16 .b8 tile[64];\n\
         mov.u32 %r0, tile; mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y;\n{body}\nret;\n}}\n"
    );
    let module = crate::parse(&text).unwrap();
    let Some(Item::Function(function)) = module.items.first() else { unreachable!() };
    let statements = function.body.as_deref().unwrap();
    let mut facts = Facts::of(statements);
    let mut last = None;
    for statement in statements {
        let instruction = match statement {
            Statement::Instruction(instruction) => instruction,
            Statement::Label(..) => {
                facts.label();
                continue;
            }
            _ => continue,
        };
        let row = table::check(instruction).unwrap();
        for access in access::decode(row, instruction).unwrap().iter() {
            last = Some(facts.proof(access));
        }
        facts.learn(instruction);
    }
    match last.expect("the body has an access")? {
        Proof::Shared(SharedProof { variable: "tile", start: _, end, most: (constant, by) }) => {
            Some((end, constant, by))
        }
        proof => unreachable!("{proof:?}"),
    }
}

#[test]
fn an_address_in_shared_memory_is_a_variable_and_numbers() {
    assert_eq!(shared("ld.shared.u32 %r9, [%r0+60];"), Some((64, 64, [0; 3])));
    assert_eq!(shared("mov.u32 %r3, tile+8; ld.shared.u64 %d0, [%r3];"), Some((16, 16, [0; 3])));
    let row = "mad.lo.s32 %r3, %r2, 132, %r0; shl.b32 %r4, %r1, 2; add.s32 %r5, %r3, %r4;";
    assert_eq!(
        shared(&format!("{row} ld.shared.u32 %r9, [%r5+132];")),
        Some((1023 * 136 + 136, 136, [4, 132, 0]))
    );
    assert_eq!(
        shared("and.b32 %r3, %r1, 7; add.s32 %r4, %r3, %r0; ld.shared.u8 %r9, [%r4];"),
        Some((8, 8, [0; 3]))
    );
    assert_eq!(shared("sub.s32 %r3, %r0, -16; ld.shared.u32 %r9, [%r3];"), Some((20, 20, [0; 3])));
    assert_eq!(shared("selp.b32 %r3, %r0, tile+4, %p0; ld.shared.u32 %r9, [%r3];"), Some((8, 8, [0; 3])));
    for open in [
        "ld.shared.u32 %r9, [%r0+-4];",
        "ld.shared.u32 %r9, [%r0+2];",
        "ld.shared.u32 %r9, [%r1];",
        "add.s32 %r3, %r0, %r10; ld.shared.u32 %r9, [%r3];",
        "and.b32 %r3, %r10, -4; add.s32 %r4, %r0, %r3; ld.shared.u32 %r9, [%r4];",
        "sub.s32 %r3, %r0, %r1; ld.shared.u8 %r9, [%r3];",
        "add.s32 %r3, %r0, %r0; ld.shared.u8 %r9, [%r3];",
        "shl.b32 %r3, %r0, 0; ld.shared.u8 %r9, [%r3];",
        "and.b32 %r3, %r0, 63; add.s32 %r4, %r0, %r3; L: ld.shared.u8 %r9, [%r4]; add.s32 %r4, %r0, %r3; bra L;",
        "mul.lo.s32 %r3, %r1, 4194304; add.s32 %r4, %r0, %r3; ld.shared.u32 %r9, [%r4];",
        "mad.lo.s32 %r3, %r1, 4194304, %r0; ld.shared.u32 %r9, [%r3];",
        "mov.u32 %r3, 4; ld.shared.u32 %r9, [%r3];",
    ] {
        assert_eq!(shared(open), None, "{open}");
    }
    // What is left of an address is a number like any other.
    assert_eq!(
        shared("and.b32 %r3, %r0, 63; add.s32 %r4, %r0, %r3; ld.shared.u8 %r9, [%r4];"),
        Some((64, 64, [0; 3]))
    );
}
