//! Where things lie: this binary, the library OS, the runtime directory.

use std::{
    convert::Infallible,
    env, fs, io,
    path::{Path, PathBuf},
};

use crate::Failure;

/// This binary.
pub(crate) fn binary() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(Failure::doing("finding this program's own path"))
}

/// The kernel's, which lies beside this one.
pub(crate) fn kernel_binary() -> Result<PathBuf, Failure> {
    let kernel = binary()?.with_file_name("bulkhead-kernel");
    if kernel.is_file() {
        return Ok(kernel);
    }
    Err(Failure::new(format!(
        "the kernel's program is missing: {} (`cargo build --release` makes it beside this one; install both)",
        kernel.display()
    )))
}

/// The directory of the kernel's sockets unless told otherwise.
pub(crate) fn runtime_directory() -> PathBuf {
    let socket = bulkhead_client::default_socket();
    socket.parent().map(Path::to_owned).unwrap_or_default()
}

/// A kernel's socket as people name it: itself, or the directory that it is in.
#[expect(clippy::unnecessary_wraps, reason = "as clap calls it")]
pub(crate) fn kernel_socket(named: &str) -> Result<PathBuf, Infallible> {
    let path = PathBuf::from(named);
    Ok(if path.is_dir() { path.join(bulkhead_kernel::KERNEL_SOCKET) } else { path })
}

/// The same for programs, which the operator's socket lets do nothing: where that is named they take the clients' beside it.
pub(crate) fn clients_socket(named: &str) -> Result<PathBuf, Infallible> {
    let mut path = kernel_socket(named)?;
    if path.file_name().is_some_and(|name| name == bulkhead_kernel::OPERATOR_SOCKET) {
        path.set_file_name(bulkhead_kernel::KERNEL_SOCKET);
    }
    Ok(path)
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

/// A library that programs find in place of NVIDIA's.
struct Library {
    /// Names the file, where that is somewhere else.
    variable: &'static str,
    /// Beside this binary, as it is built and as it is installed.
    files: [&'static str; 3],
    /// As programs look for it.
    names: [&'static str; 2],
    /// What it is.
    what: &'static str,
}

const LIBRARIES: [Library; 2] = [
    Library {
        variable: "BULKHEAD_LIBCUDA",
        files: ["libcuda.so", "libcuda.so.1", "../lib/bulkhead/libcuda.so.1"],
        names: ["libcuda.so.1", "libcuda.so"],
        what: "library OS",
    },
    Library {
        variable: "BULKHEAD_LIBNVML",
        files: ["libnvidia_ml.so", "libnvidia-ml.so.1", "../lib/bulkhead/libnvidia-ml.so.1"],
        names: ["libnvidia-ml.so.1", "libnvidia-ml.so"],
        what: "libnvidia-ml",
    },
];

impl Library {
    /// The file: as its variable names it, else beside this binary, else in `../lib/bulkhead`.
    fn file(&self) -> Result<PathBuf, Failure> {
        let binary = binary()?;
        let beside = binary.parent().unwrap_or(Path::new("."));
        let named = env::var_os(self.variable).map(PathBuf::from);
        let mut candidates = named.into_iter().chain(self.files.map(|name| beside.join(name)));
        candidates.find(|path| path.is_file()).ok_or_else(|| {
            Failure::new(format!(
                "no {} beside {}: build it with `cargo build --release`, or name it in {}",
                self.what,
                binary.display(),
                self.variable
            ))
        })
    }
}

/// Our own `libcuda.so` and `libnvidia-ml.so`.
pub(crate) fn libraries() -> Result<Vec<PathBuf>, Failure> {
    LIBRARIES.iter().map(Library::file).collect()
}

/// Puts links to our libraries, by the names programs look for, into a directory.
pub(crate) fn link_libraries(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory)?;
    for library in &LIBRARIES {
        let file = fs::canonicalize(library.file()?)?;
        for name in library.names {
            link(&file, &directory.join(name))?;
        }
    }
    Ok(())
}

/// The name by which this binary is `bulkhead smi`.
pub(crate) const SMI: &str = "nvidia-smi";

/// Puts a link to this binary, by the name of NVIDIA's tool, into a directory.
pub(crate) fn link_tools(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory)?;
    link(&binary()?, &directory.join(SMI))
}

/// Puts a link to this binary, as Triton's assembler, into a directory of its own: in `PATH` it would stand before NVIDIA's.
pub(crate) fn link_assembler(directory: &Path) -> Result<PathBuf, Failure> {
    fs::create_dir_all(directory)?;
    let assembler = directory.join(crate::ptxas::NAME);
    link(&binary()?, &assembler).map(|()| assembler)
}

fn link(file: &Path, link: &Path) -> Result<(), Failure> {
    match std::os::unix::fs::symlink(file, link) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Failure::new(format!("linking {} as {}: {error}", file.display(), link.display())))
        }
        _ => Ok(()),
    }
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
