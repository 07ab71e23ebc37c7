//! What threads know of one another by words that one has written behind a fence and another has read before one.
//!
//! So locks, flags and barrier objects order what they protect (PTX ISA, "Release and Acquire Patterns"). Where a word was
//! read nothing is asked of what was read: all that was released there before counts, so that less may be told.

use std::collections::HashMap;
use std::sync::Arc;

use super::known::{Blocks, Known};
use crate::alu::LANES;

/// Bytes of memory that are one word here.
pub(super) const WORD: usize = 8;

/// What a thread has of others; nobody's where it is empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    /// Up to which time of its own each thread of the block is known, by its number.
    times: Option<Arc<[u32]>>,
    /// What is known of other blocks.
    pub(super) others: Blocks,
    /// What of the block is behind a fence of the device, so that a word of global memory may pass it on.
    pub(super) fenced: Known,
}

impl Heard {
    /// With a time for each thread.
    pub(super) fn new(times: Vec<u32>) -> Self {
        Self { times: Some(times.into()), ..Self::default() }
    }

    /// The time up to which a thread is known.
    pub(super) fn of(&self, thread: usize) -> u32 {
        self.times.as_ref().and_then(|times| times.get(thread)).copied().unwrap_or(0)
    }

    /// Whether some thread of the block is known.
    pub(super) fn has_times(&self) -> bool {
        self.times.is_some()
    }

    /// Knows what another knows, too.
    pub(super) fn join(&mut self, other: &Self) {
        self.others.join(&other.others);
        self.fenced.join(&other.fenced);
        let Some(more) = &other.times else { return };
        let Some(own) = &mut self.times else {
            self.times = Some(Arc::clone(more));
            return;
        };
        if Arc::ptr_eq(own, more) || more.iter().zip(own.iter()).all(|(more, own)| more <= own) {
            return;
        }
        *own = own.iter().zip(more.iter()).map(|(own, more)| *own.max(more)).collect();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.times.is_none() && self.others.is_empty() && self.fenced.is_empty()
    }
}

/// What was released in a word, and how often.
#[derive(Debug, Default)]
struct Word {
    heard: Heard,
    changes: u64,
}

/// The words of a block's shared memory in which something was released, and those of global memory in which something was
/// for the block alone.
#[derive(Debug, Default)]
pub(super) struct Words(HashMap<usize, Word>);

impl Words {
    /// A thread that knows as much has written to these bytes.
    pub(super) fn release(&mut self, at: usize, bytes: usize, knows: &Heard) {
        for word in at / WORD..=(at + bytes.max(1) - 1) / WORD {
            let word = self.0.entry(word).or_default();
            word.heard.join(knows);
            word.changes += 1;
        }
    }

    /// What was released in a word of this number.
    pub(super) fn of(&self, word: usize) -> Option<&Heard> {
        self.0.get(&word).map(|word| &word.heard)
    }

    /// How many words there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Nothing that was released matters any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// What a lane has of other threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    /// What it knows of them.
    pub(super) heard: Heard,
    /// What it has read, and knows from its next fence on.
    read: Heard,
    /// The word that it read last, and how often that had changed.
    last: (usize, u64),
    /// Its warp's time at its last fence; 0 where there was none.
    pub(super) fenced: u32,
    /// Whether that was one of the block only, by which something is released.
    pub(super) fenced_narrowly: bool,
    /// Its warp's time at its last fence of the device, where what is behind that was not put together; otherwise 0.
    pub(super) fenced_widely: u32,
    /// What it passes on by words of global memory, once that was put together.
    pub(super) passes_on: Option<Blocks>,
}

impl Lane {
    /// Hears what others knew.
    pub(super) fn hear(&mut self, heard: &Heard) {
        self.heard.join(heard);
        self.passes_on = None;
    }

    /// Reads a word that others may write meanwhile.
    pub(super) fn reads(&mut self, words: &Words, at: usize, bytes: usize) {
        if words.0.is_empty() {
            return;
        }
        for place in at / WORD..=(at + bytes.max(1) - 1) / WORD {
            let Some(word) = words.0.get(&place) else { continue };
            // Who waits reads it again and again.
            if self.last != (place, word.changes) {
                self.last = (place, word.changes);
                self.read.join(&word.heard);
            }
        }
    }

    /// Goes through a fence, at a time of its warp.
    pub(super) fn fence(&mut self, time: u32) {
        self.fenced = time;
        if !self.read.is_empty() {
            let read = std::mem::take(&mut self.read);
            self.hear(&read);
        }
    }
}

/// Lanes that meet know what each of them knows.
pub(super) fn meet(lanes: &mut [Lane; LANES], together: u32) {
    let mut all = Heard::default();
    for lane in crate::exec::lanes(together) {
        all.join(&lanes[lane].heard);
    }
    if !all.is_empty() {
        crate::exec::lanes(together).for_each(|lane| {
            lanes[lane].heard = all.clone();
            lanes[lane].passes_on = None;
        });
    }
}
