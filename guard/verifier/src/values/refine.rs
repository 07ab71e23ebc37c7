//! What tests say of registers, where they hold and where they do not.

use super::number::{self, Order, Sign, Width};
use super::transfer::{Known, is_word, power};
use super::value::Fact;
use crate::ast::{Instruction, Operand};
use crate::maps::{HashMap, HashSet};
use crate::names::Class;
use crate::table::{self, Row};

/// What follows of registers.
pub type Said<'a> = HashMap<&'a str, Fact<'a>>;

/// Tests that are remembered at a time.
const TESTS_MAX: usize = 32;
/// Multiples that are remembered at a time.
const MULTIPLES_MAX: usize = 4;
/// What a predicate says, at most, of so many registers.
const SAYS_MAX: usize = 4;

/// How a register compares with what lay between two numbers then.
#[derive(Debug, Clone, Copy)]
struct Says<'a> {
    register: &'a str,
    order: Order,
    sign: Sign,
    low: i128,
    high: i128,
}

impl Says<'_> {
    fn cut(self, numbers: (i128, i128)) -> (i128, i128) {
        self.order.cut(numbers, (self.low, self.high))
    }
}

/// What predicates say where they hold, and where they do not.
#[derive(Debug, Clone, Default)]
pub struct Tests<'a> {
    says: HashMap<&'a str, [Vec<Says<'a>>; 2]>,
    /// The registers that were tested: of most that are written nothing was said.
    tested: HashSet<&'a str>,
    /// Registers that are others' multiples: the other, which, and how often.
    multiples: Vec<(&'a str, &'a str, i128)>,
}

impl<'a> Tests<'a> {
    /// Forgets all.
    pub fn clear(&mut self) {
        // Not cleared: that takes as long as the largest of them was.
        *self = Self::default();
    }

    /// A register is another's multiple, until either is written.
    fn is_multiple(&mut self, of: &'a str, name: &'a str, factor: i128) {
        if self.multiples.len() == MULTIPLES_MAX {
            self.multiples.remove(0);
        }
        self.multiples.push((of, name, factor));
    }

    fn is_empty(&self) -> bool {
        self.says.is_empty() && self.multiples.is_empty()
    }

    /// A register is written: what was said of it, or by it, no longer holds.
    pub fn written(&mut self, name: &str) {
        self.multiples.retain(|(of, multiple, _)| *of != name && *multiple != name);
        self.says.remove(name);
        if self.tested.remove(name) {
            for says in self.says.values_mut().flatten() {
                says.retain(|says| says.register != name);
            }
        }
    }

    fn of(&self, name: &str, holds: bool) -> &[Says<'a>] {
        self.says.get(name).map_or(&[], |says| says[usize::from(holds)].as_slice())
    }

    fn set(&mut self, name: &'a str, mut says: [Vec<Says<'a>>; 2]) {
        says.iter_mut().for_each(|says| says.truncate(SAYS_MAX));
        if self.says.len() < TESTS_MAX && says.iter().any(|says| !says.is_empty()) {
            self.tested.extend(says.iter().flatten().map(|says| says.register));
            self.says.insert(name, says);
        }
    }

    /// The next instruction: what it writes is no longer what was said of it, and what it makes of a predicate or of a
    /// multiple is remembered.
    pub fn learn(&mut self, known: &impl Known<'a>, row: &Row, instruction: &'a Instruction) {
        let always = instruction.predicate.is_none();
        let says = if always { self.says(known, instruction) } else { None };
        if !self.is_empty() {
            table::written(row, instruction, &mut |name| self.written(name));
        }
        if let (Some(says), Some(Operand::Register(predicate))) = (says, instruction.operands.first()) {
            self.set(predicate, says);
        }
    }

    /// Between what the registers lie that a predicate says something of, where it holds or does not.
    pub fn ranges(
        &self,
        known: &impl Known<'a>,
        predicate: &str,
        holds: bool,
    ) -> Vec<(&'a str, (i128, i128))> {
        let range = |says: &Says<'a>| {
            let before = known.small(says.register)?;
            Some((says.register, says.cut((before.low, before.high))))
        };
        self.of(predicate, holds).iter().filter_map(range).collect()
    }

    /// What follows of registers where a predicate holds, or does not; none where it never does.
    pub fn said(&self, known: &impl Known<'a>, predicate: &str, holds: bool) -> Option<Said<'a>> {
        let mut between: Vec<(&'a str, Sign, (i128, i128))> = Vec::new();
        for says in self.of(predicate, holds) {
            let same =
                between.iter_mut().find(|(name, sign, _)| *name == says.register && *sign == says.sign);
            match same {
                Some((_, _, numbers)) => *numbers = says.cut(*numbers),
                None => {
                    let before = known.small(says.register).unwrap_or(says.sign.all(Width::WORD));
                    between.push((says.register, says.sign, says.cut((before.low, before.high))));
                }
            }
        }
        if between.iter().any(|(_, _, (low, high))| low > high) {
            return None;
        }
        let mut said = Said::default();
        for (name, _, numbers) in between {
            if let Some(number) = number::refined(known.number_in(name), numbers, Width::WORD) {
                said.insert(name, Fact::Number(number));
            }
        }
        for (of, name, factor) in &self.multiples {
            let one = said.get(of).copied().and_then(Fact::number);
            let (Some(one), Some(before)) = (one, known.small(name)) else { continue };
            let numbers = (before.low.max(one.low * factor), before.high.min(one.high * factor));
            if let Some(number) = number::refined(Some(before), numbers, Width::WORD) {
                said.insert(name, Fact::Number(number));
            }
        }
        Some(said)
    }

    /// What a predicate says that an instruction computes: where it does not hold, and where it does.
    fn says(&self, known: &impl Known<'a>, instruction: &'a Instruction) -> Option<[Vec<Says<'a>>; 2]> {
        let register = |index: usize| match instruction.operands.get(index) {
            Some(Operand::Register(name)) => Some(name.as_str()),
            _ => None,
        };
        // One is the guard's own.
        let is_predicate =
            |name: &&str| *name == "%bh_q" || matches!(Class::parse(name), Some((Class::Predicate, _)));
        let words = instruction.words();
        let modifiers = words.as_slice();
        let of = |index, holds| {
            register(index).filter(is_predicate).map_or(Vec::new(), |name| self.of(name, holds).to_vec())
        };
        let result = register(0).filter(is_predicate)?;
        let fresh = |says: [Vec<Says<'a>>; 2]| {
            // What it says of what it reads from itself is not said of what it is then.
            let reads_itself = (1..4).any(|index| register(index) == Some(result));
            (!reads_itself).then_some(says)
        };
        match (instruction.opcode.as_str(), modifiers) {
            ("setp", [order, ty @ ("s32" | "u32" | "b32")]) => {
                let (holds, fails) = compared(known, instruction, Order::of(order)?, ty)?;
                Some([fails, holds])
            }
            ("setp", [order, "and", ty @ ("s32" | "u32" | "b32")]) => {
                let (mut holds, _) = compared(known, instruction, Order::of(order)?, ty)?;
                holds.extend(of(3, true));
                fresh([Vec::new(), holds])
            }
            ("setp", [order, "or", ty @ ("s32" | "u32" | "b32")]) => {
                let (_, mut fails) = compared(known, instruction, Order::of(order)?, ty)?;
                fails.extend(of(3, false));
                fresh([fails, Vec::new()])
            }
            ("and", ["pred"]) => fresh([Vec::new(), [of(1, true), of(2, true)].concat()]),
            ("or", ["pred"]) => fresh([[of(1, false), of(2, false)].concat(), Vec::new()]),
            ("not", ["pred"]) => fresh([of(1, true), of(1, false)]),
            _ => None,
        }
    }

    /// What is said of a number is said of a multiple that does not wrap around.
    pub fn multiplies(
        &mut self,
        known: &impl Known<'a>,
        name: &'a str,
        instruction: &'a Instruction,
        learned: Option<Fact<'a>>,
    ) {
        if !matches!(instruction.opcode.as_str(), "shl" | "mul") {
            return;
        }
        let by = match (instruction.opcode.as_str(), instruction.words().as_slice()) {
            ("shl", ["b32"]) => instruction.operands.get(2).and_then(power).map(|by| by.low),
            ("mul", ["lo", "u32" | "s32"]) => match instruction.operands.get(2) {
                Some(Operand::Integer(by @ 1..=0xffff)) => Some(*by),
                _ => None,
            },
            _ => return,
        };
        let small = learned.is_some_and(|fact| fact.small().is_some());
        if let (true, Some(by), Some(Operand::Register(of))) = (small, by, instruction.operands.get(1))
            && of != name
            && known.small(of).is_some_and(|number| number.high * by <= Width::WORD.most())
        {
            self.is_multiple(of, name, by);
        }
    }
}

/// What a comparison says of both sides, where it holds and where it does not.
fn compared<'a>(
    known: &impl Known<'a>,
    instruction: &'a Instruction,
    order: Order,
    ty: &str,
) -> Option<(Vec<Says<'a>>, Vec<Says<'a>>)> {
    let sign = Sign::of(ty).unwrap_or(Sign::Unsigned);
    let (one, other) = (instruction.operands.get(1)?, instruction.operands.get(2)?);
    let word = |operand: &'a Operand| match operand {
        Operand::Register(name) if is_word(name) => Some(name.as_str()),
        _ => None,
    };
    let (mut holds, mut fails) = (Vec::new(), Vec::new());
    for (subject, against, order) in [(one, other, order), (other, one, order.swapped())] {
        if let (Some(register), Some(bound)) = (word(subject), known.narrow(Some(against), sign)) {
            let says = Says { register, order, sign, low: bound.low, high: bound.high };
            holds.push(says);
            fails.push(Says { order: order.not(), ..says });
        }
    }
    Some((holds, fails))
}

#[cfg(test)]
mod tests;
