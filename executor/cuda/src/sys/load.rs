//! Finding the driver's library and its symbols.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use std::mem::ManuallyDrop;

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdevice, CUdeviceptr,
    CUevent, CUfunction, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphNode, CUlaunchAttributeValue,
    CUlaunchConfig, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmodule, CUstream,
    CUuuid,
};

use super::native::LIBRARY;

/// Why there is no driver to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// The library cannot be opened.
    Library,
    /// It lacks a symbol.
    Symbol(&'static str),
}

macro_rules! calls {
    ($($field:ident = $symbol:literal ( $($argument:ty),* );)*) => {
        /// The symbols of a driver's library.
        pub(crate) struct Driver {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// Keeps the symbols where they are: never closed, a driver may have threads of its own.
            _library: ManuallyDrop<libloading::Library>,
        }

        impl Driver {
            /// Opens the driver's library and loads every symbol, or says what is missing. By that name alone: `cudarc` would
            /// try `libcuda.so` first, which beside a build of this project is our own.
            pub(crate) fn load() -> Result<Self, Absent> {
                // SAFETY: opening NVIDIA's library runs its constructors only, and they may run at any time.
                let library = unsafe { libloading::Library::new(LIBRARY) };
                let library = ManuallyDrop::new(library.map_err(|_| Absent::Library)?);
                $(
                    // SAFETY: the type is that of the symbol in cuda.h of CUDA 13.0, and libcuda never changes
                    // the type of a versioned symbol.
                    let symbol = unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) -> c_int>(concat!($symbol, "\0").as_bytes())
                    };
                    let Ok($field) = symbol.map(|symbol| *symbol) else { return Err(Absent::Symbol($symbol)) };
                )*
                Ok(Self { $($field,)* _library: library })
            }
        }
    };
}

calls! {
    init = "cuInit"(c_uint);
    error_name = "cuGetErrorName"(c_int, *mut *const c_char);
    error_string = "cuGetErrorString"(c_int, *mut *const c_char);
    driver_version = "cuDriverGetVersion"(*mut c_int);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device = "cuDeviceGet"(*mut CUdevice, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, CUdevice);
    device_uuid = "cuDeviceGetUuid_v2"(*mut CUuuid, CUdevice);
    device_memory = "cuDeviceTotalMem_v2"(*mut usize, CUdevice);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, CUdevice);
    context_retain = "cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
    context_release = "cuDevicePrimaryCtxRelease_v2"(CUdevice);
    context_bind = "cuCtxSetCurrent"(CUcontext);
    granularity = "cuMemGetAllocationGranularity"(*mut usize, *const CUmemAllocationProp, c_int);
    reserve = "cuMemAddressReserve"(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
    unreserve = "cuMemAddressFree"(CUdeviceptr, usize);
    memory_create = "cuMemCreate"(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
    memory_release = "cuMemRelease"(CUmemGenericAllocationHandle);
    memory_export = "cuMemExportToShareableHandle"(*mut c_void, CUmemGenericAllocationHandle, c_int, c_ulonglong);
    memory_import = "cuMemImportFromShareableHandle"(*mut CUmemGenericAllocationHandle, *mut c_void, c_int);
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    map = "cuMemMap"(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
    set_access = "cuMemSetAccess"(CUdeviceptr, usize, *const CUmemAccessDesc, usize);
    unmap = "cuMemUnmap"(CUdeviceptr, usize);
    host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
    host_unregister = "cuMemHostUnregister"(*mut c_void);
    host_device_address = "cuMemHostGetDevicePointer_v2"(*mut CUdeviceptr, *mut c_void, c_uint);
    stream_create = "cuStreamCreateWithPriority"(*mut CUstream, c_uint, c_int);
    stream_destroy = "cuStreamDestroy_v2"(CUstream);
    stream_synchronize = "cuStreamSynchronize"(CUstream);
    stream_query = "cuStreamQuery"(CUstream);
    event_create = "cuEventCreate"(*mut CUevent, c_uint);
    event_destroy = "cuEventDestroy_v2"(CUevent);
    event_record = "cuEventRecord"(CUevent, CUstream);
    stream_wait = "cuStreamWaitEvent"(CUstream, CUevent, c_uint);
    event_elapsed = "cuEventElapsedTime"(*mut f32, CUevent, CUevent);
    module_load = "cuModuleLoadData"(*mut CUmodule, *const c_void);
    module_unload = "cuModuleUnload"(CUmodule);
    module_function_count = "cuModuleGetFunctionCount"(*mut c_uint, CUmodule);
    module_function = "cuModuleGetFunction"(*mut CUfunction, CUmodule, *const c_char);
    module_global = "cuModuleGetGlobal_v2"(*mut CUdeviceptr, *mut usize, CUmodule, *const c_char);
    module_functions = "cuModuleEnumerateFunctions"(*mut CUfunction, c_uint, CUmodule);
    function_name = "cuFuncGetName"(*mut *const c_char, CUfunction);
    function_parameter = "cuFuncGetParamInfo"(CUfunction, usize, *mut usize, *mut usize);
    function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, CUfunction);
    function_set_attribute = "cuFuncSetAttribute"(CUfunction, c_int, c_int);
    launch = "cuLaunchKernel"(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
    );
    launch_with = "cuLaunchKernelEx"(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
    graph_create = "cuGraphCreate"(*mut CUgraph, c_uint);
    graph_destroy = "cuGraphDestroy"(CUgraph);
    graph_add_kernel = "cuGraphAddKernelNode_v2"(
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_KERNEL_NODE_PARAMS
    );
    graph_add_edges = "cuGraphAddDependencies_v2"(
        CUgraph, *const CUgraphNode, *const CUgraphNode, *const CUgraphEdgeData, usize
    );
    graph_add_empty = "cuGraphAddEmptyNode"(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize);
    graph_add_copy = "cuGraphAddMemcpyNode"(
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMCPY3D, CUcontext
    );
    graph_add_fill = "cuGraphAddMemsetNode"(
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMSET_NODE_PARAMS, CUcontext
    );
    graph_set_attribute = "cuGraphKernelNodeSetAttribute"(CUgraphNode, c_int, *const CUlaunchAttributeValue);
    graph_set_copy = "cuGraphExecMemcpyNodeSetParams"(CUgraphExec, CUgraphNode, *const CUDA_MEMCPY3D, CUcontext);
    graph_set_fill = "cuGraphExecMemsetNodeSetParams"(
        CUgraphExec, CUgraphNode, *const CUDA_MEMSET_NODE_PARAMS, CUcontext
    );
    graph_instantiate = "cuGraphInstantiateWithFlags"(*mut CUgraphExec, CUgraph, c_ulonglong);
    graph_set_kernel = "cuGraphExecKernelNodeSetParams_v2"(CUgraphExec, CUgraphNode, *const CUDA_KERNEL_NODE_PARAMS);
    graph_launch = "cuGraphLaunch"(CUgraphExec, CUstream);
    graph_executable_destroy = "cuGraphExecDestroy"(CUgraphExec);
    copy_to_device = "cuMemcpyHtoDAsync_v2"(CUdeviceptr, *const c_void, usize, CUstream);
    copy_to_host = "cuMemcpyDtoHAsync_v2"(*mut c_void, CUdeviceptr, usize, CUstream);
    copy_on_device = "cuMemcpyDtoDAsync_v2"(CUdeviceptr, CUdeviceptr, usize, CUstream);
    fill8 = "cuMemsetD8Async"(CUdeviceptr, c_uchar, usize, CUstream);
    fill16 = "cuMemsetD16Async"(CUdeviceptr, c_ushort, usize, CUstream);
    fill32 = "cuMemsetD32Async"(CUdeviceptr, c_uint, usize, CUstream);
    active_clusters = "cuOccupancyMaxActiveClusters"(*mut c_int, CUfunction, *const CUlaunchConfig);
    set_limit = "cuCtxSetLimit"(c_uint, usize);
    cluster_size = "cuOccupancyMaxPotentialClusterSize"(*mut c_int, CUfunction, *const CUlaunchConfig);
    tensor_map_tiled = "cuTensorMapEncodeTiled"(
        *mut c_void, c_uint, c_uint, *mut c_void, *const u64, *const u64, *const c_uint, *const c_uint, c_uint, c_uint, c_uint,
        c_uint
    );
    tensor_map_im2col = "cuTensorMapEncodeIm2col"(
        *mut c_void, c_uint, c_uint, *mut c_void, *const u64, *const u64, *const c_int, *const c_int, c_uint, c_uint,
        *const c_uint, c_uint, c_uint, c_uint, c_uint
    );
    array_create = "cuArray3DCreate_v2"(*mut *mut c_void, *const c_void);
    array_destroy = "cuArrayDestroy"(*mut c_void);
    texture_create = "cuTexObjectCreate"(*mut u64, *const c_void, *const c_void, *const c_void);
    texture_destroy = "cuTexObjectDestroy"(u64);
    surface_create = "cuSurfObjectCreate"(*mut u64, *const c_void);
    surface_destroy = "cuSurfObjectDestroy"(u64);
    copy_shaped = "cuMemcpy3DAsync_v2"(*const CUDA_MEMCPY3D, CUstream);
    write_value64 = "cuStreamWriteValue64_v2"(CUstream, CUdeviceptr, u64, c_uint);
}
