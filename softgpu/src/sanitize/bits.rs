//! Runs of bits in words, the lowest bit first.

/// The bits of a word that lie in a range.
fn mask(word: usize, from: usize, to: usize) -> u64 {
    let (start, end) = (word * 64, word * 64 + 64);
    if from >= end || to <= start {
        return 0;
    }
    let low = u64::MAX << (from.max(start) - start);
    let high = u64::MAX >> (end - to.min(end));
    low & high
}

/// Sets or clears the bits of a range; those beyond the words are left out.
pub(super) fn set(words: &mut [u64], from: usize, to: usize, value: bool) {
    if from >= to {
        return;
    }
    for word in from / 64..to.div_ceil(64).min(words.len()) {
        let mask = mask(word, from, to);
        if value {
            words[word] |= mask;
        } else {
            words[word] &= !mask;
        }
    }
}

/// The first bit of a range that has a value.
pub(super) fn first(words: &[u64], from: usize, to: usize, value: bool) -> Option<usize> {
    if from >= to {
        return None;
    }
    (from / 64..to.div_ceil(64).min(words.len())).find_map(|word| {
        let bits = if value { words[word] } else { !words[word] } & mask(word, from, to);
        (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_every_place_and_length_are_set_found_and_cleared() {
        for from in 0..130 {
            for to in from..=130 {
                let mut words = [0; 3];
                set(&mut words, from, to, true);
                let counted: u32 = words.iter().map(|word| word.count_ones()).sum();
                assert_eq!(counted as usize, to - from);
                assert_eq!(first(&words, 0, 192, true), (from < to).then_some(from));
                assert_eq!(first(&words, from, 192, false), Some(to));
                assert_eq!(first(&words, from, to, false), None);
                set(&mut words, from, to, false);
                assert_eq!(words, [0; 3]);
            }
        }
        set(&mut [0; 1], 60, 100, true);
    }
}
