//! Entries of images: what launches need to know of them.

use bulkhead_schema::{DataVariable, Error, ErrorCode, Handle, bulkhead_capnp as rpc, limits};

use crate::{Stream, connection::broken};

/// The variable at which grids wait, and how much of it each stream has.
pub(crate) const GRID: &str = "__bh_grid";
const GRID_STRIDE_BYTES: u64 = 64;
const GRID_BYTES: u64 = GRID_STRIDE_BYTES * limits::STREAMS_MAX as u64;

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
    /// Takes the addresses that launches fill in off its parameters: where the image's variables lie, and which they are.
    pub(crate) fn with_data(mut self, address: u64, variables: &[DataVariable]) -> Result<Self, Error> {
        let grid = variables.iter().find(|variable| variable.name == GRID && variable.bytes == GRID_BYTES);
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
