//! Places to compile at, or to start executors at: few, and everybody's turn comes.
//!
//! Whoever waits gets the next place that is free: of the principals the one that has fewest, of those the one whose last
//! turn was longest ago; the same among the processes of one principal. So a crowd of one principal's, or one client that
//! asks for much, keeps nobody else waiting for longer than what is compiled already. No process has more than half.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

use bulkhead_schema::Error;
use tokio::sync::oneshot;

use crate::{
    principals::{Counted, Party, Taken},
    refusal::internal,
};

struct Waiting {
    party: Rc<Party>,
    place: oneshot::Sender<Place>,
}

/// Turns of all kinds are counted together, since a party's last one is.
static TURNS: AtomicU64 = AtomicU64::new(0);

/// Places to do something at.
pub(crate) struct Places {
    most: usize,
    /// What those who wait count as.
    counted: Counted,
    running: RefCell<Vec<Rc<Party>>>,
    /// In the order they came.
    waiting: RefCell<Vec<Waiting>>,
}

impl Places {
    pub(crate) fn new(most: usize, counted: Counted) -> Rc<Self> {
        Rc::new(Self { most, counted, running: RefCell::default(), waiting: RefCell::default() })
    }

    /// Waits for a place, which is given back when the result is dropped. Only so many may wait.
    pub(crate) async fn take(self: &Rc<Self>, party: &Rc<Party>) -> Result<(Place, Taken), Error> {
        let counted = party.take(self.counted, 1)?;
        let (sender, place) = oneshot::channel();
        self.waiting.borrow_mut().push(Waiting { party: Rc::clone(party), place: sender });
        self.give();
        let place = place.await.map_err(|_| internal("the kernel is ending"))?;
        Ok((place, counted))
    }

    /// Gives away what is free.
    fn give(self: &Rc<Self>) {
        while let Some(next) = self.next() {
            let turn = TURNS.fetch_add(1, Ordering::Relaxed) + 1;
            next.party.had_a_turn(turn);
            self.running.borrow_mut().push(Rc::clone(&next.party));
            // Whoever has gone away gives it back at once.
            drop(next.place.send(Place { places: Rc::clone(self), party: next.party }));
        }
    }

    /// Whose turn it is.
    fn next(&self) -> Option<Waiting> {
        let running = self.running.borrow();
        if running.len() >= self.most {
            return None;
        }
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|waiting| !waiting.place.is_closed());
        let of_process = |party: &Rc<Party>| running.iter().filter(|one| Rc::ptr_eq(one, party)).count();
        let of_principal = |party: &Party| running.iter().filter(|one| one.is_of_the_same(party)).count();
        let may = |waiting: &&(usize, &Waiting)| of_process(&waiting.1.party) < self.most.div_ceil(2);
        let rank = |(at, waiting): &(usize, &Waiting)| {
            let party = &waiting.party;
            let (principal, process) = party.turns();
            (of_principal(party), principal, of_process(party), process, *at)
        };
        let next = waiting.iter().enumerate().filter(|one| may(&one)).min_by_key(rank).map(|(at, _)| at);
        next.map(|at| waiting.remove(at))
    }
}

/// A place, given back on drop.
#[must_use]
pub(crate) struct Place {
    places: Rc<Places>,
    party: Rc<Party>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = self.places.running.borrow_mut();
        if let Some(at) = running.iter().position(|party| Rc::ptr_eq(party, &self.party)) {
            running.swap_remove(at);
        }
        drop(running);
        self.places.give();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::{
        principals::{Principals, Quota},
        transport::door::Peer,
    };

    fn party(principals: &Principals, uid: u32, pid: i32) -> Rc<Party> {
        principals.of(Peer { uid, pid: Some(pid) })
    }

    fn principals() -> Principals {
        Principals::new(Quota::UNLIMITED, Quota::PRINCIPAL, Quota::PROCESS, Vec::new())
    }

    /// Who gets places, in order, where these ask for them.
    async fn order(most: usize, parties: &[Rc<Party>]) -> Vec<usize> {
        let places = Places::new(most, Counted::Compiles);
        let mut asked: Vec<_> =
            parties.iter().enumerate().map(|(at, party)| (at, Box::pin(places.take(party)))).collect();
        let (mut held, mut order) = (Vec::new(), Vec::new());
        loop {
            asked.retain_mut(|(at, asking)| match asking.as_mut().now_or_never() {
                Some(place) => {
                    order.push(*at);
                    held.push(place.unwrap());
                    false
                }
                None => true,
            });
            assert!(held.len() <= most);
            if held.is_empty() {
                break;
            }
            drop(held.remove(0));
        }
        assert!(asked.is_empty(), "everybody's turn comes");
        order
    }

    #[tokio::test]
    async fn a_crowd_of_one_principal_does_not_keep_another_waiting() {
        let principals = principals();
        let mut all: Vec<_> = (0..20).map(|pid| party(&principals, 1, pid)).collect();
        all.push(party(&principals, 2, 99));
        let order = order(2, &all).await;
        assert!(order.iter().position(|at| *at == 20).unwrap() <= 2, "{order:?}");
    }

    #[tokio::test]
    async fn processes_of_one_principal_take_turns_and_none_has_all() {
        let principals = principals();
        let (greedy, modest) = (party(&principals, 1, 1), party(&principals, 1, 2));
        let mut all = vec![Rc::clone(&greedy); 10];
        all.extend([Rc::clone(&modest), modest]);
        let order = order(2, &all).await;
        assert!(order[..4].contains(&10) && order[..6].contains(&11), "{order:?}");
    }

    #[tokio::test]
    async fn who_goes_away_while_he_waits_leaves_nothing() {
        let principals = principals();
        let places = Places::new(1, Counted::Compiles);
        let (first, second) = (party(&principals, 1, 1), party(&principals, 1, 2));
        let held = places.take(&first).await.unwrap();
        assert!(places.take(&second).now_or_never().is_none());
        drop(held);
        assert!(places.running.borrow().is_empty());
        let _held = places.take(&second).now_or_never().unwrap();
        let most = bulkhead_schema::limits::COMPILES_OF_PROCESS_MAX;
        let mut waiting: Vec<_> = (0..most + 1).map(|_| Box::pin(places.take(&first))).collect();
        let refused =
            waiting.iter_mut().filter_map(|asking| asking.as_mut().now_or_never()).filter(Result::is_err);
        assert_eq!(refused.count(), 1, "a process may have {most} images wait");
    }
}
