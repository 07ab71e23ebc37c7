//! Entries of a session that others may launch, in sessions of their own.

use std::rc::Rc;

use bulkhead_caps::{Access, Kind};
use bulkhead_schema::{
    Error, ErrorCode, Handle,
    bulkhead_capnp::{gpu_program, handle, program_created, result},
    limits,
};

use crate::{
    executor_proxy::{EntryInfo, length},
    refusal::not_here,
    rpc::{
        connection::Connection,
        copy_session::CopyServer,
        opening::{Opened, name, open, write_opened},
        served::{Served, capability},
    },
    session::{
        Parent, Terms,
        reference::{Facet, Share},
    },
    task::detached,
};

/// Entries that may be launched in sessions of one's own.
pub(crate) struct Program(pub(crate) Served);

capability!(Program);

/// The entries that a client names, each once.
pub(crate) fn read_entries(
    list: capnp::struct_list::Reader<'_, handle::Owned>,
) -> Result<Vec<Handle>, Error> {
    if list.len() > limits::PROGRAM_ENTRIES_MAX {
        let message = format!("a program has at most {} entries", limits::PROGRAM_ENTRIES_MAX);
        return Err(Error::new(ErrorCode::LimitReached, message));
    }
    let mut entries: Vec<_> = list.iter().map(Handle::read).collect();
    entries.sort_unstable();
    entries.dedup();
    Ok(entries)
}

/// Answers a program that was just made.
pub(crate) fn write_program(
    created: Result<Served, Error>,
    result: result::Builder<'_, program_created::Owned>,
) {
    match created {
        Ok(served) => result.init_ok().set_program(capnp_rpc::new_client(Program(served))),
        Err(error) => error.write(result.init_error()),
    }
}

impl Program {
    fn share(&self) -> Result<&Rc<Share>, Error> {
        match &self.0.facet {
            Facet::Program(share) => Ok(share),
            Facet::View { .. }
            | Facet::Buffer { .. }
            | Facet::Peer
            | Facet::Fence
            | Facet::Signal
            | Facet::Module
            | Facet::Gates { .. } => Err(crate::refusal::internal("a program is something else")),
        }
    }

    fn derive(
        &self,
        entries: Result<Vec<Handle>, Error>,
        terms: Result<Terms, Error>,
    ) -> Result<Served, Error> {
        let own = self.share()?;
        let found = |entry: Handle| {
            let at = own.entries.binary_search_by_key(&entry, |(handle, _)| *handle);
            at.ok().and_then(|at| own.entries.get(at)).cloned().ok_or_else(|| not_here(entry))
        };
        let entries = entries?.into_iter().map(found).collect::<Result<_, _>>()?;
        let share = Share::new(&self.0.held.session, entries, terms?.within(&own.terms))?;
        let held = self.0.held.derive(Kind::Program, Access::Read, 0, 0)?;
        Ok(Served::new(held, Facet::Program(Rc::new(share)), &self.0.connection))
    }

    async fn open(
        connection: Rc<Connection>,
        parent: Parent,
        name: Result<String, Error>,
    ) -> Result<Opened, Error> {
        connection.greeted()?;
        let device = Rc::clone(&parent.session.device);
        let terms = parent.share.terms;
        open(connection, device, name?, terms, Some(parent)).await
    }
}

impl gpu_program::Server for Program {
    async fn open(
        self: Rc<Self>,
        params: gpu_program::OpenParams,
        mut results: gpu_program::OpenResults,
    ) -> Result<(), capnp::Error> {
        let name = name(params.get()?.get_name());
        drop(params);
        let limits = self.0.held.session.limits;
        let opened = match self.share().and_then(|share| self.0.held.look().map(|_| Rc::clone(share))) {
            Ok(share) => {
                let parent =
                    Parent { session: Rc::clone(&self.0.held.session), program: self.0.held.handle, share };
                let opening = Program::open(Rc::clone(&self.0.connection), parent, name);
                detached(limits.request() + limits.answer(), opening).await
            }
            Err(error) => Err(error),
        };
        let result = results.get().init_result();
        match opened {
            Ok(opened) => {
                let mut written = result.init_ok();
                write_opened!(opened, written);
                let entries: &[(Handle, Rc<EntryInfo>)] = &opened.entries;
                let mut list = written.reborrow().init_entries(length(entries.len()));
                for (at, (handle, info)) in (0u32..).zip(entries) {
                    info.write(*handle, list.reborrow().get(at));
                }
                // It loads no code.
                let server = CopyServer::new(opened.session, opened.connection);
                written.set_session(capnp_rpc::new_client(server));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn derive(
        self: Rc<Self>,
        params: gpu_program::DeriveParams,
        mut results: gpu_program::DeriveResults,
    ) -> Result<(), capnp::Error> {
        let params = params.get()?;
        let terms = Terms::read(params.get_terms()?);
        let derived = Program::derive(&self, read_entries(params.get_entries()?), terms);
        write_program(derived, results.get().init_result());
        Ok(())
    }
}
