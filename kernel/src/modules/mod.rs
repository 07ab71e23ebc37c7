//! Protected modules: those that may be [claimed](protected), and those that sessions have.

pub(crate) mod protected;

use std::{
    cell::{Cell, RefCell},
    os::fd::OwnedFd,
    rc::Rc,
};

use bulkhead_ring::ActivityEnd;
use tokio::sync::Mutex;

use crate::{executor_proxy::Incarnation, ledger::Charge, modules::protected::Known, registry::Loaded};

/// A module that a session has claimed.
pub(crate) struct Owned {
    pub(crate) known: Rc<Known>,
    /// What the executor calls it: never another.
    pub(crate) number: u32,
    /// Whether the executor has its window.
    pub(crate) state: Cell<Loaded>,
    /// Held while its window is made, read or written: it is not removed meanwhile. Nobody waits for a standby with it.
    pub(crate) busy: Mutex<()>,
    /// Held while a standby is told of it: it is not removed meanwhile, and told once. Taken before the other.
    pub(crate) telling: Mutex<()>,
    /// The host memory that its window ends with.
    pub(crate) host: Option<OwnedFd>,
    /// Where its window is.
    windows: RefCell<Vec<Rc<Window>>>,
    charges: RefCell<Vec<Charge>>,
}

impl Owned {
    /// Has a session hold a module that nobody holds.
    pub(crate) fn new(
        known: &Rc<Known>,
        session: u32,
        number: u32,
        host: Option<OwnedFd>,
        charges: Vec<Charge>,
    ) -> Self {
        known.holder.set(Some(session));
        Self {
            known: Rc::clone(known),
            number,
            state: Cell::new(Loaded::No),
            busy: Mutex::new(()),
            telling: Mutex::new(()),
            host,
            windows: RefCell::default(),
            charges: RefCell::new(charges),
        }
    }

    /// An executor is about to have its window.
    pub(crate) fn begin_window(&self, window: Window) -> Rc<Window> {
        let window = Rc::new(window);
        self.windows.borrow_mut().push(Rc::clone(&window));
        window
    }

    pub(crate) fn windows(&self) -> Vec<Rc<Window>> {
        self.windows.borrow().clone()
    }

    /// What an executor has of it, even where that is not all.
    pub(crate) fn windows_in(&self, executor: &Rc<Incarnation>) -> Vec<Rc<Window>> {
        let windows = self.windows.borrow();
        windows.iter().filter(|window| Rc::ptr_eq(&window.executor, executor)).cloned().collect()
    }

    /// Whether an executor has all of its window.
    pub(crate) fn is_in(&self, executor: &Rc<Incarnation>) -> bool {
        self.windows_in(executor).iter().any(|window| window.is_whole.get())
    }

    /// An executor has nothing of it any more.
    pub(crate) fn forget_window(&self, gone: &Rc<Window>) {
        self.windows.borrow_mut().retain(|window| !Rc::ptr_eq(window, gone));
    }

    /// Forgets executors that are lost, and says so on their pages.
    pub(crate) fn forget_lost(&self) {
        self.windows.borrow_mut().retain(|window| {
            let is_lost = window.executor.link.failure().is_some();
            if is_lost {
                window.end.end();
            }
            !is_lost
        });
    }

    /// There is nothing left of it: the next may claim it.
    pub(crate) fn gave_back(&self) {
        drop(self.charges.take());
        self.known.release();
    }
}

/// What an executor has of a module.
pub(crate) struct Window {
    pub(crate) executor: Rc<Incarnation>,
    /// The page on which it counts launches that call the gates.
    pub(crate) page: OwnedFd,
    end: ActivityEnd,
    /// Whether it has all of it.
    pub(crate) is_whole: Cell<bool>,
    _charge: Charge,
}

impl Window {
    /// Of which nothing is there yet. The page's descriptor is charged.
    pub(crate) fn new(executor: &Rc<Incarnation>, page: OwnedFd, end: ActivityEnd, charge: Charge) -> Self {
        Self { executor: Rc::clone(executor), page, end, is_whole: Cell::new(false), _charge: charge }
    }
}
