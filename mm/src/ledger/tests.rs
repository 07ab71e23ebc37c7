use std::collections::HashSet;

use super::*;
use crate::testing::{Choices, seeds};

fn limits(each: u64) -> Amounts {
    Resource::ALL.into_iter().fold(Amounts::NONE, |amounts, resource| amounts.with(resource, each))
}

#[test]
fn a_charge_beyond_the_account_changes_nothing() {
    let mut ledger = Ledger::new(limits(100));
    let account = ledger.open(limits(10));
    ledger.charge(account, Resource::Images, 10).unwrap();
    let error = ledger.charge(account, Resource::Images, 1).unwrap_err();
    assert_eq!(
        error,
        LedgerError::AccountLimit { resource: Resource::Images, asked: 1, used: 10, limit: 10 }
    );
    assert!(ledger.charge(account, Resource::Images, u64::MAX).is_err());
    assert_eq!(ledger.used().get(Resource::Images), 10);
}

#[test]
fn a_charge_beyond_an_account_above_changes_nothing() {
    let mut ledger = Ledger::new(Amounts::UNLIMITED);
    let top = ledger.open(limits(10));
    let middle = ledger.open_below(top, Amounts::UNLIMITED).unwrap();
    let (bottom, beside) = (
        ledger.open_below(middle, Amounts::UNLIMITED).unwrap(),
        ledger.open_below(top, Amounts::UNLIMITED).unwrap(),
    );
    ledger.charge(beside, Resource::SwapBytes, 7).unwrap();
    assert_eq!(
        ledger.charge(bottom, Resource::SwapBytes, 4),
        Err(LedgerError::AncestorLimit {
            ancestor: top,
            resource: Resource::SwapBytes,
            asked: 4,
            used: 7,
            limit: 10
        })
    );
    assert_eq!(ledger.used_by(bottom), Amounts::NONE);
    assert_eq!(ledger.used_by(middle), Amounts::NONE);
    assert_eq!(ledger.left(bottom, Resource::SwapBytes), 3);
    ledger.charge(bottom, Resource::SwapBytes, 3).unwrap();
    assert_eq!(ledger.used_by(middle), Amounts::NONE.with(Resource::SwapBytes, 3));
}

#[test]
fn a_charge_beyond_the_whole_changes_nothing() {
    let mut ledger = Ledger::new(limits(15));
    let (first, second) = (ledger.open(limits(10)), ledger.open(limits(10)));
    ledger.charge(first, Resource::DeviceBytes, 10).unwrap();
    assert!(matches!(
        ledger.charge(second, Resource::DeviceBytes, 6),
        Err(LedgerError::TotalLimit { used: 10, limit: 15, .. })
    ));
    assert_eq!(ledger.used_by(second).get(Resource::DeviceBytes), 0);
}

#[test]
fn without_limits_a_sum_still_does_not_wrap_around() {
    let mut ledger = Ledger::new(Amounts::UNLIMITED);
    let (first, second) = (ledger.open(Amounts::UNLIMITED), ledger.open(Amounts::UNLIMITED));
    ledger.charge(first, Resource::Events, u64::MAX).unwrap();
    assert!(matches!(ledger.charge(first, Resource::Events, 1), Err(LedgerError::AccountLimit { .. })));
    assert!(matches!(ledger.charge(second, Resource::Events, 1), Err(LedgerError::TotalLimit { .. })));
}

#[test]
fn a_refund_of_what_was_not_charged_is_an_error() {
    let mut ledger = Ledger::new(limits(15));
    let account = ledger.open(limits(10));
    let below = ledger.open_below(account, limits(10)).unwrap();
    ledger.charge(below, Resource::HostBytes, 2).unwrap();
    assert!(
        matches!(
            ledger.refund(account, Resource::HostBytes, 1),
            Err(LedgerError::Underflow { asked: 1, used: 0, .. })
        ),
        "what was charged below is refunded below"
    );
}

#[test]
fn closing_an_account_refunds_what_it_used() {
    let mut ledger = Ledger::new(limits(15));
    let top = ledger.open(limits(10));
    let account = ledger.open_below(top, limits(10)).unwrap();
    ledger.charge(account, Resource::HostBytes, 7).unwrap();
    assert_eq!(ledger.close(account), Ok(Amounts::NONE.with(Resource::HostBytes, 7)));
    assert_eq!(ledger.used_by(top), Amounts::NONE);
    assert_eq!(ledger.used(), Amounts::NONE);
    assert_eq!(ledger.close(account), Err(LedgerError::NoAccount));
    assert_eq!(ledger.charge(account, Resource::HostBytes, 1), Err(LedgerError::NoAccount));
    assert_eq!(ledger.refund(account, Resource::HostBytes, 0), Err(LedgerError::NoAccount));
    assert_eq!(ledger.open_below(account, limits(1)), Err(LedgerError::NoAccount));
    assert_eq!(ledger.left(account, Resource::HostBytes), 0);
}

#[test]
fn an_account_with_open_accounts_below_is_not_closed() {
    let mut ledger = Ledger::new(limits(15));
    let top = ledger.open(limits(10));
    let below = ledger.open_below(top, limits(10)).unwrap();
    assert_eq!(ledger.close(top), Err(LedgerError::OpenChildren { children: 1 }));
    ledger.close(below).unwrap();
    ledger.close(top).unwrap();
}

#[test]
fn compile_time_does_not_come_back_by_closing_accounts_below() {
    let time = Resource::CompileMilliseconds;
    let mut ledger = Ledger::new(Amounts::UNLIMITED);
    let top = ledger.open(Amounts::UNLIMITED.with(time, 100));
    for _ in 0..10 {
        let below = ledger.open_below(top, Amounts::UNLIMITED).unwrap();
        ledger.charge(below, time, 10).unwrap();
        assert_eq!(ledger.refund(below, time, 10), Err(LedgerError::Consumed { resource: time }));
        ledger.close(below).unwrap();
    }
    assert_eq!(ledger.left(top, time), 0);
    ledger.close(top).unwrap();
    assert_eq!(ledger.used(), Amounts::NONE);
}

#[test]
fn accounts_lie_no_deeper_than_the_limit() {
    let mut ledger = Ledger::new(Amounts::UNLIMITED);
    let mut chain = vec![ledger.open(Amounts::UNLIMITED)];
    while let Ok(below) = ledger.open_below(*chain.last().unwrap(), Amounts::UNLIMITED) {
        chain.push(below);
    }
    assert_eq!(chain.len(), 8);
    let bottom = *chain.last().unwrap();
    assert_eq!(ledger.open_below(bottom, Amounts::UNLIMITED), Err(LedgerError::TooDeep));
    ledger.charge(bottom, Resource::Streams, 3).unwrap();
    assert!(chain.iter().all(|account| ledger.used_by(*account).get(Resource::Streams) == 3));
    for account in chain.into_iter().rev() {
        ledger.close(account).unwrap();
    }
}

#[test]
fn amounts_are_shown_without_what_there_is_nothing_of() {
    let amounts = Amounts::NONE.with(Resource::Images, 2);
    assert_eq!(format!("{amounts:?}"), "{Images: 2}");
}

/// Accounts that only know what was charged to themselves. Sums are made anew each time, from the bottom.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Naive<const COLUMNS: usize> {
    /// By number of opening; `None` once closed.
    accounts: Vec<Option<NaiveAccount<COLUMNS>>>,
    limit: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct NaiveAccount<const COLUMNS: usize> {
    parent: Option<usize>,
    own: [u64; COLUMNS],
    limit: u64,
}

impl<const COLUMNS: usize> Naive<COLUMNS> {
    fn open_accounts(&self) -> impl Iterator<Item = (usize, &NaiveAccount<COLUMNS>)> {
        self.accounts.iter().enumerate().filter_map(|(at, account)| Some((at, account.as_ref()?)))
    }

    fn children(&self, of: Option<usize>) -> Vec<usize> {
        self.open_accounts().filter(|(_, account)| account.parent == of).map(|(at, _)| at).collect()
    }

    fn used(&self, at: usize, column: usize) -> u64 {
        let below: u64 = self.children(Some(at)).into_iter().map(|child| self.used(child, column)).sum();
        self.accounts[at].as_ref().unwrap().own[column] + below
    }

    fn total(&self, column: usize) -> u64 {
        self.children(None).into_iter().map(|root| self.used(root, column)).sum()
    }

    fn chain(&self, at: usize) -> Vec<usize> {
        std::iter::successors(Some(at), |at| self.accounts[*at].as_ref().unwrap().parent).collect()
    }

    fn left(&self, at: usize, column: usize) -> u64 {
        let room = |at: usize| self.accounts[at].as_ref().unwrap().limit - self.used(at, column);
        let above = self.chain(at).into_iter().map(room).min().unwrap();
        above.min(self.limit - self.total(column))
    }
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Open { parent: Option<usize>, limit: u64 },
    Charge { at: usize, column: usize, amount: u64 },
    Refund { at: usize, column: usize, amount: u64 },
    Close { at: usize },
}

/// A ledger, and the naive model of it.
#[derive(Clone)]
struct Pair<const COLUMNS: usize> {
    ledger: Ledger,
    names: Vec<Account>,
    naive: Naive<COLUMNS>,
    columns: [Resource; COLUMNS],
}

impl<const COLUMNS: usize> Pair<COLUMNS> {
    fn new(columns: [Resource; COLUMNS], limit: u64) -> Self {
        let naive = Naive { accounts: Vec::new(), limit };
        Self { ledger: Ledger::new(limits(limit)), names: Vec::new(), naive, columns }
    }

    /// Does the same to both. They agree on whether it can be done, and afterwards.
    fn act(&mut self, act: Act) {
        let done = match act {
            Act::Open { parent, limit } => {
                let parent_name = parent.map(|parent| self.names[parent]);
                let opened = match parent_name {
                    Some(parent) => self.ledger.open_below(parent, limits(limit)),
                    None => Ok(self.ledger.open(limits(limit))),
                };
                let shallow = parent.is_none_or(|parent| self.naive.chain(parent).len() < 8);
                assert_eq!(opened.is_ok(), shallow, "{act:?}");
                if let Ok(name) = opened {
                    self.names.push(name);
                    self.naive.accounts.push(Some(NaiveAccount { parent, own: [0; COLUMNS], limit }));
                }
                shallow
            }
            Act::Charge { at, column, amount } => {
                let fits = amount <= self.naive.left(at, column);
                let charged = self.ledger.charge(self.names[at], self.columns[column], amount);
                assert_eq!(charged.is_ok(), fits, "{act:?}: {charged:?}");
                if fits {
                    self.naive.accounts[at].as_mut().unwrap().own[column] += amount;
                }
                fits
            }
            Act::Refund { at, column, amount } => {
                let own = &mut self.naive.accounts[at].as_mut().unwrap().own[column];
                let fits = amount <= *own && self.columns[column] != Resource::CompileMilliseconds;
                let refunded = self.ledger.refund(self.names[at], self.columns[column], amount);
                assert_eq!(refunded.is_ok(), fits, "{act:?}: {refunded:?}");
                if fits {
                    *own -= amount;
                }
                fits
            }
            Act::Close { at } => {
                let childless = self.naive.children(Some(at)).is_empty();
                let closed = self.ledger.close(self.names[at]);
                assert_eq!(closed.is_ok(), childless, "{act:?}: {closed:?}");
                if let Ok(closed) = closed {
                    let account = self.naive.accounts[at].take().unwrap();
                    assert_eq!(self.columns.map(|resource| closed.get(resource)), account.own);
                    for (column, resource) in self.columns.into_iter().enumerate() {
                        if let Some(parent) = account.parent
                            && resource == Resource::CompileMilliseconds
                        {
                            self.naive.accounts[parent].as_mut().unwrap().own[column] += account.own[column];
                        }
                    }
                }
                childless
            }
        };
        self.agree(act, done);
    }

    fn agree(&self, act: Act, done: bool) {
        let touched = |column: usize| match act {
            Act::Charge { column: touched, .. } | Act::Refund { column: touched, .. } => column == touched,
            Act::Open { .. } | Act::Close { .. } => true,
        };
        for (column, resource) in self.columns.into_iter().enumerate().filter(|(at, _)| touched(*at)) {
            let after = format!("{resource:?} after {act:?} (done: {done})");
            assert_eq!(self.ledger.used().get(resource), self.naive.total(column), "{after}");
            for (at, name) in self.names.iter().enumerate() {
                let open = self.naive.accounts[at].is_some();
                let used = if open { self.naive.used(at, column) } else { 0 };
                let left = if open { self.naive.left(at, column) } else { 0 };
                assert_eq!(self.ledger.used_by(*name).get(resource), used, "{after}");
                assert_eq!(self.ledger.left(*name, resource), left, "{after}");
            }
            for (name, entry) in &self.ledger.accounts {
                let below = self.ledger.accounts.values().filter(|other| other.parent == Some(*name));
                let below: u64 = below.map(|child| child.used.get(resource)).sum();
                assert_eq!(entry.used.get(resource), entry.own.get(resource) + below, "{after}");
            }
        }
    }

    /// Closes everything, from the bottom.
    fn wind_up(mut self) {
        for at in (0..self.names.len()).rev() {
            if self.naive.accounts[at].is_some() {
                self.act(Act::Close { at });
            }
        }
        assert_eq!(self.ledger.used(), Amounts::NONE);
    }

    /// What can be tried in a small model.
    fn acts(&self, accounts_max: usize) -> Vec<Act> {
        let open: Vec<usize> = self.naive.open_accounts().map(|(at, _)| at).collect();
        let mut acts = Vec::new();
        if self.names.len() < accounts_max {
            let parents = open.iter().map(|at| Some(*at)).chain([None]);
            acts.extend(parents.flat_map(|parent| [1, 2].map(|limit| Act::Open { parent, limit })));
        }
        for &at in &open {
            acts.push(Act::Close { at });
            for column in 0..COLUMNS {
                acts.extend([1, 2].map(|amount| Act::Charge { at, column, amount }));
                acts.push(Act::Refund { at, column, amount: 1 });
            }
        }
        acts
    }
}

#[test]
fn every_state_of_a_small_ledger_agrees_with_a_naive_model() {
    let mut seen = HashSet::new();
    let mut states = vec![Pair::new([Resource::Images, Resource::CompileMilliseconds], 3)];
    while let Some(state) = states.pop() {
        for act in state.acts(3) {
            let mut next = state.clone();
            next.act(act);
            if seen.insert(next.naive.clone()) {
                next.clone().wind_up();
                states.push(next);
            }
        }
    }
    println!("{} states", seen.len());
    assert!(seen.len() > 1_000, "only {} states were reached", seen.len());
}

#[test]
fn a_ledger_agrees_with_a_naive_model() {
    for seed in seeds() {
        println!("seed {seed}");
        let mut choices = Choices::new(seed);
        let mut pair = Pair::new(Resource::ALL, 500);
        for _ in 0..1_000 {
            let open: Vec<usize> = pair.naive.open_accounts().map(|(at, _)| at).collect();
            let mut any = || Some(open[usize::try_from(choices.below(open.len().max(1) as u64)).ok()?]);
            let at = if open.is_empty() { None } else { any() };
            let column = usize::try_from(choices.below(Resource::ALL.len() as u64)).unwrap();
            let amount = choices.below(120);
            pair.act(match (choices.below(20), at) {
                (_, None) => Act::Open { parent: None, limit: 200 },
                (0, _) if open.len() < 20 => Act::Open { parent: None, limit: 200 },
                (1 | 2, parent) if open.len() < 20 => Act::Open { parent, limit: 50 + choices.below(200) },
                (0..5, Some(at)) => Act::Close { at },
                (5..13, Some(at)) => Act::Charge { at, column, amount },
                (_, Some(at)) => Act::Refund { at, column, amount },
            });
        }
        pair.wind_up();
    }
}
