//! Where things lie: this binary, the library OS, the runtime directory.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use crate::Failure;

/// This binary.
pub(crate) fn binary() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(Failure::doing("finding this program's own path"))
}

/// The directory of the kernel's sockets unless told otherwise.
pub(crate) fn runtime_directory() -> PathBuf {
    let socket = bulkhead_client::default_socket();
    socket.parent().map(Path::to_owned).unwrap_or_default()
}

/// The operator's socket beside the clients'.
pub(crate) fn operator_socket(socket: &Path) -> PathBuf {
    socket.with_file_name(bulkhead_kernel::OPERATOR_SOCKET)
}

/// Where executors keep machine code unless told otherwise: in the user's folder for such things.
pub(crate) fn cache_directory() -> Result<PathBuf, Failure> {
    let named = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")));
    let none = || Failure::new("neither XDG_CACHE_HOME nor HOME is set: name a folder with --cache");
    caches.map(|caches| caches.join("bulkhead/images")).ok_or_else(none)
}

/// Our own `libcuda.so`: `$BULKHEAD_LIBCUDA`, else beside this binary, else in `../lib/bulkhead`.
pub(crate) fn library() -> Result<PathBuf, Failure> {
    let binary = binary()?;
    let beside = binary.parent().unwrap_or(Path::new("."));
    let mut candidates: Vec<PathBuf> =
        env::var_os("BULKHEAD_LIBCUDA").map(PathBuf::from).into_iter().collect();
    candidates
        .extend(["libcuda.so", "libcuda.so.1", "../lib/bulkhead/libcuda.so.1"].map(|name| beside.join(name)));
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        Failure::new(format!(
            "no library OS beside {}: build it with `cargo build --release`, or name it in BULKHEAD_LIBCUDA",
            binary.display()
        ))
    })
}

/// Puts links to the library OS, by the names programs look for, into a directory.
pub(crate) fn link_library(directory: &Path) -> Result<(), Failure> {
    let library = fs::canonicalize(library()?)?;
    fs::create_dir_all(directory)?;
    for name in ["libcuda.so.1", "libcuda.so"] {
        match std::os::unix::fs::symlink(&library, directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Failure::new(format!(
                    "linking the library OS into {}: {error}",
                    directory.display()
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A fresh directory that only this user enters, removed when dropped, or when a signal ends this process.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self, Failure> {
        use std::os::unix::fs::DirBuilderExt as _;
        let parent = env::temp_dir();
        for attempt in 0..100_u32 {
            let path = parent.join(format!("bulkhead-{}-{attempt}", std::process::id()));
            let make = |path: &Path| fs::DirBuilder::new().mode(0o700).create(path);
            match crate::interrupt::make(&path, make) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Failure::new(format!(
                        "no directory of its own in {}: {error}",
                        parent.display()
                    )));
                }
            }
        }
        Err(Failure::new(format!("no free name for a directory in {}", parent.display())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "a directory stays");
        }
        crate::interrupt::removed(&self.0);
    }
}
