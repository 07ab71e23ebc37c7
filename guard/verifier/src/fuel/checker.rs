//! Holds what a body spends against what is claimed to be left.

use super::state::{CLAIMED_MAX, LATE, Of, State, Term};
use super::{Event, Events, Kind};
use crate::ast::{Instruction, Operand, Span};
use crate::claims::fuel as claimed;
use crate::limits::{PATH_COST_MAX, SHORT_COST_MAX, UNLOOKED_COST_MAX};
use crate::maps::{HashMap, HashSet};
use crate::print::Text;
use crate::refusal::unverified;
use crate::report::Reason;
use crate::turns::By;

/// As [`Events::left`].
pub(super) fn left<'a>(
    events: &Events<'a>,
    claims: &claimed::Fuel,
    turns: impl Fn(&str) -> Option<u64>,
) -> (HashMap<&'a str, (i64, Option<i64>)>, i64) {
    let mut check = Checker::new(events, claims, turns);
    for state in check.claims.values_mut() {
        (state.poll, state.look) = (CLAIMED_MAX, None);
    }
    for _ in 0..TRIED_MAX {
        check.tries = Some((CLAIMED_MAX, false));
        (check.seen, check.here) = (HashSet::default(), Some(check.first.clone()));
        for (event, _) in &events.events {
            check.event(*event).ok();
        }
        if check.tries.is_some_and(|(_, changed)| !changed) {
            break;
        }
    }
    let left = check.claims.iter().map(|(label, state)| (*label, (state.poll, state.look))).collect();
    (left, check.tries.map_or(0, |(least, _)| least))
}

/// As [`Events::check`].
pub(super) fn check(
    events: &Events<'_>,
    claims: &claimed::Fuel,
    turns: impl Fn(&str) -> Option<u64>,
) -> Result<(), (Span, Reason)> {
    let mut check = Checker::new(events, claims, turns);
    for (event, span) in &events.events {
        check.event(*event).map_err(|what| (*span, unverified(what)))?;
    }
    Ok(())
}

/// Terms that a label may claim.
pub const TERMS_MAX: usize = 64;
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
            Event::BlockWait(cost) => {
                let spent = state.spend_until_poll(cost);
                if self.tries.is_none() {
                    spent?;
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
            Event::Turns(number, label) => state = self.turns(state, number, label)?,
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
    fn turns(&mut self, mut on: State, number: u32, label: &'a str) -> Result<State, &'static str> {
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
        } else if let Some(term) = back.term(of) {
            term.is_some = true;
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
