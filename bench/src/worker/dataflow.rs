//! Four stages in four sessions: each goes through what the one before made.
//!
//! Shared, a stage's result is a read-only share that the next session accepted beforehand, and its kernel reads it there.
//! Copied, the result goes to pinned memory of the stage's own session, from there by the processor to pinned memory of
//! the next session, as between two processes, and from there to the device. Either way the next stage waits for the one
//! before through a fence as a capability, and nothing of the set-up is in the time.

use std::{path::Path, time::Instant};

use bulkhead_client::{Access, Buffer, Error, Fence, HostBuffer, Share, Stream, Uses};

use super::{
    effort::Amounts,
    findings::{Findings, Trouble, milliseconds},
    tenant::{self, PATIENCE, Tenant, after_stage},
};
use crate::samples::Samples;

const STAGES: usize = 4;
const WARM: usize = 1;
/// The processor copies by way of memory that stays in its cache.
const PIECE_BYTES: usize = 256 << 10;

struct Stage {
    tenant: Tenant,
    output: Buffer,
    /// The first stage's source, the others' copy of the result before.
    input: Buffer,
    /// The result before, where it is shared. The capability that it hangs on is held too.
    seen: Option<(Share, Share)>,
    /// What the result before, and one's own, are copied through.
    pinned: [HostBuffer; 2],
}

pub(super) fn measure(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let bytes = amounts.stage_bytes;
    let stages = set_up(socket, bytes)?;
    let [mut speedup, mut shared, mut copied] = [0; 3].map(|_| Samples::with_capacity(amounts.dataflows));
    for round in 0..WARM + amounts.dataflows {
        let seed = 1 + u32::try_from(round).unwrap_or(0) * 2;
        let with_shares = flow(&stages, seed, in_place)?;
        let with_copies = flow(&stages, seed + 1, by_copies)?;
        if round >= WARM {
            speedup.push(with_copies / with_shares);
            shared.push(with_shares);
            copied.push(with_copies);
        }
    }
    findings.add("dataflow_speedup", speedup);
    findings.add("dataflow_shared_ms", shared);
    findings.add("dataflow_copied_ms", copied);
    Ok(())
}

fn set_up(socket: &Path, bytes: u64) -> Result<Vec<Stage>, Trouble> {
    let host_bytes = usize::try_from(bytes).map_err(|error| Trouble::Said(error.to_string()))?;
    let mut stages: Vec<Stage> = Vec::with_capacity(STAGES);
    for index in 0..STAGES {
        let tenant = Tenant::open(socket, &format!("bench stage {index}"))?;
        let (input, output) = (tenant.arena(bytes, 0)?, tenant.arena(bytes, 0)?);
        let pinned = [tenant.session.allocate_host(host_bytes)?, tenant.session.allocate_host(host_bytes)?];
        let seen = match stages.last() {
            None => None,
            Some(before) => {
                let share = before.output.share(0, bytes, Access::Read)?;
                let seen = tenant::accept(&tenant.session, share.token(Uses::One)?)?;
                Some((share, seen))
            }
        };
        stages.push(Stage { tenant, output, input, seen, pinned });
    }
    Ok(stages)
}

/// Milliseconds of all stages, each of which gets its input by `hand_on`. What comes out is checked.
fn flow(
    stages: &[Stage],
    seed: u32,
    hand_on: fn(&Stage, &Stage, Fence) -> Result<u64, Error>,
) -> Result<f64, Trouble> {
    for stage in stages {
        stage.tenant.fill(stage.input.all(), 0)?;
        stage.tenant.fill(stage.output.all(), 0)?;
    }
    let source = &stages[0];
    source.tenant.fill(source.input.all(), seed)?;

    let begun = Instant::now();
    let mut done: Option<(&Stage, Fence)> = None;
    for stage in stages {
        let input = match done {
            None => stage.input.address(),
            Some((before, fence)) => hand_on(before, stage, fence)?,
        };
        let fence = stage.tenant.stage(input, stage.output.address(), stage.output.bytes())?;
        done = Some((stage, fence));
    }
    let Some((last, fence)) = done else { return Err(Trouble::Said("no stages".to_owned())) };
    last.tenant.session.wait(fence)?;
    let elapsed = milliseconds(begun);

    let expected = stages.iter().fold(seed, |word, _| after_stage(word));
    last.tenant.check(last.output.all(), expected)?;
    Ok(elapsed)
}

/// Where the next stage reads a result without a copy.
fn in_place(before: &Stage, next: &Stage, done: Fence) -> Result<u64, Error> {
    passed(before, done)?;
    Ok(next.seen.as_ref().map_or(0, |(_, seen)| seen.address()))
}

/// Copies a result through the host to where the next stage reads it.
fn by_copies(before: &Stage, next: &Stage, _done: Fence) -> Result<u64, Error> {
    let bytes = before.output.bytes();
    let (from, to) = (&before.pinned[1], &next.pinned[0]);
    // Of the same stream as the kernel, so after it.
    let session = &before.tenant.session;
    let copied = session.copy_to_host(Stream::DEFAULT, from.span(0, bytes), before.output.all())?;
    passed(before, copied)?;
    let mut piece = vec![0; PIECE_BYTES.min(from.bytes())];
    for offset in (0..from.bytes()).step_by(PIECE_BYTES) {
        let length = piece.len().min(from.bytes() - offset);
        from.read(offset, &mut piece[..length]);
        to.write(offset, &piece[..length]);
    }
    next.tenant.session.copy_to_device(Stream::DEFAULT, next.input.all(), to.span(0, bytes))?;
    Ok(next.input.address())
}

/// Waits as another process would: through a capability.
fn passed(stage: &Stage, fence: Fence) -> Result<(), Error> {
    let passed = stage.tenant.session.publish(fence)?.wait(PATIENCE)?;
    if passed {
        return Ok(());
    }
    Err(Error::new(bulkhead_client::ErrorCode::Internal, "a stage does not come to its end"))
}
