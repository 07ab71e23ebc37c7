//! What tokens stand for.

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::{Rc, Weak},
};

use bulkhead_schema::{Error, Handle, bulkhead_capnp::Uses};

use crate::{
    registry::{Budget, SturdyToken},
    session::{
        Session,
        reference::{Facet, Paid},
    },
};

/// What a token stands for.
#[derive(Clone)]
pub(crate) struct Sturdy {
    pub(crate) session: Weak<Session>,
    pub(crate) handle: Handle,
    pub(crate) facet: Facet,
    pub(crate) uses: Uses,
    /// What may be made of all that is restored from it.
    pub(crate) budget: Rc<Budget>,
    /// What it counts as, until it is dropped.
    #[expect(dead_code, reason = "dropping it gives back")]
    pub(crate) paid: Rc<Paid>,
}

/// The tokens of a device.
#[derive(Default)]
pub(crate) struct Sturdies {
    known: RefCell<HashMap<SturdyToken, Sturdy>>,
}

impl Sturdies {
    /// Those that are good although every session is gone. A token of what has ended is good for nothing, whoever still holds it.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let is_good = |sturdy: &&Sturdy| {
            let session = sturdy.session.upgrade();
            session.is_some_and(|session| session.registry().look(session.owner, sturdy.handle).is_ok())
        };
        let count = self.known.borrow().values().filter(is_good).count();
        (count > 0).then(|| format!("{count} tokens"))
    }

    pub(crate) fn insert(&self, sturdy: Sturdy) -> Result<SturdyToken, Error> {
        let token = SturdyToken::random()?;
        self.known.borrow_mut().insert(token, sturdy);
        Ok(token)
    }

    pub(crate) fn find(&self, token: SturdyToken) -> Option<Sturdy> {
        self.known.borrow().get(&token).cloned()
    }

    pub(crate) fn remove(&self, token: SturdyToken) {
        let removed = self.known.borrow_mut().remove(&token);
        drop(removed);
    }
}
