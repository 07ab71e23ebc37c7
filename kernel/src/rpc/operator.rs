//! The operator's socket: served when no client gets in.
//!
//! Clients cannot take its places: it is a socket of its own, for whoever may enter the runtime directory. Where there
//! are too many connections, a new one ends the oldest of the process that has most: a process that connects again and
//! again ends its own.

use std::{cell::Cell, collections::HashMap, rc::Rc};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp::nothing, limits, operator_capnp::operator};
use capnp_rpc::RpcSystem;
use futures::io::{BufReader, BufWriter};
use tokio::{
    net::UnixStream,
    task::{AbortHandle, JoinSet},
};
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

use crate::{
    kernel::Kernel,
    modules::protected::ProtectedModule,
    principals::{Lines, Principals, Quota},
    rpc::{
        client::FAREWELL,
        firewall::{self, Firewall},
    },
    task::detached,
    transport::door::{Arrival, Door},
};

/// Serves operators. Never ends; dropping it ends every connection.
pub(crate) async fn accept(door: &Door, kernel: &Rc<Kernel>, own_uid: u32) {
    // What operators do is counted apart from what clients do.
    let principals = Principals::new(Quota::UNLIMITED, Quota::PRINCIPAL, Quota::PROCESS, Vec::new());
    let (mut connections, failures) = (JoinSet::new(), Lines::new());
    // The oldest first.
    let mut open: Vec<(Option<i32>, AbortHandle)> = Vec::new();
    // Kept from turn to turn: a relay that has accepted somebody is not to be left alone.
    let mut next = std::pin::pin!(door.accept());
    loop {
        let accepted = tokio::select! {
            accepted = &mut next => accepted,
            Some(_) = connections.join_next() => {
                open.retain(|(_, connection)| !connection.is_finished());
                continue;
            }
        };
        next.set(door.accept());
        let arrival = match accepted {
            Ok(arrival) => arrival,
            Err(error) => {
                if let Some(unsaid) = failures.take() {
                    tracing::warn!(%error, unsaid, "a connection of an operator failed");
                }
                tokio::time::sleep(kernel.limits.second / 100).await;
                continue;
            }
        };
        let peer = arrival.peer;
        if !peer.may_connect(own_uid) {
            continue;
        }
        if open.len() >= limits::OPERATORS_MAX {
            let (_, connection) = open.remove(one_too_many(&open, peer.pid));
            connection.abort();
        }
        let firewall = Firewall::new(&principals.of(peer));
        open.push((peer.pid, connections.spawn_local(serve(Rc::clone(kernel), arrival, firewall))));
    }
}

/// The oldest connection of the process that would have most with one more of `newcomer`'s.
fn one_too_many<T>(open: &[(Option<i32>, T)], newcomer: Option<i32>) -> usize {
    let mut counts = HashMap::from([(newcomer, 1)]);
    for (process, _) in open {
        *counts.entry(*process).or_insert(0) += 1;
    }
    let most = open.iter().filter_map(|(process, _)| counts.get(process)).max();
    open.iter().position(|(process, _)| counts.get(process) == most).unwrap_or_default()
}

async fn serve(kernel: Rc<Kernel>, arrival: Arrival, firewall: Rc<Firewall>) {
    let Ok(stream) = UnixStream::from_std(arrival.socket.into()) else { return };
    let (reader, writer) = stream.into_split();
    let network =
        firewall::network(&firewall, BufReader::new(reader.compat()), BufWriter::new(writer.compat_write()));
    let bootstrap: operator::Client = capnp_rpc::new_client(Operator { kernel, greeted: Cell::new(false) });
    let mut system = RpcSystem::new(network, Some(bootstrap.client));
    let disconnector = system.get_disconnector();
    tokio::select! {
        biased;
        () = firewall.tripped() => {}
        _ = &mut system => return,
    }
    firewall.leave();
    drop(tokio::time::timeout(FAREWELL, futures::future::join(system, disconnector)).await);
}

/// The bootstrap capability of an operator's connection.
struct Operator {
    kernel: Rc<Kernel>,
    greeted: Cell<bool>,
}

impl Operator {
    fn greeted(&self) -> Result<(), Error> {
        if self.greeted.get() { Ok(()) } else { Err(Error::new(ErrorCode::Protocol, "`hello` comes first")) }
    }
}

fn write(
    done: Result<(), Error>,
    result: bulkhead_schema::bulkhead_capnp::result::Builder<'_, nothing::Owned>,
) {
    match done {
        Ok(()) => drop(result.init_ok()),
        Err(error) => error.write(result.init_error()),
    }
}

impl operator::Server for Operator {
    async fn hello(
        self: Rc<Self>,
        params: operator::HelloParams,
        mut results: operator::HelloResults,
    ) -> Result<(), capnp::Error> {
        let version = params.get()?.get_version();
        let greeted = if version == limits::PROTOCOL_VERSION {
            self.greeted.set(true);
            Ok(())
        } else {
            let message = format!(
                "the operator speaks version {version} of the protocol and this kernel version {}",
                limits::PROTOCOL_VERSION
            );
            Err(Error::new(ErrorCode::Version, message).remedy("use the `bulkhead` that serves"))
        };
        write(greeted, results.get().init_result());
        Ok(())
    }

    async fn status(
        self: Rc<Self>,
        _: operator::StatusParams,
        mut results: operator::StatusResults,
    ) -> Result<(), capnp::Error> {
        let greeted = self.greeted();
        if greeted.is_ok() {
            self.kernel.ask_busy().await;
        }
        let result = results.get().init_result();
        match greeted {
            Ok(()) => self.kernel.status(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn evict(
        self: Rc<Self>,
        params: operator::EvictParams,
        mut results: operator::EvictResults,
    ) -> Result<(), capnp::Error> {
        let session = params.get()?.get_session();
        let evicted = self.greeted().and_then(|()| self.kernel.evict(session));
        if evicted.is_ok() {
            tracing::warn!(target: "bulkhead::audit", session, "session evicted by the operator");
        }
        write(evicted, results.get().init_result());
        Ok(())
    }

    async fn suspend(
        self: Rc<Self>,
        params: operator::SuspendParams,
        mut results: operator::SuspendResults,
    ) -> Result<(), capnp::Error> {
        let session = params.get()?.get_session();
        drop(params);
        let suspended = match self.greeted().and_then(|()| self.kernel.open_session(session)) {
            Ok(session) => {
                // Its turn, its work, the copy.
                let patience = self.kernel.limits.answer() + self.kernel.limits.answer();
                detached(patience, async move { session.suspend().await }).await
            }
            Err(error) => Err(error),
        };
        if suspended.is_ok() {
            tracing::info!(target: "bulkhead::audit::session", session, "session suspended by the operator");
        }
        write(suspended, results.get().init_result());
        Ok(())
    }

    async fn resume(
        self: Rc<Self>,
        params: operator::ResumeParams,
        mut results: operator::ResumeResults,
    ) -> Result<(), capnp::Error> {
        let session = params.get()?.get_session();
        drop(params);
        let resumed = match self.greeted().and_then(|()| self.kernel.open_session(session)) {
            Ok(session) => {
                let patience = self.kernel.limits.answer() + self.kernel.limits.answer();
                detached(patience, async move { session.resume().await }).await
            }
            Err(error) => Err(error),
        };
        if resumed.is_ok() {
            tracing::info!(target: "bulkhead::audit::session", session, "session resumed by the operator");
        }
        write(resumed, results.get().init_result());
        Ok(())
    }

    async fn add_module(
        self: Rc<Self>,
        params: operator::AddModuleParams,
        mut results: operator::AddModuleResults,
    ) -> Result<(), capnp::Error> {
        let module = {
            let module = params.get()?.get_module()?;
            ProtectedModule {
                name: module.get_name()?.to_string()?,
                gates: String::from_utf8(module.get_gates()?.to_vec())
                    .map_err(|_| capnp::Error::failed("gates are text".into()))?,
                bytes: module.get_bytes(),
                host_bytes: module.get_host_bytes(),
            }
        };
        drop(params);
        let name = module.name.clone();
        let added = self.greeted().and_then(|()| self.kernel.add_module(module));
        if added.is_ok() {
            tracing::info!(target: "bulkhead::audit", name, "module added by the operator");
        }
        write(added, results.get().init_result());
        Ok(())
    }

    async fn remove_module(
        self: Rc<Self>,
        params: operator::RemoveModuleParams,
        mut results: operator::RemoveModuleResults,
    ) -> Result<(), capnp::Error> {
        let name = params.get()?.get_name()?.to_string()?;
        drop(params);
        let removed = match self.greeted() {
            Ok(()) => {
                let patience = self.kernel.limits.answer();
                detached(patience, Rc::clone(&self.kernel).remove_module(name)).await
            }
            Err(error) => Err(error),
        };
        write(removed, results.get().init_result());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(open: &[i32], newcomer: i32) -> usize {
        let open: Vec<_> = open.iter().map(|process| (Some(*process), ())).collect();
        one_too_many(&open, Some(newcomer))
    }

    #[test]
    fn who_connects_again_and_again_ends_its_own_connections() {
        assert_eq!(ended(&[1, 7, 7, 7], 7), 1, "the operator's stays");
        assert_eq!(ended(&[7, 7, 7, 7], 1), 0);
        assert_eq!(ended(&[1, 7, 2, 7], 2), 1, "the oldest of those that have as many");
        assert_eq!(ended(&[1, 2, 3, 4], 5), 0, "where nobody has more, the oldest");
    }
}
