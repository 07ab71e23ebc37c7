//! Changes of a session's pages, each of them in a pause.

use std::{
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use bulkhead_mm::Step;
use bulkhead_schema::{Error, ErrorCode};

use super::{Control, over};
use crate::{
    control::{
        job::{CUT_PATIENCE, Change, PATIENCE, Then},
        link::{answer, report},
    },
    device,
    memory::{Leave, Old},
    session::{Asked, Swapped},
};

/// Whether whoever asked for a change has been answered.
pub(super) enum Told {
    Not,
    Already,
}

fn hole() -> Error {
    Error::new(ErrorCode::Internal, "the session's slot has a hole")
}

impl Control {
    /// Asks for a change of pages, if it can be made as things are.
    pub(super) fn ask(&mut self, id: u64, change: Change) -> Result<(), Error> {
        let memory = self.memory()?;
        let checked = match &change {
            Change::Map(span) | Change::Adopt { span, .. } => {
                memory.check_free(span.at, span.bytes).map(drop)
            }
            Change::Unmap(span) => memory.check_taken(span.at, span.bytes),
            Change::MapHost { span, handle, .. } => {
                Self::may_register(*handle)?;
                memory.check_host(span.at, span.bytes)
            }
            Change::Share { at, mapping } => memory.check_window(*at, mapping.bytes()).map(drop),
            Change::Split { arena, at, .. } => memory.check_split(arena.at, arena.bytes, *at),
            Change::SwapOut { arenas, .. } => memory.check_swap(arenas),
            Change::SwapIn { arenas, .. } => {
                let mut arenas = arenas.iter().filter(|arena| !arena.is_gap());
                arenas.try_for_each(|arena| memory.check_window(arena.at, arena.bytes).map(drop))
            }
        };
        checked.map_err(|error| device::error(&error))?;
        let nobody_waits = match &change {
            // No page of the slot changes, or none that kernels may use.
            Change::Map(span) | Change::Adopt { span, .. } => {
                memory.is_on_shelf(span.at, span.bytes) || memory.means.plain
            }
            Change::Share { .. } | Change::MapHost { .. } => memory.means.plain,
            Change::Unmap(_) | Change::Split { .. } | Change::SwapOut { .. } | Change::SwapIn { .. } => false,
        };
        if nobody_waits {
            return match self.change(id, change).map_err(|error| device::error(&error))? {
                Told::Not => {
                    self.answer(id, &Ok(()));
                    Ok(())
                }
                Told::Already => Ok(()),
            };
        }
        let patience = match &change {
            Change::Unmap(_) => None,
            Change::SwapOut { patience, .. } => Some(*patience),
            Change::Map(_)
            | Change::Share { .. }
            | Change::Adopt { .. }
            | Change::MapHost { .. }
            | Change::SwapIn { .. } => Some(PATIENCE),
            Change::Split { .. } => Some(CUT_PATIENCE),
        };
        let nanoseconds = |patience: Duration| u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        let deadline = patience.map(|patience| self.executor.now_ns().saturating_add(nanoseconds(patience)));
        self.session.state.lock().pause.ask(Asked { id, change }, deadline);
        Ok(())
    }

    /// Makes the changes that can be made by now.
    pub(super) fn advance(&mut self) {
        let mut moved = false;
        loop {
            let mut state = self.session.state.lock();
            if state.broken.is_some() {
                let waiting = state.pause.abandon();
                drop(state);
                waiting.iter().for_each(|asked| self.answer(asked.id, &Err(over())));
                self.waits_since = None;
                return;
            }
            let in_flight = state.streams.in_flight();
            let step = state.pause.poll(in_flight, self.executor.now_ns());
            match step {
                Step::Idle => {
                    drop(state);
                    self.waits_since = None;
                    if moved {
                        self.session.wake();
                    }
                    return;
                }
                Step::Turn => {
                    drop(state);
                    self.waits_since = Some(Instant::now());
                    self.session.wake();
                    return;
                }
                Step::Wait => {
                    let marked = state.streams.mark_all();
                    drop(state);
                    // A device that is lost ends the process elsewhere.
                    if let Err(error) = marked {
                        tracing::error!(%error, "a session's work cannot be waited for");
                    }
                    self.waits_since.get_or_insert_with(Instant::now);
                    return;
                }
                Step::Refuse(Asked { id, change }) => {
                    moved = true;
                    drop(state);
                    let error = match change {
                        Change::Split { .. } => {
                            let message = "the memory cannot be cut: kernels of its owner run on";
                            Error::new(ErrorCode::TimedOut, message)
                                .remedy("try again when they have ended, or have whole allocations given")
                        }
                        Change::SwapOut { .. } => {
                            let message = "the session's memory cannot be moved out: its kernels run on";
                            // The kernel's code for one that is busy: it looks for another.
                            Error::new(ErrorCode::OutOfMemory, message).remedy(
                                "try again when they have ended, or end the session with `bulkhead evict`",
                            )
                        }
                        Change::Map(_)
                        | Change::Unmap(_)
                        | Change::Share { .. }
                        | Change::Adopt { .. }
                        | Change::MapHost { .. }
                        | Change::SwapIn { .. } => {
                            let message = "the session's memory cannot change: its kernels run on";
                            Error::new(ErrorCode::OutOfMemory, message)
                                .remedy("allocate before launching kernels that run for long")
                        }
                    };
                    self.answer(id, &Err(error));
                }
                Step::Change(Asked { id, change }) => {
                    moved = true;
                    drop(state);
                    match self.change(id, change).map_err(|error| device::error(&error)) {
                        Ok(Told::Not) => self.answer(id, &Ok(())),
                        Ok(Told::Already) => {}
                        Err(error) => self.answer(id, &Err(error)),
                    }
                    let mut state = self.session.state.lock();
                    if self.memory.as_ref().is_some_and(|memory| memory.is_broken()) {
                        state.broken.get_or_insert(hole());
                    } else if let Err(error) = state.pause.done() {
                        tracing::error!(%error, "a pause");
                    }
                }
            }
        }
    }

    /// Unmaps host memory that is to go, if no session has work on the device at this moment.
    pub(super) fn let_host_go(&mut self) {
        let Some(memory) = self.memory.as_mut().filter(|_| !self.leaving.is_empty()) else { return };
        let mut gone = Vec::new();
        let executor = Arc::clone(&self.executor);
        executor.while_idle(|| {
            for (id, span) in self.leaving.drain(..) {
                gone.push((id, memory.unmap_host(span.at, span.bytes)));
            }
        });
        if memory.is_broken() {
            self.session.state.lock().broken.get_or_insert(hole());
        }
        for (id, result) in gone {
            self.answer(id, &result.map_err(|error| device::error(&error)));
        }
    }

    /// Changes pages. The session's work has passed, and nothing is submitted before this returns.
    pub(super) fn change(&mut self, id: u64, change: Change) -> Result<Told, bulkhead_gpu::Error> {
        let Some(memory) = self.memory.as_mut() else {
            return Err(bulkhead_gpu::Error::Refused("the session is over".into()));
        };
        let changed: Result<(), bulkhead_gpu::Error> = match change {
            Change::Map(span) => memory.grow(span.at, span.bytes),
            Change::MapHost { span, handle, descriptor } => {
                let range = memory.map_host(span.at, span.bytes, descriptor.as_fd())?;
                self.bind_host(handle, span.at, range);
                Ok(())
            }
            Change::Unmap(span) if memory.is_host(span.at, span.bytes) => {
                report(self.session.link.reply(id, None, |mut reply| reply.set_quiescent(())));
                self.leaving.push((id, span));
                return Ok(Told::Already);
            }
            Change::Unmap(span) => {
                memory.find(span.at, span.bytes)?;
                report(self.session.link.reply(id, None, |mut reply| reply.set_quiescent(())));
                let hole = memory.take_out(span.at, span.bytes, Leave::Scrubbed)?;
                // The memory is given back, and nothing of the session runs before its sinks are there.
                answer(&self.session.link, id, &Ok(()));
                // A hole that stays ends the session.
                memory.fill_in(hole).unwrap_or_default();
                return Ok(Told::Already);
            }
            Change::Share { at, mapping } => memory.put(at, mapping),
            Change::Split { arena, at, old } => {
                let split = memory.split(arena.at, arena.bytes, at, old);
                if split.is_ok() && old == Old::Kept {
                    self.hold();
                }
                split
            }
            Change::Adopt { span, descriptor, whose } => memory.adopt(span.at, span.bytes, descriptor, whose),
            Change::SwapOut { arenas, copy: false, .. } => {
                memory.check_swap(&arenas)?;
                memory.forget(&arenas)?;
                memory.means.physical.settle();
                Ok(())
            }
            Change::SwapOut { arenas, copy: true, .. } => {
                if !arenas.is_empty() {
                    memory.swap_out(&arenas, self.area.as_ref())?;
                }
                self.hold();
                Ok(())
            }
            Change::SwapIn { arenas, then } => {
                if !arenas.is_empty() {
                    memory.swap_in(&arenas, self.area.as_ref())?;
                }
                match then {
                    Then::GoesOn => self.go_on(),
                    Then::StaysHeld => {}
                }
                Ok(())
            }
        };
        changed.map(|()| Told::Not)
    }

    /// Holds the session's work back until it is [told to go on](Self::go_on).
    fn hold(&self) {
        let mut state = self.session.state.lock();
        if state.swapped.replace(Swapped::Quiet).is_none() {
            state.pause.hold();
        }
    }

    fn go_on(&self) {
        let mut state = self.session.state.lock();
        if state.swapped.take().is_some()
            && let Err(error) = state.pause.release()
        {
            tracing::error!(%error, "a session that was held");
        }
    }
}
