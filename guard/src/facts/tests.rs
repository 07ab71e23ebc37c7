use super::*;
use crate::access;
use crate::ast::{Item, Space};
use crate::values::Proof;
use crate::values::value::SharedProof;

const GIB: i128 = 1 << 30;

/// What proves the last access of a body, as its parameter, how far it begins from the pointer, and the alignment.
fn proof(body: &str) -> Option<(String, i128, i128, u64)> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b)\n{{\n\
         .reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %d<10>;\n\
         ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b];\n{body}\nret;\n}}\n"
    );
    let module = bulkhead_ptx::parse(&text).unwrap();
    let Some(Item::Function(function)) = module.items.first() else { unreachable!() };
    let statements = function.body.as_deref().unwrap();
    let last = last_proof(statements, Space::Global);
    match last.expect("the body has an access")? {
        Proof::Pointer(proof) => Some((proof.root.parameter.to_owned(), proof.low, proof.high, proof.align)),
        Proof::Shared(_) | Proof::Checked => unreachable!("it is an access of global memory"),
    }
}

/// What proves the last access of a space.
fn last_proof(statements: &[Statement], space: Space) -> Option<Option<Proof<'_>>> {
    let mut facts = Facts::of(statements);
    let mut last = None;
    for (index, statement) in statements.iter().enumerate() {
        let instruction = match statement {
            Statement::Instruction(instruction) => instruction,
            Statement::Label(name, _) => {
                let behind = &statements[index + 1..];
                facts.label(name, behind);
                facts.turning(behind, name);
                continue;
            }
            _ => continue,
        };
        let row = table::check(instruction).unwrap();
        for access in access::decode(row, instruction).unwrap().iter().filter(|access| access.space == space)
        {
            last = Some(facts.proof(access));
        }
        facts.learn(instruction);
    }
    last
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
    // What a loop does not write stays what it was.
    proven(&format!("mov.b64 %d2, %d1; {index} L: {access} bra L;"), "a", 0, 4 * GIB - 1, 1);
    open(&format!("mov.b64 %d2, %d1; {index} L: {access} mov.b64 %d2, %d1; bra L;"));
    open(&format!("mov.b64 %d2, %d1; {index} L: {access} M: mov.b64 %d2, %d1; bra L;"));
    open(&format!("mov.b64 %d2, %d1; {index} bra M; K: mov.b64 %d2, %d1; bra M; M: {access} @%p0 bra K;"));
    open(&format!("{index} mov.b64 %d2, %d1; {access}"));
    open(&format!("{index} @%p0 mov.b64 %d2, %d1; {access}"));
    open(&format!("{index} mov.b64 {{%r1, %r2}}, %d1; ld.global.v2.u64 {{%d4, %d2}}, [%d1]; {access}"));
    let pointer = format!("mov.b64 %d3, %d1; mov.b64 %d2, %d1; {index} add.s64 %d3, %d0, %d2;");
    proven(&format!("{pointer} L: ld.global.u8 %r0, [%d3]; bra L;"), "a", 0, 4 * GIB - 1, 1);
    open(&format!("{pointer} L: ld.global.u8 %r0, [%d3]; @%p0 mov.b64 %d3, %d1; bra L;"));
    open(&format!("mov.b64 %d4, 0; bra M; L: {access} bra M; M: cvt.u64.u32 %d2, %r1; bra L;"));
    // A pointer that a loop moves on.
    open("mov.b64 %d2, %d0; L: ld.global.u32 %r0, [%d2]; add.s64 %d2, %d2, 4; bra L;");
    // One of whose parts something else is made.
    open("mov.b64 {%r1, %r2}, %d0; mov.b64 %d2, {%r1, %r2}; ld.global.u8 %r0, [%d2];");
}

/// The index in `%r1`, where a register is used after something.
fn index(after: &str) -> Option<(i128, i128)> {
    let body =
        format!("{after} mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d0, %d2; ld.global.u32 %r9, [%d3]; E: ret;");
    proof(&body).map(|(_, low, high, _)| (low / 4, high / 4)).filter(|(_, high)| *high < GIB)
}

#[test]
fn where_ways_meet_what_holds_on_all_of_them_is_known() {
    let either = "setp.eq.s32 %p0, %r2, 7; mov.u32 %r1, 3; @%p0 bra A; mov.u32 %r1, 9; A:";
    assert_eq!(index(either), Some((3, 9)));
    assert_eq!(index(&either.replace("mov.u32 %r1, 9", "mov.u32 %r1, %r2")), None);
    // One of the ways is a way back, or ends before.
    assert_eq!(index("mov.u32 %r1, 3; bra B; C: mov.u32 %r1, %r2; B: @%p0 bra C;"), None);
    assert_eq!(index("mov.u32 %r1, %r2; @%p0 bra A; mov.u32 %r1, 9; exit; A:"), None);
    assert_eq!(index("mov.u32 %r1, 3; @%p0 bra A; mov.u32 %r1, %r2; exit; A:"), Some((3, 3)));
    assert_eq!(index("mov.u32 %r1, 3; @%p0 bra A; mov.u32 %r1, %r2; bra E; A:"), Some((3, 3)));
    assert_eq!(index("mov.u32 %r1, %r2; bra A; mov.u32 %r1, 3; A:"), None);
    assert_eq!(
        index("mov.u32 %r1, 3; @%p0 bra A; mov.u32 %r1, 5; @%p1 bra A; mov.u32 %r1, %r2; exit; A:"),
        Some((3, 5))
    );
}

#[test]
fn behind_a_branch_what_its_test_says_is_known() {
    let cases = [
        ("setp.gt.u32 %p0, %r1, 99; @%p0 bra E;", Some((0, 99))),
        ("setp.lt.u32 %p0, %r1, 100; @!%p0 bra E;", Some((0, 99))),
        ("setp.lt.u32 %p0, %r1, 100; @%p0 bra A; bra E; A:", Some((0, 99))),
        ("setp.gt.u32 %p0, 100, %r1; @!%p0 bra E;", Some((0, 99))),
        ("setp.le.u32 %p0, %r1, 100; @!%p0 bra E; setp.ge.u32 %p0, %r1, 5; @!%p0 bra E;", Some((5, 100))),
        ("setp.eq.s32 %p0, %r1, 100; @!%p0 bra E;", Some((100, 100))),
        ("mov.u32 %r2, %tid.x; setp.gt.u32 %p0, %r1, %r2; @%p0 bra E;", Some((0, 1023))),
        // Signed, it may be below zero.
        ("setp.gt.s32 %p0, %r1, 99; @%p0 bra E;", None),
        (
            "setp.gt.s32 %p0, %r1, 99; setp.lt.s32 %p1, %r1, 0; or.pred %p2, %p0, %p1; @%p2 bra E;",
            Some((0, 99)),
        ),
        ("setp.gt.s32 %p0, %r1, 99; setp.lt.s32 %p1, %r1, 0; and.pred %p2, %p0, %p1; @%p2 bra E;", None),
        ("setp.ge.s32 %p0, %r1, 2; setp.lt.and.s32 %p1, %r1, 9, %p0; @!%p1 bra E;", Some((2, 8))),
        ("setp.ge.s32 %p0, %r1, 2; setp.lt.or.s32 %p1, %r1, 9, %p0; @!%p1 bra E;", None),
        ("setp.gt.u32 %p0, %r1, 99; not.pred %p1, %p0; @!%p1 bra E;", Some((0, 99))),
        // What is tested or what tests is written in between, or only sometimes.
        ("setp.gt.u32 %p0, %r1, 99; add.u32 %r1, %r1, %r2; @%p0 bra E;", None),
        ("setp.gt.u32 %p0, %r1, 99; setp.gt.u32 %p0, %r2, 99; @%p0 bra E;", None),
        ("setp.gt.u32 %p0, %r1, 99; setp.gt.or.u32 %p0, %r2, 99, %p0; @%p0 bra E;", None),
        ("@%p1 setp.gt.u32 %p0, %r1, 99; @%p0 bra E;", None),
        ("setp.gt.u32 %p0, %r1, 99; @%p1 bra A; setp.gt.u32 %p0, %r1, 77; A: @%p0 bra E;", None),
        ("setp.gt.u32 %p0, %r1, 99; @!%p0 bra E;", None),
        ("setp.gt.u32 %p0, %r1, 99; @%p0 bra A; A:", None),
    ];
    for (body, known) in cases {
        assert_eq!(index(body), known, "{body}");
    }
}

#[test]
fn what_only_few_bits_are_ever_written_to_is_no_more_than_those() {
    let stage = "mov.u32 %r1, 0; M: N: @%p0 bra M; xor.b32 %r1, %r1, 1; @%p1 bra N;";
    assert_eq!(index(stage), Some((0, 1)));
    assert_eq!(index(&stage.replace("%r1, 1", "%r1, 6")), Some((0, 6)));
    assert_eq!(index(&stage.replace("%r1, 1", "%r1, %r2")), None);
    assert_eq!(index(&stage.replace("%r1, %r1, 1", "%r1, %r2, 1")), None);
    assert_eq!(index(&stage.replace("xor.b32 %r1, %r1, 1", "add.s32 %r1, %r1, 1")), None);
    assert_eq!(
        index(&stage.replace("xor.b32 %r1, %r1, 1", "and.b32 %r1, %r2, 4; @%p0 or.b32 %r1, %r1, 3")),
        Some((0, 7))
    );
    assert_eq!(index(&stage.replace("xor.b32 %r1, %r1, 1", "mov.b64 {%r1, %r2}, %d0")), None);
}

#[test]
fn what_a_loop_steps_is_where_its_test_says() {
    let body = |first: &str, step: &str, test: &str| {
        let access = "mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d0, %d2; ld.global.u32 %r9, [%d3];";
        let text = format!("{first} L: {access} {step} {test} @%p0 bra L;");
        proof(&text).map(|(_, low, high, _)| (low / 4, high / 4)).filter(|(_, high)| *high < GIB)
    };
    let (first, step, test) = (
        "mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x;",
        "add.s32 %r1, %r1, %r2;",
        "setp.lt.s32 %p0, %r1, 2000;",
    );
    assert_eq!(body(first, step, test), Some((0, 1999)));
    assert_eq!(
        body(first, step, "setp.lt.s32 %p1, %r1, 2000; setp.lt.s32 %p2, %r3, %r4; and.pred %p0, %p1, %p2;"),
        Some((0, 1999))
    );
    assert_eq!(
        body("mov.u32 %r1, 3000;", "sub.s32 %r1, %r1, 4;", "setp.gt.s32 %p0, %r1, 16;"),
        Some((20, 3000))
    );
    // Nothing says where it is then.
    assert_eq!(body(first, step, "setp.lt.s32 %p0, %r2, 2000;"), None);
    assert_eq!(body(first, step, "setp.ge.s32 %p0, %r1, 2000;"), None);
    assert_eq!(body("mov.u32 %r1, %r5; mov.u32 %r2, %ntid.x;", step, test), None);
    assert_eq!(body(first, "@%p3 bra M; sub.s32 %r1, %r1, %r2; M:", test), None);
    // So far that it may wrap around.
    assert_eq!(
        body("mov.u32 %r1, 0;", "add.s32 %r1, %r1, 2147483647;", "setp.lt.s32 %p0, %r1, 2147483647;"),
        None
    );
    // It depends on another that is not where it was.
    let other = "mov.u32 %r1, 0; mov.u32 %r2, 0;";
    assert_eq!(body(other, "mov.u32 %r1, %r2; add.s32 %r2, %r2, %r3;", ""), None);
    assert_eq!(body(other, "mov.u32 %r1, %r2; and.b32 %r2, %r3, 15;", ""), Some((0, 15)));
    assert_eq!(
        body(other, "mov.u32 %r1, %r2; and.b32 %r2, %r3, 15; add.s32 %r2, %r2, 1;", ""),
        Some((0, 16))
    );
}

#[test]
fn what_every_turn_of_a_loop_that_ends_adds_is_counted() {
    let body = |step: &str, add: &str| {
        let text = format!(
            "mov.u32 %r2, 0; mov.b64 %d4, %d0; L: ld.global.u8 %r9, [%d4]; {add} add.s32 %r2, %r2, {step}; \
             setp.ne.s32 %p0, %r2, 64; @%p0 bra L;"
        );
        proof(&text).map(|(_, low, high, _)| (low, high))
    };
    assert_eq!(body("4", "add.s64 %d4, %d4, 8;"), Some((0, 15 * 8)));
    assert_eq!(body("4", "add.s64 %d4, %d4, -8;"), Some((-15 * 8, 0)));
    assert_eq!(body("64", "add.s64 %d4, %d4, 8;"), Some((0, 0)));
    assert_eq!(body("5", "add.s64 %d4, %d4, 8;"), None);
    assert_eq!(body("4", "add.s64 %d4, %d4, 8; add.s64 %d4, %d4, 8;"), None);
    assert_eq!(body("4", "@%p1 add.s64 %d4, %d4, 8;"), None);
    assert_eq!(body("4", "add.s64 %d4, %d4, %d1;"), None);
    assert_eq!(body("4", "M: add.s64 %d4, %d4, 8;"), None);
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
    let module = bulkhead_ptx::parse(&text).unwrap();
    let Some(Item::Function(function)) = module.items.first() else { unreachable!() };
    let statements = function.body.as_deref().unwrap();
    let last = last_proof(statements, Space::Shared);
    match last.expect("the body has an access")? {
        Proof::Shared(SharedProof { variable: "tile", start: _, end, most: (constant, by) }) => {
            let mut along = [0; 3];
            for part in by {
                assert_eq!(part.shift, 0);
                along[usize::from(part.axis)] += part.factor;
            }
            Some((end, constant, along))
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

#[test]
fn what_is_set_before_turns_is_not_known_in_those_that_write_it() {
    let turning = |body: &str| {
        format!(
            "mov.b32 %r2, 0;\n$L0:\nmov.b32 %r1, 4;\n$L1:\n\
             mul.wide.u32 %d2, %r1, 1; add.s64 %d3, %d0, %d2; ld.global.u8 %r0, [%d3];\n\
             {body}\nadd.s32 %r2, %r2, 1; setp.lt.s32 %p0, %r2, %r4; @%p0 bra $L1;\n\
             setp.lt.s32 %p1, %r2, %r5; @%p1 bra $L0;"
        )
    };
    proven(&turning(""), "a", 4, 4, 1);
    proven(&turning("mov.b32 %r1, %r9;"), "a", 0, u32::MAX.into(), 1);
    proven(&turning("@%p2 mov.b32 %r1, %r9;"), "a", 0, u32::MAX.into(), 1);
}

/// Between what addresses the last access of shared memory begins in its variable.
fn between(body: &str) -> Option<(u64, u64)> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u32 n)\n{{\n\
         .reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %d<10>;\n\
         .shared .align 16 .b8 tile[4096]; .shared .align 16 .b8 other[4096];\n{body}\nret;\n}}\n"
    );
    let module = bulkhead_ptx::parse(&text).unwrap();
    let Some(Item::Function(function)) = module.items.first() else { unreachable!() };
    let last = last_proof(function.body.as_deref().unwrap(), Space::Shared);
    match last.expect("the body has an access")? {
        Proof::Shared(proof) => Some((proof.start, proof.end)),
        Proof::Pointer(_) | Proof::Checked => unreachable!("it is an access of shared memory"),
    }
}

#[test]
fn registers_that_take_turns_are_what_any_of_them_is_set_to() {
    let turns = |first: &str, body: &str| {
        between(&format!(
            "mov.u32 %r1, tile; mov.u32 %r2, tile+520; {first}\n\
             L: bar.sync 0; mov.u32 %r4, %r1; @%p1 bra M; ld.shared.u32 %r9, [%r4+8];\n\
             M: mov.u32 %r1, %r2; mov.u32 %r2, %r3; mov.u32 %r3, %r4; {body} @%p0 bra L; ld.shared.u32 %r8, [%r3+4];"
        ))
    };
    let three = "mov.u32 %r3, tile+1040;";
    assert_eq!(turns(three, ""), Some((4, 1048)));
    assert_eq!(turns(three, "@%p2 mov.u32 %r2, %r1; selp.b32 %r1, %r2, %r3, %p2;"), Some((4, 1048)));
    assert_eq!(turns("mov.u32 %r7, tile+2080; mov.u32 %r3, %r7;", ""), Some((4, 2088)));
    assert_eq!(turns(three, "@%p2 mov.u32 %r2, tile+2000;"), Some((4, 2008)));
    // Something else is written to one of them, if only at times.
    for body in [
        "add.u32 %r2, %r2, 4;",
        "@%p2 add.u32 %r1, %r1, 4;",
        "mov.u32 %r1, %r9;",
        "@%p2 mov.u32 %r4, 0;",
        "mov.u32 %r1, other;",
        "mov.u32 %r5, %r1; add.u32 %r5, %r5, 4; mov.u32 %r2, %r5;",
        "mov.b64 {%r2, %r5}, %d0;",
        "ld.shared.u32 %r1, [tile];",
        "selp.b32 %r1, %r2, %r6, %p2;",
        "shfl.sync.bfly.b32 %r1|%p3, %r2, 1, 31, -1;",
    ] {
        assert_eq!(turns(three, body), None, "{body}");
    }
    assert_eq!(turns("mov.u32 %r3, %r9;", ""), None);
    assert_eq!(turns("mov.u32 %r3, %r4;", ""), Some((4, 528)), "what is read has been written");
}

#[test]
fn what_a_register_is_in_turns_with_labels_inside_the_test_before_the_next_says() {
    let turns = |first: &str, step: &str, back: &str| {
        between(&format!(
            "ld.param.u32 %r7, [n]; min.u32 %r6, %r7, 255; mov.u32 %r2, %ntid.x; mov.u32 %r5, %tid.x;\n{first}\n\
             L: @%p1 bra M; mov.u32 %r9, 0; M: shl.b32 %r3, %r1, 2; mov.u32 %r4, tile; add.u32 %r4, %r4, %r3;\n\
             ld.shared.u32 %r8, [%r4]; {step} {back}\nE:"
        ))
    };
    let (first, add) = ("min.u32 %r1, %r5, 200;", "add.s32 %r1, %r1, %r2;");
    let test = "setp.le.s32 %p0, %r1, %r6; @%p0 bra L;";
    let below = "setp.lt.u32 %p0, %r1, %r6; @%p0 bra L;";
    let unless = "setp.ge.s32 %p2, %r1, %r6; @%p2 bra E; mov.u32 %r9, 1; @%p3 exit; bra L;";
    let counter = "min.u32 %r1, %r5, 200; mad.lo.s32 %r12, %r2, 140, %r1; mad.lo.s32 %r12, %r20, %r20, %r12; min.s32 %r12, %r12, %r6;";
    let run_into = format!("mov.u32 %r13, 9; and.b32 %r13, %r20, 255; {}", counter.replace("%r6", "%r13"));
    let counted = "setp.le.s32 %p0, %r1, %r12; @%p0 bra L;";
    for (first, step, back, known) in [
        (first, add, test, (0, 1024)),
        (first, add, below, (0, 1020)),
        (first, add, "setp.gt.s32 %p0, %r6, %r1; @%p0 bra L;", (0, 1020)),
        (first, add, "setp.gt.s32 %p0, %r1, %r6; @!%p0 bra L;", (0, 1024)),
        (first, add, unless, (0, 1020)),
        ("mov.u32 %r1, 100;", "add.s32 %r1, 7, %r1;", test, (400, 1024)),
        ("mov.u32 %r1, 1000;", add, test, (4000, 4004)),
        // It goes back before the step too.
        (first, "@%p4 bra L; add.s32 %r1, %r1, %r2;", test, (0, 1024)),
        (first, "N: @%p4 bra N; add.s32 %r1, %r1, %r2;", test, (0, 1024)),
        (counter, add, counted, (0, 1024)),
        (&run_into, add, counted, (0, 1024)),
        // Other tests are made too.
        (first, add, "setp.le.s32 %p0, %r1, %r6; setp.gt.and.s32 %p4, %r9, 0, %p0; @%p4 bra L;", (0, 1024)),
        (first, add, "setp.lt.and.s32 %p0, %r1, %r6, %p4; @%p0 bra L;", (0, 1020)),
        (first, add, "setp.gt.s32 %p0, %r1, %r6; setp.gt.and.s32 %p4, %r9, 0, !%p0; @%p4 bra L;", (0, 1024)),
        (first, add, "setp.gt.s32 %p0, %r1, %r6; setp.lt.or.s32 %p4, %r9, 0, %p0; @!%p4 bra L;", (0, 1024)),
        (first, add, "setp.le.s32 %p0, %r1, %r6; and.pred %p4, %p3, %p0; @%p4 bra L;", (0, 1024)),
        (first, add, "setp.gt.s32 %p0, %r1, %r6; not.pred %p4, %p0; @%p4 bra L;", (0, 1024)),
    ] {
        assert_eq!(turns(first, step, back), Some(known), "{first} {step} {back}");
    }
    for (first, step, back) in [
        (first, add, "setp.le.s32 %p0, %r1, %r6; setp.gt.or.s32 %p4, %r9, 0, %p0; @%p4 bra L;"),
        (first, add, "setp.lt.or.s32 %p0, %r1, %r6, %p4; @%p0 bra L;"),
        (first, add, "setp.le.s32 %p0, %r1, %r6; setp.gt.and.s32 %p4, %r9, 0, %p0; @!%p4 bra L;"),
        (first, add, "setp.le.s32 %p0, %r1, %r6; or.pred %p4, %p3, %p0; @%p4 bra L;"),
        (first, add, "setp.le.s32 %p0, %r1, %r6; not.pred %p4, %p0; @%p4 bra L;"),
        (first, add, "setp.le.s32 %p0, %r1, %r6; and.pred %p0, %p3, %p0; not.pred %p0, %p0; @%p0 bra L;"),
        // Nothing says what it is, or what it is held against.
        (first, add, "@%p0 bra L;"),
        ("", add, test),
        (first, add, "setp.le.s32 %p0, %r1, %r7; @%p0 bra L;"),
        (first, add, "setp.le.s32 %p0, %r9, %r6; @%p0 bra L;"),
        (first, add, "setp.ge.s32 %p0, %r1, %r6; @%p0 bra L;"),
        (first, add, "setp.le.s32 %p0, %r1, %r6; @!%p0 bra L;"),
        // It may wrap around.
        (first, add, "setp.le.s32 %p0, %r1, 2147483000; @%p0 bra L;"),
        (first, "add.s32 %r1, %r1, %r20;", test),
        (first, "add.s32 %r1, %r1, -4;", test),
        (first, "sub.s32 %r1, %r1, %r2;", test),
        // It is written elsewhere too, or what is added, or the bound.
        (first, "add.s32 %r1, %r1, %r2; @%p4 mov.u32 %r1, %r20;", test),
        (first, "add.s32 %r1, %r1, %r2; add.s32 %r1, %r1, %r2;", test),
        (first, "add.s32 %r1, %r1, %r2; mov.u32 %r2, %r20;", test),
        (first, "add.s32 %r1, %r1, %r2; add.s32 %r6, %r6, 1;", test),
        (first, "", "setp.le.s32 %p0, %r1, %r6; add.s32 %r1, %r1, %r2; @%p0 bra L;"),
        // The test is not what leads back, or not everywhere.
        (first, add, "setp.le.s32 %p0, %r1, %r6; setp.eq.s32 %p0, %r9, 3; @%p0 bra L;"),
        (first, add, "@%p4 bra L; setp.le.s32 %p0, %r1, %r6; @%p0 bra L;"),
        (first, add, "setp.le.s32 %p0, %r1, %r6; @%p4 bra N; mov.u32 %r9, 1; N: @%p0 bra L;"),
        // The loop is entered elsewhere.
        ("min.u32 %r1, %r5, 200; @%p5 bra M; mov.u32 %r1, 0;", add, test),
        // What is counted to is more, or meant otherwise.
        (counter, "add.s32 %r1, %r1, %r2; mov.u32 %r12, %r20;", counted),
        (counter, add, "setp.le.u32 %p0, %r1, %r12; @%p0 bra L;"),
        (first, add, counted),
    ] {
        assert_eq!(turns(first, step, back), None, "{first} {step} {back}");
    }
    // What is known in the loop only is not known of what was counted to before.
    for around in ["mov.u32 %r9, 0;", "K:", "@%p6 bra L; mov.u32 %r9, 0;"] {
        let first = if around.contains('@') {
            format!("min.u32 %r1, %r5, 200; {around} {run_into}")
        } else {
            format!("{run_into} {around}")
        };
        assert_eq!(turns(&first, add, counted), None, "{first}");
    }
    let more = counter.replace("%r12, %r6", "%r12, %r7");
    assert_eq!(turns(&more, add, counted), None);
    assert_eq!(turns(&format!("{counter} add.s32 %r12, %r12, 1;"), add, counted), None);
}

#[test]
fn what_a_loop_steps_does_not_wrap_around_behind_the_last_test() {
    let turns = |most: i64| {
        between(&format!(
            "mov.u32 %r2, %ntid.x; mov.u32 %r1, %tid.x; L: @%p1 bra M; mov.u32 %r9, 0; M: shr.s32 %r3, %r1, 22;\n\
             shl.b32 %r3, %r3, 2; mov.u32 %r4, tile; add.u32 %r4, %r4, %r3; ld.shared.u32 %r8, [%r4];\n\
             add.s32 %r1, %r1, %r2; setp.le.s32 %p0, %r1, {most}; @%p0 bra L;"
        ))
    };
    let last = i64::from(i32::MAX) - 1024;
    assert_eq!((turns(last), turns(last + 1)), (Some((0, 2048)), None));
}

#[test]
fn what_is_said_of_a_number_is_said_of_its_multiple() {
    let behind = |test: &str| {
        between(&format!(
            "mov.u32 %r1, %tid.x; mov.u32 %r5, tile; shl.b32 %r2, %r1, 2; add.u32 %r3, %r5, %r2;\n\
             setp.eq.s32 %p0, %r1, 0; {test} add.u32 %r4, %r5, %r2; ld.shared.u32 %r6, [%r4+-4];\nE:"
        ))
    };
    assert_eq!(behind("@%p0 bra E;"), Some((0, 4092)));
    assert_eq!(behind("setp.gt.s32 %p1, %r1, 99; or.pred %p2, %p0, %p1; @%p2 bra E;"), Some((0, 396)));
    assert_eq!(behind("mul.lo.s32 %r2, %r1, 12; @%p0 bra E;"), Some((8, 12276)));
    for test in [
        "",
        "@!%p0 bra E;",
        "mov.u32 %r2, %r9; @%p0 bra E;",
        "@%p3 mov.u32 %r2, 0; @%p0 bra E;",
        "mov.u32 %r1, %tid.y; setp.eq.s32 %p0, %r1, 0; @%p0 bra E;",
        "M: @%p0 bra E; @%p4 bra M;",
        "mul.lo.s32 %r2, %r9, 4; setp.eq.s32 %p0, %r9, 0; @%p0 bra E;",
    ] {
        assert_eq!(behind(test), None, "{test}");
    }
}
