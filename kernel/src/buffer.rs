//! Capabilities for memory.

use std::{cell::Cell, rc::Rc};

use bulkhead_schema::{
    Handle,
    bulkhead_capnp::{gpu_buffer, gpu_buffer_view, gpu_capability},
};

use crate::session::Session;

/// Device memory, or host memory shared with the device. Dropping it gives the memory back.
pub(crate) struct Buffer {
    session: Rc<Session>,
    pub(crate) handle: Handle,
    /// 0 for host memory.
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    closed: Cell<bool>,
}

impl Buffer {
    pub(crate) fn new(session: Rc<Session>, handle: Handle, address: u64, bytes: u64) -> Self {
        Self { session, handle, address, bytes, closed: Cell::new(false) }
    }

    fn close(&self) {
        if !self.closed.replace(true) {
            self.session.retire(self.handle);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.close();
    }
}

impl gpu_buffer::Server for Buffer {}

impl gpu_buffer_view::Server for Buffer {
    async fn info(
        self: Rc<Self>,
        _: gpu_buffer_view::InfoParams,
        mut results: gpu_buffer_view::InfoResults,
    ) -> Result<(), capnp::Error> {
        let result = results.get().init_result();
        if let Err(error) = self.session.live() {
            error.write(result.init_error());
            return Ok(());
        }
        let mut info = result.init_ok();
        self.handle.write(info.reborrow().init_handle());
        info.set_address(self.address);
        info.set_bytes(self.bytes);
        Ok(())
    }
}

impl gpu_capability::Server for Buffer {
    async fn close(
        self: Rc<Self>,
        _: gpu_capability::CloseParams,
        mut results: gpu_capability::CloseResults,
    ) -> Result<(), capnp::Error> {
        Buffer::close(&self);
        let result = results.get().init_result();
        match self.session.live() {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
