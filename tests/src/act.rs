//! Hostile acts beside two honest clients: one that pings the kernel all the time, and one that computes.
//!
//! What an act does to them is told on standard output. What is asserted is that nothing of theirs failed, that nobody
//! was *stopped*, which is to be late beyond doubt, and that the same kernel and the same executor serve afterwards.

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{Connection, Error};

use crate::{kernel::Kernel, neighbour::Neighbour, patience::until, process::lives, status::local};

/// Whoever waits for so long for a ping was stopped, however busy the machine is.
pub const STOPPED: Duration = Duration::from_secs(2);
/// Between two pings.
const REST: Duration = Duration::from_millis(1);

/// What the two clients saw of an act.
#[derive(Debug)]
pub struct Seen {
    /// How long each ping took, the shortest first.
    pub pings: Vec<Duration>,
    /// How often the other one had a kernel run and found its results right.
    pub rounds: u32,
}

impl Seen {
    /// The ping that so many of a thousand are no longer than.
    #[must_use]
    pub fn per_mille(&self, part: usize) -> Duration {
        let at = (self.pings.len() * part / 1000).min(self.pings.len().saturating_sub(1));
        self.pings.get(at).copied().unwrap_or_default()
    }
}

/// Says that an act is over, also where it panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something hostile to a kernel of its own.
///
/// # Panics
/// Where anybody else was disturbed.
pub fn act(name: &str, hostile: impl FnOnce(&Kernel)) -> Seen {
    act_on(&Kernel::start(), name, STOPPED, hostile)
}

/// The same to this kernel, whose clients may wait for so long.
///
/// # Panics
/// As [`act`].
pub fn act_on(kernel: &Kernel, name: &str, patience: Duration, hostile: impl FnOnce(&Kernel)) -> Seen {
    let mut neighbour = Neighbour::new(kernel, "neighbour");
    neighbour.work();
    let before = kernel.status();
    let (over, rounds, answered) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let late = Mutex::new(String::new());
    let mut seen = thread::scope(|scope| {
        let (computing, over, rounds) = (&mut neighbour, &over, &rounds);
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                computing.work();
                rounds.fetch_add(1, Ordering::Relaxed);
                thread::sleep(REST);
            }
        });
        let ping = || pings(&kernel.socket(), over, &answered).expect("every ping is answered");
        let pinging = scope.spawn(ping);
        scope.spawn(|| look_when_late(kernel.pid(), over, &answered, &late));
        let ending = Over(over);
        let begun = || rounds.load(Ordering::Relaxed) > 2 && answered.load(Ordering::Relaxed) > 20;
        until("both are at work", begun);
        hostile(kernel);
        let worked = rounds.load(Ordering::Relaxed);
        until("the neighbour works on", || rounds.load(Ordering::Relaxed) > worked + 2);
        drop(ending);
        let pings = pinging.join().expect("the client that pings ends");
        Seen { pings, rounds: 0 }
    });
    seen.rounds = rounds.load(Ordering::Relaxed);
    let (typical, most, worst) = (seen.per_mille(500), seen.per_mille(990), seen.per_mille(1000));
    println!(
        "{name}: {} pings, median {typical:?}, p99 {most:?}, worst {worst:?}; {} rounds of work",
        seen.pings.len(),
        seen.rounds
    );
    let late = late.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(
        worst < patience,
        "{name}: a ping took {worst:?}: the kernel was stopped. Its threads then:\n{late}"
    );
    neighbour.work();
    assert!(lives(kernel.pid()), "{name}: the kernel has ended");
    let after = kernel.status();
    assert_eq!(after.executor_pid, before.executor_pid, "{name}: the executor was replaced");
    assert_eq!(after.executor_starts, before.executor_starts, "{name}: an executor was lost");
    seen
}

/// Notes what the kernel's threads do where no ping is answered for half of what counts as stopped.
fn look_when_late(pid: u32, over: &AtomicBool, answered: &AtomicU32, late: &Mutex<String>) {
    let (mut last, mut since) = (0, Instant::now());
    while !over.load(Ordering::Relaxed) {
        thread::sleep(STOPPED / 20);
        let now = answered.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > STOPPED / 2 {
            since = Instant::now();
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for task in tasks.map(|task| task.path()) {
                let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
                let [name, stat, call, stack] = ["comm", "stat", "syscall", "stack"].map(read);
                let mut late = late.lock().unwrap_or_else(PoisonError::into_inner);
                late.push_str(&format!("{name}{stat}{call}{stack}\n"));
            }
        }
    }
}

/// Pings until the act is over: how long each took, the shortest first.
fn pings(socket: &Path, over: &AtomicBool, answered: &AtomicU32) -> Result<Vec<Duration>, Error> {
    local(async {
        let client = Connection::open(socket, "pinging").await?;
        let mut pings = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let asked = Instant::now();
            client.ping(pings.len() as u64).await?;
            pings.push(asked.elapsed());
            answered.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(REST).await;
        }
        pings.sort_unstable();
        Ok(pings)
    })
}
