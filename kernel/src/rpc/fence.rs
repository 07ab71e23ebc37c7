//! Capabilities for completion points: of a stream, or of whoever signals them.

use std::{rc::Rc, time::Duration};

use bulkhead_caps::{Access, Kind};
use bulkhead_schema::{
    Error,
    bulkhead_capnp::{fence_state, gpu_fence, gpu_signal, result},
};
use tokio::sync::watch;

use crate::{
    principals::Counted,
    refusal::internal,
    registry::{Passed, What},
    rpc::served::{Served, capability},
    session::{Object, reference::Facet},
};

/// A completion point to wait for.
pub(crate) struct Fence(pub(crate) Served);

/// A completion point to signal.
pub(crate) struct Signal(pub(crate) Served);

capability!(Fence);
capability!(Signal);

fn point(thing: &Object) -> Result<&watch::Sender<Passed>, Error> {
    match &thing.what {
        What::Point(passed) => Ok(passed),
        What::Memory(_)
        | What::Host { .. }
        | What::Code(_)
        | What::Program
        | What::Peer
        | What::Module(_) => Err(internal("a fence is something else")),
    }
}

impl Served {
    fn point(&self) -> Result<Rc<Object>, Error> {
        self.held.session.registry().thing(self.held.look()?.object)
    }

    /// Waits until the point has passed, the time is up, or there is nothing to wait for any more.
    async fn wait_for(&self, timeout: Duration) -> Result<bool, Error> {
        let thing = self.point()?;
        let _waits = self.connection.party.take(Counted::Waits, 1)?;
        let mut passed = point(&thing)?.subscribe();
        let answer = async {
            loop {
                let point = passed.borrow_and_update().clone();
                if let Some(point) = point {
                    return point.map(|()| true);
                }
                // Whoever ends a capability for the point says so there.
                self.held.look()?;
                // The sender is in `thing`.
                drop(passed.changed().await);
            }
        };
        tokio::time::timeout(timeout, answer).await.unwrap_or(Ok(false))
    }
}

fn write(waited: Result<bool, Error>, result: result::Builder<'_, fence_state::Owned>) {
    match waited {
        Ok(passed) => result.init_ok().set_passed(passed),
        Err(error) => error.write(result.init_error()),
    }
}

macro_rules! fence {
    ($server:ty) => {
        impl gpu_fence::Server for $server {
            async fn wait(
                self: Rc<Self>,
                params: gpu_fence::WaitParams,
                mut results: gpu_fence::WaitResults,
            ) -> Result<(), capnp::Error> {
                let timeout = Duration::from_millis(u64::from(params.get()?.get_timeout_ms()));
                drop(params);
                let waited = self.0.wait_for(timeout).await;
                write(waited, results.get().init_result());
                Ok(())
            }
        }
    };
}

fence!(Fence);
fence!(Signal);

impl gpu_signal::Server for Signal {
    async fn signal(
        self: Rc<Self>,
        _: gpu_signal::SignalParams,
        mut results: gpu_signal::SignalResults,
    ) -> Result<(), capnp::Error> {
        let signalled = self.0.point().and_then(|thing| {
            // Once is as good as twice.
            point(&thing)?.send_if_modified(|passed| passed.replace(Ok(())).is_none());
            Ok(())
        });
        let result = results.get().init_result();
        match signalled {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn fence(
        self: Rc<Self>,
        _: gpu_signal::FenceParams,
        mut results: gpu_signal::FenceResults,
    ) -> Result<(), capnp::Error> {
        let derived = self.0.held.derive(Kind::Fence, Access::Read, 0, 0);
        let result = results.get().init_result();
        match derived {
            Ok(held) => {
                let served = Served::new(held, Facet::Fence, &self.0.connection);
                result.init_ok().set_fence(capnp_rpc::new_client(Fence(served)));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
