//! Calls about modules.

use std::ffi::c_void;

use super::{Logs, Module, OF_A_LIBRARY};
use crate::abi::{ImagePointer, InSlice, Out, OutMaybe, OutSlice, Text};
use crate::ahead;
use crate::driver::{driver, driver_and_current, move_for};
use crate::image::{self, Loaded};
use crate::moving::keep;
use crate::printf;
use crate::report;
use crate::status::{Answer, Status};

/// `CU_MODULE_EAGER_LOADING`: the runtime names all images when it starts.
const EAGER: u32 = 1;
/// `CU_MODULE_LAZY_LOADING`: the runtime names an image when a kernel of it is launched first.
const LAZY: u32 = 2;

pub(crate) fn loading_mode(to: Out<u32>) -> Answer {
    to.set(if ahead::is_on(driver()?) { EAGER } else { LAZY });
    Ok(())
}

fn load_content(call: &str, to: &Out<u64>, content: &[u8]) -> Result<(), (Status, String)> {
    let with_text = |status: Status| (status, format!("{status:?}"));
    move_for(call, content);
    let (driver, context) = driver_and_current().map_err(with_text)?;
    let loaded = image::load(call, driver, content, 0)?;
    let module = Module { context, loaded: loaded.clone() };
    keep().map_err(with_text)?;
    let handle = driver.modules.insert(module.into()).map_err(with_text)?;
    image::set_module(&loaded, handle);
    to.set(handle);
    Ok(())
}

pub(crate) fn load(to: Out<u64>, image: ImagePointer) -> Answer {
    driver_and_current()?;
    let content = image::read("cuModuleLoadData", &image)?;
    load_content("cuModuleLoadData", &to, &content).map_err(|(status, _)| status)
}

pub(crate) fn load_file(to: Out<u64>, path: Text) -> Answer {
    driver_and_current()?;
    let content = image::read_file("cuModuleLoad", &path.0)?;
    load_content("cuModuleLoad", &to, &content).map_err(|(status, _)| status)
}

/// Options that steer NVIDIA's compiler mean nothing here; the two logs are written.
pub(crate) fn load_with(
    to: Out<u64>,
    image: ImagePointer,
    count: u32,
    options: InSlice<u32>,
    values: InSlice<*mut c_void>,
) -> Answer {
    driver_and_current()?;
    let logs = Logs::read(count, &options, &values)?;
    let content = image::read("cuModuleLoadDataEx", &image)?;
    let answer = load_content("cuModuleLoadDataEx", &to, &content);
    let text = answer.as_ref().err().map_or("", |(_, text)| text.as_str());
    logs.info("");
    logs.error(text);
    answer.map_err(|(status, _)| status)
}

/// The functions of a module.
pub(crate) fn handles(module: u64) -> Result<Vec<u64>, Status> {
    let module = driver()?.modules.get(module)?;
    module.loaded.all("a private function of the driver")
}

/// Ends a module. What was launched of it runs to its end before.
pub(crate) fn unload(module: u64) -> Answer {
    let driver = driver()?;
    if driver.modules.get(module)?.context == OF_A_LIBRARY {
        return Err(Status::NOT_PERMITTED);
    }
    let waited = driver.streams.synchronize_all(&driver.session);
    printf::flush(driver);
    driver.modules.remove(module)?;
    // As natively, an error of a launch before is told here.
    waited
}

pub(crate) fn function(to: Out<u64>, module: u64, name: Text) -> Answer {
    to.set(driver()?.modules.get(module)?.loaded.function("cuModuleGetFunction", &name.0)?);
    Ok(())
}

pub(crate) fn function_count(to: Out<u32>, module: u64) -> Answer {
    to.set(count_of("cuModuleGetFunctionCount", &driver()?.modules.get(module)?.loaded)?);
    Ok(())
}

pub(crate) fn functions(to: OutSlice<u64>, count: u32, module: u64) -> Answer {
    write_functions("cuModuleEnumerateFunctions", &driver()?.modules.get(module)?.loaded, &to, count)
}

pub(crate) fn count_of(call: &str, loaded: &Loaded) -> Result<u32, Status> {
    Ok(u32::try_from(loaded.all(call)?.len()).unwrap_or(u32::MAX))
}

/// Writes the first `count` functions.
pub(crate) fn write_functions(call: &str, loaded: &Loaded, to: &OutSlice<u64>, count: u32) -> Answer {
    let handles = loaded.all(call)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(handles.len());
    to.write(handles.get(..count).unwrap_or_default());
    Ok(())
}

pub(crate) fn global(to: OutMaybe<u64>, bytes: OutMaybe<usize>, module: u64, name: Text) -> Answer {
    write_global(&to, &bytes, &driver()?.modules.get(module)?.loaded, &name)
}

/// Writes where a variable of an image lies.
pub(crate) fn write_global(
    to: &OutMaybe<u64>,
    bytes: &OutMaybe<usize>,
    loaded: &Loaded,
    name: &Text,
) -> Answer {
    let (address, length) = loaded.variable(&name.0).inspect_err(|_| {
        let why = format!(
            "no kernel of the image names a variable {}: one byte in a namespace that only the host uses is left out, and so are large tables: have a kernel name it",
            name.0
        );
        report::refused("cuModuleGetGlobal", &why);
    })?;
    to.set(address);
    bytes.set(length);
    Ok(())
}
