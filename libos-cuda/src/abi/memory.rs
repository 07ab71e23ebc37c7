//! Exports about memory: allocating, asking about pointers, copying, filling.

use std::ffi::c_void;

use super::exported::exports;
use super::{
    Argument, BatchedCopy3d, Copy2d, Copy3d, CopyAttributes, Function, Host, In, InSlice, IpcHandle,
    Location, NullStream, Out, OutMaybe, Room, Row, Wide,
};
use crate::{batch, copy, copy_shaped, fill, ipc, managed, memory, pointer, register};

exports! {
    plain {
        cuMemAlloc_v2 "cuMemAlloc" 3020 (to: Out<u64>, bytes: usize) => memory::allocate;
        cuMemAllocPitch_v2 "cuMemAllocPitch" 3020
            (to: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32)
            => memory::allocate_pitched;
        cuMemFree_v2 "cuMemFree" 3020 (address: u64) => memory::free;
        cuMemAllocHost_v2 "cuMemAllocHost" 3020 (to: Out<u64>, bytes: usize) => memory::allocate_host;
        cuMemHostAlloc "cuMemHostAlloc" 2020
            (to: Out<u64>, bytes: usize, flags: u32) => memory::allocate_host_with_flags;
        cuMemFreeHost "cuMemFreeHost" 2000 (host: Host) => memory::free_host;
        cuMemHostGetFlags "cuMemHostGetFlags" 2030 (to: Out<u32>, host: Host) => memory::host_flags;
        cuMemHostGetDevicePointer_v2 "cuMemHostGetDevicePointer" 3020
            (to: Out<u64>, host: Host, flags: u32) => memory::host_device_pointer;
        cuMemHostRegister "cuMemHostRegister" 4000
            (host: Host, bytes: usize, flags: u32) => register::register;
        cuMemHostRegister_v2 "cuMemHostRegister" 6050
            (host: Host, bytes: usize, flags: u32) => register::register;
        cuMemHostUnregister "cuMemHostUnregister" 4000 (host: Host) => register::unregister;
        cuMemAllocManaged "cuMemAllocManaged" 6000
            (to: Out<u64>, bytes: usize, flags: u32) => managed::allocate;
        cuMemGetInfo_v2 "cuMemGetInfo" 3020 (free: Out<usize>, total: Out<usize>) => memory::info;
        cuMemGetAddressRange_v2 "cuMemGetAddressRange" 3020
            (start: OutMaybe<u64>, bytes: OutMaybe<usize>, address: u64) => memory::range;

        cuIpcGetMemHandle "cuIpcGetMemHandle" 4010 (to: Out<IpcHandle>, address: u64) => ipc::memory_handle;
        cuIpcOpenMemHandle "cuIpcOpenMemHandle" 4010
            (to: Out<u64>, handle: IpcHandle, flags: u32) => ipc::open_memory;
        cuIpcOpenMemHandle_v2 "cuIpcOpenMemHandle" 11000
            (to: Out<u64>, handle: IpcHandle, flags: u32) => ipc::open_memory;
        cuIpcCloseMemHandle "cuIpcCloseMemHandle" 4010 (address: u64) => ipc::close_memory;

        cuMemAdvise "cuMemAdvise" 8000
            (address: u64, bytes: usize, advice: u32, device: i32) => managed::advise;
        cuMemAdvise_v2 "cuMemAdvise" 12020
            (address: u64, bytes: usize, advice: u32, location: Location) => managed::advise_by_location;
        cuMemRangeGetAttribute "cuMemRangeGetAttribute" 8000
            (to: Room, size: usize, attribute: u32, address: u64, bytes: usize) => managed::range_attribute;
        cuMemRangeGetAttributes "cuMemRangeGetAttributes" 8000
            (to: InSlice<*mut c_void>, sizes: InSlice<usize>, attributes: InSlice<u32>, count: usize,
             address: u64, bytes: usize) => managed::range_attributes;

        cuPointerGetAttribute "cuPointerGetAttribute" 4000
            (to: Room, attribute: u32, address: u64) => pointer::attribute;
        cuPointerGetAttributes "cuPointerGetAttributes" 7000
            (count: u32, attributes: InSlice<u32>, to: InSlice<*mut c_void>, address: u64)
            => pointer::attributes;
        cuPointerSetAttribute "cuPointerSetAttribute" 6000
            (value: Room, attribute: u32, address: u64) => pointer::set_attribute;
    }
    streams {
        cuMemAllocAsync "cuMemAllocAsync" 11020, cuMemAllocAsync_ptsz 11020
            (to: Out<u64>, bytes: usize, stream: u64) => memory::allocate_ordered;
        cuMemFreeAsync "cuMemFreeAsync" 11020, cuMemFreeAsync_ptsz 11020
            (address: u64, stream: u64) => memory::free_ordered;

        cuMemPrefetchAsync "cuMemPrefetchAsync" 8000, cuMemPrefetchAsync_ptsz 8000
            (address: u64, bytes: usize, device: i32, stream: u64) => managed::prefetch;
        cuMemPrefetchAsync_v2 "cuMemPrefetchAsync" 12020, cuMemPrefetchAsync_v2_ptsz 12020
            (address: u64, bytes: usize, location: Location, flags: u32, stream: u64)
            => managed::prefetch_by_location;
        cuStreamAttachMemAsync "cuStreamAttachMemAsync" 6000, cuStreamAttachMemAsync_ptsz 7000
            (stream: u64, address: u64, bytes: usize, flags: u32) => managed::attach;

        cuMemcpy "cuMemcpy" 4000, cuMemcpy_ptds 7000
            (to: Wide, from: Wide, bytes: usize) => copy::any;
        cuMemcpyAsync "cuMemcpyAsync" 4000, cuMemcpyAsync_ptsz 7000
            (to: Wide, from: Wide, bytes: usize, stream: u64) => copy::any_ordered;
        cuMemcpyHtoD_v2 "cuMemcpyHtoD" 3020, cuMemcpyHtoD_v2_ptds 7000
            (to: u64, from: Host, bytes: usize) => copy::to_device;
        cuMemcpyHtoDAsync_v2 "cuMemcpyHtoDAsync" 3020, cuMemcpyHtoDAsync_v2_ptsz 7000
            (to: u64, from: Host, bytes: usize, stream: u64) => copy::to_device_ordered;
        cuMemcpyDtoH_v2 "cuMemcpyDtoH" 3020, cuMemcpyDtoH_v2_ptds 7000
            (to: Host, from: u64, bytes: usize) => copy::to_host;
        cuMemcpyDtoHAsync_v2 "cuMemcpyDtoHAsync" 3020, cuMemcpyDtoHAsync_v2_ptsz 7000
            (to: Host, from: u64, bytes: usize, stream: u64) => copy::to_host_ordered;
        cuMemcpyDtoD_v2 "cuMemcpyDtoD" 3020, cuMemcpyDtoD_v2_ptds 7000
            (to: u64, from: u64, bytes: usize) => copy::on_device;
        cuMemcpyDtoDAsync_v2 "cuMemcpyDtoDAsync" 3020, cuMemcpyDtoDAsync_v2_ptsz 7000
            (to: u64, from: u64, bytes: usize, stream: u64) => copy::on_device_ordered;
        cuMemcpyPeer "cuMemcpyPeer" 4000, cuMemcpyPeer_ptds 7000
            (to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) => copy::peer;
        cuMemcpyPeerAsync "cuMemcpyPeerAsync" 4000, cuMemcpyPeerAsync_ptsz 7000
            (to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64)
            => copy::peer_ordered;
        cuMemcpy2D_v2 "cuMemcpy2D" 3020, cuMemcpy2D_v2_ptds 7000
            (shape: In<Copy2d>) => copy_shaped::two;
        cuMemcpy2DUnaligned_v2 "cuMemcpy2DUnaligned" 3020, cuMemcpy2DUnaligned_v2_ptds 7000
            (shape: In<Copy2d>) => copy_shaped::two;
        cuMemcpy2DAsync_v2 "cuMemcpy2DAsync" 3020, cuMemcpy2DAsync_v2_ptsz 7000
            (shape: In<Copy2d>, stream: u64) => copy_shaped::two_ordered;
        cuMemcpy3D_v2 "cuMemcpy3D" 3020, cuMemcpy3D_v2_ptds 7000
            (shape: In<Copy3d>) => copy_shaped::three;
        cuMemcpy3DAsync_v2 "cuMemcpy3DAsync" 3020, cuMemcpy3DAsync_v2_ptsz 7000
            (shape: In<Copy3d>, stream: u64) => copy_shaped::three_ordered;

        cuMemcpy3DPeer "cuMemcpy3DPeer" 4000, cuMemcpy3DPeer_ptds 7000
            (shape: In<Copy3d>) => copy_shaped::peers;
        cuMemcpy3DPeerAsync "cuMemcpy3DPeerAsync" 4000, cuMemcpy3DPeerAsync_ptsz 7000
            (shape: In<Copy3d>, stream: u64) => copy_shaped::peers_ordered;
        cuMemcpyBatchAsync "cuMemcpyBatchAsync" 12080, cuMemcpyBatchAsync_ptsz 12080
            (to: InSlice<u64>, from: InSlice<u64>, sizes: InSlice<usize>, count: usize,
             attributes: InSlice<CopyAttributes>, firsts: InSlice<usize>, attributes_count: usize,
             failed: OutMaybe<usize>, stream: u64) => batch::copy_1;
        cuMemcpyBatchAsync_v2 "cuMemcpyBatchAsync" 13000, cuMemcpyBatchAsync_v2_ptsz 13000
            (to: InSlice<u64>, from: InSlice<u64>, sizes: InSlice<usize>, count: usize,
             attributes: InSlice<CopyAttributes>, firsts: InSlice<usize>, attributes_count: usize, stream: u64)
            => batch::copy;
        cuMemcpy3DBatchAsync "cuMemcpy3DBatchAsync" 12080, cuMemcpy3DBatchAsync_ptsz 12080
            (count: usize, operations: InSlice<BatchedCopy3d>, failed: OutMaybe<usize>, flags: u64, stream: u64)
            => batch::copy_3d_1;
        cuMemcpy3DBatchAsync_v2 "cuMemcpy3DBatchAsync" 13000, cuMemcpy3DBatchAsync_v2_ptsz 13000
            (count: usize, operations: InSlice<BatchedCopy3d>, flags: u64, stream: u64) => batch::copy_3d;
        cuMemPrefetchBatchAsync "cuMemPrefetchBatchAsync" 13000, cuMemPrefetchBatchAsync_ptsz 13000
            (addresses: InSlice<u64>, sizes: InSlice<usize>, count: usize, locations: InSlice<Location>,
             firsts: InSlice<usize>, locations_count: usize, flags: u64, stream: u64) => batch::prefetch;
        cuMemDiscardBatchAsync "cuMemDiscardBatchAsync" 13000, cuMemDiscardBatchAsync_ptsz 13000
            (addresses: InSlice<u64>, sizes: InSlice<usize>, count: usize, flags: u64, stream: u64)
            => batch::discard;
        cuMemDiscardAndPrefetchBatchAsync "cuMemDiscardAndPrefetchBatchAsync" 13000,
            cuMemDiscardAndPrefetchBatchAsync_ptsz 13000
            (addresses: InSlice<u64>, sizes: InSlice<usize>, count: usize, locations: InSlice<Location>,
             firsts: InSlice<usize>, locations_count: usize, flags: u64, stream: u64) => batch::prefetch;

        cuMemsetD8_v2 "cuMemsetD8" 3020, cuMemsetD8_v2_ptds 7000
            (to: u64, value: u8, count: usize) => fill::bytes;
        cuMemsetD16_v2 "cuMemsetD16" 3020, cuMemsetD16_v2_ptds 7000
            (to: u64, value: u16, count: usize) => fill::halves;
        cuMemsetD32_v2 "cuMemsetD32" 3020, cuMemsetD32_v2_ptds 7000
            (to: u64, value: u32, count: usize) => fill::words;
        cuMemsetD8Async "cuMemsetD8Async" 3020, cuMemsetD8Async_ptsz 7000
            (to: u64, value: u8, count: usize, stream: u64) => fill::bytes_ordered;
        cuMemsetD16Async "cuMemsetD16Async" 3020, cuMemsetD16Async_ptsz 7000
            (to: u64, value: u16, count: usize, stream: u64) => fill::halves_ordered;
        cuMemsetD32Async "cuMemsetD32Async" 3020, cuMemsetD32Async_ptsz 7000
            (to: u64, value: u32, count: usize, stream: u64) => fill::words_ordered;
        cuMemsetD2D8_v2 "cuMemsetD2D8" 3020, cuMemsetD2D8_v2_ptds 7000
            (to: u64, pitch: usize, value: u8, width: usize, height: usize) => fill::rows_of_bytes;
        cuMemsetD2D16_v2 "cuMemsetD2D16" 3020, cuMemsetD2D16_v2_ptds 7000
            (to: u64, pitch: usize, value: u16, width: usize, height: usize) => fill::rows_of_halves;
        cuMemsetD2D32_v2 "cuMemsetD2D32" 3020, cuMemsetD2D32_v2_ptds 7000
            (to: u64, pitch: usize, value: u32, width: usize, height: usize) => fill::rows_of_words;
        cuMemsetD2D8Async "cuMemsetD2D8Async" 3020, cuMemsetD2D8Async_ptsz 7000
            (to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64)
            => fill::rows_of_bytes_ordered;
        cuMemsetD2D16Async "cuMemsetD2D16Async" 3020, cuMemsetD2D16Async_ptsz 7000
            (to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64)
            => fill::rows_of_halves_ordered;
        cuMemsetD2D32Async "cuMemsetD2D32Async" 3020, cuMemsetD2D32Async_ptsz 7000
            (to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64)
            => fill::rows_of_words_ordered;
    }
}
