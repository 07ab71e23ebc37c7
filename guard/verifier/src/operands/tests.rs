//! Shapes that operands may have and may not, by their instruction.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::values::tests::instructions;

/// An instruction with other operands at some places.
fn with(line: &str, others: &[(usize, Operand)]) -> Result<(), Reason> {
    let mut instruction = instructions(&format!("L:\n{line}\nret;"))[0].clone();
    for (index, operand) in others {
        instruction.operands[*index] = operand.clone();
    }
    check(table::row_of(&instruction).unwrap(), &instruction)
}

fn register(name: &str) -> Operand {
    Operand::Register(name.to_owned())
}

fn selected(name: &str, selector: &str) -> Operand {
    Operand::Selected(name.to_owned(), selector.to_owned())
}

fn negated(operand: Operand) -> Operand {
    Operand::Negated(Box::new(operand))
}

fn pair(first: Operand, second: Operand) -> Operand {
    Operand::Pair(Box::new(first), Box::new(second))
}

fn two() -> Operand {
    Operand::Vector(vec![register("%r1"), register("%r2")])
}

#[track_caller]
fn fits(line: &str, others: &[(usize, Operand)], expected: bool) {
    assert_eq!(with(line, others).is_ok(), expected, "{line} {others:?}");
}

const ADD: &str = "add.u32 %r0, %r1, %r2;";
const MOVE: &str = "mov.b32 %r0, %r1;";
const LOAD: &str = "ld.global.u32 %r0, [%d0];";
const STORE: &str = "st.global.u32 [%d0], %r0;";
const BRANCH: &str = "bra L;";
const VIDEO: &str = "vadd.u32.u32.u32 %r0, %r1, %r2;";
const MULTIPLY: &str = "vmad.s32.s32.s32 %r0, %r1, %r2, %r3;";

#[test]
fn what_stands_for_a_destination_is_written() {
    for line in [ADD, MOVE, LOAD] {
        fits(line, &[], true);
        for other in [
            register("%tid.x"),
            Operand::Integer(1),
            Operand::Float32(1),
            Operand::Not("%p0".to_owned()),
            Operand::Symbol("L".to_owned()),
            Operand::SymbolOffset("L".to_owned(), 4),
            Operand::Vector(Vec::new()),
            Operand::List(vec![register("%r0")]),
            negated(register("%r0")),
            selected("%r0", "b0"),
            pair(register("%tid.x"), register("%r0")),
            pair(register("%r0"), register("%tid.x")),
            pair(register("%r0"), Operand::Integer(1)),
            Operand::Vector(vec![register("%r0"), register("%tid.x")]),
        ] {
            fits(line, &[(0, other)], false);
        }
        fits(line, &[(0, Operand::Sink)], true);
    }
    for second in [register("%p1"), Operand::Sink] {
        fits("setp.eq.u32 %p0, %r1, %r2;", &[(0, pair(register("%p0"), second))], true);
    }
}

#[test]
fn only_what_moves_and_what_warps_share_takes_vectors() {
    fits("ld.global.v2.u32 {%r0, %r1}, [%d0];", &[], true);
    fits("st.global.v2.u32 [%d0], {%r0, %r1};", &[], true);
    fits("mov.b64 %d0, {%r1, %r2};", &[], true);
    fits("mov.b64 {%r1, %r2}, %d0;", &[], true);
    fits(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6}, {%r0, %r1, %r2, %r3};",
        &[],
        true,
    );
    for index in 0..3 {
        fits(ADD, &[(index, two())], false);
        fits(VIDEO, &[(index, two())], false);
    }
    fits("red.global.add.u32 [%d0], %r0;", &[(1, two())], false);
    // Of vectors, symbols and addresses there are none.
    for inner in [two(), Operand::Sink, Operand::Symbol("L".to_owned()), selected("%r0", "b0")] {
        fits(
            "st.global.v2.u32 [%d0], {%r0, %r1};",
            &[(1, Operand::Vector(vec![register("%r0"), inner]))],
            false,
        );
    }
}

#[test]
fn what_is_packed_is_together_as_wide_as_the_type() {
    let packed = |line| with(line, &[]).is_ok();
    assert!(packed("mov.b32 %r0, {%h0, %h1};") && packed("mov.b64 %d0, {%h0, %h1, %h2, %h3};"));
    assert!(packed("mov.b64 {_, %r1}, %d0;") && packed("mov.b128 %q0, {%d0, %d1};"));
    assert!(!packed("mov.b64 %d0, {%h0, %h1};") && !packed("mov.b64 {%r0, %h1}, %d0;"));
    assert!(!packed("mov.b32 %r0, {%r1, %r2};") && !packed("mov.u64 %d0, {%r1, %r2};"));
}

#[test]
fn addresses_stand_where_memory_is_named_and_nothing_else_does() {
    let address = || {
        Operand::Address(crate::ast::Address {
            base: crate::ast::AddressBase::Register("%d0".to_owned()),
            offset: 0,
        })
    };
    for (line, index) in [(ADD, 0), (ADD, 1), (MOVE, 1), (LOAD, 0), (STORE, 1), (BRANCH, 0), (VIDEO, 1)] {
        fits(line, &[(index, address())], false);
    }
    for other in
        [register("%d0"), Operand::Integer(4096), Operand::Symbol("L".to_owned()), selected("%r0", "b0")]
    {
        fits(LOAD, &[(1, other.clone())], false);
        fits(STORE, &[(0, other)], false);
    }
}

#[test]
fn only_moves_and_branches_name_symbols() {
    let (symbol, further) = (Operand::Symbol("L".to_owned()), Operand::SymbolOffset("L".to_owned(), 4));
    fits(MOVE, &[(1, symbol.clone())], true);
    fits(MOVE, &[(1, further.clone())], true);
    fits(BRANCH, &[], true);
    for other in [
        further.clone(),
        register("%r0"),
        register("%d0"),
        Operand::Integer(4),
        Operand::Not("%p0".to_owned()),
        two(),
        Operand::Sink,
        pair(register("%r0"), register("%r1")),
    ] {
        fits(BRANCH, &[(0, other)], false);
    }
    for line in [ADD, STORE, VIDEO] {
        fits(line, &[(1, symbol.clone())], false);
        fits(line, &[(1, further.clone())], false);
    }
}

#[test]
fn what_is_read_is_a_register_or_a_number() {
    for line in [ADD, MOVE] {
        for other in [register("%tid.x"), Operand::Integer(1), Operand::Float32(1), Operand::Float64(1)] {
            fits(line, &[(1, other)], true);
        }
        for other in [
            Operand::Sink,
            pair(register("%r0"), register("%r1")),
            Operand::List(vec![register("%r0")]),
            Operand::Generic("L".to_owned(), 0),
            Operand::Subscript(
                "L".to_owned(),
                crate::ast::Address { base: crate::ast::AddressBase::Absolute, offset: 0 },
            ),
            negated(register("%r1")),
            selected("%r1", "x"),
        ] {
            fits(line, &[(1, other)], false);
        }
    }
    fits("selp.b32 %r0, %r1, %r2, %p0;", &[(3, Operand::Not("%p0".to_owned()))], true);
}

#[test]
fn video_instructions_take_parts_of_registers() {
    for selector in ["b0", "b3", "h1", "b7", "b3210", "h10"] {
        for index in 0..3 {
            fits(VIDEO, &[(index, selected("%r0", selector))], true);
            fits(ADD, &[(index, selected("%r0", selector))], false);
        }
    }
    for selector in ["x", "b", "h", "", "b8", "c0", "b32104", "b0x", "é0", "0b"] {
        for index in 0..3 {
            fits(VIDEO, &[(index, selected("%r0", selector))], false);
        }
    }
    // Nobody writes a special register, in parts neither.
    fits(VIDEO, &[(0, selected("%tid.x", "b0"))], false);
    fits(VIDEO, &[(1, selected("%tid.x", "b0"))], true);
    fits(VIDEO, &[(2, selected("%tid.x", "b0"))], true);
}

#[test]
fn one_instruction_takes_operands_with_their_sign_inverted() {
    for index in 1..4 {
        fits(MULTIPLY, &[(index, negated(register("%r1")))], true);
        fits(MULTIPLY, &[(index, negated(selected("%r1", "h0")))], true);
        for inner in [selected("%r1", "x"), Operand::Integer(1), negated(register("%r1")), Operand::Sink] {
            fits(MULTIPLY, &[(index, negated(inner))], false);
        }
    }
    fits(VIDEO, &[(1, negated(register("%r1")))], false);
    fits(ADD, &[(1, negated(register("%r1")))], false);
}
