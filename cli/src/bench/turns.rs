//! Workers, one after the other.

use std::{
    io::Read as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    figures::Group,
    report::{Driver, Report},
    worker::Effort,
};
use crate::{Failure, place};

/// How long a worker may take: far longer than one that works does.
const WORKER_MAX: Duration = Duration::from_secs(240);

/// What a worker measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The driver alone.
    Native,
    /// The same through Bulkhead.
    Bulkhead,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Bulkhead => "bulkhead",
        }
    }
}

/// Starts workers.
pub(super) struct Turns {
    binary: PathBuf,
    socket: PathBuf,
}

impl Turns {
    pub(super) fn new(socket: PathBuf) -> Result<Self, Failure> {
        Ok(Self { binary: place::binary()?, socket })
    }

    fn command(&self, side: Side) -> Command {
        let mut command = Command::new(&self.binary);
        match side {
            Side::Native => command.env_remove("BULKHEAD_SOCKET"),
            Side::Bulkhead => command.args(["run", "--socket"]).arg(&self.socket).arg("--").arg(&self.binary),
        };
        command.arg("bench-worker");
        command
    }

    /// The driver of a side, or why there is none.
    pub(super) fn describe(&self, side: Side) -> Result<Result<Driver, String>, Failure> {
        let found = output(self.command(side))
            .map_err(|error| Failure::new(format!("looking for the {} driver: {error}", side.name())))?;
        if let Some(absent) = found["absent"].as_str() {
            return Ok(Err(absent.to_owned()));
        }
        let text = |key: &str| found[key].as_str().unwrap_or("unknown").to_owned();
        let cuda_version = found["cuda_version"].as_i64().unwrap_or(0);
        Ok(Ok(Driver { library: text("library"), device: text("device"), cuda_version }))
    }

    /// All rounds. What fails is in the report.
    pub(super) fn measure(&self, report: &mut Report) {
        let rounds = report.rounds();
        let native = report.has_native() && report.groups().iter().any(|group| group.exists_natively());
        for round in 1..=rounds {
            for side in [Side::Native, Side::Bulkhead] {
                if side == Side::Native && !native {
                    continue;
                }
                eprintln!("bulkhead: round {round} of {rounds}, {}", side.name());
                if let Err(error) = self.turn(side, round, report) {
                    report.fail(side, round, &error);
                    // One that crashed or hung is likely to do it again, and each may take minutes.
                    return;
                }
            }
        }
    }

    fn turn(&self, side: Side, round: usize, report: &mut Report) -> Result<(), String> {
        let (driver, ping): (Vec<Group>, Vec<Group>) =
            report.groups().iter().partition(|group| group.exists_natively());
        if !driver.is_empty() {
            let mut command = self.command(side);
            arguments(&mut command, &driver, report.effort());
            report.add(side, round, output(command)?);
        }
        if side == Side::Bulkhead && !ping.is_empty() {
            let mut command = self.command(Side::Native);
            arguments(&mut command, &ping, report.effort());
            command.arg("--socket").arg(&self.socket);
            report.add(side, round, output(command)?);
        }
        Ok(())
    }
}

fn arguments(command: &mut Command, groups: &[Group], effort: Effort) {
    let groups: Vec<&str> = groups.iter().map(|group| group.name()).collect();
    command.arg("--what").arg(groups.join(",")).args(["--effort", effort.name()]);
}

/// Runs a worker to its end and reads the object that it prints.
fn output(command: Command) -> Result<Value, String> {
    output_within(command, WORKER_MAX)
}

fn output_within(mut command: Command, limit: Duration) -> Result<Value, String> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("starting a worker: {error}"))?;
    let mut stdout = child.stdout.take().ok_or("a worker without standard output")?;
    let (sender, printed) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text).map(|_| text);
        // Nobody waits any more where this fails.
        sender.send(read).unwrap_or_default();
    });
    let printed = printed.recv_timeout(limit);
    if printed.is_err() {
        child.kill().map_err(|error| format!("ending a worker: {error}"))?;
    }
    let status = child.wait().map_err(|error| format!("waiting for a worker: {error}"))?;
    let text = match printed {
        Ok(text) => text.map_err(|error| format!("reading from a worker: {error}"))?,
        Err(_) => return Err(format!("a worker did not finish within {} s", limit.as_secs_f64())),
    };
    if !status.success() {
        return Err(format!("a worker ended with {status}"));
    }
    serde_json::from_str(text.trim()).map_err(|error| format!("a worker printed what is no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_workers_object_is_read() {
        let found = output(shell(r#"echo '{"figures": {}}'"#)).unwrap();
        assert!(found["figures"].is_object());
    }

    #[test]
    fn a_worker_that_fails_or_prints_nonsense_is_an_error() {
        assert!(output(shell("exit 3")).unwrap_err().contains("exit status: 3"));
        assert!(output(shell("kill -9 $$")).unwrap_err().contains("signal: 9"));
        assert!(output(shell("echo hello")).unwrap_err().contains("no JSON"));
    }

    #[test]
    fn a_worker_that_hangs_is_ended() {
        let error = output_within(shell("exec sleep 60"), Duration::from_millis(50)).unwrap_err();
        assert!(error.contains("did not finish"), "{error}");
    }
}
