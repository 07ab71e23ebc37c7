//! The standby: a second executor that is told all that the first is told, and goes on with the sessions when that is lost.

use std::rc::Rc;

use crate::executor_proxy::{
    ExecutorProxy, Incarnation, Process, Started, finish, how, incarnation::Standby,
};

impl ExecutorProxy {
    /// The second executor, as long as there is one: new sessions are told to it too.
    pub(crate) fn standby(&self) -> Option<Rc<Incarnation>> {
        let standby = self.standby.borrow();
        let alive = standby.as_ref().filter(|standby| standby.incarnation.link.failure().is_none());
        alive.map(|standby| Rc::clone(&standby.incarnation))
    }

    /// Its process, once it could take over; 0 before.
    pub(crate) fn standby_pid(&self) -> u32 {
        let standby = self.standby.borrow();
        standby.as_ref().filter(|standby| standby.is_ready).map_or(0, |standby| standby.incarnation.pid)
    }

    /// How often a standby took over.
    pub(crate) fn failovers(&self) -> u32 {
        self.failovers.get()
    }

    /// The standby, to serve from here on. Sessions that it does not know end.
    pub(super) fn take_over(&self) -> Option<Started> {
        let standby = self.standby.take()?;
        if standby.incarnation.link.failure().is_some() {
            tokio::task::spawn_local(finish(standby.child));
            return None;
        }
        self.failovers.set(self.failovers.get().saturating_add(1));
        tracing::warn!(
            target: "bulkhead::audit",
            device = self.index, pid = standby.incarnation.pid, "the standby takes over"
        );
        let process = Process { child: standby.child, cell: None, output: None };
        Some(Started { incarnation: standby.incarnation, process })
    }

    /// Keeps a standby for whichever executor serves, and has each told of every session. Never ends.
    pub(crate) async fn keep_standby(self: Rc<Self>, tell: impl AsyncFn(Rc<Incarnation>)) {
        loop {
            if let Err(error) = self.wait().await {
                tracing::info!(device = self.index, %error, "no executor that a standby could stand by");
                tokio::time::sleep(self.limits.second).await;
                continue;
            }
            match self.launch().await {
                Ok(started) => self.stand_by(started, &tell).await,
                Err(error) => tracing::warn!(device = self.index, %error, "no standby starts"),
            }
            tokio::time::sleep(self.limits.second / 5).await;
        }
    }

    /// One standby's time until it takes over or is lost.
    async fn stand_by(&self, started: Started, tell: &impl AsyncFn(Rc<Incarnation>)) {
        let Started { incarnation, process: Process { child, .. } } = started;
        self.standby.replace(Some(Standby { incarnation: Rc::clone(&incarnation), child, is_ready: false }));
        let told = tell(Rc::clone(&incarnation));
        tokio::pin!(told);
        loop {
            let Some(is_ready) = self.is_ready(&incarnation) else {
                // It has taken over.
                return;
            };
            if incarnation.link.failure().is_some() {
                let lost = self.standby.take();
                let status = how(finish(lost.and_then(|standby| standby.child)).await.as_ref());
                tracing::warn!(
                    target: "bulkhead::audit",
                    device = self.index, pid = incarnation.pid, status, "standby ended"
                );
                return;
            }
            // Its end is noticed whatever sessions do.
            tokio::select! {
                biased;
                _ = incarnation.link.ended() => {}
                () = &mut told, if !is_ready => self.be_ready(&incarnation),
                () = tokio::time::sleep(self.limits.second / 20) => {}
            }
        }
    }

    /// Whether this standby is ready; `None` where it is no standby any more.
    fn is_ready(&self, incarnation: &Rc<Incarnation>) -> Option<bool> {
        let standby = self.standby.borrow();
        let same = standby.as_ref().filter(|standby| Rc::ptr_eq(&standby.incarnation, incarnation));
        same.map(|standby| standby.is_ready)
    }

    fn be_ready(&self, incarnation: &Rc<Incarnation>) {
        let mut standby = self.standby.borrow_mut();
        if let Some(standby) =
            standby.as_mut().filter(|standby| Rc::ptr_eq(&standby.incarnation, incarnation))
        {
            standby.is_ready = true;
            tracing::info!(device = self.index, pid = incarnation.pid, "a standby is ready");
        }
    }
}
