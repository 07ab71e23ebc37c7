//! What a call to the kernel process costs.

use std::{path::Path, time::Instant};

use bulkhead_client::Connection;

use super::{
    effort::Amounts,
    findings::{Findings, Trouble},
};
use crate::samples::Samples;

const WARM: usize = 200;

pub(super) fn measure(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::Said(format!("no runtime: {error}")))?;
    let samples = tokio::task::LocalSet::new().block_on(&runtime, trips(socket, amounts.pings))?;
    let again = samples.clone();
    findings.add("ping_p50_ns", samples);
    findings.distribution("ping_p99_ns", again, |summary| summary.p99);
    Ok(())
}

async fn trips(socket: &Path, count: usize) -> Result<Samples, Trouble> {
    let connection = Connection::open(socket, "bench").await?;
    let mut samples = Samples::with_capacity(count);
    for round in 0..WARM + count {
        let begun = Instant::now();
        let answer = connection.ping(round as u64).await?;
        let elapsed = begun.elapsed();
        if answer != round as u64 {
            return Err(Trouble::Said(format!("ping {round} was answered with {answer}")));
        }
        if round >= WARM {
            samples.push(elapsed.as_nanos() as f64);
        }
    }
    Ok(samples)
}
