//! Images that are loaded as they are, for the one session of an isolated executor.

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::Arc,
};

use bulkhead_gpu::{EntryInfo, Question};
use bulkhead_schema::{Error, ErrorCode, Handle, limits};

use super::{Control, over};
use crate::{
    control::link::{answer, report},
    device,
    images::load::{self, Native},
    launch::entry::Entry,
    session::{
        Session,
        bindings::{Bindings, Object, Use},
        spawn,
        waiter::Waiter,
    },
    watch::remains::Image,
};

fn no_image() -> Error {
    Error::new(ErrorCode::InvalidHandle, "no such image")
}

/// Binds something of an image, which goes with it.
fn bind_of(session: &Session, image: Handle, handle: Handle, object: Object) -> Result<(), Error> {
    let mut state = session.state.lock();
    if state.closed {
        return Err(over());
    }
    let replaced = state.bindings.bind(handle, object).ok_or_else(super::objects::no_slot)?;
    let there = state.bindings.add_entry(image, handle);
    let unbound = if there { None } else { state.bindings.unbind(handle) };
    let gone: Vec<_> = replaced.into_iter().chain(unbound).filter(Object::outlives_its_handle).collect();
    if !gone.is_empty() {
        // Work that has not passed may name what was bound there.
        state.waiters.push(Waiter::release(gone));
    }
    if there { Ok(()) } else { Err(no_image()) }
}

/// Reads an image that its client has sealed.
fn read(descriptor: OwnedFd) -> Result<Vec<u8>, Error> {
    let broken = |error: std::io::Error| Error::new(ErrorCode::Internal, format!("the image: {error}"));
    let file = File::from(descriptor);
    let bytes = file.metadata().map_err(broken)?.len();
    if bytes > limits::IMAGE_BYTES_MAX {
        return Err(Error::new(ErrorCode::LimitReached, format!("the image has {bytes} bytes")));
    }
    let mut code = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut code, 0).map_err(broken)?;
    Ok(code)
}

impl Control {
    fn may_load_native(&self) -> Result<(), Error> {
        if self.executor.is_isolated() {
            return Ok(());
        }
        let message = "only an executor of one isolated session loads what nobody has checked";
        Err(Error::new(ErrorCode::NotPermitted, message))
    }

    /// Loads an image on a thread of its own: it may be large.
    pub(super) fn load_native(&self, id: u64, handle: Handle, descriptor: OwnedFd) -> Result<(), Error> {
        self.may_load_native()?;
        if !Bindings::has_slot(handle.slot) {
            return Err(super::objects::no_slot());
        }
        let (executor, session) = (Arc::clone(&self.executor), Arc::clone(&self.session));
        let load = move || {
            let device = |error| device::error(&error);
            let loaded = executor.gpu.bind_thread().map_err(device).and_then(|()| {
                let code = read(descriptor)?;
                let loaded = executor.gpu.load_native(&code).map_err(device)?;
                let image = Arc::new(Image::new(loaded.id, &executor.reaper));
                let mut state = session.state.lock();
                if state.closed {
                    return Err(over());
                }
                let object = Object::Image { image, entries: Vec::new() };
                state.bindings.bind(handle, object).ok_or_else(super::objects::no_slot)?;
                Ok(Native { code_bytes: loaded.code_bytes, entry: None })
            });
            match loaded {
                Ok(loaded) => report(session.link.reply(id, None, |reply| loaded.write(handle, reply))),
                Err(error) => answer(&session.link, id, &Err(error)),
            }
        };
        spawn(format!("load-{}", self.session.id), load).map(drop)
    }

    /// The names of an image's entries.
    pub(super) fn native_names(&self, image: Handle) -> Result<Vec<String>, Error> {
        self.may_load_native()?;
        let held = self.session.state.lock().bindings.image(image).ok_or_else(no_image)?;
        let names = self.executor.gpu.native_names(held.id()).map_err(|error| device::error(&error))?;
        let bytes: usize = names.iter().map(|name| name.len() + 16).sum();
        if bytes > limits::NATIVE_NAMES_BYTES_MAX {
            let message = format!("the image has {} entries, too many to list", names.len());
            return Err(Error::new(ErrorCode::LimitReached, message).remedy("ask for entries by name"));
        }
        Ok(names)
    }

    /// Asks the driver something.
    pub(super) fn question(
        &self,
        entry: Handle,
        question: Question,
        words: &[u64],
    ) -> Result<Vec<u64>, Error> {
        self.may_load_native()?;
        if words.len() != question.words() {
            let message = format!("{question:?} takes {} words, not {}", question.words(), words.len());
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        let entry = if question.is_of_entry() {
            let mut state = self.session.state.lock();
            let entry = state.bindings.entry(entry.slot, entry.generation);
            let entry = entry.ok_or_else(|| Error::new(ErrorCode::InvalidHandle, "no such entry"))?;
            Some(entry.template.id)
        } else {
            None
        };
        self.executor.gpu.ask(question, entry, words).map_err(|error| device::error(&error))
    }

    /// Asks the driver for a variable, and has records name it as a buffer.
    pub(super) fn native_variable(
        &self,
        id: u64,
        image: Handle,
        name: String,
        handle: Handle,
    ) -> Result<(), Error> {
        self.may_load_native()?;
        let (executor, session) = (Arc::clone(&self.executor), Arc::clone(&self.session));
        let ask = move || {
            let device = |error| device::error(&error);
            let asked = executor.gpu.bind_thread().map_err(device).and_then(|()| {
                let held = session.state.lock().bindings.image(image).ok_or_else(no_image)?;
                let found = executor.gpu.native_variable(held.id(), &name).map_err(device)?;
                let (at, bytes) = found.ok_or_else(|| {
                    Error::new(ErrorCode::NotFound, format!("the image has no variable {name}"))
                })?;
                let object = Object::Buffer { address: at.0, bytes, may: Use::ReadWrite };
                bind_of(&session, image, handle, object)?;
                Ok((at.0, bytes))
            });
            match asked {
                Ok((at, bytes)) => report(session.link.reply(id, None, |reply| {
                    let mut variable = reply.init_variable();
                    variable.set_address(at);
                    variable.set_bytes(bytes);
                })),
                Err(error) => answer(&session.link, id, &Err(error)),
            }
        };
        spawn(format!("variable-{}", self.session.id), ask).map(drop)
    }

    /// Sets an attribute of an entry.
    pub(super) fn native_attribute(&self, entry: Handle, attribute: u32, value: i32) -> Result<(), Error> {
        self.may_load_native()?;
        let mut state = self.session.state.lock();
        let entry = state.bindings.entry(entry.slot, entry.generation);
        let entry = entry.ok_or_else(|| Error::new(ErrorCode::InvalidHandle, "no such entry"))?.template.id;
        drop(state);
        let set = self.executor.gpu.set_entry_attribute(entry, attribute, value);
        set.map_err(|error| device::error(&error))
    }

    /// Asks the driver for an entry, which may load its code now.
    pub(super) fn native_entry(
        &self,
        id: u64,
        image: Handle,
        name: String,
        handle: Handle,
    ) -> Result<(), Error> {
        self.may_load_native()?;
        let (executor, session) = (Arc::clone(&self.executor), Arc::clone(&self.session));
        let ask = move || {
            let device = |error| device::error(&error);
            let asked = executor.gpu.bind_thread().map_err(device).and_then(|()| {
                let held = session.state.lock().bindings.image(image).ok_or_else(no_image)?;
                let info: EntryInfo =
                    executor.gpu.native_entry(held.id(), &name).map_err(device)?.ok_or_else(|| {
                        Error::new(ErrorCode::NotFound, format!("the image has no entry {name}"))
                    })?;
                let template = load::native_template(&info)?;
                let entry = Object::Entry(Box::new(Entry { template, image: held }));
                bind_of(&session, image, handle, entry)?;
                Ok(Native { code_bytes: 0, entry: Some(info) })
            });
            match asked {
                Ok(asked) => report(session.link.reply(id, None, |reply| asked.write(handle, reply))),
                Err(error) => answer(&session.link, id, &Err(error)),
            }
        };
        spawn(format!("entry-{}", self.session.id), ask).map(drop)
    }
}
