//! What may be made of a capability that was given away.

use std::{cell::Cell, rc::Rc};

use bulkhead_schema::{Error, ErrorCode, limits};

/// What may be derived from a capability by those to whom its session gave it: they do it at that session's expense.
pub(crate) struct Budget {
    left: Cell<u32>,
    /// How many they have let go of that work of that session may still reach: they are remembered until then.
    on_their_way: Cell<u32>,
}

impl Budget {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { left: Cell::new(limits::DERIVED_ELSEWHERE_MAX), on_their_way: Cell::new(0) })
    }

    /// A part of it.
    pub(crate) fn take(self: &Rc<Self>) -> Result<Spent, Error> {
        if self.on_their_way.get() >= limits::DERIVED_ELSEWHERE_MAX {
            let message = format!(
                "{} capabilities that were made of one that was given, and dropped, wait for work that runs",
                self.on_their_way.get()
            );
            return Err(Error::new(ErrorCode::LimitReached, message)
                .remedy("wait until the kernels of whoever gave it have ended"));
        }
        let left = self.left.get().checked_sub(1).ok_or_else(|| {
            let message =
                format!("{} capabilities were made of one that was given", limits::DERIVED_ELSEWHERE_MAX);
            Error::new(ErrorCode::LimitReached, message).remedy("drop some of them")
        })?;
        self.left.set(left);
        Ok(Spent(Rc::clone(self)))
    }

    /// So many of it are on their way until what is answered is dropped, and so many of all budgets of its giver's.
    pub(crate) fn let_go(self: &Rc<Self>, of_all: &Rc<Cell<u32>>, count: u32) -> LetGo {
        for on_their_way in [&self.on_their_way, &**of_all] {
            on_their_way.update(|all| all.saturating_add(count));
        }
        LetGo { budget: Rc::clone(self), of_all: Rc::clone(of_all), count }
    }
}

/// What was made of a capability elsewhere and is on its way back.
pub(crate) struct LetGo {
    budget: Rc<Budget>,
    of_all: Rc<Cell<u32>>,
    count: u32,
}

impl Drop for LetGo {
    fn drop(&mut self) {
        for on_their_way in [&self.budget.on_their_way, &*self.of_all] {
            on_their_way.update(|all| all.saturating_sub(self.count));
        }
    }
}

/// One capability's part of a budget.
pub(crate) struct Spent(pub(crate) Rc<Budget>);

impl Drop for Spent {
    fn drop(&mut self) {
        self.0.left.update(|left| left.saturating_add(1));
    }
}
