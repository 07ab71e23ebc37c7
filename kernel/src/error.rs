//! Why a kernel does not serve.

use std::{io, path::PathBuf};

/// Why a kernel does not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runtime directory cannot be used.
    #[error("the runtime directory {path:?} {what}: {error}")]
    RuntimeDirectory {
        /// What is the matter with it.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Others can enter the runtime directory.
    #[error(
        "{path:?} (mode {mode:o}) is no directory that only its owner, this user, can enter: name one of your own after \
         `chmod 700`, or one that is not there yet"
    )]
    NotPrivate {
        /// Where it is.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Another kernel serves there.
    #[error(
        "another kernel serves in {path:?}: programs use that one (`bulkhead status` shows them), or serve elsewhere with \
         --runtime-directory"
    )]
    AlreadyServing {
        /// Where.
        path: PathBuf,
    },
    /// A socket cannot be made.
    #[error("cannot listen on {path:?}: {error}")]
    Listen {
        /// Where.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// There is no runtime to serve on.
    #[error("cannot start a runtime: {0}")]
    Runtime(io::Error),
    /// The system gives no random numbers, or no memory, for modules.
    #[error("no modules: {0}")]
    Modules(String),
    /// A part that must never stop did: our fault.
    #[error("the {part} stopped: {reason}")]
    Stopped {
        /// Which.
        part: &'static str,
        /// What is known of it.
        reason: String,
    },
    /// Something was not given back though every session is gone: our fault.
    #[error("not everything was given back: {what}")]
    Leftovers {
        /// What is left.
        what: String,
    },
}
