//! Sums of the first few of many numbers that grow (Fenwick, "A new data structure for cumulative frequency tables", 1994).

/// Numbers, all zero at first.
#[derive(Debug, Default)]
pub(crate) struct Sums(Vec<u64>);

impl Sums {
    /// One number more.
    pub(crate) fn push(&mut self) {
        let at = self.0.len() + 1;
        // What the new node covers besides its own number, which is zero.
        let covered = self.first(at - 1).saturating_sub(self.first(at - (at & at.wrapping_neg())));
        self.0.push(covered);
    }

    /// How many numbers there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds to the number at an index.
    pub(crate) fn add(&mut self, index: usize, more: u64) {
        let mut at = index + 1;
        while let Some(node) = self.0.get_mut(at - 1) {
            *node = node.saturating_add(more);
            at += at & at.wrapping_neg();
        }
    }

    /// The sum of the first `count` numbers.
    pub(crate) fn first(&self, count: usize) -> u64 {
        let (mut at, mut sum) = (count, 0_u64);
        while let Some(node) = at.checked_sub(1).and_then(|at| self.0.get(at)) {
            sum = sum.saturating_add(*node);
            at &= at - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_numbers_in_order() {
        let (mut sums, mut plain) = (Sums::default(), Vec::new());
        for step in 0..500_u64 {
            if step % 3 == 0 {
                sums.push();
                plain.push(0);
            }
            let index = usize::try_from(step * 7).unwrap() % plain.len();
            sums.add(index, step);
            plain[index] += step;
            for count in 0..=plain.len() {
                assert_eq!(sums.first(count), plain[..count].iter().sum(), "{step} {count}");
            }
        }
        assert_eq!(sums.len(), plain.len());
    }
}
