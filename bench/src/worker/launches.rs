//! What launches cost.

use std::{
    thread,
    time::{Duration, Instant},
};

use bulkhead_cuda::native::Refusal;

use super::{
    effort::Amounts,
    findings::{Findings, Trouble},
    setup::Bench,
};
use crate::samples::Samples;

/// Half of Bulkhead's ring.
const BURST: u32 = bulkhead_schema::limits::RING_RECORDS / 2;
const WARM_BURSTS: usize = 4;
const WARM_ROUND_TRIPS: usize = 100;
/// More than a ring holds.
const COUNTED: u32 = 2_000;
/// Long enough for work that a wait did not wait for: tells it from work that was lost.
const LATER: Duration = Duration::from_millis(500);
/// Threads of a launch, each of which counts.
const THREADS: u32 = 32;

pub(super) fn measure(bench: &Bench<'_>, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    counted(bench)?;
    findings.add("launch_ns", bursts(bench, amounts)?);
    findings.add("launches_per_s", sustained(bench, amounts)?);
    let trips = round_trips(bench, amounts)?;
    let again = trips.clone();
    findings.add("launch_sync_p50_ns", trips);
    findings.distribution("launch_sync_p99_ns", again, |summary| summary.p99);
    Ok(())
}

/// That launches are done, each once: what is fast because it was dropped would not be worth measuring.
fn counted(bench: &Bench<'_>) -> Result<(), Trouble> {
    bench.driver.copy_to_device(&bench.memory, &[0; 4])?;
    // The copy may only be staged yet, and this stream does not wait for the null stream.
    bench.driver.context_synchronize()?;
    for _ in 0..COUNTED {
        bench.driver.launch(bench.count, bench.stream, &bench.memory)?;
    }
    bench.driver.stream_synchronize(bench.stream)?;
    let (found, expected) = (count(bench)?, COUNTED * THREADS);
    if found == expected {
        return Ok(());
    }
    thread::sleep(LATER);
    let later = count(bench)?;
    Err(Trouble::Said(format!(
        "{COUNTED} launches and a wait counted to {found} and later to {later}, not to {expected}"
    )))
}

fn count(bench: &Bench<'_>) -> Result<u32, Refusal> {
    let mut word = [0; 4];
    bench.driver.copy_to_host(&mut word, &bench.memory)?;
    Ok(u32::from_le_bytes(word))
}

fn burst(bench: &Bench<'_>, launches: u32) -> Result<(), Refusal> {
    for _ in 0..launches {
        bench.driver.launch(bench.empty, bench.stream, &bench.memory)?;
    }
    Ok(())
}

/// Nanoseconds per call, one sample a burst. Each burst starts with nothing in flight.
fn bursts(bench: &Bench<'_>, amounts: Amounts) -> Result<Samples, Refusal> {
    let mut samples = Samples::with_capacity(amounts.bursts);
    for round in 0..WARM_BURSTS + amounts.bursts {
        let begun = Instant::now();
        burst(bench, BURST)?;
        let each = begun.elapsed().as_nanos() as f64 / f64::from(BURST);
        bench.driver.stream_synchronize(bench.stream)?;
        if round >= WARM_BURSTS {
            samples.push(each);
        }
    }
    Ok(samples)
}

/// Launches per second, one sample a run.
fn sustained(bench: &Bench<'_>, amounts: Amounts) -> Result<Samples, Refusal> {
    let mut samples = Samples::with_capacity(amounts.sustained_runs);
    for _ in 0..amounts.sustained_runs {
        let begun = Instant::now();
        burst(bench, amounts.sustained_launches)?;
        bench.driver.stream_synchronize(bench.stream)?;
        samples.push(f64::from(amounts.sustained_launches) / begun.elapsed().as_secs_f64());
    }
    Ok(samples)
}

/// Nanoseconds of a launch and the wait for it.
fn round_trips(bench: &Bench<'_>, amounts: Amounts) -> Result<Samples, Refusal> {
    let mut samples = Samples::with_capacity(amounts.round_trips);
    for round in 0..WARM_ROUND_TRIPS + amounts.round_trips {
        let begun = Instant::now();
        bench.driver.launch(bench.empty, bench.stream, &bench.memory)?;
        bench.driver.stream_synchronize(bench.stream)?;
        let elapsed = begun.elapsed();
        if round >= WARM_ROUND_TRIPS {
            samples.push(elapsed.as_nanos() as f64);
        }
    }
    Ok(samples)
}
