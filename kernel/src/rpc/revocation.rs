//! Revocations, as clients wait for them.

use std::{rc::Rc, time::Duration};

use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{Moment, gpu_revocation},
};

use crate::{
    principals::{Counted, Party},
    registry::{Asked, Marked},
    session::{Session, reference::Paid},
};

/// A revocation that somebody may ask about.
pub(crate) struct Revocation {
    session: Rc<Session>,
    /// Who may wait for it.
    party: Rc<Party>,
    asked: Rc<Asked>,
    /// How many capabilities ended.
    pub(crate) count: u32,
    _paid: Paid,
}

impl Revocation {
    /// Of what was marked.
    pub(crate) fn new(session: &Rc<Session>, party: &Rc<Party>, marked: Marked, paid: Paid) -> Self {
        let count = marked.count;
        let asked = session.registry().follow(marked);
        Self { session: Rc::clone(session), party: Rc::clone(party), asked, count, _paid: paid }
    }

    async fn wait(&self, moment: Moment, timeout: Duration) -> Result<bool, Error> {
        let registry = self.session.registry();
        let _waits = self.party.take(Counted::Waits, 1)?;
        let reached = async {
            loop {
                let further = self.asked.further();
                if self.asked.has_reached(registry, moment)? {
                    return Ok(true);
                }
                further.await;
            }
        };
        match tokio::time::timeout(timeout, reached).await {
            Ok(reached) => reached,
            Err(_) => self.asked.has_reached(registry, moment),
        }
    }
}

impl Drop for Revocation {
    fn drop(&mut self) {
        self.session.registry().forget(self.asked.id);
    }
}

impl gpu_revocation::Server for Revocation {
    async fn wait(
        self: Rc<Self>,
        params: gpu_revocation::WaitParams,
        mut results: gpu_revocation::WaitResults,
    ) -> Result<(), capnp::Error> {
        let (moment, timeout) = {
            let params = params.get()?;
            (params.get_moment(), Duration::from_millis(u64::from(params.get_timeout_ms())))
        };
        drop(params);
        let waited = match moment {
            Ok(moment) => Revocation::wait(&self, moment, timeout).await,
            Err(_) => Err(Error::new(ErrorCode::InvalidArgument, "there is no such moment")),
        };
        let result = results.get().init_result();
        match waited {
            Ok(reached) => {
                let mut done = result.init_ok();
                done.set_reached(reached);
                done.set_quarantined(self.asked.is_overdue());
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
