//! What is known of the turns of loops: how far their pointers have come in any, and how many there are.

use std::collections::HashMap;

use super::{Base, Fact, Facts, Most, Window};
use crate::anchors::{self, Check};
use crate::ast::{Instruction, Operand, Predicate, Statement};
use crate::limits::CHUNK_COST_MAX;
use crate::names;
use crate::table::{self, Treatment};

impl<'a> Facts<'a> {
    /// Begins the turns of a loop without labels inside, directly behind its label and a check before that: at most
    /// [`CHUNK_COST_MAX`] instructions are gone through in all its turns. False where a pointer is not stepped by
    /// what is known to be little enough.
    pub(crate) fn turn(&mut self, check: &Check<'a>, body: &'a [Statement]) -> bool {
        self.passing.clear();
        let mut instructions = 0_u64;
        for statement in body {
            let Statement::Instruction(instruction) = statement else { continue };
            let Some(row) = table::row_of(instruction) else { return false };
            let (mut reads_own, mut writes_own) = (false, false);
            let mut read = |name| reads_own |= names::is_reserved(name);
            table::registers(row, instruction, &mut read, &mut |name| {
                writes_own |= names::is_reserved(name);
                self.passing.insert(name, None);
            });
            // The guard's own do not count among what a turn costs, and what accesses go through may be that.
            instructions += u64::from(!(reads_own || writes_own) && row.memory.is_empty());
        }
        // In the first turn the loop has not gone back yet.
        let backs = i128::from(CHUNK_COST_MAX / instructions.max(1));
        for step in &check.steps {
            // A step that the loop itself writes is not what was checked.
            if self.passing.contains_key(step.register) {
                return false;
            }
        }
        for step in &check.steps {
            let bound = i128::from(step.bound);
            let known = self.known.get(step.register).filter(|known| known.base.is_none());
            let zeros = known.map_or(0, |known| known.zeros);
            self.passing.insert(step.register, Some(Fact { zeros, ..Fact::number(-bound, bound - 1) }));
        }
        let begin = self.checked;
        self.checked += check.anchors.len();
        let anchors = || {
            check.anchors.iter().zip(begin..).map(|(anchor, number)| {
                let window = Window { number, writes: anchor.writes, align: anchor.align };
                (anchor.register, Fact::start(Base::Window(window)))
            })
        };
        let before = self.passing.clone();
        self.passing.extend(anchors().map(|(register, fact)| (register, Some(fact))));
        for statement in body {
            if let Statement::Instruction(instruction) = statement {
                self.learn(instruction);
            }
        }
        // What this turn alone would leave is not what any turn leaves.
        for register in before.keys() {
            if !check.steps.iter().any(|step| step.register == *register) {
                self.known.remove(register);
            }
        }
        let mut turned = before;
        for (register, start) in anchors() {
            let Some(end) = self.of_register(register).filter(|end| end.base == start.base) else {
                return false;
            };
            let (low, high) = ((end.low * backs).min(0), (end.high * backs).max(0));
            let fact = Fact { low, high, most: Most::constant(high), zeros: end.zeros, ..start };
            let Some(fact) = fact.fits() else { return false };
            turned.insert(register, Some(fact));
        }
        self.passing = turned;
        true
    }

    /// How often a loop turns at most, which control has run on into and into nothing else of which goes: its body, from
    /// behind the last label on, and the branch back. What ends it is a register that takes the same step in
    /// every turn, from and to what is known.
    pub(crate) fn turns(&self, body: &[Statement], back: &Instruction) -> Option<u64> {
        self.ending(body, back).map(|ending| ending.turns)
    }

    /// Directly behind the label of such a loop: what its register is in any turn. Nothing else may go back to it than
    /// the branch that ends its body.
    pub(crate) fn turning(&mut self, behind: &'a [Statement], label: &str) {
        let Some(body) = anchors::turns(behind, label) else { return };
        let Some(Statement::Instruction(back)) = behind.get(body.len()) else { return };
        if let Some(Ending { register, low, high, zeros, .. }) = self.ending(body, back) {
            self.passing.insert(register, Fact { zeros, ..Fact::number(low, high) }.fits());
        }
    }

    fn ending<'b>(&self, body: &'b [Statement], back: &Instruction) -> Option<Ending<'b>> {
        let Some(Predicate { register: predicate, negated: false }) = &back.predicate else { return None };
        (back.opcode == "bra" && back.modifiers.is_empty()).then_some(())?;
        let mut writes: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, statement) in body.iter().enumerate() {
            let Statement::Instruction(instruction) = statement else { continue };
            let row = table::row_of(instruction)?;
            let away = matches!(row.treatment, Treatment::Branch | Treatment::Gate);
            if table::target(row, instruction).is_some() || away {
                return None;
            }
            let mut write = |name| writes.entry(name).or_default().push(index);
            table::registers(row, instruction, &mut |_| {}, &mut write);
        }
        let once = |name: &str| match writes.get(name).map(Vec::as_slice) {
            Some([index]) => match body.get(*index) {
                Some(Statement::Instruction(found)) if found.predicate.is_none() => Some((*index, found)),
                _ => None,
            },
            _ => None,
        };
        let (at, test) = once(predicate).filter(|(_, test)| test.opcode == "setp")?;
        let [Operand::Register(_), Operand::Register(tested), bound] = test.operands.as_slice() else {
            return None;
        };
        let is_word = |found: &Instruction| matches!(found.modifiers.as_slice(), [ty] if matches!(ty.as_str(), "s32" | "u32" | "b32"));
        let (stepped, add) =
            once(tested).filter(|(index, add)| *index < at && add.opcode == "add" && is_word(add))?;
        let (Some(Operand::Register(from)), Some(Operand::Integer(step))) =
            (add.operands.get(1), add.operands.get(2))
        else {
            return None;
        };
        // The sum may be in a register of its own, from which the next turn has it.
        if from != tested {
            let (moved, next) = once(from).filter(|(_, next)| next.opcode == "mov" && is_word(next))?;
            let same = matches!(next.operands.get(1), Some(Operand::Register(name)) if name == tested);
            (same && moved > stepped).then_some(())?;
        }
        let entering = |name: &str| {
            let fact = self.entering.get(name).copied().unwrap_or_else(|| self.known.get(name).copied())?;
            (fact.base.is_none() && fact.low >= 0 && fact.high <= i32::MAX.into()).then_some(fact)
        };
        let first = entering(from)?;
        let bound = match bound {
            Operand::Integer(value) => Fact::exactly(*value),
            Operand::Register(name) if !writes.contains_key(name.as_str()) => entering(name)?,
            _ => return None,
        };
        let [compare, ty] = test.modifiers.as_slice() else { return None };
        let turns = count(first, *step, (compare, ty), bound)?;
        // In every turn but the first, what it began as passed the test.
        let (low, high) = match (step.is_positive(), compare.as_str()) {
            (true, "ne") => (first.low, bound.low - step),
            (true, "lt") => (first.low, first.high.max(bound.high - 1)),
            (true, _) => (first.low, first.high.max(bound.high)),
            (false, _) => (first.low.min(bound.low), first.high),
        };
        let zeros = first.zeros.min(Fact::exactly(*step).zeros).min(32);
        Some(Ending { turns: u64::try_from(turns.max(1)).ok()?, register: from, low, high, zeros })
    }
}

/// A loop that ends by itself.
struct Ending<'a> {
    turns: u64,
    /// What takes the steps; between what it is when a turn begins, and how many of its low bits are zero.
    register: &'a str,
    low: i128,
    high: i128,
    zeros: u32,
}

/// How often a number that begins as `first` and grows by `step` before each test passes it, and once more.
fn count(first: Fact<'_>, step: i128, (compare, ty): (&str, &str), bound: Fact<'_>) -> Option<i128> {
    let up = |far: i128| (far + step - 1) / step;
    let down = |far: i128| (far - step - 1) / -step;
    let signed = ty == "s32";
    let exact = first.low == first.high && bound.low == bound.high;
    let most: i128 = i32::MAX.into();
    let room = bound.low >= 0 && bound.high + step.abs() < most && first.high + step < most;
    match (compare, ty) {
        _ if step == 0 || step.abs() > 1 << 30 || !room => None,
        ("lt", "s32" | "u32") if step > 0 => Some(up(bound.high - first.low)),
        ("le", "s32" | "u32") if step > 0 => Some(up(bound.high + 1 - first.low)),
        ("gt", _) if step < 0 && signed => Some(down(first.high - bound.low)),
        ("ge", _) if step < 0 && signed => Some(down(first.high + 1 - bound.low)),
        // It has to be met, and not only passed.
        ("ne", "s32" | "u32" | "b32") if exact => {
            let far = bound.low - first.low;
            (far % step == 0 && far / step >= 1).then_some(far / step)
        }
        ("ne", "s32" | "u32" | "b32") if step == -1 && bound.low == bound.high => {
            (first.low > bound.low).then_some(first.high - bound.low)
        }
        _ => None,
    }
}
