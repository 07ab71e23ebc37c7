//! What it takes to take capabilities back, and the memory behind them.

use std::{path::Path, time::Instant};

use bulkhead_client::{Access, Connection, Error, ErrorCode, Moment, Revocation, Share, Uses};
use bulkhead_schema::bulkhead_capnp::{
    Moment as Awaited, gpu_capability, gpu_copy_session, gpu_revocation, result,
};

use super::{
    effort::Amounts,
    findings::{Findings, Trouble, milliseconds},
    tenant::{self, PAGE_BYTES, PATIENCE, Tenant},
};
use crate::samples::Samples;

const WARM: usize = 1;
/// Bytes of a descendant.
const PART_BYTES: u64 = 64;
/// Every so many descendants, one that hangs below the one before and not below the root.
const CHAINED: u32 = 10;

fn reach(revocation: &Revocation, moment: Moment) -> Result<(), Trouble> {
    let reached = revocation.wait(moment, PATIENCE)?;
    if reached.reached && !reached.quarantined {
        return Ok(());
    }
    Err(Trouble::Said(format!("a revocation does not become {moment:?}: {reached:?}")))
}

/// Many descendants in one session.
pub(super) fn severed(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let session = tenant::open(socket, "bench giver")?;
    let arena = session.allocate_arena(PAGE_BYTES)?;
    let count = amounts.descendants;
    let [mut whole, mut each] = [0; 2].map(|_| Samples::with_capacity(amounts.revocations));
    for _ in 0..amounts.revocations {
        let root = arena.share(0, PAGE_BYTES, Access::Read)?;
        let mut made: Vec<Share> = Vec::new();
        for index in 0..count {
            let parent = made.last().filter(|_| index % CHAINED == 0).unwrap_or(&root);
            made.push(parent.derive(0, PART_BYTES, Access::Read)?);
        }
        let begun = Instant::now();
        let revocation = root.revoke()?;
        reach(&revocation, Moment::Severed)?;
        let elapsed = begun.elapsed();
        if revocation.capabilities != count {
            let ended = revocation.capabilities;
            return Err(Trouble::Said(format!("a revocation ended {ended} capabilities of {count}")));
        }
        let refused = made.last().map(|dead| dead.derive(0, PART_BYTES, Access::Read).map(drop));
        let refused = refused.and_then(Result::err).map(|error| error.code);
        if refused != Some(ErrorCode::Revoked) {
            return Err(Trouble::Said(format!("a revoked capability answers {refused:?}")));
        }
        whole.push(elapsed.as_secs_f64() * 1e3);
        each.push(elapsed.as_nanos() as f64 / f64::from(count));
    }
    findings.add("revoke_severed_ms", whole);
    findings.add("revoke_descendant_ns", each);
    Ok(())
}

/// Memory that another session has mapped, on a GPU that does nothing.
pub(super) fn quiescent(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let giver = Tenant::open(socket, "bench giver")?;
    let taker = Tenant::open(socket, "bench taker")?;
    let bytes = amounts.revoked_bytes;
    let arena = giver.arena(bytes, 1)?;
    let [mut since_severed, mut since_call] = [0; 2].map(|_| Samples::with_capacity(amounts.revocations));
    for round in 0..WARM + amounts.revocations {
        let share = arena.share(0, bytes, Access::ReadWrite)?;
        let mapped = tenant::accept(&taker.session, share.token(Uses::One)?)?;
        // It is the giver's memory that the taker has, and will have had.
        taker.fill(mapped.range(0, PART_BYTES), 2)?;
        giver.check(arena.range(0, PART_BYTES), 2)?;
        let begun = Instant::now();
        let revocation = share.revoke()?;
        reach(&revocation, Moment::Severed)?;
        let severed = begun.elapsed();
        reach(&revocation, Moment::Quiescent)?;
        let quiescent = begun.elapsed();
        giver.fill(arena.range(0, PART_BYTES), 1)?;
        taker.staged(mapped.address(), mapped.address(), PART_BYTES)?;
        giver.check(arena.range(0, PART_BYTES), 1)?;
        if round >= WARM {
            since_severed.push((quiescent - severed).as_secs_f64() * 1e6);
            since_call.push(quiescent.as_secs_f64() * 1e6);
        }
    }
    findings.add("revoke_quiescent_us", since_severed);
    findings.add("revoke_to_quiescent_us", since_call);
    Ok(())
}

/// Memory of a session's own: closed by the kernel's own interface, since a buffer of the SDK's does not tell how its end
/// gets on.
pub(super) fn reclaimed(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::Said(format!("no runtime: {error}")))?;
    tokio::task::LocalSet::new().block_on(&runtime, closed(socket, amounts, findings))
}

async fn closed(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let connection = Connection::open(socket, "bench closer").await?;
    let mut open = connection.kernel.open_session_request();
    open.get().set_name("bench closer");
    let response = open.send().promise.await?;
    let session = answer(response.get()?.get_result()?)?.get_session()?;
    let session = gpu_copy_session::Client { client: session.client };
    let [mut since_severed, mut since_call] = [0; 2].map(|_| Samples::with_capacity(amounts.revocations));
    for round in 0..WARM + amounts.revocations {
        let mut allocate = session.allocate_request();
        allocate.get().set_bytes(amounts.revoked_bytes);
        let response = allocate.send().promise.await?;
        let created = answer(response.get()?.get_result()?)?;
        let buffer = gpu_capability::Client { client: created.get_buffer()?.client };
        let begun = Instant::now();
        let response = buffer.close_request().send().promise.await?;
        let revocation = answer(response.get()?.get_result()?)?.get_revocation()?;
        come(&revocation, Awaited::Severed).await?;
        let severed = milliseconds(begun);
        come(&revocation, Awaited::Reclaimed).await?;
        let reclaimed = milliseconds(begun);
        if round >= WARM {
            since_severed.push(reclaimed - severed);
            since_call.push(reclaimed);
        }
    }
    findings.add("revoke_reclaimed_ms", since_severed);
    findings.add("revoke_to_reclaimed_ms", since_call);
    Ok(())
}

async fn come(revocation: &gpu_revocation::Client, moment: Awaited) -> Result<(), Trouble> {
    let mut wait = revocation.wait_request();
    wait.get().set_moment(moment);
    wait.get().set_timeout_ms(u32::try_from(PATIENCE.as_millis()).unwrap_or(u32::MAX));
    let response = wait.send().promise.await?;
    let reached = answer(response.get()?.get_result()?)?;
    if reached.get_reached() && !reached.get_quarantined() {
        return Ok(());
    }
    Err(Trouble::Said("a closed buffer is not given back".to_owned()))
}

/// The result in a union of result and error.
fn answer<'a, T: capnp::traits::Owned>(result: result::Reader<'a, T>) -> Result<T::Reader<'a>, Trouble> {
    match result.which().map_err(capnp::Error::from)? {
        result::Ok(value) => Ok(value?),
        result::Error(error) => Err(Error::read(error?).into()),
    }
}
