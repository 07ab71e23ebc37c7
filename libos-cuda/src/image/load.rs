//! Loading images into the session.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bulkhead_fatbin::Image;
use parking_lot::Mutex;

use super::Loaded;
use crate::device::{Domain, ErrorCode};
use crate::driver::Driver;
use crate::function::Function;
use crate::handle::{Kind, encode};
use crate::memory::What;
use crate::printf;
use crate::profile;
use crate::report;
use crate::status::Status;

/// Why an image is not loaded: the status, and a text.
pub(crate) type Failure = (Status, String);

/// Loads an image. A refusal is said on stderr, once, in the name of `call`, and returned with its text.
pub(crate) fn load(
    call: &str,
    driver: &'static Driver,
    content: &[u8],
    library: u64,
) -> Result<Arc<Loaded>, Failure> {
    load_quietly(driver, content, library).inspect_err(|(_, text)| report::refused(call, text))
}

/// Where what the guard refuses would run: an isolated session has no guard. Its device has to be one.
fn elsewhere(driver: &Driver) -> &'static str {
    match (driver.domain, driver.device().backend == "software") {
        (Domain::Guarded, false) => "\nit runs in an isolated session: `bulkhead run --domain isolated`",
        (Domain::Isolated, true) => {
            "\nthe software GPU runs no machine code, in isolated sessions either: they have the same guard there"
        }
        _ => "",
    }
}

/// Whether an image has no PTX for the device.
fn has_no_ptx(driver: &Driver, content: &[u8]) -> bool {
    let architecture = driver.device().architecture;
    Image::read(content).is_ok_and(|image| image.check_ptx_for(architecture).is_err())
}

/// What somebody is told who waits for code.
fn slow(domain: Domain) -> &'static str {
    match domain {
        Domain::Guarded => {
            "loading code takes long: it is large, or kernels of others run on (`bulkhead status` says whose: busy)"
        }
        Domain::Isolated => "loading code takes long",
    }
}

/// Loads an image, and says nothing where that fails.
pub(crate) fn load_quietly(
    driver: &'static Driver,
    content: &[u8],
    library: u64,
) -> Result<Arc<Loaded>, Failure> {
    if driver.domain == Domain::Guarded {
        let image = Image::read(content).map_err(|error| (Status::INVALID_IMAGE, error.to_string()))?;
        if let Err(error) = image.check_ptx_for(driver.device().architecture) {
            let text = format!("{error}{}", elsewhere(driver));
            return Err((Status::NO_BINARY_FOR_GPU, text));
        }
    }
    let image = driver.session.load_image_telling(content, &|| report::once(slow(driver.domain))).map_err(
        |error| {
            let text = match error.code {
                ErrorCode::ImageRefused => format!("{error}{}", elsewhere(driver)),
                _ => error.to_string(),
            };
            let status = match error.code {
                // The image has PTX, but none for this device.
                ErrorCode::NotFound => Status::NO_BINARY_FOR_GPU,
                // As in a guarded session, where nobody is asked.
                ErrorCode::ImageRefused if has_no_ptx(driver, content) => Status::NO_BINARY_FOR_GPU,
                ErrorCode::Internal
                | ErrorCode::InvalidArgument
                | ErrorCode::InvalidHandle
                | ErrorCode::NotPermitted
                | ErrorCode::NotSupported
                | ErrorCode::OutOfMemory
                | ErrorCode::LimitReached
                | ErrorCode::ImageInvalid
                | ErrorCode::ImageRefused
                | ErrorCode::LaunchResources
                | ErrorCode::DeviceLost
                | ErrorCode::SessionLost
                | ErrorCode::Protocol
                | ErrorCode::TimedOut
                | ErrorCode::Unavailable
                | ErrorCode::Version
                | ErrorCode::Revoked
                | ErrorCode::WorkLost
                | ErrorCode::LaunchTimeout
                | ErrorCode::Trapped
                | ErrorCode::AssertionFailed => Status::of(&error),
            };
            (status, text)
        },
    )?;
    profile::keep(content);
    let failed = |status: Status| (status, format!("{status:?}"));
    let mut functions = Vec::new();
    for entry in image.entries() {
        let function = Function::new(&image, entry, &driver.limits, library).map_err(failed)?;
        let index = driver.functions.push(function).map_err(failed)?;
        functions.push((entry.name.clone(), encode(Kind::Function, 1, index)));
    }
    if let Some(heap) = image.heap() {
        driver.heap.get_or_init(|| heap);
    }
    let data = image.variables().map(|memory| (memory.address(), memory.bytes()));
    if let Some((address, bytes)) = data {
        driver.memory.insert(address, bytes, What::Variables(image.clone()), 0).map_err(failed)?;
    }
    let data = data.map(|(address, _)| address);
    let (named, variables, module) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
    let loaded = Arc::new(Loaded {
        memory: &driver.memory,
        made: &driver.functions,
        limits: driver.limits,
        architecture: driver.device().architecture,
        elsewhere: elsewhere(driver),
        functions,
        named,
        variables,
        library,
        module,
        image,
        data,
    });
    printf::note(&loaded, content);
    Ok(loaded)
}
