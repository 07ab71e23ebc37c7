//! Capabilities as clients hold them: what each of their interfaces begins with.

use std::rc::Rc;

use bulkhead_caps::Extent;
use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{Uses, nothing, result, revoking, sturdy_token},
};

use crate::{
    rpc::{connection::Connection, revocation::Revocation},
    session::reference::{Facet, Reference},
};

/// A capability as one client holds it.
pub(crate) struct Served {
    pub(crate) held: Reference,
    pub(crate) facet: Facet,
    pub(crate) connection: Rc<Connection>,
}

impl Served {
    pub(crate) fn new(held: Reference, facet: Facet, connection: &Rc<Connection>) -> Self {
        Self { held, facet, connection: Rc::clone(connection) }
    }

    pub(crate) fn revoke(&self, extent: Extent, result: result::Builder<'_, revoking::Owned>) {
        match self.held.revoke(extent, &self.connection.party) {
            Ok((marked, paid)) => {
                let revocation = Revocation::new(&self.held.session, &self.connection.party, marked, paid);
                let mut revoking = result.init_ok();
                revoking.set_capabilities(revocation.count);
                revoking.set_revocation(capnp_rpc::new_client(revocation));
            }
            Err(error) => error.write(result.init_error()),
        }
    }

    pub(crate) fn token(
        &self,
        uses: Result<Uses, capnp::NotInSchema>,
        result: result::Builder<'_, sturdy_token::Owned>,
    ) {
        let uses =
            uses.map_err(|_| Error::new(ErrorCode::InvalidArgument, "a token is good once or until revoked"));
        match uses.and_then(|uses| self.held.token(uses, &self.facet, &self.connection.party)) {
            Ok(token) => token.write(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
    }

    pub(crate) fn drop_tokens(&self, result: result::Builder<'_, nothing::Owned>) {
        match self.held.look() {
            Ok(_) => {
                self.held.drop_tokens();
                result.init_ok();
            }
            Err(error) => error.write(result.init_error()),
        }
    }
}

/// Memory to read, as one client holds it.
pub(crate) struct View(pub(crate) Served);

/// Memory to read and write, as one client holds it.
pub(crate) struct Buffer(pub(crate) Served);

/// Gates, and what they read wherever they are called by this.
pub(crate) struct Gates(pub(crate) Served, pub(crate) u64);

/// Serves `GpuCapability` for what wraps a [`Served`].
macro_rules! capability {
    ($server:ty) => {
        impl bulkhead_schema::bulkhead_capnp::gpu_capability::Server for $server {
            async fn revoke(
                self: std::rc::Rc<Self>,
                _: bulkhead_schema::bulkhead_capnp::gpu_capability::RevokeParams,
                mut results: bulkhead_schema::bulkhead_capnp::gpu_capability::RevokeResults,
            ) -> Result<(), capnp::Error> {
                self.0.revoke(bulkhead_caps::Extent::Descendants, results.get().init_result());
                Ok(())
            }

            async fn close(
                self: std::rc::Rc<Self>,
                _: bulkhead_schema::bulkhead_capnp::gpu_capability::CloseParams,
                mut results: bulkhead_schema::bulkhead_capnp::gpu_capability::CloseResults,
            ) -> Result<(), capnp::Error> {
                self.0.revoke(bulkhead_caps::Extent::Whole, results.get().init_result());
                Ok(())
            }

            async fn token(
                self: std::rc::Rc<Self>,
                params: bulkhead_schema::bulkhead_capnp::gpu_capability::TokenParams,
                mut results: bulkhead_schema::bulkhead_capnp::gpu_capability::TokenResults,
            ) -> Result<(), capnp::Error> {
                let uses = params.get()?.get_uses();
                self.0.token(uses, results.get().init_result());
                Ok(())
            }

            async fn drop_tokens(
                self: std::rc::Rc<Self>,
                _: bulkhead_schema::bulkhead_capnp::gpu_capability::DropTokensParams,
                mut results: bulkhead_schema::bulkhead_capnp::gpu_capability::DropTokensResults,
            ) -> Result<(), capnp::Error> {
                self.0.drop_tokens(results.get().init_result());
                Ok(())
            }
        }
    };
}

pub(crate) use capability;
