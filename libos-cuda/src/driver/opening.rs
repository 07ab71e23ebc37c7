//! How the process's session is opened, and how the process moves to another.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::{DRIVER, Driver, FORKED, MOVED, opened, the};
use crate::abi;
use crate::calls;
use crate::check;
use crate::device::{Domain, ErrorCode, Options, Session, Stray, Terms, default_socket};
use crate::event::{Pages, Timers};
use crate::gates;
use crate::graph::Graphs;
use crate::handle::Kind;
use crate::handle_tables::{Permanent, Table};
use crate::limits::Limits;
use crate::machine_code;
use crate::memory::Memory;
use crate::moving;
use crate::order::Streams;
use crate::pool::Pools;
use crate::printf::native;
use crate::profile;
use crate::remote_calls;
use crate::report;
use crate::status::Status;
use crate::texture::Objects;
use crate::told::{self, Told};
use crate::vmm::Vmm;

/// Events, libraries and modules that a program may hold at a time.
const OBJECTS_MAX: usize = 1 << 20;

impl Driver {
    /// Opens the process's session.
    fn open() -> Result<Driver, Status> {
        let Told { terms, is_auto } = told::told()?;
        let driver = Driver::with(terms, is_auto, None)?;
        if driver.stray == Stray::Told {
            abi::at_exit(check::at_exit);
        }
        remote_calls::begin();
        if profile::runs() {
            abi::at_exit(profile::at_exit);
        }
        Ok(driver)
    }

    /// Opens a session, with what the process has that needs none.
    fn with(terms: Terms, is_auto: bool, before: Option<&Driver>) -> Result<Driver, Status> {
        let stray = check::stray();
        calls::begin();
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
        let gates = gates::accepted(&session)?;
        if terms.domain == Domain::Isolated {
            abi::at_exit(native::at_exit);
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
    let _opening = moving::opening();
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

/// The driver, opening the session if that has not been done.
pub(crate) fn open() -> Result<&'static Driver, Status> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Status::NOT_INITIALIZED);
    }
    if let Some(driver) = the() {
        return Ok(driver);
    }
    let _opening = moving::opening();
    if let Some(driver) = the() {
        return Ok(driver);
    }
    // Before the session's threads are there: a child has none of them.
    static WATCHING: std::sync::Once = std::sync::Once::new();
    WATCHING.call_once(|| abi::on_fork_in_child(forked));
    let driver = Driver::open()?;
    Ok(DRIVER.get_or_init(|| driver))
}
