//! How much is measured.

use clap::ValueEnum;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Effort {
    /// Enough to see that everything works.
    Quick,
    /// As much as the software GPU does in reasonable time.
    Brief,
    /// As much as the bars are about.
    Full,
}

/// How often, and how large.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts {
    pub(super) bursts: usize,
    pub(super) sustained_launches: u32,
    pub(super) sustained_runs: usize,
    pub(super) round_trips: usize,
    pub(super) copy_bytes: usize,
    pub(super) copies: usize,
    pub(super) small_copies: usize,
    pub(super) allocations: usize,
    pub(super) pings: usize,
    /// Sessions that are opened and closed.
    pub(super) sessions: usize,
    /// Capabilities that one revocation ends.
    pub(super) descendants: u32,
    pub(super) revocations: usize,
    /// Capabilities of a client that is killed.
    pub(super) held: u32,
    /// Memory that is taken back from whoever has it.
    pub(super) revoked_bytes: u64,
    /// What each stage works on: whole pages of 2 MiB.
    pub(super) stage_bytes: u64,
    pub(super) dataflows: usize,
    /// What each session has when the executor is lost.
    pub(super) survivor_bytes: u64,
    /// All memory of a device that sessions are swapped on.
    pub(crate) little_memory_bytes: u64,
    /// Turns of each session there.
    pub(super) swapping_cycles: usize,
    /// Rounds of what is measured without a GPU.
    pub(super) capability_rounds: usize,
}

impl Amounts {
    /// Room for all that sessions have on that device, twice over.
    pub(crate) fn swap_memory_bytes(self) -> u64 {
        self.little_memory_bytes * 3
    }
}

impl Effort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Brief => "brief",
            Self::Full => "full",
        }
    }

    pub(crate) fn amounts(self) -> Amounts {
        match self {
            Self::Quick => Amounts {
                bursts: 10,
                sustained_launches: 2_000,
                sustained_runs: 1,
                round_trips: 200,
                copy_bytes: 16 << 20,
                copies: 3,
                small_copies: 20,
                allocations: 20,
                pings: 500,
                sessions: 3,
                descendants: 1_000,
                revocations: 1,
                held: 2_000,
                revoked_bytes: 64 << 20,
                stage_bytes: 2 << 20,
                dataflows: 1,
                survivor_bytes: 2 << 20,
                little_memory_bytes: 768 << 20,
                swapping_cycles: 1,
                capability_rounds: 3,
            },
            Self::Brief => Amounts {
                bursts: 50,
                sustained_launches: 20_000,
                sustained_runs: 3,
                round_trips: 1_000,
                copy_bytes: 64 << 20,
                copies: 5,
                small_copies: 100,
                allocations: 100,
                pings: 5_000,
                sessions: 10,
                descendants: 10_000,
                revocations: 3,
                held: 20_000,
                revoked_bytes: 256 << 20,
                stage_bytes: 16 << 20,
                dataflows: 3,
                survivor_bytes: 16 << 20,
                little_memory_bytes: 768 << 20,
                swapping_cycles: 2,
                capability_rounds: 15,
            },
            Self::Full => Amounts {
                bursts: 200,
                sustained_launches: 50_000,
                sustained_runs: 3,
                round_trips: 5_000,
                copy_bytes: 1 << 30,
                copies: 7,
                small_copies: 500,
                allocations: 300,
                pings: 10_000,
                sessions: 30,
                descendants: 10_000,
                revocations: 5,
                held: 20_000,
                revoked_bytes: 1 << 30,
                stage_bytes: 256 << 20,
                dataflows: 7,
                survivor_bytes: 1 << 30,
                little_memory_bytes: 8 << 30,
                swapping_cycles: 3,
                capability_rounds: 15,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_effort_measures_more_and_full_measures_what_the_bars_are_about() {
        let [quick, brief, full] = [Effort::Quick, Effort::Brief, Effort::Full].map(Effort::amounts);
        assert!(quick.bursts < brief.bursts && brief.bursts < full.bursts);
        assert!(quick.copy_bytes < brief.copy_bytes);
        assert_eq!((full.copy_bytes, full.revoked_bytes), (1 << 30, 1 << 30));
        assert_eq!((full.descendants, full.held, full.stage_bytes), (10_000, 20_000, 256 << 20));
        assert!(full.sustained_launches >= 10_000);
    }
}
