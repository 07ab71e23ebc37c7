//! What memory costs.

use std::time::Instant;

use super::{
    effort::Amounts,
    findings::{Findings, Trouble},
    setup::Bench,
};
use crate::samples::Samples;

/// Names of sizes in figures, and the sizes.
const SIZES: [(&str, usize); 3] = [("4kib", 4 << 10), ("1mib", 1 << 20), ("64mib", 64 << 20)];
const HOST_BYTES: usize = 1 << 20;
const WARM: usize = 5;

pub(super) fn measure(bench: &Bench<'_>, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    for (size, bytes) in SIZES {
        let mut device = Samples::with_capacity(amounts.allocations);
        for round in 0..WARM + amounts.allocations {
            let begun = Instant::now();
            let memory = bench.driver.allocate(bytes)?;
            bench.driver.free(memory)?;
            let elapsed = begun.elapsed();
            if round >= WARM {
                device.push(elapsed.as_nanos() as f64);
            }
        }
        findings.add(&format!("alloc_free_{size}_ns"), device);
    }

    let mut host = Samples::with_capacity(amounts.allocations);
    for round in 0..WARM + amounts.allocations {
        let begun = Instant::now();
        let memory = bench.driver.host_allocate(HOST_BYTES)?;
        bench.driver.host_free(memory)?;
        let elapsed = begun.elapsed();
        if round >= WARM {
            host.push(elapsed.as_nanos() as f64);
        }
    }
    findings.add("host_alloc_free_ns", host);
    Ok(())
}
