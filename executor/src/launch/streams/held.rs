//! Records that are held until something else has passed, is given, or is opened.

use bulkhead_gpu::Error;
use bulkhead_ring::layout::STREAMS;
use bulkhead_schema::limits;
use bulkhead_schema::limits::STREAMS_MAX;

use super::{HELD_ROOM, Held, Streams, Wait};

impl Streams {
    /// Holds the stream back, with the wait itself, until `on` has passed `position`. Returns whether it has to.
    pub(crate) fn wait_on(&mut self, index: u32, on: u32, position: u64, wait: Held) -> Result<bool, Error> {
        if self.passed(on, position) {
            return Ok(false);
        }
        if self.waits_on_device(index, on, position)? {
            return Ok(false);
        }
        self.mark(on)?;
        self.hold_first(index, wait, Wait::For(on, position));
        Ok(true)
    }

    /// Holds the stream back, with the barrier itself, until the host has opened so many.
    pub(crate) fn wait_for_host(&mut self, index: u32, number: u64, barrier: Held) {
        self.hold_first(index, barrier, Wait::Host(number));
    }

    /// Whether records of the stream must be held back.
    pub(crate) fn is_held(&self, index: u32) -> bool {
        self.held > 0 && self.get(index).is_some_and(|stream| !stream.held.is_empty())
    }

    pub(crate) fn hold(&mut self, index: u32, held: Held) {
        if let Some(stream) = self.get_mut(index) {
            let words = held.parameters.len();
            stream.held.push_back(held);
            self.held += 1;
            self.held_words += words;
        }
    }

    /// How many records are held back, in all.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// For how many there is room.
    #[cfg(test)]
    pub(crate) fn held_room(&self) -> usize {
        self.streams.iter().flatten().map(|stream| stream.held.capacity()).sum()
    }

    /// Whether a stream is held back by something else than a barrier that is closed, or another stream behind one: the host
    /// wakes the pump itself once it opens one.
    pub(crate) fn is_about_to_go_on(&self, opened: impl Fn(u32) -> u64) -> bool {
        if self.held == 0 {
            return false;
        }
        // Bits: streams that are held, and those of them that wait for the host in the end.
        let (mut held, mut closed) = (0_u64, 0_u64);
        let mut waits = [None; STREAMS];
        for (index, stream) in (0..).zip(&self.streams) {
            let Some(stream) = stream.as_ref().filter(|stream| !stream.held.is_empty()) else { continue };
            held |= 1 << index;
            match stream.waits_for {
                Some(Wait::Host(number)) if opened(index) < number => closed |= 1 << index,
                Some(Wait::For(on, position)) if !self.passed(on, position) => {
                    waits[index as usize] = Some((on, position))
                }
                _ => {}
            }
        }
        // A wait is for what came earlier in the ring, so each round finds one more at least.
        loop {
            let before = closed;
            for (index, wait) in waits.iter().enumerate() {
                if let Some((on, position)) = *wait
                    && closed >> on & 1 != 0
                    && self.first_held(on).is_some_and(|first| first <= position)
                {
                    closed |= 1 << index;
                }
            }
            if closed == before {
                return held != closed;
            }
        }
    }

    fn first_held(&self, index: u32) -> Option<u64> {
        self.get(index)?.held.front().map(|held| held.position)
    }

    /// Whether no more may be held back.
    pub(crate) fn hold_enough(&self) -> bool {
        self.held >= limits::HELD_MAX || self.held_words * 8 >= limits::HELD_PARAMETER_BYTES_MAX
    }

    /// A held record that may go now, if there is one. `opened` says how many barriers of a stream the host has opened.
    pub(crate) fn release(&mut self, opened: impl Fn(u32) -> u64) -> Result<Option<Held>, Error> {
        if self.held == 0 {
            return Ok(None);
        }
        for turn in 0..STREAMS_MAX {
            let index = (self.turn + turn) % STREAMS_MAX;
            let Some((first, waits_for)) =
                self.get(index).and_then(|stream| Some((stream.held.front()?.position, stream.waits_for)))
            else {
                continue;
            };
            match waits_for {
                Some(Wait::For(on, position)) if !self.passed(on, position) => {
                    self.mark(on)?;
                    continue;
                }
                Some(Wait::Host(number)) if opened(index) < number => continue,
                Some(Wait::Room) if !self.may_slice(index) => {
                    self.mark(index)?;
                    continue;
                }
                Some(Wait::Large { blocks, most }) if !self.may_be_large(first, blocks, most) => {
                    // What is there has to be seen to pass.
                    self.mark_all()?;
                    continue;
                }
                Some(Wait::Unlooked(work)) if !self.have_room(work) && self.is_deep(index) => {
                    self.mark(index)?;
                    continue;
                }
                Some(Wait::Moving(bytes)) if self.may_move(index, first, bytes) == 0 => {
                    self.mark_all()?;
                    continue;
                }
                Some(
                    Wait::For(..)
                    | Wait::Host(_)
                    | Wait::Room
                    | Wait::Large { .. }
                    | Wait::Unlooked(_)
                    | Wait::Moving(_),
                )
                | None => {}
            }
            self.turn = index + 1;
            let Some(stream) = self.get_mut(index) else { continue };
            stream.waits_for = None;
            let held = stream.held.pop_front();
            let (left, room) = (stream.held.len(), stream.held.capacity());
            if room > HELD_ROOM && left * 4 < room {
                // Each stream in turn may have had all of them.
                stream.held.shrink_to(left * 2);
            }
            if let Some(held) = &held {
                self.held -= 1;
                self.held_words -= held.parameters.len();
            }
            return Ok(held);
        }
        Ok(None)
    }

    /// Forgets what is held back: the session is over.
    pub(crate) fn forget_held(&mut self) {
        for stream in self.streams.iter_mut().flatten() {
            stream.held.clear();
            stream.waits_for = None;
        }
        (self.held, self.held_words) = (0, 0);
    }
}
