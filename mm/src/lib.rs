//! Slots, windows, arenas and the ledger: arithmetic on addresses and amounts, and the rules by which pages change.
//!
//! Nothing here touches a device, a process or a file: whoever uses this crate plans with it, asks the
//! executor to do what was planned, and commits once that is done.
//!
//! A *slot* is one session's self-aligned range of device addresses. The part of it that holds memory is its
//! *window*; the rest are guard zones. An *arena* is physical memory that is mapped in a window. A *region* says which granules of a window are taken, and by what. A *ledger* says who has
//! used how much. A *pause* holds a session's launches back so that its pages can change; a session is *resident*
//! while its memory is on the device and not swapped out.
//!
//! # Invariants
//! 1. Any address, confined with a slot's masks, lies in that slot; confined with its store mask, in its
//!    lower half.
//! 2. Ranges taken in a region touch no granule in common.
//! 3. What is placed in a region and has up to [`SEGMENT_BYTES`] lies in one segment of that size.
//! 4. What an account uses is what was charged to it and what the accounts below it use, what a ledger uses in all is
//!    the sum of its topmost accounts, and no charge takes an account, one above it or the whole beyond its limits.
//! 5. No slot, with its margins, has an address in common with another, with a protected window or with the workbench.
//! 6. What is taken of a session's reservations lies in one of them, and touches nothing else that is taken.
//! 7. A change is handed out by a pause only while its session has nothing on the device.

mod address;
mod ledger;
mod pause;
mod protected;
mod region;
mod reservation;
mod slot;
mod swap;

pub use address::{DeviceAddress, Range};
pub use ledger::{ACCOUNT_DEPTH_MAX, Account, Amounts, Ledger, LedgerError, Resource};
pub use pause::{Pause, PauseError, Step};
pub use protected::{PROTECTED_BYTES, PROTECTED_WINDOWS, ProtectedWindow};
pub use region::{Region, RegionError, SEGMENT_BYTES, filler, granules};
pub use reservation::{ReservationError, Reservations};
pub use slot::{
    ARENA_GRANULE_BYTES, FLAG_BYTES, FLAGS, HALF_BYTES, MARGIN_BYTES, PAGE_BYTES, SINK_BYTES, SLOT_BYTES,
    SLOT_STRIDE_BYTES, SLOTS, SLOTS_BASE, Slot, WINDOW_BYTES, WORKBENCH, ZONE_BYTES,
};
pub use swap::{Need, QUANTUM_NS, Resident, choose_victims};

/// The pieces of test code that the model tests share.
#[cfg(test)]
mod testing {
    use std::time::{SystemTime, UNIX_EPOCH};

    /// A small generator of test choices (xorshift64*), repeatable from its seed.
    pub(crate) struct Choices(u64);

    impl Choices {
        pub(crate) fn new(seed: u64) -> Self {
            Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
        }

        pub(crate) fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
        }

        pub(crate) fn below(&mut self, bound: u64) -> u64 {
            self.next() % bound
        }
    }

    /// Three seeds that never change and one that does, each printed: a failing run can be repeated
    /// with `BULKHEAD_SEED`.
    pub(crate) fn seeds() -> Vec<u64> {
        if let Some(seed) = std::env::var("BULKHEAD_SEED").ok().and_then(|seed| seed.parse().ok()) {
            return vec![seed];
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| u64::from(now.subsec_nanos()));
        vec![1, 2, 3, now]
    }
}
