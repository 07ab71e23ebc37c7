//! Each rule by itself; and programs and claims by chance, which are executed: what was accepted has to hold at every step.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "registers have 32 bits"
)]

use std::fmt::Write as _;

use super::*;
use crate::ast::Item;
use crate::claims::numbers::{AtLabel as Claimed, Claim, Numbers as Claims, Of, Turns as ClaimedTurns};
use crate::made;

mod steps;

fn module(body: &str) -> crate::ast::Module {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n{body}\n}}\n"
    );
    bulkhead_ptx::parse(&text).unwrap()
}

fn body_of(module: &crate::ast::Module) -> &[Statement] {
    let Some(Item::Function(function)) = module.items.first() else { panic!("no entry") };
    let body = function.body.as_deref().unwrap();
    let begin = body.iter().position(|statement| !matches!(statement, Statement::Variable(_)));
    &body[begin.unwrap()..]
}

fn at(statements: &[Statement], label: &str) -> usize {
    let is_it = |statement: &Statement| matches!(statement, Statement::Label(name, _) if name == label);
    statements.iter().position(is_it).unwrap()
}

/// What is wrong of claims on a body.
fn wrong<'a>(statements: &'a [Statement], claims: &Claims) -> Vec<Wrong<'a>> {
    let mut numbers = Numbers::of(statements, claims);
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) => numbers.learn(instruction),
            Statement::Label(label, _) => numbers.label(label),
            _ => {}
        }
    }
    let mut wrong = numbers.wrong();
    if numbers.end().is_err() {
        wrong.push(Wrong::Many);
    }
    wrong
}

fn number(low: i128, high: i128) -> Claim {
    Claim { of: Of::Zero, number: Number::between(low, high) }
}

/// Whether claims on a body are right: at labels, always, and of turns.
struct Case {
    body: String,
    claims: Vec<(&'static str, Claimed)>,
    always: Vec<(&'static str, Claim)>,
}

fn case(body: &str) -> Case {
    Case { body: body.to_owned(), claims: Vec::new(), always: Vec::new() }
}

impl Case {
    fn known(mut self, label: &'static str, name: &str, low: i128, high: i128) -> Self {
        let known = vec![(name.to_owned(), number(low, high))];
        self.claims.push((label, Claimed { known, turns: None }));
        self
    }

    fn turns(
        mut self,
        label: &'static str,
        most: u64,
        counter: &str,
        steps: &[(&str, i128, i128, i128)],
    ) -> Self {
        let step = |(name, low, high, step): &(&str, i128, i128, i128)| {
            ((*name).to_owned(), number(*low, *high), Number::exactly(*step))
        };
        let turns =
            ClaimedTurns { most, counter: Some(counter.to_owned()), steps: steps.iter().map(step).collect() };
        self.claims.push((label, Claimed { known: Vec::new(), turns: Some(turns) }));
        self
    }

    fn always(mut self, name: &'static str, low: i128, high: i128) -> Self {
        self.always.push((name, number(low, high)));
        self
    }

    fn is_right(&self) -> bool {
        let module = module(&self.body);
        let statements = body_of(&module);
        let mut claims = Claims::default();
        for (label, claim) in &self.claims {
            let here: &mut Claimed = claims.labels.entry(at(statements, label)).or_default();
            here.known.extend(claim.known.iter().cloned());
            here.turns = claim.turns.clone().or(here.turns.take());
        }
        claims.always = self.always.iter().map(|(name, claim)| ((*name).to_owned(), claim.clone())).collect();
        wrong(statements, &claims).is_empty()
    }

    #[track_caller]
    fn right(self) {
        assert!(self.is_right(), "{}", self.body);
    }

    #[track_caller]
    fn refused(self) {
        assert!(!self.is_right(), "{}", self.body);
    }
}

const LOOP: &str = "mov.u32 %r0, 0;\nA:\nadd.s32 %r0, %r0, 1;\nsetp.lt.s32 %p0, %r0, 10;\n@%p0 bra A;\nret;";

#[test]
fn a_loop_needs_what_its_ways_back_bring() {
    case(LOOP).known("A", "%r0", 0, 9).right();
    case(LOOP).known("A", "%r0", 0, 8).refused();
    case(LOOP).known("A", "%r0", 1, 9).refused();
    case(LOOP).known("A", "%r0", 0, 1 << 20).right();
    let without = "mov.u32 %r0, 0;\nA:\nadd.s32 %r0, %r0, 1;\nsetp.ne.s32 %p0, %r1, 10;\n@%p0 bra A;\nret;";
    case(&format!("mov.u32 %r1, 0;\n{without}")).known("A", "%r0", 0, 9).refused();
}

#[test]
fn behind_a_form_nothing_is_known_of_what_it_writes() {
    let body = "ld.param.u32 %r0, [a];\nld.param.u32 %r1, [a];\nmov.u32 %r2, 7;\n\
                setp.lt.u32 %p0, %r0, 5;\nsetp.lt.s32 %p0, %r1, 0;\nmov.u32 %r2, %r1;\n\
                @%p0 bra A;\nret;\nA:\nret;";
    let module = module(body);
    let statements = body_of(&module);
    let claimed = |name: &str, high, passed: std::ops::Range<usize>| {
        let mut claims = Claims::default();
        let known = vec![(name.to_owned(), number(0, high))];
        claims.labels.insert(at(statements, "A"), Claimed { known, turns: None });
        let mut numbers = Numbers::of(statements, &claims);
        for (index, statement) in statements.iter().enumerate().filter(|(index, _)| !(4..6).contains(index)) {
            if index == 6 {
                numbers.pass_over(&statements[passed.clone()]);
            }
            match statement {
                Statement::Instruction(instruction) => numbers.learn(instruction),
                Statement::Label(label, _) => numbers.label(label),
                _ => {}
            }
        }
        numbers.wrong().is_empty()
    };
    assert!(claimed("%r0", 4, 4..4), "a predicate says what it was made from");
    assert!(!claimed("%r0", 4, 4..5), "and not what is in it since");
    assert!(claimed("%r2", 7, 4..5));
    assert!(!claimed("%r2", 7, 5..6));
    let mut claims = Claims::default();
    claims.always.insert("%r2".to_owned(), number(7, 7));
    let mut numbers = Numbers::of(statements, &claims);
    numbers.pass_over(&statements[5..6]);
    assert_eq!(numbers.wrong(), [Wrong::Always("%r2")], "a form that writes what is always claimed");
}

#[test]
fn every_way_to_a_label_counts() {
    let ways = "mov.u32 %r0, 3;\nsetp.eq.u32 %p0, %r1, 0;\n@%p0 bra A;\nmov.u32 %r0, 5;\nbra A;\nB:\nmov.u32 %r0, 9;\nA:\nret;";
    let ways = format!("ld.param.u32 %r1, [a];\n{ways}");
    case(&ways).known("A", "%r0", 3, 9).right();
    case(&ways).known("A", "%r0", 3, 5).refused();
    case(&ways).known("A", "%r0", 4, 9).refused();
    case(&ways).known("A", "%r0", 3, 9).known("B", "%r0", 5, 5).right();
}

#[test]
fn what_is_always_so_is_so_of_every_write_predicated_ones_too() {
    let writes =
        "mov.u32 %r0, 3;\nsetp.eq.u32 %p0, %r1, 0;\n@%p0 mov.u32 %r0, 40;\nadd.u32 %r2, %r0, 1;\nret;";
    let writes = format!("ld.param.u32 %r1, [a];\n{writes}");
    case(&writes).always("%r0", 3, 40).right();
    case(&writes).always("%r0", 3, 39).refused();
    case(&writes).always("%r0", 3, 40).always("%r2", 4, 41).right();
    case(&writes).always("%r0", 3, 40).always("%r2", 4, 40).refused();
    // One that is read further up, in the next turn.
    let around = "mov.u32 %r0, 0;\nA:\nand.b32 %r1, %r0, 15;\nadd.u32 %r0, %r1, 1;\nbra A;";
    case(around).always("%r0", 0, 16).right();
    case(around).always("%r0", 0, 15).refused();
}

#[test]
fn of_bits_that_are_turned_over_no_more_is_found_than_can_be_shown() {
    let module = module("mov.u32 %r1, 5;\nL:\nxor.b32 %r1, %r1, 8;\n@%p1 bra L;\nret;");
    let statements = body_of(&module);
    let claims = made::numbers::of(statements);
    assert_eq!(claims.always.get("%r1"), Some(&number(0, 15)));
    assert_eq!(wrong(statements, &claims), []);
}

#[test]
fn a_register_is_counted_where_its_test_says_so() {
    let turns = |test: &str, bound: i128| {
        format!(
            "mov.u32 %r0, 0;\nmov.u32 %r1, 0;\nA:\nadd.s32 %r1, %r1, 4;\nadd.s32 %r0, %r0, 1;\nsetp.{test} %p0, %r0, {bound};\n@%p0 bra A;\nret;"
        )
    };
    let steps = [("%r0", 0, 0, 1), ("%r1", 0, 0, 4)];
    case(&turns("lt.s32", 10)).turns("A", 10, "%r0", &steps).known("A", "%r1", 0, 36).right();
    case(&turns("lt.s32", 10)).turns("A", 9, "%r0", &steps).refused();
    case(&turns("lt.s32", 10)).turns("A", 10, "%r0", &steps).known("A", "%r1", 0, 35).refused();
    case(&turns("le.s32", 10)).turns("A", 10, "%r0", &steps).refused();
    case(&turns("le.s32", 10)).turns("A", 11, "%r0", &steps).right();
    case(&turns("ne.s32", 10)).turns("A", 10, "%r0", &steps).right();
    case(&turns("gt.s32", -1)).turns("A", 10, "%r0", &steps).refused();
    // Not what is added, not what it is at first, nor the register that says so.
    case(&turns("lt.s32", 10)).turns("A", 10, "%r0", &[("%r0", 0, 0, 1), ("%r1", 0, 0, 5)]).refused();
    case(&turns("lt.s32", 10)).turns("A", 10, "%r0", &[("%r0", 0, 0, 1), ("%r1", 1, 1, 4)]).refused();
    case(&turns("lt.s32", 10)).turns("A", 10, "%r1", &steps).refused();
}

#[test]
fn turns_that_nobody_counts_are_not_claimed() {
    let body = "mov.u32 %r0, 0;\nA:\nadd.s32 %r0, %r0, 4;\nsetp.ne.s32 %p0, %r1, 10;\n@%p0 bra A;\nret;";
    let module = module(&format!("ld.param.u32 %r1, [a];\n{body}"));
    let statements = body_of(&module);
    for most in [0, 1, 1000] {
        for counter in [None, Some("%r9".to_owned()), Some("%r1".to_owned()), Some("%r0".to_owned())] {
            let steps = vec![("%r0".to_owned(), number(0, 0), Number::exactly(4))];
            let turns = Some(ClaimedTurns { most, counter, steps });
            let mut claims = Claims::default();
            claims.labels.insert(at(statements, "A"), Claimed { known: Vec::new(), turns });
            assert!(!wrong(statements, &claims).is_empty(), "{claims}");
        }
    }
}

#[test]
fn a_test_of_what_a_turn_began_with_counts_too() {
    let turns = |bound: i128| {
        format!(
            "mov.u32 %r0, 0;\nA:\nsetp.lt.s32 %p0, %r0, {bound};\nadd.s32 %r0, %r0, 4;\n@%p0 bra A;\nret;"
        )
    };
    case(&turns(8)).turns("A", 3, "%r0", &[("%r0", 0, 0, 4)]).right();
    case(&turns(8)).turns("A", 2, "%r0", &[("%r0", 0, 0, 4)]).refused();
    // It never goes back.
    case(&turns(0)).turns("A", 1, "%r0", &[("%r0", 0, 0, 4)]).right();
}

#[test]
fn nothing_that_wraps_around_counts() {
    let down = "mov.u32 %r0, 3;\nA:\nadd.s32 %r0, %r0, -1;\nsetp.ne.s32 %p0, %r0, 0;\n@%p0 bra A;\nret;";
    case(down).turns("A", 3, "%r0", &[("%r0", 3, 3, -1)]).right();
    let below = "mov.u32 %r0, 3;\nA:\nadd.s32 %r0, %r0, -1;\nsetp.lt.s32 %p0, %r0, 4;\n@%p0 bra A;\nret;";
    case(below).turns("A", 3, "%r0", &[("%r0", 3, 3, -1)]).refused();
    case(below).turns("A", 1 << 40, "%r0", &[("%r0", 3, 3, -1)]).refused();
    let large =
        "mov.u32 %r0, 0;\nA:\nadd.u32 %r0, %r0, 2147483647;\nsetp.ne.s32 %p0, %r0, 5;\n@%p0 bra A;\nret;";
    case(large).turns("A", 4, "%r0", &[("%r0", 0, 0, 2_147_483_647)]).refused();
}

#[test]
fn claims_that_are_no_numbers_are_none_and_very_many_are_refused() {
    case(LOOP).known("A", "%r0", 9, 0).right();
    case(LOOP).known("A", "%r0", -5, 9).right();
    case(LOOP).known("A", "%nobody", 0, 9).right();
    case(LOOP).known("A", "%r0", 0, i128::MAX).right();
    let mut many = "mov.u32 %r0, 0;\n".to_owned();
    // Long names count: each is compared at each way.
    let long = "n".repeat(4000);
    let pointers = format!(
        "ld.param.u64 %d0, [{long}];\nsetp.eq.u32 %p0, %r0, 0;\n{}A:\nret;",
        "@%p0 bra A;\n".repeat(5000)
    );
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 {long})\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n{pointers}\n}}\n"
    );
    let named = bulkhead_ptx::parse(&text).unwrap();
    let statements = body_of(&named);
    let mut claims = Claims::default();
    let claim = Claim { of: Of::Parameter(long, 0), number: Number::between(0, 0) };
    claims
        .labels
        .insert(at(statements, "A"), Claimed { known: vec![("%d0".to_owned(), claim); 12], turns: None });
    assert!(wrong(statements, &claims).contains(&Wrong::Many), "12 claims at 5,000 ways, with names");
    for _ in 0..9000 {
        many.push_str("@%p0 bra A;\n");
    }
    let module = module(&format!("setp.eq.u32 %p0, %r0, 0;\n{many}A:\nret;"));
    let statements = body_of(&module);
    let mut claims = Claims::default();
    let known = vec![("%r0".to_owned(), number(0, 1)); 4000];
    claims.labels.insert(at(statements, "A"), Claimed { known, turns: None });
    assert!(wrong(statements, &claims).contains(&Wrong::Many));
}

/// Numbers by chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit as u64).unwrap()
    }

    fn of<'b>(&mut self, all: &[&'b str]) -> &'b str {
        all[self.below(all.len())]
    }
}

const REGISTERS: [&str; 4] = ["%r0", "%r1", "%r2", "%r3"];
const LABELS: [&str; 3] = ["A", "B", "C"];
const NUMBERS: [&str; 9] = ["0", "1", "2", "3", "-1", "7", "12", "2147483647", "-4"];

fn program(chance: &mut Chance) -> String {
    let mut text = String::from("setp.eq.u32 %p0, 0, 0;\nsetp.eq.u32 %p1, 0, 1;\n");
    for register in REGISTERS {
        let line = match chance.below(3) {
            0 => format!("mov.u32 {register}, %tid.x;"),
            _ => format!("mov.u32 {register}, {};", chance.of(&NUMBERS)),
        };
        writeln!(text, "{line}").unwrap();
    }
    let mut left = LABELS.to_vec();
    for _ in 0..5 + chance.below(10) {
        let (to, from) = (chance.of(&REGISTERS), chance.of(&REGISTERS));
        let same = if chance.below(2) == 0 { to } else { from };
        let other = if chance.below(3) == 0 { chance.of(&REGISTERS) } else { chance.of(&NUMBERS) };
        let predicate = chance.of(&["%p0", "%p1", "!%p0", "!%p1"]);
        let line = match chance.below(18) {
            0..3 if !left.is_empty() => format!("{}:", left.remove(0)),
            0..5 => format!("@{predicate} bra {};", chance.of(&LABELS)),
            5 => format!("bra {};", chance.of(&LABELS)),
            6..9 => format!("add.s32 {to}, {same}, {other};"),
            9 => format!("sub.s32 {to}, {from}, {other};"),
            10 => format!("mov.u32 {to}, {other};"),
            11 => format!("@{predicate} add.u32 {to}, {same}, {other};"),
            12 => format!("and.b32 {to}, {from}, {};", chance.of(&["15", "12", "1"])),
            13 => format!("min.s32 {to}, {from}, {other};"),
            14 => format!("shl.b32 {to}, {from}, {};", chance.of(&["1", "2"])),
            _ => {
                let order = chance
                    .of(&["lt.s32", "lt.u32", "ge.s32", "le.s32", "ne.s32", "eq.s32", "gt.s32", "gt.u32"]);
                format!("setp.{order} {}, {from}, {other};", chance.of(&["%p0", "%p1"]))
            }
        };
        writeln!(text, "{line}").unwrap();
    }
    for label in left {
        writeln!(text, "{label}:").unwrap();
    }
    text.push_str("ret;");
    text
}

/// Claims: what the inference finds with a few changes, or anything.
fn claims(statements: &[Statement], chance: &mut Chance) -> Claims {
    let mut claims = if chance.below(4) > 0 { made::numbers::of(statements) } else { Claims::default() };
    let labels: Vec<usize> =
        (0..statements.len()).filter(|at| matches!(statements[*at], Statement::Label(..))).collect();
    for _ in 0..chance.below(4) {
        let (name, at) = (chance.of(&REGISTERS).to_owned(), labels[chance.below(labels.len())]);
        let low = chance.below(6) as i128;
        let claim = number(low, low + [0, 1, 4, 12, 40, 1 << 30][chance.below(6)]);
        let here = claims.labels.entry(at).or_default();
        match chance.below(6) {
            0 => {
                claims.always.insert(name, claim);
            }
            1 | 2 => here.known.push((name, claim)),
            3 => {
                if let Some((_, claim)) = here.known.first_mut() {
                    claim.number.high = (claim.number.high - 1).max(claim.number.low);
                    claim.number = claim.number.plain();
                }
            }
            4 => {
                let step = Number::exactly([1, -1, 2, 4, -4][chance.below(5)]);
                let steps = vec![(name.clone(), claim, step)];
                // Without one it is counted behind a check, and there is none.
                let counter = (chance.below(5) > 0).then_some(name);
                here.turns = Some(ClaimedTurns { most: 1 + chance.below(12) as u64, counter, steps });
            }
            _ => {
                if let Some(turns) = &mut here.turns {
                    turns.most = (turns.most - 1).max(1);
                }
            }
        }
    }
    claims
}

/// A thread that executes a body.
struct Thread {
    registers: HashMap<String, u32>,
    predicates: HashMap<String, bool>,
    tid: u32,
}

impl Thread {
    fn value(&self, operand: &Operand) -> u32 {
        match operand {
            Operand::Register(name) if name == "%tid.x" => self.tid,
            Operand::Register(name) => self.registers[name],
            Operand::Integer(value) => *value as u32,
            _ => panic!("an operand"),
        }
    }

    /// Executes one; answers what it wrote and where it goes.
    fn step(&mut self, found: &Instruction) -> (Option<(String, u32)>, Option<String>) {
        if let Some(Predicate { register, negated }) = &found.predicate
            && self.predicates[register] == *negated
        {
            return (None, None);
        }
        if found.opcode == "bra" {
            let Some(Operand::Symbol(label)) = found.operands.first() else { panic!("a label") };
            return (None, Some(label.clone()));
        }
        let operand = |index: usize| self.value(&found.operands[index]);
        let Some(Operand::Register(to)) = found.operands.first() else { panic!("a result") };
        if found.opcode == "setp" {
            let (one, other) = (operand(1), operand(2));
            let (signed_one, signed_other) = (one as i32, other as i32);
            let holds = match found.words().as_slice() {
                ["lt", "s32"] => signed_one < signed_other,
                ["lt", "u32"] => one < other,
                ["ge", "s32"] => signed_one >= signed_other,
                ["le", "s32"] => signed_one <= signed_other,
                ["gt", "s32"] => signed_one > signed_other,
                ["gt", "u32"] => one > other,
                ["ne", "s32"] => one != other,
                ["eq", _] => one == other,
                other => panic!("{other:?}"),
            };
            self.predicates.insert(to.clone(), holds);
            return (None, None);
        }
        let result = match found.opcode.as_str() {
            "mov" => operand(1),
            "add" => operand(1).wrapping_add(operand(2)),
            "sub" => operand(1).wrapping_sub(operand(2)),
            "and" => operand(1) & operand(2),
            "min" => (operand(1) as i32).min(operand(2) as i32) as u32,
            "shl" => operand(1) << operand(2),
            other => panic!("{other}"),
        };
        self.registers.insert(to.clone(), result);
        (Some((to.clone(), result)), None)
    }
}

/// Whether a claim holds of a value in a thread.
fn holds(claim: &Claim, value: u32, tid: u32) -> bool {
    let (value, number) = (i128::from(value), claim.number);
    let parts = number.most.parts().map(|parts| crate::most::of_last(&parts, [tid + 1, 1, 1]));
    let most = parts.map(|parts| number.most.constant + i128::try_from(parts).unwrap());
    number.low <= value
        && value <= number.high
        && value.trailing_zeros() >= number.zeros.min(32)
        && most.is_none_or(|most| value <= most)
}

/// Executes a body under claims that were accepted: none may ever be wrong.
fn follow(text: &str, statements: &[Statement], claims: &Claims, tid: u32) {
    let is_claim = |claim: &Claim| claim.number.low <= claim.number.high && claim.number.low >= 0;
    let mut thread = Thread { registers: HashMap::default(), predicates: HashMap::default(), tid };
    let (mut at_statement, mut turns) = (0, HashMap::<usize, (u64, usize)>::default());
    let mut before = None;
    for _ in 0..400 {
        match &statements[at_statement] {
            Statement::Label(label, _) => {
                let claimed = claims.labels.get(&at_statement);
                for (name, claim) in claimed.iter().flat_map(|claimed| &claimed.known) {
                    if let Some(value) = thread.registers.get(name).filter(|_| is_claim(claim)) {
                        assert!(
                            holds(claim, *value, tid),
                            "{name} is {value} at {label} of {tid}: {claim:?}\n{text}"
                        );
                    }
                }
                // A way back stands further down.
                let again = before.is_some_and(|before| before > at_statement);
                let count = turns.entry(at_statement).or_default();
                count.0 = if again { count.0 + 1 } else { 1 };
                if let Some(most) = claimed.and_then(|claimed| claimed.turns.as_ref()) {
                    assert!(
                        count.0 <= most.most.max(1),
                        "{} turns at {label}: {most:?}
{text}",
                        count.0
                    );
                }
                (before, at_statement) = (Some(at_statement), at_statement + 1);
            }
            Statement::Instruction(found) if found.opcode == "ret" => return,
            Statement::Instruction(found) => {
                let (wrote, goes) = thread.step(found);
                if let Some((name, value)) = wrote
                    && let Some(claim) = claims.always.get(&name).filter(|claim| is_claim(claim))
                {
                    assert!(holds(claim, value, tid), "{name} is {value} always: {claim:?}\n{text}");
                }
                before = Some(at_statement);
                at_statement = goes.map_or(at_statement + 1, |label| at(statements, &label));
            }
            _ => at_statement += 1,
        }
    }
}

#[test]
fn what_is_accepted_holds_at_every_step() {
    let rounds = std::env::var("BULKHEAD_ROUNDS").map_or(60_000, |rounds| rounds.parse().unwrap());
    let seed = std::env::var("BULKHEAD_SEED").map_or(0x9e37_79b9, |seed| seed.parse().unwrap());
    let mut chance = Chance(seed);
    let (mut accepted, mut turning, mut claimed) = (0, 0, 0);
    for _ in 0..rounds {
        let text = program(&mut chance);
        let module = module(&text);
        let statements = body_of(&module);
        let claims = claims(statements, &mut chance);
        if !wrong(statements, &claims).is_empty() {
            continue;
        }
        accepted += 1;
        if accepted < 2000 {
            // As they travel they are the same.
            let mut read = Claims::default();
            for line in claims.to_string().lines() {
                assert_eq!(read.read(line), Some(true), "{line}");
            }
            let mut said = claims.clone();
            said.labels.retain(|_, claim| *claim != Claimed::default());
            assert_eq!(read, said);
        }
        turning += u64::from(claims.labels.values().any(|claim| claim.turns.is_some()));
        claimed += claims.labels.values().map(|claim| claim.known.len()).sum::<usize>();
        for tid in [0, 1, 5, 1023] {
            follow(&text, statements, &claims, tid);
        }
    }
    println!("{accepted} of {rounds} accepted, {claimed} claims at labels, {turning} with turns");
    assert!(accepted > rounds / 4 && turning > rounds / 200, "{accepted}, {turning}");
}
