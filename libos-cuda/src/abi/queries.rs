//! Exports that answer questions: the driver, devices, contexts.

use std::ffi::{c_char, c_void};

use super::exported::exports;
use super::{
    Argument, Callback, Function, In, InMaybe, InOut, InOutMaybe, InSlice, LogCallback, NullStream, Out,
    OutBytes, OutMaybe, OutSlice, Row, Text,
};
use crate::context::CreateParameters;
use crate::{context, driver, logs, proc_address, query};

exports! {
    plain {
        cuInit "cuInit" 2000 (flags: u32) => driver::init;
        cuDriverGetVersion "cuDriverGetVersion" 2020 (to: Out<i32>) => driver::version;
        cuGetErrorName "cuGetErrorName" 6000 (code: u32, to: Out<*const c_char>) => driver::error_name;
        cuGetErrorString "cuGetErrorString" 6000 (code: u32, to: Out<*const c_char>) => driver::error_string;
        cuGetProcAddress "cuGetProcAddress" 11030
            (name: Text, to: Out<*const c_void>, version: i32, flags: u64) => proc_address::get;
        cuGetProcAddress_v2 "cuGetProcAddress" 12000
            (name: Text, to: Out<*const c_void>, version: i32, flags: u64, found: OutMaybe<u32>)
            => proc_address::get_with_reason;
        cuGetExportTable "cuGetExportTable" 3000
            (to: Out<*const c_void>, id: In<[u8; 16]>) => driver::export_table;
        cuLogsRegisterCallback "cuLogsRegisterCallback" 12090
            (function: LogCallback, data: Callback, to: OutMaybe<u64>) => logs::register;
        cuLogsUnregisterCallback "cuLogsUnregisterCallback" 12090 (callback: u64) => logs::unregister;
        cuLogsCurrent "cuLogsCurrent" 12090 (to: Out<u32>, flags: u32) => logs::current;
        cuLogsDumpToFile "cuLogsDumpToFile" 12090
            (from: InOutMaybe<u32>, path: Text, flags: u32) => logs::dump_to_file;
        cuLogsDumpToMemory "cuLogsDumpToMemory" 12090
            (from: InOutMaybe<u32>, to: OutBytes, room: InOut<usize>, flags: u32) => logs::dump_to_memory;
        cuProfilerStart "cuProfilerStart" 4000 () => driver::profiler;
        cuProfilerStop "cuProfilerStop" 4000 () => driver::profiler;

        cuDeviceGet "cuDeviceGet" 2000 (to: Out<i32>, ordinal: i32) => query::device;
        cuDeviceGetCount "cuDeviceGetCount" 2000 (to: Out<i32>) => query::count;
        cuDeviceGetName "cuDeviceGetName" 2000 (to: OutBytes, room: i32, device: i32) => query::name;
        cuDeviceGetUuid "cuDeviceGetUuid" 9020 (to: Out<[u8; 16]>, device: i32) => query::uuid;
        cuDeviceGetUuid_v2 "cuDeviceGetUuid" 11040 (to: Out<[u8; 16]>, device: i32) => query::uuid;
        cuDeviceGetLuid "cuDeviceGetLuid" 10000
            (to: OutMaybe<[u8; 8]>, mask: OutMaybe<u32>, device: i32) => query::luid;
        cuDeviceTotalMem_v2 "cuDeviceTotalMem" 3020 (to: Out<usize>, device: i32) => query::total_memory;
        cuDeviceGetAttribute "cuDeviceGetAttribute" 2000
            (to: Out<i32>, attribute: u32, device: i32) => query::attribute;
        cuDeviceGetProperties "cuDeviceGetProperties" 2000
            (to: Out<[i32; 14]>, device: i32) => query::properties;
        cuDeviceGetExecAffinitySupport "cuDeviceGetExecAffinitySupport" 11040
            (to: Out<i32>, kind: u32, device: i32) => query::affinity_support;
        cuCtxGetExecAffinity "cuCtxGetExecAffinity" 11040 (to: Out<[u32; 2]>, kind: u32) => query::affinity;
        cuDeviceGetHostAtomicCapabilities "cuDeviceGetHostAtomicCapabilities" 13000
            (to: OutSlice<u32>, operations: InSlice<u32>, count: u32, device: i32) => query::host_atomics;
        cuDeviceGetP2PAtomicCapabilities "cuDeviceGetP2PAtomicCapabilities" 13000
            (to: OutSlice<u32>, operations: InSlice<u32>, count: u32, device: i32, peer: i32)
            => query::peer_atomics;
        cuDeviceComputeCapability "cuDeviceComputeCapability" 2000
            (major: Out<i32>, minor: Out<i32>, device: i32) => query::compute_capability;
        cuDeviceGetPCIBusId "cuDeviceGetPCIBusId" 4010
            (to: OutBytes, room: i32, device: i32) => query::pci_bus_id;
        cuDeviceGetByPCIBusId "cuDeviceGetByPCIBusId" 4010
            (to: Out<i32>, bus: Text) => query::by_pci_bus_id;
        cuDeviceCanAccessPeer "cuDeviceCanAccessPeer" 4000
            (to: Out<i32>, device: i32, peer: i32) => query::can_access_peer;
        cuDeviceGetTexture1DLinearMaxWidth "cuDeviceGetTexture1DLinearMaxWidth" 11010
            (to: Out<usize>, format: u32, channels: u32, device: i32) => query::linear_texture_width;
        cuCtxEnablePeerAccess "cuCtxEnablePeerAccess" 4000
            (context: u64, flags: u32) => query::enable_peer;
        cuCtxDisablePeerAccess "cuCtxDisablePeerAccess" 4000 (context: u64) => query::disable_peer;
        cuDeviceGetP2PAttribute "cuDeviceGetP2PAttribute" 8000
            (to: Out<i32>, attribute: u32, device: i32, peer: i32) => query::peer_attribute;

        cuDevicePrimaryCtxRetain "cuDevicePrimaryCtxRetain" 7000
            (to: Out<u64>, device: i32) => context::primary_retain;
        cuDevicePrimaryCtxRelease "cuDevicePrimaryCtxRelease" 7000 (device: i32) => context::primary_release;
        cuDevicePrimaryCtxRelease_v2 "cuDevicePrimaryCtxRelease" 11000 (device: i32) => context::primary_release;
        cuDevicePrimaryCtxReset "cuDevicePrimaryCtxReset" 7000 (device: i32) => context::primary_reset;
        cuDevicePrimaryCtxReset_v2 "cuDevicePrimaryCtxReset" 11000 (device: i32) => context::primary_reset;
        cuDevicePrimaryCtxSetFlags "cuDevicePrimaryCtxSetFlags" 7000
            (device: i32, flags: u32) => context::primary_set_flags;
        cuDevicePrimaryCtxSetFlags_v2 "cuDevicePrimaryCtxSetFlags" 11000
            (device: i32, flags: u32) => context::primary_set_flags;
        cuDevicePrimaryCtxGetState "cuDevicePrimaryCtxGetState" 7000
            (device: i32, flags: OutMaybe<u32>, active: OutMaybe<i32>) => context::primary_state;

        cuCtxCreate "cuCtxCreate" 2000 (to: Out<u64>, flags: u32, device: i32) => context::create;
        cuCtxCreate_v2 "cuCtxCreate" 3020 (to: Out<u64>, flags: u32, device: i32) => context::create;
        cuCtxCreate_v3 "cuCtxCreate" 11040
            (to: Out<u64>, parameters: u64, count: i32, flags: u32, device: i32) => context::create_affine;
        cuCtxCreate_v4 "cuCtxCreate" 12050
            (to: Out<u64>, parameters: InMaybe<CreateParameters>, flags: u32, device: i32) => context::create_with;
        cuCtxDestroy "cuCtxDestroy" 2000 (context: u64) => context::destroy;
        cuCtxDestroy_v2 "cuCtxDestroy" 4000 (context: u64) => context::destroy;
        cuCtxSetCurrent "cuCtxSetCurrent" 4000 (context: u64) => context::set_current;
        cuCtxGetCurrent "cuCtxGetCurrent" 4000 (to: Out<u64>) => context::get_current;
        cuCtxPushCurrent "cuCtxPushCurrent" 2000 (context: u64) => context::push;
        cuCtxPushCurrent_v2 "cuCtxPushCurrent" 4000 (context: u64) => context::push;
        cuCtxPopCurrent "cuCtxPopCurrent" 2000 (to: OutMaybe<u64>) => context::pop;
        cuCtxPopCurrent_v2 "cuCtxPopCurrent" 4000 (to: OutMaybe<u64>) => context::pop;
        cuCtxGetDevice "cuCtxGetDevice" 2000 (to: Out<i32>) => context::device;
        cuCtxGetDevice_v2 "cuCtxGetDevice" 13000 (to: Out<i32>, context: u64) => context::device_of;
        cuCtxGetFlags "cuCtxGetFlags" 7000 (to: Out<u32>) => context::flags;
        cuCtxSetFlags "cuCtxSetFlags" 12010 (flags: u32) => context::set_flags;
        cuCtxGetId "cuCtxGetId" 12000 (context: u64, to: Out<u64>) => context::id;
        cuCtxGetApiVersion "cuCtxGetApiVersion" 3020 (context: u64, to: Out<u32>) => context::api_version;
        cuCtxSynchronize "cuCtxSynchronize" 2000 () => context::synchronize;
        cuCtxSynchronize_v2 "cuCtxSynchronize" 13000 (context: u64) => context::synchronize_one;
        cuCtxGetLimit "cuCtxGetLimit" 3010 (to: Out<usize>, limit: u32) => context::limit;
        cuCtxSetLimit "cuCtxSetLimit" 3010 (limit: u32, value: usize) => context::set_limit;
        cuCtxGetCacheConfig "cuCtxGetCacheConfig" 3020 (to: Out<u32>) => context::cache_config;
        cuCtxSetCacheConfig "cuCtxSetCacheConfig" 3020 (config: u32) => context::set_cache_config;
        cuCtxGetSharedMemConfig "cuCtxGetSharedMemConfig" 4020 (to: Out<u32>) => context::shared_config;
        cuCtxSetSharedMemConfig "cuCtxSetSharedMemConfig" 4020 (config: u32) => context::set_shared_config;
        cuCtxGetStreamPriorityRange "cuCtxGetStreamPriorityRange" 5050
            (least: OutMaybe<i32>, greatest: OutMaybe<i32>) => context::priority_range;
        cuCtxResetPersistingL2Cache "cuCtxResetPersistingL2Cache" 11000 () => context::reset_l2;
    }
    streams {}
}
