//! What loops add in each turn, and what a test says of what registers were at the last label: a case for each decision.

use super::*;
use crate::anchors::Check;

impl Case {
    /// Turns in which one register takes a step that is a number between two.
    fn steps_between(
        self,
        label: &'static str,
        most: u64,
        name: &str,
        first: i128,
        (low, high): (i128, i128),
    ) -> Self {
        let steps = vec![(name.to_owned(), number(first, first), Number::between(low, high))];
        let turns = ClaimedTurns { most, counter: Some(name.to_owned()), steps };
        let mut case = self;
        case.claims.push((label, Claimed { known: Vec::new(), turns: Some(turns) }));
        case
    }
}

/// A label that nothing goes back to, behind which registers are followed from there on.
fn followed(body: &str) -> Case {
    let before = "ld.param.u32 %r5, [a];\nand.b32 %r0, %r5, 15;\nand.b32 %r2, %r5, 3;\n";
    case(&format!("{before}A:\n{body}")).turns("A", 1, "%r0", &[("%r0", 0, 15, 0)]).always("%r2", 0, 3)
}

#[test]
fn a_register_that_is_written_otherwise_is_no_longer_stepped() {
    let turns = |other: &str| {
        let body = format!(
            "ld.param.u32 %r1, [a];\nmov.u32 %r0, 0;\nA:\nadd.s32 %r0, %r0, 1;\n{other}setp.lt.s32 %p0, %r0, 3;\n@%p0 bra A;\nret;"
        );
        case(&body).turns("A", 3, "%r0", &[("%r0", 0, 0, 1)])
    };
    turns("").right();
    turns("mov.u32 %r0, 0;\n").refused();
    turns("and.b32 %r0, %r0, 1;\n").refused();
    turns("@%p0 add.s32 %r0, %r0, 0;\n").refused();
}

#[test]
fn a_step_is_from_what_the_register_itself_was() {
    let body = "mov.u32 %r0, 0;\nmov.u32 %r1, 0;\nA:\nadd.s32 %r1, %r0, 1;\nsetp.lt.s32 %p0, %r1, 10;\n@%p0 bra A;\nret;";
    // It is one in every turn.
    case(body).turns("A", 10, "%r1", &[("%r0", 0, 0, 0), ("%r1", 0, 0, 1)]).refused();
    case(body).turns("A", 10, "%r0", &[("%r0", 0, 0, 1), ("%r1", 0, 0, 1)]).refused();
}

#[test]
fn a_turn_is_from_its_label_and_not_from_one_inside() {
    let body = |inside: &str| {
        format!(
            "mov.u32 %r0, 0;\nA:\nadd.s32 %r0, %r0, 4;\n{inside}add.s32 %r0, %r0, 2;\nsetp.lt.s32 %p0, %r0, 10;\n@%p0 bra A;\nret;"
        )
    };
    case(&body("")).turns("A", 10, "%r0", &[("%r0", 0, 0, 6)]).right();
    case(&body("B:\n"))
        .turns("A", 10, "%r0", &[("%r0", 0, 0, 2)])
        .turns("B", 1, "%r0", &[("%r0", 4, 22, 2)])
        .refused();
}

#[test]
fn a_counter_takes_one_step_that_is_never_none() {
    let body = "ld.param.u32 %r5, [a];\nand.b32 %r2, %r5, 3;\nmov.u32 %r0, 12;\nA:\nsub.s32 %r0, %r0, %r2;\n\
                setp.gt.s32 %p0, %r0, 0;\n@%p0 bra A;\nret;";
    case(body).always("%r2", 0, 3).steps_between("A", 4, "%r0", 12, (-3, 0)).refused();
    case(body).always("%r2", 0, 3).steps_between("A", 13, "%r0", 12, (-3, -3)).refused();
    let by_one = "mov.u32 %r0, 10;\nA:\nsub.s32 %r0, %r0, 1;\nsetp.gt.s32 %p0, %r0, 0;\n@%p0 bra A;\nret;";
    case(by_one).turns("A", 10, "%r0", &[("%r0", 10, 10, -1)]).right();
    case(by_one).turns("A", 9, "%r0", &[("%r0", 10, 10, -1)]).refused();
    // Registers of 64 bits do not count.
    let wide = "mov.u64 %d0, 0;\nA:\nadd.s64 %d0, %d0, 1;\nsetp.lt.s64 %p0, %d0, 10;\n@%p0 bra A;\nret;";
    case(wide).turns("A", 10, "%d0", &[("%d0", 0, 0, 1)]).refused();
}

#[test]
fn a_step_that_wraps_around_tells_nothing_of_its_register() {
    let turns = |step: i128| {
        let body = format!(
            "mov.u32 %r0, 1073741824;\nmov.u32 %r1, 0;\nA:\nshr.u32 %r2, %r0, 30;\nadd.u32 %r0, %r0, {step};\n\
             add.s32 %r1, %r1, 1;\nsetp.lt.s32 %p0, %r1, 4;\n@%p0 bra A;\nret;"
        );
        case(&body).turns("A", 4, "%r1", &[("%r1", 0, 0, 1), ("%r0", 1 << 30, 1 << 30, step)])
    };
    turns(1).always("%r2", 1, 1).right();
    turns(1 << 30).always("%r2", 1, 4).refused();
}

#[test]
fn a_sum_of_floating_point_numbers_is_no_step() {
    let body = |ty: &str| {
        format!(
            "mov.u32 %r0, 0;\nmov.u32 %r1, 0;\nmov.u32 %r2, 1;\nA:\nmov.u32 %r3, %r0;\nadd.{ty} %r0, %r0, %r2;\n\
             add.s32 %r1, %r1, 1;\nsetp.lt.s32 %p0, %r1, 3;\n@%p0 bra A;\nret;"
        )
    };
    let turns = |ty: &str| {
        let steps = [("%r1", 0, 0, 1), ("%r0", 0, 0, 1)];
        case(&body(ty)).turns("A", 3, "%r1", &steps).always("%r2", 1, 1).always("%r3", 0, 2)
    };
    turns("u32").right();
    turns("f32").refused();
}

#[test]
fn what_a_predicate_said_of_the_last_label_ends_with_the_predicate() {
    let body = |again: &str| {
        format!(
            "ld.param.u32 %r1, [a];\nmov.u32 %r0, 0;\nA:\nsetp.lt.s32 %p0, %r0, 10;\nadd.s32 %r0, %r0, 1;\n{again}@%p0 bra A;\nret;"
        )
    };
    case(&body("")).turns("A", 11, "%r0", &[("%r0", 0, 0, 1)]).right();
    case(&body("setp.ne.s32 %p0, %r1, 10;\n")).turns("A", 11, "%r0", &[("%r0", 0, 0, 1)]).refused();
}

#[test]
fn what_was_added_between_two_numbers_tells_less_of_the_last_label() {
    // What is tested is up to three more than it was.
    let more = || {
        followed(
            "mov.u32 %r3, %r0;\nadd.s32 %r0, %r0, %r2;\nsetp.ge.s32 %p0, %r0, 8;\n@%p0 bra B;\nret;\nB:\nret;",
        )
    };
    more().known("B", "%r3", 8, 15).refused();
    more().known("B", "%r3", 0, 15).right();
    let exactly = || {
        followed(
            "mov.u32 %r3, %r0;\nadd.s32 %r0, %r0, 3;\nsetp.ge.s32 %p0, %r0, 8;\n@%p0 bra B;\nret;\nB:\nret;",
        )
    };
    exactly().known("B", "%r3", 5, 15).right();
    exactly().known("B", "%r3", 6, 15).refused();
    // What is told of is up to three more than what is tested.
    let other = || followed("add.s32 %r3, %r0, %r2;\nsetp.le.s32 %p0, %r0, 8;\n@%p0 bra B;\nret;\nB:\nret;");
    other().known("B", "%r3", 0, 8).refused();
    other().known("B", "%r3", 0, 18).right();
}

#[test]
fn what_registers_were_at_a_label_is_forgotten_at_the_next() {
    let body = "ld.param.u32 %r5, [a];\nmov.u32 %r0, 0;\nmov.u32 %r3, 9;\nsetp.eq.u32 %p1, %r5, 0;\n@%p1 bra B;\n\
                and.b32 %r0, %r5, 15;\nA:\nmov.u32 %r3, %r0;\nB:\nsetp.lt.s32 %p0, %r0, 4;\n@%p0 bra C;\nret;\nC:\nret;";
    let of = || {
        case(body)
            .turns("A", 1, "%r0", &[("%r0", 0, 15, 0)])
            .known("B", "%r0", 0, 15)
            .known("B", "%r3", 0, 15)
            .known("C", "%r0", 0, 3)
    };
    of().known("C", "%r3", 0, 3).refused();
    of().known("C", "%r3", 0, 15).right();
}

#[test]
fn claims_beyond_what_a_register_holds_are_none() {
    for (low, high) in [(-5, 10), (0, 1 << 32), (0, i128::MAX), (9, 0)] {
        case(LOOP).always("%r0", low, high).right();
    }
    case(LOOP).known("A", "%r0", 0, 9).always("%r0", 0, 10).right();
    case(LOOP).known("A", "%r0", 0, 9).always("%r0", 0, 9).refused();
}

#[test]
fn where_a_check_of_pointers_fails_what_the_label_claims_has_to_hold() {
    let module = module("mov.u32 %r0, 5;\nA:\nret;\nB:\nret;");
    let statements = body_of(&module);
    let says = |most| {
        let mut claims = Claims::default();
        let known = vec![("%r0".to_owned(), number(0, most))];
        claims.labels.insert(at(statements, "B"), Claimed { known, turns: None });
        let mut numbers = Numbers::of(statements, &claims);
        let Some(Statement::Instruction(first)) = statements.first() else { panic!("an instruction") };
        numbers.learn(first);
        numbers.check(&Check { anchors: Vec::new(), steps: Vec::new(), label: "B" });
        numbers.wrong()
    };
    assert_eq!(says(5), []);
    assert_eq!(says(4), [Wrong::Known("B", "%r0")]);
}

#[test]
fn a_body_does_not_end_before_each_write_was_held_against_its_claim() {
    let module = module("mov.u32 %r0, 5;\nmov.u32 %r1, 6;\nret;");
    let statements = body_of(&module);
    let mut claims = Claims::default();
    claims.always.insert("%r0".to_owned(), number(5, 5));
    let ends = |claims: &Claims, count: usize| {
        let mut numbers = Numbers::of(statements, claims);
        for statement in statements.iter().take(count) {
            if let Statement::Instruction(found) = statement {
                numbers.learn(found);
            }
        }
        numbers.end().is_ok()
    };
    assert!(ends(&claims, 1) && !ends(&claims, 0));
    claims.always.insert("%r1".to_owned(), number(7, 7));
    assert!(!ends(&claims, 2), "a claim that is wrong, which nobody has asked for");
}
