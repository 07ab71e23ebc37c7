//! Texture and surface objects: descriptions in the session's own memory, which code reads that the guard puts in the place
//! of kernels' instructions on them (`guard/src/confine/textures.rs`, where their layout is written down).
//!
//! In isolated sessions they are the driver's, which machine code reads by its own instructions.
//!
//! A handle is a description's address. What stands there harms nobody but the session: kernels load and store through it
//! as through any pointer of theirs.

mod objects;

pub(crate) use objects::Objects;

use crate::abi::{In, InMaybe, Out, Resource, TextureDescription};
use crate::array::{self, Array, Channel, Format};
use crate::device::Question;
use crate::driver::{Driver, driver, driver_and_current};
use crate::memory;
use crate::moving::keep;
use crate::report;
use crate::status::{Answer, Status};

const DESCRIPTION_BYTES: usize = 64;
/// Descriptions that are allocated at a time.
const BLOCK: u64 = 1024;

const ARRAY: u32 = 0;
const MIPMAPPED: u32 = 1;
const LINEAR: u32 = 2;
const PITCHED: u32 = 3;

const CLAMP: u32 = 1;
const BORDER: u32 = 3;
const FILTER_LINEAR: u32 = 1;
const AS_INTEGER: u32 = 1;
const NORMALIZED: u32 = 2;
/// Textures in the sRGB color space.
const SRGB: u32 = 0x10;
const FLAGS: u32 = 0x73;

const MIXED: u32 = 1 << 8;
const FROM_0_TO_1: u32 = 1 << 9;

/// What the code that reads a texture is told of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Description {
    address: u64,
    row_bytes: u64,
    extent: [u32; 3],
    mode: u32,
    slice_bytes: u64,
    format: u32,
    layers: u32,
    outside: [u32; 4],
}

impl Description {
    fn bytes(&self) -> [u8; DESCRIPTION_BYTES] {
        let mut bytes = [0; DESCRIPTION_BYTES];
        let doubles = [(0, self.address), (8, self.row_bytes), (32, self.slice_bytes)];
        let words = [(16, self.extent[0]), (20, self.extent[1]), (24, self.extent[2]), (28, self.mode)];
        let outside = (0..).zip(self.outside).map(|(index, word)| (48 + 4 * index, word));
        for (at, double) in doubles {
            bytes[at..at + 8].copy_from_slice(&double.to_le_bytes());
        }
        for (at, word) in words.into_iter().chain([(40, self.format), (44, self.layers)]).chain(outside) {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Of what lies somewhere.
    fn of(driver: &Driver, resource: &Resource) -> Result<(Self, Format), Status> {
        let number = |number: u64| u32::try_from(number).map_err(|_| Status::INVALID_VALUE);
        match resource.kind {
            ARRAY => {
                let array = driver.arrays.get(resource.words[0])?;
                let Array { address, row_bytes, slice_bytes, format, .. } = *array;
                let extent = [number(array.width)?, number(array.height)?, number(array.depth)?];
                let layers = number(array.layers)?;
                let described = Self { address, row_bytes, slice_bytes, extent, layers, ..Self::default() };
                Ok((described, format))
            }
            LINEAR | PITCHED => {
                let [address, format, first, second, row_bytes, ..] = resource.words;
                let format = Format::of(number(format & 0xffff_ffff)?, number(format >> 32)?)?;
                let texel = u64::from(format.bytes());
                let (width, height, row_bytes) =
                    if resource.kind == LINEAR { (first / texel, 1, 0) } else { (first, second, row_bytes) };
                if width == 0
                    || height == 0
                    || !address.is_multiple_of(texel)
                    || !row_bytes.is_multiple_of(texel)
                {
                    return Err(Status::INVALID_VALUE);
                }
                let extent = [number(width)?, number(height)?, 1];
                Ok((Self { address, row_bytes, extent, ..Self::default() }, format))
            }
            MIPMAPPED => Err(Status::NOT_SUPPORTED),
            _ => Err(Status::INVALID_VALUE),
        }
    }
}

pub(crate) fn create(
    to: Out<u64>,
    resource: In<Resource>,
    texture: In<TextureDescription>,
    view: InMaybe<[u64; 14]>,
) -> Answer {
    let (driver, _) = driver_and_current()?;
    let (resource, texture) = (resource.0, texture.0);
    if driver.runs_machine_code() {
        to.set(of_the_driver(driver, resource, texture, view.0.as_ref())?);
        return Ok(());
    }
    if resource.kind == MIPMAPPED || view.0.is_some() || texture.flags & SRGB != 0 {
        let why = "textures have one level, no view that differs from their memory, and linear colors";
        report::refused("cuTexObjectCreate", why);
        return Err(Status::NOT_SUPPORTED);
    }
    let (described, format) = Description::of(driver, &resource)?;
    let filters = texture.filter == FILTER_LINEAR;
    let integer = matches!(format.channel, Channel::Unsigned | Channel::Signed);
    let raw = integer && (format.bits == 32 || texture.flags & AS_INTEGER != 0);
    let modes_known = texture.address.iter().all(|mode| *mode <= BORDER);
    if texture.flags & !FLAGS != 0 || texture.filter > FILTER_LINEAR || !modes_known || (filters && raw) {
        return Err(Status::INVALID_VALUE);
    }
    let kind = match format.channel {
        Channel::Float => 0,
        Channel::Unsigned if raw => 0,
        Channel::Signed if raw => 1,
        Channel::Unsigned | Channel::Unorm => 2,
        Channel::Signed | Channel::Snorm => 3,
        Channel::Half => 4,
    };
    let normalized = texture.flags & NORMALIZED != 0 && resource.kind != LINEAR;
    let mut mode = 0;
    for (axis, asked) in texture.address.into_iter().enumerate() {
        let asked = match asked {
            // What lies outside of plain memory is zero.
            _ if resource.kind == LINEAR => BORDER,
            // Only coordinates from 0 to 1 go around or are mirrored.
            BORDER => BORDER,
            asked if normalized => asked,
            _ => CLAMP,
        };
        mode |= asked << (2 * axis);
    }
    if filters && resource.kind != LINEAR {
        mode |= MIXED;
    }
    if normalized {
        mode |= FROM_0_TO_1;
    }
    let outside = match kind {
        _ if resource.kind == LINEAR => [0; 4],
        2 | 3 => texture.border.map(|bits| part(bits, format.bits, kind == 3)),
        _ => texture.border,
    };
    let format = format.bits | kind << 8 | format.bytes() << 16;
    to.set(driver.textures.add(
        driver,
        Description { mode, format, outside, ..described },
        resource,
        Some(texture),
    )?);
    Ok(())
}

fn ask(driver: &Driver, call: &str, question: Question, words: &[u64]) -> Result<u64, Status> {
    let made = driver.session.ask_driver(question, None, words);
    let made = made.map_err(|error| array::not_made(call, &error))?;
    made.first().copied().ok_or(Status::UNKNOWN)
}

/// Has the driver make a texture, which it checks itself.
fn of_the_driver(
    driver: &Driver,
    resource: Resource,
    texture: TextureDescription,
    view: Option<&[u64; 14]>,
) -> Result<u64, Status> {
    let mut described = [0; 5];
    described.copy_from_slice(&resource.words[..5]);
    match resource.kind {
        ARRAY => {
            let number = driver.arrays.get(resource.words[0])?.number;
            described = [number.ok_or(Status::INVALID_VALUE)?, 0, 0, 0, 0];
        }
        MIPMAPPED => return Err(Status::NOT_SUPPORTED),
        _ => {}
    }
    keep()?;
    let mut words = vec![u64::from(resource.kind)];
    words.extend(described);
    words.extend(texture.words());
    words.push(u64::from(view.is_some()));
    words.extend(view.unwrap_or(&[0; 14]));
    let made = ask(driver, "cuTexObjectCreate", Question::MakeTexture, &words)?;
    driver.textures.0.lock().live.insert(made, (resource, Some(texture)));
    Ok(made)
}

/// What a border's color is where channels are parts of 1: the nearest that a channel can hold.
fn part(color: u32, bits: u32, signed: bool) -> u32 {
    let most = if bits == 8 { 255.0 } else { 65535.0 };
    let (least, most) = if signed { (-1.0, (most - 1.0) / 2.0) } else { (0.0, most) };
    let color = f32::from_bits(color).clamp(least, 1.0);
    ((color * most).round() / most).to_bits()
}

pub(crate) fn create_surface(to: Out<u64>, resource: In<Resource>) -> Answer {
    let (driver, _) = driver_and_current()?;
    if resource.0.kind != ARRAY {
        return Err(Status::INVALID_VALUE);
    }
    keep()?;
    if driver.runs_machine_code() {
        let number = driver.arrays.get(resource.0.words[0])?.number.ok_or(Status::INVALID_VALUE)?;
        let made = ask(driver, "cuSurfObjectCreate", Question::MakeSurface, &[number])?;
        driver.textures.0.lock().live.insert(made, (resource.0, None));
        to.set(made);
        return Ok(());
    }
    let (mut described, format) = Description::of(driver, &resource.0)?;
    described.extent[0] = described.extent[0].checked_mul(format.bytes()).ok_or(Status::INVALID_VALUE)?;
    to.set(driver.textures.add(driver, described, resource.0, None)?);
    Ok(())
}

impl Objects {
    fn add(
        &self,
        driver: &Driver,
        description: Description,
        resource: Resource,
        texture: Option<TextureDescription>,
    ) -> Result<u64, Status> {
        let session = &driver.session;
        let failed = |error: crate::device::Error| Status::of(&error);
        let mut state = self.0.lock();
        if state.free.is_empty() {
            let block = memory::acquire(driver, BLOCK * DESCRIPTION_BYTES as u64)?;
            state.free.extend((0..BLOCK).rev().map(|index| block + index * DESCRIPTION_BYTES as u64));
        }
        let stream = match state.stream {
            Some(stream) => stream,
            None => *state.stream.insert(session.create_stream(0).map_err(failed)?),
        };
        let handle = state.free.pop().ok_or(Status::UNKNOWN)?;
        let range = driver.memory.reached(handle, DESCRIPTION_BYTES as u64)?;
        let written = session
            .write(stream, range, &description.bytes())
            .and_then(|()| session.wait(session.fence(stream)))
            .map_err(failed);
        if let Err(status) = written {
            state.free.push(handle);
            return Err(status);
        }
        state.live.insert(handle, (resource, texture));
        Ok(handle)
    }

    fn get(&self, handle: u64, is_texture: bool) -> Result<(Resource, Option<TextureDescription>), Status> {
        let found = self.0.lock().live.get(&handle).copied();
        found.filter(|(_, texture)| texture.is_some() == is_texture).ok_or(Status::INVALID_VALUE)
    }

    fn remove(&self, driver: &Driver, handle: u64, is_texture: bool) -> Answer {
        self.get(handle, is_texture)?;
        if driver.runs_machine_code() {
            // What is queued may read by it.
            driver.streams.synchronize_all(&driver.session)?;
            if self.0.lock().live.remove(&handle).is_some() {
                let question = if is_texture { Question::FreeTexture } else { Question::FreeSurface };
                let freed = driver.session.ask_driver(question, None, &[handle]);
                freed.map_err(|error| Status::of(&error))?;
            }
            return Ok(());
        }
        let mut state = self.0.lock();
        if state.live.remove(&handle).is_some() {
            state.free.push(handle);
        }
        Ok(())
    }
}

pub(crate) fn destroy(texture: u64) -> Answer {
    let driver = driver()?;
    driver.textures.remove(driver, texture, true)
}

pub(crate) fn destroy_surface(surface: u64) -> Answer {
    let driver = driver()?;
    driver.textures.remove(driver, surface, false)
}

pub(crate) fn resource(to: Out<Resource>, texture: u64) -> Answer {
    to.set(driver()?.textures.get(texture, true)?.0);
    Ok(())
}

pub(crate) fn surface_resource(to: Out<Resource>, surface: u64) -> Answer {
    to.set(driver()?.textures.get(surface, false)?.0);
    Ok(())
}

pub(crate) fn description(to: Out<TextureDescription>, texture: u64) -> Answer {
    to.set(driver()?.textures.get(texture, true)?.1.ok_or(Status::INVALID_VALUE)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_lies_as_the_code_that_reads_it_expects() {
        let description = Description {
            address: 0x0102_0304_0506_0708,
            row_bytes: 9,
            extent: [10, 11, 12],
            mode: 13,
            slice_bytes: 14,
            format: 15,
            layers: 16,
            outside: [17, 18, 19, 20],
        };
        let bytes = description.bytes();
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [0x0506_0708, 0x0102_0304, 9, 0, 10, 11, 12, 13, 14, 0, 15, 16, 17, 18, 19, 20]);
    }
}
