//! One device as its sessions see it: its executor, who may do what with which memory, and what moves sessions.
//!
//! An isolated session has a device of its own with an executor of its own, and the ledger, the registry and the tokens of the
//! one that it is on: no handle means two things. What is another executor's is refused where it is named, as after the loss of one.

use std::{
    cell::{Cell, RefCell},
    ffi::OsString,
    rc::Rc,
};

use bulkhead_schema::{Error, ErrorCode};

use crate::{
    ExecutorSource, Limits,
    executor_proxy::{Cells, ExecutorProxy, Incarnation},
    faults::Faults,
    ledger::DeviceLedger,
    modules::protected::Known,
    principals::Party,
    session::{Registry, reference::Sturdies, swap::mover::Mover},
};

/// One device.
pub(crate) struct Device {
    pub(crate) executor: Rc<ExecutorProxy>,
    /// Protected modules that sessions may claim.
    pub(crate) modules: RefCell<Vec<Rc<Known>>>,
    /// What the next that is claimed is called.
    next_module: Cell<u32>,
    /// Who may do what with which part of it.
    pub(crate) registry: Rc<Registry>,
    /// Tokens, and what they stand for.
    pub(crate) sturdy: Rc<Sturdies>,
    /// Moves sessions to host memory and back.
    pub(crate) mover: Mover,
    /// How many calls look for room that others are about to leave.
    pub(crate) looking_for_room: Cell<u32>,
}

impl Device {
    pub(crate) fn new(
        index: u32,
        source: ExecutorSource,
        environment: Vec<(OsString, OsString)>,
        modules: Vec<Rc<Known>>,
        limits: Limits,
        cells: Cells,
    ) -> Self {
        let faults = Rc::<Faults>::default();
        let ledger = DeviceLedger::new(Rc::clone(&faults));
        let executor = Rc::new(ExecutorProxy::new(index, source, environment, limits, cells, ledger));
        Self::with(executor, modules, Rc::new(Registry::new(faults)), Rc::default())
    }

    fn with(
        executor: Rc<ExecutorProxy>,
        modules: Vec<Rc<Known>>,
        registry: Rc<Registry>,
        sturdy: Rc<Sturdies>,
    ) -> Self {
        Self {
            executor,
            modules: RefCell::new(modules),
            next_module: Cell::new(1),
            registry,
            sturdy,
            mover: Mover::new(),
            looking_for_room: Cell::new(0),
        }
    }

    /// A device with an executor for one session, and what that is charged for it: see [`ExecutorProxy::isolate`].
    pub(crate) async fn isolate<C: 'static>(
        &self,
        party: &Rc<Party>,
        charges: C,
    ) -> Result<(Rc<Self>, Rc<Incarnation>, C), Error> {
        let (alone, incarnation, charges) = self.executor.isolate(party, charges).await?;
        let device = Self::with(alone, Vec::new(), Rc::clone(&self.registry), Rc::clone(&self.sturdy));
        Ok((Rc::new(device), incarnation, charges))
    }

    /// What executors call a module that no module was called before.
    pub(crate) fn next_module(&self) -> Result<u32, Error> {
        let number = self.next_module.get();
        let next = number
            .checked_add(1)
            .ok_or_else(|| Error::new(ErrorCode::LimitReached, "this kernel has made all modules it can"))?;
        self.next_module.set(next);
        Ok(number)
    }
}
