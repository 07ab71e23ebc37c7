//! Lets callers in at the module's socket, and starts a worker for each.
//!
//! What a caller says here is one line. `bulkhead run --module cufft` is told where the drop-in library lies; whoever asks
//! for transforms gets a worker, which has the connection from then on. This process has no session.

use std::{
    env,
    os::{
        fd::OwnedFd,
        unix::{fs::DirBuilderExt as _, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use bulkhead_cufft::WORDS;
use bulkhead_module::{
    Entered, Inside, Place,
    door::{self, CALLERS_MAX, CALLERS_OF_A_PROCESS, Door},
};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::{account::Total, options::Options};

/// The names by which programs ask for the library.
const NAMES: [&str; 3] = ["libcufft.so.12", "libcufft.so.11", "libcufft.so"];
/// What it is called where it is built.
const BUILT: &str = "libcufft.so";

/// What the library OS asks for a session with.
const LIMITS: &str = "BULKHEAD_LIMITS";

/// This program, also where its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// What all who attend to callers know.
struct Told {
    options: Options,
    library: PathBuf,
    total: Total,
    workers: Inside,
}

/// Serves until it is ended.
pub(crate) fn serve(options: &Options) -> Result<(), String> {
    let place = Place::told().map_err(|error| error.to_string())?;
    let library = library(&place.kernel, &place.name)?;
    let socket = door::socket_of(&place.kernel, &place.name);
    let door = Door::bind(&socket).map_err(|error| error.to_string())?;
    let inside = Inside::new(CALLERS_MAX, CALLERS_OF_A_PROCESS);
    let workers = Inside::new(options.callers, options.callers_of_process);
    let total = Total::new([options.work_bytes_of_all, options.host_bytes_of_all], options.of_process());
    let told = Arc::new(Told { options: options.clone(), library, total, workers });
    loop {
        let Ok(connection) = door.accept() else {
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
                refuse(&connection, "LimitReached", &full.message);
                continue;
            }
        };
        let told = Arc::clone(&told);
        // Where no thread starts the connection closes.
        thread::Builder::new()
            .spawn(move || {
                attend(connection, entered, &told);
            })
            .map(drop)
            .unwrap_or_default();
    }
}

fn refuse(caller: &UnixStream, code: &str, message: &str) {
    // Whoever hangs up meanwhile needs no answer.
    door::tell(caller, &format!("refused {code} {message}")).unwrap_or_default();
}

fn attend(caller: UnixStream, mut entered: Entered, told: &Told) {
    let Told { options, library, total, workers } = told;
    let Ok((_, words)) = door::asked(&caller) else { return };
    entered.has_spoken();
    match words.as_str() {
        WORDS => match workers.enter(&caller) {
            Ok(mut worker) => {
                worker.has_spoken();
                work_for(caller, options, total);
            }
            Err(full) => {
                let told = format!("{}: end a program, or give the service more (--callers)", full.message);
                refuse(&caller, "LimitReached", &told);
            }
        },
        // Whoever hangs up meanwhile needs no answer.
        "" => door::tell(&caller, &format!("library {}", library.display())).unwrap_or_default(),
        _ => refuse(
            &caller,
            "InvalidArgument",
            &format!(
                "{words:?}: the module cufft takes no words (`--module cufft`), and {WORDS:?} of its library"
            ),
        ),
    }
}

/// Has a worker serve a caller, until one of them ends. A worker ends with this thread's process, and with the process that
/// connected, whoever else has the connection: places and memory are counted as that one's.
fn work_for(caller: UnixStream, options: &Options, total: &Total) {
    let started = caller.try_clone().and_then(|connection| {
        // Whom nobody can name here counts as one process, as at the door.
        let peer = rustix::net::sockopt::socket_peercred(&caller);
        let process = peer.map(|peer| peer.pid).ok();
        let watched = process.map(|process| pidfd_open(process, PidfdFlags::empty())).transpose()?;
        let (charged, account) = total.open(process.map_or(0, |process| process.as_raw_nonzero().get()))?;
        let mut command = Command::new(SELF);
        command.args(options.of_worker()).env(LIMITS, options.limits());
        command.stdin(OwnedFd::from(connection)).stdout(account);
        Ok((command.spawn()?, charged, watched))
    });
    match started {
        Ok((mut worker, mut charged, watched)) => {
            // From here on the connection closes when the worker ends.
            drop(caller);
            charged.serve(watched.as_ref());
            // Where it has not ended by itself: its caller's process is gone.
            worker.kill().unwrap_or_default();
            worker.wait().map(drop).unwrap_or_default();
        }
        Err(error) => {
            bulkhead_module::warn(format!("cufft: a worker does not start: {error}"));
            refuse(&caller, "Unavailable", &format!("a worker does not start: {error}"));
        }
    }
}

/// A folder beside the kernel's socket that has the library by the names programs ask for.
fn library(kernel: &Path, name: &str) -> Result<PathBuf, String> {
    let own = env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
    let built = own.with_file_name(BUILT);
    if !built.is_file() {
        return Err(format!(
            "the library is not beside {}: build it with `cargo build -p bulkhead-cufft-library`",
            own.display()
        ));
    }
    let folder = kernel.with_file_name(format!("{name}.library"));
    let broken = |error: std::io::Error| format!("{}: {error}", folder.display());
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(broken(error)),
        Ok(()) | Err(_) => {}
    }
    for name in NAMES {
        let link = folder.join(name);
        // Of an earlier start.
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(broken(error)),
            Ok(()) | Err(_) => {}
        }
        std::os::unix::fs::symlink(&built, link).map_err(broken)?;
    }
    Ok(folder)
}
