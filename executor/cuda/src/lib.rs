//! A device behind NVIDIA's driver.
//!
//! [`Cuda`] is the [`bulkhead_gpu::Gpu`] of a real device: one context, used from any number of threads. The
//! driver's library is loaded at run time, so the same program starts on a machine that has none
//! ([`Cuda::present`] says what is missing).
//!
//! # Invariants
//! 1. No handle reaches the driver after its destruction: numbers are looked up, and pinned during the call.
//! 2. A copy or a completion value touches host memory only inside a registered range, a copy or a fill device
//!    memory only inside a reservation. (What a *kernel* touches is the guard's and the mappings' business: it
//!    can reach whatever the context maps, registered host memory included.)
//! 3. The first sticky error is remembered, and every later call answers it.
//! 4. Nothing here waits for another stream's work, but for [`bulkhead_gpu::Gpu::load`], `unload` and
//!    `unregister_host` (the driver waits there).
//!
//! # Trusts
//! NVIDIA's driver and `ptxas`. That the library found is NVIDIA's: the process is started with a clean environment.
//!
//! # Environment
//! The driver reads [`ENVIRONMENT`] once, when the library starts; a process that opens a device is started with it.

#[expect(unsafe_code, reason = "calls the driver")]
mod sys;

mod arrays;
mod context;
mod failure;
mod gpu;
mod graphs;
mod handles;
mod image;
mod made;
mod presence;
mod ptxas;
mod ranges;
mod table;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use bulkhead_gpu::{DeviceInfo, Error};
use parking_lot::Mutex;

use arrays::Objects;
use context::Context;
use graphs::Graphs;
use image::Images;
use made::MadeGraphs;

pub use context::{ENTRIES_MAX, EVENTS_MAX, MEMORIES_MAX, STREAMS_MAX};
pub use presence::Missing;
pub use ptxas::Compiler;
pub use sys::native;

/// Variables that the process must be started with: connections of their own for up to 32 streams (with fewer, streams
/// of different sessions share a hardware queue and wait for each other), and all code loaded at load time (lazily, a
/// first launch would wait for every running kernel).
pub const ENVIRONMENT: [(&str, &str); 2] =
    [("CUDA_DEVICE_MAX_CONNECTIONS", "32"), ("CUDA_MODULE_LOADING", "EAGER")];

/// How a device is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What compiles images.
    pub compiler: Compiler,
    /// Whether one session has the device's context to itself: the process need not be started with [`ENVIRONMENT`].
    pub isolated: bool,
}

/// A device with its context.
pub struct Cuda {
    /// The first to be dropped.
    context: Context,
    info: DeviceInfo,
    compiler: Compiler,
    /// What imported memory was imported from: the driver exports only what it created.
    imported: Mutex<HashMap<u64, OwnedFd>>,
    images: Images,
    graphs: Graphs,
    made: MadeGraphs,
    objects: Objects,
    /// The event of each stream by which others wait for it.
    hops: Mutex<HashMap<u64, sys::Event>>,
    /// NVIDIA's library that tells of processes, once somebody has asked.
    management: OnceLock<Result<sys::Management, String>>,
}

impl Cuda {
    /// Whether a device can be opened, or what is missing. Loads the driver's library.
    ///
    /// # Errors
    /// What is missing.
    pub fn present() -> Result<(), Missing> {
        presence::devices().map(|_| ())
    }

    /// Every device of the driver.
    ///
    /// # Errors
    /// What is missing.
    pub fn devices() -> Result<Vec<DeviceInfo>, Missing> {
        presence::devices()
    }

    /// Opens a device and binds the calling thread to it.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is no such device, or a variable of [`ENVIRONMENT`] is not set.
    pub fn open(ordinal: u32, options: Options) -> Result<Arc<Self>, Error> {
        for (name, value) in ENVIRONMENT.into_iter().filter(|_| !options.isolated) {
            if std::env::var_os(name).is_none_or(|found| found != value) {
                return Err(Error::Missing(format!("the process was not started with {name}={value}")));
            }
        }
        let driver = presence::driver()?;
        let (device, info) = presence::device(driver, ordinal)?;
        Ok(Arc::new(Self {
            context: Context::open(driver, device)?,
            info,
            compiler: options.compiler,
            imported: Mutex::default(),
            images: Images::default(),
            graphs: Graphs::default(),
            made: MadeGraphs::default(),
            objects: Objects::default(),
            hops: Mutex::default(),
            management: OnceLock::new(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_for_devices_names_what_is_missing_or_finds_one() {
        match (Cuda::present(), Cuda::devices()) {
            (Err(missing), Err(again)) => {
                assert_eq!(missing, again);
                assert!(!missing.to_string().is_empty());
                println!("skipped: no NVIDIA driver ({missing})");
            }
            (Ok(()), Ok(devices)) => {
                assert!(devices.iter().all(|device| device.architecture >= 50 && device.granule_bytes > 0));
            }
            (present, devices) => panic!("{present:?} but {devices:?}"),
        }
    }

    #[test]
    fn opening_a_device_without_its_environment_says_which_variable() {
        if ENVIRONMENT.iter().all(|(name, value)| std::env::var_os(name).is_some_and(|found| found == *value))
        {
            println!("skipped: the environment is set");
            return;
        }
        let Err(Error::Missing(text)) = Cuda::open(0, Options::default()) else { panic!("opened") };
        assert!(text.contains("CUDA_"), "{text}");
    }
}
