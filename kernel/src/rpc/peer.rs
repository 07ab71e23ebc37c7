//! The authority to give a session things.

use std::rc::Rc;

use bulkhead_schema::{Error, bulkhead_capnp::gpu_peer};

use crate::rpc::{
    connection::Servers,
    served::{Served, capability},
};

/// The authority to give a session things, and no other.
pub(crate) struct Peer(pub(crate) Served);

capability!(Peer);

impl Peer {
    fn give(&self, given: &Served) -> Result<(), Error> {
        self.0.held.look()?;
        let budget = given.held.budget();
        self.0.held.session.be_given(|| {
            let held = given.held.give(&given.facet, &budget)?;
            Ok((held, given.facet.clone()))
        })
    }
}

impl gpu_peer::Server for Peer {
    async fn grant_gates(
        self: Rc<Self>,
        params: gpu_peer::GrantGatesParams,
        mut results: gpu_peer::GrantGatesResults,
    ) -> Result<(), capnp::Error> {
        let gates = params.get()?.get_gates();
        drop(params);
        let found = Servers::find_gates(&self.0.connection, gates).await;
        let granted = found.and_then(|found| self.give(&found.0));
        let result = results.get().init_result();
        match granted {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn grant(
        self: Rc<Self>,
        params: gpu_peer::GrantParams,
        mut results: gpu_peer::GrantResults,
    ) -> Result<(), capnp::Error> {
        let view = params.get()?.get_view();
        drop(params);
        let granted =
            Servers::find(&self.0.connection, view).await.and_then(|found| self.give(found.served()));
        let result = results.get().init_result();
        match granted {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
