//! The process's one session, and what needs none.
//!
//! A process that begins guarded, and has nothing yet when machine code comes, goes on in an isolated session
//! ([`move_for`]): what it has by then is contexts, libraries that are not loaded and linkers, which are this library's alone.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::abi::{In, Out};
use crate::array::Array;
use crate::check;
use crate::context::Contexts;
use crate::device::{
    AcceptedGates, Device, Domain, ErrorCode, Heap, Options, Session, Stray, SturdyToken, Terms,
    default_socket,
};
use crate::event::{Event, Pages, Timers};
use crate::faults;
use crate::function::Function;
use crate::graph::Graphs;
use crate::handle::Kind;
use crate::handle_tables::{Permanent, Table};
use crate::library::Library;
use crate::linker::Linker;
use crate::machine_code;
use crate::memory::Memory;
use crate::module::Module;
use crate::moving;
use crate::order::Streams;
use crate::pool::Pools;
use crate::query::Limits;
use crate::remote_calls;
use crate::report;
use crate::status::{Answer, Status, describe};
use crate::texture::Objects;
use crate::told::{self, Told};
use crate::vmm::Vmm;

/// The version of CUDA that this library speaks. No runtime so far asks for functions of a later one.
pub(crate) const VERSION: u32 = bulkhead_schema::CUDA_VERSION;

/// Names files with the tokens of gates that the program's kernels may call, as `PATH` names folders.
const GATES: &str = "BULKHEAD_GATES";
/// What such a file is called behind the name of the module that was opened for the program.
const MODULE_TOKEN: &str = ".module.token";

/// Events, libraries and modules that a program may hold at a time.
const OBJECTS_MAX: usize = 1 << 20;

/// All that a process with a session has.
pub(crate) struct Driver {
    /// What becomes of accesses of kernels to what the program does not have.
    pub(crate) stray: Stray,
    /// What keeps the session apart from others.
    pub(crate) domain: Domain,
    terms: Terms,
    /// Its kernels may call them as long as it has them.
    _gates: Vec<AcceptedGates>,
    pub(crate) session: Session,
    pub(crate) limits: Limits,
    /// Whether nobody has said what that is.
    is_auto: bool,
    pub(crate) contexts: Arc<Contexts>,
    pub(crate) streams: Streams,
    pub(crate) events: Table<Event>,
    pub(crate) timers: Timers,
    pub(crate) pages: Pages,
    pub(crate) memory: Memory,
    pub(crate) arrays: Table<Array>,
    pub(crate) textures: Objects,
    pub(crate) vmm: Vmm,
    pub(crate) pools: Pools,
    pub(crate) libraries: Arc<Table<Library>>,
    pub(crate) linkers: Arc<Table<Linker>>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Permanent<Function>,
    pub(crate) graphs: Graphs,
    /// What kernels allocated outlives the modules that did: it ends with the process.
    pub(crate) heap: OnceLock<Heap>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// What the process goes on with once it has moved.
static MOVED: OnceLock<Driver> = OnceLock::new();
static OPENING: Mutex<()> = Mutex::new(());
static FORKED: AtomicBool = AtomicBool::new(false);

impl Driver {
    pub(crate) fn device(&self) -> &Device {
        self.session.device()
    }

    /// Whether kernels run as the driver's compiler made them, whose arrays, textures and surfaces they read by the device's own
    /// instructions then.
    pub(crate) fn runs_machine_code(&self) -> bool {
        self.domain == Domain::Isolated && self.device().backend != "software"
    }

    /// Opens the process's session.
    fn open() -> Result<Driver, Status> {
        let Told { terms, is_auto } = told::told()?;
        let driver = Driver::with(terms, is_auto, None)?;
        if driver.stray == Stray::Told {
            crate::abi::at_exit(check::at_exit);
        }
        remote_calls::begin();
        if crate::profile::runs() {
            crate::abi::at_exit(crate::profile::at_exit);
        }
        Ok(driver)
    }

    /// Opens a session, with what the process has that needs none.
    fn with(terms: Terms, is_auto: bool, before: Option<&Driver>) -> Result<Driver, Status> {
        let stray = check::stray();
        let (socket, name) = (default_socket(), program_name());
        let options = Options { socket, name, terms, stray, ..Options::default() };
        let session = Session::open(&options).map_err(|error| {
            report::once(&format!("no session: {error}"));
            match error.code {
                // There is a device, which has no room.
                ErrorCode::OutOfMemory | ErrorCode::LimitReached => Status::OUT_OF_MEMORY,
                _ => Status::NO_DEVICE,
            }
        })?;
        session.tell_who_waits_for_room(|| {
            report::once(
                "a call has waited 5 s for room behind a host function, or an event of another process, that has not come: as \
                 much is queued as may be. If that waits for a lock that the calling thread holds, neither goes on",
            );
        });
        let gates = gates(&session)?;
        if terms.domain == Domain::Isolated {
            crate::abi::at_exit(crate::printf::native::at_exit);
        }
        Ok(Driver {
            stray,
            domain: terms.domain,
            terms,
            is_auto,
            _gates: gates,
            limits: Limits::of(session.device()),
            session,
            contexts: before.map_or_else(Arc::default, |before| before.contexts.clone()),
            streams: Streams::new(),
            events: Table::new(Kind::Event, OBJECTS_MAX),
            timers: Timers::default(),
            pages: Pages::default(),
            memory: Memory::new(stray),
            arrays: Table::new(Kind::Array, OBJECTS_MAX),
            textures: Objects::default(),
            vmm: Vmm::new(),
            pools: Pools::new()?,
            libraries: before.map_or_else(|| table(Kind::Library), |before| before.libraries.clone()),
            linkers: before.map_or_else(|| table(Kind::Linker), |before| before.linkers.clone()),
            modules: Table::new(Kind::Module, OBJECTS_MAX),
            functions: Permanent::new(),
            graphs: Graphs::new(),
            heap: OnceLock::new(),
        })
        .inspect(|driver| {
            // What the program has said before it moved.
            driver.contexts.tell_limits(driver);
        })
    }

    /// Whether it has nothing that is its session's.
    fn has_nothing(&self) -> bool {
        // What is loaded ahead is loaded again.
        self.libraries.all().iter().all(|library| library.forget_ahead())
            && self.streams.are_untouched()
            && self.memory.is_empty()
            && self.vmm.is_empty()
            && self.pools.are_untouched()
            && self.events.is_empty()
            && self.arrays.is_empty()
            && self.modules.is_empty()
            && self.graphs.is_empty()
            && self.textures.is_empty()
    }
}

fn table<T>(kind: Kind) -> Arc<Table<T>> {
    Arc::new(Table::new(kind, OBJECTS_MAX))
}

/// Where an image is machine code that a guarded session does not take, goes on in an isolated one: if the process has nothing
/// yet, and nobody has said which session it is to have. Where none is to be had it stays where it is.
pub(crate) fn move_for(call: &str, content: &[u8]) {
    let stays = |driver: &&Driver| driver.is_auto && driver.domain == Domain::Guarded;
    if opened().filter(stays).is_none() || !machine_code::is_alone(content) {
        return;
    }
    let _opening = OPENING.lock();
    let Some(first) = opened().filter(stays) else { return };
    if !moving::begin() {
        return;
    }
    let terms = Terms { domain: Domain::Isolated, ..first.terms };
    let moved = first.has_nothing() && {
        // The next session's addresses may be the same.
        first.session.give_up_window();
        Driver::with(terms, false, Some(first)).map(|driver| MOVED.get_or_init(|| driver)).is_ok()
    };
    moving::end(moved);
    if moved {
        report::once(&format!(
            "an isolated session from here on: the image of {call} is machine code without PTX"
        ));
        first.session.end();
    } else {
        first.session.take_back_window();
    }
}

/// Something of the session's is about to be there: the process stays where it is.
///
/// # Errors
/// Where it has moved since the call began, which is done once more then.
pub(crate) fn keep() -> Answer {
    moving::keep(|| drop(OPENING.lock()))
}

/// Accepts the gates whose tokens lie in the files that the environment names (`bulkhead run --gates`).
fn gates(session: &Session) -> Result<Vec<AcceptedGates>, Status> {
    let files = std::env::var_os(GATES).unwrap_or_default();
    let files = std::env::split_paths(&files).filter(|file| !file.as_os_str().is_empty());
    let accept = |file: std::path::PathBuf| {
        let accepted = SturdyToken::read_file(&file).and_then(|token| session.accept_gates_of(token));
        // A program that was promised gates does not do without.
        accepted.map_err(|error| {
            report::once(&format!("no gates by {}: {error}", file.display()));
            Status::NO_DEVICE
        })
    };
    files.map(accept).collect()
}

/// The modules whose gates the program was given (`bulkhead run --module`), as far as the files of their tokens say it.
pub(crate) fn modules() -> Vec<String> {
    modules_of(&std::env::var_os(GATES).unwrap_or_default())
}

fn modules_of(files: &std::ffi::OsStr) -> Vec<String> {
    let name = |file: std::path::PathBuf| {
        let name = file.file_name()?.to_str()?.strip_suffix(MODULE_TOKEN)?;
        bulkhead_schema::limits::is_module_name(name).then(|| name.to_owned())
    };
    std::env::split_paths(files).filter_map(name).collect()
}

/// The name by which the kernel lists this session.
fn program_name() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned());
    let mut name = name.unwrap_or_default();
    while name.len() > bulkhead_schema::limits::NAME_BYTES_MAX {
        name.pop();
    }
    if name.is_empty() { "program".to_owned() } else { name }
}

extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

#[inline]
fn the() -> Option<&'static Driver> {
    MOVED.get().or_else(|| DRIVER.get())
}

/// The driver, for a call that needs one to be initialized.
#[inline]
pub(crate) fn driver() -> Result<&'static Driver, Status> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Status::NOT_INITIALIZED);
    }
    if let Some(status) = faults::stopped() {
        return Err(status);
    }
    the().ok_or(Status::NOT_INITIALIZED)
}

/// The driver, if the session was opened: also where it is lost.
pub(crate) fn opened() -> Option<&'static Driver> {
    the().filter(|_| !FORKED.load(Ordering::Relaxed))
}

/// The driver, opening the session if that has not been done.
pub(crate) fn open() -> Result<&'static Driver, Status> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Status::NOT_INITIALIZED);
    }
    if let Some(driver) = the() {
        return Ok(driver);
    }
    let _opening = OPENING.lock();
    if let Some(driver) = the() {
        return Ok(driver);
    }
    // Before the session's threads are there: a child has none of them.
    static WATCHING: std::sync::Once = std::sync::Once::new();
    WATCHING.call_once(|| crate::abi::on_fork_in_child(forked));
    let driver = Driver::open()?;
    Ok(DRIVER.get_or_init(|| driver))
}

pub(crate) fn init(flags: u32) -> Answer {
    if flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    open().map(drop)
}

pub(crate) fn version(to: Out<i32>) -> Answer {
    to.set(VERSION.cast_signed());
    Ok(())
}

pub(crate) fn error_name(code: u32, to: Out<*const c_char>) -> Answer {
    describe_to(code, &to, |(name, _)| name.as_ptr())
}

pub(crate) fn error_string(code: u32, to: Out<*const c_char>) -> Answer {
    describe_to(code, &to, |(_, text)| text.as_ptr())
}

type Described = (&'static std::ffi::CStr, &'static std::ffi::CStr);

fn describe_to(code: u32, to: &Out<*const c_char>, part: fn(Described) -> *const c_char) -> Answer {
    let described = describe(code);
    to.set(described.map_or(std::ptr::null(), part));
    described.map(drop).ok_or(Status::INVALID_VALUE)
}

pub(crate) fn export_table(to: Out<*const c_void>, id: In<[u8; 16]>) -> Answer {
    match crate::abi::export_table(&id.0) {
        Some(table) => {
            to.set(table);
            Ok(())
        }
        None => {
            if report::tracing() {
                let id: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
                report::once(&format!("cuGetExportTable: no table {id}"));
            }
            to.set(std::ptr::null());
            Err(Status::INVALID_VALUE)
        }
    }
}

/// Profiling tools are not there; starting and stopping them is harmless, as without one on NVIDIA's driver.
pub(crate) fn profiler() -> Answer {
    driver().map(drop)
}
