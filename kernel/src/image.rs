//! Capabilities for loaded code.

use std::{cell::Cell, rc::Rc};

use bulkhead_schema::{
    Handle,
    bulkhead_capnp::{entry, gpu_module},
};

use crate::{
    executor::{EntryInfo, length},
    session::Session,
    task::detached,
};

/// Loaded code. Dropping it unloads it.
pub(crate) struct Image {
    session: Rc<Session>,
    handle: Handle,
    entries: Vec<(Handle, EntryInfo)>,
    closed: Cell<bool>,
}

impl Image {
    pub(crate) fn new(session: Rc<Session>, handle: Handle, entries: Vec<(Handle, EntryInfo)>) -> Self {
        Self { session, handle, entries, closed: Cell::new(false) }
    }

    /// How many entries it has.
    pub(crate) fn count(&self) -> u32 {
        length(self.entries.len())
    }

    /// Describes its entries, in the order of the source.
    pub(crate) fn write(&self, mut list: capnp::struct_list::Builder<'_, entry::Owned>) {
        for (at, (handle, info)) in (0..list.len()).zip(&self.entries) {
            info.write(*handle, list.reborrow().get(at));
        }
    }

    fn close(&self) {
        if !self.closed.replace(true) {
            self.session.retire(self.handle);
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.close();
    }
}

impl gpu_module::Server for Image {
    async fn entries(
        self: Rc<Self>,
        _: gpu_module::EntriesParams,
        mut results: gpu_module::EntriesResults,
    ) -> Result<(), capnp::Error> {
        let result = results.get().init_result();
        match self.session.live() {
            Ok(()) => self.write(result.init_ok().init_entries(self.count())),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn allow_dynamic_shared(
        self: Rc<Self>,
        params: gpu_module::AllowDynamicSharedParams,
        mut results: gpu_module::AllowDynamicSharedResults,
    ) -> Result<(), capnp::Error> {
        let (entry, bytes) = {
            let params = params.get()?;
            (Handle::read(params.get_entry()?), params.get_bytes())
        };
        drop(params);
        // Only entries of this image: another's is another capability's to change.
        let own = self.entries.iter().any(|(handle, _)| *handle == entry);
        let allowed = if own {
            let allowed = Rc::clone(&self.session).allow_dynamic_shared(entry, bytes);
            detached(self.session.limits.answer(), allowed).await
        } else {
            Err(crate::refusal::table(bulkhead_caps::TableError::Stale { handle: entry }))
        };
        let result = results.get().init_result();
        match allowed {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn close(
        self: Rc<Self>,
        _: gpu_module::CloseParams,
        mut results: gpu_module::CloseResults,
    ) -> Result<(), capnp::Error> {
        Image::close(&self);
        let result = results.get().init_result();
        match self.session.live() {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
