//! What the registry tells a session.

use std::rc::Rc;

use bulkhead_caps::{Ended, ObjectId};
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, Handle};

use crate::{
    registry::{Batch, Holder},
    session::{Object, Session},
};

impl Holder for Session {
    fn dying(&self) -> Rc<Batch> {
        self.dying()
    }

    fn has_ended(&self, ended: &[Ended]) {
        self.has_ended(ended);
    }

    fn counts(&self, more: u32) {
        self.counts(more);
    }

    fn refund(&self, resource: Resource, amount: u64) {
        self.refund(resource, amount);
    }

    fn is_opened_by(&self, handle: Handle) -> bool {
        self.is_opened_by(handle)
    }

    fn wake_reaper(&self) {
        self.wake_reaper();
    }

    fn end(&self, why: &Error) {
        self.end(why);
    }

    fn unload(code: &Rc<Object>, object: ObjectId) {
        Self::unload(code, object);
    }

    fn remove_module(module: &Rc<Object>, object: ObjectId) {
        Self::remove_module(module, object);
    }

    fn gave_back(&self, object: ObjectId, thing: &Object) {
        self.gave_back(object, thing);
    }
}
