//! The connection to this process's worker. One that is lost takes its plans with it; the next plan gets another.

use std::{
    collections::BTreeSet,
    env,
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
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
    /// Why no more is asked here.
    lost: OnceLock<&'static str>,
    plans: Mutex<BTreeSet<usize>>,
    pub(crate) buffers: Mutex<Buffers>,
}

const ENDED: &str = "the worker of this process has ended, and its plans: make them again";
const SILENT: &str =
    "the worker of this process did not answer in time, and was given up with its plans: make them again";

static LINK: Mutex<Option<Arc<Link>>> = Mutex::new(None);

/// The process that has plans; 0 before there is one.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Refuses processes that were forked off one that has plans. Whoever takes a lock comes here first: what other threads held
/// at the fork, nobody gives back in the child.
pub(crate) fn enter() -> Result<(), Refused> {
    let own = std::process::id();
    let owner = OWNER.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire);
    if owner.is_ok() || owner == Err(own) {
        return Ok(());
    }
    Err(no_service(
        "this process was forked off one that has plans, which a child cannot use: make plans after the fork only, or exec"
            .into(),
    ))
}

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
        let said = connection.write_all(format!("open {WORDS}\n").as_bytes());
        let mut line = String::new();
        // Nothing follows the line before the first request.
        let copy = connection.try_clone().map_err(gone)?;
        BufReader::new(copy.take(LINE_BYTES_MAX)).read_line(&mut line).map_err(gone)?;
        // Whoever is turned away is told why, also where the door closed before it had spoken.
        if line.is_empty() {
            said.map_err(gone)?;
        }
        if !line.starts_with(SERVES) {
            let told = line.trim_end().replace(|letter: char| letter.is_control(), " ");
            let told = if told.is_empty() { "its worker ended at once".to_owned() } else { told };
            return Err(no_service(format!("the service gives no worker: {told}")));
        }
        Ok(Self::over(connection))
    }

    fn over(connection: UnixStream) -> Self {
        Self {
            connection: Mutex::new(connection),
            lost: OnceLock::new(),
            plans: Mutex::new((0..PLANS_MAX).collect()),
            buffers: Mutex::new(Buffers::default()),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        if self.lost.get().is_some() {
            return true;
        }
        // Whoever waits for an answer sees for itself. Where nobody does there is nothing to be read.
        let Some(connection) = self.connection.try_lock() else { return false };
        let looked = rustix::net::recv(&*connection, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let is_lost =
            looked.is_ok() || looked.is_err_and(|error| error != Errno::AGAIN && error != Errno::INTR);
        if is_lost {
            self.lose(&connection, ENDED);
        }
        is_lost
    }

    /// Asks no more here. The worker sees it, and ends; an answer that comes late reaches nobody.
    fn lose(&self, connection: &UnixStream, why: &'static str) {
        self.lost.get_or_init(|| why);
        // Where it is shut already there is nothing to shut.
        connection.shutdown(Shutdown::Both).unwrap_or_default();
    }

    /// What is told of what a worker had that is lost.
    pub(crate) fn lost(&self) -> Refused {
        Refused::new(Status::ExecFailed, *self.lost.get().unwrap_or(&ENDED))
    }

    /// Asks the worker one thing, and waits for the answer.
    pub(crate) fn ask(&self, request: &Request) -> Answer {
        let connection = self.connection.lock();
        if self.is_lost() {
            return Err(self.lost());
        }
        let answered =
            socket::send(&connection, &request.frame()).and_then(|()| socket::receive(&connection));
        let is_late =
            |error: &std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        match answered {
            Ok(Some(frame)) => return wire::read_answer(&frame),
            Err(error) if is_late(&error) => self.lose(&connection, SILENT),
            Ok(None) | Err(_) => self.lose(&connection, ENDED),
        }
        Err(self.lost())
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_worker_that_answers_late_is_given_up() {
        let (own, worker) = UnixStream::pair().expect("a pair");
        own.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
        let link = Link::over(own);
        let request = Request::Destroy(PlanSlot(7));
        let first = link.ask(&request).expect_err("nobody answers");
        assert!(first.status == Status::ExecFailed && first.message.contains("did not answer"), "{first}");
        // An answer that comes now belongs to nothing that is asked later.
        assert_eq!(socket::receive(&worker).expect("it was asked"), Some(request.frame()));
        assert!(socket::send(&worker, &wire::answer_frame(&Ok(1))).is_err(), "the link is open still");
        assert_eq!(socket::receive(&worker).expect("it is closed"), None);
        assert!(link.is_lost());
        assert_eq!(link.ask(&request), Err(first));
    }

    #[test]
    fn what_nobody_asked_for_ends_a_link() {
        let (own, worker) = UnixStream::pair().expect("a pair");
        let link = Link::over(own);
        assert!(!link.is_lost());
        socket::send(&worker, &wire::answer_frame(&Ok(1))).expect("it listens");
        assert!(link.is_lost());
        let asked = thread::scope(|scope| scope.spawn(|| link.ask(&Request::Destroy(PlanSlot(7)))).join());
        assert_eq!(asked.expect("it answers").map_err(|refused| refused.status), Err(Status::ExecFailed));
    }
}
