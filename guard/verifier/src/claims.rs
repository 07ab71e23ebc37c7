//! What may be claimed of a body's lanes, of the numbers in its registers and of the fuel that is left, and how that is
//! written.
//!
//! Nobody believes a claim: each that is used is checked, and a wrong one is a refusal.

pub mod fuel;
pub mod numbers;

use std::fmt;
use std::str::FromStr;

use crate::maps::HashMap;

/// Where the lanes of a warp are before a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LanesAt {
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
pub enum Uniformity {
    /// The same in all.
    Same,
    /// Where in its row a thread is, or the same in all: what is left of it without its low five bits is the same.
    Row,
    /// Anything.
    Any,
}

/// What is claimed of one body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    /// Of its lanes.
    pub lanes: Lanes,
    /// Of the numbers in its registers.
    pub numbers: numbers::Numbers,
    /// None where whoever claims is asked once all that a body spends is known ([`Claimant::fuel`](crate::Claimant::fuel)).
    pub fuel: Option<fuel::Fuel>,
}

impl Body {
    /// Nothing is claimed, and nobody is asked.
    pub fn nothing() -> Self {
        Self { fuel: Some(fuel::Fuel::default()), ..Self::default() }
    }
}

/// What is claimed of the lanes of a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lanes {
    /// Where lanes are before statements, by their numbers. At a label of which nothing is claimed they are apart; at other
    /// statements it follows.
    pub places: HashMap<usize, LanesAt>,
    /// Of registers that are not here nothing is claimed.
    pub registers: HashMap<String, Uniformity>,
    /// Whether no two rows of a block have a warp in common.
    pub rows: bool,
}

/// Bodies that a text can have: an entry's, and its fast version's.
const BODIES_MAX: usize = 2 * crate::limits::ENTRIES_MAX;

/// What is claimed of the bodies of a text, by the names of their entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims(pub HashMap<String, Box<Body>>);

impl fmt::Display for Claims {
    /// A line for each claim, in order.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_unstable_by_key(|(name, _)| name.as_str());
        for (name, body) in entries {
            let Body { lanes, numbers, fuel } = &**body;
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
                    LanesAt::Together => writeln!(out, "{index} together")?,
                    LanesAt::Heading(to) => writeln!(out, "{index} heading {to}")?,
                    LanesAt::Ending => writeln!(out, "{index} ending")?,
                    LanesAt::Apart => writeln!(out, "{index} apart")?,
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
                ["entry", name] => {
                    if claims.0.len() > BODIES_MAX {
                        return Err(line.to_owned());
                    }
                    body = claims.0.entry((*name).to_owned()).or_default();
                }
                ["rows"] => lanes.rows = true,
                ["same", name] => {
                    lanes.registers.insert((*name).to_owned(), Uniformity::Same);
                }
                ["row", name] => {
                    lanes.registers.insert((*name).to_owned(), Uniformity::Row);
                }
                [at, place @ ..] => {
                    let place = match place {
                        ["together"] => LanesAt::Together,
                        ["heading", to] => LanesAt::Heading(number(to)?),
                        ["ending"] => LanesAt::Ending,
                        ["apart"] => LanesAt::Apart,
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
