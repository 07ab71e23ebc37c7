//! Many hostile connections, and what must hold whatever they do.

use std::{
    collections::VecDeque,
    env, fmt,
    fs::{self, File},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    rc::Rc,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    attacker::Attacker,
    coverage::{Coverage, Table},
    dice::Dice,
    message::Message,
    neighbour::{self, Pings},
    schema,
    wire::{self, Wire},
};
use crate::process::{lives, resident_bytes};

/// How many connections run before it is looked whether anything is left of them.
const ROUND: u64 = 2_000;
/// Connections at a time.
const WORKERS: usize = 4;
/// Connections of one worker that say no more and stay.
const STALLED_MAX: usize = 12;
/// Connections of one worker whose messages are remembered.
const REMEMBERED: usize = 12;
/// One connection in this many is led a part of the way through the schema before it does what it likes.
const LED: u32 = 250;
/// How many steps of it at most.
const LED_STEPS: usize = 250;
/// How often it begins with the whole way through the schema.
const TOURS: u64 = 6;
/// Between two words on how far it is.
const TOLD: Duration = Duration::from_secs(20);
/// What a kernel may grow by from its warm-up to the end, in bytes.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

/// Who is attacked.
pub struct Target<'a> {
    /// Its process.
    pub pid: u32,
    /// Where it listens.
    pub socket: PathBuf,
    /// What it writes to standard error.
    pub log: PathBuf,
    /// Tokens that attackers are told of, as the four words of each.
    pub tokens: Vec<[u64; 4]>,
    /// What is left of connections that have ended, in words, if anything is.
    pub left: &'a (dyn Fn() -> Option<String> + Sync),
}

impl Target<'_> {
    /// How many descriptors the kernel's process has open, beside those of texts that it keeps for whoever loads them again
    /// (decision 0056): of those there are more and more, up to a limit of their own.
    fn descriptors(&self) -> usize {
        let is_kept = |entry: std::io::Result<fs::DirEntry>| {
            let names = entry.and_then(|entry| fs::read_link(entry.path()));
            names.is_ok_and(|name| name.to_string_lossy().starts_with("/memfd:bulkhead-ptx"))
        };
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid));
        open.map_or(0, |open| open.map(is_kept).filter(|is_kept| !is_kept).count())
    }
}

/// How many connections, and which.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// What all of them follow from.
    pub seed: u64,
    /// The number of the first.
    pub first: u64,
    /// How many.
    pub connections: u64,
    /// How long anything may take that should happen soon.
    pub patience: Duration,
    /// Whether it begins with the whole way through the schema, and goes parts of it later.
    pub led: bool,
}

/// What came of a campaign without a failure.
pub struct Report {
    /// Connections that ran.
    pub connections: u64,
    /// Messages that they sent.
    pub messages: u64,
    /// Messages that they got.
    pub answers: u64,
    /// Connections that the kernel took no part in.
    pub turned_away: u64,
    /// How long it took.
    pub duration: Duration,
    /// The neighbour's pings.
    pub pings: Pings,
    /// What the kernel had resident after the warm-up and at the end, in bytes.
    pub resident: (u64, u64),
    /// What came of each method of each interface.
    pub coverage: Table,
}

/// What went wrong, and what the connections that may be to blame have sent.
pub struct Failure {
    /// What.
    pub what: String,
    /// The latest connections: their numbers and what they sent.
    pub suspects: Vec<(u64, Vec<Message>)>,
    /// The campaign.
    pub campaign: Campaign,
}

impl Campaign {
    /// This many connections, unless the environment asks for others: `BULKHEAD_FUZZ_CONNECTIONS`, `BULKHEAD_SEED`,
    /// and `BULKHEAD_FUZZ_FIRST` for the number of the first.
    ///
    /// # Panics
    /// Where the environment says something that is no number.
    #[must_use]
    pub fn of(connections: u64) -> Self {
        let number = |name: &str, usual: u64| match env::var(name) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")),
            Err(_) => usual,
        };
        Self {
            seed: number("BULKHEAD_SEED", 1),
            first: number("BULKHEAD_FUZZ_FIRST", 0),
            connections: number("BULKHEAD_FUZZ_CONNECTIONS", connections),
            patience: Duration::from_secs(60),
            led: true,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The first failure.
    pub fn run(&self, target: &Target<'_>) -> Result<Report, Box<Failure>> {
        println!("{} hostile connections from number {}, seed {}", self.connections, self.first, self.seed);
        let run = Run::new(self, target);
        let start = Instant::now();
        let stop = AtomicBool::new(false);
        let pings = thread::scope(|scope| {
            let neighbour = scope.spawn(|| {
                let pause = Duration::from_millis(5);
                let pings = neighbour::ping(&target.socket, &stop, pause, self.patience);
                pings.map_err(|what| run.fail(what)).unwrap_or_default()
            });
            let watch = scope.spawn(|| run.watch(&stop));
            let stopping = Stopping(&stop);
            if self.led {
                run.tours();
            }
            run.rounds();
            drop(stopping);
            if watch.join().is_err() {
                run.fail("the watch panicked".into());
            }
            neighbour.join().unwrap_or_default()
        });
        run.end(start.elapsed(), pings)
    }
}

/// Has the others stop, also where something panics.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A server's log, read as it grows.
struct Log {
    file: Option<File>,
    text: Vec<u8>,
}

impl Log {
    fn new(path: &Path) -> Self {
        Self { file: File::open(path).ok(), text: Vec::new() }
    }

    /// A line that tells of a panic, or of an error that is nobody's but the server's own, if there is a new one.
    fn complaint(&mut self) -> Option<String> {
        self.file.as_mut()?.read_to_end(&mut self.text).ok()?;
        let end = self.text.iter().rposition(|byte| *byte == b'\n')?;
        let rest = self.text.split_off(end + 1);
        let lines = String::from_utf8_lossy(&std::mem::replace(&mut self.text, rest)).into_owned();
        let mut lines = lines.lines();
        lines.find(|line| line.contains("panicked at") || line.contains("ERROR")).map(str::to_owned)
    }
}

struct Run<'a> {
    campaign: &'a Campaign,
    target: &'a Target<'a>,
    next: AtomicU64,
    failed: AtomicBool,
    what: Mutex<Option<String>>,
    suspects: Mutex<Vec<(u64, Vec<Message>)>>,
    totals: Mutex<Totals>,
    resident: Mutex<(u64, u64)>,
}

#[derive(Default)]
struct Totals {
    connections: u64,
    messages: u64,
    answers: u64,
    turned_away: u64,
    coverage: Coverage,
}

impl<'a> Run<'a> {
    fn new(campaign: &'a Campaign, target: &'a Target<'a>) -> Self {
        Self {
            campaign,
            target,
            next: AtomicU64::new(campaign.first),
            failed: AtomicBool::new(false),
            what: Mutex::default(),
            suspects: Mutex::default(),
            totals: Mutex::default(),
            resident: Mutex::default(),
        }
    }

    fn fail(&self, what: String) {
        let mut first = self.what.lock().expect("nobody panics with it");
        first.get_or_insert(what);
        self.failed.store(true, Ordering::Relaxed);
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Looks all the time whether the kernel still lives and has not panicked.
    fn watch(&self, stop: &AtomicBool) {
        let mut log = Log::new(&self.target.log);
        while !stop.load(Ordering::Relaxed) && !self.has_failed() {
            self.look(&mut log);
            thread::sleep(Duration::from_millis(20));
        }
        // What was said just before the end counts too.
        self.look(&mut log);
    }

    fn look(&self, log: &mut Log) {
        if !lives(self.target.pid) {
            self.fail("the kernel is gone".into());
        }
        if let Some(line) = log.complaint() {
            self.fail(line);
        }
    }

    /// Connections that nobody disturbs, one after the other: what they reach follows from the seed. What takes several steps that
    /// fit, one of them alone may miss.
    fn tours(&self) {
        for tour in 0..TOURS {
            self.tour(u64::MAX - tour);
        }
    }

    fn tour(&self, number: u64) {
        let interfaces = Rc::new(schema::interfaces());
        let mut totals = Totals { coverage: Coverage::of(&interfaces), ..Totals::default() };
        let mut attacker = Attacker::unprepared(Dice::new(self.campaign.seed, number), interfaces);
        attacker.tell(&self.target.tokens);
        let mut sent = Vec::new();
        let toured = Wire::connect(&self.target.socket, self.campaign.patience);
        let toured = toured.map_err(|error| format!("a connection is not accepted: {error}"));
        let patience = self.campaign.patience;
        let toured = toured.and_then(|mut wire| {
            wire.lead(usize::MAX, patience, &mut attacker, &mut totals.coverage, &mut sent)
        });
        totals.messages = sent.len() as u64;
        if let Err(what) = toured {
            self.suspects.lock().expect("nobody panics with it").push((number, sent));
            self.fail(format!("on the way through the schema: {what}"));
        }
        self.add(totals);
    }

    fn rounds(&self) {
        let end = self.campaign.first.saturating_add(self.campaign.connections);
        let warm = self.campaign.first + (self.campaign.connections / 5).max(ROUND);
        let mut open = None;
        let started = Instant::now();
        let mut told = started;
        while !self.has_failed() && self.next.load(Ordering::Relaxed) < end {
            let until = self.next.load(Ordering::Relaxed).saturating_add(ROUND).min(end);
            self.suspects.lock().expect("nobody panics with it").clear();
            thread::scope(|scope| {
                for _ in 0..WORKERS {
                    scope.spawn(|| self.work(until));
                }
            });
            self.next.store(until, Ordering::Relaxed);
            self.nothing_is_left(&mut open);
            let resident = resident_bytes(self.target.pid);
            let mut known = self.resident.lock().expect("nobody panics with it");
            if until <= warm || known.0 == 0 {
                known.0 = resident;
            }
            known.1 = resident;
            if known.1 > known.0 + GROWTH_BYTES_MAX {
                let what = format!("the kernel has grown from {} to {} bytes", known.0, known.1);
                drop(known);
                self.fail(what);
            }
            if told.elapsed() > TOLD {
                told = Instant::now();
                let done = until - self.campaign.first;
                let a_second = done / started.elapsed().as_secs().max(1);
                println!(
                    "{until} of {end}, {a_second} a second, {resident} bytes of the kernel are resident"
                );
            }
        }
    }

    /// Waits until neither sessions nor descriptors are left.
    fn nothing_is_left(&self, open: &mut Option<usize>) {
        let start = Instant::now();
        loop {
            if self.has_failed() {
                return;
            }
            let descriptors = self.target.descriptors();
            // The first round opens what stays open.
            let more = open.is_some_and(|open| descriptors > open);
            let left = (self.target.left)()
                .or_else(|| more.then(|| format!("{descriptors} descriptors are open, {open:?} were")));
            match left {
                None => {
                    open.get_or_insert(descriptors);
                    return;
                }
                Some(left) if start.elapsed() > self.campaign.patience => {
                    self.fail(format!("something is left: {left}"));
                }
                Some(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn work(&self, until: u64) {
        let interfaces = Rc::new(schema::interfaces());
        let mut totals = Totals { coverage: Coverage::of(&interfaces), ..Totals::default() };
        let mut recent: VecDeque<(u64, Vec<Message>)> = VecDeque::new();
        let mut stalled: VecDeque<Wire> = VecDeque::new();
        while !self.has_failed() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= until {
                break;
            }
            let mut dice = Dice::new(self.campaign.seed, index);
            let led = if self.campaign.led && dice.once_in(LED) { dice.place(LED_STEPS) } else { 0 };
            let start = if led > 0 { Attacker::unprepared } else { Attacker::new };
            let mut attacker = start(dice, Rc::clone(&interfaces));
            attacker.tell(&self.target.tokens);
            let mut sent = Vec::new();
            let (socket, patience) = (&self.target.socket, self.campaign.patience);
            match wire::attack(socket, patience, led, &mut attacker, &mut totals.coverage, &mut sent) {
                Ok((wire, turned_away)) => {
                    stalled.extend(wire);
                    totals.turned_away += u64::from(turned_away);
                }
                Err(error) => self.fail(format!("a connection is not accepted: {error}")),
            }
            totals.connections += 1;
            totals.messages += sent.len() as u64;
            totals.answers += attacker.questions.iter().filter(|asked| asked.ended.is_some()).count() as u64;
            recent.push_back((index, sent));
            if recent.len() > REMEMBERED {
                recent.pop_front();
            }
            if stalled.len() > STALLED_MAX {
                stalled.pop_front();
            }
        }
        self.add(totals);
        self.suspects.lock().expect("nobody panics with it").extend(recent);
    }

    fn add(&self, totals: Totals) {
        let mut all = self.totals.lock().expect("nobody panics with it");
        all.connections += totals.connections;
        all.messages += totals.messages;
        all.answers += totals.answers;
        all.turned_away += totals.turned_away;
        all.coverage.add(totals.coverage);
    }

    fn end(self, duration: Duration, pings: Pings) -> Result<Report, Box<Failure>> {
        if let Some(what) = self.what.into_inner().expect("nobody panics with it") {
            let mut suspects = self.suspects.into_inner().expect("nobody panics with it");
            suspects.sort_by_key(|(index, _)| *index);
            return Err(Box::new(Failure { what, suspects, campaign: self.campaign.clone() }));
        }
        let totals = self.totals.into_inner().expect("nobody panics with it");
        Ok(Report {
            connections: totals.connections,
            messages: totals.messages,
            answers: totals.answers,
            turned_away: totals.turned_away,
            duration,
            pings,
            resident: self.resident.into_inner().expect("nobody panics with it"),
            coverage: totals.coverage.table(&schema::interfaces()),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} connections, {} messages, {} calls answered, {} connections turned away, in {:.1?} ({:.0} a second)",
            self.connections,
            self.messages,
            self.answers,
            self.turned_away,
            self.duration,
            (f64::from(u32::try_from(self.connections).unwrap_or(u32::MAX))) / self.duration.as_secs_f64(),
        )?;
        writeln!(f, "{} pings of a neighbour, {:?} at most", self.pings.count, self.pings.longest)?;
        writeln!(
            f,
            "{} bytes of the kernel were resident, {} at the end; {GROWTH_BYTES_MAX} more are allowed",
            self.resident.0, self.resident.1
        )?;
        write!(f, "{}", self.coverage)
    }
}

/// How to see it again, and the messages of the latest connections. All that are remembered go to a file.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = env::temp_dir().join(format!("bulkhead-fuzz-{}.txt", std::process::id()));
        writeln!(f, "{}", self.what)?;
        let written = File::create(&path).and_then(|mut file| {
            for (index, messages) in &self.suspects {
                writeln!(file, "connection {index}")?;
                for message in messages {
                    writeln!(file, "  {message:?}")?;
                }
            }
            Ok(())
        });
        match written {
            Ok(()) => {
                writeln!(f, "what the latest {} connections sent: {}", self.suspects.len(), path.display())?
            }
            Err(error) => writeln!(f, "what was sent cannot be written down: {error}")?,
        }
        for (index, messages) in self.suspects.iter().rev().take(3) {
            writeln!(
                f,
                "connection {index} (again: BULKHEAD_SEED={} BULKHEAD_FUZZ_FIRST={index} BULKHEAD_FUZZ_CONNECTIONS=1)",
                self.campaign.seed
            )?;
            for message in messages {
                writeln!(f, "  {message:?}")?;
            }
        }
        Ok(())
    }
}
