//! Programs that are run to their end, which always comes.

use std::{
    io::Read,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Resource, Rlimit, Signal};

use crate::{place, scratch::Scratch};

/// What a program did.
#[derive(Debug)]
pub struct Done {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Done {
    /// Its exit code; `None` where a signal ended it.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// All it said, for a failed assertion.
    #[must_use]
    pub fn told(&self) -> String {
        format!("{}\n--- stdout\n{}\n--- stderr\n{}", self.status, self.stdout, self.stderr)
    }
}

/// `bulkhead` with arguments, in an environment where no kernel serves already.
#[must_use]
pub fn bulkhead(arguments: &[&str]) -> Command {
    bulkhead_in(&[], arguments)
}

/// The same, as arguments of a program with arguments of its own that becomes it.
#[must_use]
pub fn bulkhead_in(wrapper: &[&str], arguments: &[&str]) -> Command {
    let mut command = match wrapper.split_first() {
        Some((program, own)) => {
            let mut command = Command::new(program);
            command.args(own).arg(place::bulkhead());
            command
        }
        None => Command::new(place::bulkhead()),
    };
    command.args(arguments);
    for name in [
        "BULKHEAD_SOCKET",
        "BULKHEAD_BACKEND",
        "BULKHEAD_LOG",
        "BULKHEAD_LIBCUDA",
        "BULKHEAD_LIBNVML",
        "LD_LIBRARY_PATH",
    ] {
        command.env_remove(name);
    }
    command.env("XDG_RUNTIME_DIR", "/nonexistent");
    command
}

/// Runs a program to its end.
///
/// # Panics
/// Where it does not start, or does not end in time; it is killed then, with what it started.
pub fn run(command: &mut Command, patience: Duration) -> Done {
    let mut child = start(command);
    let start = Instant::now();
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break Some(status),
            None if start.elapsed() > patience => break None,
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        kill_group(&child);
    }
    // What it left behind may hold the pipes.
    let text = |pipe: mpsc::Receiver<Vec<u8>>| {
        let bytes = pipe.recv_timeout(Duration::from_secs(10)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (stdout, stderr) = (text(stdout), text(stderr));
    match status {
        Some(status) => Done { status, stdout, stderr },
        None => {
            let ended = child.wait();
            panic!(
                "{command:?} takes longer than {patience:?} ({ended:?})\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
            )
        }
    }
}

/// Starts a program in a process group of its own, with pipes for what it says.
///
/// # Panics
/// Where it does not start.
pub fn start(command: &mut Command) -> Child {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    match piped.spawn() {
        Ok(child) => child,
        Err(error) => panic!("{command:?}: {error}"),
    }
}

fn read(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let read = pipe.read_to_end(&mut bytes);
            if let Err(error) = read {
                eprintln!("a program's output: {error}");
            }
        }
        // Nobody waits any more where this fails.
        sender.send(bytes).unwrap_or_default();
    });
    receiver
}

fn kill_group(child: &Child) {
    if let Some(pid) = pid(child.id())
        && let Err(error) = rustix::process::kill_process_group(pid, Signal::KILL)
    {
        eprintln!("process group {pid}: {error}");
    }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// Ends a process as nothing can prevent.
///
/// # Panics
/// Where there is no such process.
pub fn kill(number: u32) {
    let pid = pid(number).expect("a process has a number");
    rustix::process::kill_process(pid, Signal::KILL).expect("there is such a process");
}

/// Sends a process a signal.
///
/// # Panics
/// Where there is no such process.
pub fn signal(number: u32, signal: Signal) {
    let pid = pid(number).expect("a process has a number");
    rustix::process::kill_process(pid, signal).expect("there is such a process");
}

/// How many files a process may have open.
///
/// # Panics
/// Where there is no such process.
#[must_use]
pub fn descriptors_max(number: u32) -> Rlimit {
    let text = std::fs::read_to_string(format!("/proc/{number}/limits")).expect("there is such a process");
    let line = text.lines().find(|line| line.starts_with("Max open files")).expect("files have a limit");
    let mut numbers = line.split_whitespace().skip(3).map(|number| number.parse().ok());
    Rlimit { current: numbers.next().flatten(), maximum: numbers.next().flatten() }
}

/// Changes how many files a process may open: those that it has stay.
///
/// # Panics
/// Where there is no such process.
pub fn set_descriptors_max(number: u32, limit: Rlimit) {
    let process = pid(number);
    rustix::process::prlimit(process, Resource::Nofile, limit).expect("a limit can be set");
}

/// Whether a program can be run here, and ends well.
#[must_use]
pub fn runs(command: &[&str]) -> bool {
    let Some((program, arguments)) = command.split_first() else { return false };
    let mut command = Command::new(program);
    let quiet = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Asks a process to end.
pub(crate) fn terminate(number: u32) {
    if let Some(pid) = pid(number)
        && let Err(error) = rustix::process::kill_process(pid, Signal::TERM)
    {
        eprintln!("process {number}: {error}");
    }
}

/// Whether a thread of a process lives, zombies not counted: while one does, what the process has open is open still.
#[must_use]
pub fn lives(number: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{number}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which may hold anything but ends with the last parenthesis.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}

/// Memory of a process that is resident, in bytes; 0 for one that is gone.
#[must_use]
pub fn resident_bytes(number: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{number}/statm")).unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// How a process ended, as a shell tells it: its code, or 128 and the signal.
#[must_use]
pub fn shell_code(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal))
}

/// `bulkhead run` with a private kernel on the software GPU.
#[must_use]
pub fn run_privately(program: &[&str]) -> (Command, Scratch) {
    run_privately_with(&[], program)
}

/// As [`run_privately`], with options of `bulkhead run`.
#[must_use]
pub fn run_privately_with(options: &[&str], program: &[&str]) -> (Command, Scratch) {
    let scratch = Scratch::new();
    let mut command = bulkhead(&["run", "--private", "--backend", "software"]);
    command.args(options).arg("--").args(program).env("TMPDIR", scratch.path());
    (command, scratch)
}
