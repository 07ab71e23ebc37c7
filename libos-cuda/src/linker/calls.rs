//! Calls about linkers.

use std::ffi::c_void;
use std::sync::Arc;

use parking_lot::Mutex;

use super::units::{UNITS_MAX, linked, ptx, refuse};
use super::{Linker, Named};
use crate::abi::{Host, InSlice, Out, OutMaybe, Text};
use crate::driver::{Driver, driver};
use crate::image;
use crate::module::{Logs, OPTIONS_MAX};
use crate::status::{Answer, Status};

/// `CU_JIT_INPUT_*`.
const CUBIN: u32 = 0;
const PTX: u32 = 1;
const FATBINARY: u32 = 2;
const OBJECT: u32 = 3;
const LIBRARY: u32 = 4;

pub(crate) fn create(
    count: u32,
    options: InSlice<u32>,
    values: InSlice<*mut c_void>,
    to: Out<u64>,
) -> Answer {
    let driver = driver()?;
    let logs = Logs::read(count, &options, &values)?;
    let linker = Linker { logs, units: Mutex::default(), linked: Mutex::default() };
    to.set(driver.linkers.insert(Arc::new(linker))?);
    Ok(())
}

/// The options of one input steer NVIDIA's compiler only.
#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn add_data(
    linker: u64,
    kind: u32,
    data: Host,
    bytes: usize,
    name: InSlice<std::ffi::c_char>,
    count: u32,
    _options: InSlice<u32>,
    _values: InSlice<*mut c_void>,
) -> Answer {
    if count > OPTIONS_MAX || bytes == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let name = name.text().unwrap_or_else(|| "a unit without a name".to_owned());
    add("cuLinkAddData", linker, kind, &name, data.bytes(bytes)?)
}

pub(crate) fn add_file(
    linker: u64,
    kind: u32,
    path: Text,
    count: u32,
    _options: InSlice<u32>,
    _values: InSlice<*mut c_void>,
) -> Answer {
    if count > OPTIONS_MAX {
        return Err(Status::INVALID_VALUE);
    }
    let name = path.0.rsplit('/').next().unwrap_or_default();
    // The runtime for launches from kernels, which programs add whether or not they launch any.
    if kind == LIBRARY && name.starts_with("libcudadevrt") {
        return driver()?.linkers.get(linker).map(drop);
    }
    let content = image::read_file("cuLinkAddFile", &path.0)?;
    add("cuLinkAddFile", linker, kind, name, &content)
}

fn add(call: &str, linker: u64, kind: u32, name: &str, content: &[u8]) -> Answer {
    let driver = driver()?;
    let linker = driver.linkers.get(linker)?;
    let found = match kind {
        PTX | FATBINARY | CUBIN => ptx(driver, content).map(|text| vec![(name.to_owned(), text)]),
        OBJECT | LIBRARY => objects(driver, name, content),
        _ => Err((
            Status::INVALID_VALUE,
            "what is linked is PTX, containers, objects and libraries".to_owned(),
        )),
    };
    let mut found = found.map_err(|(status, why)| {
        linker.logs.error(&why);
        refuse(call, status, &format!("{name}: {why}"))
    })?;
    let mut units = linker.units.lock();
    if units.len() + found.len() > UNITS_MAX {
        return Err(refuse(call, Status::OUT_OF_MEMORY, &format!("more than {UNITS_MAX} units to link")));
    }
    units.append(&mut found);
    Ok(())
}

/// The units in objects of the host's compiler, and in archives of them.
fn objects(driver: &'static Driver, name: &str, content: &[u8]) -> Result<Vec<Named>, (Status, String)> {
    let containers = bulkhead_fatbin::containers_in(content);
    let units: Result<Vec<Named>, _> = containers
        .into_iter()
        .map(|container| ptx(driver, container).map(|text| (name.to_owned(), text)))
        .collect();
    match units {
        Ok(units) if units.is_empty() => Err((Status::INVALID_IMAGE, "no device code is in it".to_owned())),
        units => units,
    }
}

pub(crate) fn complete(linker: u64, to: Out<u64>, bytes: OutMaybe<usize>) -> Answer {
    let linker = driver()?.linkers.get(linker)?;
    let mut text = linked(&linker.units.lock()).map_err(|(status, why)| {
        linker.logs.error(&why);
        refuse("cuLinkComplete", status, &why)
    })?;
    text.push(0);
    linker.logs.info("");
    bytes.set(text.len());
    to.set(text.as_ptr().addr() as u64);
    linker.linked.lock().push(text);
    Ok(())
}

pub(crate) fn destroy(linker: u64) -> Answer {
    driver()?.linkers.remove(linker).map(drop)
}
