//! What stands against a text.

use crate::ast::{Place, Span};
use crate::report::{Reason, Report};

/// The text's first character.
pub(crate) const FIRST: Span = Span { place: Place { line: 1, column: 1 }, start: 0, end: 1 };

pub(crate) fn refuse(report: &mut Report, span: Span, what: &str) {
    report.add(span, Reason::Unverified(what.to_owned()));
}

pub(crate) fn unverified(what: &str) -> Reason {
    Reason::Unverified(what.to_owned())
}
