//! Who works out what is claimed of a text: of its lanes, of the numbers in its registers and of the fuel that is left.
//!
//! Nobody believes a claim: the verifier checks each that it uses ([`bulkhead_verifier`]), and a wrong one is a refusal. So
//! nothing here is trusted, however it comes by what it says.

pub(crate) mod fuel;
pub(crate) mod numbers;
mod same;
pub(crate) mod together;

use std::borrow::Cow;

use bulkhead_verifier::Claimant;
use bulkhead_verifier::claims::fuel::Fuel;
use bulkhead_verifier::claims::{Body, Claims, Lanes, LanesAt};
use bulkhead_verifier::fuel::Events;

use crate::ast::Statement;
use crate::maps::HashMap;
use together::{Body as Kind, Mark, Together};

/// Works out what can be claimed of each body that it is asked about, and writes it down.
#[derive(Debug, Default)]
pub(crate) struct Claiming(pub(crate) Claims);

impl Claimant<'static> for Claiming {
    fn entry(&mut self, entry: &str, statements: &[Statement], is_fast: bool) -> Cow<'static, Body> {
        let body =
            Body { lanes: lanes_of(statements, is_fast), numbers: numbers::of(statements), fuel: None };
        self.0.0.insert(entry.to_owned(), Box::new(body.clone()));
        Cow::Owned(body)
    }

    fn gate(&mut self, _: &str, statements: &[Statement]) -> Cow<'static, Body> {
        Cow::Owned(Body { lanes: lanes_of_gate(statements), numbers: numbers::of(statements), fuel: None })
    }

    fn fuel(&mut self, entry: &str, events: &Events<'_>, turns: &dyn Fn(&str) -> Option<u64>) -> Fuel {
        let fuel = fuel::of(events, turns);
        if let Some(body) = self.0.0.get_mut(entry) {
            body.fuel = Some(fuel.clone());
        }
        fuel
    }
}

/// What can be said of an entry's body, of which a fast version may be launched only where warps are rows.
pub(crate) fn lanes_of(statements: &[Statement], is_fast: bool) -> Lanes {
    let (together, of_rows) = if is_fast {
        Together::with_rows(statements)
    } else {
        (Together::of(statements, Kind::Entry, false), None)
    };
    let rows = of_rows.is_some();
    Lanes { rows, ..places_of(statements, of_rows.unwrap_or(together)) }
}

/// Works out the fuel of bodies of which somebody claims the rest.
pub(crate) struct Completing<'c>(pub(crate) &'c Claims);

impl<'c> Claimant<'c> for Completing<'c> {
    fn entry(&mut self, entry: &str, _: &[Statement], _: bool) -> Cow<'c, Body> {
        self.0.0.get(entry).map_or_else(|| Cow::Owned(Body::default()), |body| Cow::Borrowed(body.as_ref()))
    }

    fn gate(&mut self, name: &str, statements: &[Statement]) -> Cow<'c, Body> {
        self.entry(name, statements, false)
    }

    fn fuel(&mut self, _: &str, events: &Events<'_>, turns: &dyn Fn(&str) -> Option<u64>) -> Fuel {
        fuel::of(events, turns)
    }
}

/// Of a gate's body.
fn lanes_of_gate(statements: &[Statement]) -> Lanes {
    places_of(statements, Together::of(statements, Kind::Gate, false))
}

fn places_of(statements: &[Statement], together: Together) -> Lanes {
    let mut places = HashMap::default();
    // The next statement further down before which they are not on their way.
    let mut next = None;
    for (index, statement) in statements.iter().enumerate().rev() {
        let Some(mark) = together.mark(index) else { continue };
        let behind = statements.get(index + 1..).unwrap_or_default();
        let place = match (statement, mark) {
            (Statement::Label(..), _) if together::ends(behind) => Some(LanesAt::Ending),
            (Statement::Label(..), Mark::Here) => Some(LanesAt::Together),
            (Statement::Label(..), Mark::Apart) => {
                next.filter(|(_, here)| *here).map(|(to, _)| LanesAt::Heading(to))
            }
            // Where a loop ends that each leaves by itself.
            (_, Mark::Here) => {
                let before = index.checked_sub(1).and_then(|before| together.mark(before));
                (before == Some(Mark::Apart)).then_some(LanesAt::Together)
            }
            _ => None,
        };
        places.extend(place.map(|place| (index, place)));
        if mark != Mark::Apart {
            next = Some((index, mark == Mark::Here));
        }
    }
    Lanes { places, registers: together.registers, rows: false }
}
