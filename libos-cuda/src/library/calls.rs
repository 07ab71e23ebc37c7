//! Calls about libraries, and how their images are loaded.

use std::ffi::c_void;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Library, State};
use crate::abi::{ImagePointer, InSlice, Out, OutMaybe, OutSlice, Text};
use crate::ahead;
use crate::driver::{Driver, driver, move_for};
use crate::image::{self, Loaded};
use crate::module::{Module, OF_A_LIBRARY, count_of, write_functions, write_global};
use crate::moving::keep;
use crate::printf;
use crate::report;
use crate::status::{Answer, Status};

impl Library {
    /// The image. It is loaded now if it is not yet; whoever asks meanwhile waits.
    pub(super) fn loaded(
        &self,
        call: &str,
        driver: &'static Driver,
        handle: u64,
    ) -> Result<Arc<Loaded>, Status> {
        keep()?;
        let mut image = self.image.lock();
        let loaded = match &*image {
            State::Loaded(loaded) => return loaded.clone(),
            State::Ahead(_, loaded) if loaded.is_of(&driver.memory) => Ok(loaded.clone()),
            // What was loaded ahead in the session before this one is over with that.
            State::Content(content) | State::Ahead(content, _) => {
                let loaded = image::load_quietly(driver, content, handle);
                // Images that were loaded and not asked for may have taken the room.
                let again = matches!(&loaded, Err((Status::OUT_OF_MEMORY, _))) && ahead::give_back();
                let loaded = if again { image::load_quietly(driver, content, handle) } else { loaded };
                loaded.map_err(|(status, text)| {
                    report::refused(call, &text);
                    status
                })
            }
        };
        *image = State::Loaded(loaded.clone());
        loaded
    }

    /// Loads the image before anybody asks for it, unless that is not worth it or fails: whoever asks is told why.
    pub(crate) fn load_ahead(&self, driver: &'static Driver, handle: u64) {
        let mut image = self.image.lock();
        let State::Content(content) = &mut *image else { return };
        if let Ok(loaded) = image::load_quietly(driver, content, handle) {
            *image = State::Ahead(std::mem::take(content), loaded);
        }
    }
}

fn insert(call: &str, to: &Out<u64>, content: Vec<u8>) -> Answer {
    move_for(call, &content);
    let driver = driver()?;
    let worth_it = ahead::is_worth_it(driver, &content);
    let library = Arc::new(Library { image: Mutex::new(State::Content(content)), module: Mutex::new(None) });
    let handle = driver.libraries.insert(library.clone())?;
    if worth_it {
        ahead::load(&library, handle);
    }
    to.set(handle);
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
    insert("cuLibraryLoadData", &to, image::read("cuLibraryLoadData", &image)?)
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
    insert("cuLibraryLoadFromFile", &to, image::read_file("cuLibraryLoadFromFile", &path.0)?)
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
    library.end();
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
    let call = "cuLibraryGetKernelCount";
    to.set(count_of(call, found.loaded(call, driver, library)?.as_ref())?);
    Ok(())
}

pub(crate) fn kernels(to: OutSlice<u64>, count: u32, library: u64) -> Answer {
    let driver = driver()?;
    let found = driver.libraries.get(library)?;
    let call = "cuLibraryEnumerateKernels";
    write_functions(call, found.loaded(call, driver, library)?.as_ref(), &to, count)
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
    image::set_module(&loaded, module);
    *view = Some(module);
    Ok(module)
}

pub(crate) fn global(to: OutMaybe<u64>, bytes: OutMaybe<usize>, library: u64, name: Text) -> Answer {
    let driver = driver()?;
    let found = driver.libraries.get(library)?;
    write_global(&to, &bytes, found.loaded("cuLibraryGetGlobal", driver, library)?.as_ref(), &name)
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
    write_global(&to, &bytes, &loaded, &name)
}
