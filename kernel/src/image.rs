//! Capabilities for loaded code.

use std::rc::Rc;

use bulkhead_schema::{
    Handle,
    bulkhead_capnp::{entry, gpu_module},
};

use crate::{
    executor::{EntryInfo, length},
    held::Held,
    program::not_here,
    task::detached,
};

/// Loaded code. Dropping it unloads it.
pub(crate) struct Image {
    held: Held,
    entries: Vec<(Handle, Rc<EntryInfo>)>,
}

impl Image {
    pub(crate) fn new(held: Held, entries: Vec<(Handle, Rc<EntryInfo>)>) -> Self {
        Self { held, entries }
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
}

impl gpu_module::Server for Image {
    async fn entries(
        self: Rc<Self>,
        _: gpu_module::EntriesParams,
        mut results: gpu_module::EntriesResults,
    ) -> Result<(), capnp::Error> {
        let result = results.get().init_result();
        match self.held.look() {
            Ok(_) => self.write(result.init_ok().init_entries(self.count())),
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
            let session = Rc::clone(&self.held.session);
            detached(session.limits.answer(), Rc::clone(&session).allow_dynamic_shared(entry, bytes)).await
        } else {
            Err(not_here(entry))
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
        let closed = self.held.close();
        let result = results.get().init_result();
        match closed {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
