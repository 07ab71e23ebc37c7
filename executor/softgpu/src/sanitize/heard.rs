//! What threads know of one another by words that one has written behind a fence and another has read before one.
//!
//! So locks, flags and barrier objects order what they protect (PTX ISA, "Release and Acquire Patterns"). Where a word was
//! read nothing is asked of what was read: all that was released there before counts, so that less may be told.

use std::collections::HashMap;
use std::sync::Arc;

use crate::alu::LANES;

/// Bytes of shared memory that are one word here.
const WORD: usize = 8;

/// Up to which time of its own each thread of the block is known, by its number; nobody where it is empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Option<Arc<[u32]>>);

impl Heard {
    /// With a time for each thread.
    pub(super) fn new(times: Vec<u32>) -> Self {
        Self(Some(times.into()))
    }

    /// The time up to which a thread is known.
    pub(super) fn of(&self, thread: usize) -> u32 {
        self.0.as_ref().and_then(|times| times.get(thread)).copied().unwrap_or(0)
    }

    /// Knows what another knows, too.
    pub(super) fn join(&mut self, other: &Self) {
        let Some(more) = &other.0 else { return };
        let Some(own) = &mut self.0 else {
            self.0 = Some(Arc::clone(more));
            return;
        };
        if Arc::ptr_eq(own, more) || more.iter().zip(own.iter()).all(|(more, own)| more <= own) {
            return;
        }
        *own = own.iter().zip(more.iter()).map(|(own, more)| *own.max(more)).collect();
    }

    fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// What was released in a word, and how often.
#[derive(Debug, Default)]
struct Word {
    heard: Heard,
    changes: u64,
}

/// The words of a block's shared memory in which something was released.
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
}

impl Lane {
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
            self.heard.join(&std::mem::take(&mut self.read));
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
        crate::exec::lanes(together).for_each(|lane| lanes[lane].heard = all.clone());
    }
}
