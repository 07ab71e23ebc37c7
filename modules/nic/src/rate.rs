//! How much a flow may send.

use std::{fmt, time::Duration};

use crate::frame::HEADER_BYTES;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Datagrams.
    Packets,
    /// Bytes of frames: of datagrams, and the [`HEADER_BYTES`] before each.
    Bytes,
}

/// So much a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How much.
    pub count: u64,
    /// Of what.
    pub unit: Unit,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            Unit::Packets => write!(f, "{} datagrams a second", self.count),
            Unit::Bytes => write!(f, "{} bytes a second", self.count),
        }
    }
}

/// Most of a rate: what a second's worth of credit is counted in fits 64 bits.
pub const RATE_MAX: u64 = 1 << 33;

/// What a flow has left: it fills with time, up to a hundredth of a second's worth, or what one datagram takes.
#[derive(Debug, Clone)]
pub struct Bucket {
    rate: Rate,
    /// In parts of 10^9: a nanosecond fills it by the rate.
    credit: u128,
    filled: Duration,
}

const PARTS: u128 = 1_000_000_000;
/// The least that there is room for: a few datagrams.
const PACKETS_LEAST: u64 = 4;
const BYTES_LEAST: u64 = 2 * (HEADER_BYTES + crate::DATA_BYTES_MAX) as u64;

impl Bucket {
    /// An empty one, so that nobody gains by closing a flow and opening it again.
    #[must_use]
    pub fn new(rate: Rate, now: Duration) -> Self {
        Self { rate, credit: 0, filled: now }
    }

    /// How much there may be at once, in parts.
    fn room(&self) -> u128 {
        let least = match self.rate.unit {
            Unit::Packets => PACKETS_LEAST,
            Unit::Bytes => BYTES_LEAST,
        };
        u128::from((self.rate.count / 100).max(least)) * PARTS
    }

    fn cost(&self, bytes: usize) -> u128 {
        match self.rate.unit {
            Unit::Packets => PARTS,
            Unit::Bytes => (bytes as u128 + HEADER_BYTES as u128) * PARTS,
        }
    }

    /// Takes what a datagram of so many bytes costs; whether there was enough.
    pub fn take(&mut self, bytes: usize, now: Duration) -> bool {
        let passed = now.saturating_sub(self.filled).as_nanos();
        self.filled = self.filled.max(now);
        let earned = passed.saturating_mul(u128::from(self.rate.count));
        self.credit = self.credit.saturating_add(earned).min(self.room());
        let cost = self.cost(bytes);
        let enough = self.credit >= cost;
        if enough {
            self.credit -= cost;
        }
        enough
    }

    /// Gives back what a datagram cost that was not sent.
    pub fn give_back(&mut self, bytes: usize) {
        self.credit = self.credit.saturating_add(self.cost(bytes)).min(self.room());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(rate: Rate, bytes: usize, milliseconds: u64) -> u64 {
        let mut bucket = Bucket::new(rate, Duration::ZERO);
        let mut sent = 0;
        for tenth in 0..milliseconds * 10 {
            while sent < 1_000_000 && bucket.take(bytes, Duration::from_micros(tenth * 100)) {
                sent += 1;
            }
        }
        sent
    }

    #[test]
    fn what_is_sent_is_the_rate_and_what_there_is_room_for() {
        for count in [1, 10, 1000, 50_000] {
            let most = count * 2 + (count / 100).max(PACKETS_LEAST);
            let sent = sent(Rate { count, unit: Unit::Packets }, 64, 2000);
            // The last is looked for a tenth of a millisecond before the end.
            assert!(sent <= most && sent + 1 + count / 10_000 >= count * 2, "{count}: {sent}");
        }
        let sent = sent(Rate { count: 1 << 20, unit: Unit::Bytes }, 1024 - HEADER_BYTES, 1000);
        assert!((1022..=1035).contains(&sent), "{sent}");
    }

    #[test]
    fn a_byte_costs_what_its_frame_has_so_that_small_datagrams_are_not_free() {
        for (bytes, frame) in [(0, 42), (1, 43), (8, 50), (1472, 1514)] {
            let sent = sent(Rate { count: frame * 1000, unit: Unit::Bytes }, bytes, 1000);
            assert!((998..=1000).contains(&sent), "{sent} of {bytes} bytes");
        }
    }

    #[test]
    fn who_opens_a_flow_again_and_again_gains_nothing() {
        for rate in [Rate { count: 1000, unit: Unit::Packets }, Rate { count: 1 << 20, unit: Unit::Bytes }] {
            let mut sent = 0;
            for opened in 0..1000 {
                let now = Duration::from_micros(opened * 100);
                let mut bucket = Bucket::new(rate, now);
                while sent < 1_000_000 && bucket.take(64, now + Duration::from_micros(99)) {
                    sent += 1;
                }
            }
            assert_eq!(sent, 0, "{rate:?}");
        }
    }

    #[test]
    fn a_datagram_of_any_length_is_sent_at_last_and_a_clock_that_stands_gives_nothing() {
        let mut bucket = Bucket::new(Rate { count: 1, unit: Unit::Bytes }, Duration::ZERO);
        while bucket.take(crate::DATA_BYTES_MAX, Duration::ZERO) {}
        assert!(!bucket.take(1000, Duration::from_secs(10)));
        assert!(bucket.take(crate::DATA_BYTES_MAX, Duration::from_secs(1600)));
        assert!(!bucket.take(crate::DATA_BYTES_MAX, Duration::ZERO), "the clock went back");
        assert!(bucket.take(crate::DATA_BYTES_MAX, Duration::MAX));
    }
}
