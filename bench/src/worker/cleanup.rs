//! What a client that is killed leaves to the kernel to clean up, and what others wait for that.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::Connection;

use super::{
    effort::Amounts,
    findings::{Findings, Trouble, milliseconds},
    observer::Observer,
    tenant,
};

const NAME: &str = "bench capabilities";
/// A session can hold no more than 16,384.
const SESSIONS: u32 = 2;
/// What the client says once it holds everything.
const READY: &str = "ready";
/// How long pings are measured with nothing to clean up.
const IDLE: Duration = Duration::from_millis(300);

/// A client that is killed, at the latest when this is dropped.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // It may be gone.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(super) fn measure(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let observer = Observer::open(socket)?;
    let mut victim = Victim::start(socket, amounts.held)?;
    let ((), idle) = beside_pings(socket, || {
        thread::sleep(IDLE);
        Ok(())
    })?;
    let (returned, slowest) = beside_pings(socket, || {
        let begun = Instant::now();
        victim.0.kill().map_err(|error| Trouble::Said(format!("killing a client: {error}")))?;
        observer.until("sessions to be gone", |status| !status.sessions.iter().any(|name| name == NAME))?;
        Ok(milliseconds(begun))
    })?;
    findings.once("cleanup_returned_ms", returned);
    findings.once("cleanup_ping_max_ms", slowest);
    findings.once("cleanup_idle_ping_max_ms", idle);
    Ok(())
}

impl Victim {
    /// Starts a client and waits until it holds so many capabilities.
    fn start(socket: &Path, held: u32) -> Result<Self, Trouble> {
        let failed = |error: std::io::Error| Trouble::Said(format!("a client to be killed: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["bench-worker", "--hold", &held.to_string(), "--socket"]).arg(socket);
        let mut victim = Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?);
        let mut line = String::new();
        if let Some(stdout) = victim.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
        }
        if line.trim() == READY {
            Ok(victim)
        } else {
            Err(Trouble::Said("a client to be killed ended by itself".to_owned()))
        }
    }
}

/// Holds so many capabilities until it is killed.
pub(super) fn hold(socket: &Path, held: u32) -> Result<(), Trouble> {
    let mut sessions = Vec::new();
    let mut signals = Vec::new();
    for _ in 0..SESSIONS {
        let session = tenant::open(socket, NAME)?;
        for _ in 0..held / SESSIONS {
            signals.push(session.signal()?);
        }
        sessions.push(session);
    }
    let said = writeln!(std::io::stdout(), "{READY}");
    said.map_err(|error| Trouble::Said(format!("standard output: {error}")))?;
    loop {
        thread::park();
    }
}

/// Does something beside a client that pings without a pause: how long its slowest ping took, in milliseconds.
fn beside_pings<T>(socket: &Path, work: impl FnOnce() -> Result<T, Trouble>) -> Result<(T, f64), Trouble> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let pinging = scope.spawn(|| ping(socket, &stop));
        thread::sleep(Duration::from_millis(50));
        let done = work();
        stop.store(true, Ordering::Relaxed);
        let slowest = pinging.join().map_err(|_| Trouble::Said("who pings panicked".to_owned()))??;
        Ok((done?, slowest))
    })
}

fn ping(socket: &Path, stop: &AtomicBool) -> Result<f64, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::Said(format!("no runtime: {error}")))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let connection = Connection::open(socket, "bench neighbour").await?;
        let mut slowest: f64 = 0.0;
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            connection.ping(0).await?;
            slowest = slowest.max(milliseconds(begun));
        }
        Ok(slowest)
    })
}
