//! Revocations, as clients wait for them.

use std::{cell::Cell, rc::Rc, time::Duration};

use bulkhead_caps::{Extent, RevocationId};
use bulkhead_mm::Resource;
use bulkhead_schema::{
    Error, ErrorCode, Handle,
    bulkhead_capnp::{Moment, gpu_revocation},
    limits,
};

use crate::{
    books::{Batch, Stage},
    session::{Charge, Session},
};

/// A revocation that somebody may ask about.
pub(crate) struct Revocation {
    session: Rc<Session>,
    id: RevocationId,
    /// How many capabilities ended.
    pub(crate) count: u32,
    /// What ended before for the same objects, and can still be reached: it is waited for too.
    lingering: Vec<Rc<Batch>>,
    /// Overdue once is overdue for good.
    overdue: Cell<bool>,
    _charge: Charge,
}

impl Revocation {
    /// Marks what is derived from a capability of a session, and the capability itself where that is asked for.
    pub(crate) fn begin(session: &Rc<Session>, handle: Handle, extent: Extent) -> Result<Self, Error> {
        let charge = session.charge(Resource::Revocations, 1)?;
        let patience = session.limits.seconds(limits::DRAIN_SECONDS);
        let marked = session.books().revoke(session.owner, handle, extent, patience)?;
        tracing::debug!(session = session.id, ended = marked.count, "revoked");
        Ok(Self {
            session: Rc::clone(session),
            id: marked.id,
            count: marked.count,
            lingering: marked.lingering,
            overdue: Cell::new(false),
            _charge: charge,
        })
    }

    /// Whether a moment has come.
    fn has_reached(&self, moment: Moment) -> Result<bool, Error> {
        let moments = self.session.books().moments(self.id)?;
        let lingering = |stage| self.lingering.iter().all(|batch| batch.stage() >= stage);
        if moments.overdue {
            self.overdue.set(true);
        }
        Ok(match moment {
            Moment::Severed => moments.severed && lingering(Stage::Severed),
            Moment::Quiescent => moments.quiescent && lingering(Stage::Quiescent),
            Moment::Reclaimed => moments.reclaimed && lingering(Stage::Quiescent),
        })
    }

    async fn wait(&self, moment: Moment, timeout: Duration) -> Result<bool, Error> {
        let mut progress = self.session.books().progress();
        let reached = async {
            loop {
                progress.mark_unchanged();
                if self.has_reached(moment)? {
                    return Ok(true);
                }
                // The books outlive their sessions.
                drop(progress.changed().await);
            }
        };
        match tokio::time::timeout(timeout, reached).await {
            Ok(reached) => reached,
            Err(_) => self.has_reached(moment),
        }
    }
}

impl Drop for Revocation {
    fn drop(&mut self) {
        self.session.books().forget(self.id);
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
                done.set_quarantined(self.overdue.get());
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
