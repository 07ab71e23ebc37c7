//! Chance that can be repeated.

/// A repeatable source of numbers (splitmix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Those of one of many, all different.
    #[must_use]
    pub fn new(seed: u64, index: u64) -> Self {
        let mut dice = Self(seed);
        let mixed = dice.word();
        Self(mixed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Any word.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u32) -> u32 {
        u32::try_from((self.word() >> 8) % u64::from(bound.max(1))).unwrap_or(0)
    }

    /// Whether something happens that does so once in this many times.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }

    /// A place in a list of this many; 0 where it is empty.
    pub fn place(&mut self, count: usize) -> usize {
        self.below(u32::try_from(count).unwrap_or(u32::MAX)) as usize
    }

    /// One of these, if there are any.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.place(of.len()))
    }
}
