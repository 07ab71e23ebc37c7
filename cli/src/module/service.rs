//! Modules without gates: a host half that is a CUDA program, which programs talk to from the host.
//!
//! The kernel knows nothing of them. One runs as long as its `module start` has the lock beside the kernel's socket, which
//! says the process that has it.

use std::{
    fs,
    io::{Read as _, Seek as _, Write as _},
    path::Path,
    time::Instant,
};

use bulkhead_client::{Operator, is_module_name};
use bulkhead_module::{door, manifest::Manifest};
use rustix::process::{Pid, Signal, kill_process};

use super::start::{ENDING, GONE_LOOK, LOOK, Signals, again, command, only, operator, program, watch};
use crate::{Failure, run};

/// What the lock of a `module start` is called, behind the module's name.
const LOCK: &str = ".module.lock";
/// Where a service finds the library OS, behind the module's name.
const LIBRARIES: &str = ".module.libraries";
/// Longest number of a process.
const PID_BYTES_MAX: u64 = 16;

/// Keeps a service running until somebody wants this process to end, or the kernel has ended.
pub(super) async fn start(manifest: &Manifest, kernel: &Path) -> Result<(), Failure> {
    let name = &manifest.name;
    let operator = operator(kernel).await?;
    let mut lock = only(kernel, name).await?;
    let broken = || Failure::doing(format!("{name}{LOCK}"));
    lock.set_len(0).map_err(broken())?;
    lock.rewind().map_err(broken())?;
    write!(lock, "{}", std::process::id()).map_err(broken())?;
    program(manifest)?;
    // Not a folder that goes with this process: signals are for the service's end here.
    let libraries = kernel.with_file_name(format!("{name}{LIBRARIES}"));
    let (mut signals, mut failures) = (Signals::new()?, 0);
    let done = loop {
        let begun = Instant::now();
        let mut command = command(manifest, kernel)?;
        // Of an earlier start, by another build perhaps.
        fs::remove_dir_all(&libraries).unwrap_or_default();
        run::prepare(command.as_std_mut(), &libraries, kernel)?;
        let mut child = command.spawn().map_err(Failure::doing(name))?;
        // It is killed when it is dropped.
        let ended = tokio::select! {
            ended = watch(&mut child, name, kernel) => ended.map_err(Failure::doing("waiting for the host half"))?,
            () = until_over(&operator) => {
                break Err(Failure::new(format!(
                    "the kernel has ended, and with it the service {name}: start a kernel (`bulkhead serve`), and the service again"
                )));
            }
            () = signals.came() => break Ok(()),
        };
        match again(name, ended, begun, failures).await {
            Ok(now) => failures = now,
            Err(error) => break Err(error),
        }
    };
    // Nobody serves there any more. The next that does makes it anew.
    fs::remove_file(door::socket_of(kernel, name)).unwrap_or_default();
    fs::remove_dir_all(&libraries).unwrap_or_default();
    done
}

/// Waits until the kernel answers no more.
async fn until_over(operator: &Operator) {
    while operator.status().await.is_ok() {
        tokio::time::sleep(GONE_LOOK).await;
    }
}

/// The services that run beside a kernel, and their processes: that of their `module start` where they have none at the moment.
pub(super) fn running(kernel: &Path) -> Vec<(String, u32)> {
    let beside = kernel.parent().unwrap_or(Path::new("."));
    let files = fs::read_dir(beside).into_iter().flatten().filter_map(Result::ok);
    let names = files.filter_map(|file| file.file_name().to_str()?.strip_suffix(LOCK).map(str::to_owned));
    let mut found: Vec<_> = names.filter_map(|name| Some((holder(kernel, &name)?, name))).collect();
    found.sort();
    found.into_iter().map(|(pid, name)| (name, child(pid).unwrap_or(pid))).collect()
}

/// The first child of a process.
fn child(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Whether a `module start` of this name runs, of a service or of a module with gates.
pub(crate) fn is_starting(kernel: &Path, name: &str) -> bool {
    let file = lock(kernel, name).and_then(|lock| fs::File::open(lock).ok());
    file.is_some_and(|file| file.try_lock_shared().is_err())
}

/// Which process keeps a service running; `None` where none does.
fn holder(kernel: &Path, name: &str) -> Option<u32> {
    let file = fs::File::open(lock(kernel, name)?).ok()?;
    if file.try_lock_shared().is_ok() {
        return None;
    }
    let mut text = String::new();
    file.take(PID_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.parse().ok()
}

fn lock(kernel: &Path, name: &str) -> Option<std::path::PathBuf> {
    is_module_name(name).then(|| kernel.with_file_name(format!("{name}{LOCK}")))
}

/// Ends a service; answers whether there was one.
pub(super) async fn stop(kernel: &Path, name: &str) -> Result<bool, Failure> {
    let Some(holder_pid) = holder(kernel, name) else { return Ok(false) };
    let pid = i32::try_from(holder_pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::new(format!("{name}{LOCK} names no process")))?;
    kill_process(pid, Signal::TERM).map_err(Failure::doing(format!("ending process {holder_pid}")))?;
    let until = Instant::now() + ENDING;
    while holder(kernel, name).is_some() {
        if Instant::now() > until {
            return Err(Failure::new(format!(
                "process {holder_pid}, which keeps {name} running, does not end"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(true)
}
