//! Protected modules: those that whoever runs the kernel has named, and the tokens that they are claimed with.
//!
//! A module is no more than a name and a text until a session [claims](crate::session::Session::claim_module) it: from then on it
//! is an object of that session's, whose account has its window, and ends with it.

use std::{
    cell::{Cell, RefCell},
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    rc::Rc,
};

use bulkhead_schema::Error;
use tokio::sync::Mutex;

use crate::{
    books::{Loaded, SturdyToken},
    refusal::internal,
    session::Charge,
};

/// A protected module.
#[derive(Clone)]
pub struct ProtectedModule {
    /// What people call it, and the file in the runtime directory that its token is written to: `NAME.token`.
    pub name: String,
    /// The text of its gates.
    pub gates: String,
    /// Bytes of its protected window: a power of two, from 2 MiB to 32 GiB.
    pub bytes: u64,
    /// Bytes of those that are host memory, at the window's end: whole pages of 2 MiB, and not all.
    pub host_bytes: u64,
}

impl fmt::Debug for ProtectedModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectedModule").field("name", &self.name).field("bytes", &self.bytes).finish()
    }
}

/// A module that may be claimed, by one session at a time.
pub(crate) struct Known {
    pub(crate) protected: ProtectedModule,
    /// The text of its gates, as executors read it.
    pub(crate) text: OwnedFd,
    /// The same text in the runtime directory, as compile processes read it: they cannot open what this process has open.
    pub(crate) path: PathBuf,
    pub(crate) token: SturdyToken,
    /// The session that has it.
    pub(crate) holder: Cell<Option<u32>>,
}

impl Known {
    pub(crate) fn new(protected: ProtectedModule, directory: &Path) -> Result<Rc<Self>, Error> {
        let path = directory.join(format!("{}.gates", protected.name));
        let text = bulkhead_ring::memory::create_sealed_copy("bulkhead-gates", protected.gates.as_bytes());
        let text = text.map_err(|error| internal(format!("no memory for gates: {error}")))?;
        Ok(Rc::new(Self { protected, text, path, token: SturdyToken::random()?, holder: Cell::new(None) }))
    }
}

/// A module that a session has claimed.
pub(crate) struct Owned {
    pub(crate) known: Rc<Known>,
    /// What the executor calls it: never another.
    pub(crate) number: u32,
    /// Whether the executor has its window.
    pub(crate) state: Cell<Loaded>,
    /// Held while its window is read or written: it is not removed meanwhile.
    pub(crate) busy: Mutex<()>,
    /// The host memory that its window ends with.
    pub(crate) host: Option<OwnedFd>,
    charges: RefCell<Vec<Charge>>,
}

impl Owned {
    /// Has a session hold a module that nobody holds.
    pub(crate) fn new(
        known: &Rc<Known>,
        session: u32,
        number: u32,
        host: Option<OwnedFd>,
        charges: Vec<Charge>,
    ) -> Self {
        known.holder.set(Some(session));
        Self {
            known: Rc::clone(known),
            number,
            state: Cell::new(Loaded::No),
            busy: Mutex::new(()),
            host,
            charges: RefCell::new(charges),
        }
    }

    /// There is nothing left of it: the next may claim it.
    pub(crate) fn gave_back(&self) {
        drop(self.charges.take());
        self.known.holder.set(None);
    }
}

/// The files that say how modules are claimed; gone with this.
pub(crate) struct TokenFiles(Vec<PathBuf>);

impl TokenFiles {
    /// Writes them anew, for nobody else to read.
    pub(crate) fn write(directory: &Path, modules: &[Rc<Known>]) -> Result<Self, (PathBuf, io::Error)> {
        let mut files = Self(Vec::new());
        for module in modules {
            let token =
                (directory.join(format!("{}.token", module.protected.name)), format!("{}\n", module.token));
            let gates = (module.path.clone(), module.protected.gates.clone());
            for (path, text) in [token, gates] {
                let written = match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    Ok(()) | Err(_) => {
                        // A link that somebody has put there is not followed.
                        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)
                    }
                };
                let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
                written.map_err(|error| (path.clone(), error))?;
                files.0.push(path);
            }
        }
        Ok(files)
    }
}

impl Drop for TokenFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(path = %path.display(), %error, "a module's file cannot be removed");
            }
        }
    }
}
