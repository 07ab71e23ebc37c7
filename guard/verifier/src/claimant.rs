//! Who claims something of a text, and when it is asked.

use std::borrow::Cow;

use crate::ast::Statement;
use crate::claims::fuel::Fuel;
use crate::claims::{Body, Claims};
use crate::fuel::Events;
use crate::maps::HashSet;

/// Who claims something of the bodies of a text, while it is verified.
pub trait Claimant<'c> {
    /// What is claimed of an entry's body, by its name in the text; whether it is a fast version.
    fn entry(&mut self, name: &str, statements: &[Statement], is_fast: bool) -> Cow<'c, Body>;

    /// What is claimed of a gate's body.
    fn gate(&mut self, name: &str, statements: &[Statement]) -> Cow<'c, Body>;

    /// What is claimed of the fuel of a body of which nothing was claimed of that before (`Body::fuel` is none). All that the
    /// body spends is known now, and how often a label is come to at most.
    fn fuel(&mut self, name: &str, events: &Events<'_>, turns: &dyn Fn(&str) -> Option<u64>) -> Fuel;
}

/// What was claimed before. It goes to the first entry of a name: others of it are refused in any case, and would
/// read all of it again.
pub(crate) struct Somebody<'c> {
    claims: &'c Claims,
    said: HashSet<&'c str>,
}

impl<'c> Somebody<'c> {
    pub(crate) fn new(claims: &'c Claims) -> Self {
        Self { claims, said: HashSet::default() }
    }
}

impl<'c> Claimant<'c> for Somebody<'c> {
    fn entry(&mut self, name: &str, _: &[Statement], _: bool) -> Cow<'c, Body> {
        match self.claims.0.get_key_value(name) {
            Some((name, claimed)) if self.said.insert(name.as_str()) => Cow::Borrowed(claimed),
            _ => Cow::Owned(Body::nothing()),
        }
    }

    fn gate(&mut self, name: &str, statements: &[Statement]) -> Cow<'c, Body> {
        self.entry(name, statements, false)
    }

    fn fuel(&mut self, _: &str, _: &Events<'_>, _: &dyn Fn(&str) -> Option<u64>) -> Fuel {
        Fuel::default()
    }
}
