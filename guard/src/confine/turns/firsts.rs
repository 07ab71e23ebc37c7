//! Copies of the first turns of loops, in front of them.

use super::{CHUNK_COST, FIRST_COST, target};

use crate::maps::HashMap;

use crate::ast::Statement;

/// The loops that have a copy of their turns in front, by the label of the copy, which goes on with the loop.
#[derive(Default)]
pub(crate) struct Firsts {
    /// To the label behind both, to which control goes from the copy where the loop is done, directly behind its branch back.
    copies: HashMap<String, String>,
    /// The label of the copy, by that of the loop.
    rests: HashMap<String, String>,
}

impl Firsts {
    pub(crate) fn add(&mut self, label: String, behind: String, rest: String) {
        self.rests.insert(rest, label.clone());
        self.copies.insert(label, behind);
    }

    /// The label behind a copy and its loop.
    pub(crate) fn behind(&self, label: &str) -> Option<&str> {
        self.copies.get(label).map(String::as_str)
    }

    /// Whether a loop is such a copy, or has one.
    pub(crate) fn has(&self, label: &str) -> bool {
        self.copies.contains_key(label) || self.rests.contains_key(label)
    }

    /// Whether a loop is such a copy.
    pub(crate) fn is_copy(&self, label: &str) -> bool {
        self.copies.contains_key(label)
    }

    /// Whether a copy goes back here, of which nothing is known but what the branch behind it says: what its count is, its
    /// test does not tell.
    pub(crate) fn goes_back(&self, copy: Option<&str>, statement: &Statement) -> bool {
        copy.is_some() && target(statement) == copy
    }

    /// What all turns of a loop up to a poll may cost that has no loops inside.
    pub(super) fn chunk(&self, label: &str) -> u64 {
        if self.copies.contains_key(label) {
            FIRST_COST
        } else if self.rests.contains_key(label) {
            CHUNK_COST - FIRST_COST
        } else {
            CHUNK_COST
        }
    }
}
