//! Calls about arrays.

use std::sync::Arc;

use super::{Array, Format};
use crate::abi::{ArrayDescription, ArrayDescription3d, In, Out};
use crate::copy::End;
use crate::device::{Error, ErrorCode, Question};
use crate::driver::{Driver, driver, driver_and_current};
use crate::memory;
use crate::moving::keep;
use crate::report;
use crate::status::{Answer, Status};

impl Array {
    fn create(driver: &'static Driver, context: u64, asked: ArrayDescription3d) -> Result<Self, Status> {
        let format = Format::of(asked.format, asked.channels)?;
        if asked.flags & !FLAGS != 0 {
            report::refused(
                "cuArray3DCreate",
                "arrays are plain, layered or cubes, and not sparse or for graphics",
            );
            return Err(Status::NOT_SUPPORTED);
        }
        let layered = asked.flags & (LAYERED | CUBE) != 0;
        let layers = if layered { asked.depth } else { 0 };
        let cube = asked.flags & CUBE == 0
            || (asked.width == asked.height
                && layers.is_multiple_of(6)
                && (layers == 6 || asked.flags & LAYERED != 0));
        let plain = layered || asked.depth == 0 || asked.height > 0;
        if asked.width == 0 || !cube || !plain || (layered && layers == 0) || layers > LAYERS_MAX {
            return Err(Status::INVALID_VALUE);
        }
        let (width, height) = (asked.width, asked.height.max(1));
        let depth = if layered { 1 } else { asked.depth.max(1) };
        if [width, height, depth].iter().any(|extent| *extent > EXTENT_MAX) {
            return Err(Status::INVALID_VALUE);
        }
        let row_bytes = (width * u64::from(format.bytes())).next_multiple_of(ROW_ALIGN);
        let slice_bytes = row_bytes * height;
        let bytes = slice_bytes.checked_mul(depth.max(layers)).ok_or(Status::INVALID_VALUE)?;
        let number = driver.runs_machine_code().then(|| of_the_driver(driver, &asked)).transpose()?;
        let acquired = number.is_none().then(|| memory::acquire_in(driver, context, bytes)).transpose()?;
        Ok(Self {
            session: &driver.session,
            memory: &driver.memory,
            context,
            asked,
            format,
            width,
            height,
            depth,
            layers,
            row_bytes,
            slice_bytes,
            address: acquired.map_or(0, |acquired| acquired.address),
            allocation: acquired.map_or(0, |acquired| acquired.id),
            number,
        })
    }

    /// Its memory as one side of a copy: where it begins, from row to row, from slice to slice; `width` in bytes.
    pub(crate) fn side(&self, from: [usize; 3], shape: [usize; 3]) -> Result<(End, usize, usize), Status> {
        self.check(from, shape)?;
        let bytes = |bytes: u64| usize::try_from(bytes).map_err(|_| Status::INVALID_VALUE);
        Ok((End::Device(self.address), bytes(self.row_bytes)?, bytes(self.slice_bytes)?))
    }
}

const LAYERED: u32 = 1;
const SURFACE: u32 = 2;
const CUBE: u32 = 4;
const GATHER: u32 = 8;
const FLAGS: u32 = LAYERED | SURFACE | CUBE | GATHER;

/// Rows begin at multiples of this.
const ROW_ALIGN: u64 = 32;
/// Texels along an axis, and layers, at most: what an H200 has for three dimensions and for layers is less.
const EXTENT_MAX: u64 = 1 << 17;
const LAYERS_MAX: u64 = 2048;

/// Has the driver make an array; its number.
fn of_the_driver(driver: &Driver, asked: &ArrayDescription3d) -> Result<u64, Status> {
    let ArrayDescription3d { width, height, depth, format, channels, flags } = *asked;
    let words = [width, height, depth, format.into(), channels.into(), flags.into()];
    let made = driver.session.ask_driver(Question::MakeArray, None, &words);
    let made = made.map_err(|error| not_made("cuArray3DCreate", &error))?;
    made.first().copied().ok_or(Status::UNKNOWN)
}

/// Why the driver makes no array or texture.
pub(crate) fn not_made(call: &str, error: &Error) -> Status {
    if error.code == ErrorCode::NotSupported || error.device == 0 {
        report::refused(call, &format!("{}: isolated sessions have the driver's own arrays", error.message));
    }
    Status::of(error)
}

pub(crate) fn create(to: Out<u64>, asked: In<ArrayDescription>) -> Answer {
    let ArrayDescription { width, height, format, channels } = asked.0;
    create_as(&to, ArrayDescription3d { width, height, depth: 0, format, channels, flags: 0 })
}

pub(crate) fn create_3d(to: Out<u64>, asked: In<ArrayDescription3d>) -> Answer {
    create_as(&to, asked.0)
}

fn create_as(to: &Out<u64>, asked: ArrayDescription3d) -> Answer {
    keep()?;
    let (driver, context) = driver_and_current()?;
    let array = Array::create(driver, context, asked)?;
    to.set(driver.arrays.insert(Arc::new(array))?);
    Ok(())
}

/// Textures that read it go on being descriptions of where it was, as natively.
pub(crate) fn destroy(array: u64) -> Answer {
    let driver = driver()?;
    if driver.arrays.get(array)?.number.is_some() {
        // What is queued may read it, as natively.
        driver.streams.synchronize_all(&driver.session)?;
    }
    driver.arrays.remove(array).map(drop)
}

pub(crate) fn description(to: Out<ArrayDescription>, array: u64) -> Answer {
    let ArrayDescription3d { width, height, format, channels, .. } = driver()?.arrays.get(array)?.asked;
    to.set(ArrayDescription { width, height, format, channels });
    Ok(())
}

pub(crate) fn description_3d(to: Out<ArrayDescription3d>, array: u64) -> Answer {
    to.set(driver()?.arrays.get(array)?.asked);
    Ok(())
}
