//! Calls about context-local storage, which NVIDIA's runtime makes.

use crate::abi::{Callback, Destructor, Out};
use crate::context::{self, Contexts};
use crate::driver::driver;
use crate::status::{Answer, Status};

/// The context that a call names, or the current one.
fn named(contexts: &Contexts, context: u64) -> Result<u64, Status> {
    if context == 0 {
        return context::current();
    }
    contexts.check(context)?;
    Ok(context)
}

pub(crate) fn put(context: u64, key: Callback, value: Callback, destructor: Destructor) -> Answer {
    let contexts = &driver()?.contexts;
    contexts.storage.put(named(contexts, context)?, key, value, destructor)
}

pub(crate) fn delete(context: u64, key: Callback) -> Answer {
    let contexts = &driver()?.contexts;
    contexts.storage.delete(named(contexts, context)?, key);
    Ok(())
}

pub(crate) fn get(to: Out<u64>, context: u64, key: Callback) -> Answer {
    let contexts = &driver()?.contexts;
    let value = contexts.storage.get(named(contexts, context)?, key).ok_or(Status::INVALID_HANDLE)?;
    to.set(value.0 as u64);
    Ok(())
}
