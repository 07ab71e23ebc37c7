//! Everything that can be used up is charged: whatever sessions do, nobody uses more than it may, what is below is
//! within what is above, and in the end nothing is charged any more.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::{BufRead as _, BufReader},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bulkhead_client::{
    Access, Buffer, Error, ErrorCode, Event, HostBuffer, Image, Moment, Peer, Program, Received, RemoteFence,
    Session, Share, Signal, Stream, Terms, Uses,
};
use bulkhead_schema::limits;
use bulkhead_tests::{
    child,
    fuzz::dice::Dice,
    kernel::Kernel,
    patience::{PATIENCE, until, within},
    place, process,
    tenant::{NEW, PAGE_BYTES, SHARING, Tenant},
};

/// Names a seed to begin with.
const SEED: &str = "BULKHEAD_SEED";
/// Names how many steps to take.
const STEPS: &str = "BULKHEAD_LEDGER_STEPS";
const NAMES: [&str; 4] = ["zero", "one", "two", "three"];

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Whether the kernel found nothing that cannot be.
fn assert_books_are_right(kernel: &Kernel) {
    let log = kernel.log();
    let wrong: Vec<_> = log.lines().filter(|line| line.contains("the books are wrong")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What one session has.
struct Actor {
    session: Session,
    memory: Vec<Buffer>,
    host: Vec<HostBuffer>,
    images: Vec<Image>,
    streams: Vec<Stream>,
    events: Vec<Event>,
    shares: Vec<Share>,
    signals: Vec<Signal>,
    fences: Vec<RemoteFence>,
    programs: Vec<Program>,
    peers: Vec<Peer>,
}

impl Actor {
    fn new(session: Session) -> Self {
        Self {
            session,
            memory: Vec::new(),
            host: Vec::new(),
            images: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            shares: Vec::new(),
            signals: Vec::new(),
            fences: Vec::new(),
            programs: Vec::new(),
            peers: Vec::new(),
        }
    }

    /// One step of its own.
    fn act(&mut self, dice: &mut Dice) -> Result<(), Error> {
        let session = &self.session;
        match dice.below(22) {
            0 | 1 | 20 => self.memory.push(session.allocate_arena(PAGE_BYTES * (1 + dice.word() % 12))?),
            2 => drop(self.memory.pop()),
            3 => self.host.push(session.allocate_host(4096 << dice.below(10))?),
            4 => drop(self.host.pop()),
            5 => self.images.push(session.load_image(SHARING)?),
            6 => drop(session.load_image(b"no image at all")?),
            7 => drop(self.images.pop()),
            8 => self.streams.push(session.create_stream(0)?),
            9 => {
                if let Some(stream) = self.streams.pop() {
                    session.destroy_stream(stream)?;
                }
            }
            10 => {
                for _ in 0..1 + dice.below(200) {
                    self.events.push(session.create_event()?);
                }
                let event = self.events[dice.place(self.events.len())];
                session.record(event, Stream::DEFAULT)?;
            }
            11 => {
                for event in self.events.drain(..) {
                    session.destroy_event(event)?;
                }
            }
            12 => self.signals.push(session.signal()?),
            13 => drop(self.signals.pop()),
            14 | 21 => {
                let fence = session.fence(Stream::DEFAULT);
                self.fences.push(session.publish(fence)?);
            }
            15 => drop(self.fences.pop()),
            16 => {
                if let Some(memory) = self.memory.last() {
                    self.shares.push(memory.share(0, PAGE_BYTES, Access::ReadWrite)?);
                }
            }
            17 => {
                if let Some(share) = self.shares.pop() {
                    let revocation = share.revoke()?;
                    revocation.wait(Moment::Quiescent, Duration::from_secs(30))?;
                }
            }
            18 => self.programs.push(session.program(None, &[], Terms::default())?),
            _ => self.peers.push(session.peer()?),
        }
        Ok(())
    }
}

/// What a refusal may be: the ledger's, or that somebody else has ended something.
fn is_typed(error: &Error) -> bool {
    match error.code {
        ErrorCode::LimitReached
        | ErrorCode::OutOfMemory
        | ErrorCode::ImageInvalid
        | ErrorCode::ImageRefused
        | ErrorCode::NotPermitted
        | ErrorCode::NotSupported
        | ErrorCode::NotFound
        | ErrorCode::Revoked
        | ErrorCode::SessionLost
        | ErrorCode::InvalidHandle
        | ErrorCode::InvalidArgument => true,
        ErrorCode::Internal
        | ErrorCode::LaunchResources
        | ErrorCode::DeviceLost
        | ErrorCode::Protocol
        | ErrorCode::TimedOut
        | ErrorCode::Unavailable
        | ErrorCode::Version
        | ErrorCode::WorkLost
        | ErrorCode::LaunchTimeout
        | ErrorCode::Trapped
        | ErrorCode::AssertionFailed => false,
    }
}

/// One step of the world: somebody comes, goes, acts, or deals with another.
fn step(kernel: &Kernel, actors: &mut Vec<Actor>, dice: &mut Dice) -> Result<(), Error> {
    let at = dice.place(actors.len());
    match dice.below(16) {
        0 | 15 if actors.len() < NAMES.len() => {
            let name = NAMES[dice.place(NAMES.len())];
            actors.push(Actor::new(Session::open(&kernel.options(name))?));
        }
        1 if actors.len() < NAMES.len() => {
            let Some(program) = actors.get(at).and_then(|actor| actor.programs.last()) else { return Ok(()) };
            let token = program.token(Uses::One)?;
            actors.push(Actor::new(Session::open_program(&kernel.options("below"), token)?));
        }
        2 if !actors.is_empty() && dice.once_in(4) => drop(actors.swap_remove(at)),
        3 | 4 if actors.len() > 1 => {
            let Some(share) = actors[at].shares.last() else { return Ok(()) };
            let token = share.token(Uses::One)?;
            let count = actors.len();
            let taker = &mut actors[(at + 1) % count];
            if let Received::Share(given) = taker.session.restore(token)? {
                let accepted = taker.session.accept(&given);
                taker.shares.push(given);
                taker.shares.push(accepted?);
            }
        }
        5 if !actors.is_empty() && dice.once_in(4) => {
            // It ends while it loads.
            let actor = actors.swap_remove(at);
            let session = actor.session.clone();
            let loading = thread::spawn(move || session.load_image(SHARING).map(drop));
            thread::sleep(Duration::from_micros(dice.word() % 3000));
            drop(actor);
            return within("an image is loaded or refused", || loading.join().unwrap());
        }
        _ => {
            if let Some(actor) = actors.get_mut(at) {
                return actor.act(dice);
            }
        }
    }
    Ok(())
}

#[test]
fn whatever_sessions_do_nobody_uses_more_than_it_may_and_all_of_it_comes_back() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number(SEED).unwrap_or_else(|| u64::from(now.subsec_nanos()));
    println!("seed {seed}");
    let kernel = Kernel::with(&[
        "--device-memory",
        "512MiB",
        "--swap-memory",
        "512MiB",
        "--session-limit=host_bytes=1MiB",
        "--session-limit=images=2",
        "--session-limit=streams=10",
        "--session-limit=events=700",
        "--session-limit=fences=3",
        "--session-limit=capabilities=40",
        "--session-limit=tokens=3",
        "--session-limit=descriptors=16",
        "--session-limit=sessions=2",
        "--total-limit=images=3",
    ]);
    let mut dice = Dice::new(seed, 0);
    let (mut actors, mut refusals, mut charged) = (Vec::new(), 0, 0);
    for step_number in 0..number(STEPS).unwrap_or(400) {
        if let Err(error) = step(&kernel, &mut actors, &mut dice) {
            assert!(is_typed(&error), "step {step_number}: {error:?}");
            refusals += u32::from(matches!(error.code, ErrorCode::LimitReached | ErrorCode::OutOfMemory));
        }
        let status = kernel.status();
        status.check_ledgers();
        charged = charged.max(status.charges().len());
    }
    println!("{refusals} refusals, {charged} columns at a time");
    assert!(refusals > 0, "no limit was reached");
    assert!(charged >= 10, "only {charged} columns were used");
    drop(actors);
    until("nothing is charged", || {
        kernel.status().charges().is_empty() && kernel.status().sessions.is_empty()
    });
    assert_books_are_right(&kernel);
}

#[test]
fn a_client_that_is_killed_while_it_loads_leaves_nothing() {
    let test = "a_client_that_is_killed_while_it_loads_leaves_nothing";
    if let Some(socket) = child::role() {
        let options = bulkhead_client::Options { socket, ..bulkhead_client::Options::default() };
        let session = Session::open(&options).unwrap();
        println!("\nloading");
        loop {
            drop(session.load_image(SHARING));
        }
    }
    let kernel = Kernel::start();
    for round in 0..6_u64 {
        let mut client = child::start(test, &kernel.socket());
        let stdout = BufReader::new(client.stdout.take().unwrap());
        within("the client loads", move || {
            assert!(stdout.lines().map_while(Result::ok).any(|line| line == "loading"));
        });
        thread::sleep(Duration::from_millis(3 * round));
        client.kill().unwrap();
        client.wait().unwrap();
        until("nothing is charged", || kernel.status().charges().is_empty());
    }
    assert_books_are_right(&kernel);
}

#[test]
fn memory_is_taken_back_while_code_is_loaded_and_the_executor_may_be_lost_meanwhile() {
    let kernel = Kernel::start();
    let giver = Tenant::new(&kernel, "giver");
    let arena = giver.arena(PAGE_BYTES, 7);
    let taker = kernel.open("taker");
    for _ in 0..4 {
        let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
        let Received::Share(given) = taker.restore(share.token(Uses::One).unwrap()).unwrap() else {
            panic!("memory is memory")
        };
        let accepted = taker.accept(&given).unwrap();
        let loader = taker.clone();
        let loading = thread::spawn(move || loader.load_image(NEW).map(drop));
        let revocation = share.revoke().unwrap();
        let reached = revocation.wait(Moment::Quiescent, Duration::from_secs(30)).unwrap();
        assert!(reached.reached && !reached.quarantined, "code that is loaded keeps nobody's memory");
        loading.join().unwrap().unwrap();
        drop((accepted, given, share));
    }
    let loader = taker.clone();
    let loading = thread::spawn(move || {
        loop {
            if let Err(error) = loader.load_image(NEW) {
                return error;
            }
        }
    });
    process::kill(kernel.status().executor_pid);
    let error = within("a load is refused", || loading.join().unwrap());
    assert!(matches!(error.code, ErrorCode::DeviceLost | ErrorCode::SessionLost), "{error}");
    drop((arena, giver, taker));
    until("nothing is charged", || kernel.status().charges().is_empty());
}

#[test]
fn a_session_is_charged_what_its_executor_may_hold_back_of_it() {
    let kernel = Kernel::start();
    let open = |limits| {
        let terms = Terms { limits, ..Terms::default() };
        Session::open(&bulkhead_client::Options { terms, ..kernel.options("held") })
    };
    let charged = open(&[]).unwrap().ledger().unwrap().column("kernel_bytes").unwrap().used;
    assert!(charged >= limits::HELD_BYTES_MAX, "{charged}");
    let refused = open(&[("kernel_bytes", limits::HELD_BYTES_MAX)]).map(drop).unwrap_err();
    assert_eq!(refused.code, ErrorCode::OutOfMemory, "{refused}");
}

#[test]
fn status_shows_every_column_of_a_session_and_the_client_sees_the_same() {
    let kernel = Kernel::with(&["--session-limit", "streams=5", "--priority-ceiling", "-3"]);
    let terms =
        Terms { priority: -9, limits: &[("events", 300), ("code_bytes", 8 << 20)], ..Terms::default() };
    let session = Session::open(&bulkhead_client::Options { terms, ..kernel.options("shown") }).unwrap();
    let _image = session.load_image(SHARING).unwrap();
    let ledger = session.ledger().unwrap();
    assert_eq!(ledger.priority, -3);
    for (name, limit) in [("streams", 5), ("events", 300), ("code_bytes", 8 << 20), ("images", 256)] {
        assert_eq!(ledger.column(name).unwrap().limit, limit, "{name}");
    }
    for name in ["device_bytes", "code_bytes", "kernel_bytes", "images", "streams", "sessions", "compile_ms"]
    {
        assert!(ledger.column(name).unwrap().used > 0, "{name}");
    }
    // The first is there; what is made beyond the limit is refused by name.
    for _ in 0..4 {
        session.create_stream(0).unwrap();
    }
    let refused = session.create_stream(0).unwrap_err();
    assert_eq!(refused.code, ErrorCode::LimitReached);
    assert!(refused.message.contains("streams") && refused.message.contains('5'), "{refused}");
    assert!(refused.remedy.contains("--session-limit"), "{refused}");

    let socket = kernel.socket();
    let socket = socket.to_str().unwrap();
    let asked = |arguments: &[&str]| {
        let mut command = process::bulkhead(&["status", "--socket", socket]);
        process::run(command.args(arguments), Duration::from_secs(30))
    };
    let shown = asked(&["--session", "shown"]);
    assert_eq!(shown.code(), Some(0), "{}", shown.told());
    for column in &ledger.columns {
        assert!(
            shown.stdout.lines().any(|line| line.trim_start().starts_with(&column.name)),
            "{}",
            column.name
        );
    }
    let streams = shown.stdout.lines().find(|line| line.contains("streams")).unwrap();
    assert_eq!(streams.split_whitespace().collect::<Vec<_>>(), ["streams", "5", "5"]);
    let number = session.number().to_string();
    assert_eq!(asked(&["--session", &number]).stdout, shown.stdout);
    let json = asked(&["--json"]).stdout;
    assert!(json.contains("\"ledger\"") && json.contains("\"compile_ms\""), "{json}");
    assert_eq!(asked(&["--session", "nobody"]).code(), Some(1));
}

#[test]
fn a_program_that_a_limit_of_the_operators_stops_says_so_in_one_line() {
    let kernel = Kernel::with(&["--session-limit", "device_bytes=4MiB"]);
    let done = process::run(&mut kernel.run_command(&place::program("vecadd")), PATIENCE);
    assert_ne!(done.code(), Some(0), "{}", done.told());
    let lines: Vec<_> = done.stderr.lines().filter(|line| line.starts_with("bulkhead: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains("--session-limit"), "{}", done.told());
    assert!(lines[0].ends_with("the limit of device_bytes"), "{}", done.told());
}
