//! A module's window, as its host half reaches it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64},
};

use bulkhead_client::{Error, ErrorCode, ModuleHost, ProtectedModule};

/// A module's window: memory of the device, and host memory that gates and host half store in at the same time.
pub struct Window {
    module: ProtectedModule,
    host: Option<Arc<ModuleHost>>,
    device_bytes: u64,
}

impl Window {
    /// Maps what there is of host memory.
    pub(crate) fn new(module: ProtectedModule, bytes: u64) -> Result<Self, Error> {
        let host = match module.host() {
            Ok(host) => Some(Arc::new(host)),
            Err(error) if error.code == ErrorCode::NotFound => None,
            Err(error) => return Err(error),
        };
        let host_bytes = host.as_ref().map_or(0, |host| host.bytes() as u64);
        Ok(Self { module, host, device_bytes: bytes.saturating_sub(host_bytes) })
    }

    pub(crate) fn module(&self) -> &ProtectedModule {
        &self.module
    }

    /// Bytes of the device's memory, which the window begins with.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Bytes of the host's memory.
    #[must_use]
    pub fn host_bytes(&self) -> usize {
        self.host.as_ref().map_or(0, |host| host.bytes())
    }

    /// The host's memory, for whatever works on it by itself: it stays mapped as long as somebody has it.
    #[must_use]
    pub fn host(&self) -> Option<&Arc<ModuleHost>> {
        self.host.as_ref()
    }

    /// Reads the device's memory: some 10 us.
    ///
    /// # Errors
    /// `invalidArgument` where that does not lie in it.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.module.read(offset, into)
    }

    /// Reads a word of the device's memory.
    ///
    /// # Errors
    /// As for [`Window::read`].
    pub fn read_u64(&self, offset: u64) -> Result<u64, Error> {
        self.module.read_u64(offset)
    }

    /// Writes the device's memory. Nothing orders that with kernels that run: what has to be seen whole is one word.
    ///
    /// # Errors
    /// As for [`Window::read`].
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.module.write(offset, data)
    }

    /// A word of the host's memory, which gates store to at the same time; `None` where there is none at this offset.
    #[must_use]
    pub fn word(&self, offset: u64) -> Option<&AtomicU32> {
        self.host.as_ref()?.word(usize::try_from(offset).ok()?)
    }

    /// The same of 8 bytes.
    #[must_use]
    pub fn wide(&self, offset: u64) -> Option<&AtomicU64> {
        self.host.as_ref()?.wide(usize::try_from(offset).ok()?)
    }

    /// Posts a value for gates: [`ModuleHost::post`]. False where it does not lie in the host's memory.
    pub fn post(&self, offset: u64, number: u32, value: u64) -> bool {
        self.inside(offset, 16).is_some_and(|(host, at)| host.post(at, number, value))
    }

    /// What a gate has posted there: [`ModuleHost::message`].
    #[must_use]
    pub fn message(&self, offset: u64) -> Option<(u32, u64)> {
        self.inside(offset, 16).and_then(|(host, at)| host.message(at))
    }

    /// Copies bytes out of the host's memory, as gates happen to leave them; false where they do not lie in it.
    #[must_use]
    pub fn copy_from_host(&self, offset: u64, into: &mut [u8]) -> bool {
        self.inside(offset, into.len()).map(|(host, at)| host.read(at, into)).is_some()
    }

    /// Copies bytes into the host's memory; false where they do not lie in it.
    #[must_use]
    pub fn copy_to_host(&self, offset: u64, from: &[u8]) -> bool {
        self.inside(offset, from.len()).map(|(host, at)| host.write(at, from)).is_some()
    }

    fn inside(&self, offset: u64, bytes: usize) -> Option<(&ModuleHost, usize)> {
        let (host, at) = (self.host.as_ref()?, usize::try_from(offset).ok()?);
        (at <= host.bytes() && bytes <= host.bytes() - at).then_some((host, at))
    }
}
