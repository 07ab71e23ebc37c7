//! The loops of a body, and how each comes to look at its session's flag.
//!
//! A loop that is entered at its label only, and to whose inside nothing goes back from further down, gets a counter and
//! polls when that is used up. Where one register takes the same step in every turn and ends the loop by a
//! test against a bound, that bound is cut short instead, which costs nothing in the turns themselves. Any
//! other branch back polls each time.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::poll::is_lead;
use crate::ast::{Instruction, Operand, Predicate, Statement};
use crate::facts::Facts;
use crate::limits::CHUNK_COST_MAX;
use crate::names::Class;
use crate::table;

/// What the turns of a loop without loops inside may cost together before it polls: enough that a poll does not
/// show.
const CHUNK_COST: u64 = 1 << 13;
/// Loops inside one another, of which any get counters.
const DEPTH_MAX: usize = 32;
/// What stands beside a branch back, at most: the tenant's test again, around the poll and to the label.
const BACK_COST: u64 = 4;

/// How a loop ends in time.
#[derive(Debug, Clone)]
pub(super) enum How<'a> {
    /// It polls in every turn.
    Polls,
    /// By itself: it is known to turn so often at most.
    Ends(u64),
    /// After so many turns.
    Counts(u64),
    /// After so many turns, when a register has taken so many steps.
    Steps {
        test: &'a Instruction,
        register: &'a str,
        /// What the test adds to it before it compares.
        offset: Option<&'a str>,
        step: &'a Operand,
        bound: &'a Operand,
        turns: u64,
    },
}

/// A loop.
#[derive(Debug, Clone)]
pub(super) struct Loop<'a> {
    /// Where its label stands, and where the last branch back to it.
    from: usize,
    to: usize,
    /// How many branches go back.
    backs: usize,
    /// Whether labels lie inside.
    labels: bool,
    /// Whether loops lie inside.
    nest: bool,
    /// Which branches back stand inside of loops that this one has inside: those poll.
    polling: Vec<usize>,
    pub(super) how: How<'a>,
    /// What all turns up to a poll cost.
    pub(super) cost: u64,
}

/// Of how many turns of a loop nothing has to be done, and what they may cost together.
const ENDS_COST_MAX: u64 = CHUNK_COST_MAX / 4;

/// The loops of a body, by label. Those of `begins` begin anew elsewhere, and not by themselves, whatever is known of
/// them.
pub(super) fn find<'a>(
    statements: &'a [Statement],
    zeroed: &[String],
    begins: &'a HashMap<String, String>,
) -> HashMap<&'a str, Loop<'a>> {
    let mut loops = collect(statements);
    let Shape { broken, polling } = shape(statements, &loops);
    for name in broken {
        if let Some(found) = loops.get_mut(name) {
            found.how = How::Polls;
        }
    }
    for (name, index) in polling {
        if let Some(found) = loops.get_mut(name) {
            found.polling.push(index);
        }
    }
    // Where something goes back, the way around its poll ends at a label.
    let goes_back = |index: &usize| {
        let target = statements.get(*index).and_then(target);
        target.and_then(|target| loops.get(target)).is_some_and(|found| found.from < *index)
    };
    let backs: BTreeSet<usize> = (0..statements.len()).filter(goes_back).collect();
    for found in loops.values_mut() {
        if let How::Counts(_) = found.how
            && backs.range(found.from..found.to).next().is_none()
            && found.polling.is_empty()
            && found.backs == 1
            && !found.labels
            && let Some(steps) = steps(statements.get(found.from + 1..=found.to).unwrap_or_default())
        {
            found.how = steps;
        }
    }
    let may_end = |label: &str, turns: u64| {
        loops.get(label).is_some_and(|found| {
            // What confines accesses is not there yet where it is found out what needs none.
            let own = |statement: &&Statement| matches!(statement, Statement::Instruction(found) if !is_lead(found));
            let body = statements.get(found.from..found.to).unwrap_or_default();
            let length = body.iter().filter(own).count() as u64;
            found.backs == 1 && !begins.contains_key(label) && turns.saturating_mul(length) <= ENDS_COST_MAX / 8
        })
    };
    for (label, turns) in ends(statements, zeroed, begins, may_end) {
        if let Some(found) = loops.get_mut(label) {
            found.how = How::Ends(turns);
        }
    }
    weigh(statements, &mut loops);
    loops
}

/// The number of a label of the confined form.
pub(super) fn number(statement: &Statement) -> Option<u64> {
    let Statement::Label(name, _) = statement else { return None };
    name.strip_prefix("$L")?.parse().ok()
}

/// The loops without others inside that have to count their turns and go back in one place: where the label stands, and the
/// branch back.
pub(super) fn counted(statements: &[Statement]) -> Vec<(usize, usize)> {
    let none = HashMap::new();
    let loops = find(statements, &[], &none);
    let plain = |found: &&Loop<'_>| {
        matches!(found.how, How::Counts(_)) && found.backs == 1 && !found.nest && found.polling.is_empty()
    };
    loops.values().filter(plain).map(|found| (found.from, found.to)).collect()
}

/// The loops that are known to end by themselves, and how often they turn at most.
fn ends<'a>(
    statements: &'a [Statement],
    zeroed: &'a [String],
    begins: &'a HashMap<String, String>,
    may_end: impl Fn(&str, u64) -> bool,
) -> HashMap<&'a str, u64> {
    let mut facts = Facts::of_versions(statements, begins);
    zeroed.iter().for_each(|name| facts.also_written(name));
    let mut ends = HashMap::new();
    let mut behind: HashSet<&str> = HashSet::new();
    let mut last: Option<(&str, usize)> = None;
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Label(name, _) => {
                facts.label(name, statements.get(index + 1..).unwrap_or_default());
                last = Some((name.as_str(), index));
                behind.insert(name);
            }
            Statement::Instruction(instruction) => {
                if let Some(target) = target(statement) {
                    if let Some((_, from)) = last.filter(|(name, _)| *name == target)
                        && let Some(body) = statements.get(from + 1..index)
                        && let Some(turns) = facts.turns(body, instruction)
                        && may_end(target, turns)
                    {
                        ends.insert(target, turns);
                    } else if behind.contains(target) {
                        // The way around the poll that comes here ends at a label.
                        last = None;
                    }
                }
                facts.learn(instruction);
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    ends
}

impl Loop<'_> {
    /// Whether a branch back, which stands there, polls each time.
    pub(super) fn polls(&self, index: usize) -> bool {
        matches!(self.how, How::Polls) || self.polling.contains(&index)
    }
}

/// The label that a statement branches to.
fn target(statement: &Statement) -> Option<&str> {
    let Statement::Instruction(instruction) = statement else { return None };
    table::target(table::check(instruction).ok()?, instruction)
}

fn collect(statements: &[Statement]) -> HashMap<&str, Loop<'_>> {
    let mut labels: HashMap<&str, (usize, usize)> = HashMap::new();
    let mut loops: HashMap<&str, Loop<'_>> = HashMap::new();
    for (index, statement) in statements.iter().enumerate() {
        if let Statement::Label(name, _) = statement {
            labels.insert(name, (index, labels.len()));
        }
        let Some(target) = target(statement) else { continue };
        let Some((from, number)) = labels.get(target).copied() else { continue };
        let found = loops.entry(target).or_insert(Loop {
            from,
            to: index,
            backs: 0,
            labels: false,
            nest: false,
            polling: Vec::new(),
            how: How::Counts(1),
            cost: 0,
        });
        found.to = index;
        found.backs += 1;
        found.labels = labels.len() > number + 1;
    }
    loops
}

/// What keeps loops from ending by a counter.
#[derive(Default)]
struct Shape<'a> {
    /// Loops that are entered elsewhere than at their label, or to whose inside something goes back from further down.
    broken: Vec<&'a str>,
    /// Branches back out of a loop inside.
    polling: Vec<(&'a str, usize)>,
}

fn shape<'a>(statements: &'a [Statement], loops: &HashMap<&'a str, Loop<'a>>) -> Shape<'a> {
    let mut shape = Shape::default();
    // The first branch to each label to come.
    let mut coming: HashMap<&str, usize> = HashMap::new();
    let mut open: Vec<(&str, &Loop<'_>)> = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        if let Statement::Label(name, _) = statement {
            open.retain(|(_, outer)| outer.to > index);
            let first = coming.get(name.as_str()).copied().unwrap_or(index);
            let to = loops.get(name.as_str()).map_or(index, |found| found.to);
            for (outer, found) in &open {
                if first < found.from || to > found.to {
                    shape.broken.push(*outer);
                }
            }
            if let Some(found) = loops.get(name.as_str()) {
                if open.len() == DEPTH_MAX {
                    return Shape { broken: loops.keys().copied().collect(), polling: Vec::new() };
                }
                open.push((name, found));
            }
        } else if let Some(target) = target(statement) {
            coming.entry(target).or_insert(index);
            if let Some(found) = loops.get(target).filter(|found| found.from < index)
                && open.iter().any(|(_, inner)| inner.from > found.from && inner.to > index)
            {
                shape.polling.push((target, index));
            }
        }
    }
    shape
}

/// How a loop without labels inside ends by steps: the statements behind its label, and the branch back.
fn steps(statements: &[Statement]) -> Option<How<'_>> {
    let (Statement::Instruction(back), inside) = statements.split_last()? else { return None };
    let Some(Predicate { register: predicate, negated: false }) = &back.predicate else { return None };
    let mut writes: HashMap<&str, (usize, usize)> = HashMap::new();
    for (index, statement) in inside.iter().enumerate() {
        let Statement::Instruction(instruction) = statement else { continue };
        let row = table::check(instruction).ok()?;
        table::registers(row, instruction, &mut |_| {}, &mut |name| {
            let known = writes.entry(name).or_insert((0, index));
            *known = (known.0 + 1, index);
        });
    }
    let at = |index: usize| match inside.get(index) {
        Some(Statement::Instruction(instruction)) if instruction.predicate.is_none() => Some(instruction),
        _ => None,
    };
    let (_, tested) = *writes.get(predicate.as_str())?;
    let test = at(tested).filter(|test| test.opcode == "setp")?;
    let [Operand::Register(_), Operand::Register(register), bound] = test.operands.as_slice() else {
        return None;
    };
    let is_word = |name: &str| matches!(Class::parse(name), Some((Class::Word, _)));
    let is_fixed = |operand: &Operand| match operand {
        Operand::Integer(_) => true,
        Operand::Register(name) => is_word(name) && !writes.contains_key(name.as_str()),
        _ => false,
    };
    let added = |register: &str, before: usize| {
        let (1, index) = *writes.get(register)? else { return None };
        let add = at(index).filter(|add| add.opcode == "add" && index < before)?;
        let plain = matches!(add.modifiers.as_slice(), [ty] if ty == "s32" || ty == "u32");
        plain.then_some((index, add.operands.get(1)?, add.operands.get(2)?))
    };
    let (stepped, from, step) = added(register, tested)?;
    // What is tested may be what is stepped and something fixed.
    let (register, offset, from, step) = match (from, step) {
        (Operand::Register(from), _) if from == register => (register, None, from, step),
        (Operand::Register(one), Operand::Register(other)) => {
            let (register, offset) =
                if writes.contains_key(one.as_str()) { (one, other) } else { (other, one) };
            let (_, from, step) = added(register, stepped)?;
            let Operand::Register(from) = from else { return None };
            (!writes.contains_key(offset.as_str()) && is_word(offset)).then_some(())?;
            (register, Some(offset.as_str()), from, step)
        }
        _ => return None,
    };
    let fits = from == register && is_word(register) && is_fixed(step) && is_fixed(bound);
    let modifiers: Vec<&str> = test.modifiers.iter().map(String::as_str).collect();
    let tests = match (modifiers.as_slice(), step) {
        (["lt", ..], _) if offset.is_some() => false,
        (["lt", "s32" | "u32"], Operand::Integer(step)) => *step != 0 && step.abs() < 1 << 30,
        (["lt", "s32" | "u32"], _) => true,
        (["ne", "s32" | "u32" | "b32"], Operand::Integer(step)) => {
            step.unsigned_abs().is_power_of_two() && step.abs() < 1 << 30
        }
        _ => false,
    };
    (fits && tests).then_some(How::Steps { test, register, offset, step, bound, turns: 1 })
}

/// Says how often each loop turns before it polls: so often that a poll does not show, and as seldom as it has to.
fn weigh(statements: &[Statement], loops: &mut HashMap<&str, Loop<'_>>) {
    let mut cost = 0_u64;
    // What lies before each label.
    let mut before: HashMap<&str, u64> = HashMap::new();
    let mut since_last: Vec<usize> = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        if let Statement::Label(name, _) = statement {
            before.insert(name, cost);
            continue;
        }
        let Statement::Instruction(instruction) = statement else { continue };
        let Ok(row) = table::check(instruction) else { continue };
        cost = cost.saturating_add(table::cost(row, instruction));
        let Some(target) = table::target(row, instruction) else { continue };
        let Some(found) = loops.get_mut(target).filter(|found| found.from < index) else { continue };
        cost = cost.saturating_add(BACK_COST);
        if found.to != index {
            continue;
        }
        found.nest = since_last.last().is_some_and(|last| *last > found.from);
        since_last.push(index);
        let once = (cost - before.get(target).copied().unwrap_or(0)).max(1);
        let most = if found.nest { CHUNK_COST_MAX } else { CHUNK_COST };
        // One turn may be as much by itself.
        if once > CHUNK_COST_MAX {
            found.how = How::Polls;
        }
        let all = (most / once).max(1);
        match &mut found.how {
            How::Polls => {}
            How::Ends(turns) => found.cost = once.saturating_mul(*turns),
            How::Counts(turns) => {
                *turns = all;
                found.cost = once.saturating_mul(all);
            }
            How::Steps { step, turns, .. } => {
                let step = match step {
                    Operand::Integer(step) => u64::try_from(step.unsigned_abs()).unwrap_or(u64::MAX).max(1),
                    _ => 1,
                };
                *turns = all.min(((1 << 30) / step).max(1));
                found.cost = once.saturating_mul(*turns);
            }
        }
        cost = cost.saturating_add(found.cost.saturating_sub(once));
    }
}
