//! What may only be given back in calls that wait for every running kernel, and who makes them.
//!
//! On an NVIDIA device, unregistering host memory and unloading code wait for the kernels of all sessions; and while
//! somebody waits to unregister, nobody can launch. So nobody who serves a session does it: whatever is dropped is
//! handed to one thread, the *reaper*. It unloads as it comes, and unregisters while no session has work on the
//! device and the *gate* keeps new work from it.
//!
//! Where so much waits that nobody may register more, new work is held back for a moment, again and again; and where somebody
//! wants to register, that is a wait like that of whoever loads code ([`moments`](crate::moments)).

use std::{
    collections::VecDeque,
    sync::{Weak, atomic::Ordering, mpsc},
    time::Duration,
};

use bulkhead_gpu::Gpu;

use crate::{
    executor::Executor,
    moments::waits::Entered,
    watch::remains::{Reaped, Remains},
};

/// How often the reaper looks whether the device is idle.
const LOOK: Duration = Duration::from_millis(1);

impl Remains {
    /// The reaper's life.
    pub(crate) fn run(&self, executor: &Weak<Executor>, gpu: &dyn Gpu) {
        if let Err(error) = gpu.bind_thread() {
            tracing::error!(%error, "the reaper");
        }
        let mut waiting = VecDeque::new();
        let mut held_up: Option<Entered> = None;
        loop {
            // Slots that close are counted, and are in no queue.
            let next = if waiting.is_empty() && !self.waiting.is_full() {
                self.receiver.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected)
            } else {
                self.receiver.recv_timeout(LOOK)
            };
            match next {
                Ok(image @ Reaped::Image(_)) => image.give_back(gpu),
                Ok(next @ (Reaped::Host(_) | Reaped::Page(_))) => waiting.push_back(next),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            let Some(executor) = executor.upgrade() else { break };
            while let Some(next) = waiting.pop_front() {
                let bytes = next.bytes();
                let mut next = Some(next);
                let give_back = |next: &mut Option<Reaped>| {
                    next.take().into_iter().for_each(|next| next.give_back(gpu));
                };
                executor.while_idle(|| give_back(&mut next));
                if next.is_some() && self.waiting.is_full() {
                    executor.try_drained(|| give_back(&mut next));
                }
                if let Some(next) = next {
                    waiting.push_front(next);
                    break;
                }
                self.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.waiting.pieces.fetch_sub(1, Ordering::Relaxed);
            }
            if !self.waiting.is_full() || !self.waiting.is_wanted() {
                held_up = None;
            } else if held_up.is_none() {
                held_up = Some(executor.waits.enter(None, "register host memory"));
            }
        }
        // The executor ends, and everything with it.
        waiting.into_iter().for_each(std::mem::forget);
    }
}
