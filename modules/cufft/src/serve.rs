//! Lets callers in at the module's socket, and starts a worker for each.
//!
//! What a caller says here is one line. `bulkhead run --module cufft` is told where the drop-in library lies; whoever asks
//! for transforms gets a worker, which has the connection from then on. This process has no session.

use std::{
    collections::HashMap,
    env,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{fs::DirBuilderExt as _, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use bulkhead_cufft::WORDS;
use bulkhead_module::{
    Place,
    door::{self, CALLERS_MAX, Door},
};

use crate::{account::Total, options::Options};

/// The names by which programs ask for the library.
const NAMES: [&str; 3] = ["libcufft.so.12", "libcufft.so.11", "libcufft.so"];
/// What it is called where it is built.
const BUILT: &str = "libcufft.so";

/// What the library OS asks for a session with.
const LIMITS: &str = "BULKHEAD_LIMITS";

/// This program, also where its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// Who is inside, by process.
#[derive(Default)]
struct Inside {
    connections: usize,
    workers: usize,
    of_process: HashMap<i32, usize>,
}

/// Counted for as long as it is held.
struct Worker<'a> {
    inside: &'a Mutex<Inside>,
    process: i32,
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        let mut inside = lock(self.inside);
        inside.workers -= 1;
        if let Some(count) = inside.of_process.get_mut(&self.process) {
            *count -= 1;
            if *count == 0 {
                inside.of_process.remove(&self.process);
            }
        }
    }
}

/// Counted for as long as it is held.
struct Connected(Arc<Mutex<Inside>>);

impl Drop for Connected {
    fn drop(&mut self) {
        lock(&self.0).connections -= 1;
    }
}

fn lock(inside: &Mutex<Inside>) -> std::sync::MutexGuard<'_, Inside> {
    // Counts are right after a panic as before it.
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves until it is ended.
pub(crate) fn serve(options: &Options) -> Result<(), String> {
    let place = Place::told().map_err(|error| error.to_string())?;
    let library = library(&place.kernel, &place.name)?;
    let socket = door::socket_of(&place.kernel, &place.name);
    let door = Door::bind(&socket).map_err(|error| error.to_string())?;
    let inside = Arc::new(Mutex::new(Inside::default()));
    let total = Total::new(options.work_bytes_of_all, options.host_bytes_of_all);
    let told = Arc::new((options.clone(), library, total));
    loop {
        let Ok(connection) = door.accept() else {
            // No descriptor is left, for instance.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if !door::may_enter(&connection) {
            continue;
        }
        if lock(&inside).connections >= CALLERS_MAX {
            refuse(&connection, "LimitReached", &format!("the service has {CALLERS_MAX} callers: try again"));
            continue;
        }
        lock(&inside).connections += 1;
        let (told, counted) = (Arc::clone(&told), Connected(Arc::clone(&inside)));
        // Where no thread starts the connection closes.
        thread::Builder::new()
            .spawn(move || attend(connection, &told, &counted.0))
            .map(drop)
            .unwrap_or_default();
    }
}

fn refuse(caller: &UnixStream, code: &str, message: &str) {
    // Whoever hangs up meanwhile needs no answer.
    door::tell(caller, &format!("refused {code} {message}")).unwrap_or_default();
}

fn attend(caller: UnixStream, (options, library, total): &(Options, PathBuf, Total), inside: &Mutex<Inside>) {
    let Ok((_, words)) = door::asked(&caller) else { return };
    match words.as_str() {
        WORDS => {
            let process = rustix::net::sockopt::socket_peercred(caller.as_fd());
            let process = process.map_or(0, |peer| peer.pid.as_raw_nonzero().get());
            let admitted = {
                let mut all = lock(inside);
                let of_process = all.of_process.get(&process).copied().unwrap_or(0);
                let most = all.workers >= options.callers;
                if most || of_process >= options.callers_of_process {
                    Err(if most { options.callers } else { options.callers_of_process })
                } else {
                    all.workers += 1;
                    *all.of_process.entry(process).or_default() += 1;
                    Ok(Worker { inside, process })
                }
            };
            match admitted {
                Ok(_worker) => work_for(caller, options, total),
                Err(most) => refuse(
                    &caller,
                    "LimitReached",
                    &format!(
                        "{most} workers are at work: end a program, or give the service more (--callers)"
                    ),
                ),
            }
        }
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

/// Has a worker serve a caller, until one of them ends. A worker ends with this thread's process.
fn work_for(caller: UnixStream, options: &Options, total: &Total) {
    let started = caller.try_clone().and_then(|connection| {
        let (charged, account) = total.open()?;
        let mut command = Command::new(SELF);
        command.args(options.of_worker()).env(LIMITS, options.limits());
        command.stdin(OwnedFd::from(connection)).stdout(account);
        Ok((command.spawn()?, charged))
    });
    match started {
        Ok((mut worker, mut charged)) => {
            // From here on the connection closes when the worker ends.
            drop(caller);
            charged.serve();
            worker.wait().map(drop).unwrap_or_default();
        }
        Err(error) => {
            eprintln!("cufft: a worker does not start: {error}");
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
