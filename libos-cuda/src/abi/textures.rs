//! Exports about arrays, textures and surfaces, and what their structures look like in C.

use super::{Argument, Function, Host, In, InMaybe, NullStream, Out, Row, exports};
use crate::{array, copy_shaped, texture};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayDescription {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}
const _: () = assert!(size_of::<ArrayDescription>() == 24);

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayDescription3d {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}
const _: () = assert!(size_of::<ArrayDescription3d>() == 40);

/// `CUDA_RESOURCE_DESC`: `words` hold an array's handle; or an address, the format (low half) and the channels (high half)
/// of texels, and then bytes, or width, height and bytes of a row.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Resource {
    pub(crate) kind: u32,
    padding: u32,
    pub(crate) words: [u64; 16],
    flags: u32,
    padding_behind: u32,
}
const _: () = assert!(size_of::<Resource>() == 144 && std::mem::offset_of!(Resource, flags) == 136);

/// `CUDA_TEXTURE_DESC`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct TextureDescription {
    pub(crate) address: [u32; 3],
    pub(crate) filter: u32,
    pub(crate) flags: u32,
    anisotropy: u32,
    mipmaps: [u32; 4],
    pub(crate) border: [u32; 4],
    reserved: [u32; 12],
}

impl TextureDescription {
    /// As it lies in memory, in words.
    pub(crate) fn words(&self) -> [u64; 13] {
        let plain = [self.filter, self.flags, self.anisotropy];
        let parts: [&[u32]; 5] = [&self.address, &plain, &self.mipmaps, &self.border, &self.reserved];
        let mut halves = parts.into_iter().flatten().map(|half| u64::from(*half));
        std::array::from_fn(|_| halves.next().unwrap_or(0) | halves.next().unwrap_or(0) << 32)
    }
}
const _: () =
    assert!(size_of::<TextureDescription>() == 104 && std::mem::offset_of!(TextureDescription, border) == 40);

exports! {
    plain {
        cuArrayCreate_v2 "cuArrayCreate" 3020 (to: Out<u64>, asked: In<ArrayDescription>) => array::create;
        cuArray3DCreate_v2 "cuArray3DCreate" 3020
            (to: Out<u64>, asked: In<ArrayDescription3d>) => array::create_3d;
        cuArrayDestroy "cuArrayDestroy" 2000 (array: u64) => array::destroy;
        cuArrayGetDescriptor_v2 "cuArrayGetDescriptor" 3020
            (to: Out<ArrayDescription>, array: u64) => array::description;
        cuArray3DGetDescriptor_v2 "cuArray3DGetDescriptor" 3020
            (to: Out<ArrayDescription3d>, array: u64) => array::description_3d;

        cuTexObjectCreate "cuTexObjectCreate" 5000
            (to: Out<u64>, resource: In<Resource>, texture: In<TextureDescription>, view: InMaybe<[u64; 14]>)
            => texture::create;
        cuTexObjectDestroy "cuTexObjectDestroy" 5000 (texture: u64) => texture::destroy;
        cuTexObjectGetResourceDesc "cuTexObjectGetResourceDesc" 5000
            (to: Out<Resource>, texture: u64) => texture::resource;
        cuTexObjectGetTextureDesc "cuTexObjectGetTextureDesc" 5000
            (to: Out<TextureDescription>, texture: u64) => texture::description;
        cuSurfObjectCreate "cuSurfObjectCreate" 5000
            (to: Out<u64>, resource: In<Resource>) => texture::create_surface;
        cuSurfObjectDestroy "cuSurfObjectDestroy" 5000 (surface: u64) => texture::destroy_surface;
        cuSurfObjectGetResourceDesc "cuSurfObjectGetResourceDesc" 5000
            (to: Out<Resource>, surface: u64) => texture::surface_resource;
    }
    streams {
        cuMemcpyHtoA_v2 "cuMemcpyHtoA" 3020, cuMemcpyHtoA_v2_ptds 7000
            (to: u64, offset: usize, from: Host, bytes: usize) => copy_shaped::host_to_array;
        cuMemcpyAtoH_v2 "cuMemcpyAtoH" 3020, cuMemcpyAtoH_v2_ptds 7000
            (to: Host, from: u64, offset: usize, bytes: usize) => copy_shaped::array_to_host;
        cuMemcpyDtoA_v2 "cuMemcpyDtoA" 3020, cuMemcpyDtoA_v2_ptds 7000
            (to: u64, offset: usize, from: u64, bytes: usize) => copy_shaped::device_to_array;
        cuMemcpyAtoD_v2 "cuMemcpyAtoD" 3020, cuMemcpyAtoD_v2_ptds 7000
            (to: u64, from: u64, offset: usize, bytes: usize) => copy_shaped::array_to_device;
        cuMemcpyAtoA_v2 "cuMemcpyAtoA" 3020, cuMemcpyAtoA_v2_ptds 7000
            (to: u64, to_offset: usize, from: u64, from_offset: usize, bytes: usize)
            => copy_shaped::array_to_array;
        cuMemcpyHtoAAsync_v2 "cuMemcpyHtoAAsync" 3020, cuMemcpyHtoAAsync_v2_ptsz 7000
            (to: u64, offset: usize, from: Host, bytes: usize, stream: u64)
            => copy_shaped::host_to_array_ordered;
        cuMemcpyAtoHAsync_v2 "cuMemcpyAtoHAsync" 3020, cuMemcpyAtoHAsync_v2_ptsz 7000
            (to: Host, from: u64, offset: usize, bytes: usize, stream: u64)
            => copy_shaped::array_to_host_ordered;
    }
}
