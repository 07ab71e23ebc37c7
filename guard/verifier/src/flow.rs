//! Which registers are written on every path to a place, in one linear pass.
//!
//! At a label the paths meet that fall into it and that were seen to branch to it. A branch back to a label that the
//! pass is beyond must have written what was taken for granted there: then it held on that path too. A label that is
//! only branched back to takes for granted what was written before the first label and the first branch, which is on
//! every path.

use crate::maps::HashMap;

/// Words of all sets together: what goes beyond is taken for granted as little as at a label that is only branched
/// back to.
const WORDS_MAX: usize = 4 << 20;

/// Registers, a bit each.
#[derive(Debug, Clone, Default)]
struct Set(Vec<u64>);

impl Set {
    fn insert(&mut self, at: usize) {
        if self.0.len() <= at / 64 {
            self.0.resize(at / 64 + 1, 0);
        }
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn keep(&mut self, other: &Self) {
        self.0.truncate(other.0.len());
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    /// What is in it and not in another.
    fn beyond<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = usize> + 'a {
        let words = self.0.iter().enumerate();
        words.flat_map(|(index, word)| {
            let left = word & !other.0.get(index).copied().unwrap_or(0);
            (0..64).filter(move |bit| left >> bit & 1 == 1).map(move |bit| index * 64 + bit)
        })
    }
}

/// A pass over a body, in the order of the text.
#[derive(Debug, Default)]
pub struct Flow<'a> {
    numbers: HashMap<&'a str, usize>,
    names: Vec<&'a str>,
    /// What is written here.
    here: Set,
    /// What is written before the first label and the first branch.
    first: Option<Set>,
    /// Whether control does not come here from the instruction before.
    cut: bool,
    /// What is written wherever control was seen to branch to a label from.
    coming: HashMap<&'a str, Set>,
    /// What was taken for granted at the labels so far.
    granted: HashMap<&'a str, Set>,
    words: usize,
}

impl<'a> Flow<'a> {
    /// A register is written here, whatever predicates are.
    #[inline]
    pub fn write(&mut self, name: &'a str) {
        let names = &mut self.names;
        let at = *self.numbers.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        });
        self.here.insert(at);
    }

    /// Whether a register is written on every path to here.
    #[inline]
    pub fn is_written(&self, name: &str) -> bool {
        self.numbers.get(name).is_some_and(|at| self.here.has(*at))
    }

    /// Control does not go on with the next instruction.
    pub fn end(&mut self) {
        self.cut = true;
    }

    /// Control may go to a label. Answers what was taken for granted there and is not written here: where that is
    /// anything, the label was wrong about it.
    pub fn branch(&mut self, label: &'a str) -> Vec<&'a str> {
        if self.first.is_none() {
            self.first = Some(self.here.clone());
        }
        if let Some(granted) = self.granted.get(label) {
            return granted.beyond(&self.here).filter_map(|at| self.names.get(at).copied()).collect();
        }
        match self.coming.get_mut(label) {
            Some(known) => known.keep(&self.here),
            None => {
                let here = self.kept(self.here.clone());
                self.coming.insert(label, here);
            }
        }
        Vec::new()
    }

    /// Here is a label.
    pub fn label(&mut self, label: &'a str) {
        let first = self.first.get_or_insert_with(|| self.here.clone());
        let mut here = match (self.coming.remove(label), self.cut) {
            (Some(mut coming), false) => {
                coming.keep(&self.here);
                coming
            }
            (Some(coming), true) => coming,
            (None, false) => std::mem::take(&mut self.here),
            (None, true) => first.clone(),
        };
        self.cut = false;
        here = self.kept(here);
        self.granted.insert(label, here.clone());
        self.here = here;
    }

    /// A set that is remembered, or so much less of it that there is room.
    fn kept(&mut self, set: Set) -> Set {
        self.words += set.0.len();
        if self.words <= WORDS_MAX {
            return set;
        }
        let mut less = self.first.clone().unwrap_or_default();
        less.keep(&set);
        less
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(flow: &Flow<'_>, names: &str) -> String {
        names.split(' ').filter(|name| flow.is_written(name)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn where_paths_meet_what_all_wrote_is_written() {
        let mut flow = Flow::default();
        flow.write("a");
        assert!(flow.branch("else").is_empty());
        flow.write("b");
        flow.write("c");
        assert!(flow.branch("end").is_empty());
        flow.end();
        flow.label("else");
        assert_eq!(written(&flow, "a b c"), "a");
        flow.write("c");
        flow.label("end");
        assert_eq!(written(&flow, "a b c"), "a c");
    }

    #[test]
    fn a_loop_keeps_what_was_written_before_it() {
        let mut flow = Flow::default();
        flow.write("a");
        assert!(flow.branch("end").is_empty());
        flow.write("b");
        flow.label("loop");
        flow.write("c");
        assert!(flow.branch("loop").is_empty());
        assert_eq!(written(&flow, "a b c"), "a b c");
        flow.label("end");
        assert_eq!(written(&flow, "a b c"), "a");
    }

    #[test]
    fn a_branch_back_that_has_not_written_what_its_label_takes_for_granted_is_told() {
        let mut flow = Flow::default();
        assert!(flow.branch("below").is_empty());
        flow.write("a");
        flow.label("loop");
        assert_eq!(written(&flow, "a"), "a");
        flow.end();
        flow.label("below");
        assert_eq!(written(&flow, "a"), "");
        assert_eq!(flow.branch("loop"), ["a"]);
    }

    #[test]
    fn a_label_that_is_only_branched_back_to_takes_little_for_granted() {
        let mut flow = Flow::default();
        flow.write("a");
        assert!(flow.branch("test").is_empty());
        flow.end();
        flow.label("body");
        assert_eq!(written(&flow, "a b"), "a");
        flow.write("b");
        flow.label("test");
        assert_eq!(written(&flow, "a b"), "a");
        assert!(flow.branch("body").is_empty());
    }

    #[test]
    fn so_much_that_there_is_no_room_is_forgotten_and_nothing_else() {
        let names: Vec<String> = (0..10_000).map(|index| format!("r{index}")).collect();
        let labels: Vec<String> = (0..60_000).map(|index| format!("l{index}")).collect();
        let mut flow = Flow::default();
        flow.write("first");
        assert!(flow.branch("end").is_empty());
        for name in &names {
            flow.write(name);
        }
        for label in &labels {
            flow.label(label);
        }
        assert!(flow.is_written("first") && !flow.is_written("r0"));
        assert!(flow.words > WORDS_MAX);
        // What is written from here on is known as before.
        flow.write("r0");
        assert!(flow.is_written("r0"));
        assert_eq!(flow.branch(&labels[0]).len(), names.len() - 1);
    }
}
