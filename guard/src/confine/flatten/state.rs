//! What is known while an entry's body is flattened.

use crate::ast::{Directive, Statement, Variable};
use crate::confine::calls::{Budget, Call, Functions};
use crate::confine::faults::{Faults, Loc};
use crate::confine::frames::Stack;
use crate::confine::scope::Scopes;
use crate::confine::symbols::Symbols;
use crate::confine::variables::Variables;
use crate::gates::Gates;
use crate::maps::HashMap;
use crate::report::Report;

/// An entry's own parameters by name.
pub(crate) type Parameters<'a> = HashMap<&'a str, &'a Variable>;

/// A body without scopes and calls.
#[derive(Debug, Default)]
pub(crate) struct Flat {
    /// Labels and instructions, in order.
    pub(crate) statements: Vec<Statement>,
}

/// Flattens bodies; one for each entry.
pub(crate) struct Flattener<'a> {
    pub(crate) symbols: &'a Symbols,
    pub(crate) parameters: &'a Parameters<'a>,
    pub(crate) functions: &'a Functions<'a>,
    pub(crate) gates: &'a Gates,
    pub(crate) variables: Variables,
    pub(crate) scopes: Scopes,
    /// The functions whose bodies are open.
    pub(crate) calls: Vec<Call<'a>>,
    /// Bytes of each argument of a call, by the name that it was given.
    pub(crate) arguments: HashMap<String, Option<u64>>,
    /// What calls and branches may go to, as labels list it.
    pub(crate) lists: Vec<&'a Directive>,
    /// What accesses that are looked at tell.
    pub(crate) faults: &'a Faults,
    /// File and line of what is read, as records have them.
    pub(crate) loc: Loc,
    /// What accesses to shared memory are held against.
    pub(crate) held: Vec<Held>,
    /// Where threads leave records and end, if any do.
    pub(crate) stops: Option<Stops>,
    /// The stack of functions that call themselves, where there are any.
    pub(crate) stack: Option<Stack>,
    /// How many calls and braces are open.
    pub(crate) depth: usize,
    /// What calls may add to the module yet.
    pub(crate) budget: &'a mut Budget,
    pub(crate) report: &'a mut Report,
    /// The parameter whose address may be taken.
    pub(crate) in_place: Option<&'a str>,
}

/// What accesses to an entry's shared memory are held against: where that begins and ends, and whether it is an array of
/// several. These are the names of registers that are not there yet, and behind them the register of the address.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bounds: [String; 3],
    pub(crate) address: String,
}

/// Where threads of an entry leave records and end: the label, and the registers that say which records.
#[derive(Debug)]
pub(crate) struct Stops {
    pub(crate) label: String,
    /// What happened, the line, the file, and the line of the PTX.
    pub(crate) words: [String; 4],
    pub(crate) told: String,
}
