//! Executors of isolated sessions that lie by chance end their own session at most.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{
    Access, Buffer, Domain, Error, Launch, Moment, Options, Parameters, Pattern, Received, Session, Stream,
    Terms, Uses,
};
use bulkhead_tests::{
    child,
    fuzz::dice::Dice,
    kernel::Kernel,
    liar::{LIES, Script, lie},
    neighbour::{KERNELS, Neighbour},
    patience::{PATIENCE, until},
    place, process,
    scratch::Scratch,
    tenant::PAGE_BYTES,
};

const TEST: &str = "an_executor_that_lies_ends_its_own_session_and_nothing_else";
/// How many pairs of sessions there are; `BULKHEAD_LIARS` says otherwise.
const ROUNDS: u64 = 60;
/// How long a round may take before its executors are killed: a lie may be that nothing is ever done.
const ROUND: Duration = Duration::from_secs(2);
/// What the kernel may grow by.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().unwrap())
}

fn share(to: &Session, buffer: &Buffer) -> Result<(), Error> {
    let share = buffer.share(0, PAGE_BYTES, Access::ReadWrite)?;
    let Received::Share(theirs) = to.restore(share.token(Uses::One)?)? else { return Ok(()) };
    let accepted = to.accept(&theirs);
    let revoked = share.revoke()?.wait(Moment::Quiescent, Duration::from_millis(100));
    accepted.map(drop).and(revoked.map(drop))
}

/// What clients do, as far as it goes.
fn work(sessions: &[Session], dice: &mut Dice, kernel: &Kernel) -> Result<(), Error> {
    let mut buffers = Vec::new();
    for session in sessions {
        buffers.push(session.allocate_arena(2 * PAGE_BYTES)?);
    }
    let image = sessions[0].load_image(KERNELS)?;
    let entry = image.entry("scramble")?;
    let one = Launch { grid: [1, 1, 1], block: [32, 1, 1], shared_bytes: 0 };
    for _ in 0..40 {
        let at = dice.place(sessions.len());
        let (session, buffer) = (&sessions[at], &buffers[at]);
        let done = match dice.below(14) {
            0 => session.allocate(u64::from(dice.below(64)) << 16).map(drop),
            1 => session.allocate(PAGE_BYTES).map(|more| buffers.push(more)),
            2 => session.write(Stream::DEFAULT, buffer.range(0, 4096), &[7; 4096]).map(drop),
            3 => session.read(Stream::DEFAULT, &mut [0; 4096], buffer.range(0, 4096)).map(drop),
            4 => session
                .fill(Stream::DEFAULT, buffer.range(0, 1 << 16), Pattern::Bits32(1))
                .and_then(|fence| session.wait(fence)),
            5 => {
                let parameters = Parameters::new().buffer(&buffers[0]).u32(32);
                sessions[0]
                    .launch(Stream::DEFAULT, &entry, &one, &parameters)
                    .and_then(|fence| sessions[0].wait(fence))
            }
            6 => session.output().map(drop),
            7 => session.create_stream(0).map(drop),
            8 => session.load_image(KERNELS).map(drop),
            9 | 10 => {
                // The other maps what this one shares.
                share(&sessions[(at + 1) % sessions.len()], buffer)
            }
            11 => session.allocate_host(1 << 16).map(drop),
            12 => {
                let number = session.number().to_string();
                for what in ["suspend", "resume"] {
                    let mut command = process::bulkhead(&[what, &number, "--socket"]);
                    process::run(command.arg(kernel.socket()), PATIENCE * 4);
                }
                Ok(())
            }
            _ => session.status(),
        };
        // An error is an answer.
        drop(done);
        session.status()?;
    }
    Ok(())
}

fn open(kernel: &Kernel, name: &str) -> Result<Session, Error> {
    let terms = Terms { domain: Domain::Isolated, ..Terms::default() };
    Session::open(&Options { terms, ..kernel.options(name) })
}

/// One round: two sessions at work, until they are done or their executors are killed.
fn round(kernel: &Kernel, seed: u64, number: u64) {
    let mut dice = Dice::new(seed ^ 0xc11e_4711, number);
    let sessions: Vec<_> =
        ["liar", "other liar"].into_iter().filter_map(|name| open(kernel, name).ok()).collect();
    let (told, over) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            if sessions.len() == 2 {
                match work(&sessions, &mut dice, kernel) {
                    Ok(()) => {}
                    Err(error) => println!("round {number}: {error}"),
                }
            }
            told.send(()).unwrap();
        });
        while over.recv_timeout(ROUND).is_err() {
            for session in kernel.status().sessions {
                // It may be gone by now.
                let pid = session.executor_pid;
                if session.name.ends_with("liar") && pid != 0 && process::lives(pid) {
                    process::kill(pid);
                }
            }
        }
    });
}

fn notes(folder: &Path) -> BTreeMap<String, u64> {
    let mut notes = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        for line in fs::read_to_string(entry.unwrap().path()).unwrap().lines() {
            *notes.entry(line.to_owned()).or_insert(0) += 1;
        }
    }
    notes
}

/// A kernel whose executors of isolated sessions lie.
fn with_liars(place: &Scratch, script: &Script<'_>) -> Kernel {
    let bulkhead = place.path().join("bulkhead");
    // Under a name of its own, so that what it starts is not what it is any more.
    // The kernel's program lies beside it.
    let become_it =
        format!("cp \"$1\" {0}; cp \"$1-kernel\" {0}-kernel; shift; exec {0} \"$@\"", bulkhead.display());
    let kernel = Kernel::wrapped(&["sh", "-c", &become_it, "sh"], &["--swap-memory", "1GiB"]);
    script.take_the_place_of(&bulkhead, place::bulkhead());
    kernel
}

#[test]
fn a_session_that_its_executor_does_not_open_is_told_of_and_ends() {
    let test = "a_session_that_its_executor_does_not_open_is_told_of_and_ends";
    if let Some(folder) = child::role() {
        lie(&folder);
    }
    let (place, folder) = (Scratch::new(), Scratch::new());
    // It says what its device is, and nothing more.
    let script = Script { folder: folder.path(), seed: 1, test, always: Some((1, "silence")) };
    let kernel = with_liars(&place, &script);
    let is_told_of = || kernel.status().sessions.iter().any(|session| session.name == "mute");
    // By its operator.
    thread::scope(|scope| {
        let opening = scope.spawn(|| open(&kernel, "mute").err().unwrap());
        until("the session is told of", is_told_of);
        let number = kernel.status().sessions[0].id.to_string();
        let evicted =
            process::run(process::bulkhead(&["evict", &number, "--socket"]).arg(kernel.socket()), PATIENCE);
        assert_eq!(evicted.code(), Some(0), "{}", evicted.told());
        let error = opening.join().unwrap();
        assert!(error.message.contains("operator"), "{error}");
    });
    kernel.without(&["mute"]).check_ledgers();
    // With its client.
    let mut client = child::command("a_client_that_opens_a_session", &kernel.socket()).spawn().unwrap();
    until("the session is told of", is_told_of);
    client.kill().unwrap();
    client.wait().unwrap();
    kernel.without(&["mute"]).check_ledgers();
}

#[test]
fn a_client_that_opens_a_session() {
    // The one before starts it.
    let Some(socket) = child::role() else { return };
    let terms = Terms { domain: Domain::Isolated, ..Terms::default() };
    drop(Session::open(&Options { socket, terms, name: "mute".into(), ..Options::default() }));
}

#[test]
fn an_executor_that_lies_ends_its_own_session_and_nothing_else() {
    if let Some(folder) = child::role() {
        lie(&folder);
    }
    let (rounds, seed) = (number("BULKHEAD_LIARS", ROUNDS), number("BULKHEAD_SEED", 1));
    let (place, folder) = (Scratch::new(), Scratch::new());
    let kernel = with_liars(&place, &Script { folder: folder.path(), seed, test: TEST, always: None });
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    let before = kernel.status();
    let descriptors = || {
        let name =
            |entry: std::io::Result<fs::DirEntry>| fs::read_link(entry.unwrap().path()).unwrap_or_default();
        let open = fs::read_dir(format!("/proc/{}/fd", kernel.pid())).unwrap().map(name);
        // Texts that are kept for whoever loads them again are none of a session's.
        open.filter(|name| !name.to_string_lossy().contains("bulkhead-ptx")).count()
    };
    let (mut open, mut resident) = (0, 0);
    let mut longest = Duration::ZERO;
    for number in 0..rounds {
        round(&kernel, seed, number);
        let begun = Instant::now();
        neighbour.work();
        longest = longest.max(begun.elapsed());
        let after = kernel.without(&["liar", "other liar"]);
        after.check_ledgers();
        assert_eq!(
            after.executor_starts, before.executor_starts,
            "the shared executor is another, in round {number}"
        );
        until("nothing is left of them", || kernel.status().charged_bytes == before.charged_bytes);
        if number == 4 {
            (open, resident) = (descriptors(), process::resident_bytes(kernel.pid()));
        } else if number > 4 {
            until("no descriptor is left of them", || descriptors() <= open);
        }
        let log = kernel.log();
        let wrong = log.lines().find(|line| line.contains("panicked") || line.contains("bug in Bulkhead"));
        assert_eq!(wrong, None, "in round {number}");
    }
    let grown = process::resident_bytes(kernel.pid()).saturating_sub(resident);
    assert!(grown < GROWTH_BYTES_MAX, "the kernel has grown by {grown} bytes");
    assert!(kernel.log().len() < 16 << 20, "the log has {} bytes", kernel.log().len());
    assert!(longest < PATIENCE, "the neighbour waited for {longest:?}");
    let notes = notes(folder.path());
    println!("{rounds} rounds, the neighbour waited for {longest:?} at most; lies: {notes:?}");
    let missing: Vec<_> = LIES.into_iter().filter(|lie| !notes.contains_key(*lie)).collect();
    assert!(rounds < ROUNDS || missing.is_empty(), "never told: {missing:?}");
}
