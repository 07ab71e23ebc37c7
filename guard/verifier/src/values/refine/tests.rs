//! What tests say of registers: each rule by itself.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use super::*;
use crate::values::number::Number;
use crate::values::tests::instructions;

/// What is known of registers, whatever is written.
struct Facts(Vec<(&'static str, Fact<'static>)>);

impl Known<'static> for Facts {
    fn of_register(&self, name: &str) -> Option<Fact<'static>> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, fact)| *fact)
    }
}

fn number(low: i128, high: i128) -> Fact<'static> {
    Fact::Number(Number::between(low, high))
}

/// Two registers below a hundred, and some of which nothing is known.
fn facts() -> Facts {
    Facts(vec![("%r0", number(0, 99)), ("%r1", number(0, 99)), ("%r4", number(0, 1 << 30))])
}

fn learn(tests: &mut Tests<'static>, facts: &Facts, lines: &str) {
    for instruction in instructions(lines) {
        tests.learn(facts, table::row_of(instruction).unwrap(), instruction);
    }
}

fn learned(lines: &str) -> Tests<'static> {
    let mut tests = Tests::default();
    learn(&mut tests, &facts(), lines);
    tests
}

type Ranges = BTreeMap<&'static str, (i128, i128)>;

/// Between what registers lie where a predicate holds, or does not; none where it never does.
fn said(tests: &Tests<'static>, facts: &Facts, predicate: &str, holds: bool) -> Option<Ranges> {
    let said = tests.said(facts, predicate, holds)?;
    let range = |(name, fact): (&'static str, Fact<'_>)| {
        let number = fact.number().unwrap();
        (name, (number.low, number.high))
    };
    Some(said.into_iter().map(range).collect())
}

#[track_caller]
fn says(lines: &str, holds: bool, expected: &[(&'static str, (i128, i128))]) {
    let found = said(&learned(lines), &facts(), "%p0", holds);
    assert_eq!(found, Some(expected.iter().copied().collect()), "{lines}");
}

const LESS: &str = "setp.lt.s32 %p0, %r0, 10;\n";

#[test]
fn a_test_says_of_both_sides_what_it_compares() {
    says(LESS, true, &[("%r0", (0, 9))]);
    says(LESS, false, &[("%r0", (10, 99))]);
    says("setp.lt.s32 %p0, 10, %r0;", true, &[("%r0", (11, 99))]);
    says("setp.lt.u32 %p0, %r0, %r1;", true, &[("%r0", (0, 98)), ("%r1", (1, 99))]);
    says("setp.eq.b32 %p0, %r0, 7;", true, &[("%r0", (7, 7))]);
    says("setp.ne.b32 %p0, %r0, 0;", true, &[("%r0", (1, 99))]);
    // Of a register of which nothing is known as well.
    says("setp.lt.u32 %p0, %r9, 10;", true, &[("%r9", (0, 9))]);
    says("setp.lt.s32 %p0, %r9, 10;", true, &[]);
    // Only registers of 32 bits that keep what they are.
    says("setp.lt.u32 %p0, %tid.x, 10;", true, &[]);
    says("setp.lt.u32 %p0, %d0, 10;", true, &[]);
    says("setp.lt.u64 %p0, %r0, 10;", true, &[]);
    says("setp.lt.f32 %p0, %r0, 10;", true, &[]);
    says("setp.lt.u32 %p0, %r0, %d0;", true, &[]);
}

#[test]
fn what_may_not_be_written_says_nothing() {
    says("@%p1 setp.lt.s32 %p0, %r0, 10;", true, &[]);
    says(&format!("{LESS}@%p1 setp.eq.f32 %p0, %r2, %r3;"), true, &[]);
    assert_eq!(said(&learned("setp.lt.s32 %r2, %r0, 10;"), &facts(), "%r2", true), Some(Ranges::new()));
    assert_eq!(said(&learned("setp.lt.s32 %x0, %r0, 10;"), &facts(), "%x0", true), Some(Ranges::new()));
    let own = said(&learned("setp.lt.s32 %bh_q, %r0, 10;"), &facts(), "%bh_q", true);
    assert_eq!(own, Some(Ranges::from([("%r0", (0, 9))])));
}

#[test]
fn what_is_written_is_no_longer_what_was_said_of_it() {
    let second = "setp.lt.s32 %p1, %r1, 20;\n";
    for (write, first, other) in [
        ("mov.u32 %r0, 50;", false, true),
        ("@%p2 mov.u32 %r0, 50;", false, true),
        ("mov.u32 %r1, 50;", true, false),
        ("mov.u32 %r2, 50;", true, true),
        ("setp.eq.f32 %p0, %r2, %r3;", false, true),
        ("setp.eq.f32 %p2|%p1, %r2, %r3;", true, false),
        ("setp.eq.f32 %p2|%p0, %r2, %r3;", false, true),
        ("st.global.u32 [%d0], %r0;", true, true),
    ] {
        let tests = learned(&format!("{LESS}{second}{write}"));
        let about = |predicate| said(&tests, &facts(), predicate, true).unwrap();
        assert_eq!(about("%p0").is_empty(), !first, "{write}");
        assert_eq!(about("%p1").is_empty(), !other, "{write}");
    }
    // Of one of two that a test compares, the other is kept.
    says("setp.lt.u32 %p0, %r0, %r1;\nmov.u32 %r0, 5;", true, &[("%r1", (1, 99))]);
    let mut tests = learned(LESS);
    tests.clear();
    assert_eq!(said(&tests, &facts(), "%p0", true), Some(Ranges::new()));
    assert!(tests.is_empty());
}

#[test]
fn what_is_said_twice_of_a_register_holds_together() {
    let second = |test: &str| format!("{LESS}setp.{test} %p0, %r0, 3, %p0;");
    let other = |test: &str| format!("setp.lt.s32 %p1, %r0, 10;\nsetp.{test} %p0, %r0, 3, %p1;");
    says(&other("gt.and.s32"), true, &[("%r0", (4, 9))]);
    says(&other("gt.and.s32"), false, &[]);
    says(&other("lt.or.s32"), false, &[("%r0", (10, 99))]);
    says(&other("lt.or.s32"), true, &[]);
    // That of which it is made is another one then.
    says(&second("gt.and.s32"), true, &[]);
    says(&second("lt.or.s32"), false, &[]);
    // With another sign it is another number, of the same register.
    says(
        "setp.lt.u32 %p1, %r0, 10;\nsetp.gt.and.s32 %p0, %r1, 3, %p1;",
        true,
        &[("%r0", (0, 9)), ("%r1", (4, 99))],
    );
    let unknown =
        |one: &str, other: &str| format!("setp.{one} %p1, %r9, 10;\nsetp.{other} %p0, %r9, 3, %p1;");
    says(&unknown("lt.s32", "gt.and.s32"), true, &[("%r9", (4, 9))]);
    // Signed, less than ten may be below zero.
    says(&unknown("lt.s32", "gt.and.u32"), true, &[]);
}

#[test]
fn nobody_comes_where_what_is_said_cannot_be() {
    let both = |first: i128| format!("setp.lt.s32 %p1, %r0, {first};\nsetp.ge.and.s32 %p0, %r0, 3, %p1;");
    assert_eq!(said(&learned(&both(3)), &facts(), "%p0", true), None);
    says(&both(4), true, &[("%r0", (3, 3))]);
    let without = learned("setp.gt.s32 %p0, %r0, 99;");
    assert_eq!(said(&without, &facts(), "%p0", true), None);
    assert_eq!(said(&without, &facts(), "%p0", false), Some(Ranges::from([("%r0", (0, 99))])));
}

#[test]
fn predicates_are_made_of_predicates() {
    let two = "setp.lt.s32 %p1, %r0, 10;\nsetp.lt.s32 %p2, %r1, 20;\n";
    let made = |line: &str| format!("{two}{line}");
    says(&made("and.pred %p0, %p1, %p2;"), true, &[("%r0", (0, 9)), ("%r1", (0, 19))]);
    says(&made("and.pred %p0, %p1, %p2;"), false, &[]);
    says(&made("or.pred %p0, %p1, %p2;"), false, &[("%r0", (10, 99)), ("%r1", (20, 99))]);
    says(&made("or.pred %p0, %p1, %p2;"), true, &[]);
    says(&made("not.pred %p0, %p1;"), true, &[("%r0", (10, 99))]);
    says(&made("not.pred %p0, %p1;"), false, &[("%r0", (0, 9))]);
    says(&made("xor.pred %p0, %p1, %p2;"), true, &[]);
    for line in ["and.pred %p0, %p0, %p1;", "and.pred %p0, %p1, %p0;"] {
        says(&format!("{LESS}{two}{line}"), true, &[]);
    }
    for line in ["or.pred %p0, %p0, %p1;", "or.pred %p0, %p1, %p0;", "not.pred %p0, %p0;"] {
        says(&format!("{LESS}{two}{line}"), false, &[]);
        says(&format!("{LESS}{two}{line}"), true, &[]);
    }
}

#[test]
fn so_many_tests_are_remembered_and_no_more() {
    let tests =
        |count: usize| (3..count + 3).map(|at| format!("setp.lt.s32 %p{at}, %r0, 10;\n")).collect::<String>();
    says(&format!("{}{LESS}", tests(TESTS_MAX - 1)), true, &[("%r0", (0, 9))]);
    says(&format!("{}{LESS}", tests(TESTS_MAX)), true, &[]);
    // What says nothing takes no place.
    let nothing = "setp.lt.s32 %p2, 3, 10;\n";
    says(&format!("{nothing}{}{LESS}", tests(TESTS_MAX - 1)), true, &[("%r0", (0, 9))]);
    // Of each, so much.
    let line = |at: usize| format!("setp.lt.and.s32 %p{}, %r{}, 10, %p{};\n", at + 1, at + 10, at);
    let many: String = (4..4 + SAYS_MAX + 3).map(line).collect();
    let all = learned(&format!("setp.lt.s32 %p4, %r0, 10;\n{many}"));
    let most = all.says.values().flatten().map(Vec::len).max();
    assert_eq!(most, Some(SAYS_MAX));
}

/// Learns that `%r2` is a multiple of `%r0`, of which more is known then.
fn multiplied(line: &str, facts: &Facts, result: Option<Fact<'static>>) -> Tests<'static> {
    let mut tests = Tests::default();
    let instruction = instructions(line)[0];
    let Some(Operand::Register(name)) = instruction.operands.first() else { panic!("{line}") };
    tests.multiplies(facts, name, instruction, result);
    tests
}

#[test]
fn what_is_said_of_a_number_is_said_of_its_multiple() {
    let known = || Facts(vec![("%r0", number(0, 99)), ("%r2", number(0, 792))]);
    let multiple = |line: &str| {
        let mut tests = multiplied(line, &known(), Some(number(0, 792)));
        learn(&mut tests, &known(), LESS);
        said(&tests, &known(), "%p0", true).unwrap().get("%r2").copied()
    };
    assert_eq!(multiple("shl.b32 %r2, %r0, 3;"), Some((0, 72)));
    assert_eq!(multiple("mul.lo.u32 %r2, %r0, 8;"), Some((0, 72)));
    assert_eq!(multiple("mul.lo.s32 %r2, %r0, 5;"), Some((0, 45)));
    for line in [
        "shl.b32 %r2, %r0, %r1;",
        "shl.b32 %r2, %r0, 32;",
        "shl.b64 %r2, %r0, 3;",
        "shl.b32 %r2, 4, 3;",
        "mul.lo.u32 %r2, %r0, %r1;",
        "mul.lo.u32 %r2, %r0, 0;",
        "mul.lo.u32 %r2, %r0, -1;",
        "mul.lo.u32 %r2, %r0, 65536;",
        "mul.hi.u32 %r2, %r0, 8;",
        "mul.wide.u32 %r2, %r0, 8;",
        "shr.u32 %r2, %r0, 3;",
        "add.u32 %r2, %r0, 8;",
    ] {
        assert_eq!(multiple(line), None, "{line}");
    }
}

#[test]
fn a_multiple_has_not_wrapped_around() {
    let most = Width::WORD.most();
    let is_one = |known: Fact<'static>, result| {
        let tests = multiplied("shl.b32 %r2, %r0, 3;", &Facts(vec![("%r0", known)]), result);
        tests.multiples == [("%r0", "%r2", 8)]
    };
    let (near, far) = (number(0, most / 8), number(0, most / 8 + 1));
    assert!(is_one(near, Some(number(0, most - 7))));
    assert!(!is_one(far, Some(number(0, most))));
    assert!(!is_one(number(0, most + 1), Some(number(0, most))));
    assert!(!is_one(near, Some(number(0, most + 1))));
    assert!(!is_one(near, None));
    // Exactly as far as that.
    let one =
        multiplied("shl.b32 %r2, %r0, 0;", &Facts(vec![("%r0", number(0, most))]), Some(number(0, most)));
    assert_eq!(one.multiples, [("%r0", "%r2", 1)]);
    let itself = multiplied("shl.b32 %r0, %r0, 3;", &Facts(vec![("%r0", number(0, 9))]), Some(number(0, 72)));
    assert_eq!(itself.multiples, []);
}

#[test]
fn a_multiple_is_one_until_either_is_written() {
    let known = || Facts(vec![("%r0", number(0, 99)), ("%r2", number(0, 792))]);
    let after = |write: &str| {
        let mut tests = multiplied("shl.b32 %r2, %r0, 3;", &known(), Some(number(0, 792)));
        learn(&mut tests, &known(), write);
        tests.multiples.len()
    };
    assert_eq!(after("mov.u32 %r3, 0;"), 1);
    assert_eq!(after("st.global.u32 [%d0], %r2;"), 1);
    for write in
        ["mov.u32 %r0, 0;", "mov.u32 %r2, 0;", "@%p0 mov.u32 %r0, 0;", "ld.global.v2.u32 {%r3, %r2}, [%d0];"]
    {
        assert_eq!(after(write), 0, "{write}");
    }
    // The last few are remembered.
    let mut tests = Tests::default();
    for (index, line) in (0..MULTIPLES_MAX + 2).map(|at| (at, format!("shl.b32 %r{}, %r0, 3;", at + 10))) {
        let instruction = instructions(&line)[0];
        let Some(Operand::Register(name)) = instruction.operands.first() else { panic!("{line}") };
        tests.multiplies(&known(), name, instruction, Some(number(0, 792)));
        assert_eq!(tests.multiples.len(), (index + 1).min(MULTIPLES_MAX));
        assert_eq!(tests.multiples.last().unwrap().1, name);
    }
}
