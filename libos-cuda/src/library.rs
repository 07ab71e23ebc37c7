//! `cuLibrary*`: images of the whole process, loaded when something of them is asked for.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::abi::{ImagePointer, InSlice, Out, OutMaybe, OutSlice, Text};
use crate::driver::{Driver, driver};
use crate::image::{self, Loaded};
use crate::module::{Module, OF_A_LIBRARY, count_of, write_functions, write_global};
use crate::printf;
use crate::status::{Answer, Status};

/// A library.
pub(crate) struct Library {
    /// The image, until it is loaded.
    content: Mutex<Option<Vec<u8>>>,
    loaded: OnceLock<Result<Arc<Loaded>, Status>>,
    /// Its view as a module, once that was asked for.
    module: Mutex<Option<u64>>,
}

impl Library {
    fn loaded(&self, call: &str, driver: &'static Driver, handle: u64) -> Result<&Arc<Loaded>, Status> {
        let loaded = self.loaded.get_or_init(|| {
            let content = self.content.lock().take().ok_or(Status::UNKNOWN)?;
            image::load(call, driver, &content, handle).map_err(|(status, _)| status)
        });
        loaded.as_ref().map_err(|status| *status)
    }
}

fn insert(to: &Out<u64>, content: Vec<u8>) -> Answer {
    let library =
        Library { content: Mutex::new(Some(content)), loaded: OnceLock::new(), module: Mutex::new(None) };
    to.set(driver()?.libraries.insert(library.into())?);
    Ok(())
}

/// Options that steer NVIDIA's compiler mean nothing here, and the image is copied whether or not it is preserved.
#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn load(
    to: Out<u64>,
    image: ImagePointer,
    _jit: InSlice<u32>,
    _jit_values: InSlice<*mut c_void>,
    _jit_count: u32,
    _options: InSlice<u32>,
    _values: InSlice<*mut c_void>,
    _count: u32,
) -> Answer {
    driver()?;
    insert(&to, image::read("cuLibraryLoadData", &image)?)
}

#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn load_file(
    to: Out<u64>,
    path: Text,
    _jit: InSlice<u32>,
    _jit_values: InSlice<*mut c_void>,
    _jit_count: u32,
    _options: InSlice<u32>,
    _values: InSlice<*mut c_void>,
    _count: u32,
) -> Answer {
    driver()?;
    insert(&to, image::read_file("cuLibraryLoadFromFile", &path.0)?)
}

/// Ends a library. What was launched of it runs to its end before.
pub(crate) fn unload(library: u64) -> Answer {
    let driver = driver()?;
    let waited = driver.streams.synchronize_all(&driver.session);
    printf::flush(driver);
    let library = driver.libraries.remove(library)?;
    if let Some(module) = library.module.lock().take() {
        drop(driver.modules.remove(module)?);
    }
    waited
}

pub(crate) fn kernel(to: Out<u64>, library: u64, name: Text) -> Answer {
    let driver = driver()?;
    let found = driver.libraries.get(library)?;
    to.set(found.loaded("cuLibraryGetKernel", driver, library)?.function("cuLibraryGetKernel", &name.0)?);
    Ok(())
}

pub(crate) fn kernel_count(to: Out<u32>, library: u64) -> Answer {
    let driver = driver()?;
    let found = driver.libraries.get(library)?;
    to.set(count_of(found.loaded("cuLibraryGetKernelCount", driver, library)?));
    Ok(())
}

pub(crate) fn kernels(to: OutSlice<u64>, count: u32, library: u64) -> Answer {
    let driver = driver()?;
    let found = driver.libraries.get(library)?;
    write_functions(found.loaded("cuLibraryEnumerateKernels", driver, library)?, &to, count);
    Ok(())
}

pub(crate) fn module(to: Out<u64>, library: u64) -> Answer {
    to.set(module_of(driver()?, library)?);
    Ok(())
}

/// The library's view as a module.
pub(crate) fn module_of(driver: &'static Driver, library: u64) -> Result<u64, Status> {
    let found = driver.libraries.get(library)?;
    let loaded = found.loaded("cuLibraryGetModule", driver, library)?;
    let mut view = found.module.lock();
    if let Some(module) = *view {
        return Ok(module);
    }
    let module = driver.modules.insert(Module { context: OF_A_LIBRARY, loaded: loaded.clone() }.into())?;
    image::set_module(loaded, module);
    *view = Some(module);
    Ok(module)
}

pub(crate) fn global(to: OutMaybe<u64>, bytes: OutMaybe<usize>, library: u64, name: Text) -> Answer {
    let driver = driver()?;
    let found = driver.libraries.get(library)?;
    write_global(&to, &bytes, found.loaded("cuLibraryGetGlobal", driver, library)?, &name)
}

pub(crate) fn managed(to: OutMaybe<u64>, bytes: OutMaybe<usize>, library: u64, name: Text) -> Answer {
    let driver = driver()?;
    let found = driver.libraries.get(library)?;
    let loaded = found.loaded("cuLibraryGetManaged", driver, library)?;
    let (address, _) = loaded.variable(&name.0)?;
    let region = driver.memory.region(address).ok_or(Status::NOT_FOUND)?.2;
    if !region.is_managed(address) {
        return Err(Status::NOT_FOUND);
    }
    write_global(&to, &bytes, loaded, &name)
}
