//! Protected modules: those that whoever runs the kernel has named, and the tokens that they are claimed with.
//!
//! A module is no more than a name and a text until a session [claims](crate::session::Session::claim_module) it: from then on it
//! is an object of that session's, whose account has its window, and ends with it.

use std::{
    cell::Cell,
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    rc::Rc,
};

use bulkhead_mm::{PAGE_BYTES, ProtectedWindow};
use bulkhead_schema::{Error, ErrorCode, limits};
use tokio::sync::Notify;

use crate::{refusal::internal, registry::SturdyToken};

/// What sockets of host halves are called, behind the module's name (`modules/api`).
const SOCKET: &str = ".module.sock";

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

impl ProtectedModule {
    /// Whether there can be such a module. Its gates are the executor's to verify, when it is claimed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::new(ErrorCode::InvalidArgument, what));
        if !limits::is_module_name(&self.name) {
            let most = limits::MODULE_NAME_BYTES_MAX;
            return refuse(format!("a module's name is of letters, digits, _ and -, at most {most}"));
        }
        if self.gates.len() as u64 > limits::GATES_BYTES_MAX {
            return refuse(format!("gates have at most {} bytes", limits::GATES_BYTES_MAX));
        }
        if ProtectedWindow::new(0).is_none_or(|window| window.memory(self.bytes).is_none()) {
            return refuse(format!(
                "{} bytes are no window: a power of two from 2 MiB to 32 GiB is",
                self.bytes
            ));
        }
        if self.host_bytes >= self.bytes || !self.host_bytes.is_multiple_of(PAGE_BYTES) {
            let message = "a window's host memory is whole pages of 2 MiB, and not all of it";
            return refuse(message.to_owned());
        }
        Ok(())
    }
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
    /// When nobody has it any more.
    pub(crate) free: Notify,
    /// Whether it was taken away.
    pub(crate) is_removed: Cell<bool>,
    /// What says how it is claimed; gone with this.
    files: Cell<Option<Files>>,
}

impl Known {
    /// Writes the files that say how the module is claimed, for nobody else to read.
    pub(crate) fn new(protected: ProtectedModule, directory: &Path) -> Result<Rc<Self>, Error> {
        let path = directory.join(format!("{}.gates", protected.name));
        let text = bulkhead_ring::memory::create_sealed_copy("bulkhead-gates", protected.gates.as_bytes());
        let text = text.map_err(|error| internal(format!("no memory for gates: {error}")))?;
        let token = SturdyToken::random()?;
        let token_path = directory.join(format!("{}.token", protected.name));
        let files = Files::write([
            (token_path, format!("{token}\n").as_bytes()),
            (path.clone(), protected.gates.as_bytes()),
        ])?;
        Ok(Rc::new(Self {
            protected,
            text,
            path,
            token,
            holder: Cell::new(None),
            free: Notify::new(),
            is_removed: Cell::new(false),
            files: Cell::new(Some(files)),
        }))
    }

    /// Nobody claims it any more.
    pub(crate) fn remove(&self) {
        drop(self.files.take());
        self.is_removed.set(true);
    }

    /// Nobody has it any more.
    pub(crate) fn release(&self) {
        self.holder.set(None);
        self.free.notify_waiters();
    }
}

/// Files that say how a module is claimed; gone with this.
struct Files(Vec<PathBuf>);

impl Files {
    fn write<const N: usize>(files: [(PathBuf, &[u8]); N]) -> Result<Self, Error> {
        let mut written = Self(Vec::new());
        for (path, bytes) in files {
            if let Err(error) = write_anew(&path, bytes) {
                return Err(internal(format!("{} cannot be written: {error}", path.display())));
            }
            written.0.push(path);
        }
        Ok(written)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(path = %path.display(), %error, "a module's file cannot be removed");
            }
        }
    }
}

/// Removes what a kernel has left here that was killed: gates with their token, and sockets of host halves, which end with their kernel.
pub(crate) fn remove_leftovers(directory: &Path) {
    let files = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let names: Vec<_> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
    let has = |name: &String| names.contains(name);
    let mut left = Vec::new();
    for name in &names {
        if let Some(module) = name.strip_suffix(SOCKET).filter(|module| limits::is_module_name(module)) {
            left.push(format!("{module}{SOCKET}"));
        }
        // Somebody else may have files with such an ending; both are ours.
        if let Some(module) = name.strip_suffix(".gates").filter(|module| limits::is_module_name(module)) {
            let token = format!("{module}.token");
            if has(&token) {
                left.extend([name.clone(), token]);
            }
        }
    }
    for path in left.into_iter().map(|name| directory.join(name)) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "what an earlier kernel left cannot be removed");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

fn write_anew(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // A link that somebody has put there is not followed.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn refused(name: &str, gates: usize, (bytes, host_bytes): (u64, u64)) -> bool {
        let gates = "x".repeat(gates);
        let module = ProtectedModule { name: name.to_owned(), gates, bytes, host_bytes };
        module.check().is_err_and(|error| error.code == ErrorCode::InvalidArgument)
    }

    #[test]
    fn what_a_killed_kernel_has_left_is_removed_and_nothing_of_anybody_else() {
        let folder = std::env::temp_dir().join(format!("bulkhead-leftovers-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        for name in [
            "a.gates",
            "a.token",
            "a.module.sock",
            "b.token",
            "c.gates",
            "d e.gates",
            "d e.token",
            "kernel.sock",
            "a.module.lock",
        ] {
            fs::write(folder.join(name), "").unwrap();
        }
        remove_leftovers(&folder);
        let mut left: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["a.module.lock", "b.token", "c.gates", "d e.gates", "d e.token", "kernel.sock"]);
        fs::remove_dir_all(&folder).unwrap();
        // One that is not there has nothing.
        remove_leftovers(&folder);
    }

    #[test]
    fn what_an_operator_adds_has_a_plain_name_and_a_window_that_there_is() {
        let most = usize::try_from(limits::GATES_BYTES_MAX).unwrap();
        let longest = "n".repeat(limits::MODULE_NAME_BYTES_MAX);
        for (name, gates, window) in [
            ("a", 0, (2 * MIB, 0)),
            (longest.as_str(), most, (32 << 30, 2 * MIB)),
            ("a-b_C9", 1, (4 * MIB, 2 * MIB)),
        ] {
            assert!(!refused(name, gates, window), "{name} {gates} {window:?}");
        }
        // Names of files in the runtime directory are made of it.
        for name in ["", ".", "..", "a/b", "../kernel", "a.b", "a b", "a\n", "a\0", "é", &"n".repeat(65)] {
            assert!(refused(name, 0, (2 * MIB, 0)), "{name:?}");
        }
        assert!(refused("a", most + 1, (2 * MIB, 0)));
        for window in [
            (0, 0),
            (MIB, 0),
            (3 * MIB, 0),
            (64 << 30, 0),
            (u64::MAX, 0),
            (2 * MIB, 2 * MIB),
            (4 * MIB, MIB),
            (4 * MIB, 6 * MIB),
            (4 * MIB, u64::MAX),
        ] {
            assert!(refused("a", 0, window), "{window:?}");
        }
    }
}
