//! What the loss of the executor costs those who did nothing wrong, where there is a standby.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{Buffer, Error, ErrorCode};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    effort::Amounts,
    findings::{Findings, Trouble},
    observer::Observer,
    tenant::{PATIENCE, Tenant, after_stage},
};

const SESSIONS: u32 = 4;
/// Between two looks.
const NAP: Duration = Duration::from_micros(100);

/// A session with data.
struct Survivor {
    tenant: Tenant,
    data: Buffer,
    result: Buffer,
    /// In every word of the data.
    value: u32,
}

/// When a session had moved, and when it had its data and had completed a launch.
struct Recovery {
    moved: Duration,
    running: Duration,
}

pub(super) fn measure(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let observer = Observer::open(socket)?;
    observer.until("a standby to be ready", |status| status.standby_pid != 0)?;
    let survivors: Result<Vec<_>, _> =
        (1..=SESSIONS).map(|value| Survivor::open(socket, value, amounts.survivor_bytes)).collect();
    let survivors = survivors?;
    // It may have gone and come while the sessions were opened.
    let before = observer.until("a standby to be ready", |status| status.standby_pid != 0)?;

    let begun = Instant::now();
    kill(before.executor_pid)?;
    let recoveries: Vec<Result<Recovery, Trouble>> = thread::scope(|scope| {
        let threads: Vec<_> =
            survivors.iter().map(|survivor| scope.spawn(|| survivor.recover(begun))).collect();
        let panicked = |_| Err(Trouble::Said("a session's thread panicked".to_owned()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    let (mut moved, mut running) = (Duration::ZERO, Duration::ZERO);
    for recovery in recoveries {
        let recovery = recovery?;
        moved = moved.max(recovery.moved);
        running = running.max(recovery.running);
    }
    for survivor in &survivors {
        survivor.check()?;
    }
    if observer.status()?.executor_pid == before.executor_pid {
        return Err(Trouble::Said("the executor that was killed is still there".to_owned()));
    }
    findings.once("failover_ms", running.as_secs_f64() * 1e3);
    findings.once("failover_moved_ms", moved.as_secs_f64() * 1e3);
    Ok(())
}

impl Survivor {
    fn open(socket: &Path, value: u32, bytes: u64) -> Result<Self, Trouble> {
        let tenant = Tenant::open(socket, &format!("bench survivor {value}"))?;
        let (data, result) = (tenant.arena(bytes, 0)?, tenant.arena(bytes, 0)?);
        // Not the first launch after the loss is to be this code's first.
        tenant.staged(data.address(), result.address(), bytes)?;
        tenant.fill(data.all(), value)?;
        Ok(Self { tenant, data, result, value })
    }

    fn recover(&self, begun: Instant) -> Result<Recovery, Trouble> {
        let session = &self.tenant.session;
        while session.moves() == 0 {
            if begun.elapsed() > PATIENCE {
                return Err(Trouble::Said("a session does not move to the standby".to_owned()));
            }
            thread::sleep(NAP);
        }
        let moved = begun.elapsed();
        let found = loop {
            match self.first_result() {
                Ok(found) => break found,
                // What was lost, where it is told of any, is from before.
                Err(error) if error.code == ErrorCode::WorkLost && begun.elapsed() < PATIENCE => {}
                Err(error) => return Err(error.into()),
            }
        };
        let running = begun.elapsed();
        let expected = after_stage(self.value);
        if found != expected {
            return Err(Trouble::Said(format!("after the loss, a launch made {found}, not {expected}")));
        }
        Ok(Recovery { moved, running })
    }

    /// Launches over all of the data, and reads what that made of the first word.
    fn first_result(&self) -> Result<u32, Error> {
        self.tenant.staged(self.data.address(), self.result.address(), self.data.bytes())?;
        self.tenant.word(self.result.all())
    }

    /// That nothing was lost, word by word.
    fn check(&self) -> Result<(), Trouble> {
        self.tenant.check(self.data.all(), self.value)?;
        self.tenant.check(self.result.all(), after_stage(self.value))
    }
}

fn kill(pid: u32) -> Result<(), Trouble> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Trouble::Said("there is no executor to kill".to_owned()))?;
    kill_process(pid, Signal::KILL).map_err(|error| Trouble::Said(format!("killing the executor: {error}")))
}
