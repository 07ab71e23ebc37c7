//! Capabilities for loaded code.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use bulkhead_schema::{
    Error, ErrorCode, Handle,
    bulkhead_capnp::{entry, gpu_module},
    limits,
};

use crate::{
    executor_proxy::{EntryInfo, length},
    ledger::Charge,
    refusal::not_here,
    session::{code::images::NewImage, reference::Reference},
    task::counted,
};

/// Loaded code. Dropping it unloads it.
pub(crate) struct Image {
    held: Reference,
    entries: RefCell<Vec<(Handle, Rc<EntryInfo>)>>,
    /// Which of those has a name: names are long, and a client asks for as many as it likes.
    by_name: RefCell<HashMap<String, usize>>,
    named: Option<Named>,
}

/// Where entries are asked for by name.
#[derive(Default)]
struct Named {
    /// How many of those that were asked for there are.
    count: Cell<u32>,
    /// The capabilities for those that there are, and for variables.
    held: RefCell<Vec<(Reference, Charge)>>,
    variables: RefCell<HashMap<String, Found>>,
}

/// A variable: its handle, address and bytes.
type Found = (Handle, u64, u64);

impl Image {
    /// Of what was loaded.
    pub(crate) fn new(loaded: NewImage) -> Self {
        match loaded {
            NewImage::Whole(held, entries) => Self::whole(held, entries),
            NewImage::ByName(held) => Self::by_name(held),
        }
    }

    fn whole(held: Reference, entries: Vec<(Handle, Rc<EntryInfo>)>) -> Self {
        let mut by_name = HashMap::with_capacity(entries.len());
        for (at, (_, info)) in entries.iter().enumerate() {
            by_name.entry(info.name.clone()).or_insert(at);
        }
        Self { held, entries: RefCell::new(entries), by_name: RefCell::new(by_name), named: None }
    }

    /// An image none of whose entries is known yet.
    fn by_name(held: Reference) -> Self {
        Self { held, entries: RefCell::default(), by_name: RefCell::default(), named: Some(Named::default()) }
    }

    /// Whether its entries are asked for by name.
    pub(crate) fn is_by_name(&self) -> bool {
        self.named.is_some()
    }

    /// How many entries it has, as far as they are known.
    pub(crate) fn count(&self) -> u32 {
        length(self.entries.borrow().len())
    }

    /// Describes its entries, in the order of the source, or in which they were asked for.
    pub(crate) fn write(&self, mut list: capnp::struct_list::Builder<'_, entry::Owned>) {
        for (at, (handle, info)) in (0..list.len()).zip(&*self.entries.borrow()) {
            info.write(*handle, list.reborrow().get(at));
        }
    }

    /// What may be asked for next, under which number.
    fn next(&self, name: &str) -> Result<(&Named, u64), Error> {
        let not_found = || Error::new(ErrorCode::NotFound, format!("the image has no {name}"));
        let Some(named) = &self.named else { return Err(not_found()) };
        let number = named.count.get();
        if number >= limits::NATIVE_ENTRIES_MAX || name.len() > limits::NATIVE_NAME_BYTES_MAX {
            let most = limits::NATIVE_ENTRIES_MAX;
            let message = format!("an image has at most {most} entries and variables that are asked for");
            return Err(Error::new(ErrorCode::LimitReached, message).remedy("load the image again"));
        }
        // Before anything is awaited; what is not there counts too.
        named.count.set(number + 1);
        Ok((named, u64::from(number)))
    }

    /// The variable of a name.
    async fn variable_of(&self, name: String) -> Result<Found, Error> {
        self.held.look()?;
        let known = self.named.as_ref().and_then(|named| named.variables.borrow().get(&name).copied());
        if let Some(found) = known {
            return Ok(found);
        }
        let (named, number) = self.next(&name)?;
        let session = Rc::clone(&self.held.session);
        let asked = Rc::clone(&session).native_variable(self.held.handle, name.clone(), number);
        let (held, found, kept) = counted(&session.party, session.limits.load(), asked).await?;
        named.held.borrow_mut().push((held, kept));
        named.variables.borrow_mut().insert(name, found);
        Ok(found)
    }

    /// The entry of a name.
    async fn named(&self, name: String) -> Result<(Handle, Rc<EntryInfo>), Error> {
        self.held.look()?;
        let image = self.held.handle;
        let known = self.by_name.borrow().get(&name).copied();
        if let Some(found) = known.and_then(|at| self.entries.borrow().get(at).cloned()) {
            return Ok(found);
        }
        let (named, number) = self.next(&name)?;
        let session = Rc::clone(&self.held.session);
        let asked = Rc::clone(&session).native_entry(image, name.clone(), number);
        let (held, handle, info, kept) = counted(&session.party, session.limits.load(), asked).await?;
        named.held.borrow_mut().push((held, kept));
        let mut entries = self.entries.borrow_mut();
        self.by_name.borrow_mut().insert(name, entries.len());
        entries.push((handle, Rc::clone(&info)));
        Ok((handle, info))
    }
}

impl gpu_module::Server for Image {
    async fn entries(
        self: Rc<Self>,
        _: gpu_module::EntriesParams,
        mut results: gpu_module::EntriesResults,
    ) -> Result<(), capnp::Error> {
        let result = results.get().init_result();
        match self.held.look() {
            // Those that were asked for by name were told one by one, and may be many.
            Ok(_) if self.named.is_some() => drop(result.init_ok().init_entries(0)),
            Ok(_) => self.write(result.init_ok().init_entries(self.count())),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn entry(
        self: Rc<Self>,
        params: gpu_module::EntryParams,
        mut results: gpu_module::EntryResults,
    ) -> Result<(), capnp::Error> {
        let name = String::from_utf8_lossy(params.get()?.get_name()?.as_bytes()).into_owned();
        drop(params);
        let found = self.named(name).await;
        let result = results.get().init_result();
        match found {
            Ok((handle, info)) => info.write(handle, result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn variable(
        self: Rc<Self>,
        params: gpu_module::VariableParams,
        mut results: gpu_module::VariableResults,
    ) -> Result<(), capnp::Error> {
        let name = String::from_utf8_lossy(params.get()?.get_name()?.as_bytes()).into_owned();
        drop(params);
        let found = self.variable_of(name).await;
        let result = results.get().init_result();
        match found {
            Ok((handle, address, bytes)) => {
                let mut variable = result.init_ok();
                handle.write(variable.reborrow().init_handle());
                variable.set_address(address);
                variable.set_bytes(bytes);
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn names(
        self: Rc<Self>,
        _: gpu_module::NamesParams,
        mut results: gpu_module::NamesResults,
    ) -> Result<(), capnp::Error> {
        let named = match (self.held.look(), &self.named) {
            (Err(error), _) => Err(error),
            (Ok(_), None) => Ok(self.entries.borrow().iter().map(|(_, info)| info.name.clone()).collect()),
            (Ok(_), Some(_)) => {
                let session = Rc::clone(&self.held.session);
                let asked = Rc::clone(&session).native_names(self.held.handle);
                counted(&session.party, session.limits.load(), asked).await
            }
        };
        let result = results.get().init_result();
        match named {
            Ok(names) => {
                let mut list = result.init_ok().init_names(length(names.len()));
                (0u32..).zip(&names).for_each(|(at, name)| list.set(at, name));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn set_attribute(
        self: Rc<Self>,
        params: gpu_module::SetAttributeParams,
        mut results: gpu_module::SetAttributeResults,
    ) -> Result<(), capnp::Error> {
        let (entry, attribute, value) = {
            let params = params.get()?;
            (Handle::read(params.get_entry()?), params.get_attribute(), params.get_value())
        };
        drop(params);
        let own = self.named.is_some() && self.entries.borrow().iter().any(|(handle, _)| *handle == entry);
        let set = if own {
            let session = Rc::clone(&self.held.session);
            let set = Rc::clone(&session).set_entry_attribute(entry, attribute, value);
            counted(&session.party, session.limits.answer(), set).await
        } else {
            Err(not_here(entry))
        };
        let result = results.get().init_result();
        match set {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn allow_dynamic_shared(
        self: Rc<Self>,
        params: gpu_module::AllowDynamicSharedParams,
        mut results: gpu_module::AllowDynamicSharedResults,
    ) -> Result<(), capnp::Error> {
        let (entry, bytes) = {
            let params = params.get()?;
            (Handle::read(params.get_entry()?), params.get_bytes())
        };
        drop(params);
        // Only entries of this image: another's is another capability's to change.
        let own = self.entries.borrow().iter().any(|(handle, _)| *handle == entry);
        let allowed = if own {
            let session = Rc::clone(&self.held.session);
            counted(
                &session.party,
                session.limits.answer(),
                Rc::clone(&session).allow_dynamic_shared(entry, bytes),
            )
            .await
        } else {
            Err(not_here(entry))
        };
        let result = results.get().init_result();
        match allowed {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn close(
        self: Rc<Self>,
        _: gpu_module::CloseParams,
        mut results: gpu_module::CloseResults,
    ) -> Result<(), capnp::Error> {
        let closed = self.held.close();
        let result = results.get().init_result();
        match closed {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
