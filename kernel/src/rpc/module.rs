//! Capabilities for protected modules, and for their gates alone.

use std::{os::fd::OwnedFd, rc::Rc};

use bulkhead_caps::{Access, Kind};
use bulkhead_mm::Resource;
use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{gates_created, gpu_gates, gpu_protected_module, result},
    limits,
};

use crate::{
    executor_proxy::Answer,
    modules::Owned,
    principals::Counted,
    refusal::internal,
    registry::What,
    rpc::{
        connection::Connection,
        served::{Gates, Served, capability},
    },
    session::{
        Object, Session,
        reference::{Facet, Reference},
    },
    task::detached,
    transport::descriptors,
};

/// The host half of a protected module.
pub(crate) struct Module(pub(crate) Served);

capability!(Module);
capability!(Gates);

fn owned(thing: &Object) -> Result<&Owned, Error> {
    match &thing.what {
        What::Module(owned) => Ok(owned),
        What::Memory(_) | What::Host { .. } | What::Code(_) | What::Point(_) | What::Program | What::Peer => {
            Err(internal("a module is something else"))
        }
    }
}

/// Whether a part lies in a window of so many bytes, and is not more than is read or written at a time.
fn check(offset: u64, bytes: usize, window: u64) -> Result<(), Error> {
    if bytes > limits::MODULE_PIECE_BYTES_MAX {
        let message = format!("{} bytes are read or written at a time", limits::MODULE_PIECE_BYTES_MAX);
        return Err(Error::new(ErrorCode::LimitReached, message).remedy("ask for it piece by piece"));
    }
    if offset > window || bytes as u64 > window - offset {
        let message = format!("{bytes} bytes from {offset} on do not lie in the {window} of the window");
        return Err(Error::new(ErrorCode::InvalidArgument, message));
    }
    Ok(())
}

impl Module {
    fn thing(&self) -> Result<Rc<Object>, Error> {
        self.0.held.session.registry().thing(self.0.held.look()?.object)
    }

    /// Has something done with the window, while it is there.
    async fn copy<T>(
        self: Rc<Self>,
        offset: u64,
        bytes: usize,
        copy: impl AsyncFn(&Session, u32) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let thing = self.thing()?;
        let owned = owned(&thing)?;
        // What it ends with is mapped by the host half itself.
        check(offset, bytes, owned.known.protected.bytes - owned.known.protected.host_bytes)?;
        let _waits = self.0.held.session.party.take(Counted::Waits, 1)?;
        let _turn = owned.busy.lock().await;
        // It may have been taken back meanwhile, and then it is on its way out.
        self.0.held.look()?;
        // What was lost with an executor is done again: the window is the same.
        let session = &self.0.held.session;
        session.again(|| copy(session, owned.number)).await
    }

    /// The memory that the window ends with, and the token that its descriptor is fetched with.
    fn host_memory(&self) -> Result<(u64, descriptors::Token), Error> {
        let thing = self.thing()?;
        let owned = owned(&thing)?;
        let none = || Error::new(ErrorCode::NotFound, "the module's window has no host memory");
        let memory = owned.host.as_ref().ok_or_else(none)?;
        Ok((owned.known.protected.host_bytes, self.fetched(memory)?))
    }

    /// The token that the descriptor of the activity page is fetched with.
    fn activity(&self) -> Result<descriptors::Token, Error> {
        let thing = self.thing()?;
        let windows = owned(&thing)?.windows_in(&self.0.held.session.incarnation());
        let window = windows.first().ok_or_else(|| internal("a module has no window"))?;
        self.fetched(&window.page)
    }

    /// A token for a copy of a descriptor.
    fn fetched(&self, descriptor: &OwnedFd) -> Result<descriptors::Token, Error> {
        let session = &self.0.held.session;
        let on_the_way = session.charge(Resource::Descriptors, 1)?;
        let copied = |error| internal(format!("a descriptor cannot be copied: {error}"));
        let parcel = session.parcel(vec![descriptor.try_clone().map_err(copied)?], on_the_way);
        self.0.connection.give(parcel)
    }

    async fn read(self: Rc<Self>, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        self.copy(offset, bytes, async |session: &Session, number| {
            let read = session.link().call(None, Vec::new(), |request| {
                let mut piece = request.init_read_module();
                piece.set_module(number);
                piece.set_offset(offset);
                piece.set_bytes(bytes as u64);
            });
            match read.await? {
                Answer::Piece(piece) if piece.len() == bytes => Ok(piece),
                other => Err(session.nonsense(&other)),
            }
        })
        .await
    }

    async fn write(self: Rc<Self>, offset: u64, data: Vec<u8>) -> Result<(), Error> {
        self.copy(offset, data.len(), async |session: &Session, number| {
            let written = session.link().call(None, Vec::new(), |request| {
                let mut piece = request.init_write_module();
                piece.set_module(number);
                piece.set_offset(offset);
                piece.set_data(&data);
            });
            session.done(&written.await?)
        })
        .await
    }
}

/// Hands a capability for gates, with its badge, to a client.
pub(crate) fn write_gates(
    held: Result<(Reference, u64), Error>,
    connection: &Rc<Connection>,
    result: result::Builder<'_, gates_created::Owned>,
) {
    match held {
        Ok((held, badge)) => {
            let served = Served::new(held, Facet::Gates { badge }, connection);
            result.init_ok().set_gates(connection.servers.gates(Gates(served, badge)));
        }
        Err(error) => error.write(result.init_error()),
    }
}

impl Served {
    fn gates(&self, badge: u64, result: result::Builder<'_, gates_created::Owned>) {
        let derived = self.held.derive(Kind::Gates, Access::Read, 0, 0);
        write_gates(derived.map(|held| (held, badge)), &self.connection, result);
    }
}

impl gpu_protected_module::Server for Module {
    async fn read(
        self: Rc<Self>,
        params: gpu_protected_module::ReadParams,
        mut results: gpu_protected_module::ReadResults,
    ) -> Result<(), capnp::Error> {
        let (offset, bytes) = {
            let params = params.get()?;
            (params.get_offset(), params.get_bytes())
        };
        drop(params);
        let patience = self.0.held.session.limits.answer();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let read = detached(patience, Self::read(self, offset, bytes)).await;
        let result = results.get().init_result();
        match read {
            Ok(piece) => result.init_ok().set_data(&piece),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn write(
        self: Rc<Self>,
        params: gpu_protected_module::WriteParams,
        mut results: gpu_protected_module::WriteResults,
    ) -> Result<(), capnp::Error> {
        let (offset, data) = {
            let params = params.get()?;
            let data = params.get_data()?;
            // One byte too many is refused like any number of them.
            let most = data.len().min(limits::MODULE_PIECE_BYTES_MAX + 1);
            (params.get_offset(), data.get(..most).unwrap_or_default().to_vec())
        };
        drop(params);
        let patience = self.0.held.session.limits.answer();
        let written = detached(patience, Self::write(self, offset, data)).await;
        let result = results.get().init_result();
        match written {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn gates(
        self: Rc<Self>,
        params: gpu_protected_module::GatesParams,
        mut results: gpu_protected_module::GatesResults,
    ) -> Result<(), capnp::Error> {
        let badge = params.get()?.get_badge();
        drop(params);
        self.0.gates(badge, results.get().init_result());
        Ok(())
    }

    async fn host(
        self: Rc<Self>,
        _: gpu_protected_module::HostParams,
        mut results: gpu_protected_module::HostResults,
    ) -> Result<(), capnp::Error> {
        let result = results.get().init_result();
        match self.host_memory() {
            Ok((bytes, token)) => {
                let mut host = result.init_ok();
                host.set_bytes(bytes);
                token.write(host.init_memory());
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn activity(
        self: Rc<Self>,
        _: gpu_protected_module::ActivityParams,
        mut results: gpu_protected_module::ActivityResults,
    ) -> Result<(), capnp::Error> {
        let result = results.get().init_result();
        match Self::activity(&self) {
            Ok(token) => token.write(result.init_ok().init_page()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}

impl gpu_gates::Server for Gates {
    async fn derive(
        self: Rc<Self>,
        _: gpu_gates::DeriveParams,
        mut results: gpu_gates::DeriveResults,
    ) -> Result<(), capnp::Error> {
        self.0.gates(self.1, results.get().init_result());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_lie_in_a_window_is_refused_however_it_is_said() {
        const WINDOW: u64 = 2 << 20;
        for (offset, bytes) in [(0, 0), (0, 65536), (WINDOW, 0), (WINDOW - 1, 1), (WINDOW - 65536, 65536)] {
            assert!(check(offset, bytes, WINDOW).is_ok(), "{offset}+{bytes}");
        }
        for (offset, bytes) in [(WINDOW, 1), (WINDOW - 1, 2), (u64::MAX, 1), (u64::MAX, 0), (1 << 63, 65536)]
        {
            let refused = check(offset, bytes, WINDOW).unwrap_err();
            assert_eq!(refused.code, ErrorCode::InvalidArgument, "{offset}+{bytes}");
        }
        for bytes in [65537, usize::MAX] {
            assert_eq!(check(0, bytes, WINDOW).unwrap_err().code, ErrorCode::LimitReached, "{bytes}");
        }
    }
}
