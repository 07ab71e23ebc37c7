//! The end of a session.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Instant,
};

use bulkhead_ring::Ended;
use bulkhead_schema::{Error, ErrorCode};

use super::{Control, LOOK, LOOK_LATE, over};
use crate::{
    control::{job::Change, link::report},
    device,
    memory::SlotMemory,
    session::{Asked, bindings::Object},
    watch::warden,
};

impl Control {
    pub(super) fn stop_pump(&mut self) {
        self.session.stopping.store(true, Ordering::Release);
        self.session.wake();
        if let Some(pump) = self.pump.take()
            && pump.join().is_err()
        {
            tracing::error!(session = self.session.id, "the pump panicked");
        }
    }

    /// Ends the session: no record is taken any more, what was submitted passes, everything is given back. Host memory
    /// that lies in the slot waits for an idle device, and the slot with it: the kernel is told before.
    pub(super) fn close(&mut self, id: u64) -> Result<(), Error> {
        let device = |error| device::error(&error);
        let since = Instant::now();
        let passed = self.pass();
        let ran_on = since.elapsed();
        let closing = Closing(&self.executor.closing);
        passed?;
        drop(closing);
        let mut state = self.session.state.lock();
        state.streams.page().end(Ended { code: ErrorCode::SessionLost as u16, device: 0 });
        let gpu = Arc::clone(&state.gpu);
        state.graphs.destroy_all(&*gpu).map_err(device)?;
        state.streams.destroy_all().map_err(device)?;
        state.events.destroy_all(&*gpu).map_err(device)?;
        state.closed = true;
        let objects: Vec<Object> = state.bindings.drain().collect();
        let grants = std::mem::take(&mut state.grants);
        let waiters = std::mem::take(&mut state.waiters);
        let changes = state.pause.abandon();
        drop(state);
        drop(grants);
        let mut memory = self.memory.take();
        // Nobody waits for what is cleared from here on.
        memory.iter_mut().for_each(|memory| memory.session = None);
        let cleared = memory.as_mut().map_or(Ok(()), |memory| memory.clear());
        self.executor.entries.lock().retain(|(session, _), _| *session != self.session.id);
        for waiter in waiters {
            waiter.done(&self.session.link);
        }
        for Asked { id, change } in changes {
            match change {
                // It is unmapped.
                Change::Unmap(_) => {
                    report(self.session.link.reply(id, None, |mut reply| reply.set_quiescent(())));
                    self.answer(id, &Ok(()));
                }
                Change::Map(_)
                | Change::Share { .. }
                | Change::Split { .. }
                | Change::Adopt { .. }
                | Change::MapHost { .. }
                | Change::SwapOut { .. }
                | Change::SwapIn { .. } => self.answer(id, &Err(over())),
            }
        }
        for (id, _) in std::mem::take(&mut self.leaving) {
            // Nobody gets its place before the slot is somebody's.
            self.answer(id, &Ok(()));
        }
        drop(objects);
        self.area = None;
        self.page = None;
        cleared.map_err(device)?;
        tracing::info!(session = self.session.id, ?ran_on, cleared = ?since.elapsed(), "closed");
        memory.map_or(Ok(()), |memory| self.give_back(id, memory)).map_err(device)
    }

    fn give_back(&self, id: u64, mut memory: Box<SlotMemory>) -> Result<(), bulkhead_gpu::Error> {
        let bytes = memory.host_bytes();
        let mut unmapped = None;
        let mut unmap = |memory: &mut SlotMemory| {
            self.executor.while_idle(|| unmapped = Some(memory.unmap_all_host()));
            if unmapped.is_none() && self.executor.reaper.is_full() {
                self.executor.try_drained(|| unmapped = Some(memory.unmap_all_host()));
            }
            unmapped.take()
        };
        if bytes > 0 {
            let mut done = unmap(&mut memory);
            if done.is_none() {
                let _waiting = self.executor.reaper.count(bytes);
                report(self.session.link.reply(id, None, |mut reply| reply.set_quiescent(())));
                while done.is_none() {
                    thread::sleep(LOOK_LATE);
                    done = unmap(&mut memory);
                }
            }
            done.unwrap_or(Ok(()))?;
        }
        self.executor.slots.give_back(memory)
    }

    /// Ends the session's kernels, and waits until all that was submitted has passed: until then its memory is
    /// quarantined, charged and out of reach. Where kernels do not end, the executor does.
    pub(super) fn pass(&mut self) -> Result<(), Error> {
        let device = |error| device::error(&error);
        self.stop_pump();
        let mut state = self.session.state.lock();
        // The pump may have stopped before it saw that.
        if let Some(error) = state.broken.clone() {
            self.session.tell_kernel(&mut state, &error);
        }
        state.streams.forget_held();
        state.streams.mark_all().map_err(device)?;
        let since = Instant::now();
        while state.streams.in_flight() > 0 {
            state.gpu.check().map_err(device)?;
            self.session.stop_kernels(&mut state).map_err(device)?;
            warden::check_stopped(&self.executor, &self.session, &mut state);
            let nap = (since.elapsed() / 32).clamp(LOOK, LOOK_LATE);
            parking_lot::MutexGuard::unlocked(&mut state, || thread::sleep(nap));
        }
        Ok(())
    }
}

/// A session that is closing and has no work on the device any more.
struct Closing<'a>(&'a AtomicU32);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
