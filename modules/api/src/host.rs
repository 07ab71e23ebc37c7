//! Host code that calls a service: memory that both share, and a connection over which either wakes the other.
//!
//! The host half makes the memory, so that no descriptor of a caller's gets in, and neither side can make it shorter. Its first two
//! words are the kit's, what lies from [`SHARED_START`] on the service's. All of it is the caller's to write: a service copies what
//! it reads, checks the copy, and uses the copy.

use std::{
    io::Read as _,
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use bulkhead_client::{Borrowed, Error, ErrorCode, Lending, ModuleHost};
use bulkhead_ring::bell;
use rustix::net::SendFlags;

use crate::door;

/// Where what a service shares with host code begins; before it lies what the kit needs.
pub const SHARED_START: usize = 128;
/// Whether the host half sleeps, and a caller rings.
const SLEEPS: usize = 0;
/// Whether the caller sleeps, and the host half wakes it.
const WAITS: usize = 64;
/// How often a caller looks before it sleeps.
const LOOKS: u32 = 2_000;

fn word(memory: &ModuleHost, offset: usize) -> &AtomicU32 {
    static NONE: AtomicU32 = AtomicU32::new(0);
    memory.word(offset).unwrap_or(&NONE)
}

/// Sends one byte, if there is room for it: where there is none the other side has more to read than it needs.
fn send(connection: &UnixStream) {
    rustix::net::send(connection, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT).unwrap_or_default();
}

/// Host code that has opened the service, as its host half sees it.
pub struct HostCaller {
    memory: Arc<ModuleHost>,
    connection: UnixStream,
    lent: Option<Arc<Borrowed>>,
}

impl HostCaller {
    /// A caller that shares this memory, and is woken over this connection. The kit makes them; tests of a service may.
    #[must_use]
    pub fn new(memory: Arc<ModuleHost>, connection: UnixStream) -> Self {
        Self { memory, connection, lent: None }
    }

    /// One that lends memory too.
    #[must_use]
    pub fn lending(self, lent: Arc<Borrowed>) -> Self {
        Self { lent: Some(lent), ..self }
    }

    /// The memory that it lends, where it does. It may write all of that at any time. It counts as in use until nobody has this any
    /// more, so keep it until whatever reaches it has ended, and no longer.
    #[must_use]
    pub fn lent(&self) -> Option<&Arc<Borrowed>> {
        self.lent.as_ref()
    }

    /// The memory that is shared. The caller may write all of it at any time.
    #[must_use]
    pub fn memory(&self) -> &Arc<ModuleHost> {
        &self.memory
    }

    /// Wakes the caller, if it sleeps: there is something new in the memory. Never waits.
    pub fn wake(&self) {
        let waits = word(&self.memory, WAITS);
        if bell::has_to_wake(waits) {
            waits.store(0, Ordering::Relaxed);
            send(&self.connection);
        }
    }

    /// Ends the caller's connection, and with it the instance: it has broken the rules.
    pub fn end(&self) {
        // One that has hung up already is over anyway.
        self.connection.shutdown(std::net::Shutdown::Both).unwrap_or_default();
    }
}

/// Says to a caller whether the host half sleeps.
pub(crate) fn tell_sleep(memory: &ModuleHost, sleeps: bool) {
    bell::say(word(memory, SLEEPS), sleeps);
}

/// A service that host code has opened. The instance ends when this is dropped.
pub struct OpenedHost {
    memory: ModuleHost,
    connection: UnixStream,
    _lending: Option<Lending>,
}

impl OpenedHost {
    /// Opens a service over its module's socket ([`door::socket_of`]), with words for it.
    ///
    /// # Errors
    /// As of [`door::open`].
    pub fn open(socket: &Path, words: &str) -> Result<Self, Error> {
        Self::open_any(socket, words, None)
    }

    /// The same, with memory that is lent to the service as long as this is held.
    ///
    /// # Errors
    /// As of [`door::open`]; `invalid argument` where the service borrows none.
    pub fn open_lending(socket: &Path, words: &str, lending: Lending) -> Result<Self, Error> {
        Self::open_any(socket, words, Some(lending))
    }

    fn open_any(socket: &Path, words: &str, lending: Option<Lending>) -> Result<Self, Error> {
        let lends = lending.as_ref().map(Lending::token);
        let (connection, memory, bytes) = door::open_host(socket, lends, words)?;
        let broken = |error| Error::new(ErrorCode::OutOfMemory, format!("the module's memory: {error}"));
        let memory = ModuleHost::of(memory.as_fd(), bytes).map_err(broken)?;
        Ok(Self { memory, connection, _lending: lending })
    }

    /// The memory that is shared with the service.
    #[must_use]
    pub fn memory(&self) -> &ModuleHost {
        &self.memory
    }

    /// Tells the host half that there is something new in the memory: a system call where it sleeps, and none otherwise.
    pub fn ring(&self) {
        if bell::has_to_wake(word(&self.memory, SLEEPS)) {
            send(&self.connection);
        }
    }

    /// Waits until there is what is looked for, however often that has to be looked for.
    ///
    /// # Errors
    /// `timedOut` where there is none so long; `unavailable` where the module has ended, or has ended this instance.
    pub fn wait<T>(&self, patience: Duration, mut look: impl FnMut() -> Option<T>) -> Result<T, Error> {
        let begun = Instant::now();
        for _ in 0..LOOKS {
            if let Some(found) = look() {
                return Ok(found);
            }
            std::hint::spin_loop();
        }
        loop {
            bell::say(word(&self.memory, WAITS), true);
            if let Some(found) = look() {
                return Ok(found);
            }
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(Error::new(ErrorCode::TimedOut, "the module does not answer"));
            }
            self.sleep(left.min(Duration::from_millis(100)))?;
        }
    }

    fn sleep(&self, time: Duration) -> Result<(), Error> {
        let gone = || {
            Error::new(ErrorCode::Unavailable, "the module has ended, or has ended this instance")
                .remedy("see what `bulkhead module start` says of it, and open it again")
        };
        self.connection.set_read_timeout(Some(time)).map_err(|_| gone())?;
        match (&self.connection).read(&mut [0; 64]) {
            Ok(0) => Err(gone()),
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
            {
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            Err(_) => Err(gone()),
            Ok(_) => Ok(()),
        }
    }
}
