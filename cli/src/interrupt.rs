//! What becomes of this process when somebody asks it to end (Ctrl-C, SIGTERM, SIGHUP) while it has directories of its own.
//!
//! They are removed, and the process ends as the signal would have ended it, in the words of a shell: 128 and its number.
//! Where it waits for a program, the program is asked instead, and what it does about that decides.

use std::{
    fs, io,
    io::IsTerminal as _,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, ExitStatus},
    sync::{Mutex, MutexGuard, Once, PoisonError},
    thread,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::signal::unix::{SignalKind, signal};

/// What is there to remove, and whom to ask.
#[derive(Debug, Default)]
struct Held {
    directories: Vec<PathBuf>,
    program: Option<OwnedFd>,
}

static HELD: Mutex<Held> = Mutex::new(Held { directories: Vec::new(), program: None });

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a directory removed when this process is asked to end.
pub(crate) fn remove(directory: &Path) {
    static WATCHED: Once = Once::new();
    held().directories.push(directory.to_owned());
    WATCHED.call_once(|| {
        // Without the thread a signal ends the process as ever, and directories stay.
        if let Err(error) = thread::Builder::new().name("signals".into()).spawn(watch) {
            tracing::warn!(%error, "nobody removes directories when a signal comes");
        }
    });
}

/// Takes a directory back, which is gone.
pub(crate) fn removed(directory: &Path) {
    held().directories.retain(|held| held != directory);
}

/// Waits for a program, which is asked to end when this process is.
///
/// # Errors
/// As [`Child::wait`].
pub(crate) fn wait(program: &mut Child) -> io::Result<ExitStatus> {
    let pid = i32::try_from(program.id()).ok().and_then(Pid::from_raw);
    held().program = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let status = program.wait();
    held().program = None;
    status
}

fn watch() {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::warn!(%error, "nobody removes directories when a signal comes"),
    };
    runtime.block_on(async {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else { return };
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
    for directory in &held.directories {
        // Whoever else writes there ends with this process.
        drop(fs::remove_dir_all(directory));
    }
    crate::log::end();
    std::process::exit(128 + came.as_raw());
}
