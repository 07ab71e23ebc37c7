//! What this machine lets Bulkhead's processes give up, and what it lets the kernel know of its clients.
//!
//! A process of its own tries what a compile process does, by the same functions and in the same order, and tells a line
//! after each: whoever asks keeps all that it has.

use std::{
    collections::BTreeMap,
    fmt::Display,
    process::{Command, ExitCode, Stdio},
};

use bulkhead_executor::compiler::confinement;
use rustix::process::DumpableBehavior;

use super::{Check, State};
use crate::{Failure, output, place, processes};

const NOT_DUMPABLE: &str = "non-dumpable";
const NO_NEW_PRIVS: &str = "no_new_privs";
const NAMESPACES: &str = "namespaces";
const LANDLOCK: &str = "Landlock";
const SECCOMP: &str = "seccomp";

/// What is tried, what becomes of Bulkhead where it is not there, and how to get it.
const TRIED: [(&str, State, &str); 5] = [
    (
        NOT_DUMPABLE,
        State::Missing,
        "a filter around this process forbids PR_SET_DUMPABLE: start Bulkhead outside of it",
    ),
    (
        NO_NEW_PRIVS,
        State::Missing,
        "a filter around this process forbids PR_SET_NO_NEW_PRIVS: start Bulkhead outside of it",
    ),
    (
        NAMESPACES,
        State::Absent,
        "let everybody make user namespaces (sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1, \
         kernel.apparmor_restrict_unprivileged_userns=0); a container has to be started so",
    ),
    (
        LANDLOCK,
        State::Absent,
        "use Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK and `landlock` among `lsm=`",
    ),
    (
        SECCOMP,
        State::Missing,
        "no image is read without: use a Linux with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
    ),
];

/// Tries it all on the calling process, which is of no use afterwards, and tells.
pub(super) fn attempt(apart: rustix::io::Result<()>) -> Result<ExitCode, Failure> {
    let kept = processes::keep_out();
    let dumpable = rustix::process::dumpable_behavior();
    let not_dumpable = match (&kept, dumpable) {
        (_, Ok(DumpableBehavior::NotDumpable)) => {
            Ok("others of this user reach no memory of kernel and executor")
        }
        (Err(failure), _) => Err(failure.to_string()),
        (Ok(()), _) => Err("the system takes it and does not hold it".to_owned()),
    };
    tell(NOT_DUMPABLE, not_dumpable)?;
    let no_new_privs = match (&kept, rustix::thread::no_new_privs()) {
        (_, Ok(true)) => Ok("what Bulkhead starts gets no more rights than it has"),
        (Err(failure), _) => Err(failure.to_string()),
        (Ok(()), _) => Err("the system takes it and does not hold it".to_owned()),
    };
    tell(NO_NEW_PRIVS, no_new_privs)?;
    let apart = apart.map(|()| "compile processes and assemblers have no network");
    tell(
        NAMESPACES,
        apart.map_err(|error| format!("compile processes and assemblers stay in yours: {error}")),
    )?;
    let files = match confinement::take_files() {
        Ok(Some(version)) => Ok(format!("ABI {version}: compile processes open no file")),
        Ok(None) => Err("the system has none: seccomp alone keeps compile processes from files".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    tell(LANDLOCK, files)?;
    let calls = confinement::take_calls().map(|()| "compile processes make listed system calls only");
    tell(SECCOMP, calls.map_err(|error| error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

/// One line: what, whether it holds, and more of it.
fn tell(name: &str, came: Result<impl Display, String>) -> Result<(), Failure> {
    output::print(&match came {
        Ok(detail) => format!("{name}\tyes\t{detail}\n"),
        Err(detail) => format!("{name}\tno\t{}\n", detail.replace(['\t', '\n'], " ")),
    })
}

/// What holds here.
pub(super) fn checks() -> Vec<Check> {
    let (told, end) = match tried() {
        Ok(told) => told,
        Err(failure) => (String::new(), failure.to_string()),
    };
    let lines: BTreeMap<&str, (bool, &str)> = told
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once('\t')?;
            let (holds, detail) = rest.split_once('\t')?;
            Some((name, (holds == "yes", detail)))
        })
        .collect();
    let check = |(name, state, remedy)| match lines.get(name) {
        Some((true, detail)) => Check { name, state: State::Found, detail: (*detail).to_owned(), remedy: "" },
        Some((false, detail)) => Check { name, state, detail: (*detail).to_owned(), remedy },
        None => Check {
            name,
            state,
            detail: format!("the process that tries it said nothing of it: {end}"),
            remedy,
        },
    };
    let mut checks: Vec<_> = TRIED.into_iter().map(check).collect();
    checks.extend(sockets());
    checks
}

/// What a process said that tried it, and how it ended.
fn tried() -> Result<(String, String), Failure> {
    let mut command = Command::new(place::binary()?);
    command.args(["doctor", "--try-confinement"]).env_clear().stdin(Stdio::null());
    let done = command.output().map_err(Failure::doing("a process of its own"))?;
    Ok((String::from_utf8_lossy(&done.stdout).into_owned(), done.status.to_string()))
}

/// What the kernel can ask of its sockets.
fn sockets() -> [Check; 2] {
    let options = bulkhead_kernel::socket_options();
    let check = |name, came: &std::io::Result<()>, good: &str, bad: &str, remedy| match came {
        Ok(()) => Check { name, state: State::Found, detail: good.to_owned(), remedy: "" },
        Err(error) => Check { name, state: State::Absent, detail: format!("{bad}: {error}"), remedy },
    };
    [
        check(
            "SO_PASSRIGHTS",
            &options.refuses_descriptors,
            "the system refuses descriptors that clients pass",
            "each connection has a relay, a thread that drops what clients pass",
            "use Linux 6.16 or later",
        ),
        check(
            "SO_PEERPIDFD",
            &options.names_processes,
            "the end of a client is seen, whatever its number",
            "clients are watched by number, those in a pid namespace of their own not at all",
            "use Linux 6.5 or later",
        ),
    ]
}
