//! Reading images out of the program's memory, and from files.

use std::path::Path;

use bulkhead_fatbin::{Image, Needed, Wrapper, needed};
use bulkhead_schema::limits::IMAGE_BYTES_MAX;

use crate::abi::ImagePointer;
use crate::driver::{Driver, driver};
use crate::linker;
use crate::report;
use crate::status::Status;

/// Copies an image out of the program's memory. What is no image is refused in the name of `call`.
pub(crate) fn read(call: &str, image: &ImagePointer) -> Result<Vec<u8>, Status> {
    let mut inner = None;
    let mut units = None;
    let mut have = 0;
    let bytes = loop {
        let at = inner.as_ref().unwrap_or(image);
        let said = needed(at.prefix(have)).map_err(|error| invalid(call, &error))?;
        match said {
            Needed::More(more) => have = more,
            Needed::Exactly(bytes) if bytes as u64 > IMAGE_BYTES_MAX => {
                report::refused(
                    call,
                    &format!("the image has {bytes} bytes; the limit is {IMAGE_BYTES_MAX}"),
                );
                return Err(Status::OUT_OF_MEMORY);
            }
            Needed::Exactly(bytes) => break at.prefix(bytes).to_vec(),
            Needed::UpToNul => break at.text().to_vec(),
            Needed::Wrapper(wrapper) if inner.is_none() => {
                units = (wrapper.version == Wrapper::LINKED && wrapper.extra != 0).then_some(wrapper.extra);
                inner = Some(image.follow(wrapper.data)?);
                have = 0;
            }
            Needed::Wrapper(_) => return Err(Status::INVALID_IMAGE),
        }
    };
    let driver = driver()?;
    match units {
        // What nvcc linked itself is machine code; the PTX of its units is beside it.
        Some(units) if !is_complete(driver, &bytes) => linker::relocatable(call, image, units),
        _ => Ok(bytes),
    }
}

/// Whether an image has what runs on the device.
fn is_complete(driver: &Driver, content: &[u8]) -> bool {
    let architecture = driver.device().architecture;
    Image::read(content).is_ok_and(|image| {
        let has_code = driver.runs_machine_code() && image.has_machine_code_for(architecture);
        has_code || image.check_ptx_for(architecture).is_ok()
    })
}

/// Reads an image from a file.
pub(crate) fn read_file(call: &str, path: &str) -> Result<Vec<u8>, Status> {
    let refuse = |why: String| {
        report::refused(call, &why);
        Status::FILE_NOT_FOUND
    };
    let path = Path::new(path);
    let length =
        std::fs::metadata(path).map_err(|error| refuse(format!("{}: {error}", path.display())))?.len();
    if length > IMAGE_BYTES_MAX {
        return Err(refuse(format!("{} has {length} bytes; the limit is {IMAGE_BYTES_MAX}", path.display())));
    }
    let bytes = std::fs::read(path).map_err(|error| refuse(format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

fn invalid(call: &str, error: &bulkhead_fatbin::Error) -> Status {
    report::refused(call, &error.to_string());
    Status::INVALID_IMAGE
}
