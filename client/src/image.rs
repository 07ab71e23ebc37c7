//! Loaded code.

use std::sync::Arc;

use bulkhead_schema::{Error, ErrorCode, Handle, bulkhead_capnp as rpc};

use crate::{Session, connection::broken};

/// A loaded image. Unloaded when the image and all of its entries have been dropped.
#[derive(Clone)]
pub struct Image {
    pub(crate) held: Arc<Held>,
    pub(crate) entries: Arc<[Entry]>,
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
    /// Its entries, in the order of the source.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry with a name.
    ///
    /// # Errors
    /// `notFound`, with the names there are.
    pub fn entry(&self, name: &str) -> Result<Entry, Error> {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        entry.cloned().ok_or_else(|| {
            let names: Vec<&str> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
            Error::new(ErrorCode::NotFound, format!("the image has no entry {name}"))
                .remedy(format!("it has: {}", names.join(", ")))
        })
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
    /// PTX version, as CUDA's function attribute has it.
    pub ptx_version: u32,
    /// Binary version, likewise.
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

impl Entry {
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
