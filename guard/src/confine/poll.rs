//! Where threads look at their session's flag, so that a kernel that runs on can be ended.
//!
//! Every multiprocessor has a word in memory that the session's stores do not reach; negative where threads are to
//! end. A thread loads it at entry, and *looks* at what it loaded before the first store to global memory or
//! after [`UNLOOKED_COST_MAX`]: late, so that what comes before hides the load. Loops *poll*, which is to load it again and
//! look at once: each after so many turns ([`turns`]), where they go back. A short fast version without loops does
//! neither: its launches are bounded.

mod forms;

use crate::maps::{HashMap, HashSet};
pub(super) use forms::{begins, start};
use forms::{closing, look, nounroll, opening};

use super::leads::is_lead;
use super::lines::{instruction, plain};
use super::turns::{self, Ends, Firsts, How, Loop, number};
use crate::ast::{Instruction, Operand, Predicate, Span, Statement};
use crate::limits::{PATH_COST_MAX, SHORT_COST_MAX, UNLOOKED_COST_MAX};
use crate::names;
use crate::spent::{Gathered, Spent};
use crate::sums::Sums;
use crate::table;

/// Which text of an entry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// Nothing is taken to be proven.
    Checked,
    /// The fast version.
    Proven,
}

/// A body that looks at the flag as it has to.
pub(super) struct Looking {
    pub(super) statements: Vec<Statement>,
    /// Whether the prologue loads the flag.
    pub(super) starts: bool,
    /// How many counters of turns there are.
    pub(super) counters: u32,
    /// How loops end.
    pub(super) ends: Ends,
}

/// Puts polls and looks into a body that is confined and has no prologue yet.
/// Loops in versions, by the label of each, begin anew at another: that of both. Others have copies of their turns in front.
/// It may be known already how loops end.
pub(super) fn insert(
    statements: &[Statement],
    variant: Variant,
    copies: bool,
    begins: &HashMap<String, String>,
    firsts: &Firsts,
    given: Option<&Ends>,
) -> Looking {
    let (loops, ends) = turns::find_as(statements, &[], begins, firsts, given);
    let gathered = Gathered::of(statements);
    let end = loops.values().all(|found| matches!(found.how, How::Ends(_)));
    if variant == Variant::Proven && end && path_cost(statements, &loops, gathered) <= SHORT_COST_MAX {
        return Looking { statements: statements.to_vec(), starts: false, counters: 0, ends };
    }
    let mut pass = Pass {
        both: begins.values().map(String::as_str).collect(),
        begins,
        firsts,
        goes_on: false,
        loops,
        out: Vec::with_capacity(statements.len()),
        labels: statements.iter().filter_map(number).max().map_or(0, |most| most + 1),
        turning: HashMap::default(),
        behind: HashSet::default(),
        path: Path::ENTRY,
        joins: HashMap::default(),
        left: Vec::new(),
        added: Sums::default(),
        lead: 0,
        starts: false,
        copies,
        gathered,
    };
    for (index, statement) in statements.iter().enumerate() {
        pass.statement(statement, index);
    }
    let counters = u32::try_from(pass.added.len()).unwrap_or(u32::MAX);
    Looking { statements: pass.out, starts: pass.starts, counters, ends }
}

/// What is done on the longest path through a body whose loops end by themselves.
fn path_cost(statements: &[Statement], loops: &HashMap<&str, Loop<'_>>, mut gathered: Gathered) -> u64 {
    let (mut since, mut most) = (0_u64, 0);
    let mut joins: HashMap<&str, u64> = HashMap::default();
    let mut left: Vec<&str> = Vec::new();
    for statement in statements {
        match statement {
            Statement::Label(name, _) => {
                gathered.label();
                since = since.max(joins.remove(name.as_str()).unwrap_or(0));
                left.clear();
            }
            Statement::Instruction(instruction) => {
                let Some(row) = table::row_of(instruction) else { continue };
                since = since.saturating_add(gathered.cost(row, instruction));
                let target = table::target(row, instruction);
                if let Some(found) = target.and_then(|target| loops.get(target)) {
                    since = since.saturating_add(found.cost.look);
                    // Whoever left may have turned as often.
                    for label in left.drain(..) {
                        if let Some(join) = joins.get_mut(label) {
                            *join = join.saturating_add(found.cost.look);
                            most = most.max(*join);
                        }
                    }
                }
                most = most.max(since);
                if let Some(target) = target {
                    let join = joins.entry(target).or_default();
                    *join = (*join).max(since);
                    left.push(target);
                }
                if table::ends_path(row, instruction) {
                    since = 0;
                }
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    most
}

/// What was done on the longest of the paths to a place: since a poll or entry, and since entry where none has looked.
#[derive(Debug, Clone, Copy)]
struct Path {
    since: u64,
    unlooked: Option<u64>,
}

impl Path {
    const ENTRY: Path = Path { since: 0, unlooked: Some(0) };
    const NONE: Path = Path { since: 0, unlooked: None };

    fn meet(self, other: Path) -> Path {
        Path { since: self.since.max(other.since), unlooked: self.unlooked.max(other.unlooked) }
    }

    fn plus(self, cost: Spent) -> Path {
        let unlooked = self.unlooked.map(|before| before.saturating_add(cost.look));
        Path { since: self.since.saturating_add(cost.poll), unlooked }
    }

    fn look(self) -> Path {
        Path { since: self.since.max(self.unlooked.unwrap_or(0)), unlooked: None }
    }
}

/// The path of branches to a label to come.
#[derive(Clone, Copy)]
struct Join {
    path: Path,
    /// How many loops there were then, and what their further turns had cost.
    loops: usize,
    added: u64,
}

/// A loop that has begun: where it turns, and its counter.
struct Turning {
    label: String,
    counter: String,
    number: usize,
}

struct Pass<'a> {
    loops: HashMap<&'a str, Loop<'a>>,
    begins: &'a HashMap<String, String>,
    firsts: &'a Firsts,
    /// Whether a copy of a loop's turns has just been left: the branch that stands here, for whoever is done, has been written.
    goes_on: bool,
    /// The labels of both versions of loops.
    both: HashSet<&'a str>,
    out: Vec<Statement>,
    /// The number of the next label.
    labels: u64,
    turning: HashMap<&'a str, Turning>,
    /// The labels so far.
    behind: HashSet<&'a str>,
    path: Path,
    /// What goes to labels to come.
    joins: HashMap<&'a str, Join>,
    /// The labels to come that were branched to since the last label.
    left: Vec<&'a str>,
    /// What the further turns of each loop have cost so far.
    added: Sums,
    /// Where the sequence before the next access begins.
    lead: usize,
    starts: bool,
    /// Whether a thread that ends may have copies to wait for.
    copies: bool,
    /// What lines spend that gather lanes.
    gathered: Gathered,
}

impl<'a> Pass<'a> {
    fn statement(&mut self, statement: &'a Statement, index: usize) {
        match statement {
            Statement::Label(name, _) => {
                self.gathered.label();
                // Where nothing comes from further up but what runs on into it, no poll comes by here again.
                let first = !self.joins.contains_key(name.as_str());
                if first {
                    self.before_label(name);
                }
                self.meets(name);
                self.left.clear();
                self.behind.insert(name);
                // A version begins directly behind the check.
                if !self.begins.contains_key(name) || !self.is_checked() {
                    self.out.push(statement.clone());
                }
                self.lead = self.out.len();
                if !first {
                    self.before_label(name);
                }
                self.begin(name);
                self.lead = self.out.len();
            }
            Statement::Instruction(instruction) => {
                self.instruction(instruction, statement, index);
            }
            Statement::Directive(directive) if names::is_nounroll(directive) && self.is_nounroll() => {}
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {
                self.out.push(statement.clone());
                self.lead = self.out.len();
            }
        }
    }

    /// Whether a loop has just begun of which that is said already.
    fn is_nounroll(&self) -> bool {
        matches!(self.out.last(), Some(Statement::Directive(directive)) if names::is_nounroll(directive))
    }

    fn meets(&mut self, label: &str) {
        if let Some(join) = self.joins.remove(label) {
            self.path = self.path.meet(self.now(join));
        }
    }

    /// A path that was taken, now: what loops that it left have cost since counts for it too.
    fn now(&self, join: Join) -> Path {
        // Whoever has left a loop that counts has looked.
        join.path.plus(Spent::both(self.added.first(join.loops).saturating_sub(join.added)))
    }

    /// Looks, where that has to be done before the turns of a loop.
    fn before_label(&mut self, name: &'a str) {
        if self.both.contains(name) {
            self.before_versions(name);
        }
        let Some(found) = self.loops.get(name) else { return };
        let cost = found.cost;
        match found.how {
            How::Polls => {}
            How::Ends(_) => self.before_ended(cost),
            How::Counts(_) | How::Steps(_) if self.begins.contains_key(name) => {}
            How::Counts(_) | How::Steps(_) => self.before(cost),
        }
    }

    /// Behind a label that is branched back to.
    fn begin(&mut self, name: &'a str) {
        let Some(found) = self.loops.get(name) else { return };
        let how = found.how.clone();
        let unrolled = found.is_unrolled();
        match how {
            How::Polls | How::Ends(_) => return,
            How::Counts(_) | How::Steps(_) => {}
        }
        let number = self.added.len();
        let counter = format!("{}{number}", names::COUNTER);
        self.added.push();
        self.out.extend(opening(&how, &counter));
        let label = self.fresh();
        self.out.push(Statement::Label(label.clone(), Span::default()));
        if !unrolled {
            self.out.push(nounroll());
        }
        self.turning.insert(name, Turning { label, counter, number });
    }

    /// Before a loop that ends by itself, whose turns cost so much.
    fn before_ended(&mut self, cost: Spent) {
        let next = self.path.plus(cost);
        if next.since > PATH_COST_MAX / 2 {
            self.poll();
        } else if next.unlooked.is_some_and(|unlooked| unlooked > UNLOOKED_COST_MAX) {
            self.look();
        }
    }

    /// Before a loop whose turns cost so much.
    fn before(&mut self, cost: Spent) {
        if self.path.since.saturating_add(cost.poll) > PATH_COST_MAX {
            self.poll();
        } else if self.path.unlooked.is_some() {
            self.look();
        }
    }

    /// Before the check of a loop in versions.
    fn before_versions(&mut self, name: &str) {
        let of = |(label, both): (&String, &String)| {
            (both == name)
                .then(|| self.loops.get(label.as_str()).map_or(Spent::default(), |found| found.cost))
        };
        let cost = self.begins.iter().filter_map(of).fold(Spent::default(), Spent::plus);
        self.before(cost);
    }

    /// Whether a check has just been made.
    fn is_checked(&self) -> bool {
        let by_own = |predicate: &Predicate| predicate.register == "%bh_q";
        matches!(self.out.last(), Some(Statement::Instruction(last))
            if last.opcode == "bra" && last.predicate.as_ref().is_some_and(by_own))
    }

    fn instruction(&mut self, instruction: &'a Instruction, statement: &Statement, index: usize) {
        if std::mem::take(&mut self.goes_on) {
            return;
        }
        let Some(row) = table::row_of(instruction) else {
            self.out.push(statement.clone());
            return;
        };
        let cost = Spent::of(row, instruction, self.gathered.cost(row, instruction));
        let next = self.path.plus(cost);
        let late = |unlooked| unlooked > UNLOOKED_COST_MAX || table::writes_global(row, instruction);
        if next.since > PATH_COST_MAX / 2 {
            self.poll();
        } else if next.unlooked.is_some_and(late) {
            self.look();
        }
        self.path = self.path.plus(cost);
        let back = table::target(row, instruction).filter(|target| self.behind.contains(target));
        if let Some(target) = back {
            self.goes_back(instruction, target, index);
        } else {
            if let Some(target) = table::target(row, instruction) {
                self.leaves(target);
            }
            let leads = is_lead(instruction);
            self.out.push(statement.clone());
            if !leads {
                self.lead = self.out.len();
            }
        }
        if table::ends_path(row, instruction) {
            self.path = Path::NONE;
        }
    }

    /// A branch to a label to come.
    fn leaves(&mut self, target: &'a str) {
        let before = self.joins.get(target).map(|join| self.now(*join));
        let path = before.map_or(self.path, |before| before.meet(self.path));
        let loops = self.added.len();
        self.joins.insert(target, Join { path, loops, added: self.added.first(loops) });
        if self.left.last() != Some(&target) {
            self.left.push(target);
        }
    }

    /// A branch back.
    fn goes_back(&mut self, back: &'a Instruction, label: &'a str, index: usize) {
        if let Some(Loop { how: How::Ends(_), cost, .. }) = self.loops.get(label) {
            self.path = self.path.plus(*cost);
            // Whoever left may have turned as often.
            for label in std::mem::take(&mut self.left) {
                if let Some(join) = self.joins.get_mut(label) {
                    join.path = join.path.plus(*cost);
                }
            }
            self.out.push(Statement::Instruction(back.clone()));
            self.lead = self.out.len();
            return;
        }
        let Some(found) = self.loops.get(label) else { return };
        let (how, cost, polls) = (found.how.clone(), found.cost, found.polls(index));
        if self.path.unlooked.is_some() {
            self.look();
        }
        if let Some(Turning { label: turns, counter, number }) = self.turning.get(label).filter(|_| !polls) {
            self.out.extend(closing(&how, counter, back, turns));
            self.added.add(*number, cost.poll);
            self.path = self.path.plus(cost);
            // The tenant's own test ended the turns, or they are used up.
            if let How::Steps(steps) = how {
                self.out.push(Statement::Instruction(steps.test.clone()));
            }
        }
        let behind = self.firsts.behind(label);
        let around = back.predicate.as_ref().map(|predicate| {
            let around = Predicate { negated: !predicate.negated, ..predicate.clone() };
            let to = behind.map_or_else(|| self.fresh(), str::to_owned);
            let branch = plain("bra", &[], vec![Operand::Symbol(to.clone())], Span::default());
            self.out.push(Statement::Instruction(Instruction { predicate: Some(around), ..branch }));
            to
        });
        // The test, of what the step left, and the branch around.
        self.path = self.path.plus(Spent::both(4));
        let beside = self.path;
        self.lead = self.out.len();
        if let Some(behind) = behind {
            self.leaves(behind);
            self.goes_on = true;
            return;
        }
        self.poll();
        let begin = self.begins.get(label).map_or(label, String::as_str);
        self.out.push(instruction("bra", &[], vec![Operand::Symbol(begin.to_owned())], back.span));
        if let Some(around) = around {
            self.out.push(Statement::Label(around, Span::default()));
            self.path = beside;
        }
        self.lead = self.out.len();
    }

    fn fresh(&mut self) -> String {
        self.labels += 1;
        format!("$L{}", self.labels - 1)
    }

    /// Looks at the flag that was loaded at entry.
    fn look(&mut self) {
        self.put(look(self.copies));
        (self.starts, self.path) = (true, self.path.look());
    }

    /// Loads the flag, and looks at it. Before that lanes may meet, which takes more than there is before the first look.
    fn poll(&mut self) {
        if self.path.unlooked.is_some() {
            self.look();
        }
        let mut poll = start();
        poll.extend(look(self.copies));
        self.put(poll);
        (self.starts, self.path) = (true, Path::NONE);
    }

    /// Before the sequence that leads to the next access.
    fn put(&mut self, statements: Vec<Statement>) {
        let count = statements.len();
        self.out.splice(self.lead..self.lead, statements);
        self.lead += count;
    }
}
