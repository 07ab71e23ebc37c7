//! Units of relocatable PTX: found in images, and linked.

use bulkhead_fatbin::Image;
use bulkhead_link::{Unit, link};

use super::Named;
use crate::abi::ImagePointer;
use crate::driver::{Driver, driver};
use crate::image;
use crate::report;
use crate::status::Status;

/// Units of one program or linker.
pub(super) const UNITS_MAX: usize = 4096;

/// In the names of functions of NVIDIA's runtime for launches from kernels.
const DEVICE_RUNTIME: &str = "_cuda_device_runtime_cu_";

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

pub(super) fn refuse(call: &str, status: Status, why: &str) -> Status {
    report::refused(call, why);
    status
}

pub(super) fn linked(units: &[Named]) -> Result<Vec<u8>, (Status, String)> {
    let units: Vec<Unit<'_>> = units.iter().map(|(name, text)| Unit { name, text }).collect();
    let text = link(&units).map_err(|error| (Status::INVALID_PTX, error.to_string()))?;
    Ok(text.into_bytes())
}

/// The PTX of an image for this device.
pub(super) fn ptx(driver: &'static Driver, content: &[u8]) -> Result<String, (Status, String)> {
    let image = Image::read(content).map_err(|error| (Status::INVALID_IMAGE, error.to_string()))?;
    let text = image.ptx_for(driver.device().architecture);
    text.map_err(|error| (Status::NO_BINARY_FOR_GPU, format!("one of the units to link: {error}")))
}
