//! The standby: a second executor that is told all that the first is told, and goes on with the sessions when that is lost.

use std::rc::Rc;

use bulkhead_schema::Error;
use futures::future;
use tokio::process::Child;

use super::{Device, Incarnation, Started, finish};

/// A second executor.
pub(super) struct Standby {
    incarnation: Rc<Incarnation>,
    child: Option<Child>,
    /// Whether it knows every session that was there when it came.
    is_ready: bool,
}

impl Device {
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
        Some(Started { incarnation: standby.incarnation, child: standby.child })
    }

    /// Keeps a standby for whichever executor serves. Never ends.
    pub(super) async fn keep_standby(self: Rc<Self>) {
        loop {
            if let Err(error) = self.wait().await {
                tracing::info!(device = self.index, %error, "no executor that a standby could stand by");
                tokio::time::sleep(self.limits.second).await;
                continue;
            }
            match self.launch().await {
                Ok(started) => self.stand_by(started).await,
                Err(error) => tracing::warn!(device = self.index, %error, "no standby starts"),
            }
            tokio::time::sleep(self.limits.second / 5).await;
        }
    }

    /// One standby's time until it takes over or is lost.
    async fn stand_by(&self, started: Started) {
        let Started { incarnation, child } = started;
        self.standby.replace(Some(Standby { incarnation: Rc::clone(&incarnation), child, is_ready: false }));
        match self.tell(&incarnation).await {
            Ok(()) => {
                if let Some(standby) = self.standby.borrow_mut().as_mut() {
                    standby.is_ready = true;
                }
                tracing::info!(device = self.index, pid = incarnation.pid, "a standby is ready");
            }
            // Where the first is lost on the way, this one goes on with those of whom it knows all.
            Err(error) => match self.running() {
                Some(running) if !Rc::ptr_eq(&running, &incarnation) => {
                    incarnation.link.fail_with(format!("it does not follow: {error}"));
                }
                Some(_) | None => {
                    tracing::warn!(device = self.index, %error, "a standby knows some sessions only")
                }
            },
        }
        loop {
            let is_there =
                self.standby.borrow().as_ref().is_some_and(|s| Rc::ptr_eq(&s.incarnation, &incarnation));
            if !is_there {
                // It has taken over.
                return;
            }
            if incarnation.link.failure().is_some() {
                let lost = self.standby.take();
                let status = finish(lost.and_then(|standby| standby.child)).await;
                tracing::warn!(
                    target: "bulkhead::audit",
                    device = self.index, pid = incarnation.pid, ?status, "standby ended"
                );
                return;
            }
            tokio::select! {
                _ = incarnation.link.ended() => {}
                () = tokio::time::sleep(self.limits.second / 20) => {}
            }
        }
    }

    /// Tells a standby of every session: first what each has, then what each has of others'.
    async fn tell(&self, standby: &Rc<Incarnation>) -> Result<(), Error> {
        let sessions = self.books.sessions();
        // Each to its end, whatever becomes of the others: whoever goes on waits for what it is told, and a session that
        // cannot follow falls behind alone.
        let own = sessions.iter().map(|one| one.follow_or_fall_behind(standby, one.follow(standby)));
        future::join_all(own).await;
        let others =
            sessions.iter().map(|one| one.follow_or_fall_behind(standby, one.follow_others(standby)));
        future::join_all(others).await;
        standby.link.failure().map_or(Ok(()), |failure| Err(failure.error()))
    }
}
