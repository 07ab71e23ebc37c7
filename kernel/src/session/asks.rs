//! What a session has its executor do. Whatever changes the executor's books goes through [`Session::ask`] or
//! [`Session::ask_twice`].

use std::{future::Future, os::fd::OwnedFd};

use bulkhead_caps::Access;
use bulkhead_mm::Range;
use bulkhead_schema::{Error, Handle, executor_capnp};
use tokio::sync::oneshot;

use super::Session;
use crate::{
    executor::{Answer, Answering, length},
    refusal::internal,
};

/// What a handle means to the executor: memory of the session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) handle: Handle,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
}

/// A change of the session's memory or code that is under way.
pub(super) struct Change<'a>(&'a Session);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.changes.send_modify(|changes| *changes = changes.saturating_sub(1));
    }
}

impl Session {
    /// Asks the executor something about this session.
    pub(super) fn ask(
        &self,
        descriptors: Vec<OwnedFd>,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> Answering {
        self.incarnation.link.call(Some(self.id), descriptors, build)
    }

    /// The same, where two answers come.
    pub(super) fn ask_twice(
        &self,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> (oneshot::Receiver<()>, Answering) {
        self.incarnation.link.call_twice(Some(self.id), build)
    }

    /// Begins a change: until it ends, the executor is not asked to close the session.
    pub(super) fn change(&self) -> Result<Change<'_>, Error> {
        self.live()?;
        self.changes.send_modify(|changes| *changes += 1);
        Ok(Change(self))
    }

    /// Maps new memory.
    pub(super) fn map(&self, range: Range) -> Answering {
        self.ask(Vec::new(), |request| write_range(request.init_map_arena(), self.id, range))
    }

    /// Unmaps what lies there; the first answer comes when no work can reach it.
    pub(super) fn unmap(&self, range: Range) -> (oneshot::Receiver<()>, Answering) {
        self.ask_twice(|request| write_range(request.init_unmap_arena(), self.id, range))
    }

    pub(super) fn drain(&self) -> Answering {
        self.ask(Vec::new(), |mut request| request.set_drain(self.id))
    }

    /// Tells the executor what handles mean.
    pub(crate) fn bind<'a>(&'a self, bound: &[Bound]) -> impl Future<Output = Result<(), Error>> + use<'a> {
        let asked = self.ask(Vec::new(), |request| {
            let mut bind = request.init_bind();
            bind.set_session(self.id);
            let mut bindings = bind.init_bindings(length(bound.len()));
            for (at, one) in (0u32..).zip(bound) {
                let mut binding = bindings.reborrow().get(at);
                one.handle.write(binding.reborrow().init_handle());
                let mut buffer = binding.init_buffer();
                buffer.set_address(one.address);
                buffer.set_bytes(one.bytes);
                buffer.set_writable(one.access == Access::ReadWrite);
            }
        });
        async move { self.done(&asked.await?) }
    }

    /// Tells the executor that handles are entries which another session loaded.
    pub(super) fn bind_entries<'a>(
        &'a self,
        of: &Self,
        entries: &[(Handle, Handle)],
    ) -> impl Future<Output = Result<(), Error>> + use<'a> {
        let asked = self.ask(Vec::new(), |request| {
            let mut bind = request.init_bind();
            bind.set_session(self.id);
            let mut bindings = bind.init_bindings(length(entries.len()));
            for (at, (own, theirs)) in (0u32..).zip(entries) {
                let mut binding = bindings.reborrow().get(at);
                own.write(binding.reborrow().init_handle());
                of.write_name(binding.init_entry(), *theirs);
            }
        });
        async move { self.done(&asked.await?) }
    }

    /// Has new records refused that name these.
    pub(super) fn unbind(&self, handles: impl ExactSizeIterator<Item = Handle>) -> Answering {
        self.ask(Vec::new(), |request| {
            let mut unbind = request.init_unbind();
            unbind.set_session(self.id);
            let mut list = unbind.init_handles(length(handles.len()));
            for (at, handle) in (0u32..).zip(handles) {
                handle.write(list.reborrow().get(at));
            }
        })
    }

    pub(super) fn write_name(&self, mut name: executor_capnp::name::Builder<'_>, handle: Handle) {
        name.set_session(self.id);
        handle.write(name.init_handle());
    }

    /// An answer that was not one of those to what was asked.
    pub(super) fn nonsense(&self, answer: &Answer) -> Error {
        self.incarnation.link.fail_with(format!("it gave the wrong kind of answer: {answer:?}"));
        internal("the executor gave the wrong kind of answer")
    }

    pub(super) fn done(&self, answer: &Answer) -> Result<(), Error> {
        match answer {
            Answer::Done => Ok(()),
            Answer::Device(_)
            | Answer::Opened(_)
            | Answer::Loaded(_)
            | Answer::Exported(_)
            | Answer::Activity(_) => Err(self.nonsense(answer)),
        }
    }
}

pub(super) fn write_range(mut builder: executor_capnp::range::Builder<'_>, session: u32, range: Range) {
    builder.set_session(session);
    builder.set_address(range.start().0);
    builder.set_bytes(range.bytes());
}
