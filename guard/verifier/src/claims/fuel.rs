//! What may be claimed of the fuel that is left at labels, and how that is written.

use std::fmt;

use crate::maps::HashMap;

/// What a claimed term is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Of {
    /// The counter of this number.
    Counter(u32),
    /// A label of which it is claimed how often it is come to.
    Label(String),
}

/// What is claimed of a term at a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// What it is of.
    pub of: Of,
    /// Whether it is one at least.
    pub is_some: bool,
    /// How far below zero its counter may be.
    pub fell: u32,
    /// How much fuel is left for each of it: until the next poll, and until the first look.
    pub poll: u64,
    /// See `poll`.
    pub look: u64,
}

/// What is claimed to be left at a label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AtLabel {
    /// Until the next poll, besides what is left for each term.
    pub poll: i64,
    /// Until the first look; none where there has been one.
    pub look: Option<i64>,
    /// What is left for each counter, or label whose turns are claimed.
    pub terms: Vec<Term>,
}

/// What is claimed of one body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fuel {
    /// What a thread spends at most, where nothing looks at the flag.
    pub entry: u64,
    /// By which step registers come to counters that do not say so themselves.
    pub steps: HashMap<u32, i64>,
    /// What is left at labels, by their names.
    pub labels: HashMap<String, AtLabel>,
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
    pub fn read(&mut self, words: &[&str]) -> Option<bool> {
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
