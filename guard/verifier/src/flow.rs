//! Which registers are written on every path to a place, in one linear pass.
//!
//! At a label the paths meet that fall into it and that were seen to branch to it. A branch back to a label that the
//! pass is beyond must have written what was taken for granted there: then it held on that path too. A label that is
//! only branched back to takes for granted what was written before the first label and the first branch, which is on
//! every path.

use std::rc::Rc;

use crate::maps::HashMap;

/// Words of sets that are kept for labels, for each statement of the body. Beyond them as little is taken for granted as at
/// a label that is only branched back to. Of what compilers make it is 2 at most.
const KEPT_WORDS: usize = 32;
/// Words of sets that are gone through, for each statement. Beyond them a body is not followed any more.
const VISITED_WORDS: usize = 1024;
/// What a body has of both beside, in statements.
const STATEMENTS_FREE: usize = 256;

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
            let mut left = word & !other.0.get(index).copied().unwrap_or(0);
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

/// A pass over a body, in the order of the text.
#[derive(Debug)]
pub struct Flow<'a> {
    numbers: HashMap<&'a str, usize>,
    names: Vec<&'a str>,
    /// What is written here.
    here: Rc<Set>,
    /// What is written before the first label and the first branch.
    first: Option<Rc<Set>>,
    /// Whether control does not come here from the instruction before.
    cut: bool,
    /// What is written wherever control was seen to branch to a label from.
    coming: HashMap<&'a str, Rc<Set>>,
    /// What was taken for granted at the labels so far.
    granted: HashMap<&'a str, Rc<Set>>,
    /// Words that may still be kept.
    kept: usize,
    /// Words that may still be gone through.
    left: usize,
    is_over: bool,
}

impl<'a> Flow<'a> {
    /// A pass over a body of so many statements.
    #[must_use]
    pub fn of(statements: usize) -> Self {
        let statements = statements.saturating_add(STATEMENTS_FREE);
        Self {
            numbers: HashMap::default(),
            names: Vec::new(),
            here: Rc::default(),
            first: None,
            cut: false,
            coming: HashMap::default(),
            granted: HashMap::default(),
            kept: statements.saturating_mul(KEPT_WORDS),
            left: statements.saturating_mul(VISITED_WORDS),
            is_over: false,
        }
    }

    /// A register is written here, whatever predicates are.
    #[inline]
    pub fn write(&mut self, name: &'a str) {
        let names = &mut self.names;
        let at = *self.numbers.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        });
        if !self.here.has(at) {
            Rc::make_mut(&mut self.here).insert(at);
        }
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

    /// Whether the body has so many registers at labels and branches that it was not followed to its end: nothing holds of
    /// it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Control may go to a label. Answers what was taken for granted there and is not written here: where that is
    /// anything, the label was wrong about it.
    pub fn branch(&mut self, label: &'a str) -> impl Iterator<Item = &'a str> + use<'a, '_> {
        let granted = self.granted.get(label).map_or(0, |granted| granted.0.len());
        let follows = self.visits(granted);
        if follows {
            self.first.get_or_insert_with(|| Rc::clone(&self.here));
            if !self.granted.contains_key(label) {
                self.comes(label);
            }
        }
        let granted = self.granted.get(label).filter(|_| follows);
        let (here, names) = (&self.here, &self.names);
        granted.into_iter().flat_map(|set| set.beyond(here)).filter_map(|at| names.get(at).copied())
    }

    /// A branch on.
    fn comes(&mut self, label: &'a str) {
        let set = match self.coming.remove(label) {
            // Wherever the pass comes, that is written.
            Some(known) if self.is_first(&known) => known,
            Some(mut known) => {
                Rc::make_mut(&mut known).keep(&self.here);
                known
            }
            None => self.remembered(Rc::clone(&self.here)),
        };
        self.coming.insert(label, set);
    }

    /// Here is a label.
    pub fn label(&mut self, label: &'a str) {
        if !self.visits(0) {
            return;
        }
        let first = Rc::clone(self.first.get_or_insert_with(|| Rc::clone(&self.here)));
        let here = match (self.coming.remove(label), self.cut) {
            (Some(coming), false) if self.is_first(&coming) => coming,
            (Some(mut coming), false) => {
                Rc::make_mut(&mut coming).keep(&self.here);
                coming
            }
            (Some(coming), true) => coming,
            (None, false) => Rc::clone(&self.here),
            (None, true) => first,
        };
        self.cut = false;
        self.here = self.remembered(here);
        self.granted.insert(label, Rc::clone(&self.here));
    }

    /// Whether a set is what was written before the first label and the first branch, itself.
    fn is_first(&self, set: &Rc<Set>) -> bool {
        self.first.as_ref().is_some_and(|first| Rc::ptr_eq(first, set))
    }

    /// Whether what is written here may be gone through once more, and so many words of another set.
    fn visits(&mut self, others: usize) -> bool {
        match self.left.checked_sub(self.here.0.len() + others) {
            Some(left) => self.left = left,
            None => self.is_over = true,
        }
        !self.is_over
    }

    /// A set that is remembered, or so much less of it that there is room.
    fn remembered(&mut self, set: Rc<Set>) -> Rc<Set> {
        match self.kept.checked_sub(set.0.len()) {
            Some(kept) => {
                self.kept = kept;
                set
            }
            // It is written wherever the pass comes.
            None => self.first.clone().unwrap_or_default(),
        }
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
        let mut flow = Flow::of(100);
        flow.write("a");
        assert_eq!(flow.branch("else").next(), None);
        flow.write("b");
        flow.write("c");
        assert_eq!(flow.branch("end").next(), None);
        flow.end();
        flow.label("else");
        assert_eq!(written(&flow, "a b c"), "a");
        flow.write("c");
        flow.label("end");
        assert_eq!(written(&flow, "a b c"), "a c");
    }

    #[test]
    fn a_loop_keeps_what_was_written_before_it() {
        let mut flow = Flow::of(100);
        flow.write("a");
        assert_eq!(flow.branch("end").next(), None);
        flow.write("b");
        flow.label("loop");
        flow.write("c");
        assert_eq!(flow.branch("loop").next(), None);
        assert_eq!(written(&flow, "a b c"), "a b c");
        flow.label("end");
        assert_eq!(written(&flow, "a b c"), "a");
    }

    #[test]
    fn a_branch_back_that_has_not_written_what_its_label_takes_for_granted_is_told() {
        let mut flow = Flow::of(100);
        assert_eq!(flow.branch("below").next(), None);
        flow.write("a");
        flow.label("loop");
        assert_eq!(written(&flow, "a"), "a");
        flow.end();
        flow.label("below");
        assert_eq!(written(&flow, "a"), "");
        assert_eq!(flow.branch("loop").collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn a_label_that_is_only_branched_back_to_takes_little_for_granted() {
        let mut flow = Flow::of(100);
        flow.write("a");
        assert_eq!(flow.branch("test").next(), None);
        flow.end();
        flow.label("body");
        assert_eq!(written(&flow, "a b"), "a");
        flow.write("b");
        flow.label("test");
        assert_eq!(written(&flow, "a b"), "a");
        assert_eq!(flow.branch("body").next(), None);
    }

    #[test]
    fn so_much_that_there_is_no_room_is_forgotten_and_nothing_else() {
        let names: Vec<String> = (0..10_000).map(|index| format!("r{index}")).collect();
        let labels: Vec<String> = (0..1_000).map(|index| format!("l{index}")).collect();
        let mut flow = Flow::of(0);
        flow.write("first");
        assert_eq!(flow.branch("end").next(), None);
        names.iter().for_each(|name| flow.write(name));
        for label in &labels {
            flow.label(label);
        }
        assert!(flow.is_written("first") && !flow.is_written("r0") && !flow.is_over());
        // What is written from here on is known as before.
        flow.write("r0");
        assert!(flow.is_written("r0"));
        assert_eq!(flow.branch(&labels[0]).count(), names.len() - 1);
    }

    /// What is kept stays within the words that may be kept, also where two branches go to each label.
    #[test]
    fn branches_to_one_label_share_what_is_kept_where_there_is_no_room() {
        let names: Vec<String> = (0..64_000).map(|index| format!("r{index}")).collect();
        let labels: Vec<String> = (0..20).map(|index| format!("l{index}")).collect();
        let mut flow = Flow::of(0);
        names.iter().for_each(|name| flow.write(name));
        for label in &labels {
            assert_eq!(flow.branch(label).next(), None);
            assert_eq!(flow.branch(label).next(), None);
        }
        assert!(!flow.is_over());
        let sets = flow.coming.values().filter(|set| !flow.is_first(set));
        let words: usize = sets.map(|set| set.0.len()).sum();
        assert!(words <= STATEMENTS_FREE * KEPT_WORDS, "{words}");
    }

    /// The words of all labels and branches, whatever is written before the first.
    #[test]
    fn a_body_with_more_registers_at_labels_than_are_followed_is_over() {
        let names: Vec<String> = (0..64_000).map(|index| format!("r{index}")).collect();
        let labels: Vec<String> = (0..1_000).map(|index| format!("l{index}")).collect();
        let mut flow = Flow::of(0);
        names.iter().for_each(|name| flow.write(name));
        let words = names.len() / 64;
        let mut spent = 0;
        for (index, label) in labels.iter().enumerate() {
            // A branch back goes through two sets.
            spent += if index % 2 == 0 { words } else { 2 * words };
            if index % 2 == 0 {
                flow.label(label)
            } else {
                assert_eq!(flow.branch(&labels[0]).next(), None)
            }
            assert_eq!(flow.is_over(), spent > VISITED_WORDS * STATEMENTS_FREE, "{index}");
        }
        assert!(flow.is_over());
    }

    /// The set of the label counts too, where little is written here.
    #[test]
    fn a_branch_back_counts_what_its_label_takes_for_granted() {
        let names: Vec<String> = (0..64_000).map(|index| format!("r{index}")).collect();
        let mut flow = Flow::of(0);
        assert_eq!(flow.branch("end").next(), None);
        names.iter().for_each(|name| flow.write(name));
        flow.label("large");
        flow.end();
        flow.label("end");
        assert!(!flow.is_written("r0"));
        let may = VISITED_WORDS * STATEMENTS_FREE / (names.len() / 64);
        for _ in 0..=may {
            flow.branch("large").next();
        }
        assert!(flow.is_over());
    }
}
