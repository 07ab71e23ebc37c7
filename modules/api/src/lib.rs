//! The kit for host halves of protected modules.
//!
//! A *protected module* is gates, which tenants' kernels call, a *window* of memory that only those reach, and a process, the
//! *host half*. An author writes the gates in CUDA C (`include/bulkhead_module.h`) and a [`Service`] in Rust; [`main`] makes
//! that a process. `bulkhead module start` runs it.
//!
//! Whoever wants to call the gates *opens* the service over the module's own socket ([`door`]), with words that mean what the
//! service likes. It gets an *instance*: gates with a badge of its own, which every call of its kernels brings along. The
//! instance lasts as long as the connection. Then its gates are taken back:
//!
//! 1. [`Service::quiesce`]: what the gates look at says that the instance is revoked, so that calls of kernels that run answer
//!    so;
//! 2. the gates are revoked, and no kernel is in a gate on that authority any more;
//! 3. [`Service::close`]: what the instance had may be given to another.
//!
//! # Invariants
//! 1. No two instances have the same badge, ever: a badge is a slot and how often that was used.
//! 2. A slot is used again only when no kernel can read its last badge any more.
//! 3. What a caller says costs no more than [`door::WORDS_BYTES_MAX`] bytes and one connection of [`door::CALLERS_OF_A_PROCESS`], and
//!    nothing of it blocks the service.
//!
//! # Trust
//! The host half is a client of the kernel's like any other, and trusted by nobody but the module's callers. It believes
//! neither what callers say nor what lies in host memory without a check: a gate of its own wrote it, but a caller chose the
//! values.

pub mod codes;
pub mod door;
mod host;
mod inside;
mod instances;
pub mod manifest;
#[cfg(feature = "device")]
mod memory;
mod openings;
mod runner;
mod tell;
mod window;

pub use host::{HostCaller, OpenedHost, SHARED_START};
pub use inside::{Entered, Inside};
pub use instances::{Badge, Instances};
#[cfg(feature = "device")]
pub use memory::HostMemory;
pub use runner::{CANNOT_SERVE, INSTANCES, NAME, Place, QUOTA, digest, main, run};
pub use tell::{end, report, warn};
pub use window::Window;

use bulkhead_client::{Error, ErrorCode};

/// Whether there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was found, and nothing is on its way: the host half may sleep until a kernel calls the gates.
    Idle,
    /// Nothing was found, but something is on its way that no kernel waits for, such as a write to a disk.
    Waits,
    /// Something was done.
    Worked,
}

/// Whether an instance's place may be another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It may.
    Done,
    /// What it had is in use: ask again.
    NotYet,
}

/// What a module's host half does.
pub trait Service {
    /// What the host half keeps of an instance.
    type Instance;

    /// Which gates it was made for: `GATES` of what `bulkhead module build --rust` writes; 0 for any.
    const GATES: u64;
    /// What the window begins with: `INITIAL` there.
    const INITIAL: &'static [u8];
    /// What its host memory begins with: `HOST_INITIAL` there, where there are managed variables.
    const HOST_INITIAL: &'static [u8] = &[];
    /// For how many instances the gates keep what they keep.
    const INSTANCES_MAX: usize;

    /// The window is there, and nobody has opened the service yet.
    ///
    /// # Errors
    /// Where the module cannot serve: the process ends.
    fn start(&mut self, _window: &Window) -> Result<(), Error> {
        Ok(())
    }

    /// Somebody opens the service with these words. Gates that are called on this authority read the badge.
    ///
    /// # Errors
    /// Why that is refused, as the caller is told; [`refuse`] makes one. Where the code is `unavailable` it is tried again for a
    /// second, since whoever has what is wanted may be on its way out.
    fn open(&mut self, window: &Window, badge: Badge, words: &str) -> Result<Self::Instance, Error>;

    /// Bytes of memory that the service shares with each caller that is host code and no kernel; 0 where it serves none.
    const SHARED_BYTES: u64 = 0;

    /// Whether the service uses memory that host code lends ([`HostCaller::lent`]).
    const BORROWS: bool = false;

    /// The same for host code, with which the service shares memory that is zero. No gate is called with this badge.
    ///
    /// # Errors
    /// As for [`Service::open`].
    fn open_host(
        &mut self,
        _window: &Window,
        _badge: Badge,
        _words: &str,
        _caller: HostCaller,
    ) -> Result<Self::Instance, Error> {
        Err(refuse("the service is for kernels, and not for host code"))
    }

    /// Looks once at what gates and host code have left, and does a bounded amount of work. Asked again and again while kernels call the
    /// gates, and while something is on its way.
    fn serve(&mut self, _window: &Window, _instances: &mut Instances<Self::Instance>) -> Progress {
        Progress::Idle
    }

    /// The executor was lost, and the standby goes on with the window as it was (`serve --standby`): kernels of this instance that
    /// were in a gate have ended in the middle of it. What a gate may have left half done, such as a lock, stays so: unless this
    /// says otherwise the instance is revoked, and its caller opens another. Gates may be called again meanwhile. When the caller
    /// lets go it is revoked once more.
    ///
    /// # Errors
    /// As for [`Service::quiesce`].
    fn cut_off(&mut self, window: &Window, badge: Badge, instance: &mut Self::Instance) -> Result<(), Error> {
        self.quiesce(window, badge, instance)
    }

    /// An instance is about to be revoked: whatever gates look at has to say so from here on.
    ///
    /// # Errors
    /// Where the window cannot be written: the process ends, and with it all gates.
    fn quiesce(&mut self, window: &Window, badge: Badge, instance: &mut Self::Instance) -> Result<(), Error>;

    /// No kernel calls gates with this badge any more, and none ever will. Where what the instance had is in use for longer, such as
    /// by a device, this answers so and is asked again; it does not wait, since nobody else is served meanwhile.
    fn close(&mut self, _window: &Window, _badge: Badge, _instance: &mut Self::Instance) -> Closed {
        Closed::Done
    }
}

/// A refusal of what a caller asked for.
#[must_use]
pub fn refuse(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidArgument, message.into())
}
