//! Starts executor processes.
//!
//! The environment is nearly empty: an executor must find NVIDIA's libraries and never ours, and nothing that a
//! user exported for programs applies to the process that all sessions share.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    process::Stdio,
};

use bulkhead_schema::limits::EXECUTOR_THREADS_MAX;
use tokio::process::{Child, Command};

use crate::transport::packets::Packets;

/// What executors may see of the kernel's own environment.
const PASSED_ON: [&str; 3] = ["BULKHEAD_LOG", "RUST_BACKTRACE", "BULKHEAD_PTXAS"];
/// What every executor gets: streams of different sessions share no hardware queue, and no launch waits for code. Its
/// heap has two arenas, since each keeps what verifying the longest text took, and there would be one for each thread.
const SET: [(&str, &str); 3] =
    [("CUDA_DEVICE_MAX_CONNECTIONS", "32"), ("CUDA_MODULE_LOADING", "EAGER"), ("MALLOC_ARENA_MAX", "2")];

/// What an isolated session's gets in their place: its images are many, and few of their kernels are used.
const SET_ISOLATED: [(&str, &str); 2] = [("CUDA_MODULE_LOADING", "LAZY"), ("MALLOC_ARENA_MAX", "2")];

/// Whose executor it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// All guarded sessions'.
    Shared,
    /// One isolated session's: as whom it runs, where that is not the kernel's user, and how much memory it may have.
    Isolated { uid: Option<u32>, memory_bytes: u64 },
}

/// Starts one. Its standard input is the socket to the kernel; it is killed when its handle is dropped.
pub(super) fn spawn(
    command: &[OsString],
    environment: &[(OsString, OsString)],
    kind: Kind,
) -> io::Result<(Packets, Child)> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no executor is named"))?;
    let (ours, theirs) = Packets::pair()?;
    let passed_on = PASSED_ON.into_iter().filter_map(|name| Some((OsStr::new(name), env::var_os(name)?)));
    let (options, set, uid): (Vec<String>, &[(&str, &str)], _) = match kind {
        Kind::Shared => (Vec::new(), &SET, None),
        Kind::Isolated { uid, memory_bytes } => {
            let mut options =
                vec!["--isolated".to_owned(), "--memory-max".to_owned(), memory_bytes.to_string()];
            // The system counts them for a user.
            if uid.is_some() {
                options.extend(["--threads-max".to_owned(), EXECUTOR_THREADS_MAX.to_string()]);
            }
            (options, &SET_ISOLATED, uid)
        }
    };
    let mut command = Command::new(program);
    if let Some(uid) = uid {
        // And no other groups.
        command.uid(uid).gid(uid);
    }
    let child = command
        .args(arguments)
        .args(options)
        .args(["--link-fd", "0"])
        .env_clear()
        .envs(set.iter().copied())
        .envs(passed_on)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(theirs))
        .stdout(match kind {
            Kind::Shared => Stdio::null(),
            Kind::Isolated { .. } => Stdio::piped(),
        })
        // What is the kernel's own is not a tenant's to cut short, or to read a terminal by.
        .stderr(match kind {
            Kind::Shared => Stdio::inherit(),
            Kind::Isolated { .. } => Stdio::piped(),
        })
        // Keys pressed at a terminal are for whoever started the kernel.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    Ok((ours, child))
}
