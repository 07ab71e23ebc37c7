//! What inlining may cost a module.

use crate::ast::Module;
use crate::limits::{
    CHECK_STATEMENTS_MAX, INLINED_STATEMENT_BYTES, INLINED_STATEMENTS_MIN, OWN_STATEMENT_BYTES,
    OWN_STATEMENTS_MIN, TRIED_STATEMENTS_MAX,
};

/// Whether the accesses of an entry are looked at, where its session asks for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    /// All of them are.
    All,
    /// Too little is left for all of them.
    Short,
    /// None is.
    None,
}

/// How much calls may add to a module yet, and how many statements may be gone through to try out bounds.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    /// Statements that may be inlined.
    pub(super) inlined: usize,
    /// Of how many at first.
    pub(super) most: usize,
    /// Statements of our own functions.
    pub(super) own: usize,
    /// Of how many at first.
    pub(super) most_own: usize,
    /// Statements of checks, which the session asked for and the module did not write.
    pub(super) checks: usize,
    /// Whether what is inlined is a check.
    pub(super) checking: bool,
    pub(super) looks: Looks,
    pub(super) trials: usize,
    /// Whether it was said that too little is left.
    pub(super) told: bool,
}

impl Budget {
    /// The budget of a module, which grows with its text.
    pub(crate) fn of(module: &Module) -> Self {
        let bytes = module.header.text.end as usize;
        let most = INLINED_STATEMENTS_MIN + bytes / INLINED_STATEMENT_BYTES;
        let most_own = OWN_STATEMENTS_MIN + bytes / OWN_STATEMENT_BYTES;
        Self {
            inlined: most,
            most,
            own: most_own,
            most_own,
            checks: CHECK_STATEMENTS_MAX,
            checking: false,
            looks: Looks::All,
            trials: TRIED_STATEMENTS_MAX,
            told: false,
        }
    }

    /// Takes so many statements of what calls may add, for something else that makes a text longer; where too little is
    /// left, whoever asks says so.
    pub(crate) fn takes(&mut self, statements: usize) -> bool {
        let left = self.inlined.checked_sub(statements);
        self.inlined = left.unwrap_or(0);
        self.told |= left.is_none();
        left.is_some()
    }

    /// Whether something was not added for want of it.
    pub(crate) const fn is_exceeded(&self) -> bool {
        self.told
    }

    /// Whether accesses of the entry are looked at.
    pub(crate) const fn looks(&self) -> Looks {
        self.looks
    }

    /// The same before an entry that there were too few checks for: it will not be looked at.
    pub(crate) fn without_checks(self) -> Self {
        Self { looks: Looks::None, ..self }
    }

    /// An entry is done: the next one may be looked at.
    pub(crate) fn look_again(&mut self) {
        self.looks = Looks::All;
    }

    /// How many statements the module may have inlined.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    /// Whether a body of so many statements may be gone through once more.
    pub(crate) fn tries(&mut self, statements: usize) -> bool {
        let left = self.trials.checked_sub(statements);
        self.trials = left.unwrap_or(0);
        left.is_some()
    }
}
