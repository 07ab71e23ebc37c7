//! That no thread runs on for long without a look at its session's flag.
//!
//! A branch that goes back either stands directly behind a *poll*, which loads the flag and ends the thread where that
//! says so; or goes back to a loop that is left after so many turns (`turns`). Such a loop is entered at its beginning only, and what lies in it is reached from it only: else
//! its counter would say nothing. So what is done between two polls is bounded: each loop counts as often as it turns, and
//! on no path may the sum exceed [`PATH_COST_MAX`]. A thread ends at the first poll that comes after the flag was set. The flag that was loaded at entry is *looked* at on every path before global memory is
//! written and before more than [`UNLOOKED_COST_MAX`] is done. Paths are followed in the order of the text.

use crate::maps::HashMap;

use super::stepping::Stepping;
use super::turns::{self, By};
use super::unverified;
use crate::ast::{Instruction, Statement};
use crate::limits::{CHUNK_COST_MAX, PATH_COST_MAX, SHORT_COST_MAX, UNLOOKED_COST_MAX};
use crate::print::Text;
use crate::report::Reason;
use crate::sums::Sums;
use crate::table::{self, Row};

/// How the flag is loaded: in the prologue of what looks, and at the end of every poll.
pub(super) const START: [&str; 6] = [
    "or.b32 %bh_hi, %bh_base, %bh_loadmask",
    "mov.u32 %bh_lo, %smid",
    "shl.b32 %bh_lo, %bh_lo, 7",
    "lop3.b32 %bh_lo, %bh_lo, 65408, -65536, 234",
    "mov.b64 %bh_k, {%bh_lo, %bh_hi}",
    "ld.relaxed.sys.global.b32 %bh_n, [%bh_k]",
];
const LOOK: [&str; 2] = ["setp.lt.s32 %bh_q, %bh_n, 0", "@%bh_q exit"];
/// Where threads may have copies to wait for.
const LOOK_AND_WAIT: [&str; 3] = ["setp.lt.s32 %bh_q, %bh_n, 0", "@%bh_q cp.async.wait_all", "@%bh_q exit"];

/// Loops inside one another, at most, that end by steps: each looks at what is inside.
const STEPPING_MAX: usize = 32;

/// What was done on the longest of the paths to a place.
#[derive(Debug, Clone, Copy)]
struct Path {
    /// Since the last poll, or since entry where there was none.
    since: u64,
    /// Since entry, on paths without any look; none where all have one.
    unlooked: Option<u64>,
}

impl Path {
    const ENTRY: Path = Path { since: 0, unlooked: Some(0) };
    /// No path: what meets it is as it was.
    const NONE: Path = Path { since: 0, unlooked: None };

    fn meet(self, other: Path) -> Path {
        Path { since: self.since.max(other.since), unlooked: self.unlooked.max(other.unlooked) }
    }

    fn plus(self, cost: u64) -> Path {
        let more = |before: u64| before.saturating_add(cost);
        Path { since: more(self.since), unlooked: self.unlooked.map(more) }
    }

    fn look(self) -> Path {
        Path { since: self.since.max(self.unlooked.unwrap_or(0)), unlooked: None }
    }
}

/// Branches to a label to come.
struct Coming {
    path: Path,
    /// How many loops there were when the last of them was taken, and what their further turns had added.
    loops: usize,
    added: u64,
    /// How many labels there were before the first of them.
    from: usize,
}

/// A loop that is left after so many turns.
struct Loop<'a> {
    label: &'a str,
    number: u32,
    by: By<'a>,
    /// Which label it is, in the order of the text.
    at: usize,
    /// What came before it.
    cost: u64,
    /// What its further turns have added.
    added: u64,
    /// In how many places it goes back.
    backs: usize,
    /// Where pointers were checked before it: how often it may turn at most. It goes back in one place only then.
    checked: Option<u64>,
}

/// Where the pass is.
pub(super) struct Looks<'a> {
    /// Whether the prologue has loaded the flag.
    started: bool,
    /// Whether launches are bounded by what is done without a look.
    is_fast: bool,
    /// What a look is.
    look: &'static [&'static str],
    path: Path,
    coming: HashMap<&'a str, Coming>,
    /// What all so far costs, turns included; and what the further turns of each loop have added.
    cost: u64,
    added: Sums,
    /// The labels so far, in order, and whether it is where a counted loop turns.
    labels: HashMap<&'a str, (usize, bool)>,
    open: Vec<Loop<'a>>,
    /// Of those, and of what lies inside: what ends by steps and has not gone back yet.
    stepping: Vec<Stepping<'a>>,
    /// From which label to which one lies what may only be entered by its first: in order, and apart.
    closed: Vec<(usize, usize)>,
    /// How many labels nothing may go back to any more.
    passed: usize,
    /// Whether the last instruction was a poll's.
    polled: bool,
    /// The most that is done without a look.
    work: u64,
    /// The most that is done since the last one.
    most: u64,
    /// The last label, which it is, and what came before it.
    last: Option<(&'a str, usize, u64)>,
    /// The labels to come that were branched to since.
    left: Vec<&'a str>,
    /// Whether an instruction has counted since lanes were gathered without counting.
    free: bool,
}

impl<'a> Looks<'a> {
    pub(super) fn new(started: bool, is_fast: bool, copies: bool) -> Self {
        Self {
            started,
            is_fast,
            look: if copies { &LOOK_AND_WAIT } else { &LOOK },
            path: Path::ENTRY,
            coming: HashMap::default(),
            cost: 0,
            added: Sums::default(),
            labels: HashMap::default(),
            open: Vec::new(),
            stepping: Vec::new(),
            closed: Vec::new(),
            passed: 0,
            polled: false,
            work: 0,
            most: 0,
            last: None,
            left: Vec::new(),
            free: true,
        }
    }

    /// Within a gate, where nothing looks: whoever calls one has looked.
    pub(super) fn of_gate() -> Self {
        let path = Path { since: 0, unlooked: None };
        Self { path, ..Self::new(false, false, false) }
    }

    /// What is done on the longest path between two looks.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// A place that every thread comes by once: nothing goes around it, nor back to before it.
    pub(super) fn pass(&mut self) -> Result<(), Reason> {
        if !self.coming.is_empty() {
            return Err(unverified("a place that a branch goes around"));
        }
        self.passed = self.labels.len();
        self.open.clear();
        self.stepping.clear();
        (self.last, self.polled) = (None, false);
        Ok(())
    }

    /// A call of a gate, which may write anything.
    pub(super) fn gate(&mut self, cost: u64) -> Result<(), Reason> {
        let short = self.is_fast && !self.started;
        if self.path.unlooked.is_some() && !short {
            return Err(unverified("the flag is not looked at before a gate"));
        }
        self.more(cost)
    }

    /// What is done without a look, where nothing is: what bounds the launches of a fast version.
    pub(super) fn work(&self) -> u64 {
        if self.started { 0 } else { self.work }
    }

    /// How many counters there have to be.
    pub(super) fn counters(&self) -> u32 {
        u32::try_from(self.added.len()).unwrap_or(u32::MAX)
    }

    /// A label that is none of a loop that ends by a counter.
    pub(super) fn label(&mut self, name: &'a str) {
        self.polled = false;
        let at = self.labels.len();
        self.last = Some((name, at, self.cost));
        self.left.clear();
        if let Some(coming) = self.coming.remove(name) {
            self.path = self.path.meet(self.now(&coming));
            // Whoever comes from before a loop has not set its counter.
            while self.open.last().is_some_and(|open| open.at >= coming.from) {
                self.open.pop();
            }
            while self.stepping.last().is_some_and(|stepping| stepping.at >= coming.from) {
                self.stepping.pop();
            }
        }
        self.stepping.iter_mut().for_each(Stepping::label);
        self.labels.insert(name, (self.labels.len(), false));
    }

    /// The beginning of a loop that ends by a counter, where one stands here.
    pub(super) fn opening(
        &mut self,
        statements: &'a [Statement],
    ) -> Result<Option<turns::Opening<'a>>, Reason> {
        let number = self.counters();
        let found = turns::opening(statements, number);
        let fits = |opening: &turns::Opening<'_>| {
            let has_room = match opening.by {
                By::Step { .. } => self.stepping.len() < STEPPING_MAX,
                By::Count(_) => true,
            };
            has_room && !self.coming.contains_key(opening.label)
        };
        let Some(opening) = found.filter(fits) else { return Ok(None) };
        self.polled = false;
        self.last = None;
        self.stepping.iter_mut().for_each(Stepping::label);
        let at = self.labels.len();
        self.more(opening.sets.len() as u64)?;
        if let By::Step { register, way, .. } = opening.by {
            self.stepping.push(Stepping::new(number, at, register, way));
        }
        self.labels.insert(opening.label, (at, true));
        self.open.push(Loop {
            label: opening.label,
            number,
            by: opening.by,
            at,
            cost: self.cost,
            added: 0,
            backs: 0,
            checked: None,
        });
        self.added.push();
        Ok(Some(opening))
    }

    /// The pointers of the loop that has just begun are proven for so many turns: it may take no more, and goes back in one
    /// place only.
    pub(super) fn turns_at_most(&mut self, turns: u64) {
        if let Some(open) = self.open.last_mut() {
            open.checked = Some(turns);
        }
    }

    /// What goes back to such a loop, where that stands here: the label, the predicate that it reads, and what is left.
    pub(super) fn closing(
        &mut self,
        statements: &'a [Statement],
    ) -> Result<Option<(turns::Closing<'a>, &'a [Statement])>, Reason> {
        let by = |number| {
            let at = self.open.binary_search_by_key(&number, |open| open.number).ok()?;
            self.open.get(at).map(|open| open.by)
        };
        let Some(closing) = turns::closing(statements, by) else { return Ok(None) };
        self.polled = false;
        // Whoever went back to a label in here later would come into this loop without setting its counter.
        self.last = None;
        while self.open.last().is_some_and(|open| open.number > closing.number) {
            self.open.pop();
        }
        let Some(open) = self.open.last_mut().filter(|open| open.label == closing.label) else {
            return Err(unverified("a branch back to another loop"));
        };
        open.backs += 1;
        if open.checked.is_some() && open.backs > 1 {
            return Err(unverified("a checked loop that goes back in several places"));
        }
        let (by, at, checked) = (open.by, open.at, open.checked);
        while self.stepping.last().is_some_and(|stepping| stepping.number > closing.number) {
            self.stepping.pop();
        }
        let turns = match by {
            By::Count(turns) => Some(turns),
            // It may go back once: another step would have to come before that.
            By::Step { .. } => {
                let own = self.stepping.pop_if(|stepping| stepping.number == closing.number);
                own.and_then(|own| own.turns(closing.step)).and_then(|turns| turns.checked_add(closing.more))
            }
        };
        for outer in &mut self.stepping {
            if let (Some(step), By::Step { register, .. }) = (closing.step, by) {
                outer.instruction(step, &[register]);
            }
            outer.branch(Some(at));
        }
        self.more(closing.length as u64)?;
        let Some(turns) = turns else { return Err(unverified("a loop whose turns are not counted")) };
        if checked.is_some_and(|most| turns > most) {
            return Err(unverified("a checked loop that turns more often than its pointers were proven for"));
        }
        let Some(open) = self.open.last_mut() else {
            return Err(unverified("a branch back to another loop"));
        };
        let once = self.cost - open.cost - open.added;
        let all = once.saturating_mul(turns);
        if all > CHUNK_COST_MAX {
            return Err(unverified("a loop that turns too often"));
        }
        // A loop may go back in several places: the last counts, from which it does most.
        let more = (all - once).saturating_sub(open.added);
        open.added += more;
        self.cost = self.cost.saturating_add(more);
        self.added.add(closing.number as usize, more);
        while self.closed.last().is_some_and(|(from, _)| *from >= at) {
            self.closed.pop();
        }
        self.closed.push((at, self.labels.len()));
        self.does(more)?;
        let rest = statements.get(closing.length..).unwrap_or_default();
        Ok(Some((closing, rest)))
    }

    /// The label of a loop without labels inside, which control runs on into, where the last is one.
    pub(super) fn turning(&self) -> Option<&'a str> {
        self.last.map(|(name, ..)| name)
    }

    /// That loop goes back here, and turns so often at most; nothing else does any more.
    pub(super) fn turns(&mut self, turns: u64) -> Result<(), Reason> {
        let without = || unverified("a branch back that does not poll");
        let (name, at, before) = self.last.take().ok_or_else(without)?;
        self.stepping.iter_mut().for_each(|stepping| stepping.branch(Some(at)));
        self.more(1)?;
        let once = self.cost - before;
        let all = once.saturating_mul(turns);
        if all > CHUNK_COST_MAX {
            return Err(unverified("a loop that turns too often"));
        }
        self.labels.insert(name, (at, true));
        self.closed.push((at, self.labels.len()));
        // Whoever left may have turned as often.
        for label in std::mem::take(&mut self.left) {
            if let Some(coming) = self.coming.get_mut(label) {
                coming.path = coming.path.plus(all - once);
                self.most = self.most.max(coming.path.since);
            }
        }
        self.more(all - once)
    }

    /// What is left after a look at the flag that was loaded at entry, where one stands here. It counts where there has
    /// been one on every path to it: a text may hold many.
    pub(super) fn look(&mut self, statements: &'a [Statement]) -> Result<Option<&'a [Statement]>, Reason> {
        let Some(rest) = strip(statements, self.look).filter(|_| self.started) else { return Ok(None) };
        if self.path.unlooked.is_none() {
            self.more(self.look.len() as u64)?;
        }
        self.path = self.path.look();
        Ok(Some(rest))
    }

    /// What is left after a poll, where one stands here.
    pub(super) fn poll(&mut self, statements: &'a [Statement]) -> Option<&'a [Statement]> {
        let rest = strip(strip(statements, &START)?, self.look).filter(|_| self.started)?;
        self.path = Path::NONE;
        self.polled = true;
        Some(rest)
    }

    /// So many instructions that gather lanes stand here. They belong to one that counts, which pays for them once: more of
    /// them count themselves.
    pub(super) fn gathers(&mut self, count: u64) -> Result<(), Reason> {
        let count = if std::mem::take(&mut self.free) { 0 } else { count };
        self.more(count)
    }

    /// A wait for lanes stands here that costs so much.
    pub(super) fn waits(&mut self, cost: u64) -> Result<(), Reason> {
        self.free = true;
        self.more(cost)
    }

    /// An instruction that is consumed with others writes these registers.
    pub(super) fn writes(&mut self, instruction: &'a Instruction, writes: &[&'a str]) {
        self.stepping.iter_mut().for_each(|stepping| stepping.instruction(instruction, writes));
    }

    /// So many instructions of the guard's own stand here.
    pub(super) fn more(&mut self, count: u64) -> Result<(), Reason> {
        self.polled = false;
        self.cost = self.cost.saturating_add(count);
        self.does(count)
    }

    /// More is done.
    fn does(&mut self, cost: u64) -> Result<(), Reason> {
        self.path = self.path.plus(cost);
        let unlooked = self.path.unlooked.unwrap_or(0);
        self.work = self.work.max(unlooked);
        self.most = self.most.max(self.path.since);
        let most = if self.is_fast && !self.started { SHORT_COST_MAX } else { UNLOOKED_COST_MAX };
        if self.path.since > PATH_COST_MAX || unlooked > most {
            self.path = Path::NONE;
            return Err(unverified("the flag is not looked at in time"));
        }
        Ok(())
    }

    /// Any other instruction, which writes these registers.
    pub(super) fn instruction(
        &mut self,
        row: &Row,
        instruction: &'a Instruction,
        writes: &[&'a str],
    ) -> Result<(), Reason> {
        let polled = std::mem::take(&mut self.polled);
        self.free = true;
        let cost = table::cost(row, instruction);
        self.cost = self.cost.saturating_add(cost);
        self.stepping.iter_mut().for_each(|stepping| stepping.instruction(instruction, writes));
        let mut done = self.does(cost);
        let short = self.is_fast && !self.started;
        if table::writes_global(row, instruction) && self.path.unlooked.is_some() && !short {
            done = Err(unverified("the flag is not looked at in time"));
        }
        if let Some(target) = table::target(row, instruction) {
            let back = self.labels.get(target).map(|(at, _)| *at);
            self.stepping.iter_mut().for_each(|stepping| stepping.branch(back));
            match self.labels.get(target) {
                Some((at, turns)) => {
                    if !polled || *turns || *at < self.passed || self.is_closed(*at) {
                        return Err(unverified("a branch back that does not poll"));
                    }
                }
                None => self.comes_to(target),
            }
        }
        if table::ends_path(row, instruction) {
            self.path = Path::NONE;
        }
        done
    }

    /// Control may go to a label to come, which is not one so far.
    pub(super) fn goes_on(&mut self, label: &'a str) -> Result<(), Reason> {
        if self.labels.contains_key(label) {
            return Err(unverified("a branch back that does not poll"));
        }
        self.comes_to(label);
        Ok(())
    }

    fn comes_to(&mut self, target: &'a str) {
        if self.last.is_some() && self.left.last() != Some(&target) {
            self.left.push(target);
        }
        let (path, loops) = (self.path, self.added.len());
        let mut new = Coming { path, loops, added: self.added.first(loops), from: self.labels.len() };
        if let Some(before) = self.coming.get(target) {
            new.path = path.meet(self.now(before));
            new.from = before.from;
        }
        self.coming.insert(target, new);
    }

    /// What was done on a path that was taken: what loops that it left have added since counts for it too.
    fn now(&self, coming: &Coming) -> Path {
        coming.path.plus(self.added.first(coming.loops).saturating_sub(coming.added))
    }

    /// Whether a label lies within a loop that may only be entered by its first.
    fn is_closed(&self, label: usize) -> bool {
        let at = self.closed.partition_point(|(from, _)| *from < label);
        let before = at.checked_sub(1).and_then(|at| self.closed.get(at));
        before.is_some_and(|(_, to)| label < *to)
    }
}

/// What is left after exactly these instructions.
pub(super) fn strip<'a>(statements: &'a [Statement], lines: &[&str]) -> Option<&'a [Statement]> {
    let (found, rest) = statements.split_at_checked(lines.len())?;
    let same = found
        .iter()
        .zip(lines)
        .all(|(found, line)| matches!(found, Statement::Instruction(found) if Text(found).is(line)));
    same.then_some(rest)
}
