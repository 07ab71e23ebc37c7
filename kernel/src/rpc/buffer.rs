//! Capabilities for memory.

use std::rc::Rc;

use bulkhead_caps::{Access, Kind};
use bulkhead_schema::{
    Error, ErrorCode, Handle,
    bulkhead_capnp::{buffer_info, gpu_buffer, gpu_buffer_view, result},
};

use crate::{
    rpc::{
        loan,
        served::{Buffer, Served, View, capability},
    },
    session::{
        Bound,
        reference::{Facet, Reference},
    },
    task::detached,
};

capability!(View);
capability!(Buffer);

/// A part of memory that was just made.
struct Part {
    held: Reference,
    handle: Handle,
    address: u64,
    bytes: u64,
}

impl Served {
    /// Its address in the session that it belongs to; 0 for host memory, and for memory that lies nowhere.
    pub(crate) fn address(&self) -> u64 {
        match self.facet {
            Facet::View { address } | Facet::Buffer { address } => address,
            Facet::Program(_)
            | Facet::Peer
            | Facet::Fence
            | Facet::Signal
            | Facet::Module
            | Facet::Gates { .. } => 0,
        }
    }

    fn info(&self, result: result::Builder<'_, buffer_info::Owned>) {
        match self.held.look() {
            Ok(view) => {
                let mut info = result.init_ok();
                self.held.handle.write(info.reborrow().init_handle());
                info.set_address(self.address());
                info.set_bytes(view.bytes);
                info.set_session(self.held.session.id);
                info.set_writable(view.access == Access::ReadWrite);
            }
            Err(error) => error.write(result.init_error()),
        }
    }

    /// Makes a capability for a part of it, which its session's records can name from then on.
    async fn part(&self, access: Access, offset: u64, bytes: u64) -> Result<Part, Error> {
        let view = self.held.look()?;
        let kind = view.kind;
        let is_host = kind == Kind::HostBuffer;
        if is_host && (offset, bytes) != (0, view.bytes) {
            let message = "parts of host memory have no capabilities of their own";
            return Err(Error::new(ErrorCode::NotSupported, message).remedy("allocate the parts one by one"));
        }
        if bytes == 0 {
            return Err(Error::new(ErrorCode::InvalidArgument, "a part holds at least one byte"));
        }
        let held = self.held.derive(kind, access, offset, bytes)?;
        // Host memory has its address in its own name alone.
        let lies_nowhere = is_host || self.address() == 0;
        let address = if lies_nowhere { 0 } else { self.address().saturating_add(offset) };
        let handle = held.handle;
        // Nobody can name it in a record where its session's client does not have it, or where it lies nowhere.
        if lies_nowhere || held.is_elsewhere() {
            return Ok(Part { held, handle, address, bytes });
        }
        let bound = async move {
            // Whoever unbinds it may have come first.
            held.look()?;
            held.session.bind(&[Bound { handle, address, bytes, access }]).await?;
            held.look()?;
            Ok(held)
        };
        let held = detached(self.held.session.limits.answer(), bound).await?;
        Ok(Part { held, handle, address, bytes })
    }
}

/// Answers a part of it, as a capability of this facet.
macro_rules! derived {
    ($own:expr, $params:ident, $results:ident, $access:expr, $facet:ident, $set:ident, $serve:ident) => {
        let (offset, bytes) = {
            let params = $params.get()?;
            (params.get_offset(), params.get_bytes())
        };
        drop($params);
        let part = $own.0.part($access, offset, bytes).await;
        let result = $results.get().init_result();
        match part {
            Ok(part) => {
                let mut created = result.init_ok();
                part.handle.write(created.reborrow().init_handle());
                created.set_address(part.address);
                created.set_bytes(part.bytes);
                let facet = Facet::$facet { address: part.address };
                let served = Served::new(part.held, facet, &$own.0.connection);
                created.$set($own.0.connection.servers.$serve($facet(served)));
            }
            Err(error) => error.write(result.init_error()),
        }
    };
}

macro_rules! view {
    ($server:ty) => {
        impl gpu_buffer_view::Server for $server {
            async fn info(
                self: Rc<Self>,
                _: gpu_buffer_view::InfoParams,
                mut results: gpu_buffer_view::InfoResults,
            ) -> Result<(), capnp::Error> {
                self.0.info(results.get().init_result());
                Ok(())
            }

            async fn derive(
                self: Rc<Self>,
                params: gpu_buffer_view::DeriveParams,
                mut results: gpu_buffer_view::DeriveResults,
            ) -> Result<(), capnp::Error> {
                derived!(self, params, results, Access::Read, View, set_view, view);
                Ok(())
            }
        }
    };
}

view!(View);
view!(Buffer);

impl gpu_buffer::Server for Buffer {
    async fn derive_buffer(
        self: Rc<Self>,
        params: gpu_buffer::DeriveBufferParams,
        mut results: gpu_buffer::DeriveBufferResults,
    ) -> Result<(), capnp::Error> {
        derived!(self, params, results, Access::ReadWrite, Buffer, set_buffer, buffer);
        Ok(())
    }

    async fn borrow(
        self: Rc<Self>,
        _: gpu_buffer::BorrowParams,
        mut results: gpu_buffer::BorrowResults,
    ) -> Result<(), capnp::Error> {
        loan::write(&self.0, results.get().init_result());
        Ok(())
    }
}
