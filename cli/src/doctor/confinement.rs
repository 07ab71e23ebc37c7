//! What this machine lets Bulkhead's processes give up, and what it lets the kernel know of its clients.
//!
//! A process of its own tries what a compile process does, by the same functions and in the same order, and tells a line
//! after each: whoever asks keeps all that it has.

use std::{
    collections::BTreeMap,
    fmt::Display,
    os::unix::fs::OpenOptionsExt as _,
    process::{Command, ExitCode, Stdio},
};

use bulkhead_executor::{compiler::confinement, sandbox};
use rustix::process::DumpableBehavior;

use super::{Check, State};
use crate::{Failure, output, place, processes};

const NOT_DUMPABLE: &str = "non-dumpable";
const NO_NEW_PRIVS: &str = "no_new_privs";
const NAMESPACES: &str = "namespaces";
const LANDLOCK: &str = "Landlock";
const SECCOMP: &str = "seccomp";

const SANDBOX_FILES: &str = "isolated: files";
const SANDBOX_CALLS: &str = "isolated: calls";

/// What is tried on a process.
#[derive(Clone, Copy)]
struct Tried {
    name: &'static str,
    /// What becomes of Bulkhead where it is not there.
    state: State,
    /// How to get it.
    remedy: &'static str,
}

/// Of executors of isolated sessions.
const TRIED_OF_SANDBOX: [Tried; 2] = [
    Tried {
        name: SANDBOX_FILES,
        state: State::Absent,
        remedy: "use Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK and `landlock` among `lsm=`",
    },
    Tried {
        name: SANDBOX_CALLS,
        state: State::Missing,
        remedy: "no isolated session opens without: use a Linux with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
    },
];

/// Of kernels, and what they start.
const TRIED: [Tried; 5] = [
    Tried {
        name: NOT_DUMPABLE,
        state: State::Missing,
        remedy: "a filter around this process forbids PR_SET_DUMPABLE: start Bulkhead outside of it",
    },
    Tried {
        name: NO_NEW_PRIVS,
        state: State::Missing,
        remedy: "a filter around this process forbids PR_SET_NO_NEW_PRIVS: start Bulkhead outside of it",
    },
    Tried {
        name: NAMESPACES,
        state: State::Absent,
        remedy: "let everybody make user namespaces (sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1, \
         kernel.apparmor_restrict_unprivileged_userns=0); a container has to be started so",
    },
    Tried {
        name: LANDLOCK,
        state: State::Absent,
        remedy: "use Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK and `landlock` among `lsm=`",
    },
    Tried {
        name: SECCOMP,
        state: State::Missing,
        remedy: "no image is read without: use a Linux with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
    },
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

/// Gives up on the calling process what an executor of an isolated session does, tries to do it all the same, and tells.
pub(super) fn attempt_sandbox() -> Result<ExitCode, Failure> {
    processes::keep_out()?;
    // Its own program is anybody's file, as far as the walls go; what is to be read all the same is here.
    let own = std::env::current_exe().map_err(Failure::doing("this program"))?;
    let secret = std::env::temp_dir().join(format!("bulkhead-sandbox-{}", std::process::id()));
    // Others may write where it lies: nothing that is there already is followed, or written to.
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&secret);
    drop(made.map_err(Failure::doing(secret.display()))?);
    let files = match sandbox::take_files() {
        Ok(Some(version)) => {
            let another = secret.clone();
            let thread = std::thread::spawn(move || std::fs::read(another).is_err());
            match (std::fs::read(&secret), thread.join()) {
                (Err(_), Ok(true)) => Ok(format!("ABI {version}: executors open the driver's files only")),
                _ => Err("the system has Landlock and it does not hold".to_owned()),
            }
        }
        Ok(None) => Err("the system has no Landlock: an executor opens what its user may".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    // The driver's part goes on.
    let threads = || std::thread::Builder::new().spawn(|| std::fs::read("/proc/self/maps").is_ok());
    let calls = sandbox::take_calls().map_err(|error| error.to_string()).and_then(|()| {
        let started = Command::new(&own).arg("--version").stdout(Stdio::null()).status();
        let connects = std::net::TcpStream::connect("127.0.0.1:9");
        let reads = threads().ok().and_then(|thread| thread.join().ok());
        let watches = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
        let refused = rustix::io::Errno::NOSYS;
        let connects = connects.map_err(|error| error.raw_os_error());
        match (started, connects, reads, watches) {
            (Err(_), Err(Some(error)), Some(true), Err(watches))
                if error == refused.raw_os_error() && watches == refused =>
            {
                Ok("executors start no program, make no socket and watch nothing".to_owned())
            }
            other => Err(format!("the system takes the filter and it does not hold: {other:?}")),
        }
    });
    tell(SANDBOX_FILES, files)?;
    tell(SANDBOX_CALLS, calls)?;
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
    let mut checks = outcomes("--try-confinement", &TRIED);
    checks.extend(outcomes("--try-sandbox", &TRIED_OF_SANDBOX));
    checks.extend(super::bounds::checks());
    checks.extend(sockets());
    checks
}

/// What became of what a process of its own tried.
fn outcomes(option: &str, tried: &[Tried]) -> Vec<Check> {
    let (told, end) = match attempted(option) {
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
    let check = |Tried { name, state, remedy }| match lines.get(name) {
        Some((true, detail)) => Check { name, state: State::Found, detail: (*detail).to_owned(), remedy: "" },
        Some((false, detail)) => Check { name, state, detail: (*detail).to_owned(), remedy },
        None => Check {
            name,
            state,
            detail: format!("the process that tries it said nothing of it: {end}"),
            remedy,
        },
    };
    tried.iter().copied().map(check).collect()
}

/// What a process said that tried it, and how it ended.
fn attempted(option: &str) -> Result<(String, String), Failure> {
    let mut command = Command::new(place::binary()?);
    command.args(["doctor", option]).env_clear().env("TMPDIR", std::env::temp_dir()).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(Failure::doing("a process of its own"))?;
    let scratch = std::env::temp_dir().join(format!("bulkhead-sandbox-{}", child.id()));
    let done = child.wait_with_output().map_err(Failure::doing("a process of its own"));
    // It cannot take that away itself any more, and may not have made it.
    std::fs::remove_file(scratch).unwrap_or_default();
    let done = done?;
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
