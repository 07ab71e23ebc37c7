//! What the kernel says of itself, asked while something is measured.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{Connection, Error};
use bulkhead_schema::bulkhead_capnp::{result, status};
use tokio::{runtime::Runtime, task::LocalSet};

use super::{findings::Trouble, tenant::PATIENCE};

/// Between two questions, at first and at most. In between it is part of the time waited so far: late by as much.
const NAP_MIN: Duration = Duration::from_micros(100);
const NAP_MAX: Duration = Duration::from_millis(10);
const NAP_FRACTION: u32 = 100;

/// A connection on which questions are asked one by one.
pub(super) struct Observer {
    runtime: Runtime,
    set: LocalSet,
    connection: Connection,
}

/// Part of the kernel's status, for its only device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    /// 0 while none runs.
    pub(super) executor_pid: u32,
    /// 0 while none is ready.
    pub(super) standby_pid: u32,
    /// Moved in and out, in all.
    pub(super) swapped_bytes: u64,
    /// Images that were compiled, taken from the cache, and loaded already, in all.
    pub(super) images: [u32; 3],
    /// Names of the sessions that are not gone.
    pub(super) sessions: Vec<String>,
}

impl Observer {
    pub(super) fn open(socket: &Path) -> Result<Self, Trouble> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Trouble::Said(format!("no runtime: {error}")))?;
        let set = LocalSet::new();
        let connection = set.block_on(&runtime, Connection::open(socket, "bench observer"))?;
        Ok(Self { runtime, set, connection })
    }

    pub(super) fn status(&self) -> Result<Status, Trouble> {
        let asked = async {
            let response = self.connection.kernel.status_request().send().promise.await?;
            match response.get()?.get_result()?.which()? {
                result::Ok(status) => read(status?).map(Ok),
                result::Error(error) => Ok(Err(Error::read(error?))),
            }
        };
        let answered: capnp::Result<Result<Status, Error>> = self.set.block_on(&self.runtime, asked);
        let answered = answered.map_err(|error| Trouble::Said(format!("the kernel's status: {error}")))?;
        Ok(answered?)
    }

    /// Asks until the answer is as it should be, and gives it.
    pub(super) fn until(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Result<Status, Trouble> {
        let begun = Instant::now();
        loop {
            let status = self.status()?;
            if is_so(&status) {
                return Ok(status);
            }
            let waited = begun.elapsed();
            if waited > PATIENCE {
                return Err(Trouble::Said(format!("waited in vain for {what}: {status:?}")));
            }
            thread::sleep((waited / NAP_FRACTION).clamp(NAP_MIN, NAP_MAX));
        }
    }
}

fn read(status: status::Reader<'_>) -> capnp::Result<Status> {
    let device = status.get_devices()?.try_get(0);
    let device = device.ok_or_else(|| capnp::Error::failed("a kernel without a device".into()))?;
    let names = status.get_sessions()?.iter().map(|session| Ok(session.get_name()?.to_string()?));
    Ok(Status {
        executor_pid: device.get_executor_pid(),
        standby_pid: device.get_standby_pid(),
        swapped_bytes: device.get_swapped_bytes(),
        images: [device.get_images_compiled(), device.get_images_kept(), device.get_images_loaded()],
        sessions: names.collect::<capnp::Result<_>>()?,
    })
}
