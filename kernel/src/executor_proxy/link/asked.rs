//! Requests to an executor.

use bulkhead_schema::{Error, ErrorCode, executor_capnp};
use capnp::{message, serialize};

/// What is asked of an executor, or of two.
pub(crate) struct Request(message::Builder<message::HeapAllocator>);

impl Request {
    pub(crate) fn new(build: impl FnOnce(executor_capnp::request::Builder<'_>)) -> Self {
        let mut message = message::Builder::new_default();
        build(message.init_root());
        Self(message)
    }

    /// Whether it gives something up, or asks only whether the executor is there.
    pub(super) fn undoes(&self) -> bool {
        use executor_capnp::request::Which;
        let request: Result<executor_capnp::request::Reader<'_>, _> = self.0.get_root_as_reader();
        request.is_ok_and(|request| {
            matches!(
                request.which(),
                Ok(Which::Describe(())
                    | Which::EndSession(_)
                    | Which::CloseSession(_)
                    | Which::UnmapArena(_)
                    | Which::Unbind(_)
                    | Which::Drain(_)
                    | Which::UnloadImage(_)
                    | Which::RemoveModule(_)
                    | Which::RevokeModule(_)
                    | Which::CloseModule(_))
            )
        })
    }

    pub(super) fn with_id(&mut self, id: u64) -> Result<Vec<u8>, Error> {
        let request: Result<executor_capnp::request::Builder<'_>, _> = self.0.get_root();
        let mut request = request.map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
        request.set_id(id);
        Ok(serialize::write_message_to_words(&self.0))
    }
}
