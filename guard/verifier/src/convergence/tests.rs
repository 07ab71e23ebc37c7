//! Each rule by itself; and programs and claims by chance, whose lanes are followed one by one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashMap as Names;
use std::fmt::Write as _;

use super::*;
use crate::ast::{Item, Predicate};
use crate::made;

/// The statements of a body.
fn body(lines: &str) -> Vec<Statement> {
    let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n.entry k()\n{{\n{lines}\n}}\n");
    let module = bulkhead_ptx::parse(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    let Some(Item::Function(function)) = module.items.into_iter().next() else { panic!("no entry") };
    function.body.unwrap()
}

/// Claims as `Claims` reads them, with the names of labels for their numbers.
fn claimed(statements: &[Statement], claims: &str) -> Lanes {
    let mut text = format!(" {} ", claims.replace('\n', " \n "));
    for (index, statement) in statements.iter().enumerate() {
        if let Statement::Label(name, _) = statement {
            text = text.replace(&format!(" {name} "), &format!(" {index} "));
        }
    }
    format!("entry k\n{text}").parse::<crate::Claims>().unwrap().0.remove("k").unwrap().lanes
}

/// Before which statements lanes are together, where the claims follow.
fn checked(lines: &str, claims: &str) -> Option<Vec<bool>> {
    let statements = body(lines);
    check(&statements, LanesAt::Together, &claimed(&statements, claims)).ok()
}

/// Whether claims are accepted, and lanes are together before the last statement but one.
#[track_caller]
fn follows(lines: &str, claims: &str) {
    let together = checked(lines, claims).unwrap_or_else(|| panic!("refused: {claims}"));
    assert!(together[together.len() - 2], "not together: {together:?}");
}

#[track_caller]
fn is_refused(lines: &str, claims: &str) {
    assert_eq!(checked(lines, claims), None, "{claims}\n{lines}");
}

const IF: &str = "@%q bra A;\nadd.u32 %r, %r, 1;\nbra B;\nA:\nadd.u32 %r, %r, 2;\nB:\nbar.sync 0;\nret;";

#[test]
fn ways_that_lead_to_one_place_meet_there() {
    follows(IF, "A heading B\nB together");
    // Without a claim nothing is known, whoever comes.
    assert_eq!(checked(IF, "").unwrap().iter().filter(|here| **here).count(), 1);
    for claims in ["B together", "A together\nB together", "A heading A\nB together", "A apart\nB together"] {
        is_refused(IF, claims);
    }
    is_refused(IF, "A heading B");
    is_refused(IF, "A ending\nB together");
    is_refused(IF, "A heading B\nB ending");
}

#[test]
fn a_refusal_says_where() {
    let falls = "@%q bra B;\nA:\nadd.u32 %r, %r, 1;\nB:\nbar.sync 0;\nret;";
    for (text, claims, line) in
        [(IF, "B together", 8), (IF, "A heading B", 8), (falls, "A together\nB together", 7)]
    {
        let statements = body(text);
        let (span, _) = check(&statements, LanesAt::Together, &claimed(&statements, claims)).unwrap_err();
        assert_eq!(span.place.line, line, "{claims}");
    }
}

#[test]
fn nothing_waits_on_the_way() {
    for wait in
        ["bar.sync 0;", "bar.warp.sync -1;", "shfl.sync.bfly.b32 %r, %r, 1, 31, -1;", "barrier.sync 0;"]
    {
        for at in ["add.u32 %r, %r, 1;", "add.u32 %r, %r, 2;"] {
            is_refused(&IF.replace(at, wait), "A heading B\nB together");
        }
    }
    let ends = "@%q bra A;\nbar.sync 0;\nret;\nA:\nadd.u32 %r, %r, 2;\nret;";
    assert!(checked(ends, "A ending").unwrap()[1]);
    is_refused(&ends.replace("add.u32 %r, %r, 2;", "bar.sync 0;"), "A ending");
    is_refused(&ends.replace("add.u32 %r, %r, 2;", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r,%r,%r,%r}, {%r,%r,%r,%r}, {%r,%r}, {%r,%r,%r,%r};"), "A ending");
}

#[test]
fn lanes_that_end_stay_away() {
    let ends =
        "B:\nadd.u32 %r, %r, 2;\n@%q bra A;\n@%q bra B;\nbar.sync 0;\nret;\nA:\nadd.u32 %r, %r, 2;\nret;";
    is_refused(ends, "A ending\nB together");
    let goes_on = "@%q bra A;\nbar.sync 0;\nB:\nbar.sync 0;\nret;\nA:\nadd.u32 %r, %r, 2;\nbra B;";
    is_refused(goes_on, "A ending\nB together");
    is_refused(goes_on, "A ending\nB apart");
    is_refused(goes_on, "A ending\nB heading B");
}

#[test]
fn lanes_stay_together_where_all_go_one_way() {
    let uniform = "setp.eq.u32 %q, %ctaid.x, 0;\n@%q bra A;\nbar.sync 0;\nA:\nbar.sync 0;\nret;";
    follows(uniform, "A together\nsame %q");
    follows(uniform, "A together");
    for other in ["%tid.x", "%laneid", "%r", "%tid.y"] {
        is_refused(&uniform.replace("%ctaid.x", other), "A together");
        is_refused(&uniform.replace("%ctaid.x", other), "A together\nsame %q");
        is_refused(&uniform.replace("%ctaid.x", other), &format!("A together\nsame %q\nsame {other}"));
    }
    for same in ["%ctaid.y", "%ctaid.z", "%nctaid.x", "%ntid.y", "7"] {
        follows(&uniform.replace("%ctaid.x", same), "A together");
    }
    is_refused(&uniform.replace("%ctaid.x", "%ctaid.w"), "A together");
    follows(&uniform.replace("%ctaid.x", "%tid.y"), "A together\nrows");
    is_refused(&uniform.replace("setp.eq.u32 %q, %ctaid.x, 0;", "shr.u32 %q, %tid.x, 5;"), "A together");
    is_refused(&uniform.replace("%ctaid.x", "%tid.x"), "A together\nrows");
    for (line, goes) in [
        ("shr.u32 %q, %tid.x, 5;", true),
        ("shr.b32 %q, %tid.x, 31;", true),
        ("and.b32 %q, %tid.x, 992;", true),
        ("mov.u32 %q, %tid.x;\nshr.u32 %q, %q, 6;", true),
        ("shr.u32 %q, %tid.x, 4;", false),
        ("shr.s32 %q, %tid.x, 5;", false),
        ("shr.u32 %q, %tid.x, 32;", false),
        ("and.b32 %q, %tid.x, 1008;", false),
        ("add.u32 %q, %tid.x, 32;", false),
        ("mov.b32 %s, %tid.x;\nshr.u32 %q, %s, 5;", true),
        ("mov.b32 %s, %tid.x;\nmov.b32 %q, {%s, %s};\nshr.u32 %q, %q, 5;", false),
        ("mov.b64 %s, %tid.x;\nshr.u32 %q, %s, 5;", false),
        ("mov.u32 %q, %tid.x;", false),
        ("mov.u32 %q, %tid.x;\nmov.u32 %q, %q;\nshl.b32 %q, %q, 5;", false),
        ("ld.param.u32 %q, [p];", true),
        ("ld.param.u32 %q, [%r];", false),
        ("ld.global.u32 %q, [p];", false),
        ("vote.sync.any.pred %q, %ctaid.x, -1;", false),
    ] {
        let text = uniform.replace("setp.eq.u32 %q, %ctaid.x, 0;", line);
        assert_eq!(checked(&text, "A together\nrows").is_some(), goes, "{line}");
    }
}

#[test]
fn a_register_holds_the_same_only_where_everything_that_is_written_to_it_does() {
    let turns = "mov.u32 %r, 0;\nA:\nbar.sync 0;\nadd.u32 %r, %r, 1;\nsetp.lt.u32 %q, %r, 5;\n@%q bra A;\nbar.sync 0;\nret;";
    follows(turns, "A together\nsame %r");
    is_refused(turns, "A together");
    is_refused(turns, "A together\nrow %r");
    is_refused(turns, "A together\nsame %r\nsame %never");
    is_refused(&turns.replace("%r, 0;", "%r, %tid.x;"), "A together\nsame %r");
    is_refused(&turns.replace("%r, %r, 1;", "%r, %r, %s;"), "A together\nsame %r");
    // Under a predicate of some; of all it stays as it was in all.
    is_refused(&turns.replace("add", "@%p add"), "A together\nsame %r");
    let of_all = turns.replace("add", "setp.eq.u32 %p, %ctaid.y, 0;\n@%p add");
    follows(&of_all, "A together\nsame %r");
    let maybe = "setp.eq.u32 %p, %ctaid.y, 0;\nmov.u32 %r, %tid.x;\n@%p mov.u32 %r, 1;\nsetp.eq.u32 %q, %r, 1;\n@%q bra A;\nbar.sync 0;\nA:\nbar.sync 0;\nret;";
    is_refused(maybe, "A together");
    // On a way that only some take, and on one on which all are by themselves.
    let some = "mov.u32 %r, 0;\n@%p bra B;\nmov.u32 %r, 1;\nB:\nsetp.eq.u32 %q, %r, 0;\n@%q bra A;\nbar.sync 0;\nA:\nbar.sync 0;\nret;";
    is_refused(some, "B together\nA together\nsame %r");
    is_refused(some, "B together\nA together");
    follows(&some.replace("mov.u32 %r, 1;", "mov.u32 %s, 1;"), "B together\nA together\nsame %r");
    // What was written before a label may be of another way.
    let before = "mov.u32 %r, 0;\nB:\nsetp.eq.u32 %q, %r, 0;\n@%q bra A;\nbar.sync 0;\nA:\nbar.sync 0;\nmov.u32 %r, %tid.x;\n@%t bra B;\nbar.sync 0;\nret;";
    is_refused(before, "B together\nA together");
}

#[test]
fn lanes_come_out_of_a_loop_in_which_nothing_waits() {
    let turns = "A:\nadd.u32 %r, %r, %s;\nsetp.lt.u32 %q, %r, 5;\n@%q bra A;\nbar.sync 0;\nret;";
    let statements = body(turns);
    assert_eq!(statements.len(), 6);
    follows(turns, "A heading 4\n4 together");
    is_refused(turns, "A heading 4\n5 together");
    is_refused(turns, "A heading 5\n4 together");
    is_refused(turns, "A heading 4");
    is_refused(turns, "A together");
    is_refused(&turns.replace("add.u32 %r, %r, %s;", "bar.warp.sync -1;"), "A heading 4\n4 together");
}

#[test]
fn a_question_brings_lanes_together_and_what_looks_like_one_does_not() {
    const ASK: &str = "match.any.sync.b32 %bh_m, 3, -1;\nvote.sync.ballot.b32 %bh_lo, 1, -1;\nsetp.ne.s32 %bh_q, %bh_lo, %bh_m;\n@%bh_q exit;\n";
    let asked = format!("@%q bra A;\nadd.u32 %r, %r, 1;\nA:\n{ASK}bar.sync 0;\nret;");
    follows(&asked, "");
    let waits = asked.replace("@%bh_q exit", "@%bh_q cp.async.wait_all;\n@%bh_q exit");
    for (text, length) in [(&asked, 9), (&waits, 10)] {
        let together: Vec<bool> = (0..length).map(|at| at == 0 || at >= length - 2).collect();
        assert_eq!(checked(text, ""), Some(together), "{text}");
    }
    let whole = asked.replace("%bh_lo", "%bh_hi").replacen("%bh_m", "%bh_lo", 1);
    let whole = whole.replace("%bh_hi, %bh_m", "%bh_lo, -1");
    follows(&whole, "");
    for (from, to) in [
        ("3, -1", "0, -1"),
        ("3, -1", "3, -2"),
        ("3, -1", "2147483648, -1"),
        ("match.any", "match.all"),
        ("%bh_m, 3", "%bh_lo, 3"),
        ("1, -1;\n", "1, -2;\n"),
        ("1, -1;\n", "%r, -1;\n"),
        ("ne.s32", "eq.s32"),
        ("@%bh_q exit", "@!%bh_q exit"),
        ("@%bh_q exit;\n", ""),
        ("@%bh_q exit", "@%q exit"),
        ("match", "@%q match"),
        ("setp", "C:\nsetp"),
    ] {
        let text = asked.replacen(from, to, 1);
        assert_ne!(text, asked);
        let together = checked(&text, "").unwrap();
        assert!(!together[together.len() - 2], "{from} {to}");
    }
    // Whoever asks while others are headed elsewhere waits on the way.
    is_refused(&format!("@%q bra A;\n{ASK}A:\nbar.sync 0;\nret;"), "A together");
}

#[test]
fn where_nothing_waits_nothing_is_known_and_a_branch_to_nowhere_is_refused() {
    is_refused("bar.sync 0;\n@%q bra A;\nret;", "");
    assert_eq!(checked("@%q bra A;\nadd.u32 %r, %r, 1;\nA:\nret;", "A together"), Some(Vec::new()));
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

const LABELS: [&str; 4] = ["A", "B", "C", "D"];

/// A short program of waits, ways and registers.
fn program(chance: &mut Chance) -> String {
    let mut text = String::from(
        "mov.u32 %r0, 0;\nmov.u32 %r1, %laneid;\nmov.u32 %r2, 2;\nsetp.eq.u32 %p0, %r0, 0;\nsetp.eq.u32 %p1, %r1, 1;\n",
    );
    let mut left = LABELS.to_vec();
    for _ in 0..4 + chance.below(12) {
        let predicate = chance.of(&["%p0", "%p1", "!%p0", "!%p1"]);
        let register = chance.of(&["%r0", "%r1", "%r2"]);
        let line = match chance.below(16) {
            0..3 if !left.is_empty() => format!("{}:", left.remove(0)),
            0..6 => format!("@{predicate} bra {};", chance.of(&LABELS)),
            6 => format!("bra {};", chance.of(&LABELS)),
            7 | 8 => "bar.sync 0;".to_owned(),
            9 => format!("add.u32 {register}, {register}, {};", chance.of(&["1", "%r0", "%r1"])),
            10 => format!("@{predicate} add.u32 {register}, {register}, 1;"),
            11 => format!("setp.eq.u32 {}, {register}, {};", chance.of(&["%p0", "%p1"]), chance.below(4)),
            12 => format!("mov.u32 {register}, {};", chance.of(&["0", "%laneid", "%ctaid.x", "%r0", "%r1"])),
            13 => format!("@{predicate} exit;"),
            14 => "ret;".to_owned(),
            _ => format!("@{predicate} bra {};", chance.of(&LABELS)),
        };
        writeln!(text, "{line}").unwrap();
    }
    for label in left {
        writeln!(text, "{label}:").unwrap();
        if chance.below(2) == 0 {
            text.push_str("bar.sync 0;\n");
        }
    }
    text.push_str("ret;");
    text
}

/// Claims of it: what the rewriter works out with a few changes, or anything.
fn claims(statements: &[Statement], chance: &mut Chance) -> Lanes {
    let mut claims = if chance.below(3) > 0 { made::lanes_of(statements, false) } else { Lanes::default() };
    for _ in 0..chance.below(4) + usize::from(claims == Lanes::default()) * 4 {
        let index = match chance.below(4) {
            0 => chance.below(statements.len()),
            _ => {
                let labels =
                    (0..statements.len()).filter(|at| matches!(statements[*at], Statement::Label(..)));
                let labels: Vec<usize> = labels.collect();
                labels[chance.below(labels.len())]
            }
        };
        match chance.below(6) {
            0 => claims.places.insert(index, LanesAt::Together),
            1 => claims.places.insert(index, LanesAt::Heading(chance.below(statements.len()))),
            2 => claims.places.insert(index, LanesAt::Ending),
            3 => claims.places.remove(&index),
            4 => {
                let name = chance.of(&["%r0", "%r1", "%r2", "%p0", "%p1"]);
                claims.registers.insert(name.to_owned(), Uniformity::Same);
                None
            }
            _ => {
                claims.registers.remove(chance.of(&["%r0", "%r1", "%r2", "%p0", "%p1"]));
                None
            }
        };
    }
    claims
}

/// What a lane comes by.
#[derive(Debug, Clone, PartialEq)]
enum Met {
    /// A place where lanes are together, with what the registers hold of which that is claimed.
    Common(usize, Vec<u32>),
    /// It waits where they are not.
    Waits,
}

/// Follows one lane. Answers what it came by, and whether it ended.
fn follow(statements: &[Statement], lane: u32, together: &[bool], same: &[&str]) -> (Vec<Met>, bool) {
    let mut registers: Names<&str, u32> = Names::new();
    let (mut met, mut at) = (Vec::new(), 0);
    let value = |registers: &Names<&str, u32>, operand: &Operand| match operand {
        Operand::Register(name) if name == "%laneid" => lane,
        Operand::Register(name) if name == "%ctaid.x" => 1,
        // What was not written may be anything.
        Operand::Register(name) => registers.get(name.as_str()).copied().unwrap_or(40 + lane),
        Operand::Integer(value) => u32::try_from(*value).unwrap(),
        other => panic!("{other:?}"),
    };
    for _ in 0..200 {
        let Some(statement) = statements.get(at) else { panic!("a body that does not end") };
        if together[at] {
            // Nobody has read those that were not written.
            let held = same.iter().map(|name| registers.get(name).copied().unwrap_or(0)).collect();
            met.push(Met::Common(at, held));
        }
        at += 1;
        let Statement::Instruction(found) = statement else { continue };
        if let Some(Predicate { register, negated }) = &found.predicate {
            let holds = registers.get(register.as_str()).copied().unwrap_or(lane & 1) != 0;
            if holds == *negated {
                continue;
            }
        }
        let operands = found.operands.as_slice();
        match found.opcode.as_str() {
            "bar" if !together[at - 1] => met.push(Met::Waits),
            "bar" => {}
            "bra" => {
                let Some(Operand::Symbol(target)) = operands.first() else { panic!() };
                let is = |found: &Statement| matches!(found, Statement::Label(name, _) if name == target);
                at = statements.iter().position(is).unwrap();
            }
            "exit" | "ret" => return (met, true),
            opcode => {
                let Operand::Register(to) = &operands[0] else { panic!() };
                let one = value(&registers, &operands[1]);
                let other = operands.get(2).map(|operand| value(&registers, operand));
                let result = match opcode {
                    "mov" => one,
                    "add" => one.wrapping_add(other.unwrap()),
                    "setp" => u32::from(Some(one) == other),
                    _ => panic!("{opcode}"),
                };
                registers.insert(to, result);
            }
        }
    }
    (met, false)
}

/// Of all that two lanes come by, one after the other: the same, as long as neither ends, is not followed any further, or
/// waits where the other does not come to a common place.
fn agree((one, one_ended): &(Vec<Met>, bool), (other, other_ended): &(Vec<Met>, bool)) -> bool {
    for index in 0.. {
        match (one.get(index), other.get(index)) {
            (Some(Met::Waits), Some(Met::Waits)) | (None, None) => return true,
            (Some(Met::Waits), None) => return *other_ended || other.len() < 100,
            (None, Some(Met::Waits)) => return *one_ended || one.len() < 100,
            (Some(Met::Common(..)), Some(Met::Common(..))) if one[index] == other[index] => {}
            (Some(Met::Common(..)), None) | (None, Some(Met::Common(..))) => return true,
            _ => return false,
        }
    }
    true
}

#[test]
fn whatever_is_accepted_all_lanes_come_to_the_same_places_in_the_same_order() {
    let programs = std::env::var("BULKHEAD_CONVERGENCE").map_or(60_000, |count| count.parse().unwrap());
    let (mut accepted, mut apart, mut by_loops) = (0, 0, 0);
    for seed in 1..=programs {
        let mut chance = Chance(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15) | 1);
        let text = program(&mut chance);
        let statements = body(&text);
        let claims = claims(&statements, &mut chance);
        let Ok(together) = check(&statements, LanesAt::Together, &claims) else { continue };
        if together.is_empty() {
            continue;
        }
        accepted += 1;
        apart += u64::from(together.contains(&false));
        by_loops += u64::from(
            claims.places.iter().any(|(at, _)| matches!(statements[*at], Statement::Instruction(_))),
        );
        let mut same: Vec<&str> = claims.registers.keys().map(String::as_str).collect();
        same.sort_unstable();
        let lanes: Vec<_> = (0..4).map(|lane| follow(&statements, lane, &together, &same)).collect();
        for (one, other) in [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2), (1, 3)] {
            assert!(
                agree(&lanes[one], &lanes[other]),
                "{seed}: lanes {one} and {other}\n{text}\n{claims:?}\n{:?}\n{:?}",
                lanes[one],
                lanes[other]
            );
        }
    }
    println!(
        "{accepted} of {programs} accepted, {apart} with places where lanes are apart, {by_loops} behind loops"
    );
    assert!(accepted > programs / 10 && apart > programs / 20 && by_loops > 0);
}
