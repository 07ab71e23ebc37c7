//! Entries that a session lends to others, and those that it was lent.

use std::rc::Rc;

use bulkhead_caps::{Access, Kind, Need};
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, Handle};

use crate::{
    executor_proxy::EntryInfo,
    refusal::not_here,
    registry::What,
    session::{
        Object, Session, Terms,
        reference::{Reference, Share},
    },
};

impl Session {
    /// A program of these entries of its own.
    pub(crate) fn derive(
        self: &Rc<Self>,
        entries: &[Handle],
        terms: Terms,
    ) -> Result<(Reference, Share), Error> {
        if self.device.executor.is_isolated() {
            let message = "an isolated session gives no programs away: they would run in its context";
            return Err(Error::new(ErrorCode::NotSupported, message).remedy("derive from a guarded session"));
        }
        self.live()?;
        let terms = terms.within(&self.terms);
        let entries = entries.iter().map(|entry| self.entry(*entry)).collect::<Result<_, _>>()?;
        let share = Share::new(self, entries, terms)?;
        let held = self.hold(Kind::Program, What::Program)?;
        Ok((held, share))
    }

    fn entry(&self, handle: Handle) -> Result<(Handle, Rc<EntryInfo>), Error> {
        self.registry().is_entry(self.owner, handle)?;
        let thing = self.registry().thing(self.registry().look(self.owner, handle)?.object)?;
        let What::Code(code) = &thing.what else { return Err(not_here(handle)) };
        let found = code.entries.borrow().iter().find(|(known, _)| *known == handle).cloned();
        found.ok_or_else(|| not_here(handle))
    }

    /// A capability for something that the executor does not know.
    pub(crate) fn hold(self: &Rc<Self>, kind: Kind, what: What) -> Result<Reference, Error> {
        let charge = self.charge(Resource::Capabilities, 1)?;
        let thing = Object::new(Rc::downgrade(self), what);
        let (handle, object, _) = self.registry().create(self.owner, kind, 0, thing)?;
        charge.keep();
        self.objects.borrow_mut().insert(object);
        Ok(Reference::new(Rc::clone(self), handle))
    }

    /// Binds the entries of the program that the session was opened from.
    pub(crate) async fn take_entries(&self) -> Result<Vec<(Handle, Rc<EntryInfo>)>, Error> {
        let Some(parent) = &self.parent else { return Ok(Vec::new()) };
        if parent.share.entries.is_empty() {
            return Ok(Vec::new());
        }
        let _change = self.change()?;
        let need = Need { kind: Kind::Entry, access: Access::Read, offset: 0, bytes: 1 };
        let (mut own, mut described) = (Vec::new(), Vec::new());
        for (theirs, info) in &parent.share.entries {
            let charge = self.charge(Resource::Capabilities, 1)?;
            let handle = self.registry().derive(parent.session.owner, *theirs, self.owner, need)?;
            charge.keep();
            own.push((handle, *theirs));
            described.push((handle, Rc::clone(info)));
        }
        self.bind_entries(&parent.session, &own).await?;
        self.lent.borrow_mut().clone_from(&own);
        self.live()?;
        Ok(described)
    }
}
