//! Protected modules of a session, and those of others whose gates its kernels may call.

use std::{os::fd::OwnedFd, path::PathBuf, rc::Rc};

use bulkhead_caps::{Access, Kind, Need, ObjectId};
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, Handle};

use super::{Session, memory::sealed_memory};
use crate::{
    books::{Batch, Loaded, SturdyToken, Thing, What},
    executor::{self, Answer, Answering},
    held::Held,
    modules::{Known, Owned},
    refusal::internal,
};

/// Gates that a session accepted.
pub(super) struct Accepted {
    object: ObjectId,
    /// What the executor calls their module.
    number: u32,
    known: Rc<Known>,
}

impl Session {
    /// Makes the module that a token was written for, as this session's; with how many bytes its window has.
    pub(crate) async fn claim_module(self: Rc<Self>, token: SturdyToken) -> Result<(Held, u64), Error> {
        let _change = self.change()?;
        let unknown = || {
            Error::new(ErrorCode::NotFound, "the token is no module's")
                .remedy("`bulkhead serve --module` and `bulkhead module start` write one for each module")
        };
        let known = self.device.modules.borrow().iter().find(|known| known.token == token).cloned();
        let known = &known.ok_or_else(unknown)?;
        if self.limits.standby {
            let message =
                "there are no protected modules where there is a standby, which would not have their memory";
            return Err(Error::new(ErrorCode::NotSupported, message).remedy("serve without --standby"));
        }
        let copied = |error: std::io::Error| internal(format!("a descriptor cannot be copied: {error}"));
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
        charges.push(self.charge(Resource::Descriptors, 1)?);
        let page = bulkhead_ring::create_activity();
        let page = page.map_err(|error| internal(format!("no memory for an activity page: {error}")))?;
        let (activity, for_seals) = (page.try_clone().map_err(copied)?, page.try_clone().map_err(copied)?);
        let for_executor = host.as_ref().map(OwnedFd::try_clone).transpose().map_err(copied)?;
        let text = known.text.try_clone();
        let text = text.map_err(copied)?;
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
        let owned = Owned::new(known, self.id, number, (host, activity), charges);
        let thing = Thing::new(Rc::downgrade(&self), What::Module(owned));
        let created = self.books().create(self.owner, Kind::Module, 0, thing);
        let (handle, object, thing) = created.inspect_err(|_| known.release())?;
        capability.keep();
        self.objects.borrow_mut().insert(object);
        // From here on all of it goes when this does.
        let held = Held::new(Rc::clone(&self), handle);
        let What::Module(owned) = &thing.what else { return Err(internal("a module is something else")) };
        // Whatever comes of it: it is removed before it is given back, and that is not asked for sooner.
        owned.state.set(Loaded::Yes);
        let turn = owned.busy.lock().await;
        let added = self.link().call(None, vec![text], |request| {
            let mut add = request.init_add_module();
            add.set_module(number);
            add.set_bytes(bytes);
            add.set_host_bytes(host_bytes);
        });
        self.done(&added.await?)?;
        if let Some(memory) = for_executor {
            let mapped = self.link().call(None, vec![memory], |mut request| request.set_map_module(number));
            self.done(&mapped.await?)?;
        }
        let watched = self.link().call(None, vec![page], |mut request| request.set_watch_module(number));
        let watched = watched.await?;
        // Whoever has the page maps it for reading only.
        if !executor::is_sealed(&for_seals) {
            return Err(self.nonsense(&watched));
        }
        self.done(&watched)?;
        drop(turn);
        tracing::info!(
            target: "bulkhead::audit", session = self.id, module = known.protected.name, bytes, "module claimed"
        );
        held.look()?;
        Ok((held, bytes))
    }

    /// Has the window of a module removed that nobody names, and none of whose callers is at work any more.
    pub(crate) fn remove_module(thing: &Rc<Thing>, object: ObjectId) {
        let Some(session) = thing.session.upgrade() else { return };
        let What::Module(owned) = &thing.what else { return };
        if owned.state.get() != Loaded::Yes {
            return;
        }
        owned.state.set(Loaded::Unloading);
        let thing = Rc::clone(thing);
        tokio::task::spawn_local(async move {
            let What::Module(owned) = &thing.what else { return };
            let turn = owned.busy.lock().await;
            let link = session.link();
            loop {
                let removed =
                    link.call(None, Vec::new(), |mut request| request.set_remove_module(owned.number));
                match removed.await {
                    Ok(Answer::Done) => break,
                    Err(error) if error.code == ErrorCode::NotFound => break,
                    // All that the executor had is gone.
                    _ if link.failure().is_some() => break,
                    Ok(other) => drop(session.nonsense(&other)),
                    Err(error) => {
                        tracing::warn!(module = owned.known.protected.name, %error, "a module is not removed");
                        tokio::time::sleep(session.limits.second).await;
                    }
                }
            }
            drop(turn);
            tracing::info!(
                target: "bulkhead::audit", session = session.id, module = owned.known.protected.name, "module gone"
            );
            owned.state.set(Loaded::No);
            session.books().may_give_back(object);
        });
    }

    /// Lets what it loads from now on call gates, for a capability that is derived from what was given, with its badge.
    pub(crate) async fn accept_gates(
        self: Rc<Self>,
        given: Rc<Self>,
        parent: Handle,
        badge: u64,
    ) -> Result<Held, Error> {
        let _own_change = self.change()?;
        let _their_change = given.change()?;
        if !Rc::ptr_eq(&given.device, &self.device) || !Rc::ptr_eq(&given.incarnation(), &self.incarnation())
        {
            return Err(Error::new(ErrorCode::NotPermitted, "the module lies with another executor")
                .remedy("open a new session"));
        }
        let view = self.books().look(given.owner, parent)?;
        let thing = self.books().thing(view.object)?;
        let What::Module(owned) = &thing.what else { return Err(internal("gates are of something else")) };
        if self.gates.borrow().values().any(|known| known.object == view.object) {
            let message = format!("the session may call the gates of {} already", owned.known.protected.name);
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        // The child is there first: whatever is revoked from here on revokes it too.
        let charge = self.charge(Resource::Capabilities, 1)?;
        let need = Need { kind: Kind::Gates, access: Access::Read, offset: 0, bytes: 0 };
        let handle = self.books().derive(given.owner, parent, self.owner, need)?;
        charge.keep();
        let held = Held::new(Rc::clone(&self), handle);
        let (number, known) = (owned.number, Rc::clone(&owned.known));
        let accepted = Accepted { object: view.object, number, known };
        self.gates.borrow_mut().insert(handle, accepted);
        let granted = self.link().call(Some(self.id), Vec::new(), |request| {
            let mut grant = request.init_grant_module();
            grant.set_module(number);
            grant.set_session(self.id);
            grant.set_caller(self.id.into());
            grant.set_badge(badge);
        });
        if let Err(error) = granted.await.and_then(|answer| self.done(&answer)) {
            // There is nothing to be revoked there.
            self.gates.borrow_mut().remove(&handle);
            return Err(error);
        }
        held.look()?;
        tracing::info!(
            target: "bulkhead::audit",
            session = self.id, module = owned.known.protected.name, of = given.id, "gates accepted"
        );
        Ok(held)
    }

    /// Has gates of modules find nothing open whose host half has let go, or has ended.
    pub(super) fn close_modules(&self, batch: &Batch) -> Vec<Answering> {
        let modules = batch.modules();
        let modules = modules.iter().filter_map(|object| match &self.books().thing(*object).ok()?.what {
            What::Module(owned) => Some(owned.number),
            What::Memory(_)
            | What::Host { .. }
            | What::Code(_)
            | What::Point(_)
            | What::Program
            | What::Peer => None,
        });
        let close =
            |number| self.link().call(None, Vec::new(), |mut request| request.set_close_module(number));
        modules.map(close).collect()
    }

    /// Has launches refused of what calls gates that have ended.
    pub(super) fn revoke_gates(&self, batch: &Batch) -> Vec<Answering> {
        let mut known = self.gates.borrow_mut();
        if known.is_empty() {
            return Vec::new();
        }
        let dead = batch.dead();
        let ended = dead.iter().filter_map(|dead| known.remove(&dead.handle));
        ended
            .map(|gates| {
                let module = &gates.known.protected.name;
                tracing::info!(target: "bulkhead::audit", session = self.id, module, "gates taken back");
                self.link().call(Some(self.id), Vec::new(), |request| {
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
    pub(super) fn callable(&self) -> (Vec<PathBuf>, Vec<u32>) {
        let gates = self.gates.borrow();
        let mut numbers: Vec<_> = gates.values().map(|gates| gates.number).collect();
        numbers.sort_unstable();
        (gates.values().map(|gates| gates.known.path.clone()).collect(), numbers)
    }
}
