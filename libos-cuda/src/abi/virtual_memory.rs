//! Exports of CUDA's virtual memory management.

use super::exported::exports;
use super::{
    AccessDescription, Argument, Function, Host, In, InSlice, NullStream, Out, Properties, Room, Row,
    ShareableHandle,
};
use crate::vmm;

exports! {
    plain {
        cuMemGetAllocationGranularity "cuMemGetAllocationGranularity" 10020
            (to: Out<usize>, properties: In<Properties>, option: u32) => vmm::granularity;
        cuMemCreate "cuMemCreate" 10020
            (to: Out<u64>, bytes: usize, properties: In<Properties>, flags: u64) => vmm::create;
        cuMemRelease "cuMemRelease" 10020 (handle: u64) => vmm::release;
        cuMemRetainAllocationHandle "cuMemRetainAllocationHandle" 11000
            (to: Out<u64>, address: Host) => vmm::retain;
        cuMemGetAllocationPropertiesFromHandle "cuMemGetAllocationPropertiesFromHandle" 10020
            (to: Out<Properties>, handle: u64) => vmm::properties;
        cuMemAddressReserve "cuMemAddressReserve" 10020
            (to: Out<u64>, bytes: usize, alignment: usize, wish: u64, flags: u64) => vmm::reserve;
        cuMemAddressFree "cuMemAddressFree" 10020 (start: u64, bytes: usize) => vmm::unreserve;
        cuMemMap "cuMemMap" 10020
            (start: u64, bytes: usize, offset: usize, handle: u64, flags: u64) => vmm::map;
        cuMemUnmap "cuMemUnmap" 10020 (start: u64, bytes: usize) => vmm::unmap;
        cuMemSetAccess "cuMemSetAccess" 10020
            (start: u64, bytes: usize, descriptions: InSlice<AccessDescription>, count: usize)
            => vmm::set_access;
        cuMemGetAccess "cuMemGetAccess" 10020
            (to: Out<u64>, location: In<[u32; 2]>, address: u64) => vmm::access;
        cuMemExportToShareableHandle "cuMemExportToShareableHandle" 10020
            (to: Room, handle: u64, kind: u32, flags: u64) => vmm::export;
        cuMemImportFromShareableHandle "cuMemImportFromShareableHandle" 10020
            (to: Out<u64>, handle: ShareableHandle, kind: u32) => vmm::import;
    }
    streams {}
}
