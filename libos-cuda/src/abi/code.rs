//! Exports about code: modules, libraries, kernels, functions, occupancy.

use std::ffi::{c_char, c_void};

use super::exported::exports;
use super::{
    Argument, Function, Host, ImagePointer, In, InSlice, LaunchConfig, NullStream, Out, OutMaybe, OutSlice,
    Row, SharedBytesOf, Text,
};
use crate::{function, isolated, library, linker, module, occupancy};

exports! {
    plain {
        cuModuleGetLoadingMode "cuModuleGetLoadingMode" 11070 (to: Out<u32>) => module::loading_mode;
        cuModuleLoad "cuModuleLoad" 2000 (to: Out<u64>, path: Text) => module::load_file;
        cuModuleLoadData "cuModuleLoadData" 2000 (to: Out<u64>, image: ImagePointer) => module::load;
        cuModuleLoadDataEx "cuModuleLoadDataEx" 2010
            (to: Out<u64>, image: ImagePointer, count: u32, options: InSlice<u32>, values: InSlice<*mut c_void>)
            => module::load_with;
        cuModuleLoadFatBinary "cuModuleLoadFatBinary" 2000 (to: Out<u64>, image: ImagePointer) => module::load;
        cuModuleUnload "cuModuleUnload" 2000 (module: u64) => module::unload;
        cuModuleGetFunction "cuModuleGetFunction" 2000
            (to: Out<u64>, module: u64, name: Text) => module::function;
        cuModuleGetFunctionCount "cuModuleGetFunctionCount" 12040
            (to: Out<u32>, module: u64) => module::function_count;
        cuModuleEnumerateFunctions "cuModuleEnumerateFunctions" 12040
            (to: OutSlice<u64>, count: u32, module: u64) => module::functions;
        cuModuleGetGlobal_v2 "cuModuleGetGlobal" 3020
            (to: OutMaybe<u64>, bytes: OutMaybe<usize>, module: u64, name: Text) => module::global;

        cuLibraryLoadData "cuLibraryLoadData" 12000
            (to: Out<u64>, image: ImagePointer, jit: InSlice<u32>, jit_values: InSlice<*mut c_void>,
             jit_count: u32, options: InSlice<u32>, values: InSlice<*mut c_void>, count: u32) => library::load;
        cuLibraryLoadFromFile "cuLibraryLoadFromFile" 12000
            (to: Out<u64>, path: Text, jit: InSlice<u32>, jit_values: InSlice<*mut c_void>,
             jit_count: u32, options: InSlice<u32>, values: InSlice<*mut c_void>, count: u32)
            => library::load_file;
        cuLibraryUnload "cuLibraryUnload" 12000 (library: u64) => library::unload;
        cuLibraryGetKernel "cuLibraryGetKernel" 12000
            (to: Out<u64>, library: u64, name: Text) => library::kernel;
        cuLibraryGetKernelCount "cuLibraryGetKernelCount" 12040
            (to: Out<u32>, library: u64) => library::kernel_count;
        cuLibraryEnumerateKernels "cuLibraryEnumerateKernels" 12040
            (to: OutSlice<u64>, count: u32, library: u64) => library::kernels;
        cuLibraryGetModule "cuLibraryGetModule" 12000 (to: Out<u64>, library: u64) => library::module;
        cuLibraryGetGlobal "cuLibraryGetGlobal" 12000
            (to: OutMaybe<u64>, bytes: OutMaybe<usize>, library: u64, name: Text) => library::global;
        cuLibraryGetManaged "cuLibraryGetManaged" 12000
            (to: OutMaybe<u64>, bytes: OutMaybe<usize>, library: u64, name: Text) => library::managed;

        cuLinkCreate "cuLinkCreate" 5050
            (count: u32, options: InSlice<u32>, values: InSlice<*mut c_void>, to: Out<u64>) => linker::create;
        cuLinkAddData "cuLinkAddData" 5050
            (linker: u64, kind: u32, data: Host, bytes: usize, name: InSlice<c_char>, count: u32,
             options: InSlice<u32>, values: InSlice<*mut c_void>) => linker::add_data;
        cuLinkAddFile "cuLinkAddFile" 5050
            (linker: u64, kind: u32, path: Text, count: u32, options: InSlice<u32>,
             values: InSlice<*mut c_void>) => linker::add_file;
        cuLinkCreate_v2 "cuLinkCreate" 6050
            (count: u32, options: InSlice<u32>, values: InSlice<*mut c_void>, to: Out<u64>) => linker::create;
        cuLinkAddData_v2 "cuLinkAddData" 6050
            (linker: u64, kind: u32, data: Host, bytes: usize, name: InSlice<c_char>, count: u32,
             options: InSlice<u32>, values: InSlice<*mut c_void>) => linker::add_data;
        cuLinkAddFile_v2 "cuLinkAddFile" 6050
            (linker: u64, kind: u32, path: Text, count: u32, options: InSlice<u32>,
             values: InSlice<*mut c_void>) => linker::add_file;
        cuLinkComplete "cuLinkComplete" 5050
            (linker: u64, to: Out<u64>, bytes: OutMaybe<usize>) => linker::complete;
        cuLinkDestroy "cuLinkDestroy" 5050 (linker: u64) => linker::destroy;

        cuKernelGetFunction "cuKernelGetFunction" 12000 (to: Out<u64>, kernel: u64) => function::of_kernel;
        cuKernelGetLibrary "cuKernelGetLibrary" 12050 (to: Out<u64>, kernel: u64) => function::library;
        cuKernelGetAttribute "cuKernelGetAttribute" 12000
            (to: Out<i32>, attribute: u32, kernel: u64, device: i32) => function::kernel_attribute;
        cuKernelSetAttribute "cuKernelSetAttribute" 12000
            (attribute: u32, value: i32, kernel: u64, device: i32) => function::set_kernel_attribute;
        cuKernelSetCacheConfig "cuKernelSetCacheConfig" 12000
            (kernel: u64, config: u32, device: i32) => function::set_kernel_cache_config;
        cuKernelGetName "cuKernelGetName" 12030 (to: Out<*const c_char>, kernel: u64) => function::name;
        cuKernelGetParamInfo "cuKernelGetParamInfo" 12040
            (kernel: u64, index: usize, offset: Out<usize>, bytes: OutMaybe<usize>) => function::parameter;

        cuFuncGetAttribute "cuFuncGetAttribute" 2020
            (to: Out<i32>, attribute: u32, function: u64) => function::attribute;
        cuFuncSetAttribute "cuFuncSetAttribute" 9000
            (function: u64, attribute: u32, value: i32) => function::set_attribute;
        cuFuncSetCacheConfig "cuFuncSetCacheConfig" 3000
            (function: u64, config: u32) => function::set_cache_config;
        cuFuncSetSharedMemConfig "cuFuncSetSharedMemConfig" 4020
            (function: u64, config: u32) => function::set_cache_config;
        cuFuncGetModule "cuFuncGetModule" 11000 (to: Out<u64>, function: u64) => function::module;
        cuFuncGetName "cuFuncGetName" 12030 (to: Out<*const c_char>, function: u64) => function::name;
        cuFuncGetParamInfo "cuFuncGetParamInfo" 12040
            (function: u64, index: usize, offset: Out<usize>, bytes: OutMaybe<usize>) => function::parameter;
        cuFuncIsLoaded "cuFuncIsLoaded" 12040 (to: Out<u32>, function: u64) => function::is_loaded;
        cuFuncLoad "cuFuncLoad" 12040 (function: u64) => function::load;

        cuOccupancyMaxActiveBlocksPerMultiprocessor "cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050
            (to: Out<i32>, function: u64, block: i32, shared_bytes: usize) => occupancy::blocks;
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
            "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000
            (to: Out<i32>, function: u64, block: i32, shared_bytes: usize, flags: u32)
            => occupancy::blocks_with_flags;
        cuOccupancyMaxPotentialBlockSize "cuOccupancyMaxPotentialBlockSize" 6050
            (grid: Out<i32>, block: Out<i32>, function: u64, shared_of: SharedBytesOf, shared_bytes: usize,
             limit: i32) => occupancy::block_size;
        cuOccupancyMaxPotentialBlockSizeWithFlags "cuOccupancyMaxPotentialBlockSizeWithFlags" 7000
            (grid: Out<i32>, block: Out<i32>, function: u64, shared_of: SharedBytesOf, shared_bytes: usize,
             limit: i32, flags: u32) => occupancy::block_size_with_flags;
        cuOccupancyMaxActiveClusters "cuOccupancyMaxActiveClusters" 11070
            (to: Out<i32>, function: u64, config: In<LaunchConfig>) => isolated::active_clusters;
        cuOccupancyMaxPotentialClusterSize "cuOccupancyMaxPotentialClusterSize" 11070
            (to: Out<i32>, function: u64, config: In<LaunchConfig>) => isolated::cluster_size;
        cuTensorMapEncodeTiled "cuTensorMapEncodeTiled" 12000
            (to: Out<[u64; 16]>, kind: u32, rank: u32, address: u64, dimensions: InSlice<u64>,
             strides: InSlice<u64>, sides: InSlice<u32>, elements: InSlice<u32>, interleave: u32, swizzle: u32,
             promotion: u32, fill: u32) => isolated::tensor_map_tiled;
        cuTensorMapEncodeIm2col "cuTensorMapEncodeIm2col" 12000
            (to: Out<[u64; 16]>, kind: u32, rank: u32, address: u64, dimensions: InSlice<u64>,
             strides: InSlice<u64>, lower: InSlice<u32>, upper: InSlice<u32>, channels: u32, pixels: u32,
             elements: InSlice<u32>, interleave: u32, swizzle: u32, promotion: u32, fill: u32)
            => isolated::tensor_map_im2col;
        cuOccupancyAvailableDynamicSMemPerBlock "cuOccupancyAvailableDynamicSMemPerBlock" 10020
            (to: Out<usize>, function: u64, blocks: i32, block: i32) => occupancy::available_shared;
    }
    streams {}
}
