//! Runs a service: one thread for what gates leave and for what callers want, one that sleeps until gates are called, and one
//! for each caller.

mod callers;

use std::{
    env,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{
    Activity, Error, ErrorCode, Gates, ModuleHost, Options, ProtectedModule, Recall, Session, SturdyToken,
    Terms, default_socket,
};

use crate::door::{Answer, Asker, CALLERS_MAX, CALLERS_OF_A_PROCESS, Door};
use crate::inside::{Entered, Inside};
use crate::openings::Openings;
use crate::{Badge, Instances, Progress, Service, Window, door, openings};

/// The environment variable that names the module, and the one that says how many instances it has at a time.
pub const NAME: &str = "BULKHEAD_MODULE";
/// See [`NAME`].
pub const INSTANCES: &str = "BULKHEAD_MODULE_INSTANCES";
/// The environment variable that says what the host half's session may use: `COLUMN=AMOUNT`, with commas between them.
pub const QUOTA: &str = "BULKHEAD_MODULE_QUOTA";
/// With this the host half serves other gates than it was built for: for tests.
const ANY_GATES: &str = "BULKHEAD_MODULE_ANY_GATES";
/// Instances at a time, unless told otherwise.
pub(crate) const INSTANCES_DEFAULT: usize = 64;
/// For how long a module is claimed again that another still has.
const CLAIMING: Duration = Duration::from_secs(10);
/// How often it is looked whether the session is there. That takes a load.
const LOOK: Duration = Duration::from_millis(250);
/// After so many looks that found nothing the host half naps between two, while kernels call its gates.
const LOOKS_EMPTY_MAX: u32 = 20_000;
const NAP: Duration = Duration::from_micros(50);
/// For how long it is tried to open a service that says that what is wanted is another's (`unavailable`).
const OPENING: Duration = Duration::from_secs(1);
/// How long it is waited at a time for kernels to leave the gates.
const LEAVING: Duration = Duration::from_secs(60);
/// Of so many callers of one process gates are taken back at a time: a session holds 64 revocations, and those of a process whose
/// kernels run on take as long as the kernel lets them.
const LEAVING_OF_A_PROCESS: usize = 16;
/// How soon the kernel is asked again that had no room for one more wait.
const AGAIN: Duration = Duration::from_millis(100);

/// Where a module is.
#[derive(Debug, Clone)]
pub struct Place {
    /// The kernel's socket; the module's token and its own socket lie beside it.
    pub kernel: PathBuf,
    /// The module's name.
    pub name: String,
    /// Instances at a time.
    pub instances: usize,
    /// What the session may use of columns of the ledger.
    pub quota: Vec<(String, u64)>,
}

impl Place {
    /// As `bulkhead module start` tells it to the process that it starts.
    ///
    /// # Errors
    /// Where it does not.
    pub fn told() -> Result<Self, Error> {
        let name = env::var(NAME).map_err(|_| {
            Error::new(ErrorCode::InvalidArgument, format!("{NAME} does not name a module"))
                .remedy("start this with `bulkhead module start MODULE.toml`")
        })?;
        let instances = match env::var(INSTANCES) {
            Ok(text) => text.parse().map_err(|_| {
                Error::new(
                    ErrorCode::InvalidArgument,
                    format!("{INSTANCES}: {text:?} is no number of instances"),
                )
            })?,
            Err(_) => INSTANCES_DEFAULT,
        };
        let quota = env::var(QUOTA).unwrap_or_default();
        let quota = quota.split(',').filter(|part| !part.is_empty()).map(|part| {
            let (column, most) = part.split_once('=')?;
            Some((column.to_owned(), most.parse().ok()?))
        });
        let quota: Option<Vec<_>> = quota.collect();
        let quota = quota.ok_or_else(|| {
            Error::new(ErrorCode::InvalidArgument, format!("{QUOTA} is no list of COLUMN=AMOUNT"))
        })?;
        Ok(Self { kernel: default_socket(), name, instances, quota })
    }
}

/// The exit status of a host half that cannot serve, however often it is started: what it was told makes no sense.
pub const CANNOT_SERVE: u8 = 78;

/// The `main` of a host half that `bulkhead module start` starts.
pub fn main(service: impl Service) -> ExitCode {
    match Place::told().and_then(|place| run(service, &place)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::tell::end(format_args!("module {}: {error}", env::var(NAME).unwrap_or_default()));
            // Memory may be there later.
            let again = !matches!(error.code, ErrorCode::InvalidArgument | ErrorCode::ImageRefused);
            if again { ExitCode::FAILURE } else { ExitCode::from(CANNOT_SERVE) }
        }
    }
}

enum Event {
    /// Somebody wants an instance: over its connection host code is woken, and that may lend memory.
    Opens {
        caller: u64,
        process: i32,
        words: String,
        host: Option<(UnixStream, Option<SturdyToken>)>,
        answer: SyncSender<Result<Answer, Error>>,
    },
    /// A caller has gone.
    Over { caller: u64 },
    /// No kernel is in a gate with this badge any more.
    Left { badge: Badge, left: Result<(), Error> },
    /// Kernels call the gates.
    Called,
    /// Host code has rung.
    Rung,
}

/// Serves until the module ends: when `bulkhead module stop` takes it away, or the kernel ends.
///
/// # Errors
/// Where the module cannot be claimed, or the service fails.
pub fn run<S: Service>(service: S, place: &Place) -> Result<(), Error> {
    // As long as the process: there is one module in it.
    let limits: Vec<(&'static str, u64)> =
        place.quota.iter().map(|(column, most)| (&*String::leak(column.clone()), *most)).collect();
    let terms = Terms { limits: Vec::leak(limits), ..Terms::default() };
    let (socket, name) = (place.kernel.clone(), format!("module {}", place.name));
    let session = Session::open(&Options { socket, name, terms, ..Options::default() })?;
    let token = SturdyToken::read_file(&place.kernel.with_file_name(format!("{}.token", place.name)))?;
    let (module, bytes) = claim(&session, token)?;
    let activity = Arc::new(module.activity()?);
    let window = Window::new(module, bytes)?;
    if !S::INITIAL.is_empty() {
        window.write(0, S::INITIAL)?;
    }
    if !window.copy_to_host(0, S::HOST_INITIAL) && !S::HOST_INITIAL.is_empty() {
        return Err(Error::new(
            ErrorCode::InvalidArgument,
            "the gates have less host memory than what it begins with",
        ));
    }
    if place.instances > S::INSTANCES_MAX {
        let message =
            format!("{} instances are more than the gates keep: {}", place.instances, S::INSTANCES_MAX);
        return Err(Error::new(ErrorCode::InvalidArgument, message)
            .remedy("say so many in the manifest, `instances`"));
    }
    check_gates(place, S::GATES)?;
    let instances = Instances::new(place.instances);
    let mut half = HostHalf {
        session: session.clone(),
        service,
        window,
        instances,
        callers: Vec::new(),
        leaving: Vec::new(),
        revoking: Vec::new(),
        closing: Vec::new(),
        sleeps: false,
        rung: Arc::new(AtomicBool::new(false)),
        waiting: Openings::new(Instant::now()),
    };
    half.service.start(&half.window)?;
    let door = Door::bind(&door::socket_of(&place.kernel, &place.name))?;
    let (events, coming) = mpsc::channel();
    let listener = door.listener.try_clone();
    let listener =
        listener.map_err(|error| Error::new(ErrorCode::Unavailable, format!("the socket: {error}")))?;
    let (asking, rung) = (events.clone(), Arc::clone(&half.rung));
    thread::spawn(move || let_in(&listener, &asking, &rung));
    let (rest, rests) = mpsc::channel();
    let waking = events.clone();
    thread::spawn(move || wake(&rests, &waking));
    half.serve(&session, activity, &events, &coming, &rest)
}

/// Whether the kernel has the gates that this host half was made for.
fn check_gates(place: &Place, made_for: u64) -> Result<(), Error> {
    let file = place.kernel.with_file_name(format!("{}.gates", place.name));
    let text = std::fs::read(&file).map_err(|error| {
        Error::new(ErrorCode::Unavailable, format!("the module's gates, {}: {error}", file.display()))
    })?;
    // Tests have modules serve with their gates' checks compiled out.
    if made_for == 0 || digest(&text) == made_for || env::var_os(ANY_GATES).is_some() {
        return Ok(());
    }
    Err(Error::new(ErrorCode::InvalidArgument, "the module has other gates than this host half was built for")
        .remedy("build both anew: `bulkhead module build gates.cu -o gates.ptx --rust src/window.rs`, then the host half"))
}

/// Tells texts of gates apart: FNV-1a. `bulkhead module build --rust` writes it down as `GATES`.
#[must_use]
pub fn digest(text: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    text.iter().fold(0xCBF2_9CE4_8422_2325, step)
}

fn claim(session: &Session, token: SturdyToken) -> Result<(ProtectedModule, u64), Error> {
    let begun = Instant::now();
    loop {
        match session.claim_module(token) {
            // The one before this may be on its way out.
            Err(error) if error.code == ErrorCode::Unavailable && begun.elapsed() < CLAIMING => {
                thread::sleep(Duration::from_millis(20));
            }
            claimed => return claimed,
        }
    }
}

/// Tells, once each time that the host half has come to rest, that kernels call the gates, or that another page says so.
fn wake(rests: &Receiver<Arc<Activity>>, events: &Sender<Event>) {
    while let Ok(activity) = rests.recv() {
        while !activity.wait(Duration::from_secs(3600)) {}
        if events.send(Event::Called).is_err() {
            return;
        }
    }
}

/// Lets callers in, each with a thread of its own that waits for it.
fn let_in(listener: &std::os::unix::net::UnixListener, events: &Sender<Event>, rung: &Arc<AtomicBool>) {
    let inside = Inside::new(CALLERS_MAX, CALLERS_OF_A_PROCESS);
    for caller in 0.. {
        let Ok((mut connection, _)) = listener.accept() else {
            // No descriptor is left, for instance.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if !door::may_enter(&connection) {
            continue;
        }
        let entered = match inside.enter(&connection) {
            Ok(entered) => entered,
            Err(full) => {
                // Whoever hangs up meanwhile needs no answer.
                door::answer(&mut connection, Err(&full)).unwrap_or_default();
                continue;
            }
        };
        let (events, rung) = (events.clone(), Arc::clone(rung));
        // Where no thread starts the connection closes.
        thread::Builder::new()
            .spawn(move || {
                attend(connection, caller, entered, &events, &rung);
            })
            .map(drop)
            .unwrap_or_default();
    }
}

fn attend(
    mut connection: UnixStream,
    caller: u64,
    mut entered: Entered,
    events: &Sender<Event>,
    rung: &AtomicBool,
) {
    let Ok((asker, words)) = door::asked(&connection) else { return };
    entered.has_spoken();
    let host = match asker {
        Asker::Kernels => None,
        Asker::Host | Asker::Lender(_) => match connection.try_clone() {
            Ok(connection) => Some(connection),
            Err(_) => return,
        },
    };
    let lends = if let Asker::Lender(token) = asker { Some(token) } else { None };
    let host = host.map(|connection| (connection, lends));
    let (answer, answered) = mpsc::sync_channel(1);
    if events.send(Event::Opens { caller, process: entered.process(), words, host, answer }).is_err() {
        return;
    }
    let opened = answered.recv();
    let told = match &opened {
        Ok(answer) => door::answer(&mut connection, answer.as_ref()),
        Err(_) => return,
    };
    if let Ok(Ok(given)) = opened {
        match (told, given) {
            (Ok(()), Answer::Gates(_)) => door::until_over(connection),
            (Ok(()), Answer::Memory(..)) => door::until_over_ringing(connection, || {
                // One is on its way at a time, however often it is rung.
                if !rung.swap(true, Ordering::AcqRel) {
                    events.send(Event::Rung).unwrap_or_default();
                }
            }),
            (Err(_), _) => {}
        }
        // Where the service has ended there is nobody to be told.
        events.send(Event::Over { caller }).unwrap_or_default();
    }
}

/// Closes a caller's connection when the memory that it lends is recalled: what its instance has is given back then, as whenever a
/// caller has gone.
fn watch(recall: Recall, connection: UnixStream) {
    let close = |connection: &UnixStream| {
        // One that has hung up already is over anyway.
        connection.shutdown(std::net::Shutdown::Both).unwrap_or_default();
    };
    let Ok(own) = connection.try_clone() else { return close(&connection) };
    let watching = thread::Builder::new().spawn(move || {
        loop {
            match recall.wait(LEAVING) {
                Ok(false) => {}
                Err(error) if matches!(error.code, ErrorCode::LimitReached | ErrorCode::TimedOut) => {
                    thread::sleep(AGAIN);
                }
                Ok(true) | Err(_) => break,
            }
        }
        close(&own);
    });
    if watching.is_err() {
        close(&connection);
    }
}

/// Somebody who wants an instance, and for how long it is tried.
struct Opening {
    caller: u64,
    process: i32,
    words: String,
    /// Of host code: over this it is woken, and by this it lends memory.
    host: Option<(UnixStream, Option<SturdyToken>)>,
    answer: SyncSender<Result<Answer, Error>>,
    until: Instant,
}

/// A caller that has an instance.
struct Caller {
    number: u64,
    process: i32,
    badge: Badge,
    has: Has,
}

/// What a caller reaches the service by.
enum Has {
    Gates(Gates),
    Memory(Arc<ModuleHost>),
}

struct HostHalf<S: Service> {
    session: Session,
    service: S,
    window: Window,
    instances: Instances<S::Instance>,
    callers: Vec<Caller>,
    /// Those whose gates could not be taken back yet: as many revocations as the session may hold wait for kernels, or as many as
    /// one process may have there.
    leaving: Vec<Caller>,
    /// Those whose gates are being taken back, and their processes.
    revoking: Vec<(Badge, i32)>,
    /// Badges that no kernel reads any more, of instances that are not given back yet.
    closing: Vec<Badge>,
    /// Whether host code was told that it has to ring.
    sleeps: bool,
    /// Whether host code has rung since it was looked last.
    rung: Arc<AtomicBool>,
    /// Those who want what another has, who may be on its way out.
    waiting: Openings<Opening>,
}

impl<S: Service> HostHalf<S> {
    fn serve(
        &mut self,
        session: &Session,
        mut activity: Arc<Activity>,
        events: &Sender<Event>,
        coming: &Receiver<Event>,
        rest: &Sender<Arc<Activity>>,
    ) -> Result<(), Error> {
        // Whether the thread that sleeps until gates are called does so.
        let (mut watches, mut looked, mut empty) = (false, Instant::now(), 0_u32);
        let mut asks = Instant::now();
        loop {
            if activity.is_over() && Instant::now() >= asks {
                // The executor was lost, and another goes on.
                match self.window.module().activity() {
                    Ok(next) => {
                        activity = Arc::new(next);
                        watches = false;
                        self.cut_off()?;
                    }
                    Err(_) if session.status().is_err() => return Ok(()),
                    // What else is on its way here, or was the lost executor's, has its place for a moment.
                    Err(error) if error.code == ErrorCode::LimitReached => asks = Instant::now() + AGAIN,
                    Err(error) => return Err(error),
                }
            }
            // Read before: what gates have left until the last launch passed is found by the look behind. Without a page nobody
            // tells of calls.
            let calls = activity.is_over() || activity.in_flight() > 0;
            let progress = self.service.serve(&self.window, &mut self.instances);
            self.give_back();
            let rests = !calls && progress == Progress::Idle && self.closing.is_empty();
            if rests && !watches {
                // The next look is behind this: a launch that began before it is seen there, or wakes.
                watches = rest.send(Arc::clone(&activity)).is_ok();
                self.tell_sleep(true);
                continue;
            }
            if rests && !self.sleeps {
                // So is what host code leaves, which rings from here on.
                self.tell_sleep(true);
                continue;
            }
            empty = if progress == Progress::Worked { 0 } else { empty.saturating_add(1) };
            let event = if rests {
                match coming.recv_timeout(if self.waiting.is_empty() { LOOK } else { openings::AGAIN }) {
                    Ok(event) => Some(event),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            } else {
                // A kernel that runs on and calls nothing keeps no core busy.
                if empty > LOOKS_EMPTY_MAX {
                    thread::sleep(NAP)
                } else {
                    std::hint::spin_loop()
                }
                coming.try_recv().ok()
            };
            if rests || looked.elapsed() > LOOK {
                looked = Instant::now();
                if session.status().is_err() {
                    // The operator has taken the module away, or the kernel has ended.
                    return Ok(());
                }
            }
            if self.sleeps && (event.is_some() || progress != Progress::Idle) {
                self.tell_sleep(false);
            }
            match event {
                Some(Event::Opens { caller, process, words, host, answer }) => {
                    let until = Instant::now() + OPENING;
                    self.attempt(Opening { caller, process, words, host, answer, until });
                }
                Some(Event::Over { caller }) => self.over(caller, events)?,
                Some(Event::Left { badge, left }) => {
                    left?;
                    self.revoking.retain(|(known, _)| *known != badge);
                    self.closing.push(badge);
                    for caller in std::mem::take(&mut self.leaving) {
                        self.take_back(caller, events)?;
                    }
                }
                Some(Event::Called) => watches = false,
                Some(Event::Rung) => self.rung.store(false, Ordering::Release),
                None => {}
            }
            if !self.waiting.is_empty()
                && let Some(opening) = self.waiting.due(Instant::now())
            {
                self.attempt(opening);
            }
        }
    }

    /// Has the service look at what kernels may have left half done.
    fn cut_off(&mut self) -> Result<(), Error> {
        let Self { service, window, instances, callers, .. } = self;
        let of_kernels = callers.iter().filter(|caller| matches!(caller.has, Has::Gates(_)));
        for badge in of_kernels.map(|caller| caller.badge) {
            if let Some(instance) = instances.get(badge) {
                crate::warn(format_args!(
                    "instance {badge:?}: the executor was lost while kernels may have been in its gates"
                ));
                service.cut_off(window, badge, instance)?;
            }
        }
        Ok(())
    }
}
