//! What a connection serves, and finds again when it is given back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bulkhead_schema::bulkhead_capnp::{gpu_buffer, gpu_buffer_view, gpu_gates};
use bulkhead_schema::{Error, ErrorCode};
use capnp::capability::FromClientHook;
use capnp_rpc::CapabilityServerSet;

use super::Connection;
use crate::rpc::served::{Buffer, Gates, Served, View};

/// Capabilities that a client may name as arguments: those that this kernel serves to it.
#[derive(Default)]
pub(crate) struct Servers {
    views: RefCell<CapabilityServerSet<View, gpu_buffer_view::Client>>,
    buffers: RefCell<CapabilityServerSet<Buffer, gpu_buffer::Client>>,
    gates: RefCell<CapabilityServerSet<Gates, gpu_gates::Client>>,
    made: Cell<usize>,
}

/// Memory that a client named.
pub(crate) enum Found {
    View(Rc<View>),
    Buffer(Rc<Buffer>),
}

impl Found {
    pub(crate) fn served(&self) -> &Served {
        match self {
            Self::View(view) => &view.0,
            Self::Buffer(buffer) => &buffer.0,
        }
    }
}

/// After so many new ones, the places of those that are gone are given back.
const SERVERS_PER_SWEEP: usize = 1024;

impl Servers {
    fn sweep(&self) {
        self.made.set(self.made.get() + 1);
        if self.made.get().is_multiple_of(SERVERS_PER_SWEEP) {
            self.views.borrow_mut().gc();
            self.buffers.borrow_mut().gc();
            self.gates.borrow_mut().gc();
        }
    }

    pub(crate) fn view(&self, view: View) -> gpu_buffer_view::Client {
        self.sweep();
        self.views.borrow_mut().new_client(view)
    }

    pub(crate) fn buffer(&self, buffer: Buffer) -> gpu_buffer::Client {
        self.sweep();
        self.buffers.borrow_mut().new_client(buffer)
    }

    pub(crate) fn gates(&self, gates: Gates) -> gpu_gates::Client {
        self.sweep();
        self.gates.borrow_mut().new_client(gates)
    }

    /// The gates that an argument names: of this connection's own, and nothing else.
    pub(crate) async fn find_gates(
        connection: &Connection,
        argument: capnp::Result<gpu_gates::Client>,
    ) -> Result<Rc<Gates>, Error> {
        let foreign = || {
            Error::new(ErrorCode::NotPermitted, "those are no gates that this kernel gave to this connection")
                .remedy("pass a `GpuGates` that it answered; for other processes there are tokens")
        };
        let argument = capnp::capability::get_resolved_cap(argument.map_err(|_| foreign())?).await;
        let own = connection.servers.gates.borrow();
        own.get_local_server_of_resolved(&argument).ok_or_else(foreign)
    }

    /// The memory that an argument names: one of this connection's own, and nothing else.
    pub(crate) async fn find(
        connection: &Connection,
        argument: capnp::Result<gpu_buffer_view::Client>,
    ) -> Result<Found, Error> {
        let foreign = || {
            Error::new(ErrorCode::NotPermitted, "that is no memory that this kernel gave to this connection")
                .remedy("pass a `GpuBuffer` or `GpuBufferView` that it answered; for other processes there are tokens")
        };
        let argument = argument.map_err(|_| foreign())?;
        // It may be the result of a call that is not answered yet.
        let view = capnp::capability::get_resolved_cap(argument).await;
        let buffer: gpu_buffer::Client = view.clone().cast_to();
        let own = &connection.servers;
        if let Some(view) = own.views.borrow().get_local_server_of_resolved(&view) {
            return Ok(Found::View(view));
        }
        let found = own.buffers.borrow().get_local_server_of_resolved(&buffer);
        found.map(Found::Buffer).ok_or_else(foreign)
    }
}
