//! What happens next, from a seed.

/// A small generator (xorshift64*).
#[derive(Debug)]
pub(crate) struct Choices(u64);

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        u32::try_from((high * u64::from(bound)) >> 32).unwrap_or(0)
    }

    /// One in so many.
    #[inline]
    pub(crate) fn one_in(&mut self, many: u32) -> bool {
        self.below(many) == 0
    }

    #[inline]
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(u32::try_from(length).unwrap_or(u32::MAX)) as usize
    }

    #[inline]
    pub(crate) fn place(&mut self) -> u8 {
        u8::try_from(self.below(u32::from(crate::PLACES))).unwrap_or(0)
    }
}
