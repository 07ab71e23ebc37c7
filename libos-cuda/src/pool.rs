//! Memory pools. They keep nothing back: freed memory is the session's again once its stream has passed.
//!
//! A pool says where memory belongs: how much of it there is, and whether other processes may have it. Those get the pool
//! by a descriptor and each allocation by what was exported for its pointer, which is good without the pool as well:
//! the pool is there to tell whose the pointer is, and whether its process is still there.

mod calls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

pub(crate) use calls::*;

use crate::device::Session;
use crate::handle::Kind;
use crate::handle_tables::Table;
use crate::presence::{Other, Presence};
use crate::status::{Answer, Status};

/// Pools that a program may hold at a time.
const POOLS_MAX: usize = 1 << 16;
const HANDLE_NONE: u32 = 0;
const HANDLE_DESCRIPTOR: u32 = 1;

/// Tells the pools of one process apart, and those of others.
pub(crate) type PoolName = [u8; 8];

/// Where a pool comes from.
enum Origin {
    /// It is the device's.
    Device,
    Created,
    /// Another process's, which holds it under this name.
    Imported(PoolName, Option<Other>),
}

/// How much there is, and was at most.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    now: u64,
    most: u64,
}

/// A pool.
pub(crate) struct Pool {
    origin: Origin,
    handle_types: u32,
    bytes_max: u64,
    /// Its handle, for who asks an address for its pool.
    handle: AtomicU64,
    used: Mutex<Used>,
    /// Remembered for the program to read back; a threshold for what is kept back has nothing to act on.
    threshold: AtomicU64,
    /// What it is exported as: lasts as long as the pool and its allocations.
    exported: Mutex<Option<Presence>>,
}

/// An allocation's part in its pool.
pub(crate) struct Pooled {
    pub(crate) pool: Arc<Pool>,
    bytes: u64,
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut used = self.pool.used.lock();
        used.now = used.now.saturating_sub(self.bytes);
    }
}

impl Pool {
    fn new(origin: Origin, handle_types: u32, bytes_max: u64) -> Arc<Pool> {
        Arc::new(Pool {
            origin,
            handle_types,
            bytes_max,
            handle: AtomicU64::new(0),
            used: Mutex::default(),
            threshold: AtomicU64::new(0),
            exported: Mutex::default(),
        })
    }

    /// Takes so much of what the pool may have.
    pub(crate) fn take(self: &Arc<Pool>, bytes: u64) -> Result<Pooled, Status> {
        let mut used = self.used.lock();
        let now = used.now.checked_add(bytes).filter(|now| *now <= self.bytes_max);
        used.now = now.ok_or(Status::OUT_OF_MEMORY)?;
        used.most = used.most.max(used.now);
        Ok(Pooled { pool: self.clone(), bytes })
    }

    pub(crate) fn handle(&self) -> u64 {
        self.handle.load(Ordering::Relaxed)
    }

    pub(crate) fn handle_types(&self) -> u32 {
        self.handle_types
    }

    fn is_imported(&self) -> bool {
        matches!(self.origin, Origin::Imported(..))
    }

    /// Does something with what the pool is exported as.
    fn exported<R>(&self, session: &Session, with: impl FnOnce(&Presence) -> R) -> Result<R, Status> {
        if self.is_imported() || self.handle_types & HANDLE_DESCRIPTOR == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let mut exported = self.exported.lock();
        let presence = match &mut *exported {
            Some(presence) => presence,
            None => exported.insert(Presence::new(session).map_err(|error| Status::of(&error))?),
        };
        Ok(with(presence))
    }

    /// What others know it by.
    pub(crate) fn name(&self, session: &Session) -> Result<PoolName, Status> {
        self.exported(session, |presence| name_of(presence.token().0))
    }

    /// That a pointer of the pool of this name may be imported from it.
    pub(crate) fn check_import(&self, name: PoolName) -> Answer {
        match &self.origin {
            Origin::Imported(own, other) if *own == name => {
                let is_gone = other.as_ref().is_some_and(Other::is_gone);
                if is_gone { Err(Status::INVALID_VALUE) } else { Ok(()) }
            }
            Origin::Imported(..) | Origin::Device | Origin::Created => Err(Status::INVALID_VALUE),
        }
    }
}

/// A quarter of the token, which leaves 192 bits that nobody else knows.
fn name_of(token: [u8; 32]) -> PoolName {
    let [a, b, c, d, e, f, g, h, ..] = token;
    [a, b, c, d, e, f, g, h]
}

/// All pools of a process.
pub(crate) struct Pools {
    table: Table<Pool>,
    default: Arc<Pool>,
    /// What `cudaMallocAsync` allocates from.
    current: Mutex<Arc<Pool>>,
}

impl Pools {
    pub(crate) fn new() -> Result<Pools, Status> {
        let default = Pool::new(Origin::Device, HANDLE_NONE, u64::MAX);
        let table = Table::new(Kind::Pool, POOLS_MAX);
        default.handle.store(table.insert(default.clone())?, Ordering::Relaxed);
        Ok(Pools { table, current: Mutex::new(default.clone()), default })
    }

    /// Whether there is none but the default one.
    pub(crate) fn are_untouched(&self) -> bool {
        self.table.all().len() == 1
    }

    fn insert(&self, pool: Arc<Pool>) -> Result<u64, Status> {
        let handle = self.table.insert(pool.clone())?;
        pool.handle.store(handle, Ordering::Relaxed);
        Ok(handle)
    }

    pub(crate) fn get(&self, handle: u64) -> Result<Arc<Pool>, Status> {
        self.table.get(handle).map_err(|_| Status::INVALID_VALUE)
    }

    pub(crate) fn current(&self) -> Arc<Pool> {
        self.current.lock().clone()
    }
}
