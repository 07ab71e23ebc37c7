//! A block's part in races for global memory: what its threads know of other blocks, and what others come to know of it.
//!
//! A thread passes on by a word of global memory (an atomic operation, or a store that others may see meanwhile) what is
//! behind a fence of the device: its own fence, or one of a thread that it has met since. Who reads that word knows it from
//! a fence, a barrier or a meeting of lanes on, and where it updates the word at once.
//!
//! # Invariants
//! 1. What another block has told before it did it is done when it is heard: words that are read are looked up when the
//!    reader goes on, and never before it has read.

use std::sync::Arc;

use super::super::global::{Does, Launch, Mark, Race, Scope};
use super::super::heard::Heard;
use super::super::known::{Blocks, Known, Times};
use super::super::touches::How;
use super::Races;
use crate::alu::LANES;
use crate::exec::lanes;

/// Words that the lanes of a warp have read, and that are not made known.
const READ_MAX: usize = 64;
/// Words that a block has updated, and that it is remembered of.
const UPDATED: usize = 16;
/// Words that pass something on in one block, between two barriers.
const WORDS_MAX: usize = 1 << 16;

/// What a block knows.
#[derive(Debug)]
pub(super) struct Across {
    launch: Arc<Launch>,
    block: u32,
    /// The block's clock when its last barrier of all threads opened.
    began: u32,
    /// What was known then: of other blocks, and of its own what is behind a fence.
    others: Blocks,
    fenced: Known,
    /// Words that it updated last.
    updated: [u64; UPDATED],
    next: usize,
}

impl Across {
    /// Of blocks of a launch.
    pub(super) fn new(launch: Arc<Launch>) -> Self {
        let (others, fenced) = (Blocks::default(), Known::default());
        Self { launch, block: 0, began: 1, others, fenced, updated: [0; UPDATED], next: 0 }
    }

    /// Another block begins.
    pub(super) fn restart(&mut self, block: u32) {
        self.block = block;
        (self.others, self.fenced) = (Blocks::default(), Known::default());
        self.updated = [0; UPDATED];
    }

    /// A barrier of all threads has opened.
    pub(super) fn began(&mut self, clock: u32) {
        self.began = clock;
    }

    fn updates(&mut self, word: u64) {
        if !self.updated.contains(&word) {
            self.updated[self.next] = word;
            self.next = (self.next + 1) % UPDATED;
        }
    }
}

impl Races {
    /// Everybody will know what each thread knows.
    pub(super) fn gather(&mut self) {
        for warp in 0..self.warps.len() {
            self.acquire(warp, u32::MAX);
            self.put_together(warp, u32::MAX);
        }
        let Self { across: Some(across), warps, .. } = self else { return };
        for warp in warps.iter().filter(|warp| !warp.is_fresh) {
            for lane in warp.lanes.iter() {
                across.others.join(&lane.heard.others);
                across.fenced.join(&lane.heard.fenced);
            }
        }
    }

    /// What lanes of a warp have updated before, they know now.
    pub(super) fn settle(&mut self, warp: usize) {
        let Some(own) = self.warps.get_mut(warp) else { return };
        if own.updates.is_empty() {
            return;
        }
        let updates = std::mem::take(&mut own.updates);
        self.hear(warp, updates.iter().copied());
        if let Some(own) = self.warps.get_mut(warp) {
            own.updates = updates;
            own.updates.clear();
        }
    }

    /// What lanes of a warp have read before, they know now.
    pub(super) fn acquire(&mut self, warp: usize, mask: u32) {
        self.settle(warp);
        let Some(own) = self.warps.get_mut(warp) else { return };
        if own.read.is_empty() {
            return;
        }
        let mut read = std::mem::take(&mut own.read);
        self.hear(warp, read.iter().map(|(word, lanes)| (*word, lanes & mask)));
        read.iter_mut().for_each(|(_, lanes)| *lanes &= !mask);
        read.retain(|(_, lanes)| *lanes != 0);
        if let Some(own) = self.warps.get_mut(warp) {
            own.read = read;
        }
    }

    /// Lanes hear what words pass on.
    fn hear(&mut self, warp: usize, words: impl Iterator<Item = (u64, u32)> + Clone) {
        let threads = self.warps.len() * LANES;
        let (Some(across), Some(own)) = (&self.across, self.warps.get_mut(warp)) else { return };
        let in_block = &self.words;
        if in_block.len() > 0 {
            for (word, mask) in words.clone() {
                let Some(heard) = usize::try_from(word).ok().and_then(|word| in_block.of(word)) else {
                    continue;
                };
                own.is_fresh = false;
                lanes(mask).for_each(|lane| own.lanes[lane].hear(heard));
            }
        }
        if !across.launch.has_words() {
            return;
        }
        across.launch.acquire(words, |word, knows, mask| {
            let is_known = |(heard, lanes, known): &(u64, u32, Blocks)| {
                *heard == word && mask & !lanes == 0 && known.is(knows)
            };
            if own.heard.as_ref().is_some_and(is_known) {
                return;
            }
            own.heard = Some((word, mask, knows.clone()));
            own.is_fresh = false;
            let times = knows.of(across.block).and_then(|known| known.times_of(threads));
            let mut heard = times.map_or_else(Heard::default, Heard::new);
            heard.others = knows.clone();
            lanes(mask).for_each(|lane| own.lanes[lane].hear(&heard));
        });
    }

    /// Puts together what of the block is behind the last fences of lanes, so that it may be passed on. What they learned since
    /// counts as known before: less is told.
    pub(super) fn put_together(&mut self, warp: usize, mask: u32) {
        let threads = self.warps.len() * LANES;
        let (Some(across), Some(own)) = (&self.across, self.warps.get_mut(warp)) else { return };
        if own.is_fresh {
            return;
        }
        let fenced = |lane: &usize| own.lanes[*lane].fenced_widely != 0;
        let mask = lanes(mask).filter(fenced).fold(0, |mask, lane| mask | 1 << lane);
        if mask == 0 {
            return;
        }
        let (began, first) = (across.began, warp * LANES);
        let waited = own.met >= began || own.waited.iter().any(|time| *time >= began);
        let knows = |lane: &usize| {
            own.seen[*lane].iter().any(|time| *time >= began) || own.lanes[*lane].heard.has_times()
        };
        let knows_more = waited || lanes(mask).any(|lane| knows(&lane));
        let lead = mask.trailing_zeros() as usize % LANES;
        let times = if mask.count_ones() == 1 && !knows_more {
            Times::One((first + lead) as u16, own.lanes[lead].fenced_widely)
        } else {
            let mut times = vec![0; if knows_more { threads } else { first + LANES }];
            for lane in lanes(mask) {
                if knows_more {
                    for (thread, time) in times.iter_mut().enumerate() {
                        *time = (*time).max(own.knows(warp, lane, thread));
                    }
                }
                times[first + lane] = own.lanes[lane].fenced_widely;
            }
            Times::many(times)
        };
        let known = Known::new(began, times);
        for lane in lanes(mask) {
            let own = &mut own.lanes[lane];
            own.heard.fenced.join(&known);
            own.passes_on = None;
            own.fenced_widely = 0;
        }
    }

    /// Lanes of a warp are about to reach for global memory so that others may see it meanwhile: what they know they pass on,
    /// or will learn.
    pub(crate) fn pass_on_global(&mut self, warp: usize, does: &Does<'_>) {
        self.settle(warp);
        if does.how != How::Read {
            self.put_together(warp, does.lanes);
            self.pass_on_in_block(warp, does);
        }
        let (Some(across), Some(own)) = (&mut self.across, self.warps.get_mut(warp)) else { return };
        let depth = across.launch.depth();
        if does.how != How::Read {
            across.launch.tells(across.block, own.time);
        }
        for lane in lanes(does.lanes) {
            let all = Launch::words_of(does.addresses[lane], does.bytes);
            if does.how != How::Read {
                let fenced = &mut own.lanes[lane];
                if fenced.passes_on.is_none() && !(across.fenced.is_empty() && fenced.heard.fenced.is_empty())
                {
                    let mut known = across.fenced.clone();
                    known.join(&fenced.heard.fenced);
                    let mut passes_on = across.others.clone();
                    passes_on.join(&fenced.heard.others);
                    passes_on.add(depth, across.block, &known);
                    fenced.passes_on = Some(passes_on);
                    own.is_fresh = false;
                }
                if let Some(passes_on) = &own.lanes[lane].passes_on {
                    all.clone().for_each(|word| across.launch.release(word, passes_on));
                }
            }
            for word in all {
                let list = match does.how {
                    How::Read => &mut own.read,
                    How::Update => {
                        across.updates(word);
                        &mut own.updates
                    }
                    How::Write => continue,
                };
                match list.iter_mut().rev().find(|(known, _)| *known == word) {
                    Some((_, lanes)) => *lanes |= 1 << lane,
                    None => list.push((word, 1 << lane)),
                }
            }
        }
        // What was read long ago is known without a fence: less is told.
        if own.read.len() > READ_MAX {
            let old: Vec<_> = own.read.drain(..READ_MAX / 2).collect();
            self.hear(warp, old.into_iter());
        }
    }

    /// The same for lanes that went through a fence of the block, for the block alone.
    fn pass_on_in_block(&mut self, warp: usize, does: &Does<'_>) {
        for lane in lanes(does.lanes) {
            let narrow = self.warps.get(warp).is_some_and(|own| own.lanes[lane].fenced_narrowly);
            let (Ok(at), Ok(bytes)) = (usize::try_from(does.addresses[lane]), usize::try_from(does.bytes))
            else {
                continue;
            };
            if narrow {
                self.release(warp, lane, at, bytes);
            }
        }
        if let Some(across) = self.across.as_ref().filter(|_| self.words.len() > WORDS_MAX) {
            across.launch.give_up();
            self.words.clear();
        }
    }

    /// Lanes of a warp reach for global memory of the program's; each race is told with its lane.
    pub(crate) fn touch_global(
        &mut self,
        warp: usize,
        does: &Does<'_>,
        value: impl Fn(usize) -> Option<[u8; 16]>,
        tell: impl FnMut(usize, Race),
    ) {
        // What is updated now is not done yet.
        if does.scope == Scope::Own {
            self.settle(warp);
        }
        let (Some(across), Some(own)) = (&self.across, self.warps.get(warp)) else { return };
        if across.launch.has_given_up() || self.clock == u32::MAX {
            return;
        }
        let mark = |lane: usize| Mark {
            block: across.block,
            time: own.time,
            pc: does.pc,
            thread: (warp * LANES + lane) as u16,
            scope: does.scope,
        };
        let races = |mark: &Mark, before: &Mark, (address, was_read): (u64, bool)| {
            if mark.may_meet(before) {
                return false;
            }
            let (lane, thread) = (usize::from(mark.thread) % LANES, usize::from(before.thread));
            if before.block == across.block {
                return before.time >= across.began && before.time > own.knows(warp, lane, thread);
            }
            // What is told of a value that was read comes behind the read without a fence too.
            if was_read && across.launch.has_told(before.block, before.time) {
                return false;
            }
            let has =
                |known: &Blocks| known.of(before.block).is_some_and(|known| known.has(thread, before.time));
            if has(&across.others) || has(&own.lanes[lane].heard.others) {
                return false;
            }
            // Who comes last of those who update a word may tell of it first.
            let mut words = Launch::words_of(address, does.bytes);
            let updates = mark.scope == Scope::Own && before.scope == Scope::Device;
            !(updates && words.any(|word| across.updated.contains(&word)))
        };
        across.launch.touch(does, mark, value, races, tell);
    }
}
