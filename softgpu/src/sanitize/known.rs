//! What one thread knows of the accesses of other blocks: a vector clock over the blocks of a launch.
//!
//! It is a tree of blocks by their number, whose parts are shared: to take over what another knows costs as much as the two
//! differ.
//!
//! # Invariants
//! 1. A clock only grows.
//! 2. All trees of a launch have the same depth, so that parts at one place are of the same blocks.

use std::sync::Arc;

use super::held::Held;

/// Bits of a block's number that one level of a tree tells apart.
const BITS: u32 = 4;
const WIDE: usize = 1 << BITS;

/// Up to when accesses of single threads are known, beyond what is known of their block.
#[derive(Debug, Clone, Default)]
pub(super) enum Times {
    #[default]
    Nobody,
    /// Of one thread, by its number in the block.
    One(u16, u32),
    /// Of each thread, up to where they end.
    Many(Arc<Many>),
}

/// Times of many threads.
#[derive(Debug)]
pub(super) struct Many {
    of: Box<[u32]>,
    _held: Held,
}

/// What is known of one block.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// All accesses before this time of the block.
    since: u32,
    times: Times,
}

impl Times {
    /// With a time for each thread.
    pub(super) fn many(of: Vec<u32>) -> Self {
        let held = Held::new(of.len() * size_of::<u32>());
        Self::Many(Arc::new(Many { of: of.into(), _held: held }))
    }

    fn of(&self, thread: usize) -> u32 {
        match self {
            Self::Nobody => 0,
            Self::One(of, time) => {
                if usize::from(*of) == thread {
                    *time
                } else {
                    0
                }
            }
            Self::Many(many) => many.of.get(thread).copied().unwrap_or(0),
        }
    }

    /// The time of each thread, up to where they end.
    fn all(&self) -> Vec<u32> {
        match self {
            Self::Nobody => Vec::new(),
            Self::One(thread, time) => {
                let mut all = vec![0; usize::from(*thread) + 1];
                all[usize::from(*thread)] = *time;
                all
            }
            Self::Many(many) => many.of.to_vec(),
        }
    }

    /// Whether nothing of it is later than a time.
    fn is_before(&self, since: u32) -> bool {
        match self {
            Self::Nobody => true,
            Self::One(_, time) => *time < since,
            Self::Many(many) => many.of.iter().all(|time| *time < since),
        }
    }

    /// Whether it says no more than another.
    fn is_in(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nobody, _) => true,
            (Self::One(thread, time), other) => *time <= other.of(usize::from(*thread)),
            (Self::Many(own), Self::Many(others)) if Arc::ptr_eq(own, others) => true,
            (Self::Many(own), other) => (0..).zip(&own.of).all(|(thread, time)| *time <= other.of(thread)),
        }
    }

    fn join(&self, other: &Self) -> Self {
        if other.is_in(self) {
            return self.clone();
        }
        if self.is_in(other) {
            return other.clone();
        }
        let (mut all, more) = (self.all(), other.all());
        if all.len() < more.len() {
            all.resize(more.len(), 0);
        }
        for (time, more) in all.iter_mut().zip(more) {
            *time = (*time).max(more);
        }
        Self::many(all)
    }
}

impl Known {
    /// All accesses before a time, and those of single threads up to times of theirs.
    pub(super) fn new(since: u32, times: Times) -> Self {
        Self { since, times }
    }

    /// Whether nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        self.since == 0 && matches!(self.times, Times::Nobody)
    }

    /// Whether an access of a thread at a time is known.
    pub(super) fn has(&self, thread: usize, time: u32) -> bool {
        time < self.since || time <= self.times.of(thread)
    }

    /// Up to which time each of so many threads is known by itself, if any is.
    pub(super) fn times_of(&self, threads: usize) -> Option<Vec<u32>> {
        let mut all = self.times.all();
        all.resize(threads, 0);
        (!matches!(self.times, Times::Nobody)).then_some(all)
    }

    fn is_in(&self, other: &Self) -> bool {
        let known = self.times.is_before(other.since) || self.times.is_in(&other.times);
        self.since <= other.since && known
    }

    /// Knows what another knows, too.
    pub(super) fn join(&mut self, other: &Self) {
        if other.is_in(self) {
            return;
        }
        let since = self.since.max(other.since);
        let left = |times: &Times| if times.is_before(since) { Times::Nobody } else { times.clone() };
        *self = Self { since, times: left(&self.times).join(&left(&other.times)) };
    }
}

#[derive(Debug, Clone)]
enum Part {
    Blocks(Box<[Known; WIDE]>),
    /// With how far a block's number is shifted for its place.
    Parts(u32, Box<[Option<Arc<Node>>; WIDE]>),
}

#[derive(Debug, Clone)]
struct Node {
    part: Part,
    _held: Held,
}

impl Node {
    fn new(shift: u32) -> Self {
        let (part, bytes) = if shift == 0 {
            (Part::Blocks(Box::default()), size_of::<[Known; WIDE]>())
        } else {
            (Part::Parts(shift, Box::default()), size_of::<[Option<Arc<Self>>; WIDE]>())
        };
        Self { part, _held: Held::new(bytes + size_of::<Self>()) }
    }
}

/// What is known of all blocks.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks(Option<Arc<Node>>);

fn place(block: u32, shift: u32) -> usize {
    (block >> shift) as usize & (WIDE - 1)
}

impl Blocks {
    /// How many levels a tree of so many blocks has above its lowest.
    pub(super) fn depth(blocks: u64) -> u32 {
        let bits = u64::BITS - blocks.saturating_sub(1).leading_zeros();
        bits.div_ceil(BITS).saturating_sub(1)
    }

    /// Whether nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether both are one tree.
    pub(super) fn is(&self, other: &Self) -> bool {
        matches!((&self.0, &other.0), (Some(own), Some(others)) if Arc::ptr_eq(own, others))
    }

    /// What is known of a block.
    pub(super) fn of(&self, block: u32) -> Option<&Known> {
        let mut node = self.0.as_deref()?;
        loop {
            match &node.part {
                Part::Blocks(blocks) => return Some(&blocks[place(block, 0)]),
                Part::Parts(shift, parts) => node = parts[place(block, *shift)].as_deref()?,
            }
        }
    }

    /// More is known of a block.
    pub(super) fn add(&mut self, depth: u32, block: u32, known: &Known) {
        if self.of(block).is_some_and(|own| known.is_in(own)) {
            return;
        }
        let mut shift = depth * BITS;
        let mut node = Arc::make_mut(self.0.get_or_insert_with(|| Arc::new(Node::new(shift))));
        loop {
            match &mut node.part {
                Part::Blocks(blocks) => return blocks[place(block, 0)].join(known),
                Part::Parts(at, parts) => {
                    let part = &mut parts[place(block, *at)];
                    shift = at.saturating_sub(BITS);
                    node = Arc::make_mut(part.get_or_insert_with(|| Arc::new(Node::new(shift))));
                }
            }
        }
    }

    /// Knows what another knows, too.
    pub(super) fn join(&mut self, other: &Self) {
        let Some(more) = &other.0 else { return };
        self.0 = Some(match &self.0 {
            None => Arc::clone(more),
            Some(own) => join(own, more),
        });
    }
}

/// What two trees know: one of them, where it has all.
fn join(own: &Arc<Node>, more: &Arc<Node>) -> Arc<Node> {
    if Arc::ptr_eq(own, more) {
        return Arc::clone(own);
    }
    let (mut is_own, mut is_more) = (true, true);
    let part = match (&own.part, &more.part) {
        (Part::Blocks(own), Part::Blocks(more)) => {
            let both = own.iter().zip(more.iter());
            is_own = both.clone().all(|(own, more)| more.is_in(own));
            is_more = !is_own && both.clone().all(|(own, more)| own.is_in(more));
            let mut blocks = if is_own || is_more { Box::default() } else { own.clone() };
            if !is_own && !is_more {
                blocks.iter_mut().zip(more.iter()).for_each(|(own, more)| own.join(more));
            }
            Part::Blocks(blocks)
        }
        (Part::Parts(shift, own), Part::Parts(_, more)) => {
            let mut parts: Box<[Option<Arc<Node>>; WIDE]> = Box::default();
            for (part, (own, more)) in parts.iter_mut().zip(own.iter().zip(more.iter())) {
                *part = match (own, more) {
                    (Some(own), Some(more)) => Some(join(own, more)),
                    (one, other) => one.as_ref().or(other.as_ref()).cloned(),
                };
                let is = |of: &Option<Arc<Node>>| match (&*part, of) {
                    (Some(part), Some(of)) => Arc::ptr_eq(part, of),
                    (part, of) => part.is_none() && of.is_none(),
                };
                is_own &= is(own);
                is_more &= is(more);
            }
            Part::Parts(*shift, parts)
        }
        // There are none of different depths.
        (Part::Blocks(_), Part::Parts(..)) | (Part::Parts(..), Part::Blocks(_)) => return Arc::clone(own),
    };
    if is_own {
        return Arc::clone(own);
    }
    if is_more {
        return Arc::clone(more);
    }
    Arc::new(Node { part, _held: own._held.clone() })
}

#[cfg(test)]
mod tests {
    use super::super::held::TURN;
    use super::*;

    fn one(since: u32, thread: u16, time: u32) -> Known {
        Known::new(since, Times::One(thread, time))
    }

    #[test]
    fn what_two_know_is_what_either_knows() {
        let kinds = [
            Known::default(),
            Known::new(5, Times::Nobody),
            one(0, 3, 7),
            one(2, 1, 9),
            Known::new(4, Times::many(vec![6, 0, 12])),
            Known::new(0, Times::many(vec![1, 2, 3, 4, 20])),
        ];
        for one in &kinds {
            for other in &kinds {
                let mut both = one.clone();
                both.join(other);
                for thread in 0..6 {
                    for time in 1..25 {
                        let either = one.has(thread, time) || other.has(thread, time);
                        assert_eq!(both.has(thread, time), either, "{one:?} {other:?} {thread} {time}");
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_of_every_number_are_known_apart() {
        for count in [1, 16, 17, 5000, 1 << 22] {
            let depth = Blocks::depth(count);
            let mut known = Blocks::default();
            let numbers: Vec<u32> =
                [0, 15, 16, 255, 4999, (1 << 22) - 1].map(|number| number.min(count as u32 - 1)).into();
            for number in &numbers {
                known.add(depth, *number, &one(0, 1, number + 1));
            }
            for number in &numbers {
                assert!(known.of(*number).unwrap().has(1, number + 1), "{count} {number}");
            }
        }
        assert_eq!(Blocks::depth(0), 0);
        assert!(Blocks::default().of(3).is_none());
    }

    #[test]
    fn trees_that_are_joined_share_what_they_have_in_common() {
        let _turn = TURN.lock();
        let depth = Blocks::depth(10_000);
        let mut own = Blocks::default();
        for block in 0..1000 {
            own.add(depth, block * 7, &one(1, 0, block + 1));
        }
        let mut other = own.clone();
        other.add(depth, 9_999, &one(1, 0, 5));
        own.add(depth, 3, &one(1, 0, 6));
        let before = Held::bytes();
        let mut both = own.clone();
        both.join(&other);
        assert!(both.of(9_999).unwrap().has(0, 5) && both.of(3).unwrap().has(0, 6));
        assert!(both.of(700).unwrap().has(0, 101));
        // Other tests may hold something meanwhile.
        assert!(Held::bytes() < before + (256 << 10));
        // Who knows all of it already is shared whole.
        let mut again = both.clone();
        again.join(&other);
        assert!(Arc::ptr_eq(again.0.as_ref().unwrap(), both.0.as_ref().unwrap()));
        other.join(&both);
        assert!(Arc::ptr_eq(other.0.as_ref().unwrap(), both.0.as_ref().unwrap()));
    }
}
