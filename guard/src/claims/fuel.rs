//! What can be claimed of the fuel that is left at labels.
//!
//! Loops are those that counters, or claims of turns, end. What a loop spends in one turn is what all its statements cost. One pass
//! in the order of the text finds that, and so which terms a label has. What is left besides is tried out with the checker.

use std::fmt;

use crate::ast::{Instruction, Operand};
use crate::limits::{PATH_COST_MAX, SHORT_COST_MAX};
use crate::maps::HashMap;
use crate::verify::fuel::{self as verify, Event, Events, Kind};
use crate::verify::turns::By;

/// What a claimed term is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Of {
    /// The counter of this number.
    Counter(u32),
    /// A label of which it is claimed how often it is come to.
    Label(String),
}

/// What is claimed of a term at a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) of: Of,
    /// Whether it is one at least.
    pub(crate) is_some: bool,
    /// How far below zero its counter may be.
    pub(crate) fell: u32,
    /// How much fuel is left for each of it: until the next poll, and until the first look.
    pub(crate) poll: u64,
    pub(crate) look: u64,
}

/// What is claimed to be left at a label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AtLabel {
    /// Until the next poll, besides what is left for each term.
    pub(crate) poll: i64,
    /// Until the first look; none where there has been one.
    pub(crate) look: Option<i64>,
    pub(crate) terms: Vec<Term>,
}

/// What is claimed of one body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fuel {
    /// What a thread spends at most, where nothing looks at the flag.
    pub(crate) entry: u64,
    /// By which step registers come to counters that do not say so themselves.
    pub(crate) steps: HashMap<u32, i64>,
    pub(crate) labels: HashMap<String, AtLabel>,
}

/// A loop.
struct Loop<'a> {
    of: Of,
    label: &'a str,
    by: Option<By<'a>>,
    /// What all statements before it cost, and what its further turns add.
    cost: u64,
    added: u64,
    /// Which label it is, and up to which it goes back.
    from: usize,
    to: usize,
    /// What it spends in a turn, and how often it turns.
    turn: u64,
    most: u64,
    /// Behind which label its counter, or its register, is one step further.
    stepped: Option<usize>,
    /// Whether it is tested before its step.
    late: bool,
    /// Behind which labels it went back.
    backs: Vec<usize>,
    /// How many looks and polls there were before it; and whether there were more where it goes back.
    looks: usize,
    looked: bool,
}

/// Where the pass is.
#[derive(Default)]
struct Pass<'a> {
    /// What all statements so far cost, turns included.
    cost: u64,
    labels: Vec<&'a str>,
    loops: Vec<Loop<'a>>,
    /// Which of them begins at a label, and which is of a counter.
    heads: HashMap<&'a str, usize>,
    counters: HashMap<u32, usize>,
    /// The counter that was set for the next label.
    set: Option<(u32, By<'a>)>,
    /// Of registers, which loops they step.
    registers: HashMap<&'a str, Vec<usize>>,
    steps: HashMap<u32, i64>,
    looks: usize,
}

impl Fuel {
    /// What can be said of a body. `turns` tells of labels how often they are come to at most.
    pub(crate) fn of<'a>(events: &Events<'a>, turns: impl Fn(&str) -> Option<u64>) -> Self {
        let mut pass = Pass::default();
        for event in events.all() {
            pass.event(event, &turns);
        }
        let mut fuel = pass.claims();
        let given = match events.kind() {
            Kind::Short => SHORT_COST_MAX,
            Kind::Gate => PATH_COST_MAX,
            Kind::Looks | Kind::Plain => 0,
        };
        fuel.entry = given;
        let (left, least) = events.left(&fuel, turns);
        // What is left over in the end need not be given.
        let least = if given > 0 { least } else { 0 };
        fuel.entry =
            i64::try_from(given).ok().and_then(|given| u64::try_from(given - least).ok()).unwrap_or(0);
        for (label, (poll, look)) in left {
            if let Some(claim) = fuel.labels.get_mut(label) {
                let (of_poll, of_look) = if events.kind() == Kind::Gate { (least, 0) } else { (0, least) };
                (claim.poll, claim.look) = (poll - of_poll, look.map(|look| look - of_look));
            }
        }
        fuel
    }
}

impl<'a> Pass<'a> {
    fn event(&mut self, event: Event<'a>, turns: &impl Fn(&str) -> Option<u64>) {
        match event {
            Event::Costs(cost) => self.cost = self.cost.saturating_add(cost),
            Event::Label(name) => self.label(name, turns(name)),
            Event::Look(cost) => {
                self.cost = self.cost.saturating_add(cost);
                self.looks += 1;
            }
            Event::Poll => self.looks += 1,
            Event::Register(instruction, name) => self.register(instruction, name),
            Event::Set(number, by) => self.set = Some((number, by)),
            Event::Turns(number, label, step) => self.turns(number, label, step),
            Event::Goes(label) => {
                if let Some(at) = self.heads.get(label).copied()
                    && let Some(Loop { by: None, most, .. }) = self.loops.get(at)
                {
                    self.back(at, *most, *most);
                }
            }
            Event::Writes | Event::Checked(..) | Event::Ends => {}
        }
    }

    fn label(&mut self, name: &'a str, turns: Option<u64>) {
        let of = match (self.set.take(), turns) {
            (Some((number, by)), _) => Some((Of::Counter(number), Some(by), 0)),
            (None, Some(turns)) => Some((Of::Label(name.to_owned()), None, turns)),
            (None, None) => None,
        };
        if let Some((of, by, most)) = of {
            let number = self.loops.len();
            if let Of::Counter(counter) = of {
                self.counters.insert(counter, number);
            }
            if let Some(By::Step { register, .. }) = by {
                self.registers.entry(register).or_default().push(number);
            }
            self.heads.insert(name, number);
            let at = self.labels.len();
            self.loops.push(Loop {
                of,
                label: name,
                by,
                cost: self.cost,
                added: 0,
                from: at,
                to: at,
                turn: 0,
                most,
                stepped: None,
                late: false,
                backs: Vec::new(),
                looks: self.looks,
                looked: false,
            });
        }
        self.labels.push(name);
    }

    /// A register is written: the first step of loops that it leads to the end of.
    fn register(&mut self, instruction: &'a Instruction, name: &str) {
        // Once for each: the first step is the one that counts.
        for number in self.registers.remove(name).into_iter().flatten() {
            let Some(found) = self.loops.get_mut(number) else { continue };
            found.stepped = Some(self.labels.len());
            let Of::Counter(counter) = found.of else { continue };
            if let Some(Operand::Integer(step)) = instruction.operands.get(2) {
                self.steps.extend(i64::try_from(*step).ok().map(|step| (counter, step)));
            }
        }
    }

    fn turns(&mut self, number: u32, label: &'a str, step: Option<&'a Instruction>) {
        let Some(at) = self.counters.get(&number).copied() else { return };
        let Some(found) = self.loops.get_mut(at) else { return };
        if let Some(step) = step.filter(|_| found.stepped.is_none()) {
            found.late = true;
            if let Some(Operand::Integer(step)) = step.operands.get(2) {
                self.steps.extend(i64::try_from(*step).ok().map(|step| (number, step)));
            }
        }
        let step = self.steps.get(&number).copied();
        let turns = found.by.and_then(|by| verify::turns_of(by, step));
        let late = u64::from(found.late);
        if let Some(turns) = turns {
            self.back(at, turns, turns.saturating_add(late));
        }
        if let Some(found) = self.loops.get_mut(at).filter(|found| found.label == label) {
            found.backs.push(self.labels.len());
        }
    }

    /// A loop goes back here, of which a term is at most so much at first, and turns so often.
    fn back(&mut self, at: usize, most: u64, turns: u64) {
        let Some(found) = self.loops.get_mut(at) else { return };
        let once = self.cost.saturating_sub(found.cost).saturating_sub(found.added);
        let more = once.saturating_mul(turns).saturating_sub(once).saturating_sub(found.added);
        (found.turn, found.most, found.to) = (once, most, self.labels.len());
        found.looked = self.looks > found.looks;
        found.added = found.added.saturating_add(more);
        self.cost = self.cost.saturating_add(more);
    }

    /// The terms of labels.
    fn claims(self) -> Fuel {
        let mut labels = HashMap::default();
        let mut loops = self.loops.iter().peekable();
        let mut open: Vec<&Loop<'_>> = Vec::new();
        for (at, label) in self.labels.iter().enumerate() {
            open.retain(|found| at < found.to);
            while let Some(found) = loops.next_if(|found| found.from <= at) {
                // Of more the checker takes none, so that nothing is lost.
                if at < found.to && open.len() <= verify::TERMS_MAX {
                    open.push(found);
                }
            }
            let term = |found: &&Loop<'_>| {
                let backs = found.backs.partition_point(|back| *back <= at);
                let stepped = backs > 0 || found.stepped.is_some_and(|stepped| stepped <= at);
                let is_counter = matches!(found.by, Some(By::Count(_)));
                let poll = found.turn.min(PATH_COST_MAX);
                let look = if found.looked { 0 } else { poll };
                let is_some = !stepped && !found.late;
                // The first takes it to zero at least.
                let fell = u32::try_from(backs.saturating_sub(1)).unwrap_or(u32::MAX);
                Term { of: found.of.clone(), is_some, fell: if is_counter { fell } else { 0 }, poll, look }
            };
            let terms = open.iter().map(term).collect();
            labels.insert((*label).to_owned(), AtLabel { poll: 0, look: None, terms });
        }
        Fuel { entry: 0, steps: self.steps, labels }
    }
}

impl fmt::Display for Fuel {
    /// A line for each claim, in order.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "spends {}", self.entry)?;
        let mut steps: Vec<_> = self.steps.iter().collect();
        steps.sort_unstable();
        for (counter, step) in steps {
            writeln!(out, "steps {counter} {step}")?;
        }
        let mut labels: Vec<_> = self.labels.iter().collect();
        labels.sort_unstable_by_key(|(label, _)| label.as_str());
        for (label, AtLabel { poll, look, terms }) in labels {
            match look {
                Some(look) => writeln!(out, "fuel {label} {poll} {look}")?,
                None => writeln!(out, "fuel {label} {poll}")?,
            }
            for Term { of, is_some, fell, poll, look } in terms {
                let least = if *is_some { "some" } else { "any" };
                match of {
                    Of::Counter(number) => {
                        writeln!(out, "for {label} counter {number} {least} {fell} {poll} {look}")?
                    }
                    Of::Label(of) => writeln!(out, "for {label} label {of} {least} {fell} {poll} {look}")?,
                }
            }
        }
        Ok(())
    }
}

impl Fuel {
    /// Reads a line: whether it is one of these claims; none where it is one of them and wrong.
    pub(crate) fn read(&mut self, words: &[&str]) -> Option<bool> {
        match words {
            ["spends", entry] => self.entry = entry.parse().ok()?,
            ["steps", counter, step] => drop(self.steps.insert(counter.parse().ok()?, step.parse().ok()?)),
            ["fuel", label, poll, look @ ..] => {
                let look = match look {
                    [] => None,
                    [look] => Some(look.parse().ok()?),
                    _ => return None,
                };
                let at = AtLabel { poll: poll.parse().ok()?, look, terms: Vec::new() };
                self.labels.insert((*label).to_owned(), at);
            }
            ["for", label, of @ ("counter" | "label"), name, least, fell, poll, look] => {
                let of = match *of {
                    "counter" => Of::Counter(name.parse().ok()?),
                    _ => Of::Label((*name).to_owned()),
                };
                let (is_some, fell) = (*least == "some", fell.parse().ok()?);
                let term = Term { of, is_some, fell, poll: poll.parse().ok()?, look: look.parse().ok()? };
                self.labels.get_mut(*label)?.terms.push(term);
            }
            ["spends" | "steps" | "fuel" | "for", ..] => return None,
            _ => return Some(false),
        }
        Some(true)
    }
}
