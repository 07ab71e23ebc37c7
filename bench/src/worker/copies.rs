//! What copies cost.
//!
//! Every figure's copies are checked, outside the time that is measured: a few words are written anew before
//! each repetition, and at the end every word is compared.

use std::{sync::atomic::Ordering, time::Instant};

use bulkhead_cuda::native::{DeviceMemory, PinnedMemory};

use super::{
    effort::Amounts,
    findings::{Findings, Trouble},
    pattern::{Kind, Pattern, sentinels},
    setup::Bench,
};
use crate::samples::Samples;

const WARM: usize = 1;
const WARM_SMALL: usize = 10;
/// Names of sizes in figures, and the sizes.
const SMALL: [(&str, usize); 4] = [("4b", 4), ("4kib", 4 << 10), ("64kib", 64 << 10), ("1mib", 1 << 20)];

const PINNED: Kind = Kind(0);
const PAGEABLE: Kind = Kind(1);
/// The first of the small sizes.
const SMALLEST: u32 = 2;

pub(super) fn measure(bench: &Bench<'_>, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let device = bench.driver.allocate(amounts.copy_bytes)?;
    let host = bench.driver.host_allocate(amounts.copy_bytes)?;
    pinned(bench, &device, &host, amounts.copies, findings)?;
    bench.driver.host_free(host)?;
    pageable(bench, &device, amounts, findings)?;
    bench.driver.free(device)?;
    small(bench, amounts.small_copies, findings)
}

fn gigabytes_per_second(bytes: usize, begun: Instant) -> f64 {
    bytes as f64 / begun.elapsed().as_secs_f64() / 1e9
}

fn wrong(what: &str, offset: usize) -> Trouble {
    Trouble::Said(format!("{what} copied other bytes at offset {offset}"))
}

fn pinned(
    bench: &Bench<'_>,
    device: &DeviceMemory,
    host: &PinnedMemory,
    copies: usize,
    findings: &mut Findings,
) -> Result<(), Trouble> {
    let words = host.words();
    let bytes = size_of_val(words);
    let write = |index: usize, pattern: Pattern| words[index].store(pattern.word(index), Ordering::Relaxed);
    let differs =
        |index: usize, pattern: Pattern| words[index].load(Ordering::Relaxed) != pattern.word(index);
    let sentinels = sentinels(words.len());

    (0..words.len()).for_each(|index| write(index, PINNED.sent()));
    let mut samples = Samples::with_capacity(copies);
    for round in 0..WARM + copies {
        sentinels.iter().for_each(|index| write(*index, PINNED.anew(round)));
        let begun = Instant::now();
        bench.driver.copy_to_device_async(device, host, bench.stream)?;
        bench.driver.stream_synchronize(bench.stream)?;
        let rate = gigabytes_per_second(bytes, begun);
        if round >= WARM {
            samples.push(rate);
        }
    }
    let last = PINNED.anew(WARM + copies - 1);
    let expected = |index: usize| if sentinels.contains(&index) { last } else { PINNED.sent() };
    findings.add("pinned_h2d", samples);

    (0..words.len()).for_each(|index| write(index, Pattern::NOTHING));
    let mut samples = Samples::with_capacity(copies);
    for round in 0..WARM + copies {
        sentinels.iter().for_each(|index| write(*index, Pattern::NOTHING));
        let begun = Instant::now();
        bench.driver.copy_to_host_async(host, device, bench.stream)?;
        bench.driver.stream_synchronize(bench.stream)?;
        let rate = gigabytes_per_second(bytes, begun);
        if let Some(index) = sentinels.into_iter().find(|index| differs(*index, last)) {
            return Err(wrong("a pinned copy", index * 8));
        }
        if round >= WARM {
            samples.push(rate);
        }
    }
    if let Some(index) = (0..words.len()).find(|index| differs(*index, expected(*index))) {
        return Err(wrong("a pinned copy", index * 8));
    }
    findings.add("pinned_d2h", samples);
    Ok(())
}

/// Writes the word of an index.
fn put(memory: &mut [u8], index: usize, pattern: Pattern) {
    memory[index * 8..][..8].copy_from_slice(&pattern.word(index).to_le_bytes());
}

/// Whether the word of an index is another.
fn is_not(memory: &[u8], index: usize, pattern: Pattern) -> bool {
    memory[index * 8..][..8] != pattern.word(index).to_le_bytes()
}

fn pageable(
    bench: &Bench<'_>,
    device: &DeviceMemory,
    amounts: Amounts,
    findings: &mut Findings,
) -> Result<(), Trouble> {
    let mut memory = vec![0_u8; amounts.copy_bytes];
    let sentinels = sentinels(memory.len() / 8);

    PAGEABLE.sent().fill(&mut memory);
    let mut samples = Samples::with_capacity(amounts.copies);
    for round in 0..WARM + amounts.copies {
        sentinels.iter().for_each(|index| put(&mut memory, *index, PAGEABLE.anew(round)));
        let begun = Instant::now();
        bench.driver.copy_to_device(device, &memory)?;
        // The call may return when it has read the source; the copy is over when the context is idle.
        bench.driver.context_synchronize()?;
        let rate = gigabytes_per_second(memory.len(), begun);
        if round >= WARM {
            samples.push(rate);
        }
    }
    let last = PAGEABLE.anew(WARM + amounts.copies - 1);
    findings.add("pageable_h2d", samples);

    Pattern::NOTHING.fill(&mut memory);
    let mut samples = Samples::with_capacity(amounts.copies);
    for round in 0..WARM + amounts.copies {
        sentinels.iter().for_each(|index| put(&mut memory, *index, Pattern::NOTHING));
        let begun = Instant::now();
        bench.driver.copy_to_host(&mut memory, device)?;
        let rate = gigabytes_per_second(memory.len(), begun);
        if let Some(index) = sentinels.into_iter().find(|index| is_not(&memory, *index, last)) {
            return Err(wrong("a pageable copy", index * 8));
        }
        if round >= WARM {
            samples.push(rate);
        }
    }
    sentinels.iter().for_each(|index| put(&mut memory, *index, PAGEABLE.sent()));
    if let Some(offset) = PAGEABLE.sent().difference(&memory) {
        return Err(wrong("a pageable copy", offset));
    }
    findings.add("pageable_d2h", samples);
    Ok(())
}

fn small(bench: &Bench<'_>, copies: usize, findings: &mut Findings) -> Result<(), Trouble> {
    for ((size, bytes), kind) in SMALL.into_iter().zip((SMALLEST..).map(Kind)) {
        let device = bench.driver.allocate(bytes)?;
        let mut memory = vec![0_u8; bytes];
        kind.sent().fill(&mut memory);
        let mut samples = Samples::with_capacity(copies);
        for round in 0..WARM_SMALL + copies {
            let begun = Instant::now();
            bench.driver.copy_to_device(&device, &memory)?;
            let elapsed = begun.elapsed();
            if round >= WARM_SMALL {
                samples.push(elapsed.as_nanos() as f64);
            }
        }
        findings.add(&format!("h2d_{size}_ns"), samples);

        let mut samples = Samples::with_capacity(copies);
        for round in 0..WARM_SMALL + copies {
            Pattern::NOTHING.fill(&mut memory);
            let begun = Instant::now();
            bench.driver.copy_to_host(&mut memory, &device)?;
            let elapsed = begun.elapsed();
            if let Some(offset) = kind.sent().difference(&memory) {
                return Err(wrong("a small copy", offset));
            }
            if round >= WARM_SMALL {
                samples.push(elapsed.as_nanos() as f64);
            }
        }
        findings.add(&format!("d2h_{size}_ns"), samples);
        bench.driver.free(device)?;
    }
    Ok(())
}
