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
    figures::{Group, Place},
    report::{Driver, Report},
    worker::Effort,
};
use crate::host::{Failure, Host, Kernel};

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
pub(super) struct Turns<'a> {
    binary: PathBuf,
    socket: PathBuf,
    host: &'a dyn Host,
}

/// What one worker does in a round.
struct Turn {
    side: Side,
    place: Place,
    groups: Vec<Group>,
}

impl Turn {
    fn names(&self) -> String {
        self.groups.iter().map(|group| group.name()).collect::<Vec<_>>().join(",")
    }
}

/// The turns of a round: the driver's groups together, since they share what opening it costs, the others one by one.
fn turns(groups: &[Group], has_native: bool) -> Vec<Turn> {
    let (driver, others): (Vec<Group>, Vec<Group>) = groups.iter().partition(|group| group.exists_natively());
    let sides = [(Side::Native, has_native), (Side::Bulkhead, true)];
    let sides = sides.into_iter().filter(|(_, is_there)| *is_there && !driver.is_empty());
    let driver = sides.map(|(side, _)| Turn { side, place: Place::Driver, groups: driver.clone() });
    let others = others.into_iter().map(|group| Turn {
        side: Side::Bulkhead,
        place: group.place(),
        groups: vec![group],
    });
    driver.chain(others).collect()
}

impl<'a> Turns<'a> {
    pub(super) fn new(socket: PathBuf, host: &'a dyn Host) -> Result<Self, Failure> {
        Ok(Self { binary: host.program()?, socket, host })
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
            .map_err(|error| format!("looking for the {} driver: {error}", side.name()))?;
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
        let mut turns = turns(report.groups(), report.has_native());
        for round in 1..=rounds {
            turns.retain(|turn| {
                eprintln!("bulkhead: round {round} of {rounds}, {}: {}", turn.side.name(), turn.names());
                match self.turn(turn, report.effort()) {
                    Ok(found) => {
                        report.add(turn.side, round, found);
                        true
                    }
                    Err(error) => {
                        // One that crashed or hung is likely to do it again, and each may take minutes.
                        report.fail(turn.side, round, &format!("{}: {error}", turn.names()));
                        false
                    }
                }
            });
        }
    }

    fn turn(&self, turn: &Turn, effort: Effort) -> Result<Value, String> {
        let mut command = match turn.place {
            Place::Driver => self.command(turn.side),
            Place::Kernel | Place::Standby | Place::LittleMemory | Place::Cache | Place::Worker => {
                self.command(Side::Native)
            }
        };
        command.args(["--what", &turn.names(), "--effort", effort.name()]);
        let own = |arguments: &[&str]| -> Result<Box<dyn Kernel>, String> {
            self.host.start(arguments).map_err(|failure| failure.to_string())
        };
        let amounts = effort.amounts();
        let mut cache = None;
        let kernel = match turn.place {
            Place::Driver | Place::Kernel | Place::Worker => None,
            Place::Standby => Some(own(&["--standby"])?),
            Place::LittleMemory => {
                let device = format!("{}MiB", amounts.little_memory_bytes >> 20);
                let swap = format!("{}MiB", amounts.swap_memory_bytes() >> 20);
                Some(own(&["--device-memory", &device, "--swap-memory", &swap])?)
            }
            Place::Cache => {
                let folder = self.host.scratch().map_err(|failure| failure.to_string())?;
                let folder = (**cache.insert(folder)).as_ref().display().to_string();
                Some(own(&["--cache", &folder])?)
            }
        };
        match &kernel {
            Some(kernel) => command.arg("--socket").arg(kernel.socket()),
            None if turn.place == Place::Kernel => command.arg("--socket").arg(&self.socket),
            None => &mut command,
        };
        output(command).map_err(|error| match kernel {
            Some(kernel) => format!("{error}\n{}", kernel.log()).trim_end().to_owned(),
            None => error,
        })
    }
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
    use std::path::Path;

    use super::*;

    #[test]
    fn the_sides_take_turns_at_the_drivers_figures_and_the_rest_is_measured_apart() {
        let told = |groups: &[Group], has_native| {
            let turns = turns(groups, has_native);
            turns.iter().map(|turn| format!("{} {}", turn.side.name(), turn.names())).collect::<Vec<_>>()
        };
        let some = [Group::Ping, Group::Launches, Group::Swapping, Group::Copies];
        let apart = ["bulkhead launches,copies", "bulkhead ping", "bulkhead swapping"];
        assert_eq!(told(&some, false), apart);
        assert_eq!(told(&some, true)[0], "native launches,copies");
        assert_eq!(told(&some, true)[1..], apart);
        assert_eq!(told(&[Group::Ping], true), ["bulkhead ping"]);
    }

    /// Where there is nothing to be had.
    struct Nowhere;

    impl Host for Nowhere {
        fn program(&self) -> Result<PathBuf, Failure> {
            Err("nowhere".into())
        }

        fn start(&self, _: &[&str]) -> Result<Box<dyn Kernel>, Failure> {
            Err("nowhere".into())
        }

        fn scratch(&self) -> Result<Box<dyn AsRef<Path>>, Failure> {
            Err("nowhere".into())
        }

        fn has_native(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_group_that_fails_is_told_once_and_hides_no_other() {
        // Which is no worker.
        let binary = PathBuf::from("/bin/false");
        let turns = Turns { binary, socket: PathBuf::new(), host: &Nowhere };
        let driver = Driver { library: String::new(), device: String::new(), cuda_version: 0 };
        let groups = vec![Group::Ping, Group::Sessions, Group::Capabilities];
        let mut report = Report::new(groups, Effort::Quick, 3, Err("none".to_owned()), driver);
        turns.measure(&mut report);
        let failures = report.json()["failures"].as_array().unwrap().clone();
        let told: Vec<&str> = failures.iter().filter_map(Value::as_str).collect();
        let expected = ["ping", "sessions", "capabilities"]
            .map(|group| format!("bulkhead, round 1: {group}: a worker ended with exit status: 1"));
        assert_eq!(told, expected);
        assert!(!report.complete());
    }

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
