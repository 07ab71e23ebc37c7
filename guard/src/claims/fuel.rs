//! What can be claimed of the fuel that is left at labels.
//!
//! Loops are those that counters, or claims of turns, end. What a loop spends in one turn is what all its statements cost. One pass
//! in the order of the text finds that, and so which terms a label has. What is left besides is tried out with the checker.

use crate::ast::{Instruction, Operand};
use crate::limits::{PATH_COST_MAX, SHORT_COST_MAX};
use crate::maps::HashMap;
use crate::spent::Spent;
use bulkhead_verifier::claims::fuel::{AtLabel, Fuel, Of, Term};
use bulkhead_verifier::fuel::{self as verify, Event, Events, Kind};
use bulkhead_verifier::turns::By;

/// A loop.
struct Loop<'a> {
    of: Of,
    label: &'a str,
    by: Option<By<'a>>,
    /// What all statements before it cost, and what its further turns add.
    cost: Spent,
    added: Spent,
    /// Which label it is, and up to which it goes back.
    from: usize,
    to: usize,
    /// What it spends in a turn, and how often it turns.
    turn: Spent,
    most: u64,
    /// Behind which label its counter, or its register, is one step further.
    stepped: Option<usize>,
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
    cost: Spent,
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

/// What can be said of a body. `turns` tells of labels how often they are come to at most.
pub(crate) fn of<'a>(events: &Events<'a>, turns: impl Fn(&str) -> Option<u64>) -> Fuel {
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
    fuel.entry = i64::try_from(given)
        .ok()
        .and_then(|given| u64::try_from(given.saturating_sub(least)).ok())
        .unwrap_or(0);
    for (label, (poll, look)) in left {
        if let Some(claim) = fuel.labels.get_mut(label) {
            let (of_poll, of_look) = if events.kind() == Kind::Gate { (least, 0) } else { (0, least) };
            (claim.poll, claim.look) =
                (poll.saturating_sub(of_poll), look.map(|look| look.saturating_sub(of_look)));
        }
    }
    fuel
}

impl<'a> Pass<'a> {
    fn event(&mut self, event: Event<'a>, turns: &impl Fn(&str) -> Option<u64>) {
        match event {
            Event::Costs(cost) => self.cost = self.cost.plus(Spent::both(cost)),
            Event::BlockWait(cost) => self.cost = self.cost.plus(Spent { poll: cost, look: 0 }),
            Event::Label(name) => self.label(name, turns(name)),
            Event::Look(cost) => {
                self.cost = self.cost.plus(Spent::both(cost));
                self.looks += 1;
            }
            Event::Poll => self.looks += 1,
            Event::Register(instruction, name) => self.register(instruction, name),
            Event::Set(number, by) => self.set = Some((number, by)),
            Event::Turns(number, label) => self.turns(number, label),
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
                added: Spent::default(),
                from: at,
                to: at,
                turn: Spent::default(),
                most,
                stepped: None,
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

    fn turns(&mut self, number: u32, label: &'a str) {
        let Some(at) = self.counters.get(&number).copied() else { return };
        let Some(found) = self.loops.get_mut(at) else { return };
        let step = self.steps.get(&number).copied();
        let turns = found.by.and_then(|by| verify::turns_of(by, step));
        if let Some(turns) = turns {
            self.back(at, turns, turns);
        }
        if let Some(found) = self.loops.get_mut(at).filter(|found| found.label == label) {
            found.backs.push(self.labels.len());
        }
    }

    /// A loop goes back here, of which a term is at most so much at first, and turns so often.
    fn back(&mut self, at: usize, most: u64, turns: u64) {
        let Some(found) = self.loops.get_mut(at) else { return };
        let once = self.cost.minus(found.cost).minus(found.added);
        let more = once.times(turns).minus(once).minus(found.added);
        (found.turn, found.most, found.to) = (once, most, self.labels.len());
        found.looked = self.looks > found.looks;
        found.added = found.added.plus(more);
        self.cost = self.cost.plus(more);
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
                let poll = found.turn.poll.min(PATH_COST_MAX);
                let look = if found.looked { 0 } else { found.turn.look.min(PATH_COST_MAX) };
                let is_some = !stepped;
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
