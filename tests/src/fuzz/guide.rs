//! Leads an attacker through the whole schema: each method of each interface is called until it has answered, with
//! arguments that do not fit too, and until it has refused.
//!
//! What leads where is found out from the schema: a method's results make what others need. Nothing happens at the same
//! time, so that what is reached does not hang on chance.

use std::rc::Rc;

use super::{
    arguments::Manner,
    attacker::Attacker,
    coverage::Outcome,
    message::{Message, Target},
    schema::{Interface, Method},
};

/// How often a method is tried before the next has its turn.
const TRIES_MAX: u32 = 200;
/// How often one of them is called in a row while others wait.
const ROW: u32 = 6;

/// One method of one interface, and what was reached.
#[derive(Debug)]
struct Stop {
    method: (usize, usize),
    /// Ends what it is called on.
    ends: bool,
    can_refuse: bool,
    tries: u32,
    answered: bool,
    hostile: bool,
    refused: bool,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Leg {
    /// Asks for the first capability.
    Bootstrap,
    /// Calls before the greeting.
    Early,
    /// Has everything answered that ends nothing.
    Answers,
    /// Calls everything with arguments that do not fit.
    Hostile,
    /// Has everything answered that ends something.
    Ends,
    /// Has everything refused: most of what there was is gone.
    Refusals,
    /// Nothing more.
    Done,
}

/// The way through the schema.
pub(super) struct Guide {
    stops: Vec<Stop>,
    leg: Leg,
    /// Which stop is next, in legs that go to each once.
    next: usize,
    /// The stop that is being made.
    at: Option<usize>,
    manner: Manner,
}

impl Guide {
    pub(super) fn new(interfaces: &[Interface]) -> Self {
        let mut stops: Vec<Stop> = Vec::new();
        for (at, interface) in interfaces.iter().enumerate() {
            for (number, method) in interface.methods.iter().enumerate() {
                stops.push(Stop {
                    method: (at, number),
                    ends: method.name == "close",
                    can_refuse: method.can_refuse(),
                    tries: 0,
                    answered: false,
                    hostile: false,
                    refused: false,
                });
            }
        }
        // Whatever much hangs on ends last.
        let reach = reach(interfaces);
        stops.sort_by_key(|stop| {
            (stop.ends, if stop.ends { reach.get(stop.method.0).copied().unwrap_or(0) } else { 0 })
        });
        Self { stops, leg: Leg::Bootstrap, next: 0, at: None, manner: Manner::Honest }
    }

    /// Notes how the latest call ended.
    pub(super) fn ended(&mut self, outcome: Outcome) {
        let Some(stop) = self.at.and_then(|at| self.stops.get_mut(at)) else { return };
        match outcome {
            Outcome::Answered => stop.answered |= self.manner == Manner::Honest,
            Outcome::Refused => stop.refused = true,
            Outcome::Failed => {}
        }
    }

    /// The next message, if there is anything left to do.
    pub(super) fn next(&mut self, attacker: &mut Attacker) -> Option<Message> {
        while self.leg != Leg::Done {
            let message = match self.leg {
                Leg::Bootstrap => (self.next == 0).then(|| {
                    self.next = 1;
                    Message::Bootstrap(attacker.ask(None, false))
                }),
                Leg::Early => self.early(attacker),
                Leg::Answers => self.answer(attacker, false),
                Leg::Hostile => self.hostile(attacker),
                Leg::Ends => self.answer(attacker, true),
                Leg::Refusals => self.refusal(attacker),
                Leg::Done => None,
            };
            if message.is_some() {
                return message;
            }
            (self.next, self.at) = (0, None);
            self.stops.iter_mut().for_each(|stop| stop.tries = 0);
            self.leg = match self.leg {
                Leg::Bootstrap => Leg::Early,
                Leg::Early => Leg::Answers,
                Leg::Answers => Leg::Hostile,
                Leg::Hostile => Leg::Ends,
                Leg::Ends => Leg::Refusals,
                Leg::Refusals | Leg::Done => Leg::Done,
            };
        }
        None
    }

    fn early(&mut self, attacker: &mut Attacker) -> Option<Message> {
        let first = attacker.first();
        while let Some(stop) = self.stops.get(self.next) {
            self.next += 1;
            // The greeting is the first method.
            if Some(stop.method.0) == first && stop.method.1 > 0 {
                return self.call(attacker, self.next - 1, Manner::Honest);
            }
        }
        None
    }

    /// The next of what is still to be answered.
    fn answer(&mut self, attacker: &mut Attacker, ends: bool) -> Option<Message> {
        // A few of one in a row: what the first of them lacks, the others may find.
        let most = |stop: &Stop| stop.tries / ROW;
        let waiting = self.stops.iter().enumerate().filter(|(_, stop)| {
            stop.ends == ends && !stop.answered && stop.tries < TRIES_MAX && callable(attacker, stop.method)
        });
        let at = waiting.min_by_key(|(_, stop)| most(stop)).map(|(at, _)| at)?;
        let stop = self.stops.get_mut(at)?;
        stop.tries += 1;
        if stop.tries.is_multiple_of(2)
            && let Some(source) = self.source(attacker)
        {
            return self.call(attacker, source, Manner::Honest);
        }
        self.call(attacker, at, Manner::Honest)
    }

    /// Something that has answered before, and mostly makes capabilities: what is lacking may come of it.
    fn source(&self, attacker: &mut Attacker) -> Option<usize> {
        let interfaces = Rc::clone(&attacker.interfaces);
        let cheap = !attacker.dice.once_in(6);
        let any = attacker.dice.once_in(3);
        let makes = |stop: &Stop| {
            let method = method(&interfaces, stop.method);
            method.is_some_and(|method| {
                let wanted = !(cheap && dear(&method.name)) && method.name != "revoke";
                wanted && (any || !method.capabilities.is_empty())
            })
        };
        let sources = self.stops.iter().enumerate();
        let sources = sources.filter(|(_, stop)| {
            stop.answered && !stop.ends && makes(stop) && callable(attacker, stop.method)
        });
        let sources: Vec<usize> = sources.map(|(at, _)| at).collect();
        attacker.dice.one(&sources).copied()
    }

    fn hostile(&mut self, attacker: &mut Attacker) -> Option<Message> {
        while self.next < self.stops.len() {
            self.next += 1;
            let at = self.next - 1;
            if let Some(stop) = self.stops.get_mut(at)
                && callable(attacker, stop.method)
            {
                stop.hostile = true;
                // What takes no arguments would end what is still needed.
                let interfaces = &attacker.interfaces;
                let harmless =
                    !stop.ends && method(interfaces, stop.method).is_some_and(|known| known.name != "revoke");
                if harmless {
                    return self.call(attacker, at, Manner::Hostile);
                }
                stop.hostile = false;
            }
        }
        None
    }

    fn refusal(&mut self, attacker: &mut Attacker) -> Option<Message> {
        let waiting = self.stops.iter().enumerate().filter(|(_, stop)| {
            let lacks = (stop.can_refuse && !stop.refused && stop.tries < TRIES_MAX / 4) || !stop.hostile;
            lacks && stop.tries < TRIES_MAX && callable(attacker, stop.method)
        });
        let at = waiting.min_by_key(|(_, stop)| stop.tries).map(|(at, _)| at)?;
        let stop = self.stops.get_mut(at)?;
        stop.tries += 1;
        stop.hostile = true;
        self.call(attacker, at, Manner::Hostile)
    }

    fn call(&mut self, attacker: &mut Attacker, at: usize, manner: Manner) -> Option<Message> {
        let stop = self.stops.get(at)?;
        let exact = stop.tries < 12;
        let targets = targets(attacker, stop.method.0, exact);
        let target = attacker.latest(&targets).copied()?;
        (self.at, self.manner) = (Some(at), manner);
        Some(attacker.call_on(Target::Import(target), stop.method, manner))
    }
}

/// What is opened, and what starts a compiler.
fn dear(name: &str) -> bool {
    name == "openSession" || name == "loadImage" || name == "open"
}

fn method(interfaces: &[Interface], (interface, method): (usize, usize)) -> Option<&Method> {
    interfaces.get(interface).and_then(|interface| interface.methods.get(method))
}

/// What is known to be of an interface, or of one that extends it where there is no other or none is asked for.
fn targets(attacker: &Attacker, interface: usize, exact: bool) -> Vec<u32> {
    let of = |fits: &dyn Fn(usize) -> bool| -> Vec<u32> {
        let known = attacker.exports.iter().filter(|export| export.interface.is_some_and(fits));
        known.map(|export| export.id).collect()
    };
    let own = of(&|known| known == interface);
    if exact && !own.is_empty() {
        return own;
    }
    of(&|known| attacker.interfaces.get(known).is_some_and(|known| known.is.contains(&interface)))
}

fn callable(attacker: &Attacker, method: (usize, usize)) -> bool {
    !targets(attacker, method.0, false).is_empty()
}

/// Of how many interfaces each one leads to capabilities.
fn reach(interfaces: &[Interface]) -> Vec<usize> {
    let reach_of = |from: usize| {
        let mut known = vec![from];
        let mut next = 0;
        while let Some(interface) = known.get(next).and_then(|at| interfaces.get(*at)) {
            next += 1;
            for (_, found) in interface.methods.iter().flat_map(|method| &method.capabilities) {
                if !known.contains(found) {
                    known.push(*found);
                }
            }
        }
        known.len()
    };
    (0..interfaces.len()).map(reach_of).collect()
}
