//! The modelled device: pages, and work that touches whatever its session has mapped, through the mappings of the moment
//! it began.

use std::collections::VecDeque;

use crate::{Checked, Event, PAGES, PLACES, PerPlace, SESSIONS, STREAMS, Tally, choices::Choices, ensure};

/// What a place of a window maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Sink,
    /// Nothing: an access ends the context.
    Hole,
    Page(u8),
}

/// Mappings of a page that no session may reach.
pub(crate) const NOBODY: [u8; SESSIONS] = [0; SESSIONS];

/// One page of physical memory, as it really is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Page {
    /// Which of all the objects that ever were; 0 where it is free.
    pub(crate) number: u32,
    /// How many mappings each session may reach it through.
    pub(crate) allowed: [u8; SESSIONS],
    /// Whose bytes it holds; 0 where it is scrubbed.
    pub(crate) stamp: u32,
    /// Which bytes: every touch makes others of them.
    pub(crate) content: u32,
}

#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) list: [Page; PAGES as usize],
    pub(crate) free: Vec<u8>,
}

impl Pages {
    pub(crate) fn new() -> Self {
        Self { list: [Page::default(); PAGES as usize], free: (0..PAGES).collect() }
    }

    pub(crate) fn at(&mut self, page: u8) -> &mut Page {
        &mut self.list[usize::from(page)]
    }

    /// A session, or a module for it, touches a page that belonged to an object.
    #[inline]
    pub(crate) fn touch(&mut self, page: u8, number: u32) -> Checked {
        let page = self.at(page);
        ensure(page.number == number, "2: touched a page that was given back")?;
        ensure(page.stamp == 0 || page.stamp == number, "2: saw the bytes of another object")?;
        page.stamp = number;
        page.content = page.content.wrapping_add(1);
        Ok(())
    }
}

/// One piece of work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) position: u32,
    /// How many were admitted before it, and it.
    pub(crate) mark: u64,
    /// Touches left; `u32::MAX` for ever.
    pub(crate) left: u32,
    view: Option<PerPlace<(Entry, u32)>>,
}

impl Work {
    pub(crate) fn new(position: u32, mark: u64, left: u32) -> Self {
        Self { position, mark, left, view: None }
    }
}

/// One session's streams and page table.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) table: PerPlace<Entry>,
    pub(crate) queues: [VecDeque<Work>; STREAMS],
    pub(crate) in_flight: u32,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self { table: [Entry::Sink; PLACES as usize], queues: Default::default(), in_flight: 0 }
    }

    pub(crate) fn map(&mut self, place: u8, entry: Entry) -> Checked {
        ensure(self.in_flight == 0, "9: a page changed under running work")?;
        self.table[usize::from(place)] = entry;
        Ok(())
    }

    /// The work at the head of a stream touches something. Answers the position that has completed, if one has.
    #[inline]
    pub(crate) fn run(
        &mut self,
        stream: usize,
        (session, lies): (usize, bool),
        pages: &mut Pages,
        choices: &mut Choices,
        tally: &mut Tally,
    ) -> Result<Option<u32>, &'static str> {
        let Some(work) = self.queues[stream].front_mut() else { return Ok(None) };
        let table = &self.table;
        let number = |entry: Entry| match entry {
            Entry::Page(page) => (entry, pages.list[usize::from(page)].number),
            Entry::Sink | Entry::Hole => (entry, 0),
        };
        let view = work.view.get_or_insert_with(|| table.map(number));
        let (entry, number) = view[usize::from(choices.place())];
        match entry {
            Entry::Sink => {}
            Entry::Hole => return Err("2: touched a hole, which ends the context"),
            Entry::Page(page) => {
                let allowed = pages.at(page).allowed[session] > 0;
                if !allowed && lies {
                    // It keeps what others shared with it, and what becomes of that is nobody's concern any more.
                    tally.note(Event::TouchedWhatItKept);
                } else {
                    ensure(allowed, "2: touched a page beyond its revocation, or another session's")?;
                    pages.touch(page, number)?;
                    tally.note(Event::Touched);
                }
            }
        }
        if work.left != u32::MAX {
            work.left -= 1;
        }
        if work.left > 0 {
            return Ok(None);
        }
        let position = work.position;
        self.queues[stream].pop_front();
        self.in_flight -= 1;
        Ok(Some(position))
    }

    /// Everything admitted up to here has passed.
    pub(crate) fn passed(&self, admitted: u64) -> u64 {
        let oldest = self.queues.iter().filter_map(|queue| queue.front()).map(|work| work.mark - 1).min();
        oldest.unwrap_or(admitted)
    }
}
