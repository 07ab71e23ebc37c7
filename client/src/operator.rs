//! The operator's connection to the kernel, which is there when no client gets in.

use std::path::Path;

use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{result, status},
    limits,
    operator_capnp::operator,
};
use capnp::message::{Builder, HeapAllocator, TypedBuilder};
use capnp_rpc::{RpcSystem, rpc_twoparty_capnp::Side};

use crate::connection::{answer, network};

/// Why there is no answer.
fn broken(error: capnp::Error) -> Error {
    if error.kind != capnp::ErrorKind::Disconnected {
        return crate::connection::broken(error);
    }
    let message = "the kernel has hung up: it has ended, or more operators ask than it serves at a time";
    Error::new(ErrorCode::Unavailable, message)
        .remedy("try again; if that does not help, see with `bulkhead status` whether the kernel is there")
}

/// An operator's connection. Must live in a tokio `LocalSet`; it is driven by a local task.
#[derive(Clone)]
pub struct Operator {
    kernel: operator::Client,
}

/// What a kernel says of itself, to be read.
pub type StatusMessage = TypedBuilder<status::Owned, HeapAllocator>;

impl Operator {
    /// Connects to `operator.sock` and says hello.
    ///
    /// # Errors
    /// `unavailable` where no kernel listens; `version` where it speaks another.
    pub async fn open(socket: &Path) -> Result<Self, Error> {
        let mut system = RpcSystem::new(network(socket)?, None);
        let kernel: operator::Client = system.bootstrap(Side::Server);
        tokio::task::spawn_local(system);
        let mut hello = kernel.hello_request();
        hello.get().set_version(limits::PROTOCOL_VERSION);
        let response = hello.send().promise.await.map_err(broken)?;
        answer(response.get().and_then(|response| response.get_result()).map_err(broken)?)?;
        Ok(Self { kernel })
    }

    /// Who uses what.
    ///
    /// # Errors
    /// Where the kernel is gone.
    pub async fn status(&self) -> Result<StatusMessage, Error> {
        let response = self.kernel.status_request().send().promise.await.map_err(broken)?;
        let result: result::Reader<'_, status::Owned> =
            response.get().and_then(|response| response.get_result()).map_err(broken)?;
        let mut copy = TypedBuilder::new(Builder::new_default());
        copy.set_root(answer(result)?).map_err(broken)?;
        Ok(copy)
    }

    /// Ends a session, whoever's it is.
    ///
    /// # Errors
    /// `notFound` where there is no such session.
    pub async fn evict(&self, session: u32) -> Result<(), Error> {
        let mut evict = self.kernel.evict_request();
        evict.get().set_session(session);
        let response = evict.send().promise.await.map_err(broken)?;
        answer(response.get().and_then(|response| response.get_result()).map_err(broken)?).map(|_| ())
    }

    /// Moves a session's memory to host memory and holds the session until it is resumed. Answers when that is done.
    ///
    /// # Errors
    /// `notFound` where there is no such session; `notSupported` where it shares memory or stays on the device; `outOfMemory` or
    /// `timedOut` where the host has no room or the session's work does not pass: then it goes on.
    pub async fn suspend(&self, session: u32) -> Result<(), Error> {
        let mut suspend = self.kernel.suspend_request();
        suspend.get().set_session(session);
        let response = suspend.send().promise.await.map_err(broken)?;
        answer(response.get().and_then(|response| response.get_result()).map_err(broken)?).map(|_| ())
    }

    /// Lets a suspended session go on. Answers when its memory is back.
    ///
    /// # Errors
    /// `notFound` where there is no such session; `invalidArgument` where it is not suspended; `outOfMemory` where the device
    /// has no room: then it stays suspended.
    pub async fn resume(&self, session: u32) -> Result<(), Error> {
        let mut resume = self.kernel.resume_request();
        resume.get().set_session(session);
        let response = resume.send().promise.await.map_err(broken)?;
        answer(response.get().and_then(|response| response.get_result()).map_err(broken)?).map(|_| ())
    }

    /// Lets sessions claim a protected module: its name, the text of its gates, and how many bytes its window has, those of
    /// host memory among them. Its token is in the runtime directory then, in `NAME.token`.
    ///
    /// # Errors
    /// `invalidArgument` where there is one of that name, or its window has no such size; `limitReached` where there are as
    /// many as a device has; `notSupported` where there is a standby.
    pub async fn add_module(
        &self,
        name: &str,
        gates: &str,
        bytes: u64,
        host_bytes: u64,
    ) -> Result<(), Error> {
        let mut add = self.kernel.add_module_request();
        let mut module = add.get().init_module();
        module.set_name(name);
        module.set_gates(gates.as_bytes());
        module.set_bytes(bytes);
        module.set_host_bytes(host_bytes);
        let response = add.send().promise.await.map_err(broken)?;
        answer(response.get().and_then(|response| response.get_result()).map_err(broken)?).map(|_| ())
    }

    /// Takes a protected module away, and ends the session that has it. Returns when nothing of it is left.
    ///
    /// # Errors
    /// `notFound` where there is none of that name, `timedOut` where something of it is in use for longer.
    pub async fn remove_module(&self, name: &str) -> Result<(), Error> {
        let mut remove = self.kernel.remove_module_request();
        remove.get().set_name(name);
        let response = remove.send().promise.await.map_err(broken)?;
        answer(response.get().and_then(|response| response.get_result()).map_err(broken)?).map(|_| ())
    }
}
