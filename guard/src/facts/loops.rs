//! What is known of the turns of loops: how far their pointers have come in any, and how many there are.

use crate::maps::HashMap;

use super::counted::turns;
use super::edges::Passing;
use super::{Base, Bounding, CheckedPointer, Fact, Facts, Known as _, Most, Pointer, Stepping};
use crate::anchors::{self, Check};
use crate::ast::{Instruction, Operand, Predicate, Statement};
use crate::limits::CHUNK_COST_MAX;
use crate::names::{self, Class};
use crate::table::{self, Treatment};
use crate::values::number::{Number, Order, Sign, Width};

impl<'a> Facts<'a> {
    /// Begins the turns of a loop without labels inside, directly behind its label and a check before that. Answers how
    /// often it may turn for what is known of its pointers to hold, which is for others to see to; none where a pointer is
    /// not stepped by what is known to be little enough.
    pub(crate) fn turn(&mut self, check: &Check<'a>, body: &'a [Statement]) -> Option<Stepping<'a>> {
        let mut writes = Vec::new();
        let mut instructions = 0_u64;
        for statement in body {
            let Statement::Instruction(instruction) = statement else { continue };
            let row = table::row_of(instruction)?;
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
        // More turns than these cost more than loops may between two polls. In the first the loop has not gone back yet.
        let turns = CHUNK_COST_MAX / instructions.max(1) + 1;
        let backs = i128::from(turns - 1);
        for step in &check.steps {
            // A step that the loop itself writes is not what was checked.
            if writes.contains(&step.register) {
                return None;
            }
        }
        for step in &check.steps {
            let bound = i128::from(step.bound);
            let known = self.known.get(step.register).copied().and_then(Fact::number);
            let zeros = known.map_or(0, |known| known.zeros);
            let number = Number::between(-bound, bound - 1).with_zeros(zeros);
            self.passing.insert(step.register, Some(Fact::Number(number)));
        }
        let begin = self.checked;
        self.checked += check.anchors.len();
        let anchors = || {
            check.anchors.iter().zip(begin..).map(|(anchor, number)| {
                let pointer = CheckedPointer { number, writes: anchor.writes, align: anchor.align };
                (anchor.register, Base::Checked(pointer))
            })
        };
        let before = self.passing.clone();
        let start = |base| Fact::Pointer(Pointer::start(base));
        self.passing.extend(anchors().map(|(register, base)| (register, Some(start(base)))));
        let cut = self.edges.forget(true);
        self.go_through(body);
        // What this turn alone would leave is not what any turn leaves.
        self.unlearn(&written(body));
        self.edges.forget(cut);
        self.tests.clear();
        let mut turned = before;
        let mut steps = Vec::new();
        for (register, base) in anchors() {
            let end = self.of_register(register).and_then(Fact::pointer).filter(|end| end.base == base)?;
            let (low, high) = ((end.offset.low * backs).min(0), (end.offset.high * backs).max(0));
            let offset = Number::between(low, high).with_zeros(end.offset.zeros).fits()?;
            turned.insert(register, Some(Fact::Pointer(Pointer { base, offset })));
            steps.push((register, Fact::Pointer(Pointer::start(base)), end.offset));
        }
        self.passing = turned;
        Some(Stepping { turns, counter: None, steps })
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
            let word = matches!(Class::parse(name), Some((Class::Word, _)));
            self.entering(name).and_then(Fact::small).filter(|_| word)
        };
        let set = written(shape.sets);
        let turned = names.iter().filter(|name| !set.contains(name));
        let firsts: Vec<(&'a str, Number)> =
            turned.filter_map(|name| Some((*name, entering(name)?))).collect();
        // At first as if they were anywhere: where they are then, the loop's test says.
        let mut guesses: Vec<(&'a str, Number)> = firsts
            .iter()
            .map(|(name, first)| (*name, Number::between(0, ANYWHERE).with_zeros(first.zeros)))
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
                let ends: Option<Vec<Number>> =
                    backs.iter().map(|back| back.get(name).copied().flatten()?.number()).collect();
                ends.filter(|ends| ends.iter().all(|end| end.low >= 0))
            };
            if round == 0 {
                let guess = |(name, first): &(&'a str, Number)| {
                    let ends = back(name)?;
                    let low = ends.iter().map(|end| end.low).fold(first.low, i128::min);
                    let most = ends.iter().map(|end| end.high).filter(|high| *high < ANYWHERE / 2);
                    let high = most.fold(first.high, i128::max);
                    let zeros = ends.iter().map(|end| end.zeros).fold(first.zeros, u32::min);
                    Some((*name, Number::between(low, high).with_zeros(zeros)))
                };
                guesses = firsts.iter().filter_map(guess).collect();
                continue;
            }
            let mut same = true;
            guesses.retain_mut(|(name, guess)| {
                let Some(ends) = back(name) else { return false };
                let wide = ends.iter().fold(*guess, |wide, end| wide.or(*end));
                let wide = Number::between(wide.low, wide.high).with_zeros(wide.zeros);
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
        self.passing.extend(guesses.iter().map(|(name, guess)| (*name, Some(Fact::Number(*guess)))));
        self.settled = shape.turns;
    }

    /// What is known of registers on the ways back, if that is known before a turn; what was learned on them is known then.
    fn backs(
        &mut self,
        shape: &Shape<'a>,
        kept: &Passing<'a>,
        guesses: &[(&'a str, Number)],
    ) -> Vec<Passing<'a>> {
        let mut backs = Vec::new();
        self.passing.clone_from(kept);
        self.passing.extend(guesses.iter().map(|(name, guess)| (*name, Some(Fact::Number(*guess)))));
        self.tests.clear();
        self.go_through(shape.sets);
        // Control comes to the turns' label from their end too, where no test of before holds.
        self.tests.clear();
        let below = shape.below.and_then(|(register, bound, sign)| {
            Some((register, self.narrow(Some(bound), sign)?.high - 1, sign))
        });
        self.go_through(shape.body);
        if shape.turns.is_some() {
            let mut there = self.snapshot(guesses, shape.turn);
            if let Some((register, high, sign)) = below
                && let Some(Some(Fact::Number(number))) = there.get_mut(register)
                && (number.is_small(Width::WORD) || sign == Sign::Unsigned)
                && high < number.high
            {
                *number = Number::between(number.low, high).with_zeros(number.zeros);
            }
            backs.push(there);
            self.go_through(shape.after);
        }
        backs.push(self.snapshot(guesses, shape.back));
        backs
    }

    /// What is known here of some registers, where a branch with this predicate is taken.
    fn snapshot(&self, of: &[(&'a str, Number)], taken: Option<&Predicate>) -> Passing<'a> {
        let said = taken.map(|taken| self.said(&taken.register, !taken.negated)).unwrap_or_default();
        of.iter()
            .map(|(name, _)| (*name, said.get(name).copied().unwrap_or_else(|| self.of_register(name))))
            .collect()
    }

    /// How control comes back to a label: to a loop without labels inside, or to one that turns between polls.
    fn shape(&self, behind: &'a [Statement], label: &str) -> Option<Shape<'a>> {
        let back = |branch: Option<&'a Statement>| match branch {
            Some(Statement::Instruction(branch)) => Some(branch.predicate.as_ref()),
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
            // It says something to the assembler only.
            Statement::Directive(_) => false,
            Statement::Label(..) | Statement::Variable(_) | Statement::Block(..) => true,
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
            && turn.is_some_and(|taken| taken.register == *below && !taken.negated)
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
        let before = self.entering.insert(name, Some(Fact::Number(Number::between(0, most))));
        let turns = self.turns(label, behind);
        match before {
            Some(before) => self.entering.insert(name, before),
            None => self.entering.remove(name),
        };
        turns
    }

    /// Directly behind the label of such a loop: what its register is in any turn. Nothing else may go back to it than
    /// the branch that ends its body.
    pub(crate) fn turning(&mut self, behind: &'a [Statement], label: &str) -> Option<Stepping<'a>> {
        let body = anchors::turns(behind, label)?;
        let Some(Statement::Instruction(back)) = behind.get(body.len()) else { return None };
        let ending = self.ending(body, back).filter(|_| self.edges.ways(label).1 == 1)?;
        if ending.turns == 1 {
            // Nothing ever goes back.
            self.passing.clone_from(&self.entering);
        }
        let mut stepping =
            Stepping { turns: ending.turns, counter: Some(ending.register), steps: Vec::new() };
        if let Some(first) = self.entering(ending.register) {
            stepping.steps.push((ending.register, first, Number::exactly(ending.step)));
        }
        for (name, step) in ending.steps {
            let far = step * i128::from(ending.turns - 1);
            let Some(fact) = self.entering(name) else { continue };
            let stepped = |first: Number| {
                let (low, high) = (first.low + far.min(0), first.high + far.max(0));
                let most = first.most.plus(Most::constant(far.max(0))).unwrap_or(Most::constant(high));
                let zeros = first.zeros.min(Number::exactly(step).zeros);
                Number { low, high, most, zeros }
            };
            let fact = match fact {
                Fact::Number(number) => Fact::Number(stepped(number)),
                Fact::Pointer(Pointer { base, offset }) => {
                    Fact::Pointer(Pointer { base, offset: stepped(offset) })
                }
            };
            // What wraps around is not as far as that.
            let near = match (Class::parse(name), fact) {
                (Some((Class::Double, _)), _) => true,
                (_, Fact::Number(number)) => number.is_small(Width::WORD),
                (_, Fact::Pointer(Pointer { offset, .. })) => {
                    offset.low >= i32::MIN.into() && offset.high <= i32::MAX.into()
                }
            };
            if let Some(fact) = fact.fits().filter(|_| near) {
                self.passing.insert(name, Some(fact));
                if name != ending.register
                    && let Some(first) = self.entering(name)
                {
                    stepping.steps.push((name, first, Number::exactly(step)));
                }
            }
        }
        let Ending { register, low, high, zeros, .. } = ending;
        let known = Some(Number::between(low, high).with_zeros(zeros)).filter(|_| low >= 0);
        self.passing.insert(register, known.and_then(Number::fits).map(Fact::Number));
        Some(stepping)
    }

    fn ending<'b>(&self, body: &'b [Statement], back: &Instruction) -> Option<Ending<'b>> {
        let Some(Predicate { register: predicate, negated: false }) = &back.predicate else { return None };
        let [Operand::Symbol(label)] = back.operands.as_slice() else { return None };
        (back.opcode == "bra" && back.modifiers.is_empty()).then_some(())?;
        let writes = Writes::of(body, label)?;
        let once = |name: &str| writes.once(name);
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
        let entering = |name: &str| self.entering(name).and_then(Fact::small);
        let first = entering(from)?;
        let [compare, ty] = test.modifiers.as_slice() else { return None };
        let bound = match bound {
            Operand::Integer(value) => {
                let sign = Sign::of(ty).unwrap_or(Sign::Unsigned);
                Number::exactly(sign.immediate(*value, Width::WORD)?)
            }
            Operand::Register(name) if !writes.0.contains_key(name.as_str()) => entering(name)?,
            _ => return None,
        };
        // A step before the first turn is what the first test is of.
        let tested_first = if first_tested { first.minus(Number::exactly(*step)) } else { first };
        let (order, sign) = (Order::of(compare)?, Sign::of(ty));
        (sign.is_some() || ty == "b32").then_some(())?;
        let turns = turns(tested_first, *step, order, sign, bound, Width::WORD)?;
        let more = if first_tested { *step } else { 0 };
        let (low, high) = match turns {
            ..=1 => (first.low, first.high),
            _ => reached(first, *step, more, compare, bound),
        };
        let zeros = first.zeros.min(Number::exactly(*step).zeros).min(32);
        let steps = writes.steps();
        let turns = u64::try_from(turns.max(1)).ok()?;
        Some(Ending { turns, steps, register: from, step: *step, low, high, zeros })
    }
}

/// Where a loop writes each register: the body, and the places in it.
struct Writes<'b>(HashMap<&'b str, Vec<usize>>, &'b [Statement]);

impl<'b> Writes<'b> {
    /// None where control goes elsewhere than back to the label, or out.
    fn of(body: &'b [Statement], label: &str) -> Option<Self> {
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
        Some(Self(writes, body))
    }

    /// The only write of a register, where that is one without a predicate.
    fn once(&self, name: &str) -> Option<(usize, &'b Instruction)> {
        let [index] = self.0.get(name)?.as_slice() else { return None };
        match self.1.get(*index) {
            Some(Statement::Instruction(found)) if found.predicate.is_none() => Some((*index, found)),
            _ => None,
        }
    }

    /// The registers to which each turn adds a number, and that.
    fn steps(&self) -> Vec<(&'b str, i128)> {
        let step = |name: &&'b str| {
            let (_, add) = self.once(name).filter(|(_, add)| add.opcode == "add")?;
            let plain = matches!(add.words().as_slice(), ["s32" | "u32" | "s64" | "u64"]);
            match add.operands.as_slice() {
                [Operand::Register(to), Operand::Register(from), Operand::Integer(step)] => {
                    (plain && to == from).then_some((*name, *step))
                }
                _ => None,
            }
        };
        self.0.keys().filter_map(step).collect()
    }
}

/// Between what a register lies that is stepped in each turn. In every turn but the first, what it began as passed the test;
/// or what the turn before began as, which is `more` less.
fn reached(first: Number, step: i128, more: i128, compare: &str, bound: Number) -> (i128, i128) {
    match (step.is_positive(), compare) {
        (true, "ne") => (first.low, bound.low - step + more),
        (true, "lt") => (first.low, first.high.max(bound.high - 1 + more)),
        (true, _) => (first.low, first.high.max(bound.high + more)),
        (false, "ne") => (first.low.min(bound.low - step + more), first.high),
        (false, _) => (first.low.min(bound.low + more), first.high),
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
    /// There too: the predicate of the branch by which it goes back between polls; what stands behind.
    turn: Option<&'a Predicate>,
    after: &'a [Statement],
    /// The same of the way back to the label itself.
    back: Option<&'a Predicate>,
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
    step: i128,
    low: i128,
    high: i128,
    zeros: u32,
}
