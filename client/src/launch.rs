//! Launches and their parameters.

use bulkhead_ring::{Blocks, EntryLaunch, LaunchShape};
use bulkhead_schema::{Handle, limits};

use crate::{Buffer, Entry, Error, ErrorCode, Fence, Session, Stream, session::name};

/// Grid, block and dynamic shared memory of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

impl Launch {
    /// Enough blocks of `block` threads for `threads` threads, in one dimension.
    #[must_use]
    pub fn linear(threads: u32, block: u32) -> Self {
        Self { grid: [threads.div_ceil(block.max(1)).max(1), 1, 1], block: [block, 1, 1], shared_bytes: 0 }
    }
}

impl Session {
    /// Launches an entry.
    ///
    /// # Errors
    /// Where the parameters do not fit the entry, or the session is over. What the device has against the launch
    /// shows at the next [`Session::wait`].
    pub fn launch(
        &self,
        stream: Stream,
        entry: &Entry,
        launch: &Launch,
        parameters: &Parameters,
    ) -> Result<Fence, Error> {
        parameters.check(entry)?;
        self.launch_with(stream, entry.handle, launch, entry.parameter_bytes, |block| {
            parameters.place(entry, block);
        })
    }

    /// Launches an entry whose parameter block of `bytes` bytes `fill` writes in place: for callers that pack
    /// parameters themselves.
    ///
    /// # Errors
    /// Where the session is over.
    #[inline]
    pub fn launch_with(
        &self,
        stream: Stream,
        entry: Handle,
        launch: &Launch,
        bytes: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<Fence, Error> {
        self.launch_blocks(stream, entry, launch, Blocks::Apart, bytes, &mut fill)
    }

    /// Launches an entry whose blocks wait for one another: all of them are there at once. Where they do not fit on the
    /// device, that is told by the next call that waits.
    ///
    /// # Errors
    /// As [`Session::launch`].
    pub fn launch_together(
        &self,
        stream: Stream,
        entry: &Entry,
        launch: &Launch,
        parameters: &Parameters,
    ) -> Result<Fence, Error> {
        parameters.check(entry)?;
        self.launch_together_with(stream, entry, launch, |block| parameters.place(entry, block))
    }

    /// As [`Session::launch_together`], for callers that pack parameters themselves.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn launch_together_with(
        &self,
        stream: Stream,
        entry: &Entry,
        launch: &Launch,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<Fence, Error> {
        let bytes = entry.parameter_bytes;
        self.launch_blocks(stream, entry.handle, launch, Blocks::Together, bytes, &mut |block| {
            fill(block);
            entry.place_grid(stream, block);
        })
    }

    /// Launches an entry of an isolated session in clusters of so many blocks in x, y, z, and with all blocks there at once
    /// if `together`.
    ///
    /// # Errors
    /// As [`Session::launch`]; `notSupported`, told by the next call that waits, in a guarded session.
    pub fn launch_clusters_with(
        &self,
        stream: Stream,
        entry: &Entry,
        launch: &Launch,
        sides: [u8; 3],
        together: bool,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<Fence, Error> {
        let blocks = Blocks::Clusters { sides, together };
        self.launch_blocks(stream, entry.handle, launch, blocks, entry.parameter_bytes, &mut fill)
    }

    #[inline]
    fn launch_blocks(
        &self,
        stream: Stream,
        entry: Handle,
        launch: &Launch,
        blocks: Blocks,
        bytes: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<Fence, Error> {
        if bytes > limits::PARAMETER_BYTES_MAX {
            return Err(Error::new(ErrorCode::LimitReached, "too many parameters"));
        }
        let shape = LaunchShape { grid: launch.grid, block: launch.block, shared_bytes: launch.shared_bytes };
        let launched = EntryLaunch { entry: name(entry), shape, blocks };
        self.inner.watch.launching();
        self.push_with(stream.0, |submit| submit.producer.push_blocks(stream.0, launched, bytes, &mut *fill))
    }
}

/// A launch's parameters, in the order in which the entry declares them.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

impl Parameters {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter by its bytes.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self.sizes.push(bytes.len());
        self
    }

    /// Adds a 32-bit integer.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.raw(&value.to_ne_bytes())
    }

    /// Adds a 64-bit integer.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.raw(&value.to_ne_bytes())
    }

    /// Adds a single-precision number.
    #[must_use]
    pub fn f32(self, value: f32) -> Self {
        self.raw(&value.to_ne_bytes())
    }

    /// Adds a double-precision number.
    #[must_use]
    pub fn f64(self, value: f64) -> Self {
        self.raw(&value.to_ne_bytes())
    }

    /// Adds a pointer to a buffer.
    #[must_use]
    pub fn buffer(self, buffer: &Buffer) -> Self {
        self.u64(buffer.address())
    }

    /// Puts them where the entry wants them.
    ///
    /// # Errors
    /// Where their number or sizes are not the entry's.
    pub(crate) fn check(&self, entry: &Entry) -> Result<(), Error> {
        let wanted: Vec<usize> = entry.parameters.iter().map(|parameter| parameter.bytes as usize).collect();
        if wanted == self.sizes {
            return Ok(());
        }
        let message = format!("{} takes parameters of {wanted:?} bytes and got {:?}", entry.name, self.sizes);
        Err(Error::new(ErrorCode::InvalidArgument, message))
    }

    pub(crate) fn place(&self, entry: &Entry, block: &mut [u8]) {
        let mut from = self.bytes.as_slice();
        for parameter in &entry.parameters {
            let (bytes, rest) = from.split_at(parameter.bytes as usize);
            block[parameter.offset as usize..][..bytes.len()].copy_from_slice(bytes);
            from = rest;
        }
        entry.place_data(block);
    }
}
