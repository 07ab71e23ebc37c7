//! Exports of memory pools.

use super::exported::exports;
use super::{
    AccessDescription, Argument, Function, In, InSlice, IpcHandle, Location, NullStream, Out, PoolProperties,
    Room, Row, ShareableHandle,
};
use crate::pool;

exports! {
    plain {
        cuDeviceGetDefaultMemPool "cuDeviceGetDefaultMemPool" 11020
            (to: Out<u64>, device: i32) => pool::default;
        cuDeviceGetMemPool "cuDeviceGetMemPool" 11020 (to: Out<u64>, device: i32) => pool::current;
        cuDeviceSetMemPool "cuDeviceSetMemPool" 11020 (device: i32, pool: u64) => pool::set;
        cuMemGetDefaultMemPool "cuMemGetDefaultMemPool" 13000
            (to: Out<u64>, location: In<Location>, kind: u32) => pool::default_of;
        cuMemGetMemPool "cuMemGetMemPool" 13000
            (to: Out<u64>, location: In<Location>, kind: u32) => pool::current_of;
        cuMemSetMemPool "cuMemSetMemPool" 13000
            (location: In<Location>, kind: u32, pool: u64) => pool::set_of;

        cuMemPoolCreate "cuMemPoolCreate" 11020
            (to: Out<u64>, properties: In<PoolProperties>) => pool::create;
        cuMemPoolDestroy "cuMemPoolDestroy" 11020 (pool: u64) => pool::destroy;
        cuMemPoolSetAttribute "cuMemPoolSetAttribute" 11020
            (pool: u64, attribute: u32, value: Room) => pool::set_attribute;
        cuMemPoolGetAttribute "cuMemPoolGetAttribute" 11020
            (pool: u64, attribute: u32, value: Room) => pool::attribute;
        cuMemPoolTrimTo "cuMemPoolTrimTo" 11020 (pool: u64, bytes: usize) => pool::trim;
        cuMemPoolSetAccess "cuMemPoolSetAccess" 11020
            (pool: u64, accesses: InSlice<AccessDescription>, count: usize) => pool::set_access;
        cuMemPoolGetAccess "cuMemPoolGetAccess" 11020
            (to: Out<u32>, pool: u64, location: In<Location>) => pool::access;

        cuMemPoolExportToShareableHandle "cuMemPoolExportToShareableHandle" 11020
            (to: Room, pool: u64, kind: u32, flags: u64) => pool::export;
        cuMemPoolImportFromShareableHandle "cuMemPoolImportFromShareableHandle" 11020
            (to: Out<u64>, handle: ShareableHandle, kind: u32, flags: u64) => pool::import;
        cuMemPoolExportPointer "cuMemPoolExportPointer" 11020
            (to: Out<IpcHandle>, address: u64) => pool::export_pointer;
        cuMemPoolImportPointer "cuMemPoolImportPointer" 11020
            (to: Out<u64>, pool: u64, exported: In<IpcHandle>) => pool::import_pointer;
    }
    streams {
        cuMemAllocFromPoolAsync "cuMemAllocFromPoolAsync" 11020, cuMemAllocFromPoolAsync_ptsz 11020
            (to: Out<u64>, bytes: usize, pool: u64, stream: u64) => pool::allocate;
    }
}
