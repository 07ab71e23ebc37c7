//! The modelled executor: bind tables, the pump, and changes of pages under the real pause.

use bulkhead_mm::{Pause, Step};
use bulkhead_schema::Handle;

use crate::{
    Checked, Fault, PLACES, PerPlace,
    device::{Entry, Pages, Streams},
    ensure,
    protocol::{Answer, Channel, Message},
};

/// A change of pages that waits for a pause.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Map { id: u32, place: u8, page: u8 },
    Unmap { id: u32, place: u8 },
    SwapOut { id: u32 },
    SwapIn { id: u32, pages: PerPlace<Option<u8>> },
    Release { id: u32 },
    Close { id: u32 },
}

/// What handles mean: also the part of a session that a standby knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Binds(pub(crate) Vec<(Handle, u8)>);

impl Binds {
    pub(crate) fn bind(&mut self, handle: Handle, place: u8) {
        self.0.push((handle, place));
    }

    pub(crate) fn unbind(&mut self, handle: Handle) {
        self.0.retain(|(bound, _)| *bound != handle);
    }

    pub(crate) fn names(&self, handle: Handle) -> bool {
        self.0.iter().any(|(bound, _)| *bound == handle)
    }
}

/// What copies reach besides the session's own table.
pub(crate) struct Means<'a> {
    pub(crate) pages: &'a mut Pages,
    pub(crate) area: &'a mut PerPlace<u32>,
    /// What has to be there in the end.
    pub(crate) kept: &'a PerPlace<u32>,
    pub(crate) fault: Option<Fault>,
}

/// One session in the executor.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) streams: Streams,
    pub(crate) binds: Binds,
    pub(crate) pause: Pause<Change>,
    /// The change that is being made, and whether its holes are there.
    in_hand: Option<(Change, bool)>,
    /// How many places of the move in hand are copied.
    copied: u8,
    /// A place that has to get its sink back.
    late_sink: Option<u8>,
    /// A handle that has to be unbound.
    late_unbind: Option<Handle>,
    pub(crate) admitted: u64,
    /// No record is taken any more.
    pub(crate) stopping: bool,
}

impl Seat {
    pub(crate) fn new() -> Self {
        Self {
            streams: Streams::new(),
            binds: Binds::default(),
            pause: Pause::new(),
            in_hand: None,
            copied: 0,
            late_sink: None,
            late_unbind: None,
            admitted: 0,
            stopping: false,
        }
    }

    /// Receives the next message.
    pub(crate) fn receive(&mut self, channel: &mut Channel, lies: bool, fault: Option<Fault>) -> Checked {
        let Some(sent) = channel.receive() else { return Ok(()) };
        let id = sent.id;
        match sent.message {
            Message::Map { place, page, deadline_ns, .. } => {
                self.pause.ask(Change::Map { id, place, page }, Some(deadline_ns));
            }
            Message::Bind { handle, place } => {
                self.binds.bind(handle, place);
                channel.answer(id, Answer::Done);
            }
            Message::Unbind { unmap, .. } if lies => {
                channel.answer(id, Answer::Unbound { admitted: self.admitted });
                if unmap.is_some() {
                    channel.answer(id, Answer::Unmapped);
                }
            }
            Message::Unbind { handle, unmap, .. } => {
                if fault == Some(Fault::AcknowledgeBeforeUnbind) {
                    self.late_unbind = Some(handle);
                } else {
                    self.binds.unbind(handle);
                }
                channel.answer(id, Answer::Unbound { admitted: self.admitted });
                if let Some(place) = unmap {
                    let change = Change::Unmap { id, place };
                    if fault == Some(Fault::UnmapWithoutPause) {
                        self.streams.table[usize::from(place)] = Entry::Sink;
                        channel.answer(id, Answer::Unmapped);
                    } else {
                        self.pause.ask(change, None);
                    }
                }
            }
            Message::SwapOut => {
                self.pause.hold();
                if fault == Some(Fault::SwapWhileRunning) {
                    self.give_up(fault)?;
                    channel.answer(id, Answer::Done);
                } else {
                    self.pause.ask(Change::SwapOut { id }, None);
                }
            }
            Message::SwapIn { pages } => self.pause.ask(Change::SwapIn { id, pages }, None),
            Message::Release => self.pause.ask(Change::Release { id }, None),
            Message::Close => {
                self.stopping = true;
                self.pause.ask(Change::Close { id }, None);
            }
        }
        Ok(())
    }

    /// Does the next piece of what was asked for.
    pub(crate) fn change(&mut self, channel: &mut Channel, now_ns: u64, means: &mut Means<'_>) -> Checked {
        if let Some(place) = self.late_sink.take() {
            self.streams.table[usize::from(place)] = Entry::Sink;
        }
        if let Some(handle) = self.late_unbind.take() {
            self.binds.unbind(handle);
        }
        if let Some((change, has_holes)) = self.in_hand.take() {
            return self.make(change, has_holes, channel, means);
        }
        match self.pause.poll(self.streams.in_flight, now_ns) {
            Step::Idle | Step::Turn | Step::Wait => {}
            Step::Change(change) => self.in_hand = Some((change, false)),
            Step::Refuse(Change::Map { id, .. }) => channel.answer(id, Answer::Refused),
            Step::Refuse(_) => return Err("a change without a deadline was refused"),
        }
        Ok(())
    }

    fn make(
        &mut self,
        change: Change,
        has_holes: bool,
        channel: &mut Channel,
        means: &mut Means<'_>,
    ) -> Checked {
        let fault = means.fault;
        if let Change::Map { place, .. } | Change::Unmap { place, .. } = change
            && !has_holes
        {
            self.streams.map(place, Entry::Hole)?;
            self.in_hand = Some((change, true));
            if fault == Some(Fault::ResumeBeforeSinks)
                && let Change::Unmap { id, .. } = change
            {
                self.in_hand = None;
                self.late_sink = Some(place);
                channel.answer(id, Answer::Unmapped);
                return self.done();
            }
            return Ok(());
        }
        match change {
            Change::Map { id, place, page } => {
                self.streams.map(place, Entry::Page(page))?;
                channel.answer(id, Answer::Done);
            }
            Change::Unmap { id, place } => {
                self.streams.map(place, Entry::Sink)?;
                channel.answer(id, Answer::Unmapped);
            }
            Change::SwapOut { id } => {
                if self.copied < PLACES {
                    self.copy_out(means);
                    self.in_hand = Some((change, true));
                    return Ok(());
                }
                self.copied = 0;
                self.give_up(fault)?;
                channel.answer(id, Answer::Done);
            }
            Change::SwapIn { id, pages } => {
                if self.copied < PLACES {
                    self.copy_in(&pages, means)?;
                    self.in_hand = Some((change, true));
                    return Ok(());
                }
                self.copied = 0;
                if fault == Some(Fault::LetGoBeforeAdopted) {
                    self.let_go()?;
                }
                channel.answer(id, Answer::Done);
            }
            Change::Release { id } => {
                if fault != Some(Fault::LetGoBeforeAdopted) {
                    self.let_go()?;
                }
                channel.answer(id, Answer::Done);
            }
            Change::Close { id } => {
                for place in 0..PLACES {
                    self.streams.map(place, Entry::Sink)?;
                }
                self.binds.0.clear();
                channel.answer(id, Answer::Done);
            }
        }
        self.done()
    }

    fn let_go(&mut self) -> Checked {
        self.pause.release().map_err(|_| "a session was let go that was not held")
    }

    /// Copies the next page to host memory.
    fn copy_out(&mut self, means: &mut Means<'_>) {
        for place in self.copied..PLACES {
            self.copied = place + 1;
            if let Entry::Page(page) = self.streams.table[usize::from(place)] {
                means.area[usize::from(place)] = means.pages.at(page).content;
                return;
            }
        }
    }

    /// Maps the next page, and copies into it what was kept in host memory.
    fn copy_in(&mut self, pages: &PerPlace<Option<u8>>, means: &mut Means<'_>) -> Checked {
        for place in self.copied..PLACES {
            self.copied = place + 1;
            let at = usize::from(place);
            let Some(page) = pages[at] else { continue };
            self.streams.map(place, Entry::Page(page))?;
            means.pages.at(page).content = means.area[at];
            return ensure(means.area[at] == means.kept[at], "10: bytes were lost on their way");
        }
        Ok(())
    }

    /// Gives the pages up that were copied.
    fn give_up(&mut self, fault: Option<Fault>) -> Checked {
        for place in 0..PLACES {
            if let Entry::Page(_) = self.streams.table[usize::from(place)] {
                if fault == Some(Fault::SwapWhileRunning) {
                    self.streams.table[usize::from(place)] = Entry::Hole;
                } else {
                    self.streams.map(place, Entry::Hole)?;
                }
            }
        }
        Ok(())
    }

    fn done(&mut self) -> Checked {
        ensure(self.pause.done().is_ok(), "a change was done that was not in hand")
    }

    /// Whether the pump may submit.
    pub(crate) fn launches(&self) -> bool {
        !self.stopping && self.streams.in_flight < 6 && !self.pause.holds()
    }
}
