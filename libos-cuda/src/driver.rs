//! The process's one session, and what needs none.
//!
//! A process that begins guarded, and has nothing yet when machine code comes, goes on in an isolated session
//! ([`opening`]): what it has by then is contexts, libraries that are not loaded and linkers, which are this library's alone.

mod calls;
mod opening;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) use calls::*;
pub(crate) use opening::{move_for, open};

use crate::array::Array;
use crate::context::{Contexts, current};
use crate::device::{AcceptedGates, Device, Domain, Heap, Session, Stray, Terms};
use crate::event::{Event, Pages, Timers};
use crate::faults;
use crate::function::Function;
use crate::graph::Graphs;
use crate::handle_tables::{Permanent, Table};
use crate::library::Library;
use crate::limits::Limits;
use crate::linker::Linker;
use crate::memory::Memory;
use crate::module::Module;
use crate::order::Streams;
use crate::pool::Pools;
use crate::status::Status;
use crate::texture::Objects;
use crate::vmm::Vmm;

/// The version of CUDA that this library speaks. No runtime so far asks for functions of a later one.
pub(crate) const VERSION: u32 = bulkhead_schema::CUDA_VERSION;

/// All that a process with a session has.
pub(crate) struct Driver {
    /// What becomes of accesses of kernels to what the program does not have.
    pub(crate) stray: Stray,
    /// What keeps the session apart from others.
    pub(crate) domain: Domain,
    terms: Terms,
    /// Its kernels may call them as long as it has them.
    _gates: Vec<AcceptedGates>,
    pub(crate) session: Session,
    pub(crate) limits: Limits,
    /// Whether nobody has said what that is.
    is_auto: bool,
    pub(crate) contexts: Arc<Contexts>,
    pub(crate) streams: Streams,
    pub(crate) events: Table<Event>,
    pub(crate) timers: Timers,
    pub(crate) pages: Pages,
    pub(crate) memory: Memory,
    pub(crate) arrays: Table<Array>,
    pub(crate) textures: Objects,
    pub(crate) vmm: Vmm,
    pub(crate) pools: Pools,
    pub(crate) libraries: Arc<Table<Library>>,
    pub(crate) linkers: Arc<Table<Linker>>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Permanent<Function>,
    pub(crate) graphs: Graphs,
    /// What kernels allocated outlives the modules that did: it ends with the process.
    pub(crate) heap: OnceLock<Heap>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// What the process goes on with once it has moved.
static MOVED: OnceLock<Driver> = OnceLock::new();
static FORKED: AtomicBool = AtomicBool::new(false);

impl Driver {
    pub(crate) fn device(&self) -> &Device {
        self.session.device()
    }

    /// Whether kernels run as the driver's compiler made them, whose arrays, textures and surfaces they read by the device's own
    /// instructions then.
    pub(crate) fn runs_machine_code(&self) -> bool {
        self.domain == Domain::Isolated && self.device().backend != "software"
    }
}

#[inline]
fn the() -> Option<&'static Driver> {
    MOVED.get().or_else(|| DRIVER.get())
}

/// The driver, for a call that needs one to be initialized.
#[inline]
pub(crate) fn driver() -> Result<&'static Driver, Status> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Status::NOT_INITIALIZED);
    }
    if let Some(status) = faults::stopped() {
        return Err(status);
    }
    the().ok_or(Status::NOT_INITIALIZED)
}

/// The driver and the current context, for a call that needs both.
pub(crate) fn driver_and_current() -> Result<(&'static Driver, u64), Status> {
    Ok((driver()?, current()?))
}

/// The driver, if the session was opened: also where it is lost.
pub(crate) fn opened() -> Option<&'static Driver> {
    the().filter(|_| !FORKED.load(Ordering::Relaxed))
}
