//! Compile processes: where images, which are hostile bytes, are read.
//!
//! Each image gets a process of its own. It is told two descriptors and nothing else: the image on its standard
//! input, a memfd for its answer on its standard output. The kernel reads the answer's error, or its text and the
//! number of its entries, and of the image no more than its digest takes, by which answers are kept (`kept.rs`).

use std::{
    cell::{Cell, RefCell},
    ffi::OsString,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::PathBuf,
    process::Stdio,
    rc::Rc,
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, ModuleData, Stray, compile_capnp, limits};
use capnp::{Word, message::ReaderOptions, serialize};
use rustix::{
    fs::{MemfdFlags, SealFlags},
    process::{Pid, Resource, Rlimit},
};
use tokio::{
    process::{Child, Command},
    time::Instant,
};

use crate::{
    compile::{
        kept::{Kept, Key},
        places::{Place, Places},
    },
    ledger::Spending,
    principals::{Counted, Party, Taken},
    refusal::internal,
};

/// How much is copied before others get their turn, in bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// What an answer holds besides its text, in bytes.
pub(crate) const FRAME_BYTES: u64 = 1 << 20;
/// Descriptors a compile process may have open.
const DESCRIPTORS_MAX: u64 = 32;

/// A guarded image, ready for an executor to verify and load.
pub(crate) struct Compiled {
    /// A sealed memfd with the canonical text, and what is claimed of it.
    pub(crate) text: OwnedFd,
    /// How long both are.
    pub(crate) bytes: u64,
    /// How long the text is.
    pub(crate) text_bytes: u64,
    pub(crate) entries: u32,
    /// What the client is told of its variables, with which the kernel has nothing to do.
    pub(crate) data: ModuleData,
}

impl Compiled {
    /// The same once more.
    pub(crate) fn copy(&self) -> io::Result<Self> {
        let text = self.text.try_clone()?;
        Ok(Self { text, data: self.data.clone(), ..*self })
    }
}

/// How an image is compiled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    /// The device's: 90 for sm_90.
    pub(crate) architecture: u32,
    /// What becomes of accesses that go astray.
    pub(crate) stray: Stray,
}

/// Starts compile processes, so many at a time.
pub(crate) struct Compiler {
    command: Vec<OsString>,
    places: Rc<Places>,
    second: Duration,
    kept: RefCell<Kept>,
}

impl Compiler {
    pub(crate) fn new(command: Vec<OsString>, processes: usize, second: Duration) -> Self {
        Self { command, places: Places::new(processes, Counted::Compiles), second, kept: RefCell::default() }
    }

    /// Waits for a place to compile at.
    pub(crate) async fn place(&self, party: &Rc<Party>) -> Result<(Place, Taken), Error> {
        self.places.take(party).await
    }

    /// Compiles a sealed image, which calls the gates of these files; or finds what was made of it before. Dropping the
    /// future kills the process.
    pub(crate) async fn compile(
        &self,
        image: &File,
        way: Way,
        gates: &[PathBuf],
        spending: Spending<'_>,
    ) -> Result<Compiled, Error> {
        // What the digest takes is the client's time too.
        let clock = Clock { began: Instant::now(), spent: spending.spent };
        let key = if gates.is_empty() { Key::of(image, way).await.map_err(failed)? } else { None };
        drop(clock);
        if let Some(found) = key.and_then(|key| self.kept.borrow_mut().find(key)) {
            return Ok(found);
        }
        let compiled = self.compile_anew(image, way, gates, spending).await?;
        if let Some(key) = key {
            self.kept.borrow_mut().keep(key, &compiled);
        }
        Ok(compiled)
    }

    async fn compile_anew(
        &self,
        image: &File,
        way: Way,
        gates: &[PathBuf],
        spending: Spending<'_>,
    ) -> Result<Compiled, Error> {
        let clock = Clock { began: Instant::now(), spent: spending.spent };
        let output = memory("bulkhead-compiled").map_err(|error| failed(error.into()))?;
        let mut child = self.start(image, &output, way, gates).map_err(failed)?;
        let patience = self.second * u32::try_from(limits::COMPILE_SECONDS).unwrap_or(u32::MAX);
        let status = match tokio::time::timeout(patience.min(spending.most), child.wait()).await {
            Ok(status) => status.map_err(failed)?,
            Err(_) => {
                child.kill().await.map_err(failed)?;
                if spending.most < patience {
                    let left = spending.most.as_millis();
                    let message = format!("compiling took longer than the {left} compile_ms that are left");
                    return Err(Error::new(ErrorCode::LimitReached, message).remedy("open a new session"));
                }
                let message = format!("compiling took longer than {} s", limits::COMPILE_SECONDS);
                return Err(Error::new(ErrorCode::LimitReached, message).remedy("split the image"));
            }
        };
        if !status.success() {
            let message = format!("the compile process ended without an answer ({status})");
            return Err(Error::new(ErrorCode::ImageInvalid, message));
        }
        let compiled = read(output).await;
        drop(clock);
        compiled
    }

    fn start(&self, image: &File, output: &OwnedFd, way: Way, gates: &[PathBuf]) -> io::Result<Child> {
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no compiler is named"))?;
        let child = Command::new(program)
            .args(arguments)
            .args(["--input-fd", "0", "--output-fd", "1", "--architecture"])
            .arg(way.architecture.to_string())
            .args((way.stray == Stray::Told).then_some("--check"))
            .args(gates.iter().flat_map(|file| ["--gates".as_ref(), file.as_os_str()]))
            .env_clear()
            .stdin(Stdio::from(image.try_clone()?))
            .stdout(Stdio::from(output.try_clone()?))
            // Keys pressed at a terminal are for whoever started the kernel.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        // The process limits itself before it reads; this holds where it is not the process it should be.
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        for (resource, limit) in [
            (Resource::As, limits::COMPILE_MEMORY_BYTES),
            (Resource::Cpu, limits::COMPILE_SECONDS),
            (Resource::Fsize, limits::PTX_BYTES_MAX + FRAME_BYTES),
            (Resource::Nofile, DESCRIPTORS_MAX),
            (Resource::Core, 0),
        ] {
            let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
            if let Err(error) = rustix::process::prlimit(pid, resource, limit)
                && error != rustix::io::Errno::SRCH
            {
                return Err(error.into());
            }
        }
        Ok(child)
    }
}

/// Notes how long was compiled, however that ended.
struct Clock<'a> {
    began: Instant,
    spent: &'a Cell<Duration>,
}

impl Drop for Clock<'_> {
    fn drop(&mut self) {
        self.spent.set(self.spent.get().saturating_add(self.began.elapsed()));
    }
}

fn memory(name: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
}

/// Reads a compile process's answer, which is as hostile as the image.
async fn read(output: OwnedFd) -> Result<Compiled, Error> {
    // Read once, and not sealed: a seal against writing would wait for whoever has pinned the memory.
    let output = File::from(output);
    let bytes = output.metadata().map_err(failed)?.len();
    if bytes > limits::PTX_BYTES_MAX + FRAME_BYTES {
        return Err(too_long());
    }
    let length = usize::try_from(bytes).map_err(|_| too_long())?;
    let mut words = Word::allocate_zeroed_vec(length.div_ceil(8));
    let buffer = Word::words_to_bytes_mut(&mut words);
    let mut at = 0;
    for chunk in buffer.get_mut(..length).unwrap_or_default().chunks_mut(CHUNK_BYTES) {
        output.read_exact_at(chunk, at).map_err(failed)?;
        at += chunk.len() as u64;
        tokio::task::yield_now().await;
    }
    let nonsense = |error: capnp::Error| {
        Error::new(ErrorCode::ImageInvalid, format!("the compile process's answer makes no sense: {error}"))
    };
    let mut options = ReaderOptions::new();
    options.traversal_limit_in_words(Some(words.len() + 1024));
    options.nesting_limit(limits::MESSAGE_NESTING_MAX);
    let mut slice = Word::words_to_bytes(&words);
    let message = serialize::read_message_from_flat_slice_no_alloc(&mut slice, options).map_err(nonsense)?;
    let compiled: compile_capnp::compiled::Reader<'_> = message.get_root().map_err(nonsense)?;
    let ptx = match compiled.which() {
        Ok(compile_capnp::compiled::Ptx(ptx)) => ptx.map_err(nonsense)?,
        Ok(compile_capnp::compiled::Error(error)) => {
            return Err(blamed(Error::read(error.map_err(nonsense)?)));
        }
        Err(error) => return Err(nonsense(error.into())),
    };
    let entries = ptx.get_entries().map_err(nonsense)?.len();
    if entries > limits::ENTRIES_MAX {
        let message = format!("the image has {entries} entries; {} is the limit", limits::ENTRIES_MAX);
        return Err(Error::new(ErrorCode::LimitReached, message));
    }
    let data = ModuleData::read(ptx.get_data().map_err(nonsense)?)?;
    let text = ptx.get_text().map_err(nonsense)?.as_bytes();
    let claims = ptx.get_claims().map_err(nonsense)?.as_bytes();
    if (text.len() + 1 + claims.len()) as u64 > limits::PTX_BYTES_MAX {
        return Err(too_long());
    }
    let copy = File::from(memory("bulkhead-ptx").map_err(|error| failed(error.into()))?);
    let mut at = 0;
    let pieces = text.chunks(CHUNK_BYTES).map(|chunk| (chunk, true));
    let claims = claims.chunks(CHUNK_BYTES).map(|chunk| (chunk, false));
    for (chunk, is_text) in pieces.chain([(&[limits::CLAIMS_MARK][..], false)]).chain(claims) {
        // The executor would take the text to end there.
        if is_text && chunk.contains(&limits::CLAIMS_MARK) {
            let message = "the compile process's answer makes no sense: its text has a zero";
            return Err(Error::new(ErrorCode::ImageInvalid, message));
        }
        copy.write_all_at(chunk, at).map_err(failed)?;
        at += chunk.len() as u64;
        tokio::task::yield_now().await;
    }
    let every = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&copy, every).map_err(|error| failed(error.into()))?;
    Ok(Compiled { text: copy.into(), bytes: at, text_bytes: text.len() as u64, entries, data })
}

/// An error as a compile process tells it: it may say what is wrong with the image, and nothing about anything else.
fn blamed(error: Error) -> Error {
    let code = match error.code {
        ErrorCode::ImageInvalid
        | ErrorCode::ImageRefused
        | ErrorCode::NotSupported
        | ErrorCode::LimitReached
        | ErrorCode::OutOfMemory => error.code,
        ErrorCode::Internal
        | ErrorCode::InvalidArgument
        | ErrorCode::InvalidHandle
        | ErrorCode::NotFound
        | ErrorCode::NotPermitted
        | ErrorCode::LaunchResources
        | ErrorCode::DeviceLost
        | ErrorCode::SessionLost
        | ErrorCode::Protocol
        | ErrorCode::TimedOut
        | ErrorCode::Unavailable
        | ErrorCode::Version
        | ErrorCode::Revoked
        | ErrorCode::WorkLost
        | ErrorCode::LaunchTimeout
        | ErrorCode::Trapped
        | ErrorCode::AssertionFailed => ErrorCode::ImageInvalid,
    };
    Error { code, device: 0, ..error }
}

fn too_long() -> Error {
    Error::new(ErrorCode::LimitReached, "the compiled image is too long").remedy("split the image")
}

fn failed(error: io::Error) -> Error {
    internal(format!("no compile process could do its work: {error}"))
}
