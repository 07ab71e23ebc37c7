//! Bytes that show whether a copy arrived.

/// Odd, so that no two words of a pattern are equal, nor the same word of two patterns.
const BY_INDEX: u64 = 0x9E37_79B9_7F4A_7C15;
const BY_PATTERN: u64 = 0xC2B2_AE3D_27D4_EB4F;

/// Words that no other pattern has in their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pattern(u64);

impl Pattern {
    /// What is in the host's memory before something is copied over it.
    pub(super) const NOTHING: Self = Self(0);

    /// The word of an index.
    pub(super) fn word(self, index: usize) -> u64 {
        (index as u64).wrapping_mul(BY_INDEX) ^ self.0.wrapping_mul(BY_PATTERN)
    }

    /// Fills bytes with words; the last is cut where they end.
    pub(super) fn fill(self, bytes: &mut [u8]) {
        for (index, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = self.word(index).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// The offset of the first word that is not the pattern's.
    pub(super) fn difference(self, bytes: &[u8]) -> Option<usize> {
        let mut chunks = bytes.chunks(8).enumerate();
        chunks
            .find(|(index, chunk)| self.word(*index).to_le_bytes()[..chunk.len()] != **chunk)
            .map(|(index, _)| index * 8)
    }
}

/// The patterns of one kind of copy. No two kinds share one, so that what another kind left on the device is not
/// taken for a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind(pub(super) u32);

impl Kind {
    /// What is copied to the device.
    pub(super) fn sent(self) -> Pattern {
        Pattern((u64::from(self.0) + 1) << 16)
    }

    /// What a repetition writes anew.
    pub(super) fn anew(self, round: usize) -> Pattern {
        Pattern(self.sent().0 + 1 + round as u64)
    }
}

/// The words that are written anew before each repetition: the first, one in the middle, the last.
pub(super) fn sentinels(words: usize) -> [usize; 3] {
    [0, words / 2, words - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_found_where_it_was_written_and_nowhere_else() {
        let (first, second) = (Kind(0), Kind(1));
        for bytes in [4, 8, 13, 4096] {
            let mut memory = vec![0; bytes];
            first.sent().fill(&mut memory);
            assert_eq!(first.sent().difference(&memory), None);
            for other in [second.sent(), first.anew(0), first.anew(7), second.anew(0), Pattern::NOTHING] {
                assert_eq!(other.difference(&memory), Some(0), "{other:?} {bytes}");
            }
        }
    }

    #[test]
    fn one_wrong_byte_is_found() {
        let mut memory = vec![0; 64];
        Kind(3).sent().fill(&mut memory);
        memory[61] ^= 1;
        assert_eq!(Kind(3).sent().difference(&memory), Some(56));
    }

    #[test]
    fn two_patterns_differ_in_every_word() {
        let (one, other) = (Kind(0).sent(), Kind(0).anew(0));
        assert!((0..1000).all(|index| one.word(index) != other.word(index)));
    }

    #[test]
    fn sentinels_are_words_of_the_memory() {
        assert_eq!(sentinels(1), [0, 0, 0]);
        assert_eq!(sentinels(100), [0, 50, 99]);
    }
}
