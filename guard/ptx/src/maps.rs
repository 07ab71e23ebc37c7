//! Maps and sets by what stands in a text.
//!
//! A hash is a few multiplications keyed by 192 random bits of this process, which nothing shows: whoever writes a text
//! cannot say which of its names will meet. Nothing goes by the order of such a map. The hashers that libraries have, such as
//! the software GPU's dependencies use (`foldhash`, `rustc-hash`), would be the first code of others that the guard trusts.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// As the one of the standard library.
pub type HashMap<K, V> = std::collections::HashMap<K, V, Keyed>;
/// As the one of the standard library.
pub type HashSet<K> = std::collections::HashSet<K, Keyed>;

static KEYS: LazyLock<Keyed> = LazyLock::new(|| {
    let random = RandomState::new();
    let [state, one, other] = [0, 1, 2].map(|number| random.hash_one(number));
    Keyed { state, one, other: other | 1 }
});

/// Hashes by the keys of this process; or what was hashed so far.
#[derive(Debug, Clone, Copy)]
pub struct Keyed {
    state: u64,
    one: u64,
    other: u64,
}

impl Default for Keyed {
    #[inline]
    fn default() -> Self {
        *KEYS
    }
}

impl BuildHasher for Keyed {
    type Hasher = Self;

    #[inline]
    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Keyed {
    /// Sixteen bytes more: the product of two numbers that nobody knows, folded.
    #[inline]
    fn mix(&mut self, low: u64, high: u64) {
        let (low, high) = (low ^ self.state).carrying_mul(high ^ self.one, 0);
        self.state = low ^ high;
    }
}

impl Hasher for Keyed {
    #[inline]
    fn finish(&self) -> u64 {
        let (low, high) = (self.state ^ self.one).carrying_mul(self.other, 0);
        low ^ high
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let [low, high] = match bytes.split_last_chunk::<16>() {
            // Less than two times eight bytes leave room for how many they are.
            None => few(bytes),
            Some((rest, last)) => {
                self.mix(bytes.len() as u64, u64::MAX);
                for chunk in rest.chunks(16) {
                    let [low, high] = chunk.first_chunk().map_or_else(|| few(chunk), halves);
                    self.mix(low, high);
                }
                halves(last)
            }
        };
        self.mix(low, high);
    }

    /// What a string ends with, the length of which counts already, adds nothing.
    #[inline]
    fn write_u8(&mut self, value: u8) {
        if value != 0xff {
            self.mix(value.into(), 0);
        }
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.mix(value.into(), 0);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.mix(value, 0);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64, 0);
    }
}

#[inline]
fn halves(bytes: &[u8; 16]) -> [u64; 2] {
    let eight = |part: Option<&[u8; 8]>| part.map_or(0, |part| u64::from_le_bytes(*part));
    [eight(bytes.first_chunk()), eight(bytes.last_chunk())]
}

/// Fewer than sixteen bytes and how many they are; no two are the same.
#[inline]
fn few(bytes: &[u8]) -> [u64; 2] {
    let length = bytes.len() as u64;
    // Of those that both ends have, once.
    let shift = |size: usize| u32::try_from(8 * (2 * size).saturating_sub(bytes.len())).unwrap_or(u32::MAX);
    let (low, high) = if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let last = u64::from_le_bytes(*last).checked_shr(shift(8)).unwrap_or(0);
        (u64::from_le_bytes(*first), last)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let last = u32::from_le_bytes(*last).checked_shr(shift(4)).unwrap_or(0);
        (u64::from(u32::from_le_bytes(*first)) | u64::from(last) << 32, 0)
    } else {
        (bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)), 0)
    };
    [low, high | length << 56]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_length_or_in_one_byte_have_hashes_that_differ() {
        let mut seen = HashSet::default();
        let mut count = 0;
        for length in 0..70 {
            let zeros = vec![0_u8; length];
            assert!(seen.insert(Keyed::default().hash_one(String::from_utf8(zeros.clone()).unwrap())));
            count += 1;
            for at in 0..length {
                for byte in [1, 2, 0x40, 0x7f] {
                    let mut other = zeros.clone();
                    other[at] = byte;
                    assert!(
                        seen.insert(Keyed::default().hash_one(String::from_utf8(other).unwrap())),
                        "{length} bytes, {byte} at {at}"
                    );
                    count += 1;
                }
            }
        }
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn few_bytes_are_told_from_all_others() {
        let mut seen = std::collections::HashSet::new();
        for length in 0..16 {
            for at in 0..length {
                for byte in 1..=255 {
                    let mut bytes = vec![0; length];
                    bytes[at] = byte;
                    assert!(seen.insert(few(&bytes)), "{length} bytes, {byte} at {at}");
                }
            }
        }
    }

    #[test]
    fn names_like_those_of_registers_spread_over_a_table() {
        for bits in [8, 12] {
            let mut rows = vec![0_u32; 1 << bits];
            for number in 0..1_u32 << (bits + 3) {
                let hash = Keyed::default().hash_one(format!("%r{number}"));
                rows[usize::try_from(hash & ((1 << bits) - 1)).unwrap()] += 1;
            }
            // Eight are expected in each; of so many rows one that has 40 would be chance once in 10^11 times.
            assert!(rows.iter().all(|row| *row < 40), "{bits} bits: {}", rows.iter().max().unwrap());
        }
    }
}
