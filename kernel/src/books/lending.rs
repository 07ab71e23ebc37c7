//! Objects that processes have borrowed: each time an owner of its own, on whose line the object is in use.

use std::{cell::RefCell, collections::HashMap, rc::Rc, time::Duration};

use bulkhead_caps::{Line, Need, Owner};
use bulkhead_schema::{Error, ErrorCode, Handle, limits};
use tokio::sync::watch;

use super::Books;
use crate::loan::{State, reach};

/// What was lent, by owner.
pub(super) type Loans = RefCell<HashMap<Owner, Rc<watch::Sender<State>>>>;

/// An object that was lent.
pub(crate) struct Lent {
    owner: Owner,
    line: Line,
    pub(crate) state: Rc<watch::Sender<State>>,
}

impl Books {
    /// Lends what a capability names: it is in use until it [is back](Books::is_back).
    pub(crate) fn lend(&self, owner: Owner, parent: Handle, need: Need) -> Result<Lent, Error> {
        let object = self.look(owner, parent)?.object;
        if self.loans.borrow().len() >= limits::LOANS_MAX {
            let message =
                format!("processes have borrowed {} host memories, as many as may be", limits::LOANS_MAX);
            return Err(Error::new(ErrorCode::LimitReached, message).remedy("give some of them back"));
        }
        let (own, line) = self.open(1);
        let lent = Lent { owner: own, line, state: Rc::new(watch::Sender::new(State::Out)) };
        self.loans.borrow_mut().insert(own, Rc::clone(&lent.state));
        let made = self.derive(owner, parent, own, need).and_then(|_| self.uses(line, object));
        made.inspect_err(|_| self.is_back(&lent))?;
        Ok(lent)
    }

    /// What a loan was derived from has ended: whoever has it is told.
    pub(super) fn recall(&self, owner: Owner) {
        if let Some(state) = self.loans.borrow().get(&owner) {
            reach(state, State::Recalled);
        }
    }

    /// Nobody has it mapped any more who borrowed it so.
    pub(crate) fn is_back(&self, lent: &Lent) {
        match self.revoke_owner(lent.owner, Duration::ZERO) {
            Ok(marked) => self.forget(marked.id),
            Err(error) => self.expect::<()>(Err(error), "end a loan"),
        }
        self.loans.borrow_mut().remove(&lent.owner);
        self.close_line(lent.line);
        self.close_owner(lent.owner);
    }
}
