//! What all connections share.

use std::{cell::Cell, collections::HashSet, path::PathBuf, rc::Rc};

use bulkhead_mm::{Amounts, PROTECTED_WINDOWS, Resource};
use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{module_status, status},
};

use crate::{
    Limits,
    compile::process::Compiler,
    executor_proxy::{DeviceInfo, length},
    ledger::{columns, write_columns},
    modules::protected::{Known, ProtectedModule},
    principals::Principals,
    session::{Session, device::Device},
    transport::descriptors::Tokens,
};

/// Says which modules there are, who has them, and whose kernels may call them.
fn write_modules(device: &Device, mut list: capnp::struct_list::Builder<'_, module_status::Owned>) {
    let sessions = device.registry.sessions();
    for (at, module) in (0..list.len()).zip(&*device.modules.borrow()) {
        let mut status = list.reborrow().get(at);
        status.set_name(&module.protected.name);
        status.set_bytes(module.protected.bytes);
        status.set_session(module.holder.get().unwrap_or(0));
        let mut callers: Vec<_> =
            sessions.iter().filter(|session| session.calls(module)).map(|session| session.id).collect();
        callers.sort_unstable();
        let mut list = status.init_callers(length(callers.len()));
        for (at, caller) in (0..).zip(callers) {
            list.set(at, caller);
        }
    }
}

/// What all connections share.
pub(crate) struct Kernel {
    pub(crate) limits: Limits,
    pub(crate) devices: Vec<Rc<Device>>,
    pub(crate) tokens: Rc<Tokens>,
    pub(crate) compiler: Compiler,
    pub(crate) descriptor_socket: String,
    pub(crate) next_connection: Cell<u64>,
    /// What the next session is called that no session is called now.
    pub(crate) next_session: Cell<u32>,
    pub(crate) principals: Rc<Principals>,
    /// Where the sockets are, and the files of modules.
    pub(crate) directory: PathBuf,
}

impl Kernel {
    pub(crate) fn device(&self, index: u32) -> Result<Rc<Device>, Error> {
        let device = self.devices.get(index as usize).map(Rc::clone);
        device.ok_or_else(|| {
            Error::new(ErrorCode::NotFound, format!("there is no device {index}"))
                .remedy("`listDevices` says which there are")
        })
    }

    /// Every device that an executor serves.
    pub(crate) async fn list_devices(&self) -> Result<Vec<(u32, DeviceInfo)>, Error> {
        let mut listed = Vec::new();
        for device in &self.devices {
            listed.push((device.executor.index, device.executor.wait().await?.info.clone()));
        }
        Ok(listed)
    }

    /// A number for a session: the next that no session has which is not gone. After the last comes the first.
    pub(crate) fn session_number(&self) -> u32 {
        let taken: HashSet<u32> = self
            .devices
            .iter()
            .flat_map(|device| device.registry.sessions())
            .map(|session| session.id)
            .collect();
        let mut number = self.next_session.get().max(1);
        while taken.contains(&number) {
            number = number.checked_add(1).unwrap_or(1);
        }
        self.next_session.set(number.checked_add(1).unwrap_or(1));
        number
    }

    /// Every session that was opened, in order, until it is gone.
    fn sessions(&self) -> Vec<Rc<Session>> {
        let mut sessions: Vec<_> =
            self.devices.iter().flat_map(|device| device.registry.sessions()).collect();
        // One that its own executor does not open is told of before.
        let is_there = |session: &Rc<Session>| session.is_known() || session.device.executor.is_isolated();
        sessions.retain(|session| is_there(session) && !session.is_gone());
        sessions.sort_unstable_by_key(|session| session.id);
        sessions
    }

    /// A session that the operator names.
    pub(crate) fn session(&self, id: u32) -> Result<Rc<Session>, Error> {
        self.sessions().into_iter().find(|session| session.id == id).ok_or_else(|| {
            Error::new(ErrorCode::NotFound, format!("there is no session {id}"))
                .remedy("`bulkhead status` says which there are")
        })
    }

    /// The same, once it was opened whole.
    pub(crate) fn open_session(&self, id: u32) -> Result<Rc<Session>, Error> {
        let session = self.session(id)?;
        if session.is_known() {
            return Ok(session);
        }
        let message = format!("session {id} is being opened");
        Err(Error::new(ErrorCode::Unavailable, message).remedy("try again: `bulkhead evict` ends it"))
    }

    /// Ends a session for the operator.
    pub(crate) fn evict(&self, id: u32) -> Result<(), Error> {
        let session = self.session(id)?;
        session.end(&Error::new(ErrorCode::SessionLost, "the operator has ended the session"));
        Ok(())
    }

    /// Lets sessions claim a module that was not named when the kernel started.
    pub(crate) fn add_module(&self, module: ProtectedModule) -> Result<(), Error> {
        module.check()?;
        let device = self.device(0)?;
        let mut modules = device.modules.borrow_mut();
        if modules.iter().any(|known| known.protected.name == module.name) {
            let message = format!("there is a module {}", module.name);
            return Err(Error::new(ErrorCode::InvalidArgument, message)
                .remedy("take it away first, with `bulkhead module stop`"));
        }
        if modules.len() >= PROTECTED_WINDOWS as usize {
            let message = format!("a device has at most {PROTECTED_WINDOWS} modules");
            return Err(Error::new(ErrorCode::LimitReached, message));
        }
        modules.push(Known::new(module, &self.directory)?);
        Ok(())
    }

    /// Takes a module away, with the session that has it. Answers when nothing of it is left.
    pub(crate) async fn remove_module(self: Rc<Self>, name: String) -> Result<(), Error> {
        let device = self.device(0)?;
        let at = device.modules.borrow().iter().position(|known| known.protected.name == name);
        let at = at.ok_or_else(|| {
            Error::new(ErrorCode::NotFound, format!("there is no module {name}"))
                .remedy("`bulkhead module list` says which there are")
        })?;
        let known = device.modules.borrow_mut().remove(at);
        known.remove();
        tracing::info!(target: "bulkhead::audit", name, "module taken away by the operator");
        while let Some(holder) = known.holder.get() {
            let free = known.free.notified();
            // It may have ended before: then it is on its way out.
            match self.evict(holder) {
                Err(error) if error.code != ErrorCode::NotFound => return Err(error),
                Ok(()) | Err(_) => free.await,
            }
        }
        Ok(())
    }

    /// Asks executors what [status](Self::status) tells of them. Waits for a moment at most.
    pub(crate) async fn ask_busy(&self) {
        let sessions = self.sessions();
        let alone =
            sessions.iter().map(|session| &session.device).filter(|device| device.executor.is_isolated());
        let asked = self.devices.iter().chain(alone).map(|device| device.executor.ask_busy());
        futures::future::join_all(asked).await;
    }

    /// Says who uses what.
    pub(crate) fn status(&self, mut builder: status::Builder<'_>) {
        let mut devices = builder.reborrow().init_devices(length(self.devices.len()));
        for (at, device) in (0u32..).zip(&self.devices) {
            let running = device.executor.running();
            let mut status = devices.reborrow().get(at);
            status.set_index(device.executor.index);
            status.set_executor_pid(running.as_ref().map_or(0, |running| running.pid));
            status.set_executor_starts(device.executor.starts());
            status.set_standby_pid(device.executor.standby_pid());
            status.set_failovers(device.executor.failovers());
            status.set_warm(device.executor.warm());
            status.set_unclaimed_bytes(device.executor.unclaimed());
            let [compiled, kept, loaded] = device.executor.images();
            status.set_images_compiled(compiled);
            status.set_images_kept(kept);
            status.set_images_loaded(loaded);
            status.set_strict(running.as_ref().is_some_and(|running| running.info.strict));
            let usable = running.as_ref().map(|running| self.limits.usable_bytes(&running.info));
            status.set_memory_bytes(usable.unwrap_or(0));
            let (outs, ins, moved_bytes) = device.mover.counts();
            status.set_swap_outs(outs);
            status.set_swap_ins(ins);
            status.set_swapped_bytes(moved_bytes);
            write_modules(device, status.reborrow().init_modules(length(device.modules.borrow().len())));
            let ledger = device.executor.ledger.borrow();
            status.set_charged_bytes(ledger.used().get(Resource::DeviceBytes));
            write_columns(ledger.used(), ledger.limits(), status.init_ledger(columns()));
        }
        let sessions = self.sessions();
        let mut list = builder.init_sessions(length(sessions.len()));
        for (at, session) in (0u32..).zip(&sessions) {
            let used = session.used();
            let mut status = list.reborrow().get(at);
            status.set_id(session.id);
            status.set_name(&session.name);
            status.set_device(session.device.executor.index);
            status.set_pid(session.pid);
            status.set_buffer_bytes(session.own_bytes());
            status.set_arena_bytes(used.get(Resource::DeviceBytes));
            status.set_host_bytes(used.get(Resource::HostBytes));
            status.set_capabilities(u32::try_from(used.get(Resource::Capabilities)).unwrap_or(u32::MAX));
            status.set_lost(session.live().is_err());
            status.set_parent(session.parent().unwrap_or(0));
            status.set_priority(session.terms.priority);
            status.set_swappable(session.may_be_away());
            status.set_swapped_bytes(session.away_bytes());
            status.set_swaps(session.swaps());
            let is_there = session.is_on_the_device();
            status.set_suspended(session.is_suspended() && !is_there);
            status.set_suspending(session.is_suspended() && is_there);
            status.set_busy_ms(session.device.executor.busy_ms(session.id));
            status.set_granted(length(session.granted_count()));
            status.set_quarantined_bytes(session.quarantined_bytes());
            let alone =
                session.device.executor.is_isolated().then(|| session.device.executor.running()).flatten();
            status.set_executor_pid(alone.map_or(0, |running| running.pid));
            session.write_ledger(status.init_ledger(columns()));
        }
    }

    /// Ends every session and waits a moment for the executors to let go of them. Where they did, what is there all the
    /// same, though nobody has it.
    pub(crate) async fn end_sessions(&self, why: &Error) -> Option<String> {
        // Those too that are being opened, and those that no client knows any more.
        let sessions: Vec<_> = self.devices.iter().flat_map(|device| device.registry.sessions()).collect();
        for session in &sessions {
            session.end(why);
        }
        let closed = futures::future::join_all(sessions.iter().map(|session| session.close()));
        if tokio::time::timeout(self.limits.second, closed).await.is_err() {
            tracing::warn!("sessions were still closing when the kernel ended");
            return None;
        }
        let stuck = sessions.iter().any(|session| !session.is_gone());
        self.devices.iter().filter(|_| !stuck).find_map(|device| {
            let used = device.executor.ledger.borrow().used();
            let charged = (used != Amounts::NONE).then(|| format!("charges: {used:?}"));
            device.registry.leftovers().or_else(|| device.sturdy.leftovers()).or(charged)
        })
    }
}
