//! SHA-256 (FIPS 180-4), to name texts by their content.
//!
//! A tenant chooses what is hashed, and whoever finds two texts with one digest would get one's code loaded for the
//! other: so it is a cryptographic one. It is written out here because nothing else of the trusted crates needs a library of them.

/// What names a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

const ROUND: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];
const START: [u32; 8] =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
const BLOCK: usize = 64;

fn compress(state: &mut [u32; 8], block: &[u8; BLOCK]) {
    let mut schedule = [0_u32; 64];
    for (word, bytes) in schedule.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..64 {
        let (early, late) = (schedule[at - 15], schedule[at - 2]);
        let early = early.rotate_right(7) ^ early.rotate_right(18) ^ early >> 3;
        let late = late.rotate_right(17) ^ late.rotate_right(19) ^ late >> 10;
        schedule[at] =
            schedule[at - 16].wrapping_add(early).wrapping_add(schedule[at - 7]).wrapping_add(late);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (constant, word) in ROUND.iter().zip(schedule) {
        let mixed = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let chosen = e & f ^ !e & g;
        let first = h.wrapping_add(mixed).wrapping_add(chosen).wrapping_add(*constant).wrapping_add(word);
        let mixed = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = mixed.wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (state, value) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *state = state.wrapping_add(value);
    }
}

impl Digest {
    /// Names these parts, in this order: where one ends and the next begins is part of the name.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Hasher::default();
        for part in parts {
            hasher.add(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.add(part);
        }
        hasher.end()
    }

    /// 64 hexadecimal digits.
    #[must_use]
    pub fn hexadecimal(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Makes a digest of bytes as they come.
pub struct Hasher {
    state: [u32; 8],
    waiting: Vec<u8>,
    bits: u64,
}

impl Default for Hasher {
    fn default() -> Self {
        Self { state: START, waiting: Vec::with_capacity(2 * BLOCK), bits: 0 }
    }
}

impl Hasher {
    /// Adds what comes next.
    pub fn add(&mut self, mut bytes: &[u8]) {
        self.bits = self.bits.wrapping_add(8 * bytes.len() as u64);
        if !self.waiting.is_empty() {
            let (first, rest) = bytes.split_at(bytes.len().min(BLOCK - self.waiting.len()));
            self.waiting.extend_from_slice(first);
            bytes = rest;
            if let Ok(block) = <&[u8; BLOCK]>::try_from(self.waiting.as_slice()) {
                compress(&mut self.state, block);
                self.waiting.clear();
            }
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        blocks.iter().for_each(|block| compress(&mut self.state, block));
        self.waiting.extend_from_slice(rest);
    }

    /// Ends it.
    #[must_use]
    pub fn end(mut self) -> Digest {
        let bits = self.bits;
        self.add(&[0x80]);
        while self.waiting.len() != BLOCK - 8 {
            self.add(&[0]);
        }
        self.add(&bits.to_be_bytes());
        let mut digest = [0; 32];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        Digest(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(bytes: &[u8]) -> String {
        let mut hasher = Hasher::default();
        // In pieces of every length, which must not matter.
        let mut rest = bytes;
        let mut length = 1;
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(length.min(rest.len()));
            hasher.add(piece);
            (rest, length) = (others, length % 131 + 1);
        }
        hasher.end().hexadecimal()
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(plain(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(plain(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let two = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(plain(two), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        let million = vec![b'a'; 1_000_000];
        assert_eq!(plain(&million), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }

    #[test]
    fn where_parts_end_is_part_of_the_name() {
        assert_ne!(Digest::of(&[b"ab", b"c"]), Digest::of(&[b"a", b"bc"]));
        assert_eq!(Digest::of(&[b"ab", b"c"]), Digest::of(&[b"ab", b"c"]));
    }
}
