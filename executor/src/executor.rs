//! What the sessions of an executor have in common. Nothing here is locked for longer than a look.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    time::Instant,
};

use bulkhead_gpu::{Error as DeviceError, Gpu};
use bulkhead_schema::{Error, ErrorCode, Handle};
use parking_lot::Mutex;

use crate::{
    control::{job::Job, link::Link},
    device::Guard,
    images::{Images, cache::Cache},
    launch::entry::{Entry, Template},
    memory::{
        Means,
        physical::{Freeing, Physical},
        piece::Pieces,
        warm::Slots,
        workbench::Workbench,
    },
    modules::Modules,
    moments::{gate::Gate, waits::Waits},
    session::Session,
    watch::{
        flag::Flags,
        neighbours::Neighbours,
        patience::Patience,
        pulse::Pulse,
        remains::{Image, Reaper, Remains},
    },
};

/// A session, and where its jobs go.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) session: Arc<Session>,
    pub(crate) jobs: mpsc::Sender<Job>,
}

/// What all sessions share.
pub(crate) struct Executor {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) link: Link,
    pub(crate) sessions: Mutex<HashMap<u32, Known>>,
    pub(crate) pieces: Arc<Pieces>,
    pub(crate) slots: Slots,
    pub(crate) reaper: Reaper,
    /// What is loaded, by text.
    pub(crate) images: Images,
    /// Where machine code is kept.
    pub(crate) cache: Option<Cache>,
    /// Protected modules.
    pub(crate) modules: Modules,
    /// Entries that sessions loaded, by session and handle.
    pub(crate) entries: Mutex<HashMap<(u32, Handle), Offered>>,
    /// Sessions that are closing and may have work on the device.
    pub(crate) closing: AtomicU32,
    /// What sessions that were not told to end have on the device. No other lock is taken under it.
    pub(crate) neighbours: Mutex<Neighbours>,
    /// Work of a session that is closing is kept from the device by somebody's whose does not pass. Taken by the warden.
    pub(crate) kept: AtomicBool,
    /// Whether the warden comes around.
    pub(crate) pulse: Arc<Pulse>,
    /// Keeps everybody from submitting.
    pub(crate) gate: Arc<Gate>,
    /// Held by whoever closes the gate for a moment; until when nobody who loads does.
    pub(crate) draining: Mutex<Option<Instant>>,
    /// Who waits for a moment when no kernel runs.
    pub(crate) waits: Waits,
    /// What times count from.
    pub(crate) epoch: Instant,
    /// For how long kernels may run.
    pub(crate) patience: Patience,
    /// Which versions of entries are loaded.
    pub(crate) guard: Guard,
    /// Whom it serves.
    pub(crate) tenancy: Tenancy,
}

/// Whom an executor serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tenancy {
    /// All guarded sessions.
    Shared,
    /// One isolated session.
    One {
        /// Whether its launches may go to the device as graphs.
        runs: bool,
    },
}

impl Executor {
    /// Whether it serves one isolated session.
    pub(crate) fn is_isolated(&self) -> bool {
        self.tenancy != Tenancy::Shared
    }
}

/// An entry that another session may be given. Does not keep its image loaded.
pub(crate) struct Offered {
    template: Template,
    image: Weak<Image>,
}

impl Executor {
    pub(crate) fn new(
        gpu: Arc<dyn Gpu>,
        link: Link,
        patience: Patience,
        guard: Guard,
        tenancy: Tenancy,
        cache: Option<Cache>,
    ) -> Result<(Arc<Self>, Remains, Freeing), DeviceError> {
        let workbench = Arc::new(Workbench::open(&gpu)?);
        let pieces = Arc::new(Pieces::default());
        let (physical, freeing) = Physical::new(&gpu);
        let flags = Arc::new(Flags::open(&gpu)?);
        let pieces_too = Arc::clone(&pieces);
        let plain = tenancy != Tenancy::Shared;
        // The software GPU runs guarded PTX, whose masks fit the other slots.
        let wide = plain && gpu.info().backend != "software";
        let waits = Waits::default();
        let means = Means {
            gpu: Arc::clone(&gpu),
            physical,
            workbench,
            flags,
            pieces: pieces_too,
            waits: waits.clone(),
            plain,
            wide,
        };
        let (reaper, remains) = Reaper::new();
        let modules = Modules::new(&gpu);
        let executor = Self {
            gpu,
            modules,
            link,
            sessions: Mutex::default(),
            pieces,
            slots: Slots::new(means),
            reaper,
            images: Images::default(),
            cache,
            entries: Mutex::default(),
            closing: AtomicU32::new(0),
            kept: AtomicBool::new(false),
            pulse: Arc::default(),
            neighbours: Mutex::new(Neighbours::new(Instant::now())),
            gate: Arc::default(),
            draining: Mutex::default(),
            waits,
            epoch: Instant::now(),
            patience,
            guard,
            tenancy,
        };
        Ok((Arc::new(executor), remains, freeing))
    }

    /// Nanoseconds since the executor started.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// All sessions, without the lock.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().map(|known| Arc::clone(&known.session)).collect()
    }

    /// Offers an entry that `session` loaded.
    pub(crate) fn offer(&self, session: u32, handle: Handle, entry: &Entry) {
        let offered = Offered { template: entry.template.clone(), image: Arc::downgrade(&entry.image) };
        self.entries.lock().insert((session, handle), offered);
    }

    /// A copy of an entry that a session loaded, with that session's hidden parameters.
    pub(crate) fn entry(&self, session: u32, handle: Handle) -> Result<Entry, Error> {
        let entries = self.entries.lock();
        let offered = entries.get(&(session, handle));
        let entry = offered.and_then(|offered| {
            Some(Entry { template: offered.template.clone(), image: offered.image.upgrade()? })
        });
        entry.ok_or_else(|| Error::new(ErrorCode::InvalidHandle, "no such entry in that session"))
    }

    /// Takes back what [`Executor::offer`] offered.
    pub(crate) fn withdraw(&self, session: u32, handles: &[Handle]) {
        let mut entries = self.entries.lock();
        for handle in handles {
            entries.remove(&(session, *handle));
        }
    }

    /// The kernel is gone: nobody submits any more.
    pub(crate) fn stop(&self) {
        self.slots.stop();
        for (_, known) in self.sessions.lock().drain() {
            known.session.stopping.store(true, Ordering::Release);
            known.session.resumed.notify_all();
        }
    }
}
