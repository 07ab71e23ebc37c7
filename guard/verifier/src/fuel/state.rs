//! What fuel is left at a place.

use super::Kind;
use super::checker::given;

pub(super) const LATE: &str = "the flag is not looked at in time";
/// What may be claimed as left, whichever way: far from where numbers end.
pub(super) const CLAIMED_MAX: i64 = 1 << 60;

/// What `e` is of: a counter, or a label that nothing counts the turns of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    Counter(u32),
    Label(u32),
}

/// What is known of an `e`, and how much fuel is left for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Term {
    pub(super) of: Of,
    /// What it is when its counter has been set.
    pub(super) first: i64,
    /// Whether it is one at least.
    pub(super) is_some: bool,
    /// How far below zero its counter may be.
    pub(super) fell: u32,
    /// For each of it, until the next poll and until the first look.
    pub(super) poll: i64,
    pub(super) look: i64,
}

impl Term {
    /// The number of the counter that it is of, and whether it is one at least.
    pub(super) fn counter(&self) -> Option<(u32, bool)> {
        match self.of {
            Of::Counter(number) => Some((number, self.is_some)),
            Of::Label(_) => None,
        }
    }

    pub(super) fn least(&self) -> i64 {
        i64::from(self.is_some)
    }
}

/// What fuel is left.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Until the next poll, besides what is left for each of the terms.
    pub(super) poll: i64,
    /// Until the first look, where there may have been none.
    pub(super) look: Option<i64>,
    /// In order.
    pub(super) terms: Vec<Term>,
}

impl State {
    pub(super) fn spend(&mut self, cost: u64) -> Result<(), &'static str> {
        let less = i64::try_from(cost).unwrap_or(i64::MAX);
        self.look = self.look.map(|look| look.saturating_sub(less));
        self.spend_until_poll(cost)
    }

    /// Takes so much of what is left until the next poll alone.
    pub(super) fn spend_until_poll(&mut self, cost: u64) -> Result<(), &'static str> {
        self.poll = self.poll.saturating_sub(i64::try_from(cost).unwrap_or(i64::MAX));
        if self.is_some() { Ok(()) } else { Err(LATE) }
    }

    /// What is left at least until the next poll, and until the first look.
    pub(super) fn least(&self) -> (i64, Option<i64>) {
        let sum = |constant: i64, rate: fn(&Term) -> i64| {
            let least = |sum: i64, term: &Term| sum.saturating_add(rate(term) * term.least());
            self.terms.iter().fold(constant, least)
        };
        (sum(self.poll, |term| term.poll), self.look.map(|look| sum(look, |term| term.look)))
    }

    /// Whether nothing is negative, whatever the terms are.
    pub(super) fn is_some(&self) -> bool {
        let (poll, look) = self.least();
        poll >= 0 && look.is_none_or(|look| look >= 0)
    }

    /// What is left at least of what is given at first.
    pub(super) fn least_given(&self, kind: Kind) -> i64 {
        match (kind, self.least()) {
            (Kind::Gate, (poll, _)) => poll,
            (_, (_, look)) => look.unwrap_or(CLAIMED_MAX),
        }
    }

    pub(super) fn adds(&mut self, poll: i64, look: i64) {
        self.poll = self.poll.saturating_add(poll);
        self.look = self.look.map(|known| known.saturating_add(look));
    }

    pub(super) fn at(&self, of: Of) -> Result<usize, usize> {
        self.terms.binary_search_by_key(&of, |term| term.of)
    }

    pub(super) fn term(&mut self, of: Of) -> Option<&mut Term> {
        let at = self.at(of).ok()?;
        self.terms.get_mut(at)
    }

    /// A term is one less from here on, and at least this.
    pub(super) fn less(&mut self, of: Of, is_some: bool) {
        let Some(term) = self.term(of) else { return };
        term.is_some = is_some;
        let (poll, look) = (term.poll, term.look);
        self.adds(poll, look);
    }

    /// Nothing is known of a term any more.
    pub(super) fn forget(&mut self, of: Of) {
        let Ok(at) = self.at(of) else { return };
        let term = self.terms.remove(at);
        self.adds(term.poll * term.least(), term.look * term.least());
    }

    /// A term begins.
    pub(super) fn begin(&mut self, of: Of, first: i64) {
        self.forget(of);
        let at = self.at(of).unwrap_or_else(|at| at);
        self.terms.insert(at, Term { of, first, is_some: true, fell: 0, poll: 0, look: 0 });
    }

    pub(super) fn polls(&mut self) {
        (self.poll, self.look) = (given(Kind::Looks, 0).0, None);
        self.terms.iter_mut().for_each(|term| (term.poll, term.look) = (0, 0));
    }

    /// What is left besides the terms of a claim, until the next poll and until the first look; none where not all of those
    /// are there.
    pub(super) fn besides(&self, claim: &Self) -> Option<(i64, Option<i64>)> {
        let (mut poll, mut look) = (self.poll, self.look);
        let mut own = self.terms.iter().peekable();
        // What is left for a term and not claimed is left besides; what is claimed beyond it has to be there for all of the term.
        let mut pays = |term: &Term, claimed: (i64, i64)| {
            let pay = |more: i64| if more > 0 { more * term.first } else { more * term.least() };
            poll = poll.saturating_sub(pay(claimed.0 - term.poll));
            look = look.map(|look| look.saturating_sub(pay(claimed.1 - term.look)));
        };
        for claimed in &claim.terms {
            while let Some(term) = own.next_if(|term| term.of < claimed.of) {
                pays(term, (0, 0));
            }
            let term = own.next_if(|term| term.of == claimed.of)?;
            if (claimed.is_some && !term.is_some) || term.fell > claimed.fell {
                return None;
            }
            pays(term, (claimed.poll, claimed.look));
        }
        own.for_each(|term| pays(term, (0, 0)));
        Some((poll, look))
    }

    /// Whether as much is left as a claim has.
    pub(super) fn implies(&self, claim: &Self) -> bool {
        self.besides(claim).is_some_and(|(poll, look)| {
            poll >= claim.poll && look.is_none_or(|look| claim.look.is_some_and(|claimed| look >= claimed))
        })
    }
}
