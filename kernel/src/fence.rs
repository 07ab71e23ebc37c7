//! Capabilities for points of a stream.

use std::{rc::Rc, time::Duration};

use bulkhead_schema::{
    Error,
    bulkhead_capnp::{gpu_capability, gpu_fence},
};
use tokio::sync::watch;

use crate::session::Session;

/// Whether a fence has passed, or why nobody will know.
pub(crate) type Passed = Option<Result<(), Error>>;

/// A point of a stream that others can wait for.
pub(crate) struct Fence {
    session: Rc<Session>,
    passed: watch::Receiver<Passed>,
}

impl Fence {
    pub(crate) fn new(session: Rc<Session>, passed: watch::Receiver<Passed>) -> Self {
        Self { session, passed }
    }

    /// Waits until it has passed, the time is up, or the session is over.
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let mut passed = self.passed.clone();
        let now = passed.borrow().clone();
        if let Some(passed) = now {
            return passed.map(|()| true);
        }
        let answer = tokio::select! {
            biased;
            answer = passed.wait_for(Option::is_some) => answer.ok().and_then(|passed| passed.clone()),
            error = self.session.over() => Some(Err(error)),
            () = tokio::time::sleep(timeout) => None,
        };
        answer.map_or(Ok(false), |passed| passed.map(|()| true))
    }
}

impl gpu_capability::Server for Fence {}

impl gpu_fence::Server for Fence {
    async fn wait(
        self: Rc<Self>,
        params: gpu_fence::WaitParams,
        mut results: gpu_fence::WaitResults,
    ) -> Result<(), capnp::Error> {
        let timeout = Duration::from_millis(u64::from(params.get()?.get_timeout_ms()));
        drop(params);
        let waited = Fence::wait(&self, timeout).await;
        let result = results.get().init_result();
        match waited {
            Ok(passed) => result.init_ok().set_passed(passed),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
