//! `cuLink*`, and programs of `nvcc -rdc=true`: units of relocatable PTX, linked to one image before it is loaded.
//!
//! What links is a library of this process ([`bulkhead_link`]): the kernel gets one module as from everybody else. The
//! "cubin" of `cuLinkComplete` is the linked PTX, which every call that loads an image takes.

use std::ffi::c_void;
use std::sync::Arc;

use bulkhead_fatbin::Image;
use bulkhead_link::{Unit, link};
use parking_lot::Mutex;

use crate::abi::{Host, ImagePointer, InSlice, Out, OutMaybe, Text};
use crate::driver::{Driver, driver};
use crate::image;
use crate::module::{Logs, OPTIONS_MAX};
use crate::report;
use crate::status::{Answer, Status};

/// Units of one program or linker.
const UNITS_MAX: usize = 4096;
/// `CU_JIT_INPUT_*`.
const CUBIN: u32 = 0;
const PTX: u32 = 1;
const FATBINARY: u32 = 2;
const OBJECT: u32 = 3;
const LIBRARY: u32 = 4;

/// In the names of functions of NVIDIA's runtime for launches from kernels.
const DEVICE_RUNTIME: &str = "_cuda_device_runtime_cu_";

/// A unit: what errors call it, and its PTX.
type Named = (String, String);

/// A `CUlinkState`.
pub(crate) struct Linker {
    logs: Logs,
    units: Mutex<Vec<Named>>,
    /// What it linked, with a NUL behind it. It lives as long as the linker, since the program reads it.
    linked: Mutex<Vec<Vec<u8>>>,
}

/// Links the units that a program's wrapper lists: the containers whose addresses lie at `list`, up to a null.
pub(crate) fn relocatable(call: &str, image: &ImagePointer, list: u64) -> Result<Vec<u8>, Status> {
    let list = image.follow(list)?;
    let mut units = Vec::new();
    // NVIDIA's runtime for launches from kernels is among them, whether or not anything of it is used, with PTX or without. It
    // is left out, so that what launches is refused by name, and nothing else is.
    let mut without_ptx: Option<(Status, String)> = None;
    for index in 0..=UNITS_MAX {
        let bytes = list.prefix((index + 1) * size_of::<u64>());
        let address = bytes.last_chunk().map_or(0, |last| u64::from_ne_bytes(*last));
        if address == 0 {
            return match without_ptx {
                Some((status, why)) if units.is_empty() => Err(refuse(call, status, &why)),
                _ => linked(&units).map_err(|(status, why)| refuse(call, status, &why)),
            };
        }
        let container = image::read(call, &image.follow(address)?)?;
        match ptx(driver()?, &container) {
            Ok(text) if text.contains(DEVICE_RUNTIME) => {}
            Ok(text) => units.push((format!("unit {}", index + 1), text)),
            Err(error) => without_ptx = without_ptx.or(Some(error)),
        }
    }
    Err(refuse(call, Status::INVALID_IMAGE, &format!("more than {UNITS_MAX} units to link")))
}

fn refuse(call: &str, status: Status, why: &str) -> Status {
    report::refused(call, why);
    status
}

fn linked(units: &[Named]) -> Result<Vec<u8>, (Status, String)> {
    let units: Vec<Unit<'_>> = units.iter().map(|(name, text)| Unit { name, text }).collect();
    let text = link(&units).map_err(|error| (Status::INVALID_PTX, error.to_string()))?;
    Ok(text.into_bytes())
}

/// The PTX of an image for this device.
fn ptx(driver: &'static Driver, content: &[u8]) -> Result<String, (Status, String)> {
    let image = Image::read(content).map_err(|error| (Status::INVALID_IMAGE, error.to_string()))?;
    let text = image.ptx_for(driver.device().architecture);
    text.map_err(|error| (Status::NO_BINARY_FOR_GPU, format!("one of the units to link: {error}")))
}

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
