//! Which device, and how its errors read to a client.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use bulkhead_gpu::{DeviceInfo, Error as DeviceError, Gpu};
use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp};

use crate::{images::cache::CacheOptions, watch::sanitize::Sanitize};

/// Which device an executor drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The CPU, executing PTX.
    Software,
    /// An NVIDIA GPU, by its ordinal.
    Cuda(u32),
}

/// How an executor runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// The device.
    pub backend: Backend,
    /// What the software GPU is told, where it is the device.
    pub software: bulkhead_softgpu::Options,
    /// Where machine code is kept; none is, where there is none.
    pub cache: Option<CacheOptions>,
    /// What becomes the assembler: see [`bulkhead_cuda::Compiler::through`].
    pub assembler: Vec<OsString>,
    /// Where a socket tells what kernels did; only for the software GPU.
    pub profile: Option<PathBuf>,
    /// Who looks for mistakes of kernels; only for the software GPU, and not together with a profile.
    pub sanitize: Option<Sanitize>,
    /// Which versions of entries are loaded.
    pub guard: Guard,
    /// Whether it serves one isolated session, whose code nothing confines.
    pub isolated: bool,
    /// Whether such a session's launches go to the device one by one, never several as a graph.
    pub launch_singly: bool,
}

/// Which versions of entries run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Guard {
    /// Fast ones where a launch keeps their terms: some accesses are proven to stay where they may.
    #[default]
    Full,
    /// Confined ones only: every access is masked or clamped, whatever is known of its address.
    Strict,
}

impl From<Backend> for Options {
    fn from(backend: Backend) -> Self {
        let software = bulkhead_softgpu::Options::default();
        let guard = Guard::default();
        Self {
            backend,
            software,
            cache: None,
            assembler: Vec::new(),
            profile: None,
            sanitize: None,
            guard,
            isolated: false,
            launch_singly: false,
        }
    }
}

impl Backend {
    /// Opens the device.
    pub(crate) fn open(
        self,
        software: bulkhead_softgpu::Options,
        assembler: Vec<OsString>,
        isolated: bool,
    ) -> Result<Arc<dyn Gpu>, DeviceError> {
        match self {
            Self::Software => Ok(bulkhead_softgpu::SoftGpu::new(software)?),
            Self::Cuda(_) if software.profiler.is_some() => {
                Err(DeviceError::Missing("only the software GPU counts what kernels do".into()))
            }
            Self::Cuda(_) if software.sanitizer.is_some() => {
                Err(DeviceError::Missing("only the software GPU looks for mistakes of kernels".into()))
            }
            Self::Cuda(ordinal) => {
                let compiler =
                    bulkhead_cuda::Compiler { through: assembler, ..bulkhead_cuda::Compiler::default() };
                let device =
                    bulkhead_cuda::Cuda::open(ordinal, bulkhead_cuda::Options { compiler, isolated })?;
                // Where a block's shared memory begins is known from there on (docs/decisions/0022).
                let architecture = bulkhead_gpu::Gpu::info(&*device).architecture;
                if architecture < 90 {
                    let why = format!("sm_{architecture}: devices from sm_90 on are served");
                    return Err(DeviceError::Missing(why));
                }
                Ok(device)
            }
        }
    }
}

/// A device's error as clients see it.
pub(crate) fn error(error: &DeviceError) -> Error {
    let message = error.to_string();
    match error {
        DeviceError::Lost { code, .. } => Error::new(ErrorCode::DeviceLost, message)
            .remedy("open a new session; what was in this one is gone")
            .device(*code),
        DeviceError::OutOfMemory => {
            Error::new(ErrorCode::OutOfMemory, message).remedy("free memory, or ask for less").device(2)
        }
        DeviceError::Image(_) => Error::new(ErrorCode::ImageInvalid, message).device(218),
        DeviceError::LaunchResources(_) => Error::new(ErrorCode::LaunchResources, message).device(701),
        DeviceError::Refused(_) => Error::new(ErrorCode::InvalidArgument, message).device(1),
        DeviceError::Missing(_) => Error::new(ErrorCode::Unavailable, message),
    }
}

/// Writes what a device is.
pub(crate) fn describe(info: &DeviceInfo, guard: Guard, mut device: bulkhead_capnp::device::Builder<'_>) {
    device.set_strict(guard == Guard::Strict);
    device.set_backend(info.backend);
    device.set_name(&info.name);
    device.set_uuid(&info.uuid);
    device.set_memory_bytes(info.memory_bytes);
    device.set_driver_version(info.driver_version);
    device.set_architecture(info.architecture);
    let count = u32::try_from(info.attributes.len()).unwrap_or(u32::MAX);
    let mut list = device.init_attributes(count);
    for (index, (number, value)) in (0..count).zip(&info.attributes) {
        let mut attribute = list.reborrow().get(index);
        attribute.set_number(*number);
        attribute.set_value(*value);
    }
}
