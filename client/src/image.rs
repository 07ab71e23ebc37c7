//! Loaded code.

use std::{sync::Arc, time::Duration};

use bulkhead_ring::memory::fill_and_seal;
use bulkhead_schema::{DataVariable, Error, ErrorCode, Handle, ModuleData, RefusedEntry, Stray};

use crate::{
    AddressRange, DeviceRange, Entry, Heap, Pattern, Session, Stream, Variables,
    connection::{Capability, answer, broken},
    descriptors,
    entry::GRID,
    faults::Watched,
};

/// Loading code for longer than this is told.
pub const SLOW_LOAD: Duration = Duration::from_secs(5);

/// A loaded image. Unloaded when the image and all of its entries have been dropped.
#[derive(Clone)]
pub struct Image {
    pub(crate) held: Arc<Held>,
    pub(crate) entries: Arc<[Entry]>,
    pub(crate) refused: Arc<[RefusedEntry]>,
    pub(crate) data: Option<Arc<Data>>,
    pub(crate) by_name: bool,
}

/// What the names of variables begin with that the guard puts beside a program's.
const RESERVED: &str = "__bh_";

/// Memory of the session's in which an image's module-scope variables lie.
pub(crate) struct Data {
    memory: Variables,
    variables: Vec<DataVariable>,
    heap: Option<Heap>,
    /// What it began with, up to where the rest was zero.
    content: Vec<u8>,
}

impl Watched for Data {
    fn place(&self, name: &str) -> Option<(u64, u64)> {
        let variable = self.variables.iter().find(|variable| variable.name == name)?;
        Some((variable.at, variable.bytes))
    }

    fn range(&self, offset: u64, bytes: u64) -> DeviceRange {
        self.memory.range(offset, bytes)
    }

    fn address(&self) -> u64 {
        self.memory.address()
    }

    fn content(&self) -> &[u8] {
        &self.content
    }
}

fn refusal(refused: &RefusedEntry) -> Error {
    let RefusedEntry { name, why } = refused;
    Error::new(ErrorCode::ImageRefused, format!("the guard refuses the entry {name}: {why}"))
}

/// The reference to the kernel's `GpuModule`.
pub(crate) struct Held {
    pub(crate) session: Session,
    pub(crate) key: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.session.release(self.key);
    }
}

impl Image {
    /// Whether its entries are asked for by name ([`Image::ask`]), and none is listed: so it is in isolated sessions.
    #[must_use]
    pub fn is_by_name(&self) -> bool {
        self.by_name
    }

    /// The entry of a name, asked of the kernel: a remote call.
    ///
    /// # Errors
    /// `notFound` where the image has none of that name; what the driver has against it.
    pub fn ask(&self, name: &str) -> Result<Entry, Error> {
        let (key, name) = (self.held.key, name.to_owned());
        self.held.session.inner.remote.call(move |context| async move {
            let mut ask = context.module(key)?.entry_request();
            ask.get().set_name(&name);
            let response = ask.send().promise.await.map_err(broken)?;
            Entry::read(answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?)
        })
    }

    /// The names of its entries, asked of the kernel.
    ///
    /// # Errors
    /// `limitReached` where they are many.
    pub fn ask_names(&self) -> Result<Vec<String>, Error> {
        let key = self.held.key;
        self.held.session.inner.remote.call(move |context| async move {
            let response = context.module(key)?.names_request().send().promise.await.map_err(broken)?;
            let found = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let names = found.get_names().map_err(broken)?;
            let text = |name: capnp::Result<capnp::text::Reader<'_>>| {
                Ok(String::from_utf8_lossy(name.map_err(broken)?.as_bytes()).into_owned())
            };
            names.iter().map(text).collect()
        })
    }

    /// The variable of a name, asked of the kernel: its range, as records name it, and its address.
    ///
    /// # Errors
    /// As [`Image::ask`].
    pub fn ask_variable(&self, name: &str) -> Result<(DeviceRange, u64), Error> {
        let (key, name) = (self.held.key, name.to_owned());
        self.held.session.inner.remote.call(move |context| async move {
            let mut ask = context.module(key)?.variable_request();
            ask.get().set_name(&name);
            let response = ask.send().promise.await.map_err(broken)?;
            let found = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let handle = Handle::read(found.get_handle().map_err(broken)?);
            Ok((DeviceRange { handle, offset: 0, bytes: found.get_bytes() }, found.get_address()))
        })
    }

    /// Its entries, in the order of the source.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries that the image has, and that were not loaded, with what the guard has against each.
    #[must_use]
    pub fn refused(&self) -> &[RefusedEntry] {
        &self.refused
    }

    /// The entry with a name.
    ///
    /// # Errors
    /// `imageRefused` where the guard let the others in and not this one; `notFound`, with the names there are.
    pub fn entry(&self, name: &str) -> Result<Entry, Error> {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        entry.cloned().ok_or_else(|| {
            if let Some(refused) = self.refused.iter().find(|refused| refused.name == name) {
                return refusal(refused);
            }
            let names: Vec<&str> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
            Error::new(ErrorCode::NotFound, format!("the image has no entry {name}"))
                .remedy(format!("it has: {}", names.join(", ")))
        })
    }

    /// The module-scope variable with a name. It lies in the session's memory until the image is dropped.
    ///
    /// # Errors
    /// `notFound` where the image has none of this name that code names.
    pub fn variable(&self, name: &str) -> Result<DeviceRange, Error> {
        let data = self.data.as_ref();
        let found = data.and_then(|data| {
            let (at, bytes) = data.place(name)?;
            Some(data.memory.range(at, bytes))
        });
        found.ok_or_else(|| Error::new(ErrorCode::NotFound, format!("the image has no variable {name}")))
    }

    /// The address of the module-scope variable with a name, as kernels know it.
    ///
    /// # Errors
    /// As [`Image::variable`].
    pub fn variable_address(&self, name: &str) -> Result<u64, Error> {
        let found = self.data.as_ref().and_then(|data| Some(data.memory.address() + data.place(name)?.0));
        found.ok_or_else(|| Error::new(ErrorCode::NotFound, format!("the image has no variable {name}")))
    }

    /// Whether the variable in which an address lies is managed: the host uses it too.
    #[must_use]
    pub fn is_managed(&self, address: u64) -> bool {
        self.around(address).is_some_and(|(_, variable)| variable.managed)
    }

    /// First address and length of the module-scope variable in which an address lies.
    #[must_use]
    pub fn variable_around(&self, address: u64) -> Option<(u64, u64)> {
        self.around(address).map(|(start, variable)| (start, variable.bytes))
    }

    fn around(&self, address: u64) -> Option<(u64, &DataVariable)> {
        let data = self.data.as_ref()?;
        let offset = address.wrapping_sub(data.memory.address());
        let variable =
            data.variables.iter().find(|variable| offset.wrapping_sub(variable.at) < variable.bytes)?;
        Some((data.memory.address() + variable.at, variable))
    }

    /// Where each of its module-scope variables is, and where its grids wait, without what else was put
    /// beside them.
    #[must_use]
    pub fn ranges(&self) -> Vec<AddressRange> {
        let of = |data: &Arc<Data>| {
            let is_own = |name: &str| name == GRID || !name.starts_with(RESERVED);
            let own = data.variables.iter().filter(|variable| is_own(&variable.name));
            let address = data.memory.address();
            let range = |variable: &DataVariable| AddressRange {
                start: address.saturating_add(variable.at),
                bytes: variable.bytes,
            };
            own.map(range).collect()
        };
        self.data.as_ref().map(of).unwrap_or_default()
    }

    /// The heap that its kernels allocate from, where they do.
    #[must_use]
    pub fn heap(&self) -> Option<Heap> {
        self.data.as_ref()?.heap.clone()
    }

    /// The memory that holds the image's module-scope variables, where it has any.
    #[must_use]
    pub fn variables(&self) -> Option<&Variables> {
        self.data.as_ref().map(|data| &data.memory)
    }
}

impl Session {
    /// Loads an image: a fat binary or PTX text. It is guarded, verified and compiled on the way, which takes
    /// milliseconds to seconds.
    ///
    /// # Errors
    /// `imageRefused` with file, line, column and reason where the guard does not let it in; `imageInvalid` where
    /// it is no image.
    pub fn load_image(&self, image: &[u8]) -> Result<Image, Error> {
        self.load_image_telling(image, &|| {
            tracing::info!("loading code takes long: it is large, or kernels of others run on");
        })
    }

    /// [`Self::load_image`] that calls `slow` once where it takes for longer than [`SLOW_LOAD`]: what is loaded is compiled, and
    /// then waits until no kernel runs.
    ///
    /// # Errors
    /// As [`Self::load_image`].
    pub fn load_image_telling(&self, image: &[u8], slow: &dyn Fn()) -> Result<Image, Error> {
        let bytes = image.len() as u64;
        let (token, socket) = self.inner.remote.call(move |context| async move {
            let mut offer = context.loader()?.offer_image_request();
            offer.get().set_bytes(bytes);
            let response = offer.send().promise.await.map_err(broken)?;
            let token = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            Ok((descriptors::bytes(token), context.connection.descriptor_socket.clone()))
        })?;
        let memory = descriptors::present(&socket, token)?.pop();
        let memory =
            memory.ok_or_else(|| Error::new(ErrorCode::Protocol, "the kernel hands over no memory"))?;
        fill_and_seal(memory, image)
            .map_err(|error| Error::new(ErrorCode::OutOfMemory, format!("the image: {error}")))?;
        let stray = self.inner.watch.stray;
        let slow = Some((SLOW_LOAD, slow));
        let (key, entries, mut data, by_name) =
            self.inner.remote.call_telling(slow, move |context| async move {
                let mut load = context.loader()?.load_image_request();
                let (low, high) = token.split_at(8);
                let half = |half: &[u8]| u64::from_le_bytes(half.try_into().unwrap_or_default());
                let mut builder = load.get().init_image();
                builder.set_low(half(low));
                builder.set_high(half(high));
                load.get().set_check(stray == Stray::Told);
                let response = load.send().promise.await.map_err(broken)?;
                let loaded = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
                let entries = loaded.get_entries().map_err(broken)?;
                let entries: Result<Vec<Entry>, Error> = entries.iter().map(Entry::read).collect();
                let data = ModuleData::read(loaded.get_data().map_err(broken)?);
                let key = context.hold(Capability::Module(loaded.get_module().map_err(broken)?));
                Ok((key, entries?, data?, loaded.get_by_name()))
            })?;
        let held = Arc::new(Held { session: self.clone(), key });
        let refused = std::mem::take(&mut data.refused).into();
        let data = self.place_data(data)?;
        let entries = match &data {
            Some(data) => {
                let (address, variables) = (data.memory.address(), &data.variables);
                entries.into_iter().map(|entry| entry.with_data(address, variables)).collect()
            }
            None => Ok(entries.into()),
        };
        Ok(Image { held, entries: entries?, refused, data, by_name })
    }

    /// Allows launches of an entry with up to `bytes` of dynamic shared memory. A remote call.
    ///
    /// # Errors
    /// Where the device has less, or the image was unloaded.
    pub fn allow_dynamic_shared(&self, image: &Image, entry: &Entry, bytes: u32) -> Result<(), Error> {
        let (key, handle) = (image.held.key, entry.handle);
        self.inner.remote.call(move |context| async move {
            let mut allow = context.module(key)?.allow_dynamic_shared_request();
            handle.write(allow.get().init_entry());
            allow.get().set_bytes(bytes);
            let response = allow.send().promise.await.map_err(broken)?;
            answer(response.get().and_then(|r| r.get_result()).map_err(broken)?).map(|_| ())
        })
    }

    /// Memory for an image's variables, filled as the image says.
    pub(crate) fn place_data(&self, data: ModuleData) -> Result<Option<Arc<Data>>, Error> {
        data.check()?;
        if data.bytes == 0 {
            return Ok(None);
        }
        let memory = Variables::allocate(self, &data)?;
        let content = data.content(memory.address());
        let stream = self.aside(Stream::DEFAULT);
        self.fill(stream, memory.range(0, data.bytes), Pattern::Bits8(0))?;
        if !content.is_empty() {
            self.write(stream, memory.range(0, content.len() as u64), &content)?;
        }
        let heap = self.heap_for(&data, stream)?;
        let data = Arc::new(Data { memory, variables: data.variables, heap, content });
        let watched: Arc<dyn Watched> = Arc::<Data>::clone(&data);
        if let Some(heap) = &data.heap {
            self.tell_of_heap(&watched, heap, stream)?;
        }
        // Work of any stream may use it from here on.
        self.wait(self.fence(stream))?;
        self.watch(&watched)?;
        Ok(Some(data))
    }
}
