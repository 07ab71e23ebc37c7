//! What is known of the turns of loops: how far their pointers have come in any, and how many there are.

use crate::maps::HashMap;

use super::edges::Passing;
use super::{Base, Bounding, Fact, Facts, Most, Sign, Window};
use crate::anchors::{self, Check};
use crate::ast::{Instruction, Operand, Predicate, Statement};
use crate::limits::CHUNK_COST_MAX;
use crate::names::{self, Class};
use crate::table::{self, Treatment};

impl<'a> Facts<'a> {
    /// Begins the turns of a loop without labels inside, directly behind its label and a check before that: at most
    /// [`CHUNK_COST_MAX`] instructions are gone through in all its turns. False where a pointer is not stepped by
    /// what is known to be little enough.
    pub(crate) fn turn(&mut self, check: &Check<'a>, body: &'a [Statement]) -> bool {
        let mut writes = Vec::new();
        let mut instructions = 0_u64;
        for statement in body {
            let Statement::Instruction(instruction) = statement else { continue };
            let Some(row) = table::row_of(instruction) else { return false };
            let (mut reads_own, mut writes_own) = (false, false);
            let mut read = |name| reads_own |= names::is_reserved(name);
            table::registers(row, instruction, &mut read, &mut |name| {
                writes_own |= names::is_reserved(name);
                writes.push(name);
            });
            // The guard's own do not count among what a turn costs, and what accesses go through may be that.
            instructions += u64::from(!(reads_own || writes_own) && row.memory.is_empty());
        }
        for name in &writes {
            self.passing.entry(name).or_insert(None);
        }
        // In the first turn the loop has not gone back yet.
        let backs = i128::from(CHUNK_COST_MAX / instructions.max(1));
        for step in &check.steps {
            // A step that the loop itself writes is not what was checked.
            if writes.contains(&step.register) {
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
        let cut = self.edges.forget(true);
        self.go_through(body);
        // What this turn alone would leave is not what any turn leaves.
        self.unlearn(&written(body));
        self.edges.forget(cut);
        self.tests.clear();
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

    fn go_through(&mut self, statements: &'a [Statement]) {
        self.bounding = Bounding::Nothing;
        for statement in statements {
            if let Statement::Instruction(instruction) = statement {
                self.learn(instruction);
            }
        }
        self.bounding = Bounding::Nothing;
    }

    /// Forgets what was learned of registers that one instruction writes, where it is one of these that were gone through.
    fn unlearn(&mut self, written: &[&'a str]) {
        for name in written.iter().copied() {
            self.known.remove(name);
        }
    }

    /// At the label of a loop without labels inside, of whose registers that a turn does not write all is known: of
    /// others that is known which holds before the first turn and, if it does before any, behind that.
    pub(super) fn repeats(&mut self, behind: &'a [Statement], label: &str) {
        let Some(shape) = self.shape(behind, label) else { return };
        let parts = [shape.sets, shape.body, shape.after];
        let names: Vec<&str> = parts.iter().flat_map(|part| written(part)).collect();
        let kept = self.passing.clone();
        let entering = |name: &str| {
            let fact = self.entering.get(name).copied().unwrap_or_else(|| self.known.get(name).copied())?;
            let small = fact.base.is_none() && fact.low >= 0 && fact.high <= i32::MAX.into();
            (small && matches!(Class::parse(name), Some((Class::Word, _)))).then_some(fact)
        };
        let set = written(shape.sets);
        let turned = names.iter().filter(|name| !set.contains(name));
        let firsts: Vec<(&'a str, Fact<'a>)> =
            turned.filter_map(|name| Some((*name, entering(name)?))).collect();
        // At first as if they were anywhere: where they are then, the loop's test says.
        let mut guesses: Vec<(&'a str, Fact<'a>)> = firsts
            .iter()
            .map(|(name, first)| (*name, Fact { zeros: first.zeros, ..Fact::number(0, ANYWHERE) }))
            .collect();
        let cut = self.edges.forget(true);
        for round in 0..ROUNDS_MAX {
            if guesses.is_empty() {
                self.unlearn(&names);
                break;
            }
            let backs = self.backs(&shape, &kept, &guesses);
            self.unlearn(&names);
            let before = guesses.len();
            let back = |name: &str| {
                let ends: Option<Vec<Fact<'a>>> =
                    backs.iter().map(|back| back.get(name).copied().flatten()).collect();
                ends.filter(|ends| ends.iter().all(|end| end.base.is_none() && end.low >= 0))
            };
            if round == 0 {
                let guess = |(name, first): &(&'a str, Fact<'a>)| {
                    let ends = back(name)?;
                    let low = ends.iter().map(|end| end.low).fold(first.low, i128::min);
                    let most = ends.iter().map(|end| end.high).filter(|high| *high < ANYWHERE / 2);
                    let high = most.fold(first.high, i128::max);
                    let zeros = ends.iter().map(|end| end.zeros).fold(first.zeros, u32::min);
                    Some((*name, Fact { zeros, ..Fact::number(low, high) }))
                };
                guesses = firsts.iter().filter_map(guess).collect();
                continue;
            }
            let mut same = true;
            guesses.retain_mut(|(name, guess)| {
                let Some(ends) = back(name) else { return false };
                let wide = ends.iter().try_fold(*guess, |wide, end| wide.or(*end));
                let Some(wide) = wide else { return false };
                let wide = Fact { zeros: wide.zeros, ..Fact::number(wide.low, wide.high) };
                let holds = wide == *guess;
                same &= holds;
                *guess = wide;
                holds || round < WIDENED
            });
            if same && guesses.len() == before {
                break;
            }
            if round + 1 == ROUNDS_MAX {
                guesses.clear();
            }
        }
        self.edges.forget(cut);
        self.tests.clear();
        self.passing = kept;
        self.passing.extend(guesses.iter().map(|(name, guess)| (*name, Some(*guess))));
        self.settled = shape.turns;
    }

    /// What is known of registers on the ways back, if that is known before a turn; what was learned on them is known then.
    fn backs(
        &mut self,
        shape: &Shape<'a>,
        kept: &Passing<'a>,
        guesses: &[(&'a str, Fact<'a>)],
    ) -> Vec<Passing<'a>> {
        let mut backs = Vec::new();
        self.passing.clone_from(kept);
        self.passing.extend(guesses.iter().map(|(name, guess)| (*name, Some(*guess))));
        self.tests.clear();
        self.go_through(shape.sets);
        let below = shape.below.and_then(|(register, bound, sign)| {
            Some((register, self.narrow(Some(bound), sign)?.high - 1, sign))
        });
        self.go_through(shape.body);
        if shape.turns.is_some() {
            let mut there = self.snapshot(guesses, shape.turn);
            if let Some((register, high, sign)) = below
                && let Some(Some(fact)) = there.get_mut(register)
                && (fact.high <= i32::MAX.into() || sign == Sign::Unsigned)
                && high < fact.high
            {
                *fact = Fact { zeros: fact.zeros, ..Fact::number(fact.low, high) };
            }
            backs.push(there);
            self.go_through(shape.after);
        }
        backs.push(self.snapshot(guesses, shape.back));
        backs
    }

    /// What is known here of some registers, where a predicate holds or does not.
    fn snapshot(&self, of: &[(&'a str, Fact<'a>)], taken: Option<(&str, bool)>) -> Passing<'a> {
        let said = taken.map(|(predicate, holds)| self.said(predicate, holds)).unwrap_or_default();
        of.iter()
            .map(|(name, _)| (*name, said.get(name).copied().unwrap_or_else(|| self.of_register(name))))
            .collect()
    }

    /// How control comes back to a label: to a loop without labels inside, or to one that turns between polls.
    fn shape(&self, behind: &'a [Statement], label: &str) -> Option<Shape<'a>> {
        let back = |branch: Option<&'a Statement>| match branch {
            Some(Statement::Instruction(branch)) => {
                Some(branch.predicate.as_ref().map(|test| (test.register.as_str(), !test.negated)))
            }
            _ => None,
        };
        if let Some(body) = anchors::turns(behind, label) {
            let back = back(behind.get(body.len()))?;
            return Some(Shape { sets: &[], turns: None, turn: None, after: &[], body, back, below: None });
        }
        let inner = behind.iter().position(|statement| matches!(statement, Statement::Label(..)))?;
        let (sets, rest) = behind.split_at_checked(inner)?;
        let (Statement::Label(turns, _), rest) = rest.split_first()? else { return None };
        let goes = |statement: &Statement| match statement {
            Statement::Instruction(found) => found.opcode == "bra",
            _ => true,
        };
        if sets.iter().any(goes) || self.edges.ways(turns) != (0, 1) {
            return None;
        }
        let body = anchors::turns(rest, turns)?;
        // What is known of registers that are set before the turns is known in those.
        let set = written(sets);
        let known = |name: &&str| Class::parse(name).is_some() && set.contains(name);
        if written(body).iter().any(known) {
            return None;
        }
        let turn = back(rest.get(body.len()))?;
        let (_, rest) = rest.split_at_checked(body.len() + 1)?;
        let after = anchors::turns(rest, label)?;
        let back = back(rest.get(after.len()))?;
        let mut shape = Shape { sets, turns: Some(turns), turn, after, body, back, below: None };
        if let (Some(Statement::Instruction(least)), Some(Statement::Instruction(test))) =
            (sets.last(), body.last())
            && let (None, "min", [Operand::Register(counter), _, bound]) =
                (&least.predicate, least.opcode.as_str(), least.operands.as_slice())
            && let (
                None,
                "setp",
                [Operand::Register(below), Operand::Register(tested), Operand::Register(to)],
            ) = (&test.predicate, test.opcode.as_str(), test.operands.as_slice())
            && let ([of], ["lt", tested_as]) = (least.words().as_slice(), test.words().as_slice())
            && counter == to
            && of == tested_as
            && turn == Some((below, true))
            && !written(body).contains(&counter.as_str())
        {
            shape.below = Some((tested, bound, Sign::of(of)?));
        }
        Some(shape)
    }

    /// How often a loop turns at most, which control has run on into and into nothing else of which goes: from behind its
    /// label, the last one, to the branch back. What ends it is a register that takes the same step in
    /// every turn, from and to what is known.
    pub(crate) fn turns(&self, label: &str, behind: &[Statement]) -> Option<u64> {
        let body = anchors::turns(behind, label)?;
        let Some(Statement::Instruction(back)) = behind.get(body.len()) else { return None };
        self.ending(body, back).map(|ending| ending.turns)
    }

    /// The same, were a register that it does not write from 0 to this.
    pub(crate) fn turns_if(
        &mut self,
        label: &str,
        behind: &[Statement],
        name: &'a str,
        most: i128,
    ) -> Option<u64> {
        let before = self.entering.insert(name, Some(Fact::number(0, most)));
        let turns = self.turns(label, behind);
        match before {
            Some(before) => self.entering.insert(name, before),
            None => self.entering.remove(name),
        };
        turns
    }

    /// Directly behind the label of such a loop: what its register is in any turn. Nothing else may go back to it than
    /// the branch that ends its body.
    pub(crate) fn turning(&mut self, behind: &'a [Statement], label: &str) {
        let Some(body) = anchors::turns(behind, label) else { return };
        let Some(Statement::Instruction(back)) = behind.get(body.len()) else { return };
        let Some(ending) = self.ending(body, back).filter(|_| self.edges.ways(label).1 == 1) else { return };
        if ending.turns == 1 {
            // Nothing ever goes back.
            self.passing.clone_from(&self.entering);
            return;
        }
        for (name, step) in ending.steps {
            let far = step * i128::from(ending.turns - 1);
            let entering = self.entering.get(name).copied().unwrap_or_else(|| self.known.get(name).copied());
            let Some(first) = entering else { continue };
            let (low, high) = (first.low + far.min(0), first.high + far.max(0));
            let most = first.most.plus(Most::constant(far.max(0))).unwrap_or(Most::constant(high));
            let zeros = first.zeros.min(Fact::exactly(step).zeros);
            let far = match (Class::parse(name), first.base) {
                (Some((Class::Double, _)), _) => true,
                (_, None) => low >= 0 && high <= i32::MAX.into(),
                (_, Some(_)) => low >= i32::MIN.into() && high <= i32::MAX.into(),
            };
            if let Some(fact) = (Fact { base: first.base, low, high, most, zeros }).fits().filter(|_| far) {
                self.passing.insert(name, Some(fact));
            }
        }
        let Ending { register, low, high, zeros, .. } = ending;
        let known = Some(Fact { zeros, ..Fact::number(low, high) }).filter(|_| low >= 0);
        self.passing.insert(register, known.and_then(Fact::fits));
    }

    fn ending<'b>(&self, body: &'b [Statement], back: &Instruction) -> Option<Ending<'b>> {
        let Some(Predicate { register: predicate, negated: false }) = &back.predicate else { return None };
        let [Operand::Symbol(label)] = back.operands.as_slice() else { return None };
        (back.opcode == "bra" && back.modifiers.is_empty()).then_some(())?;
        let mut writes: HashMap<&str, Vec<usize>> = HashMap::default();
        for (index, statement) in body.iter().enumerate() {
            let Statement::Instruction(instruction) = statement else { continue };
            let row = table::row_of(instruction)?;
            // Whoever leaves turns no more.
            let leaves = table::target(row, instruction).is_some_and(|target| target != label);
            if matches!(row.treatment, Treatment::Gate) || row.treatment == Treatment::Branch && !leaves {
                return None;
            }
            let mut write = |name| writes.entry(name).or_default().push(index);
            table::written(row, instruction, &mut write);
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
        let (written, next) = once(tested).filter(|(_, next)| is_word(next))?;
        // What is tested may be what a turn began with, which goes on behind the test; or it is the sum already, and that
        // in a register of its own, from which the next turn has it.
        let moves = next.opcode == "mov";
        let first_tested = moves || written > at;
        let (stepped, add) = match next.operands.get(1) {
            Some(Operand::Register(sum)) if moves => once(sum)?,
            _ => (written, next),
        };
        let (Some(Operand::Register(from)), Some(Operand::Integer(step))) =
            (add.operands.get(1), add.operands.get(2))
        else {
            return None;
        };
        (add.opcode == "add" && is_word(add) && stepped <= written).then_some(())?;
        if first_tested {
            (from == tested && at < written).then_some(())?;
        } else if from != tested {
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
        // A step before the first turn is what the first test is of.
        let tested_first = if first_tested { first.minus(Fact::exactly(*step))? } else { first };
        let turns = count(tested_first, *step, (compare, ty), bound)?;
        // In every turn but the first, what it began as passed the test; or what the turn before began as.
        let more = if first_tested { *step } else { 0 };
        let (low, high) = match (step.is_positive(), compare.as_str()) {
            _ if turns <= 1 => (first.low, first.high),
            (true, "ne") => (first.low, bound.low - step + more),
            (true, "lt") => (first.low, first.high.max(bound.high - 1 + more)),
            (true, _) => (first.low, first.high.max(bound.high + more)),
            (false, _) => (first.low.min(bound.low + more), first.high),
        };
        let zeros = first.zeros.min(Fact::exactly(*step).zeros).min(32);
        let steps = writes.keys().filter_map(|name| {
            let (_, add) = once(name).filter(|(_, add)| add.opcode == "add")?;
            let plain = matches!(add.words().as_slice(), ["s32" | "u32" | "s64" | "u64"]);
            match add.operands.as_slice() {
                [Operand::Register(to), Operand::Register(from), Operand::Integer(step)] => {
                    (plain && to == from).then_some((*name, *step))
                }
                _ => None,
            }
        });
        let steps = steps.collect();
        let turns = u64::try_from(turns.max(1)).ok()?;
        Some(Ending { turns, steps, register: from, low, high, zeros })
    }
}

/// What a register may be before a turn of which nothing else is known yet.
const ANYWHERE: i128 = 1 << 30;
/// How often what is guessed of a loop's registers is looked at again; and how often it may be more than before.
const ROUNDS_MAX: usize = 6;
const WIDENED: usize = 3;

/// How control comes back to the label of a loop.
struct Shape<'a> {
    /// Where it turns between polls: what stands before its turns, and their label.
    sets: &'a [Statement],
    turns: Option<&'a str>,
    body: &'a [Statement],
    /// There too: the predicate it goes back by between polls, and whether that holds then; what stands behind.
    turn: Option<(&'a str, bool)>,
    after: &'a [Statement],
    /// The same of the way back to the label itself.
    back: Option<(&'a str, bool)>,
    /// Between polls: a register that is less than a counter then that is no more than this.
    below: Option<(&'a str, &'a Operand, Sign)>,
}

/// The registers that statements write.
fn written(statements: &[Statement]) -> Vec<&str> {
    let mut names = Vec::new();
    for statement in statements {
        let Statement::Instruction(instruction) = statement else { continue };
        let Some(row) = table::row_of(instruction) else { continue };
        table::written(row, instruction, &mut |name| names.push(name));
    }
    names
}

/// A loop that ends by itself.
struct Ending<'a> {
    turns: u64,
    /// What every turn adds to registers, once.
    steps: Vec<(&'a str, i128)>,
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
    // Below zero is less than anything that is counted up, where it is meant so.
    let below = signed && step > 0 && matches!(compare, "lt" | "le");
    let from_zero = bound.low >= 0 || below && bound.low >= i32::MIN.into();
    let room = from_zero && bound.high + step.abs() < most && first.high + step < most;
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
