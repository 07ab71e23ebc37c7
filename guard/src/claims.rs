//! What is claimed of a body's lanes, of the numbers in its registers and of the fuel that is left, and who works it out.
//!
//! Nobody believes a claim: the verifier checks each that it uses ([`crate::verify`]), and a wrong one is a refusal. So
//! nothing here is trusted, however it comes by what it says.

pub(crate) mod fuel;
pub(crate) mod numbers;
mod same;
pub(crate) mod together;

use std::fmt;
use std::str::FromStr;

use crate::ast::Statement;
use crate::maps::HashMap;
use together::{Body as Kind, Mark, Together};

/// Where the lanes of a warp are before a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// All that are left of the warp come here, each of them as often as the others.
    Together,
    /// Each that comes here goes on to that statement, where they are together, or ends; it waits for nobody before.
    Heading(usize),
    /// Each that comes here ends, and waits for nobody before.
    Ending,
    /// Others may be anywhere.
    Apart,
}

/// What a register holds in the lanes of a warp, wherever it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Uniformity {
    /// The same in all.
    Same,
    /// Where in its row a thread is, or the same in all: what is left of it without its low five bits is the same.
    Row,
    /// Anything.
    Any,
}

/// What is claimed of one body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) lanes: Lanes,
    pub(crate) numbers: numbers::Numbers,
    /// None where it is worked out once all that a body spends is known.
    pub(crate) fuel: Option<fuel::Fuel>,
}

impl Body {
    /// Nothing is claimed, and nothing is worked out.
    pub(crate) fn nothing() -> Self {
        Self { fuel: Some(fuel::Fuel::default()), ..Self::default() }
    }

    /// What can be said of an entry's body, of which a fast version may be launched only where warps are rows.
    pub(crate) fn of(statements: &[Statement], is_fast: bool) -> Self {
        Self { lanes: Lanes::of(statements, is_fast), numbers: numbers::Numbers::of(statements), fuel: None }
    }

    /// Of a gate's body.
    pub(crate) fn of_gate(statements: &[Statement]) -> Self {
        Self { lanes: Lanes::of_gate(statements), numbers: numbers::Numbers::of(statements), fuel: None }
    }
}

/// What is claimed of the lanes of a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// Where lanes are before statements, by their numbers. At a label of which nothing is claimed they are apart; at other
    /// statements it follows.
    pub(crate) places: HashMap<usize, Place>,
    /// Of registers that are not here nothing is claimed.
    pub(crate) registers: HashMap<String, Uniformity>,
    /// Whether no two rows of a block have a warp in common.
    pub(crate) rows: bool,
}

impl Lanes {
    /// What can be said of an entry's body, of which a fast version may be launched only where warps are rows.
    pub(crate) fn of(statements: &[Statement], is_fast: bool) -> Self {
        let (together, of_rows) = if is_fast {
            Together::with_rows(statements)
        } else {
            (Together::of(statements, Kind::Entry, false), None)
        };
        let rows = of_rows.is_some();
        Self { rows, ..Self::from(statements, of_rows.unwrap_or(together)) }
    }

    /// Of a gate's body.
    pub(crate) fn of_gate(statements: &[Statement]) -> Self {
        Self::from(statements, Together::of(statements, Kind::Gate, false))
    }

    fn from(statements: &[Statement], together: Together) -> Self {
        let mut places = HashMap::default();
        // The next statement further down before which they are not on their way.
        let mut next = None;
        for (index, statement) in statements.iter().enumerate().rev() {
            let Some(mark) = together.mark(index) else { continue };
            let behind = statements.get(index + 1..).unwrap_or_default();
            let place = match (statement, mark) {
                (Statement::Label(..), _) if together::ends(behind) => Some(Place::Ending),
                (Statement::Label(..), Mark::Here) => Some(Place::Together),
                (Statement::Label(..), Mark::Apart) => {
                    next.filter(|(_, here)| *here).map(|(to, _)| Place::Heading(to))
                }
                // Where a loop ends that each leaves by itself.
                (_, Mark::Here) => {
                    let before = index.checked_sub(1).and_then(|before| together.mark(before));
                    (before == Some(Mark::Apart)).then_some(Place::Together)
                }
                _ => None,
            };
            places.extend(place.map(|place| (index, place)));
            if mark != Mark::Apart {
                next = Some((index, mark == Mark::Here));
            }
        }
        Self { places, registers: together.registers, rows: false }
    }
}

/// What is claimed of the bodies of a text, by the names of their entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims(pub(crate) HashMap<String, Body>);

impl fmt::Display for Claims {
    /// A line for each claim, in order.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_unstable_by_key(|(name, _)| name.as_str());
        for (name, Body { lanes, numbers, fuel }) in entries {
            writeln!(out, "entry {name}")?;
            if lanes.rows {
                writeln!(out, "rows")?;
            }
            let mut registers: Vec<_> = lanes.registers.iter().collect();
            registers.sort_unstable();
            for (register, uniformity) in registers {
                match uniformity {
                    Uniformity::Same => writeln!(out, "same {register}")?,
                    Uniformity::Row => writeln!(out, "row {register}")?,
                    Uniformity::Any => {}
                }
            }
            let mut places: Vec<_> = lanes.places.iter().collect();
            places.sort_unstable_by_key(|(index, _)| **index);
            for (index, place) in places {
                match place {
                    Place::Together => writeln!(out, "{index} together")?,
                    Place::Heading(to) => writeln!(out, "{index} heading {to}")?,
                    Place::Ending => writeln!(out, "{index} ending")?,
                    Place::Apart => writeln!(out, "{index} apart")?,
                }
            }
            numbers.fmt(out)?;
            fuel.iter().try_for_each(|fuel| fuel.fmt(out))?;
        }
        Ok(())
    }
}

impl FromStr for Claims {
    /// The line that is no claim.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut claims = Self::default();
        let mut body = claims.0.entry(String::new()).or_default();
        for line in text.lines() {
            if body.numbers.read(line).ok_or_else(|| line.to_owned())? {
                continue;
            }
            let lanes = &mut body.lanes;
            let words: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
            let number = |word: &str| word.parse().map_err(|_| line.to_owned());
            let all: Vec<&str> = line.split_ascii_whitespace().take(9).collect();
            let mut fuel = body.fuel.take();
            let is_fuel = fuel.get_or_insert_default().read(&all).ok_or_else(|| line.to_owned())?;
            body.fuel = fuel.filter(|fuel| is_fuel || *fuel != fuel::Fuel::default());
            if is_fuel {
                continue;
            }
            match words.as_slice() {
                ["entry", name] => body = claims.0.entry((*name).to_owned()).or_default(),
                ["rows"] => lanes.rows = true,
                ["same", name] => {
                    lanes.registers.insert((*name).to_owned(), Uniformity::Same);
                }
                ["row", name] => {
                    lanes.registers.insert((*name).to_owned(), Uniformity::Row);
                }
                [at, place @ ..] => {
                    let place = match place {
                        ["together"] => Place::Together,
                        ["heading", to] => Place::Heading(number(to)?),
                        ["ending"] => Place::Ending,
                        ["apart"] => Place::Apart,
                        _ => return Err(line.to_owned()),
                    };
                    lanes.places.insert(number(at)?, place);
                }
                [] => {}
            }
        }
        // What stands before the first entry is of none.
        claims.0.remove("");
        Ok(claims)
    }
}
