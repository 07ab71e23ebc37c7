//! Loops that end by steps: one register takes the same step in every turn, and a test of it against what does not change
//! ends the loop.

use crate::maps::HashMap;

use crate::ast::{Instruction, Operand, Predicate, Statement};
use crate::names::Class;
use crate::table;

/// How a loop ends by steps.
#[derive(Debug, Clone)]
pub(super) struct Steps<'a> {
    pub(super) test: &'a Instruction,
    pub(super) register: &'a str,
    pub(super) step: &'a Operand,
    pub(super) bound: &'a Operand,
    /// What the step is at most, where the loop goes on at its bound too.
    pub(super) most: i128,
    /// After how many turns it polls.
    pub(super) turns: u64,
}

/// Further steps than this are not counted.
const STEP_MAX: i128 = 1 << 30;

impl Steps<'_> {
    /// Whether it goes on at the bound.
    pub(super) fn or_equal(&self) -> bool {
        self.order() == "le"
    }

    pub(super) fn order(&self) -> &str {
        self.test.modifiers.first().map_or("", String::as_str)
    }

    /// How numbers are meant.
    pub(super) fn ty(&self) -> &str {
        self.test.modifiers.last().map_or("s32", String::as_str)
    }

    /// How many turns more than it is counted to it may turn.
    pub(super) fn more(&self) -> u64 {
        u64::from(self.or_equal())
    }

    /// How many it may be counted to.
    pub(super) fn turns_max(&self) -> u64 {
        let step = match self.step {
            Operand::Integer(step) => step.abs().max(1),
            _ => 1,
        };
        u64::try_from(STEP_MAX / step).unwrap_or(1).max(1)
    }

    /// Whether the step is known to be as it has to be: the registers that are from 1 on, and what each is at most.
    pub(super) fn is_within(&mut self, known: &HashMap<&str, i128>) -> bool {
        match self.step {
            Operand::Register(name) if self.or_equal() => match known.get(name.as_str()) {
                Some(most) if *most <= STEP_MAX => {
                    self.most = *most;
                    true
                }
                Some(_) | None => false,
            },
            Operand::Integer(step) => !self.or_equal() || *step > 0,
            _ => true,
        }
    }
}

/// A loop's body, from behind its label, by what it writes and where control may turn.
pub(super) struct Body<'a> {
    pub(super) statements: &'a [Statement],
    writes: HashMap<&'a str, Vec<usize>>,
    labels: Vec<usize>,
    /// Where something first branches, or is branched to.
    head: usize,
    /// The last branch that goes back inside, and the label that goes furthest back.
    back: Option<usize>,
}

impl<'a> Body<'a> {
    /// None where something in it is not known.
    pub(super) fn of(statements: &'a [Statement]) -> Option<Self> {
        let mut body = Self {
            statements,
            writes: HashMap::default(),
            labels: Vec::new(),
            head: statements.len(),
            back: None,
        };
        let mut seen = HashMap::default();
        for (index, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Label(name, _) => {
                    seen.insert(name.as_str(), index);
                    body.labels.push(index);
                    body.head = body.head.min(index);
                }
                Statement::Instruction(instruction) => {
                    let row = table::row_of(instruction)?;
                    let writes = &mut body.writes;
                    table::registers(row, instruction, &mut |_| {}, &mut |name| {
                        writes.entry(name).or_default().push(index);
                    });
                    if let Some(target) = table::target(row, instruction) {
                        body.head = body.head.min(index);
                        if seen.contains_key(target) {
                            body.back = Some(index);
                        }
                    }
                }
                Statement::Directive(_) | Statement::Variable(_) | Statement::Block(..) => {}
            }
        }
        Some(body)
    }

    pub(super) fn is_written(&self, name: &str) -> bool {
        self.writes.contains_key(name)
    }

    /// The one instruction that writes a register, in every turn that comes by, and where it stands.
    pub(super) fn once(&self, name: &str) -> Option<(usize, &'a Instruction)> {
        let [index] = self.writes.get(name)?.as_slice() else { return None };
        match self.statements.get(*index) {
            Some(Statement::Instruction(found)) if found.predicate.is_none() => Some((*index, found)),
            _ => None,
        }
    }

    /// Whether what stands at one place was done in the same turn, and since, where control is at another further down.
    pub(super) fn leads(&self, one: usize, other: usize) -> bool {
        one < other && (one < self.head || self.is_straight(one, other))
    }

    fn is_straight(&self, one: usize, other: usize) -> bool {
        let between = |index: &usize| (one..other).contains(index);
        !self.labels.iter().any(between)
    }

    /// Whether every turn comes by there once.
    fn is_of_turns(&self, index: usize) -> bool {
        let last = self.statements.len();
        index < self.head || self.is_straight(index, last) && self.back.is_none_or(|back| back < index)
    }
}

/// How a loop ends by steps: the statements behind its label, up to the one branch back.
pub(super) fn steps(statements: &[Statement]) -> Option<Steps<'_>> {
    let (Statement::Instruction(back), inside) = statements.split_last()? else { return None };
    let Some(Predicate { register: predicate, negated: false }) = &back.predicate else { return None };
    let body = Body::of(inside)?;
    let (tested, test) = body.once(predicate).filter(|(_, test)| test.opcode == "setp")?;
    let [Operand::Register(_), Operand::Register(register), bound] = test.operands.as_slice() else {
        return None;
    };
    let is_word = |name: &str| matches!(Class::parse(name), Some((Class::Word, _)));
    let is_fixed = |operand: &Operand| match operand {
        Operand::Integer(_) => true,
        Operand::Register(name) => is_word(name) && !body.is_written(name),
        _ => false,
    };
    let added = |register: &str| {
        let (index, add) = body.once(register).filter(|(_, add)| is_add(add))?;
        Some((index, add.operands.get(1)?, add.operands.get(2)?))
    };
    let (stepped, from, step) = added(register)?;
    // The test is what decides, of this turn's number, and the step is taken once.
    (body.leads(stepped, tested) && body.leads(tested, inside.len())).then_some(())?;
    let Operand::Register(from) = from else { return None };
    // What is tested may be a sum of what is stepped and the step.
    let register = if from == register {
        body.is_of_turns(stepped).then_some(register)?
    } else {
        let (moved, own, by) = added(from)?;
        let same = matches!(own, Operand::Register(own) if own == from) && by == step;
        (same && moved > stepped && body.leads(stepped, moved)).then_some(())?;
        body.is_of_turns(moved).then_some(from)?
    };
    let fits = is_word(register) && is_fixed(step) && is_fixed(bound);
    let modifiers: Vec<&str> = test.modifiers.iter().map(String::as_str).collect();
    let tests = match (modifiers.as_slice(), step) {
        (["lt" | "le", "s32" | "u32"], Operand::Integer(step)) => *step != 0 && step.abs() < STEP_MAX,
        (["lt" | "le", "s32" | "u32"], _) => true,
        _ => false,
    };
    let most = match step {
        Operand::Integer(step) => step.abs(),
        _ => STEP_MAX,
    };
    (fits && tests).then_some(Steps { test, register, step, bound, most, turns: 1 })
}

/// Whether an instruction is a sum of words.
pub(super) fn is_add(add: &Instruction) -> bool {
    let plain = matches!(add.modifiers.as_slice(), [ty] if ty == "s32" || ty == "u32");
    add.opcode == "add" && plain && add.predicate.is_none()
}
