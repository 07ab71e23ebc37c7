//! Hostile acts with what a session has: programs, signals, views, memory. Each runs in a process of its own, beside a
//! client that pings and one that computes.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{fmt::Write as _, path::Path, sync::Mutex, thread, time::Duration};

use bulkhead_client::{Access, Entry, Error, ErrorCode, Moment, Options, Session, Terms};
use bulkhead_schema::limits;
use bulkhead_tests::{
    apart::{act_apart, hold, tell},
    calls, child,
    kernel::Kernel,
    neighbour::Neighbour,
    patience::{until, within},
    process::resident_bytes,
    status::local,
    tenant::{PAGE_BYTES, Tenant},
};

const MIB: u64 = 1 << 20;
/// Calls of one session that are asked for at a time where nobody can ask for many.
const THREADS: usize = 8;

fn options(socket: &Path, name: &str, terms: Terms) -> Options {
    Options { socket: socket.to_owned(), name: name.into(), terms, ..Options::default() }
}

/// Makes something again and again, on several threads, until that is refused: what was made, and why there is no more.
fn until_refused<T: Send>(make: impl Fn() -> Result<T, Error> + Sync) -> (Vec<T>, Error) {
    let (made, refused) = (Mutex::new(Vec::new()), Mutex::new(None));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let why = loop {
                    match make() {
                        Ok(one) => made.lock().unwrap().push(one),
                        Err(error) => break error,
                    }
                };
                refused.lock().unwrap().replace(why);
            });
        }
    });
    (made.into_inner().unwrap(), refused.into_inner().unwrap().unwrap())
}

/// Entries of the image of which programs are made.
const ENTRIES: usize = 400;
/// Capabilities of the session that makes them.
const CAPABILITIES: u32 = 4000;

/// Makes programs of very many entries with long names, as many as it may.
fn make_programs(socket: &Path) {
    let terms = Terms { capabilities: CAPABILITIES, ..Terms::default() };
    let session = Session::open(&options(socket, "programs", terms)).unwrap();
    let mut text = ".version 8.0\n.target sm_75\n.address_size 64\n".to_owned();
    for entry in 0..ENTRIES {
        let name = "n".repeat(100);
        writeln!(text, ".visible .entry e{entry}_{name}(.param .u64 to)\n{{\n\tret;\n}}").unwrap();
    }
    text.push('\0');
    let image = session.load_image(text.as_bytes()).unwrap();
    let entries: Vec<&Entry> = image.entries().iter().collect();
    assert_eq!(entries.len(), ENTRIES);
    let (programs, refused) = until_refused(|| session.program(Some(&image), &entries, Terms::default()));
    assert_eq!(refused.code, ErrorCode::LimitReached, "{refused}");
    let ledger = session.ledger().unwrap();
    let used = |name: &str| ledger.column(name).unwrap().used;
    assert!(
        used("kernel_bytes") > (programs.len() * ENTRIES * 8) as u64,
        "lists are not charged: {ledger:?}"
    );
    tell(&format!("{} programs, {} bytes of the kernel's", programs.len(), used("kernel_bytes")));
    assert!(programs.len() as u64 > u64::from(CAPABILITIES) / 2);
    hold();
}

#[test]
fn programs_of_long_lists_are_made_as_often_as_a_session_may() {
    const NAME: &str = "programs_of_long_lists_are_made_as_often_as_a_session_may";
    if let Some(socket) = child::role() {
        return make_programs(&socket);
    }
    let kernel = Kernel::start();
    let before = resident_bytes(kernel.pid());
    act_apart(&kernel, "programs of long lists", NAME, |kernel| {
        let grown = resident_bytes(kernel.pid()).saturating_sub(before);
        println!("  the kernel grew by {grown} bytes");
        // With a copy of each entry in each program it was ten times that.
        assert!(grown < 128 * MIB, "the kernel grew by {grown} bytes");
        Neighbour::new(kernel, "newcomer").work();
    });
}

/// Connections that ask who uses what.
const ASKING: usize = 4;
/// Sessions of each.
const SESSIONS: usize = 2;
/// Signals of each session.
const SIGNALS: usize = 4000;
/// Calls of a connection at a time.
const AT_ONCE: usize = 100;

/// Has very many signals, and asks all the time who uses what.
async fn ask_who_uses_what(socket: &Path) {
    let (mut connections, mut sessions, mut signals) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ASKING {
        let connection = calls::connect(socket, "asking").await;
        for _ in 0..SESSIONS {
            let session = calls::open(&connection, "asking").await.unwrap().copying();
            for _ in 0..SIGNALS / AT_ONCE {
                signals.extend(calls::signals(&session, AT_ONCE).await.unwrap());
            }
            sessions.push(session);
        }
        connections.push(connection);
    }
    tell(&format!("{} signals", signals.len()));
    let (holding, mut answers) = (tokio::task::spawn_blocking(hold), 0_usize);
    // Until everybody else has done what they wanted, and for a while at least.
    while !holding.is_finished() || answers < 10 * ASKING * AT_ONCE {
        let ask = |_| connections.iter().map(|connection| connection.kernel.status_request().send().promise);
        let asked: Vec<_> = (0..AT_ONCE).flat_map(ask).collect();
        for asked in asked {
            let response = asked.await.unwrap();
            let status = calls::read(response.get().unwrap().get_result()).unwrap();
            let own = status
                .get_sessions()
                .unwrap()
                .iter()
                .filter(|session| session.get_capabilities() as usize >= SIGNALS);
            assert_eq!(own.count(), ASKING * SESSIONS);
            answers += 1;
        }
    }
    tell(&format!("{answers} answers of who uses what"));
}

#[test]
fn who_uses_what_is_asked_in_a_flood() {
    const NAME: &str = "who_uses_what_is_asked_in_a_flood";
    if let Some(socket) = child::role() {
        return local(ask_who_uses_what(&socket));
    }
    act_apart(&Kernel::start(), "status in a flood", NAME, |kernel| {
        (0..3).for_each(|_| Neighbour::new(kernel, "newcomer").work());
    });
}

/// Closes views behind a kernel without end until there are as many as may be, and waits for some.
fn close_behind_a_kernel(socket: &Path) {
    const WAITING: usize = 8;
    let tenant = Tenant::over(Session::open(&options(socket, "endless", Terms::default())).unwrap());
    let arena = tenant.arena(PAGE_BYTES, 1);
    let running = tenant.runs(arena.address());
    let view = || arena.share(0, 64, Access::Read);
    let revocations: Vec<_> = (0..WAITING).map(|_| view().unwrap().close().unwrap()).collect();
    thread::scope(|scope| {
        let wait = |revocation: &bulkhead_client::Revocation| {
            revocation.wait(Moment::Quiescent, Duration::from_secs(600)).unwrap()
        };
        let waiting: Vec<_> = revocations.iter().map(|one| scope.spawn(move || wait(one))).collect();
        // Each is closed at once.
        let (closed, refused) = until_refused(|| view().map(drop));
        assert_eq!(refused.code, ErrorCode::LimitReached, "{refused}");
        assert!(refused.remedy.contains("kernels that run"), "{refused}");
        assert!(closed.len() + WAITING + THREADS >= limits::ENDED_CAPABILITIES_MAX as usize);
        tell(&format!("{} views were closed", closed.len()));
        hold();
        assert!(!running.is_over() && waiting.iter().all(|waiting| !waiting.is_finished()));
        running.end();
        for waiting in waiting {
            assert!(waiting.join().unwrap().reached);
        }
    });
    until("what was closed comes back", || view().is_ok());
}

#[test]
fn views_are_closed_by_the_thousand_behind_a_kernel_without_end() {
    const NAME: &str = "views_are_closed_by_the_thousand_behind_a_kernel_without_end";
    if let Some(socket) = child::role() {
        return close_behind_a_kernel(&socket);
    }
    act_apart(&Kernel::start(), "views that are closed behind a kernel without end", NAME, |kernel| {
        let newcomer = Tenant::new(kernel, "newcomer");
        let arena = newcomer.arena(PAGE_BYTES, 5);
        // Somebody else's closes are quick, and end.
        for _ in 0..50 {
            let revocation = arena.share(0, 64, Access::Read).unwrap().close().unwrap();
            assert!(revocation.wait(Moment::Quiescent, Duration::from_secs(20)).unwrap().reached);
        }
    });
}

/// Calls of a process that may wait where room is wanted.
const WAITS: usize = 500;

// Of 1024 MiB each session has 64 for its sink, those that load code 64 more for what is small. The neighbour has 128,
// the idle one 256, the one that wants 64, the one that runs on 384, the full one 128, and 64 are left: for 192 the idle
// one has to go, which has room to come back when those are dropped. For 384 there is never room without the one that
// runs on.
const IDLES: u64 = 128 * MIB;
const RUNS_ON: u64 = 256 * MIB;
const STAYS: u64 = 64 * MIB;
const GOES: u64 = 192 * MIB;
const WANTED: u64 = 384 * MIB;

/// Asks again and again for room that nobody but a session can make whose kernel runs on.
async fn want_room(socket: &Path) {
    let connection = calls::connect(socket, "wants room").await;
    let wanting = calls::open(&connection, "wants room").await.unwrap().copying();
    let runs_on = Tenant::over(Session::open(&options(socket, "runs on", Terms::default())).unwrap());
    let arena = runs_on.arena(RUNS_ON, 1);
    let running = runs_on.runs(arena.address());
    // It changes for as long as its kernel runs.
    drop(arena.share(0, PAGE_BYTES, Access::Read).unwrap());
    let resident = Terms { keep_resident: true, ..Terms::default() };
    let full = Session::open(&options(socket, "full", resident)).unwrap();
    let (stays, goes) = (full.allocate_arena(STAYS).unwrap(), full.allocate_arena(GOES).unwrap());
    drop(goes);
    let want = |_| {
        let mut allocate = wanting.allocate_request();
        allocate.get().set_bytes(WANTED);
        allocate.send().promise
    };
    let mut asked: Vec<_> = (0..2 * WAITS).map(want).collect();
    connection.ping(0).await.unwrap();
    tell(&format!("{} calls want room", asked.len()));
    hold();
    // Those that were too many were told so, and the last is one.
    let last = asked.pop().unwrap().await.unwrap();
    let refused = calls::read(last.get().unwrap().get_result()).map(drop).unwrap_err();
    assert_eq!(refused.code, ErrorCode::LimitReached, "{refused}");
    assert!(refused.message.contains("waits"), "{refused}");
    assert!(!running.is_over());
    drop(stays);
}

#[test]
fn room_is_wanted_by_more_calls_than_may_wait() {
    const NAME: &str = "room_is_wanted_by_more_calls_than_may_wait";
    if let Some(socket) = child::role() {
        return local(want_room(&socket));
    }
    let waits = format!("waits={WAITS}");
    let memory = ["--device-memory", "1GiB", "--swap-memory", "4GiB"];
    let kernel = Kernel::with(&[&memory[..], &["--process-limit", &waits]].concat());
    let idle = Tenant::new(&kernel, "idle");
    let arena = idle.arena(IDLES, 7);
    act_apart(&kernel, "calls that want room", NAME, |kernel| {
        let away = || kernel.status().session("idle").map(|session| session.swapped_bytes);
        assert!(away() >= Some(IDLES), "nobody was swapped out: {:?}", away());
        within("the idle session comes back", move || assert_eq!(idle.loads(arena.address()), 7));
    });
}
