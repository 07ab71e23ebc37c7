//! Executors that have started and wait for an isolated session each.
//!
//! A program need not wait for the driver to start where there is one. What the driver takes of the device for them is taken
//! from what sessions may use, as long as the kernel runs.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use bulkhead_schema::limits;
use tokio::sync::Notify;

use crate::executor_proxy::{DeviceInfo, ExecutorProxy, Incarnation, isolated::context_bytes};

/// The executors of a device that wait.
pub(super) struct Pool {
    /// How many there should be.
    size: u32,
    /// Those that have waited longest first.
    waiting: RefCell<VecDeque<(Rc<ExecutorProxy>, Rc<Incarnation>)>>,
    /// Told when there are fewer.
    fewer: Notify,
    /// Whether one is just starting; told when it has started, or has not.
    is_starting: Cell<bool>,
    started: Notify,
}

impl Pool {
    pub(super) fn new(size: u32) -> Self {
        Self {
            size: size.min(limits::WARM_EXECUTORS_MAX),
            waiting: RefCell::default(),
            fewer: Notify::new(),
            is_starting: Cell::new(false),
            started: Notify::new(),
        }
    }

    /// What they take of the device.
    pub(super) fn bytes(&self, info: &DeviceInfo) -> u64 {
        u64::from(self.size) * context_bytes(info)
    }

    /// The one that has waited longest and is alive.
    pub(super) fn take(&self) -> Option<(Rc<ExecutorProxy>, Rc<Incarnation>)> {
        let taken = std::iter::from_fn(|| self.waiting.borrow_mut().pop_front())
            .find(|(_, incarnation)| incarnation.link.failure().is_none());
        if self.size > 0 {
            self.fewer.notify_one();
        }
        taken
    }

    /// The same, or the one that is just starting, once it has.
    pub(super) async fn take_soon(&self) -> Option<(Rc<ExecutorProxy>, Rc<Incarnation>)> {
        loop {
            let taken = self.take();
            if taken.is_some() || !self.is_starting.get() {
                return taken;
            }
            self.started.notified().await;
        }
    }

    fn is_full(&self) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|(_, incarnation)| incarnation.link.failure().is_none());
        waiting.len() >= self.size as usize
    }

    /// How many wait.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.waiting.borrow().len()).unwrap_or(u32::MAX)
    }
}

impl ExecutorProxy {
    /// How many executors wait for an isolated session.
    pub(crate) fn warm(&self) -> u32 {
        self.pool.len()
    }

    /// Keeps the pool full, a start at a time and none soon after another. Never ends.
    pub(super) async fn keep_pool(self: Rc<Self>) {
        // What stood in the way last, which is said once.
        let mut told = String::new();
        loop {
            if self.pool.is_full() {
                tokio::select! {
                    () = self.pool.fewer.notified() => {}
                    // One may have ended that nobody asked for.
                    () = tokio::time::sleep(self.limits.second) => {}
                }
                continue;
            }
            self.pool.is_starting.set(true);
            let started = self.start_alone().await;
            self.pool.is_starting.set(false);
            // Told once whoever waits can see what came of it: this task goes on before they do.
            self.pool.started.notify_waiters();
            match started {
                Ok(started) => {
                    tracing::debug!(
                        device = self.index,
                        pid = started.1.pid,
                        "an executor waits for an isolated session"
                    );
                    told.clear();
                    self.pool.waiting.borrow_mut().push_back(started);
                    tokio::time::sleep(self.limits.second / 5).await;
                }
                Err(error) => {
                    let error = error.to_string();
                    if error != told {
                        tracing::warn!(device = self.index, %error, "no executor starts that would wait");
                        told = error;
                    }
                    tokio::time::sleep(self.limits.second * 5).await;
                }
            }
        }
    }
}
