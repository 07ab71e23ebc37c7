//! What ended and can still be reached by work that was submitted.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use tokio::sync::Notify;

use crate::registry::Batch;

/// What was severed and is not quiescent, in order.
#[derive(Default)]
pub(crate) struct Passing {
    pub(super) batches: RefCell<VecDeque<Rc<Batch>>>,
    pub(super) moved: Notify,
}

/// What the executor was asked for by those who wait until all that was submitted has passed.
#[derive(Default)]
pub(crate) struct Drains {
    pub(super) turn: tokio::sync::Mutex<()>,
    /// How often it was asked.
    pub(super) begun: Cell<u64>,
    /// Which of these was answered last.
    pub(super) passed: Cell<u64>,
}
