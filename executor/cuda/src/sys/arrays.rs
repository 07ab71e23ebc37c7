//! CUDA arrays, textures and surfaces as the driver has them: of isolated sessions, whose machine code reads them by its
//! own instructions.
//!
//! What descriptions say comes from the session, and the driver looks at it: numbers stay numbers here, and no enumeration of
//! cuda.h's is made of them.

use std::ffi::c_void;
use std::ptr::{null, null_mut, with_exposed_provenance_mut};

use bulkhead_gpu::{ArrayCopy, DeviceAddress};
use cudarc::driver::sys::{CUDA_MEMCPY3D, CUmemorytype};

use super::{Code, Driver, Stream};

/// An array of the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DriverArray(usize);

impl DriverArray {
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }

    fn pointer<T>(self) -> *mut T {
        with_exposed_provenance_mut(self.0)
    }
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
struct ArrayDescription {
    extent: [usize; 3],
    format: u32,
    channels: u32,
    flags: u32,
}

/// `CUDA_RESOURCE_DESC`.
#[repr(C)]
struct Resource {
    kind: u32,
    words: [u64; 16],
    flags: u32,
}
const _: () = assert!(size_of::<Resource>() == 144);

/// `CUDA_TEXTURE_DESC`, and `CUDA_RESOURCE_VIEW_DESC`, as words.
type Texture = [u64; 13];
type View = [u64; 14];

fn number(word: u64) -> Result<usize, Code> {
    usize::try_from(word).map_err(|_| Code::INVALID_VALUE)
}

fn half(word: u64) -> Result<u32, Code> {
    u32::try_from(word).map_err(|_| Code::INVALID_VALUE)
}

fn resource(kind: u64, described: &[u64]) -> Result<Resource, Code> {
    let mut words = [0; 16];
    words.iter_mut().zip(described).for_each(|(to, word)| *to = *word);
    Ok(Resource { kind: half(kind)?, words, flags: 0 })
}

impl Driver {
    /// Makes an array: width, height, depth, format, channels, flags.
    pub(crate) fn array_create(&self, words: &[u64; 6]) -> Result<DriverArray, Code> {
        let [width, height, depth, format, channels, flags] = *words;
        let asked = ArrayDescription {
            extent: [number(width)?, number(height)?, number(depth)?],
            format: half(format)?,
            channels: half(channels)?,
            flags: half(flags)?,
        };
        let mut array: *mut c_void = null_mut();
        // SAFETY: both pointers outlive the call, and the description has the layout that the driver reads.
        Code::check(unsafe { (self.array_create)(&raw mut array, (&raw const asked).cast()) })?;
        Ok(DriverArray(array.expose_provenance()))
    }

    pub(crate) fn array_destroy(&self, array: DriverArray) -> Result<(), Code> {
        // SAFETY: it was taken out of its table, so nobody has it after this.
        Code::check(unsafe { (self.array_destroy)(array.pointer()) })
    }

    /// Makes a texture of a resource, whose first words are given.
    pub(crate) fn texture_create(
        &self,
        kind: u64,
        described: &[u64],
        texture: &Texture,
        view: Option<&View>,
    ) -> Result<u64, Code> {
        let resource = resource(kind, described)?;
        let mut made = 0;
        let view = view.map_or(null(), |view| view.as_ptr().cast());
        // SAFETY: all pointers outlive the call, and have the sizes and layouts that the driver reads; an array in the
        // resource is one of the table, which the caller holds.
        Code::check(unsafe {
            (self.texture_create)(&raw mut made, (&raw const resource).cast(), texture.as_ptr().cast(), view)
        })?;
        Ok(made)
    }

    pub(crate) fn texture_destroy(&self, texture: u64) -> Result<(), Code> {
        // SAFETY: it was taken out of its table.
        Code::check(unsafe { (self.texture_destroy)(texture) })
    }

    pub(crate) fn surface_create(&self, array: DriverArray) -> Result<u64, Code> {
        let resource = resource(0, &[array.address()])?;
        let mut made = 0;
        // SAFETY: as for textures.
        Code::check(unsafe { (self.surface_create)(&raw mut made, (&raw const resource).cast()) })?;
        Ok(made)
    }

    pub(crate) fn surface_destroy(&self, surface: u64) -> Result<(), Code> {
        // SAFETY: it was taken out of its table.
        Code::check(unsafe { (self.surface_destroy)(surface) })
    }

    /// Copies between an array and device memory, in the stream's order.
    pub(crate) fn copy_array(
        &self,
        stream: Stream,
        array: DriverArray,
        memory: DeviceAddress,
        copy: &ArrayCopy,
    ) -> Result<(), Code> {
        let [x, y, z] = copy.at.map(|at| at as usize);
        let [width, height, depth] = copy.shape.map(|side| side as usize);
        let (row_bytes, rows) = (number(copy.row_bytes)?, copy.rows as usize);
        let mut asked = CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: null(),
            srcDevice: memory.0,
            srcArray: null_mut(),
            reserved0: null_mut(),
            srcPitch: row_bytes,
            srcHeight: rows,
            dstXInBytes: x,
            dstY: y,
            dstZ: z,
            dstLOD: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            dstHost: null_mut(),
            dstDevice: 0,
            dstArray: array.pointer(),
            reserved1: null_mut(),
            dstPitch: 0,
            dstHeight: 0,
            WidthInBytes: width,
            Height: height,
            Depth: depth,
        };
        if !copy.to_array {
            asked = CUDA_MEMCPY3D {
                srcXInBytes: x,
                srcY: y,
                srcZ: z,
                srcMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
                srcDevice: 0,
                srcArray: array.pointer(),
                srcPitch: 0,
                srcHeight: 0,
                dstXInBytes: 0,
                dstY: 0,
                dstZ: 0,
                dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                dstDevice: memory.0,
                dstArray: null_mut(),
                dstPitch: row_bytes,
                dstHeight: rows,
                ..asked
            };
        }
        // SAFETY: the array is in its table, which the caller holds, the memory lies in a reservation, and the driver
        // copies the description before it returns.
        Code::check(unsafe { (self.copy_shaped)(&raw const asked, stream.pointer()) })
    }
}
