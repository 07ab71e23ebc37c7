//! What a kernel says of itself over its RPC face.

use std::{future::Future, path::Path};

use bulkhead_client::{Column, Connection, Error, Operator};
use bulkhead_schema::bulkhead_capnp::{device_status, result, status};

/// `Status` of `bulkhead.capnp`, for its only device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The executor's process; 0 while none runs.
    pub executor_pid: u32,
    /// How often one was started.
    pub executor_starts: u32,
    /// The standby's process; 0 while none is ready.
    pub standby_pid: u32,
    /// How often a standby took over.
    pub failovers: u32,
    /// How often sessions were swapped out, and in.
    pub swaps: (u32, u32),
    /// Executors that wait for an isolated session.
    pub warm: u32,
    /// What all sessions together are charged for.
    pub charged_bytes: u64,
    /// What all sessions together use of everything.
    pub ledger: Vec<Column>,
    /// The sessions that are not gone.
    pub sessions: Vec<SessionStatus>,
}

/// `SessionStatus` of `bulkhead.capnp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// Its number.
    pub id: u32,
    /// The session whose program it runs; 0 for none.
    pub parent: u32,
    /// What it uses of everything.
    pub ledger: Vec<Column>,
    /// Lower is more urgent.
    pub priority: i32,
    /// What its client calls it.
    pub name: String,
    /// Its client's process.
    pub pid: u32,
    /// Device memory in buffers.
    pub buffer_bytes: u64,
    /// Device memory in arenas.
    pub arena_bytes: u64,
    /// Pinned host memory.
    pub host_bytes: u64,
    /// Capabilities.
    pub capabilities: u32,
    /// Buffers of others that are mapped in it.
    pub granted: u32,
    /// Memory of it that lies in host memory.
    pub swapped_bytes: u64,
    /// Memory of it that nobody gets before its work is known to be gone.
    pub quarantined_bytes: u64,
    /// Whether it is over.
    pub lost: bool,
    /// Its own executor's process; 0 of a guarded session.
    pub executor_pid: u32,
    /// Whether the operator has suspended it.
    pub suspended: bool,
    /// Whether the operator wants that, and it still runs.
    pub suspending: bool,
}

impl Status {
    /// What all sessions together use, where that is not nothing.
    #[must_use]
    pub fn charges(&self) -> Vec<&Column> {
        self.ledger.iter().filter(|column| column.used > 0).collect()
    }

    /// Checks that nobody uses more than it may, and that what the parts use is what the whole does.
    ///
    /// # Panics
    /// Where the books are wrong.
    pub fn check_ledgers(&self) {
        for session in &self.sessions {
            for column in &session.ledger {
                assert!(column.used <= column.limit, "{}: {column:?}", session.name);
            }
        }
        for (at, whole) in self.ledger.iter().enumerate() {
            assert!(whole.used <= whole.limit, "all together: {whole:?}");
            let used = |session: &SessionStatus| session.ledger.get(at).map_or(0, |column| column.used);
            let below = |parent: u32| self.sessions.iter().filter(move |session| session.parent == parent);
            let roots: u64 = below(0).map(used).sum();
            // Sessions that are being opened are charged, and not listed yet.
            assert!(roots <= whole.used, "{roots} of sessions against {whole:?}");
            for session in &self.sessions {
                let children: u64 = below(session.id).map(used).sum();
                let own = used(session);
                assert!(children <= own, "{}: {children} below {own} of {}", session.name, whole.name);
            }
        }
    }

    /// The session with a name.
    #[must_use]
    pub fn session(&self, name: &str) -> Option<&SessionStatus> {
        self.sessions.iter().find(|session| session.name == name)
    }
}

/// Runs futures that are bound to this thread.
///
/// # Panics
/// Where the system gives no runtime.
pub fn local<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

/// Asks the kernel behind a socket.
///
/// # Errors
/// Where there is none.
///
/// # Panics
/// Where it answers what is no answer.
pub fn of(socket: &Path) -> Result<Status, Error> {
    ask(socket, read)
}

/// Asks over the operator's socket, beside that of clients.
///
/// # Errors
/// Where there is no kernel, or it does not let an operator in.
///
/// # Panics
/// Where it answers what is no answer.
pub fn of_operator(socket: &Path) -> Result<Status, Error> {
    local(async {
        let operator = Operator::open(&socket.with_file_name("operator.sock")).await?;
        let status = operator.status().await?;
        Ok(read(status.get_root_as_reader().expect("a status")).expect("a status can be read"))
    })
}

/// How many images were compiled since the kernel started, taken from the cache, and loaded already.
///
/// # Errors
/// Where there is no kernel.
///
/// # Panics
/// Where it answers what is no answer.
pub fn images(socket: &Path) -> Result<[u32; 3], Error> {
    ask(socket, |status| {
        let device = device(status)?;
        Ok([device.get_images_compiled(), device.get_images_kept(), device.get_images_loaded()])
    })
}

fn ask<T>(socket: &Path, read: impl FnOnce(status::Reader<'_>) -> capnp::Result<T>) -> Result<T, Error> {
    local(async {
        let connection = Connection::open(socket, "status").await?;
        let response = connection.kernel.status_request().send().promise.await.expect("status is answered");
        let result = response.get().and_then(|response| response.get_result()).expect("status has a result");
        match result.which().expect("a result is one of two") {
            result::Ok(status) => Ok(read(status.expect("a status")).expect("a status can be read")),
            result::Error(error) => Err(Error::read(error.expect("an error"))),
        }
    })
}

fn device(status: status::Reader<'_>) -> capnp::Result<device_status::Reader<'_>> {
    let device = status.get_devices()?.try_get(0);
    device.ok_or_else(|| capnp::Error::failed("a kernel without a device".into()))
}

fn read(status: status::Reader<'_>) -> capnp::Result<Status> {
    let device = device(status)?;
    let session = |session: bulkhead_schema::bulkhead_capnp::session_status::Reader<'_>| {
        Ok(SessionStatus {
            id: session.get_id(),
            parent: session.get_parent(),
            ledger: session.get_ledger()?.iter().map(Column::read).collect::<capnp::Result<_>>()?,
            priority: session.get_priority(),
            name: session.get_name()?.to_string()?,
            pid: session.get_pid(),
            buffer_bytes: session.get_buffer_bytes(),
            arena_bytes: session.get_arena_bytes(),
            host_bytes: session.get_host_bytes(),
            capabilities: session.get_capabilities(),
            granted: session.get_granted(),
            swapped_bytes: session.get_swapped_bytes(),
            quarantined_bytes: session.get_quarantined_bytes(),
            lost: session.get_lost(),
            executor_pid: session.get_executor_pid(),
            suspended: session.get_suspended(),
            suspending: session.get_suspending(),
        })
    };
    Ok(Status {
        executor_pid: device.get_executor_pid(),
        executor_starts: device.get_executor_starts(),
        standby_pid: device.get_standby_pid(),
        failovers: device.get_failovers(),
        swaps: (device.get_swap_outs(), device.get_swap_ins()),
        warm: device.get_warm(),
        charged_bytes: device.get_charged_bytes(),
        ledger: device.get_ledger()?.iter().map(Column::read).collect::<capnp::Result<_>>()?,
        sessions: status.get_sessions()?.iter().map(session).collect::<capnp::Result<_>>()?,
    })
}
