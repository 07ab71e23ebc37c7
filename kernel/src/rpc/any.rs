//! Capabilities of whatever kind, as an answer has them.

use std::rc::Rc;

use bulkhead_schema::bulkhead_capnp::any_capability;

use crate::{
    rpc::{
        connection::Connection,
        fence, module, peer, program,
        served::{Buffer, Gates, Served, View},
    },
    session::reference::{Facet, Reference},
};

/// Hands a capability to a client.
pub(crate) fn write_any(
    held: Reference,
    facet: Facet,
    connection: &Rc<Connection>,
    mut any: any_capability::Builder<'_>,
) {
    let served = Served::new(held, facet, connection);
    match served.facet {
        Facet::View { .. } => any.set_view(connection.servers.view(View(served))),
        Facet::Buffer { .. } => any.set_buffer(connection.servers.buffer(Buffer(served))),
        Facet::Program(_) => any.set_program(capnp_rpc::new_client(program::Program(served))),
        Facet::Peer => any.set_peer(capnp_rpc::new_client(peer::Peer(served))),
        Facet::Fence => any.set_fence(capnp_rpc::new_client(fence::Fence(served))),
        Facet::Signal => any.set_signal(capnp_rpc::new_client(fence::Signal(served))),
        Facet::Module => any.set_module(capnp_rpc::new_client(module::Module(served))),
        Facet::Gates { badge } => any.set_gates(connection.servers.gates(Gates(served, badge))),
    }
}
