//! Exports about arrays, textures and surfaces.

use super::exported::exports;
use super::{
    Argument, ArrayDescription, ArrayDescription3d, Function, Host, In, InMaybe, NullStream, Out, Resource,
    Row, TextureDescription,
};
use crate::{array, copy_shaped, texture};

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
