//! The loops of a body, and how each comes to look at its session's flag.
//!
//! A loop that is entered at its label only, and to whose inside nothing goes back from further down, gets a counter and
//! polls when that is used up. Where one register takes the same step in every turn and ends the loop by a
//! test against a bound, that bound is cut short instead, which costs nothing in the turns themselves. Any
//! other branch back polls each time.

mod firsts;

pub(super) use firsts::Firsts;
use std::sync::LazyLock;

use crate::maps::{HashMap, HashSet};

use super::leads::is_lead;
use super::steps::{self, Steps};
use crate::ast::{Instruction, Operand, Statement};
use crate::facts::Facts;
use crate::limits::{CHUNK_COST_MAX, PATH_COST_MAX};
use crate::spent::Spent;
use crate::table;

/// What the turns of a loop without loops inside may cost together before it polls: enough that a poll does not
/// show.
const CHUNK_COST: u64 = 1 << 13;
/// Loops inside one another, of which any get counters.
const DEPTH_MAX: usize = 32;
/// Statements of a loop that may be written more than once, at most. Loops may overlap: without a bound, a text of many
/// that do would take a time that grows with the square of its length.
pub(super) const COPIED_MAX: usize = 2048;
/// Statements of a loop that the assembler may unroll, at most.
const UNROLLED_MAX: usize = 20;
/// What stands beside a branch back, at most: the tenant's test again, around the poll and to the label.
const BACK_COST: u64 = 4;
/// What sets a counter, at most.
const OPENING_COST: u64 = 9;

/// What the turns of a copy in front of a loop may cost together: the loop has so much less between polls, so that both
/// are as much as one.
const FIRST_COST: u64 = 1 << 11;
/// Such a copy turns so often at least.
const FIRST_TURNS_MIN: u64 = 16;

/// Of bodies without copies.
static NONE: LazyLock<Firsts> = LazyLock::new(Firsts::default);

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
    Steps(Steps<'a>),
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
    pub(super) cost: Spent,
}

/// What all turns of a loop may cost together of which nothing has to be done.
pub(super) const ENDS_COST_MAX: u64 = CHUNK_COST_MAX;
/// What turns may cost together with what their waits for the block take besides: of a loop of which nothing has to be done,
/// and of one that turns without a poll.
pub(super) const WAITS_COST_MAX: u64 = PATH_COST_MAX / 2;
/// What stands before an access, or an instruction for whole warps, at most.
const LEAD_COST: u64 = 8;

/// What statements cost with whatever confines them, be that there already or not.
pub(super) fn own_cost(body: &[Statement]) -> Spent {
    let cost = |statement: &Statement| match statement {
        Statement::Instruction(found) if !is_lead(found) => {
            table::row_of(found).map_or(Spent::both(u64::MAX), |row| {
                let accesses = found.operands.iter().any(|operand| matches!(operand, Operand::Address(_)));
                let lead = if accesses || table::is_for_warps(row) { 2 * LEAD_COST } else { 0 };
                Spent::in_loop(row, found).0.plus(Spent::both(lead))
            })
        }
        _ => Spent::default(),
    };
    body.iter().map(cost).fold(Spent::both(1), Spent::plus)
}

/// The loops of a body, by label. Those of `begins` begin anew elsewhere, and not by themselves, whatever is known of
/// them.
pub(super) fn find<'a>(
    statements: &'a [Statement],
    zeroed: &[String],
    begins: &'a HashMap<String, String>,
) -> HashMap<&'a str, Loop<'a>> {
    find_as(statements, zeroed, begins, &NONE, None).0
}

/// How the loops of a body end, by label, whether its accesses are confined or not.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// By themselves, after so many turns at most.
    turns: HashMap<String, u64>,
    /// By steps that do not wrap around, each of which is so much at most.
    steps: HashMap<String, i128>,
}

/// The same of a body in which some loops may have copies of their turns in front, and of which it may be known already how
/// they end; and how they do.
pub(super) fn find_as<'a>(
    statements: &'a [Statement],
    zeroed: &[String],
    begins: &'a HashMap<String, String>,
    firsts: &'a Firsts,
    given: Option<&Ends>,
) -> (HashMap<&'a str, Loop<'a>>, Ends) {
    let mut loops = collect(statements);
    if loops.is_empty() {
        return (loops, Ends::default());
    }
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
    for found in loops.values_mut() {
        if let How::Counts(_) = found.how
            && found.polling.is_empty()
            && found.backs == 1
            && let Some(steps) = steps::steps(statements.get(found.from + 1..=found.to).unwrap_or_default())
        {
            found.how = How::Steps(steps);
        }
    }
    let may_end = |label: &str, turns: u64| {
        loops.get(label).is_some_and(|found| {
            let body = statements.get(found.from..=found.to).unwrap_or_default();
            let cost = own_cost(body).times(turns);
            let fits = cost.look <= ENDS_COST_MAX && cost.poll <= WAITS_COST_MAX;
            found.backs == 1 && !begins.contains_key(label) && fits
        })
    };
    let mut all = Ends::default();
    let found = given.is_none().then(|| known(statements, zeroed, begins, firsts, may_end));
    for (label, found_loop) in &mut loops {
        let is_within = |steps: &mut Steps<'_>| match (&found, given) {
            (Some(found), _) => steps.is_within(&found.most),
            (None, given) => given.and_then(|given| given.steps.get(*label)).is_some_and(|most| {
                steps.most = *most;
                true
            }),
        };
        if let How::Steps(steps) = &mut found_loop.how {
            if is_within(steps) {
                all.steps.insert((*label).to_owned(), steps.most);
            } else {
                found_loop.how = How::Counts(1);
            }
        }
        let turns = match (&found, given) {
            (Some(found), _) => found.ends.get(label),
            (None, given) => given.and_then(|given| given.turns.get(*label)),
        };
        if let Some(turns) = turns.copied() {
            found_loop.how = How::Ends(turns);
            all.turns.insert((*label).to_owned(), turns);
        }
    }
    weigh(statements, firsts, &mut loops);
    (loops, all)
}

/// The number of a label of the confined form.
pub(super) fn number(statement: &Statement) -> Option<u64> {
    let Statement::Label(name, _) = statement else { return None };
    name.strip_prefix("$L")?.parse().ok()
}

/// Where a loop stands that goes back in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Its label.
    pub(super) from: usize,
    /// The branch back.
    pub(super) to: usize,
}

/// The loops that are entered at their label only and go back in one place.
pub(super) fn closed(statements: &[Statement]) -> Vec<Place> {
    let loops = collect(statements);
    let Shape { broken, polling } = shape(statements, &loops);
    let others: HashSet<&str> = broken.into_iter().chain(polling.into_iter().map(|(name, _)| name)).collect();
    let fits = |name: &str, found: &Loop<'_>| found.backs == 1 && !others.contains(name);
    let mut closed: Vec<Place> =
        loops.iter().filter(|(name, found)| fits(name, found)).map(|(_, found)| found.place()).collect();
    closed.sort_unstable();
    closed
}

/// The loops of those that are wanted, by where they stand, without others inside, that have to count their turns and go
/// back in one place.
pub(super) fn counted(statements: &[Statement], wanted: impl Fn(Place) -> bool) -> Vec<Place> {
    let none = HashMap::default();
    let wanted = |found: &Loop<'_>| found.backs == 1 && found.is_short() && wanted(found.place());
    if !collect(statements).values().any(wanted) {
        return Vec::new();
    }
    let loops = find(statements, &[], &none);
    let plain = |found: &&Loop<'_>| {
        matches!(found.how, How::Counts(_)) && wanted(found) && !found.nest && found.polling.is_empty()
    };
    let mut found: Vec<_> = loops.values().filter(plain).map(Loop::place).collect();
    found.sort_unstable();
    found
}

/// The loops of those that are wanted, by where they stand, without others inside, that end by steps, go back
/// in one place and begin anew at their own label: in order and apart.
pub(super) fn innermost(
    statements: &[Statement],
    zeroed: &[String],
    begins: &HashMap<String, String>,
    given: Option<&Ends>,
    wanted: impl Fn(Place) -> bool,
) -> Vec<Place> {
    let once = |found: &Loop<'_>| {
        let tests = |back: &Instruction| back.predicate.is_some();
        let steps = || steps::steps(statements.get(found.from + 1..=found.to).unwrap_or_default());
        matches!(statements.get(found.to), Some(Statement::Instruction(back)) if tests(back))
            && found.backs == 1
            && found.is_short()
            && wanted(found.place())
            && steps().is_some()
    };
    let collected = collect(statements);
    if !collected.iter().any(|(name, found)| !begins.contains_key(*name) && once(found)) {
        return Vec::new();
    }
    let (loops, _) = find_as(statements, zeroed, begins, &NONE, given);
    let counts = |(name, found): &(&&str, &Loop<'_>)| {
        let short =
            |steps: &Steps<'_>| steps.turns.saturating_mul(FIRST_COST) >= FIRST_TURNS_MIN * CHUNK_COST;
        matches!(&found.how, How::Steps(steps) if short(steps))
            && !(found.nest || begins.contains_key(**name))
            && found.polling.is_empty()
            && once(found)
    };
    let mut found: Vec<_> = loops.iter().filter(counts).map(|(_, found)| found.place()).collect();
    found.sort_unstable();
    found
}

/// What is known of a body whose loops are looked at.
struct Known<'a> {
    /// The loops that end by themselves, and how often they turn at most.
    ends: HashMap<&'a str, u64>,
    /// The registers that are written once and are from 1 on, and what they are at most.
    most: HashMap<&'a str, i128>,
}

fn known<'a>(
    statements: &'a [Statement],
    zeroed: &'a [String],
    begins: &'a HashMap<String, String>,
    firsts: &'a Firsts,
    may_end: impl Fn(&str, u64) -> bool,
) -> Known<'a> {
    let mut facts = Facts::of_versions(statements, begins);
    zeroed.iter().for_each(|name| facts.also_written(name));
    let mut ends = HashMap::default();
    // The last copy whose label has come.
    let mut copy = None;
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Label(name, _) => {
                if firsts.has(name) {
                    facts.label_of_part(name);
                    copy = firsts.is_copy(name).then_some(name.as_str());
                    continue;
                }
                let behind = statements.get(index + 1..).unwrap_or_default();
                facts.label(name, behind);
                let Some(turns) = facts.turns(name, behind).filter(|turns| may_end(name, *turns)) else {
                    continue;
                };
                ends.insert(name.as_str(), turns);
                facts.turning(behind, name);
            }
            Statement::Instruction(_) if firsts.goes_back(copy, statement) => copy = None,
            Statement::Instruction(instruction) => facts.learn(instruction),
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    Known { ends, most: facts.at_least_one() }
}

impl Loop<'_> {
    fn place(&self) -> Place {
        Place { from: self.from, to: self.to }
    }

    /// Whether it may be written more than once.
    fn is_short(&self) -> bool {
        self.to - self.from <= COPIED_MAX
    }

    /// Whether the assembler may unroll it: it finds how often the loop turns, and the turns are so short that what
    /// they end with takes as long as what they do. Longer ones only take more registers.
    pub(super) fn is_unrolled(&self) -> bool {
        let short = !self.labels && !self.nest && self.to - self.from <= UNROLLED_MAX;
        short && matches!(self.how, How::Steps(_))
    }

    fn has_counter(&self) -> bool {
        matches!(self.how, How::Counts(_) | How::Steps(_))
    }

    /// Whether it is known to end by itself.
    pub(super) fn ends(&self) -> bool {
        matches!(self.how, How::Ends(_))
    }

    /// Whether a branch back, which stands there, polls each time.
    pub(super) fn polls(&self, index: usize) -> bool {
        matches!(self.how, How::Polls) || self.polling.contains(&index)
    }
}

/// The label that a statement branches to.
fn target(statement: &Statement) -> Option<&str> {
    let Statement::Instruction(instruction) = statement else { return None };
    // Of most that is enough to say that they go nowhere.
    matches!(instruction.operands.first(), Some(Operand::Symbol(_))).then_some(())?;
    table::target(table::row_of(instruction)?, instruction)
}

fn collect(statements: &[Statement]) -> HashMap<&str, Loop<'_>> {
    let mut labels: HashMap<&str, (usize, usize)> = HashMap::default();
    let mut loops: HashMap<&str, Loop<'_>> = HashMap::default();
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
            cost: Spent::default(),
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
    let mut coming: HashMap<&str, usize> = HashMap::default();
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

/// Says how often each loop turns before it polls: so often that a poll does not show, and as seldom as it has to.
fn weigh(statements: &[Statement], firsts: &Firsts, loops: &mut HashMap<&str, Loop<'_>>) {
    // What statements so far spend at most, and how much less is likely: turns are chosen by what is likely.
    let (mut cost, mut less) = (Spent::default(), 0);
    // What lies before each label.
    let mut before: HashMap<&str, (Spent, u64)> = HashMap::default();
    let mut since_last: Vec<usize> = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        if let Statement::Label(name, _) = statement {
            if loops.get(name.as_str()).is_some_and(Loop::has_counter) {
                cost = cost.plus(Spent::both(OPENING_COST));
            }
            before.insert(name, (cost, less));
            continue;
        }
        let Statement::Instruction(instruction) = statement else { continue };
        let Some(row) = table::row_of(instruction) else { continue };
        let (most, unlikely) = Spent::in_loop(row, instruction);
        cost = cost.plus(most);
        less += unlikely;
        let Some(target) = table::target(row, instruction) else { continue };
        let Some(found) = loops.get_mut(target).filter(|found| found.from < index) else { continue };
        cost = cost.plus(Spent::both(BACK_COST));
        if found.to != index {
            continue;
        }
        found.nest = since_last.last().is_some_and(|last| *last > found.from);
        since_last.push(index);
        let (cost_before, less_before) = before.get(target).copied().unwrap_or_default();
        let once = cost.minus(cost_before).max(Spent::both(1));
        let likely = once.minus(Spent::both(less - less_before)).max(Spent::both(1));
        let most = if found.nest { CHUNK_COST_MAX } else { firsts.chunk(target) };
        // One turn may be as much by itself.
        if once.look > CHUNK_COST_MAX || once.poll > WAITS_COST_MAX {
            found.how = How::Polls;
        }
        let all = (most / likely.look).min(WAITS_COST_MAX / likely.poll).max(1);
        match &mut found.how {
            How::Polls => {}
            How::Ends(turns) => found.cost = once.times(*turns),
            How::Counts(turns) => {
                *turns = all;
                found.cost = once.times(all);
            }
            How::Steps(steps) => {
                let more = steps.more();
                // What may turn once more than it is counted cannot be counted to less than that.
                if all > more {
                    steps.turns = (all - more).min(steps.turns_max());
                    found.cost = once.times(steps.turns + more);
                } else {
                    found.how = How::Counts(all);
                    found.cost = once.times(all);
                }
            }
        }
        cost = cost.plus(found.cost.minus(once));
    }
}
