//! The connection to this process's worker. One that is lost takes its plans with it; the next plan gets another.

use std::{
    collections::BTreeSet,
    env,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bulkhead_cufft::{
    PLANS_MAX, Refused, SERVES, Status, WORDS, socket,
    wire::{self, Answer, PlanSlot, Request},
};
use parking_lot::Mutex;
use rustix::{io::Errno, net::RecvFlags};

use crate::buffers::Buffers;

/// The service's name beside the kernel's socket.
const SOCKET: &str = "cufft.module.sock";
/// How long an answer may take: longer than any kernel may run, and than a transform on the host takes.
const ANSWERING: Duration = Duration::from_secs(300);
/// Longest first answer.
const LINE_BYTES_MAX: u64 = 4096;

/// A worker of this process's.
pub(crate) struct Link {
    connection: Mutex<UnixStream>,
    is_lost: AtomicBool,
    plans: Mutex<BTreeSet<usize>>,
    pub(crate) buffers: Mutex<Buffers>,
    /// A process that was forked has none of its parent's plans.
    process: u32,
}

static LINK: Mutex<Option<Arc<Link>>> = Mutex::new(None);

/// The worker, which is started where there is none.
pub(crate) fn link() -> Result<Arc<Link>, Refused> {
    let mut link = LINK.lock();
    if let Some(link) = link.as_ref().filter(|link| !link.is_lost()) {
        return Ok(Arc::clone(link));
    }
    let made = Arc::new(Link::open()?);
    *link = Some(Arc::clone(&made));
    Ok(made)
}

fn no_service(why: String) -> Refused {
    Refused::new(Status::SetupFailed, why)
}

impl Link {
    fn open() -> Result<Self, Refused> {
        let kernel = env::var_os("BULKHEAD_SOCKET").map(PathBuf::from).ok_or_else(|| {
            no_service(
                "this library is Bulkhead's: run the program with `bulkhead run --module cufft`".into(),
            )
        })?;
        let path = kernel.with_file_name(SOCKET);
        let gone = |error: std::io::Error| {
            no_service(format!(
                "no service at {}: {error}: start it with `bulkhead module start modules/cufft`",
                path.display()
            ))
        };
        let mut connection = UnixStream::connect(&path).map_err(gone)?;
        connection.set_read_timeout(Some(ANSWERING)).map_err(gone)?;
        connection.set_write_timeout(Some(ANSWERING)).map_err(gone)?;
        connection.write_all(format!("open {WORDS}\n").as_bytes()).map_err(gone)?;
        let mut line = String::new();
        // Nothing follows the line before the first request.
        let copy = connection.try_clone().map_err(gone)?;
        BufReader::new(copy.take(LINE_BYTES_MAX)).read_line(&mut line).map_err(gone)?;
        if !line.starts_with(SERVES) {
            let told = line.trim_end().replace(|letter: char| letter.is_control(), " ");
            let told = if told.is_empty() { "its worker ended at once".to_owned() } else { told };
            return Err(no_service(format!("the service gives no worker: {told}")));
        }
        Ok(Self {
            connection: Mutex::new(connection),
            is_lost: AtomicBool::new(false),
            plans: Mutex::new((0..PLANS_MAX).collect()),
            buffers: Mutex::new(Buffers::default()),
            process: std::process::id(),
        })
    }

    pub(crate) fn is_lost(&self) -> bool {
        if self.is_lost.load(Ordering::Acquire) || self.process != std::process::id() {
            return true;
        }
        // Whoever waits for an answer sees for itself. Where nobody does there is nothing to be read.
        let Some(connection) = self.connection.try_lock() else { return false };
        let looked = rustix::net::recv(&*connection, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let is_lost =
            looked.is_ok() || looked.is_err_and(|error| error != Errno::AGAIN && error != Errno::INTR);
        self.is_lost.fetch_or(is_lost, Ordering::AcqRel);
        is_lost
    }

    /// What is told of what a worker had that has ended.
    pub(crate) fn lost() -> Refused {
        Refused::new(
            Status::ExecFailed,
            "the worker of this process has ended, and its plans: make them again",
        )
    }

    /// Asks the worker one thing, and waits for the answer.
    pub(crate) fn ask(&self, request: &Request) -> Answer {
        let connection = self.connection.lock();
        if self.is_lost() {
            return Err(Self::lost());
        }
        let answered =
            socket::send(&connection, &request.frame()).and_then(|()| socket::receive(&connection));
        match answered {
            Ok(Some(frame)) => wire::read_answer(&frame),
            Ok(None) | Err(_) => {
                self.is_lost.store(true, Ordering::Release);
                Err(Self::lost())
            }
        }
    }

    /// A plan's slot, which is given back when that is dropped.
    pub(crate) fn plan_slot(self: &Arc<Self>) -> Result<Remote, Refused> {
        let slot = self.plans.lock().pop_first().ok_or_else(|| {
            Refused::new(Status::AllocFailed, format!("{PLANS_MAX} plans are there: destroy some"))
        })?;
        Ok(Remote { link: Arc::clone(self), slot: PlanSlot(slot) })
    }
}

/// A plan at the worker.
pub(crate) struct Remote {
    pub(crate) link: Arc<Link>,
    pub(crate) slot: PlanSlot,
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Where the worker is gone so is the plan.
        self.link.ask(&Request::Destroy(self.slot)).map(drop).unwrap_or_default();
        self.link.plans.lock().insert(self.slot.0);
    }
}
