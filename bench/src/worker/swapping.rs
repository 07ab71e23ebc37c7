//! Three sessions take turns on a device that has not the memory for all of them.

use std::{path::Path, time::Instant};

use bulkhead_client::{Buffer, DeviceRange, Error};

use super::{
    effort::Amounts,
    findings::{Findings, Trouble},
    observer::Observer,
    tenant::{PAGE_BYTES, Tenant, after_stage},
};
use crate::samples::Samples;

const SESSIONS: u32 = 3;
/// What a session is charged for beside its buffers: its sink, and the words of its code.
const OVERHEAD_BYTES: u64 = 128 << 20;
/// Turns of each session before those that are measured: registering the memory to swap to happens once a session.
const WARM_CYCLES: usize = 2;

/// With its overhead, half of the device's memory: three are one and a half times of it.
fn each_bytes(device_bytes: u64) -> u64 {
    device_bytes / 2 - OVERHEAD_BYTES
}

struct Owner {
    tenant: Tenant,
    memory: Buffer,
    value: u32,
}

pub(super) fn measure(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let observer = Observer::open(socket)?;
    let bytes = each_bytes(amounts.little_memory_bytes);
    let mut owners = Vec::new();
    for value in 1..=SESSIONS {
        let tenant = Tenant::open(socket, &format!("bench owner {value}"))?;
        let memory = tenant.arena(bytes, value)?;
        owners.push(Owner { tenant, memory, value });
    }
    let count = amounts.swapping_cycles * owners.len();
    let [mut rate, mut turn] = [0; 2].map(|_| Samples::with_capacity(count));
    for cycle in 0..WARM_CYCLES + amounts.swapping_cycles {
        for owner in &mut owners {
            let before = observer.status()?.swapped_bytes;
            let begun = Instant::now();
            owner.turn()?;
            let with = begun.elapsed();
            let moved = observer.status()?.swapped_bytes - before;
            let begun = Instant::now();
            owner.turn()?;
            let without = begun.elapsed();
            owner.check_and_change()?;
            if cycle < WARM_CYCLES {
                continue;
            }
            let took = with.saturating_sub(without).as_secs_f64();
            if moved < bytes || took == 0.0 {
                return Err(Trouble::Said(format!(
                    "a turn was to be swapped in, but {moved} bytes moved: it took {with:?}, and again {without:?}"
                )));
            }
            rate.push(moved as f64 / took / 1e9);
            turn.push(with.as_secs_f64() * 1e3);
        }
    }
    findings.add("swap_gb_s", rate);
    findings.add("swap_turn_ms", turn);
    Ok(())
}

impl Owner {
    fn result(&self) -> DeviceRange {
        self.memory.range(self.memory.bytes() - PAGE_BYTES, PAGE_BYTES)
    }

    /// A launch that reads the first page and writes the last.
    fn turn(&self) -> Result<(), Error> {
        let first = self.memory.address();
        self.tenant.staged(first, first + self.memory.bytes() - PAGE_BYTES, PAGE_BYTES)
    }

    /// That every page is there, and what the turn made; then other values for the next turn.
    fn check_and_change(&mut self) -> Result<(), Trouble> {
        let pages = self.memory.bytes() / PAGE_BYTES - 1;
        for page in 0..pages {
            let found = self.tenant.word(self.memory.range(page * PAGE_BYTES, 4))?;
            if found != self.value {
                return Err(Trouble::Said(format!(
                    "page {page} of {pages} holds {found} after a swap, not {}",
                    self.value
                )));
            }
        }
        self.tenant.check(self.result(), after_stage(self.value))?;
        self.value += SESSIONS;
        Ok(self.tenant.fill(self.memory.all(), self.value)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Effort;

    #[test]
    fn three_sessions_have_one_and_a_half_times_the_memory_in_whole_pages() {
        for effort in [Effort::Quick, Effort::Brief, Effort::Full] {
            let device = effort.amounts().little_memory_bytes;
            let each = each_bytes(device);
            assert_eq!(3 * (each + OVERHEAD_BYTES) * 2, 3 * device);
            assert!(each > 0 && each.is_multiple_of(PAGE_BYTES));
            assert!(effort.amounts().swap_memory_bytes() >= 3 * each);
        }
    }
}
