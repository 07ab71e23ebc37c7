//! Objects that processes have borrowed: each time an owner of its own, on whose line the object is in use.

use std::{cell::RefCell, collections::HashMap, rc::Rc, time::Duration};

use bulkhead_caps::{Line, Need, Owner};
use bulkhead_schema::{Error, ErrorCode, Handle, limits};
use tokio::sync::watch;

use crate::registry::{Batch, Holder, Registry, Stage};

/// How far a loan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// The process may use the memory.
    Out,
    /// It is to let go of it.
    Recalled,
    /// It has.
    Back,
}

/// A loan goes on to a state, and never back.
pub(crate) fn reach(state: &watch::Sender<State>, next: State) {
    state.send_if_modified(|known| {
        let further = *known < next;
        *known = next.max(*known);
        further
    });
}

/// What was lent, by owner; and what ends with each, for those who wait for what was derived of the same.
pub(super) type Loans = RefCell<HashMap<Owner, (Rc<watch::Sender<State>>, Rc<Batch>)>>;

/// An object that was lent.
pub(crate) struct Lent {
    owner: Owner,
    line: Line,
    pub(crate) state: Rc<watch::Sender<State>>,
}

impl<S: Holder> Registry<S> {
    /// Lends what a capability names: it is in use until it [is back](Registry::is_back).
    pub(crate) fn lend(&self, owner: Owner, parent: Handle, need: Need) -> Result<Lent, Error> {
        let object = self.look(owner, parent)?.object;
        if self.loans.borrow().len() >= limits::LOANS_MAX {
            let message =
                format!("processes have borrowed {} host memories, as many as may be", limits::LOANS_MAX);
            return Err(Error::new(ErrorCode::LimitReached, message).remedy("give some of them back"));
        }
        let (own, line) = self.open(1);
        let lent = Lent { owner: own, line, state: Rc::new(watch::Sender::new(State::Out)) };
        let batch = Rc::new(Batch::new(own, 1));
        self.loans.borrow_mut().insert(own, (Rc::clone(&lent.state), batch));
        let made = self.derive(owner, parent, own, need).and_then(|_| self.uses(line, object));
        made.inspect_err(|_| self.is_back(&lent))?;
        Ok(lent)
    }

    /// What a loan was derived from has ended: whoever has it is told.
    pub(super) fn recall(&self, owner: Owner) {
        if let Some((state, batch)) = self.loans.borrow().get(&owner) {
            reach(state, State::Recalled);
            batch.reach(Stage::Severed);
        }
    }

    /// What ends with a loan, until it is back.
    pub(super) fn batch_of_loan(&self, owner: Owner) -> Option<Rc<Batch>> {
        self.loans.borrow().get(&owner).map(|(_, batch)| Rc::clone(batch))
    }

    /// Nobody has it mapped any more who borrowed it so.
    pub(crate) fn is_back(&self, lent: &Lent) {
        match self.revoke_owner(lent.owner, Duration::ZERO) {
            Ok(marked) => self.forget(marked.id),
            Err(error) => self.expect::<()>(Err(error), "end a loan"),
        }
        if let Some((_, batch)) = self.loans.borrow_mut().remove(&lent.owner) {
            batch.is_mapped.set(false);
            batch.reach(Stage::Done);
        }
        self.close_line(lent.line);
        self.close_owner(lent.owner);
    }
}
