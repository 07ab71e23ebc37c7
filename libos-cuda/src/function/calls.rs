//! Calls about functions and kernels.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use super::{CARVEOUT, Function, MAX_DYNAMIC_SHARED, find};
use crate::abi::{Out, OutMaybe};
use crate::device::Domain;
use crate::driver::{Driver, driver};
use crate::library;
use crate::query::of;
use crate::status::{Answer, Status};

impl Function {
    fn set(&self, driver: &Driver, attribute: u32, value: i32) -> Answer {
        match attribute {
            MAX_DYNAMIC_SHARED => {
                let bytes = u32::try_from(value).map_err(|_| Status::INVALID_VALUE)?;
                let most = driver.limits.shared_bytes_max.saturating_sub(self.entry.shared_bytes);
                if bytes > most {
                    return Err(Status::INVALID_VALUE);
                }
                let image = self.image.lock();
                let image = image.as_ref().ok_or(Status::INVALID_HANDLE)?;
                if bytes > self.dynamic_shared_told.load(Ordering::Relaxed) {
                    let allowed = driver.session.allow_dynamic_shared(image, &self.entry, bytes);
                    allowed.map_err(|error| Status::of(&error))?;
                    self.dynamic_shared_told.store(bytes, Ordering::Relaxed);
                }
                self.dynamic_shared_max.store(bytes, Ordering::Relaxed);
                Ok(())
            }
            CARVEOUT if (-1..=100).contains(&value) => {
                self.carveout.store(value, Ordering::Relaxed);
                Ok(())
            }
            10..=15 if driver.domain == Domain::Isolated => {
                let image = self.image.lock();
                let image = image.as_ref().ok_or(Status::INVALID_HANDLE)?;
                if self.set_ones.lock().get(&attribute) == Some(&value) {
                    return Ok(());
                }
                let set = driver.session.set_attribute(image, &self.entry, attribute, value);
                set.map_err(|error| Status::of(&error))?;
                self.set_ones.lock().insert(attribute, value);
                self.clusters.lock().clear();
                Ok(())
            }
            10..=15 => Err(Status::NOT_SUPPORTED),
            _ => Err(Status::INVALID_VALUE),
        }
    }
}

fn named(handle: u64) -> Result<&'static Function, Status> {
    find(&driver()?.functions, handle)
}

pub(crate) fn of_kernel(to: Out<u64>, kernel: u64) -> Answer {
    named(kernel)?;
    to.set(kernel);
    Ok(())
}

pub(crate) fn library(to: Out<u64>, kernel: u64) -> Answer {
    match named(kernel)?.library {
        0 => Err(Status::NOT_FOUND),
        library => {
            to.set(library);
            Ok(())
        }
    }
}

pub(crate) fn module(to: Out<u64>, function: u64) -> Answer {
    let driver = driver()?;
    let function = find(&driver.functions, function)?;
    to.set(match function.module.load(Ordering::Relaxed) {
        0 => library::module_of(driver, function.library)?,
        module => module,
    });
    Ok(())
}

pub(crate) fn kernel_attribute(to: Out<i32>, attribute_number: u32, kernel: u64, device: i32) -> Answer {
    of(device)?;
    attribute(to, attribute_number, kernel)
}

pub(crate) fn attribute(to: Out<i32>, attribute: u32, function: u64) -> Answer {
    to.set(named(function)?.value(attribute)?);
    Ok(())
}

pub(crate) fn set_kernel_attribute(attribute: u32, value: i32, kernel: u64, device: i32) -> Answer {
    of(device)?;
    set_attribute(kernel, attribute, value)
}

pub(crate) fn set_attribute(function: u64, attribute: u32, value: i32) -> Answer {
    let driver = driver()?;
    find(&driver.functions, function)?.set(driver, attribute, value)
}

/// A hint, without a use here.
pub(crate) fn set_cache_config(function: u64, config: u32) -> Answer {
    named(function)?;
    if config <= 3 { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

pub(crate) fn set_kernel_cache_config(kernel: u64, config: u32, device: i32) -> Answer {
    of(device)?;
    set_cache_config(kernel, config)
}

pub(crate) fn name(to: Out<*const c_char>, function: u64) -> Answer {
    to.set(named(function)?.name.as_ptr());
    Ok(())
}

pub(crate) fn parameter(function: u64, index: usize, offset: Out<usize>, bytes: OutMaybe<usize>) -> Answer {
    let slot = named(function)?.parameters.get(index).ok_or(Status::INVALID_VALUE)?;
    offset.set(slot.offset);
    bytes.set(slot.bytes);
    Ok(())
}

/// An image's functions are loaded together.
pub(crate) fn is_loaded(to: Out<u32>, function: u64) -> Answer {
    named(function)?;
    to.set(1);
    Ok(())
}

pub(crate) fn load(function: u64) -> Answer {
    named(function).map(drop)
}
