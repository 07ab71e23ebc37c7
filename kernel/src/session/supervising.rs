//! What goes on for all sessions of a device as long as the kernel runs.

use std::{rc::Rc, time::Duration};

use crate::{
    executor_proxy::{Answer, Rest, Taken},
    session::{Session, device::Device},
};

impl Device {
    /// Keeps an executor running, a standby where that is wanted, and what goes on beside. Never ends.
    pub(crate) async fn supervise(self: Rc<Self>) {
        let limits = self.executor.limits();
        tokio::task::spawn_local(Rc::clone(&self).give_back_areas(limits.second));
        if limits.standby {
            let device = Rc::clone(&self);
            let standby = async move |incarnation| device.tell(incarnation).await;
            tokio::task::spawn_local(Rc::clone(&self.executor).keep_standby(standby));
        }
        tokio::task::spawn_local(Rc::clone(&self).keep_metering(limits.second));
        Rc::clone(&self.executor).supervise().await;
    }

    /// Reads the meters. Never ends.
    async fn keep_metering(self: Rc<Self>, second: Duration) {
        let (mut is_told, mut is_known, mut rest) = (false, true, Rest::default());
        loop {
            tokio::time::sleep(second).await;
            let sessions: Vec<(Rc<Session>, u64)> = self
                .registry
                .sessions()
                .into_iter()
                .filter(|session| {
                    // Sessions opened from it draw on its account, and have its process.
                    session.device.executor.is_isolated()
                        && session.parent().is_none()
                        && session.live().is_ok()
                })
                .map(|session| (Rc::clone(&session), session.charged_for_process()))
                .collect();
            // Whoever nobody knows anything of is asked only where there is somebody to meter.
            let wanted = is_known || !sessions.is_empty();
            let Some(shared) = self.executor.running().filter(|_| wanted) else { continue };
            let asked = shared.link.call(None, Vec::new(), |mut request| request.set_taken_memory(()));
            let taken = match asked.await {
                Ok(Answer::Words(words)) => Taken::of(&words),
                Ok(_) => None,
                Err(error) => {
                    // The software GPU has nobody who could tell, and nothing that is taken beside.
                    if !is_told && !sessions.is_empty() && shared.info.backend != "software" {
                        is_told = true;
                        tracing::warn!(device = self.executor.index, %error, "what processes take of the device is not known, nor charged");
                    }
                    None
                }
            };
            is_known = taken.is_some();
            let Some(taken) = taken else { continue };
            if let Some(now) = taken.rest() {
                self.executor.set_unclaimed(&shared, rest.read(now));
            }
            for (session, before) in sessions {
                if let Some(taken) = taken.of_process.get(&u64::from(session.incarnation().pid)) {
                    session.meter(*taken, before);
                }
            }
        }
    }
}
