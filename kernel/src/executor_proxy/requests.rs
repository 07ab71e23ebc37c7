//! How many requests an executor may have to answer.
//!
//! A session has no more of them under way than are left to the others: one that fills what it can has half of all, a second
//! one half of the rest, and so on. One session keeps nobody from being served; seventeen that fill what they can do.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use bulkhead_schema::{Error, ErrorCode};

#[derive(Default)]
struct Taken {
    all: usize,
    /// Those that have any.
    sessions: HashMap<u32, usize>,
}

/// The requests under way that are limited.
pub(super) struct Requests {
    most: usize,
    taken: Rc<RefCell<Taken>>,
}

/// One request's place, until it is answered or forgotten.
pub(super) struct Place {
    taken: Rc<RefCell<Taken>>,
    session: Option<u32>,
}

impl Requests {
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Rc::default() }
    }

    /// Takes a place for a request of a session, or of nobody's.
    ///
    /// # Errors
    /// `LimitReached` where all are taken, or the session has as many as are left.
    pub(super) fn take(&self, session: Option<u32>) -> Result<Place, Error> {
        let mut taken = self.taken.borrow_mut();
        let left = self.most.saturating_sub(taken.all);
        let own = session.and_then(|session| taken.sessions.get(&session).copied()).unwrap_or(0);
        if left == 0 {
            return Err(refused("the executor has too many requests to answer"));
        }
        if own >= left {
            return Err(refused("the executor has too many requests of this session to answer"));
        }
        taken.all += 1;
        if let Some(session) = session {
            *taken.sessions.entry(session).or_default() += 1;
        }
        Ok(Place { taken: Rc::clone(&self.taken), session })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.borrow_mut();
        taken.all = taken.all.saturating_sub(1);
        let Some(session) = self.session else { return };
        if let Some(own) = taken.sessions.get_mut(&session) {
            *own -= 1;
            if *own == 0 {
                taken.sessions.remove(&session);
            }
        }
    }
}

fn refused(message: &str) -> Error {
    Error::new(ErrorCode::LimitReached, message).remedy("wait for answers before you ask for more")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(table: &Requests, session: u32) -> Vec<Place> {
        std::iter::from_fn(|| table.take(Some(session)).ok()).collect()
    }

    #[test]
    fn one_session_that_fills_what_it_can_leaves_others_as_much() {
        let table = Requests::new(90);
        let first = fill(&table, 1);
        assert_eq!(first.len(), 45);
        let second = fill(&table, 2);
        assert_eq!(second.len(), 23, "half of what is left");
        assert_eq!(fill(&table, 1).len(), 0);
        assert!(table.take(Some(3)).is_ok());
        drop(first);
        assert_eq!(fill(&table, 2).len(), 22, "it has half by then");
    }

    #[test]
    fn what_is_nobody_s_has_all_and_what_was_answered_leaves_nothing() {
        let table = Requests::new(4);
        let all: Vec<_> = std::iter::from_fn(|| table.take(None).ok()).collect();
        assert_eq!(all.len(), 4);
        assert_eq!(table.take(Some(1)).err().map(|error| error.code), Some(ErrorCode::LimitReached));
        drop(all);
        drop(fill(&table, 1));
        let taken = table.taken.borrow();
        assert!(taken.all == 0 && taken.sessions.is_empty());
    }
}
