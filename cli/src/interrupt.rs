//! What becomes of this process when somebody asks it to end (Ctrl-C, SIGTERM, SIGHUP) while it has directories of its own.
//!
//! They are removed, and the process ends as the signal would have ended it, in the words of a shell: 128 and its number.
//! Where it waits for a program, the program is asked instead, and what it does about that decides.

use std::{
    fs, io,
    io::IsTerminal as _,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::{
        Mutex, MutexGuard, Once, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use tokio::signal::unix::{SignalKind, signal};

/// How long a kernel may take to end.
const END_MAX: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// What is there to remove, whom to ask, and who has to end before.
#[derive(Debug, Default)]
struct Held {
    directories: Vec<PathBuf>,
    program: Option<OwnedFd>,
    kernels: Vec<OwnedFd>,
}

static HELD: Mutex<Held> = Mutex::new(Held { directories: Vec::new(), program: None, kernels: Vec::new() });

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a directory that is removed when this process is asked to end.
///
/// # Errors
/// As making it.
pub(crate) fn make(directory: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let (ready, is_ready) = sync_channel(1);
        // Without the thread a signal ends the process as ever, and directories stay.
        match thread::Builder::new().name("signals".into()).spawn(move || watch(&ready)) {
            Ok(_) => is_ready.recv().unwrap_or_default(),
            Err(error) => tracing::warn!(%error, "nobody removes directories when a signal comes"),
        }
    });
    let mut held = held();
    make(directory)?;
    held.directories.push(directory.to_owned());
    Ok(())
}

/// Starts a kernel, which ends before directories are removed.
///
/// # Errors
/// As [`Command::spawn`].
pub(crate) fn start_kernel(command: &mut Command) -> io::Result<Child> {
    let mut held = held();
    let child = command.spawn()?;
    held.kernels.extend(of(&child));
    Ok(child)
}

/// Names a child, whatever becomes of its number.
fn of(child: &Child) -> Option<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Takes a directory back, which is gone.
pub(crate) fn removed(directory: &Path) {
    held().directories.retain(|held| held != directory);
}

/// Runs a program, which is asked to end when this process is: there is no moment at which it runs and would not be.
///
/// # Errors
/// As [`Command::spawn`] and [`Child::wait`].
pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let mut program = {
        let mut held = held();
        let program = command.spawn()?;
        held.program = of(&program);
        program
    };
    let status = program.wait();
    held().program = None;
    status
}

fn watch(ready: &SyncSender<()>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::warn!(%error, "nobody removes directories when a signal comes"),
    };
    runtime.block_on(async {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else { return };
        ready.send(()).unwrap_or_default();
        loop {
            let came = tokio::select! {
                _ = interrupt.recv() => Signal::INT,
                _ = terminate.recv() => Signal::TERM,
                _ = hangup.recv() => Signal::HUP,
            };
            come(came);
        }
    });
}

fn come(came: Signal) {
    let held = held();
    if let Some(program) = &held.program {
        // A terminal's Ctrl-C reaches the program by itself.
        let had = came == Signal::INT && io::stdin().is_terminal();
        if had || pidfd_send_signal(program, came).is_ok() {
            return;
        }
    }
    for kernel in &held.kernels {
        let asked = pidfd_send_signal(kernel, Signal::TERM);
        let ended = poll(&mut [PollFd::new(kernel, PollFlags::IN)], Some(&END_MAX));
        tracing::debug!(?asked, ?ended, "private kernel");
    }
    for directory in &held.directories {
        drop(fs::remove_dir_all(directory));
    }
    bulkhead_kernel::log::end();
    std::process::exit(128 + came.as_raw());
}
