//! That no thread runs on for long without a look at its session's flag.
//!
//! Each statement costs something ([`table::cost`]). A *poll* loads the flag and ends the thread where that says so; between two
//! polls a thread may spend [`PATH_COST_MAX`], its *fuel*. Before the first look at the flag that was loaded at entry it may spend
//! little, and write nothing to global memory. How much fuel is left at a label is claimed, as `A + B1 * e1 + B2 * e2 ...`:
//! each `e` is a number that is never negative and that its loop takes one off in each turn.
//!
//! | `e` of | is | is one less |
//! |---|---|---|
//! | a counter that is set to a number of turns | that counter, or zero where it is less | behind what takes one off it |
//! | a counter that is where a register is after all turns | in how many steps the register is there | behind each step |
//! | a label whose turns are claimed ([`Numbers`](super::numbers::Numbers)) | how often it may still be come to | on each branch back to it |
//!
//! One pass follows the text. What is left where control goes to a label, forth or back, has to be as much as the label claims;
//! behind the label that is what is left, and nothing else. So what a path from one poll to the next spends is never more
//! than the fuel behind the first: each statement takes its cost off, each way to a label goes to no more than there was,
//! and no `A + B1 * e1 ...` may become negative. That needs no word on what a loop is, or on how a claim was found.
//!
//! Why a register steps to its counter so often only: it is `m - step * e`, as numbers that wrap around, where `m` is what it
//! is after all turns and the counter is no more than `m`. With `e = 0` it is `m`, and the test for going back fails.
//! Nothing else writes the register or the step, or `e` is forgotten. Where the test lets the counter itself pass too, one step more leads
//! beyond it, since the counter is no closer to the greatest number than a step; there `e` counts one more.

use crate::ast::{Instruction, Operand, Span, Statement};
use crate::claims::fuel as claimed;
use crate::limits::{PATH_COST_MAX, SHORT_COST_MAX, UNLOOKED_COST_MAX};
use crate::maps::{HashMap, HashSet};
use crate::print::Text;
use crate::refusal::unverified;
use crate::report::Reason;
use crate::table::{self, Row};
use crate::turns::{self, By};

/// How the flag is loaded: in the prologue of what looks, and at the end of every poll.
pub(crate) const START: [&str; 6] = [
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

/// What a statement has to do with fuel.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// What a statement spends.
    Costs(u64),
    /// A label.
    Label(&'a str),
    /// The flag that was loaded at entry is looked at. The first costs nothing, others so much: a text may hold many.
    Look(u64),
    /// A poll: a thread has all its fuel again.
    Poll,
    /// Global memory is written, or may be.
    Writes,
    /// A register is written that leads to a counter, or is its step.
    Register(&'a Instruction, &'a str),
    /// A counter is set.
    Set(u32, By<'a>),
    /// The loop of this label, which comes next, has this counter and may turn so often at most: pointers were checked for that.
    Checked(&'a str, u32, u64),
    /// A loop goes back to this label, as its counter says, with this step before that.
    Turns(u32, &'a str, Option<&'a Instruction>),
    /// Control may go to a label.
    Goes(&'a str),
    /// Control does not go on.
    Ends,
}

/// What a body may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It looks at the flag.
    Looks,
    /// A fast version that never does: its launches are bounded by what is claimed that a thread spends.
    Short,
    /// It looks at no flag, and no launch is bounded by that.
    Plain,
    /// A gate, where nothing looks: whoever calls one has looked. It spends what is claimed.
    Gate,
}

/// What the statements of a body have to do with fuel, in order.
pub struct Events<'a> {
    kind: Kind,
    look: &'static [&'static str],
    events: Vec<(Event<'a>, Span)>,
    /// What counts the turns of loops, by their numbers.
    counters: Vec<By<'a>>,
    /// The registers that lead to counters, and those that are added to them in each turn.
    watched: HashSet<&'a str>,
    labels: HashSet<&'a str>,
    /// The labels to come that were branched to.
    coming: HashSet<&'a str>,
    /// Those that nothing may go back to any more.
    passed: HashSet<&'a str>,
    /// Whether an instruction has counted since lanes were gathered without counting.
    free: bool,
    span: Span,
}

impl<'a> Events<'a> {
    pub(crate) fn new(kind: Kind, copies: bool, statements: &'a [Statement]) -> Self {
        Self {
            kind,
            look: if copies { &LOOK_AND_WAIT } else { &LOOK },
            events: Vec::new(),
            counters: Vec::new(),
            watched: turns::watched(statements),
            labels: HashSet::default(),
            coming: HashSet::default(),
            passed: HashSet::default(),
            free: true,
            span: Span::default(),
        }
    }

    /// What kind of body it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// All of them, in the order of the text.
    pub fn all(&self) -> impl Iterator<Item = Event<'a>> {
        self.events.iter().map(|(event, _)| *event)
    }

    /// What counts the turns of a loop.
    pub fn counter(&self, number: u32) -> Option<By<'a>> {
        self.counters.get(usize::try_from(number).ok()?).copied()
    }

    /// How many counters there have to be.
    pub(crate) fn counters(&self) -> u32 {
        u32::try_from(self.counters.len()).unwrap_or(u32::MAX)
    }

    /// The statement that what comes is of.
    pub(crate) fn at(&mut self, span: Span) {
        self.span = span;
    }

    fn push(&mut self, event: Event<'a>) {
        if let (Event::Costs(more), Some((Event::Costs(cost), _))) = (event, self.events.last_mut()) {
            *cost = cost.saturating_add(more);
            return;
        }
        self.events.push((event, self.span));
    }

    /// A place that every thread comes by once: nothing goes around it, nor back to before it.
    pub(crate) fn pass(&mut self) -> Result<(), Reason> {
        if !self.coming.is_empty() {
            return Err(unverified("a place that a branch goes around"));
        }
        self.passed = self.labels.clone();
        Ok(())
    }

    /// A call of a gate, which may write anything.
    pub(crate) fn gate(&mut self, cost: u64) {
        self.push(Event::Writes);
        self.costs(cost);
    }

    pub(crate) fn label(&mut self, name: &'a str) {
        self.labels.insert(name);
        self.coming.remove(name);
        self.push(Event::Label(name));
    }

    /// The beginning of a loop that ends by a counter, where one stands here.
    pub(crate) fn opening(&mut self, statements: &'a [Statement]) -> Option<turns::Opening<'a>> {
        let number = self.counters();
        let opening = turns::opening(statements, number)?;
        // Else nobody would have seen them written.
        opening.by.registers().all(|name| self.watched.contains(name)).then_some(())?;
        self.costs(opening.sets.len() as u64);
        self.counters.push(opening.by);
        self.push(Event::Set(number, opening.by));
        Some(opening)
    }

    /// The label of the loop that begins here, whose pointers are proven for so many turns.
    pub(crate) fn checked(&mut self, label: &'a str, turns: u64) -> Result<(), Reason> {
        if self.coming.contains(label) {
            return Err(unverified("a branch around a check of pointers"));
        }
        let counter = self.counters().checked_sub(1).ok_or_else(|| unverified("a check without its loop"))?;
        self.push(Event::Checked(label, counter, turns));
        Ok(())
    }

    /// What goes back to a loop with a counter, where that stands here, and what is left behind it.
    pub(crate) fn closing(
        &mut self,
        statements: &'a [Statement],
    ) -> Result<Option<(turns::Closing<'a>, &'a [Statement])>, Reason> {
        let closing = turns::closing(statements, |number| self.counter(number));
        let Some(closing) = closing else { return Ok(None) };
        self.leads(closing.label)?;
        self.costs(closing.length as u64);
        self.push(Event::Turns(closing.number, closing.label, closing.step));
        let rest = statements.get(closing.length..).unwrap_or_default();
        Ok(Some((closing, rest)))
    }

    /// What is left after a look at the flag that was loaded at entry, where one stands here.
    pub(crate) fn look(&mut self, statements: &'a [Statement]) -> Option<&'a [Statement]> {
        let rest = strip(statements, self.look).filter(|_| self.kind == Kind::Looks)?;
        self.push(Event::Look(self.look.len() as u64));
        Some(rest)
    }

    /// What is left after a poll, where one stands here.
    pub(crate) fn poll(&mut self, statements: &'a [Statement]) -> Option<&'a [Statement]> {
        let rest = strip(strip(statements, &START)?, self.look).filter(|_| self.kind == Kind::Looks)?;
        self.push(Event::Poll);
        Some(rest)
    }

    /// So many instructions that gather lanes stand here. They belong to one that counts, which pays for them once: more of
    /// them count themselves.
    pub(crate) fn gathers(&mut self, count: u64) {
        let is_free = std::mem::take(&mut self.free);
        self.costs(if is_free { 0 } else { count });
    }

    /// A wait for lanes stands here that costs so much.
    pub(crate) fn waits(&mut self, cost: u64) {
        self.free = true;
        self.costs(cost);
    }

    /// So many instructions of the guard's own stand here, or one that costs so much.
    pub(crate) fn costs(&mut self, cost: u64) {
        self.push(Event::Costs(cost));
    }

    /// An instruction that is consumed with others writes these registers.
    pub(crate) fn writes(&mut self, instruction: &'a Instruction, writes: &[&'a str]) {
        for name in writes {
            if self.watched.contains(name) {
                self.push(Event::Register(instruction, name));
            }
        }
    }

    /// Any other instruction, which writes these registers.
    pub(crate) fn instruction(
        &mut self,
        row: &Row,
        instruction: &'a Instruction,
        writes: &[&'a str],
    ) -> Result<(), Reason> {
        self.free = true;
        self.costs(table::cost(row, instruction));
        if table::writes_global(row, instruction) {
            self.push(Event::Writes);
        }
        self.writes(instruction, writes);
        let went = match table::target(row, instruction) {
            Some(target) => self.goes(target),
            None => Ok(()),
        };
        if table::ends_path(row, instruction) {
            self.push(Event::Ends);
        }
        went
    }

    /// Control may go to a label.
    pub(crate) fn goes(&mut self, label: &'a str) -> Result<(), Reason> {
        self.leads(label)?;
        self.push(Event::Goes(label));
        Ok(())
    }

    fn leads(&mut self, label: &'a str) -> Result<(), Reason> {
        if self.passed.contains(label) {
            return Err(unverified("a branch back to before what is done once"));
        }
        if !self.labels.contains(label) {
            self.coming.insert(label);
        }
        Ok(())
    }

    /// For whoever claims: the most that could be claimed to be left at labels besides the terms of `claims`, and the least
    /// that is left anywhere of what is given at first (until the first look, or the end of a gate).
    pub fn left(
        &self,
        claims: &claimed::Fuel,
        turns: impl Fn(&str) -> Option<u64>,
    ) -> (HashMap<&'a str, (i64, Option<i64>)>, i64) {
        let mut check = Checker::new(self, claims, turns);
        for state in check.claims.values_mut() {
            (state.poll, state.look) = (CLAIMED_MAX, None);
        }
        for _ in 0..TRIED_MAX {
            check.tries = Some((CLAIMED_MAX, false));
            (check.seen, check.here) = (HashSet::default(), Some(check.first.clone()));
            for (event, _) in &self.events {
                check.event(*event).ok();
            }
            if check.tries.is_some_and(|(_, changed)| !changed) {
                break;
            }
        }
        let left = check.claims.iter().map(|(label, state)| (*label, (state.poll, state.look))).collect();
        (left, check.tries.map_or(0, |(least, _)| least))
    }

    /// Whether all is as is claimed. `turns` tells of labels how often they are come to at most, once they were come to from
    /// before.
    ///
    /// # Errors
    /// The first place where it is not.
    pub(crate) fn check(
        &self,
        claims: &claimed::Fuel,
        turns: impl Fn(&str) -> Option<u64>,
    ) -> Result<(), (Span, Reason)> {
        let mut check = Checker::new(self, claims, turns);
        for (event, span) in &self.events {
            check.event(*event).map_err(|what| (*span, unverified(what)))?;
        }
        Ok(())
    }
}

/// What `e` is of: a counter, or a label that nothing counts the turns of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Counter(u32),
    Label(u32),
}

/// What is known of an `e`, and how much fuel is left for it.
#[derive(Debug, Clone, Copy)]
struct Term {
    of: Of,
    /// What it is when its counter has been set.
    first: i64,
    /// Whether it is one at least.
    is_some: bool,
    /// How far below zero its counter may be.
    fell: u32,
    /// For each of it, until the next poll and until the first look.
    poll: i64,
    look: i64,
}

impl Term {
    /// The number of the counter that it is of, and whether it is one at least.
    fn counter(&self) -> Option<(u32, bool)> {
        match self.of {
            Of::Counter(number) => Some((number, self.is_some)),
            Of::Label(_) => None,
        }
    }

    fn least(&self) -> i64 {
        i64::from(self.is_some)
    }
}

/// What fuel is left.
#[derive(Debug, Clone, Default)]
struct State {
    /// Until the next poll, besides what is left for each of the terms.
    poll: i64,
    /// Until the first look, where there may have been none.
    look: Option<i64>,
    /// In order.
    terms: Vec<Term>,
}

impl State {
    fn spend(&mut self, cost: u64) -> Result<(), &'static str> {
        let cost = i64::try_from(cost).unwrap_or(i64::MAX);
        self.poll = self.poll.saturating_sub(cost);
        self.look = self.look.map(|look| look.saturating_sub(cost));
        if self.is_some() { Ok(()) } else { Err(LATE) }
    }

    /// What is left at least until the next poll, and until the first look.
    fn least(&self) -> (i64, Option<i64>) {
        let sum = |constant: i64, rate: fn(&Term) -> i64| {
            let least = |sum: i64, term: &Term| sum.saturating_add(rate(term) * term.least());
            self.terms.iter().fold(constant, least)
        };
        (sum(self.poll, |term| term.poll), self.look.map(|look| sum(look, |term| term.look)))
    }

    /// Whether nothing is negative, whatever the terms are.
    fn is_some(&self) -> bool {
        let (poll, look) = self.least();
        poll >= 0 && look.is_none_or(|look| look >= 0)
    }

    /// What is left at least of what is given at first.
    fn least_given(&self, kind: Kind) -> i64 {
        match (kind, self.least()) {
            (Kind::Gate, (poll, _)) => poll,
            (_, (_, look)) => look.unwrap_or(CLAIMED_MAX),
        }
    }

    fn adds(&mut self, poll: i64, look: i64) {
        self.poll = self.poll.saturating_add(poll);
        self.look = self.look.map(|known| known.saturating_add(look));
    }

    fn at(&self, of: Of) -> Result<usize, usize> {
        self.terms.binary_search_by_key(&of, |term| term.of)
    }

    fn term(&mut self, of: Of) -> Option<&mut Term> {
        let at = self.at(of).ok()?;
        self.terms.get_mut(at)
    }

    /// A term is one less from here on, and at least this.
    fn less(&mut self, of: Of, is_some: bool) {
        let Some(term) = self.term(of) else { return };
        term.is_some = is_some;
        let (poll, look) = (term.poll, term.look);
        self.adds(poll, look);
    }

    /// Nothing is known of a term any more.
    fn forget(&mut self, of: Of) {
        let Ok(at) = self.at(of) else { return };
        let term = self.terms.remove(at);
        self.adds(term.poll * term.least(), term.look * term.least());
    }

    /// A term begins.
    fn begin(&mut self, of: Of, first: i64) {
        self.forget(of);
        let at = self.at(of).unwrap_or_else(|at| at);
        self.terms.insert(at, Term { of, first, is_some: true, fell: 0, poll: 0, look: 0 });
    }

    fn polls(&mut self) {
        (self.poll, self.look) = (given(Kind::Looks, 0).0, None);
        self.terms.iter_mut().for_each(|term| (term.poll, term.look) = (0, 0));
    }

    /// What is left besides the terms of a claim, until the next poll and until the first look; none where not all of those
    /// are there.
    fn besides(&self, claim: &Self) -> Option<(i64, Option<i64>)> {
        let (mut poll, mut look) = (self.poll, self.look);
        let mut own = self.terms.iter().peekable();
        // What is left for a term and not claimed is left besides; what is claimed beyond it has to be there for all of the term.
        let mut pays = |term: &Term, claimed: (i64, i64)| {
            let pay = |more: i64| if more > 0 { more * term.first } else { more * term.least() };
            poll = poll.saturating_sub(pay(claimed.0 - term.poll));
            look = look.map(|look| look.saturating_sub(pay(claimed.1 - term.look)));
        };
        for claimed in &claim.terms {
            while let Some(term) = own.next_if(|term| term.of < claimed.of) {
                pays(term, (0, 0));
            }
            let term = own.next_if(|term| term.of == claimed.of)?;
            if (claimed.is_some && !term.is_some) || term.fell > claimed.fell {
                return None;
            }
            pays(term, (claimed.poll, claimed.look));
        }
        own.for_each(|term| pays(term, (0, 0)));
        Some((poll, look))
    }

    /// Whether as much is left as a claim has.
    fn implies(&self, claim: &Self) -> bool {
        self.besides(claim).is_some_and(|(poll, look)| {
            poll >= claim.poll && look.is_none_or(|look| claim.look.is_some_and(|claimed| look >= claimed))
        })
    }
}

const LATE: &str = "the flag is not looked at in time";
/// Terms that a label may claim.
pub const TERMS_MAX: usize = 64;
/// What may be claimed as left, whichever way: far from where numbers end.
const CLAIMED_MAX: i64 = 1 << 60;
/// How far below zero a counter may be claimed to be.
const FELL_MAX: u32 = 1 << 20;
/// How often claims are tried.
const TRIED_MAX: usize = 6;

struct Checker<'s, 'a> {
    events: &'s Events<'a>,
    /// What all turns of a counter are, and by which steps a register is there.
    firsts: Vec<Option<(i64, Option<Operand>)>>,
    claims: HashMap<&'a str, State>,
    /// How often a label is come to at most, and its number.
    turns: HashMap<&'a str, (Of, i64)>,
    seen: HashSet<&'a str>,
    /// What there is at first; and what is left here, none where control does not come.
    first: State,
    here: Option<State>,
    /// Loops whose pointers were checked: nothing goes back to them but where they turn.
    checked: HashMap<&'a str, u32>,
    /// The one whose label was the last, until it goes back: its counter, and whether that is one less since.
    turning: Option<(u32, bool)>,
    /// Where claims are only tried: the least that was left, and whether less was than was to be claimed. Nothing is refused then.
    tries: Option<(i64, bool)>,
}

impl<'s, 'a> Checker<'s, 'a> {
    fn new(events: &'s Events<'a>, claims: &claimed::Fuel, turns: impl Fn(&str) -> Option<u64>) -> Self {
        let (poll, look) = given(events.kind, claims.entry);
        let first = State { poll, look, terms: Vec::new() };
        let mut check = Self {
            events,
            firsts: Vec::with_capacity(events.counters.len()),
            claims: HashMap::default(),
            turns: HashMap::default(),
            seen: HashSet::default(),
            first: first.clone(),
            here: Some(first),
            checked: HashMap::default(),
            turning: None,
            tries: None,
        };
        for (number, by) in (0..).zip(&events.counters) {
            check.firsts.push(all_of(*by, claims.steps.get(&number).copied()));
        }
        let labels = events.all().filter_map(|event| match event {
            Event::Label(name) => Some(name),
            _ => None,
        });
        for (number, label) in (0..).zip(labels) {
            let turns = turns(label).and_then(|turns| i64::try_from(turns).ok());
            let turns = turns.filter(|turns| *turns <= i64::from(u32::MAX));
            check.turns.extend(turns.map(|turns| (label, (Of::Label(number), turns))));
        }
        for (label, claim) in &claims.labels {
            if let Some((label, claim)) = events.labels.get(label.as_str()).zip(check.claim(claim)) {
                check.claims.insert(label, claim);
            }
        }
        check
    }

    /// What is claimed of a label, if it makes sense.
    fn claim(&self, claim: &claimed::AtLabel) -> Option<State> {
        let fits = |number: i64| (-CLAIMED_MAX..=CLAIMED_MAX).contains(&number);
        let fits = fits(claim.poll) && claim.look.is_none_or(fits) && claim.terms.len() <= TERMS_MAX;
        fits.then_some(())?;
        let mut terms = Vec::with_capacity(claim.terms.len());
        for term in &claim.terms {
            let (of, first) = match &term.of {
                claimed::Of::Counter(number) => {
                    let first = self.firsts.get(usize::try_from(*number).ok()?)?.as_ref()?;
                    (Of::Counter(*number), first.0)
                }
                claimed::Of::Label(label) => *self.turns.get(label.as_str())?,
            };
            // Far from where counters come round to numbers above zero.
            (term.fell <= FELL_MAX).then_some(())?;
            let rate = |rate: u64| i64::try_from(rate.min(PATH_COST_MAX)).unwrap_or(0);
            let (poll, look) = (rate(term.poll), rate(term.look));
            terms.push(Term { of, first, is_some: term.is_some, fell: term.fell, poll, look });
        }
        terms.sort_unstable_by_key(|term| term.of);
        terms.dedup_by_key(|term| term.of);
        Some(State { poll: claim.poll, look: claim.look, terms })
    }

    fn event(&mut self, event: Event<'a>) -> Result<(), &'static str> {
        match event {
            Event::Label(label) => return self.label(label),
            Event::Checked(label, counter, turns) => return self.begins_checked(label, counter, turns),
            _ => {}
        }
        let Some(mut state) = self.here.take() else { return Ok(()) };
        match event {
            Event::Costs(cost) => {
                let spent = state.spend(cost);
                match &mut self.tries {
                    Some((least, _)) => *least = state.least_given(self.events.kind).min(*least),
                    None => spent?,
                }
            }
            Event::Look(cost) => {
                if state.look.is_none() {
                    state.spend(cost)?;
                }
                state.look = None;
            }
            Event::Poll => state.polls(),
            Event::Writes if state.look.is_some() && self.events.kind != Kind::Short => return Err(LATE),
            Event::Register(instruction, name) => self.writes(&mut state, instruction, name),
            Event::Set(number, _) => {
                let (first, _) = self.first(number).ok_or("a counter of which no step is claimed")?;
                state.begin(Of::Counter(number), *first);
            }
            Event::Turns(number, label, step) => state = self.turns(state, number, label, step)?,
            Event::Goes(label) => {
                if self.checked.contains_key(label) {
                    return Err("a checked loop that goes back in several places");
                }
                self.arrives(&state, label)?;
            }
            Event::Ends => return Ok(()),
            Event::Writes | Event::Label(_) | Event::Checked(..) => {}
        }
        self.here = Some(state);
        Ok(())
    }

    fn first(&self, number: u32) -> Option<&(i64, Option<Operand>)> {
        self.firsts.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// Control may go to a label with what is left.
    fn arrives(&mut self, left: &State, label: &'a str) -> Result<(), &'static str> {
        let is_back = self.seen.contains(label);
        let mut left = left.clone();
        match self.turns.get(label) {
            Some((of, _)) if is_back => left.less(*of, true),
            Some((of, first)) => left.begin(*of, *first),
            None => {}
        }
        if let (Some((_, changed)), Some(claim)) = (&mut self.tries, self.claims.get_mut(label)) {
            let Some((poll, look)) = left.besides(claim) else { return Ok(()) };
            let look = match (claim.look, look) {
                (Some(claimed), Some(look)) => Some(claimed.min(look)),
                (claimed, look) => claimed.or(look),
            };
            *changed |= poll < claim.poll || look != claim.look;
            (claim.poll, claim.look) = (claim.poll.min(poll), look);
            return Ok(());
        }
        match self.claims.get(label) {
            Some(claim) if left.implies(claim) => Ok(()),
            _ if is_back => Err("a branch back that does not poll"),
            _ => Err(LATE),
        }
    }

    fn label(&mut self, label: &'a str) -> Result<(), &'static str> {
        if let Some(here) = self.here.take() {
            self.arrives(&here, label)?;
        }
        self.seen.insert(label);
        self.here = Some(self.claims.get(label).cloned().unwrap_or_default());
        self.turning = self.checked.get(label).map(|counter| (*counter, false));
        Ok(())
    }

    /// A loop comes whose pointers were checked for so many turns: its counter has to say that it turns no more often.
    fn begins_checked(&mut self, label: &'a str, counter: u32, turns: u64) -> Result<(), &'static str> {
        self.checked.insert(label, counter);
        let claim = self.claims.get(label);
        let term = claim.and_then(|claim| claim.terms.get(claim.at(Of::Counter(counter)).ok()?));
        let most = term.map(|term| term.first + 1 - term.least());
        if most.is_some_and(|most| u64::try_from(most).is_ok_and(|most| most <= turns)) {
            Ok(())
        } else {
            Err("a checked loop that turns more often than its pointers were proven for")
        }
    }

    /// A register is written, which may lead to counters or be a step.
    fn writes(&mut self, state: &mut State, instruction: &Instruction, name: &str) {
        // As many as a label claims, however many counters there are.
        let alive: Vec<(u32, bool)> = state.terms.iter().filter_map(Term::counter).collect();
        for (number, is_some) in alive {
            let Some(By::Step { register, way, .. }) = self.events.counter(number) else { continue };
            if register != name && way.register() != Some(name) {
                continue;
            }
            let step = self.first(number).and_then(|(_, step)| step.as_ref());
            let steps = register == name && step.is_some_and(|step| is_step(instruction, register, step));
            if !(is_some && steps) {
                state.forget(Of::Counter(number));
                continue;
            }
            state.less(Of::Counter(number), false);
            if let Some((turning, is_less)) = &mut self.turning {
                *is_less |= *turning == number;
            }
        }
    }

    /// A loop goes back as its counter says, or not. Answers what is left where it does not.
    fn turns(
        &mut self,
        mut on: State,
        number: u32,
        label: &'a str,
        step: Option<&'a Instruction>,
    ) -> Result<State, &'static str> {
        let of = Of::Counter(number);
        // A counter has a term from where it is set on, and a label has one only where each way to it has. So what is read here was
        // written, which is no matter of fuel: it would be another tenant's.
        if on.term(of).is_none() && self.tries.is_none() {
            return Err("a counter that is not set on every way");
        }
        let mut back = on.clone();
        let is_counter = matches!(self.events.counter(number), Some(By::Count(_)));
        if is_counter {
            let is_some = on.term(of).is_some_and(|term| term.is_some);
            if is_some {
                on.less(of, false);
            }
            if let Some(term) = on.term(of).filter(|_| !is_some) {
                term.fell = term.fell.saturating_add(1);
            }
            // The counter is one at least behind that, so that it was more.
            back.less(of, true);
            if let Some(term) = back.term(of) {
                term.fell = 0;
            }
        } else {
            if let Some(term) = back.term(of) {
                term.is_some = true;
            }
            if let Some((step, name)) = step.zip(step.and_then(written)) {
                self.writes(&mut on, step, name);
                self.writes(&mut back, step, name);
            }
        }
        if let Some(counter) = self.checked.get(label) {
            let is_less = |(turning, is_less)| turning == number && (is_less || is_counter);
            if *counter != number || !self.turning.take().is_some_and(is_less) {
                return Err("a checked loop that goes back in several places");
            }
        }
        self.arrives(&back, label)?;
        Ok(on)
    }
}

/// The register that an instruction writes.
fn written(instruction: &Instruction) -> Option<&str> {
    match instruction.operands.first() {
        Some(Operand::Register(name)) => Some(name),
        _ => None,
    }
}

/// What a thread is given at first, until it polls and until it looks, where it is claimed to spend so much.
pub fn given(kind: Kind, spends: u64) -> (i64, Option<i64>) {
    let fuel = |most: u64| i64::try_from(most).unwrap_or(0);
    match kind {
        Kind::Looks | Kind::Plain => (fuel(PATH_COST_MAX), Some(fuel(UNLOOKED_COST_MAX))),
        Kind::Short => (fuel(PATH_COST_MAX), Some(fuel(spends.min(SHORT_COST_MAX)))),
        Kind::Gate => (fuel(spends.min(PATH_COST_MAX)), None),
    }
}

/// How often a counter counts at most, with this step.
pub fn turns_of(by: By<'_>, step: Option<i64>) -> Option<u64> {
    all_of(by, step).and_then(|(turns, _)| u64::try_from(turns).ok())
}

/// What all turns of a counter are, with the step that is claimed where it does not say by what a register steps to it.
fn all_of(by: By<'_>, claimed: Option<i64>) -> Option<(i64, Option<Operand>)> {
    let (turns, step) = match by {
        By::Count(turns) => (turns, None),
        By::Step { test, way, .. } => {
            let step = match (way.register(), claimed) {
                (Some(register), _) => Operand::Register(register.to_owned()),
                (None, claimed) => Operand::Integer(claimed?.into()),
            };
            let turns = way.turns(&step)?;
            (turns.checked_add(test.more())?, Some(step))
        }
    };
    i64::try_from(turns).ok().filter(|turns| (1..=1 << 32).contains(turns)).map(|turns| (turns, step))
}

/// Whether an instruction always adds that to a register.
fn is_step(instruction: &Instruction, register: &str, step: &Operand) -> bool {
    let is = |ty: &str| Text(instruction).is(&format!("add.{ty} {register}, {register}, {}", Text(step)));
    instruction.predicate.is_none() && (is("s32") || is("u32"))
}

/// What is left after exactly these instructions.
pub(crate) fn strip<'a>(statements: &'a [Statement], lines: &[&str]) -> Option<&'a [Statement]> {
    let (found, rest) = statements.split_at_checked(lines.len())?;
    let same = found
        .iter()
        .zip(lines)
        .all(|(found, line)| matches!(found, Statement::Instruction(found) if Text(found).is(line)));
    same.then_some(rest)
}

#[cfg(test)]
mod tests;
