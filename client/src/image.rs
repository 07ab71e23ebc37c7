//! Loaded code.

use std::sync::Arc;

use bulkhead_schema::{
    DataVariable, Error, ErrorCode, Handle, ModuleData, RefusedEntry, bulkhead_capnp as rpc, limits,
};

use crate::{
    DeviceRange, Heap, Pattern, Session, Stream, Variables,
    connection::{answer, broken},
};

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
/// The variable at which grids wait, and how much of it each stream has.
const GRID: &str = "__bh_grid";
const GRID_STRIDE_BYTES: u64 = 64;
const GRID_BYTES: u64 = GRID_STRIDE_BYTES * limits::STREAMS_MAX as u64;

/// Memory of the session's in which an image's module-scope variables lie.
pub(crate) struct Data {
    pub(crate) memory: Variables,
    variables: Vec<DataVariable>,
    heap: Option<Heap>,
    /// What it began with, up to where the rest was zero.
    pub(crate) content: Vec<u8>,
}

impl Data {
    /// Where a variable begins in the block, and how long it is.
    pub(crate) fn place(&self, name: &str) -> Option<(u64, u64)> {
        let variable = self.variables.iter().find(|variable| variable.name == name)?;
        Some((variable.at, variable.bytes))
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

    /// First address and length of each of its module-scope variables, and of where its grids wait, without what else was put
    /// beside them.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let of = |data: &Arc<Data>| {
            let is_own = |name: &str| name == GRID || !name.starts_with(RESERVED);
            let own = data.variables.iter().filter(|variable| is_own(&variable.name));
            let address = data.memory.address();
            own.map(|variable| (address.saturating_add(variable.at), variable.bytes)).collect()
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
        let heap = self.place_heap(&data, &memory, stream)?;
        // Work of any stream may use it from here on.
        self.wait(self.fence(stream))?;
        let data = Arc::new(Data { memory, variables: data.variables, heap, content });
        self.watch(&data)?;
        Ok(Some(data))
    }
}

/// An entry of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The name by which ring records know it.
    pub handle: Handle,
    /// Where its parameters lie in the parameter block.
    pub parameters: Vec<Parameter>,
    /// Length of the block in bytes.
    pub parameter_bytes: usize,
    /// Where in the block the address of the image's variables goes, and that address; it is none of the parameters.
    pub data: Option<(u32, u64)>,
    /// Where in the block the address goes at which a grid's blocks wait for one another, and where the first stream's
    /// lies; none of the parameters either. It is 0 where they may not wait.
    pub grid: Option<(u32, u64)>,
    /// Most threads a block may have.
    pub threads_max: u32,
    /// Static shared memory in bytes.
    pub shared_bytes: u32,
    /// Local memory of a thread in bytes.
    pub local_bytes: u32,
    /// Constant memory in bytes.
    pub constant_bytes: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// The virtual architecture that its text is for, 75 for `.target sm_75`: `CU_FUNC_ATTRIBUTE_PTX_VERSION`.
    pub ptx_version: u32,
    /// The architecture that it was compiled for: `CU_FUNC_ATTRIBUTE_BINARY_VERSION`.
    pub binary_version: u32,
}

/// Where a parameter lies in the parameter block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Offset in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

#[inline]
fn place(offset: u32, address: u64, block: &mut [u8]) {
    if let Some(place) = block.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..8)) {
        place.copy_from_slice(&address.to_ne_bytes());
    }
}

impl Entry {
    /// Takes the addresses that launches fill in off its parameters.
    pub(crate) fn with_data(mut self, data: &Data) -> Result<Self, Error> {
        let address = data.memory.address();
        let grid =
            data.variables.iter().find(|variable| variable.name == GRID && variable.bytes == GRID_BYTES);
        if let Some(grid) = grid {
            self.grid = Some((self.take_address()?, address + grid.at));
        }
        self.data = Some((self.take_address()?, address));
        Ok(self)
    }

    fn take_address(&mut self) -> Result<u32, Error> {
        let last = self.parameters.pop().filter(|last| last.bytes == 8);
        let last = last.ok_or_else(|| {
            Error::new(ErrorCode::Protocol, format!("{} takes no address of its variables", self.name))
        })?;
        Ok(last.offset)
    }

    /// Whether blocks of its grids wait for one another in a place of the stream's: then a graph, whose nodes may run side by side, has
    /// none for them.
    #[must_use]
    pub fn waits_in_stream(&self) -> bool {
        self.grid.is_some()
    }

    /// Writes where the blocks of a grid wait for one another into a parameter block: each stream has a place of its own,
    /// since its grids come one after the other.
    #[inline]
    pub(crate) fn place_grid(&self, stream: Stream, block: &mut [u8]) {
        let Some((offset, first)) = self.grid else { return };
        place(offset, first + u64::from(stream.0) * GRID_STRIDE_BYTES, block);
    }

    /// Writes the address of the image's variables into a parameter block.
    #[inline]
    pub fn place_data(&self, block: &mut [u8]) {
        let Some((offset, address)) = self.data else { return };
        place(offset, address, block);
        if let Some((offset, _)) = self.grid {
            place(offset, 0, block);
        }
    }

    pub(crate) fn read(entry: rpc::entry::Reader<'_>) -> Result<Self, Error> {
        let parameters = entry.get_parameters().map_err(broken)?;
        let name = entry.get_name().map_err(broken)?;
        Ok(Self {
            name: String::from_utf8_lossy(name.as_bytes()).into_owned(),
            handle: Handle::read(entry.get_handle().map_err(broken)?),
            parameters: parameters
                .iter()
                .map(|parameter| Parameter { offset: parameter.get_offset(), bytes: parameter.get_bytes() })
                .collect(),
            parameter_bytes: entry.get_parameter_bytes() as usize,
            data: None,
            grid: None,
            threads_max: entry.get_threads_max(),
            shared_bytes: entry.get_shared_bytes(),
            local_bytes: entry.get_local_bytes(),
            constant_bytes: entry.get_constant_bytes(),
            registers: entry.get_registers(),
            ptx_version: entry.get_ptx_version(),
            binary_version: entry.get_binary_version(),
        })
    }
}
