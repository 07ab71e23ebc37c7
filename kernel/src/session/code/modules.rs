//! Protected modules of a session, and those of others whose gates its kernels may call.

use std::{path::PathBuf, rc::Rc};

use bulkhead_caps::{Access, Kind, Need, ObjectId};
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, Handle, executor_capnp};

use crate::{
    executor_proxy::{Answering, Incarnation},
    modules::{Owned, protected::Known},
    refusal::internal,
    registry::{Batch, Loaded, SturdyToken, What},
    session::{Object, Session, code::gates::Accepted, memory::sealed_memory, reference::Reference},
};

impl Session {
    /// Makes the module that a token was written for, as this session's; with how many bytes its window has.
    pub(crate) async fn claim_module(self: Rc<Self>, token: SturdyToken) -> Result<(Reference, u64), Error> {
        let _change = self.change()?;
        let unknown = || {
            Error::new(ErrorCode::NotFound, "the token is no module's")
                .remedy("`bulkhead serve --module` and `bulkhead module start` write one for each module")
        };
        let known = self.device.modules.borrow().iter().find(|known| known.token == token).cloned();
        let known = &known.ok_or_else(unknown)?;
        let (bytes, host_bytes) = (known.protected.bytes, known.protected.host_bytes);
        let mut charges = vec![self.charge_device(bytes - host_bytes).await?];
        let host = match host_bytes {
            0 => None,
            _ => {
                charges.push(self.charge(Resource::HostBytes, host_bytes)?);
                charges.push(self.charge(Resource::Descriptors, 1)?);
                let made = sealed_memory(host_bytes);
                Some(made.map_err(|error| {
                    Error::new(ErrorCode::OutOfMemory, format!("no host memory for the module: {error}"))
                })?)
            }
        };
        self.live()?;
        if known.is_removed.get() {
            return Err(unknown());
        }
        if let Some(holder) = known.holder.get() {
            let message = format!("session {holder} has the module {}", known.protected.name);
            return Err(Error::new(ErrorCode::Unavailable, message).remedy("try again when that has ended"));
        }
        let capability = self.charge(Resource::Capabilities, 1)?;
        let number = self.device.next_module()?;
        let owned = Owned::new(known, self.id, number, host, charges);
        let thing = Object::new(Rc::downgrade(&self), What::Module(owned));
        let created = self.registry().create(self.owner, Kind::Module, 0, thing);
        let (handle, object, thing) = created.inspect_err(|_| known.release())?;
        capability.keep();
        self.objects.borrow_mut().insert(object);
        // From here on all of it goes when this does.
        let held = Reference::new(Rc::clone(&self), handle);
        let What::Module(owned) = &thing.what else { return Err(internal("a module is something else")) };
        // Whatever comes of it: it is removed before it is given back, and that is not asked for sooner.
        owned.state.set(Loaded::Yes);
        let turn = owned.busy.lock().await;
        self.make_window(owned, &self.incarnation(), None).await?;
        drop(turn);
        if let Some(unsaid) = self.party.line() {
            let module = &known.protected.name;
            tracing::info!(target: "bulkhead::audit", session = self.id, module, bytes, unsaid, "module claimed");
        }
        // A standby that comes later is told with the session.
        if let Some(standby) = self.device.executor.standby()
            && let Err(error) = self.tell_window(owned, &standby).await
        {
            self.pair(&standby).falls_behind(&error);
        }
        held.look()?;
        Ok((held, bytes))
    }

    /// Has the window of a module removed that nobody names, and none of whose callers is at work any more.
    pub(crate) fn remove_module(thing: &Rc<Object>, object: ObjectId) {
        let Some(session) = thing.session.upgrade() else { return };
        let What::Module(owned) = &thing.what else { return };
        if owned.state.get() != Loaded::Yes {
            return;
        }
        owned.state.set(Loaded::Unloading);
        let thing = Rc::clone(thing);
        tokio::task::spawn_local(async move {
            let What::Module(owned) = &thing.what else { return };
            let told = owned.telling.lock().await;
            let turn = owned.busy.lock().await;
            for window in owned.windows() {
                session.remove_window(owned, &window).await;
            }
            drop((turn, told));
            if let Some(unsaid) = session.party.line() {
                let module = &owned.known.protected.name;
                tracing::info!(target: "bulkhead::audit", session = session.id, module, unsaid, "module gone");
            }
            owned.state.set(Loaded::No);
            session.registry().may_give_back(object);
        });
    }

    /// Lets what it loads from now on call gates, for a capability that is derived from what was given, with its badge.
    pub(crate) async fn accept_gates(
        self: Rc<Self>,
        given: Rc<Self>,
        parent: Handle,
        badge: u64,
    ) -> Result<Reference, Error> {
        // Where both are about to go on with another executor, one may have and the other not yet.
        given.may_move().await;
        self.may_move().await;
        let _own_change = self.change()?;
        let _their_change = given.change()?;
        if !Rc::ptr_eq(&given.device, &self.device) || !Rc::ptr_eq(&given.incarnation(), &self.incarnation())
        {
            return Err(Error::new(ErrorCode::NotPermitted, "the module lies with another executor")
                .remedy("open a new session"));
        }
        let view = self.registry().look(given.owner, parent)?;
        let thing = self.registry().thing(view.object)?;
        let What::Module(owned) = &thing.what else { return Err(internal("gates are of something else")) };
        if self.gates.borrow().values().any(|known| known.object == view.object) {
            let message = format!("the session may call the gates of {} already", owned.known.protected.name);
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        // The child is there first: whatever is revoked from here on revokes it too.
        let charge = self.charge(Resource::Capabilities, 1)?;
        let need = Need { kind: Kind::Gates, access: Access::Read, offset: 0, bytes: 0 };
        let handle = self.registry().derive(given.owner, parent, self.owner, need)?;
        charge.keep();
        let held = Reference::new(Rc::clone(&self), handle);
        let (number, known) = (owned.number, Rc::clone(&owned.known));
        let accepted = Accepted { object: view.object, number, known, badge };
        self.gates.borrow_mut().insert(handle, accepted);
        let granted = self.ask(Vec::new(), |request| {
            self.write_grant(request.init_grant_module(), number, badge);
        });
        if let Err(error) = granted.await.and_then(|answer| self.done(&answer)) {
            // There is nothing to be revoked there.
            self.gates.borrow_mut().remove(&handle);
            return Err(error);
        }
        held.look()?;
        if let Some(unsaid) = self.party.line() {
            let module = &owned.known.protected.name;
            tracing::info!(target: "bulkhead::audit", session = self.id, module, of = given.id, unsaid, "gates accepted");
        }
        Ok(held)
    }

    fn write_grant(&self, mut grant: executor_capnp::grant_module::Builder<'_>, number: u32, badge: u64) {
        grant.set_module(number);
        grant.set_session(self.id);
        grant.set_caller(self.id.into());
        grant.set_badge(badge);
    }

    /// Tells a standby, without waiting, which gates it may call.
    pub(crate) fn tell_gates(&self, standby: &Incarnation) -> Vec<Answering> {
        let gates = self.gates.borrow();
        let grant = |gates: &Accepted| {
            standby.link.call(Some(self.id), Vec::new(), |request| {
                self.write_grant(request.init_grant_module(), gates.number, gates.badge);
            })
        };
        gates.values().map(grant).collect()
    }

    /// Has gates of modules find nothing open whose host half has let go, or has ended.
    pub(crate) async fn close_modules(&self, batch: &Batch) -> Result<(), Error> {
        let mut closed = Ok(());
        for object in batch.modules() {
            let Ok(thing) = self.registry().thing(object) else { continue };
            let What::Module(owned) = &thing.what else { continue };
            let close = async || {
                let asked =
                    self.link().call(None, Vec::new(), |mut request| request.set_close_module(owned.number));
                self.done(&asked.await?)
            };
            match self.again(close).await {
                // Its window was never there.
                Err(error) if error.code == ErrorCode::NotFound => {}
                done => closed = closed.and(done),
            }
        }
        closed
    }

    /// Has launches refused of what calls gates that have ended.
    pub(crate) fn revoke_gates(&self, batch: &Batch) -> Vec<Answering> {
        let mut known = self.gates.borrow_mut();
        if known.is_empty() {
            return Vec::new();
        }
        let dead = batch.dead();
        let ended = dead.iter().filter_map(|dead| known.remove(&dead.handle));
        ended
            .map(|gates| {
                let module = &gates.known.protected.name;
                if let Some(unsaid) = self.party.line() {
                    tracing::info!(target: "bulkhead::audit", session = self.id, module, unsaid, "gates taken back");
                }
                self.ask(Vec::new(), |request| {
                    let mut grant = request.init_revoke_module();
                    grant.set_module(gates.number);
                    grant.set_session(self.id);
                })
            })
            .collect()
    }

    /// Whether it has accepted the gates of a module.
    pub(crate) fn calls(&self, module: &Rc<Known>) -> bool {
        self.gates.borrow().values().any(|gates| Rc::ptr_eq(&gates.known, module))
    }

    /// The texts of the gates that its kernels may call, and which they are.
    pub(crate) fn callable(&self) -> (Vec<PathBuf>, Vec<u32>) {
        let gates = self.gates.borrow();
        let mut numbers: Vec<_> = gates.values().map(|gates| gates.number).collect();
        numbers.sort_unstable();
        (gates.values().map(|gates| gates.known.path.clone()).collect(), numbers)
    }
}
