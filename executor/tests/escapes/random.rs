//! Numbers that look drawn by lot, and are the same for the same seed.

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Those of one seed: neighbouring seeds have nothing in common.
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut random = Self(seed);
        Self(random.word())
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.word() % bound.max(1) as u64).unwrap_or(0)
    }

    /// Whether one of so many cases is there.
    pub(crate) fn one_in(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    pub(crate) fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())]
    }
}
