//! A module's process: it reads and writes memory for sessions, by capabilities that the kernel checks.

use std::collections::VecDeque;

use bulkhead_caps::{Access, Kind, Line, Need};

use crate::{Checked, Event, Sim, books::Phase, ensure};

/// A transfer that was admitted.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    mark: u64,
    page: u8,
    number: u32,
    left: u32,
}

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) line: Line,
    queue: VecDeque<Transfer>,
}

impl Module {
    pub(crate) fn new(line: Line) -> Self {
        Self { line, queue: VecDeque::new() }
    }

    pub(crate) fn uses(&self, page: u8) -> bool {
        self.queue.iter().any(|transfer| transfer.page == page)
    }
}

impl Sim {
    /// A session asks the module to transfer something.
    pub(crate) fn transfer(&mut self, at: usize) -> Checked {
        let handle = self.any_handle(at);
        let session = &self.sessions[at];
        // Isolated sessions have no modules.
        let alone = |at: usize| self.sessions[at].alone;
        let thing = self.books.named(at, handle).and_then(|known| self.books.things[known.thing]);
        if alone(at) || thing.is_some_and(|thing| alone(thing.session)) {
            return Ok(());
        }
        if session.phase != Phase::Open || self.module.queue.len() >= 8 {
            return Ok(());
        }
        let known = self.books.named(at, handle);
        let thing = known.and_then(|known| self.books.things[known.thing]);
        let residence = thing.map(|thing| self.sessions[thing.session].residence);
        if residence.is_some_and(|residence| residence != crate::books::Residence::In) {
            return Ok(());
        }
        let need = Need { kind: Kind::Buffer, access: Access::Read, offset: 0, bytes: 0 };
        let answer = self.tree.submit(session.owner, self.module.line, &[(handle, need)]);
        let Ok(mark) = answer else {
            return ensure(known.is_none(), "1: a live capability was refused");
        };
        ensure(known.is_some(), "1: a transfer was admitted by what has ended")?;
        let page = thing.and_then(|thing| Some((thing.page?, thing.number)));
        let (page, number) = page.ok_or("8: an object was gone too early")?;
        let left = if self.choices.one_in(400) { u32::MAX } else { 1 + self.choices.below(6) };
        self.module.queue.push_back(Transfer { mark, page, number, left });
        Ok(())
    }

    /// The module does a piece of its work.
    pub(crate) fn module_runs(&mut self) -> Checked {
        let Some(transfer) = self.module.queue.front_mut() else { return Ok(()) };
        self.pages.touch(transfer.page, transfer.number)?;
        if transfer.left != u32::MAX {
            transfer.left -= 1;
        }
        if transfer.left > 0 {
            return Ok(());
        }
        let mark = transfer.mark;
        self.tally.note(Event::Transferred);
        self.module.queue.pop_front();
        self.tree.completed(self.module.line, mark).map_err(|_| "a line was gone")
    }

    /// The module is gone, with everything it was doing, and there is a new one.
    pub(crate) fn module_dies(&mut self) -> Checked {
        self.module.queue.clear();
        self.tree.close_line(self.module.line).map_err(|_| "a line was gone")?;
        self.module.line = self.tree.open_line(None);
        Ok(())
    }
}
