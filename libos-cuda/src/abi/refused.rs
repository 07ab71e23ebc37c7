//! Exports that are refused: each says so once on stderr, with the reason and what would work.
//!
//! They are there so that a program whose loader binds every name at its start finds them, and so that whoever calls one is
//! told more than the runtime library's error about the driver's version. With the rows of the other files they are all
//! functions that CUDA 13.0 declares, `libos-cuda/names.tsv` (docs/decisions/0063-every-name-is-there.md).

use super::{Function, NullStream, Row};
use crate::status::Status;
use crate::{logs, report};

/// What `cuGetProcAddress` says of a refused name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The function that refuses.
    Found,
    /// That there is none: the libraries that ask for it take that for "this machine has not got it", and go on.
    Absent,
}

/// Calls that are refused for one reason.
pub(crate) struct Family {
    /// Why, and what to do instead.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the lists of what is served"))]
    pub(crate) why: &'static str,
    pub(crate) lookup: Lookup,
    /// Its exports.
    pub(crate) rows: &'static [Row],
}

fn refuse(name: &str, why: &str) -> u32 {
    report::refused(name, why);
    logs::tell();
    Status::NOT_SUPPORTED.code()
}

/// The kind of null stream that a symbol's ending says.
const fn null_stream(symbol: &str) -> NullStream {
    match symbol.as_bytes() {
        [.., b'_', b'p', b't', b's' | b'd', b'z' | b's'] => NullStream::PerThread,
        _ => NullStream::Legacy,
    }
}

/// Defines exports that refuse: a name, and each of its symbols with the version of CUDA that has it first. They take no
/// arguments: who passes some leaves them where nobody looks.
macro_rules! refused {
    ($($why:literal, $lookup:ident { $($name:ident: $($symbol:ident $since:literal)+;)+ })+) => {
        $($($(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "CUDA's names")]
            extern "C" fn $symbol() -> u32 {
                refuse(stringify!($name), $why)
            }
        )+)+)+

        /// These calls.
        pub(crate) static FAMILIES: &[Family] = &[$(Family {
            why: $why,
            lookup: Lookup::$lookup,
            rows: &[$($(Row {
                symbol: stringify!($symbol),
                name: stringify!($name),
                since: $since,
                null_stream: null_stream(stringify!($symbol)),
                function: Function($symbol as *const std::ffi::c_void),
            }),+),+],
        }),+];
    };
}

refused! {
    "texture and surface references are not there: use texture objects (cudaCreateTextureObject)", Found {
        cuModuleGetSurfRef: cuModuleGetSurfRef 3000;
        cuModuleGetTexRef: cuModuleGetTexRef 2000;
        cuParamSetTexRef: cuParamSetTexRef 2000;
        cuSurfRefGetArray: cuSurfRefGetArray 3000;
        cuSurfRefSetArray: cuSurfRefSetArray 3000;
        cuTexRefCreate: cuTexRefCreate 2000;
        cuTexRefDestroy: cuTexRefDestroy 2000;
        cuTexRefGetAddress: cuTexRefGetAddress 2000 cuTexRefGetAddress_v2 3020;
        cuTexRefGetAddressMode: cuTexRefGetAddressMode 2000;
        cuTexRefGetArray: cuTexRefGetArray 2000;
        cuTexRefGetBorderColor: cuTexRefGetBorderColor 8000;
        cuTexRefGetFilterMode: cuTexRefGetFilterMode 2000;
        cuTexRefGetFlags: cuTexRefGetFlags 2000;
        cuTexRefGetFormat: cuTexRefGetFormat 2000;
        cuTexRefGetMaxAnisotropy: cuTexRefGetMaxAnisotropy 5000;
        cuTexRefGetMipmapFilterMode: cuTexRefGetMipmapFilterMode 5000;
        cuTexRefGetMipmapLevelBias: cuTexRefGetMipmapLevelBias 5000;
        cuTexRefGetMipmapLevelClamp: cuTexRefGetMipmapLevelClamp 5000;
        cuTexRefGetMipmappedArray: cuTexRefGetMipmappedArray 5000;
        cuTexRefSetAddress: cuTexRefSetAddress 2000 cuTexRefSetAddress_v2 3020;
        cuTexRefSetAddress2D: cuTexRefSetAddress2D 2020 cuTexRefSetAddress2D_v2 3020 cuTexRefSetAddress2D_v3 4010;
        cuTexRefSetAddressMode: cuTexRefSetAddressMode 2000;
        cuTexRefSetArray: cuTexRefSetArray 2000;
        cuTexRefSetBorderColor: cuTexRefSetBorderColor 8000;
        cuTexRefSetFilterMode: cuTexRefSetFilterMode 2000;
        cuTexRefSetFlags: cuTexRefSetFlags 2000;
        cuTexRefSetFormat: cuTexRefSetFormat 2000;
        cuTexRefSetMaxAnisotropy: cuTexRefSetMaxAnisotropy 5000;
        cuTexRefSetMipmapFilterMode: cuTexRefSetMipmapFilterMode 5000;
        cuTexRefSetMipmapLevelBias: cuTexRefSetMipmapLevelBias 5000;
        cuTexRefSetMipmapLevelClamp: cuTexRefSetMipmapLevelClamp 5000;
        cuTexRefSetMipmappedArray: cuTexRefSetMipmappedArray 5000;
    }
    "arrays have one level, one plane and no sparse parts: make one array for each level or plane", Found {
        cuArrayGetMemoryRequirements: cuArrayGetMemoryRequirements 11060;
        cuArrayGetPlane: cuArrayGetPlane 11020;
        cuArrayGetSparseProperties: cuArrayGetSparseProperties 11010;
        cuMemMapArrayAsync: cuMemMapArrayAsync 11010 cuMemMapArrayAsync_ptsz 11010;
        cuMipmappedArrayCreate: cuMipmappedArrayCreate 5000;
        cuMipmappedArrayDestroy: cuMipmappedArrayDestroy 5000;
        cuMipmappedArrayGetLevel: cuMipmappedArrayGetLevel 5000;
        cuMipmappedArrayGetMemoryRequirements: cuMipmappedArrayGetMemoryRequirements 11060;
        cuMipmappedArrayGetSparseProperties: cuMipmappedArrayGetSparseProperties 11010;
        cuTexObjectGetResourceViewDesc: cuTexObjectGetResourceViewDesc 5000;
    }
    "memory of graphics and of other devices is not shared: copy it through host memory", Found {
        cuGLCtxCreate: cuGLCtxCreate 2000 cuGLCtxCreate_v2 3020;
        cuGLGetDevices: cuGLGetDevices 4010 cuGLGetDevices_v2 6050;
        cuGLInit: cuGLInit 2000;
        cuGLMapBufferObject: cuGLMapBufferObject 2000 cuGLMapBufferObject_v2 3020 cuGLMapBufferObject_v2_ptds 7000;
        cuGLMapBufferObjectAsync: cuGLMapBufferObjectAsync 2030 cuGLMapBufferObjectAsync_v2 3020 cuGLMapBufferObjectAsync_v2_ptsz 7000;
        cuGLRegisterBufferObject: cuGLRegisterBufferObject 2000;
        cuGLSetBufferObjectMapFlags: cuGLSetBufferObjectMapFlags 2030;
        cuGLUnmapBufferObject: cuGLUnmapBufferObject 2000;
        cuGLUnmapBufferObjectAsync: cuGLUnmapBufferObjectAsync 2030;
        cuGLUnregisterBufferObject: cuGLUnregisterBufferObject 2000;
        cuGraphicsGLRegisterBuffer: cuGraphicsGLRegisterBuffer 3000;
        cuGraphicsGLRegisterImage: cuGraphicsGLRegisterImage 3000;
        cuEGLStreamConsumerAcquireFrame: cuEGLStreamConsumerAcquireFrame 7000;
        cuEGLStreamConsumerConnect: cuEGLStreamConsumerConnect 7000;
        cuEGLStreamConsumerConnectWithFlags: cuEGLStreamConsumerConnectWithFlags 8000;
        cuEGLStreamConsumerDisconnect: cuEGLStreamConsumerDisconnect 7000;
        cuEGLStreamConsumerReleaseFrame: cuEGLStreamConsumerReleaseFrame 7000;
        cuEGLStreamProducerConnect: cuEGLStreamProducerConnect 7000;
        cuEGLStreamProducerDisconnect: cuEGLStreamProducerDisconnect 7000;
        cuEGLStreamProducerPresentFrame: cuEGLStreamProducerPresentFrame 7000;
        cuEGLStreamProducerReturnFrame: cuEGLStreamProducerReturnFrame 7000;
        cuEventCreateFromEGLSync: cuEventCreateFromEGLSync 9000;
        cuGraphicsEGLRegisterImage: cuGraphicsEGLRegisterImage 7000;
        cuGraphicsResourceGetMappedEglFrame: cuGraphicsResourceGetMappedEglFrame 7000;
        cuGraphicsVDPAURegisterOutputSurface: cuGraphicsVDPAURegisterOutputSurface 3010;
        cuGraphicsVDPAURegisterVideoSurface: cuGraphicsVDPAURegisterVideoSurface 3010;
        cuVDPAUCtxCreate: cuVDPAUCtxCreate 3010 cuVDPAUCtxCreate_v2 3020;
        cuVDPAUGetDevice: cuVDPAUGetDevice 3010;
        cuDestroyExternalMemory: cuDestroyExternalMemory 10000;
        cuDestroyExternalSemaphore: cuDestroyExternalSemaphore 10000;
        cuDeviceGetNvSciSyncAttributes: cuDeviceGetNvSciSyncAttributes 10020;
        cuExternalMemoryGetMappedBuffer: cuExternalMemoryGetMappedBuffer 10000;
        cuExternalMemoryGetMappedMipmappedArray: cuExternalMemoryGetMappedMipmappedArray 10000;
        cuFlushGPUDirectRDMAWrites: cuFlushGPUDirectRDMAWrites 11030;
        cuGraphicsMapResources: cuGraphicsMapResources 3000 cuGraphicsMapResources_ptsz 7000;
        cuGraphicsResourceGetMappedMipmappedArray: cuGraphicsResourceGetMappedMipmappedArray 5000;
        cuGraphicsResourceGetMappedPointer: cuGraphicsResourceGetMappedPointer 3000 cuGraphicsResourceGetMappedPointer_v2 3020;
        cuGraphicsResourceSetMapFlags: cuGraphicsResourceSetMapFlags 3000 cuGraphicsResourceSetMapFlags_v2 6050;
        cuGraphicsSubResourceGetMappedArray: cuGraphicsSubResourceGetMappedArray 3000;
        cuGraphicsUnmapResources: cuGraphicsUnmapResources 3000 cuGraphicsUnmapResources_ptsz 7000;
        cuGraphicsUnregisterResource: cuGraphicsUnregisterResource 3000;
        cuImportExternalMemory: cuImportExternalMemory 10000;
        cuImportExternalSemaphore: cuImportExternalSemaphore 10000;
        cuSignalExternalSemaphoresAsync: cuSignalExternalSemaphoresAsync 10000 cuSignalExternalSemaphoresAsync_ptsz 10000;
        cuWaitExternalSemaphoresAsync: cuWaitExternalSemaphoresAsync 10000 cuWaitExternalSemaphoresAsync_ptsz 10000;
    }
    "multiprocessors are not divided among contexts: run in a session of its own what has to be apart", Found {
        cuCtxFromGreenCtx: cuCtxFromGreenCtx 12040;
        cuCtxGetDevResource: cuCtxGetDevResource 12040;
        cuDevResourceGenerateDesc: cuDevResourceGenerateDesc 12040;
        cuDevSmResourceSplitByCount: cuDevSmResourceSplitByCount 12040;
        cuDeviceGetDevResource: cuDeviceGetDevResource 12040;
        cuGreenCtxCreate: cuGreenCtxCreate 12040;
        cuGreenCtxDestroy: cuGreenCtxDestroy 12040;
        cuGreenCtxGetDevResource: cuGreenCtxGetDevResource 12040;
        cuGreenCtxGetId: cuGreenCtxGetId 12090;
        cuGreenCtxRecordEvent: cuGreenCtxRecordEvent 12040;
        cuGreenCtxStreamCreate: cuGreenCtxStreamCreate 12050;
        cuGreenCtxWaitEvent: cuGreenCtxWaitEvent 12040;
    }
    "graphs have no such nodes: docs/CAVEATS.md lists what they have", Found {
        cuGraphAddBatchMemOpNode: cuGraphAddBatchMemOpNode 11070;
        cuGraphAddExternalSemaphoresSignalNode: cuGraphAddExternalSemaphoresSignalNode 11020;
        cuGraphAddExternalSemaphoresWaitNode: cuGraphAddExternalSemaphoresWaitNode 11020;
        cuGraphBatchMemOpNodeGetParams: cuGraphBatchMemOpNodeGetParams 11070;
        cuGraphBatchMemOpNodeSetParams: cuGraphBatchMemOpNodeSetParams 11070;
        cuGraphConditionalHandleCreate: cuGraphConditionalHandleCreate 12030;
        cuGraphExecBatchMemOpNodeSetParams: cuGraphExecBatchMemOpNodeSetParams 11070;
        cuGraphExecExternalSemaphoresSignalNodeSetParams: cuGraphExecExternalSemaphoresSignalNodeSetParams 11020;
        cuGraphExecExternalSemaphoresWaitNodeSetParams: cuGraphExecExternalSemaphoresWaitNodeSetParams 11020;
        cuGraphExternalSemaphoresSignalNodeGetParams: cuGraphExternalSemaphoresSignalNodeGetParams 11020;
        cuGraphExternalSemaphoresSignalNodeSetParams: cuGraphExternalSemaphoresSignalNodeSetParams 11020;
        cuGraphExternalSemaphoresWaitNodeGetParams: cuGraphExternalSemaphoresWaitNodeGetParams 11020;
        cuGraphExternalSemaphoresWaitNodeSetParams: cuGraphExternalSemaphoresWaitNodeSetParams 11020;
    }
    "streams do not wait for values in memory: use events", Found {
        cuStreamBatchMemOp: cuStreamBatchMemOp 8000 cuStreamBatchMemOp_ptsz 8000 cuStreamBatchMemOp_v2 11070 cuStreamBatchMemOp_v2_ptsz 11070;
        cuStreamWaitValue32: cuStreamWaitValue32 8000 cuStreamWaitValue32_ptsz 8000 cuStreamWaitValue32_v2 11070 cuStreamWaitValue32_v2_ptsz 11070;
        cuStreamWaitValue64: cuStreamWaitValue64 9000 cuStreamWaitValue64_ptsz 9000 cuStreamWaitValue64_v2 11070 cuStreamWaitValue64_v2_ptsz 11070;
        cuStreamWriteValue64: cuStreamWriteValue64 9000 cuStreamWriteValue64_ptsz 9000 cuStreamWriteValue64_v2 11070 cuStreamWriteValue64_v2_ptsz 11070;
    }
    "memory is not decompressed on the way: copy it, and decompress in a kernel", Found {
        cuMemBatchDecompressAsync: cuMemBatchDecompressAsync 12060 cuMemBatchDecompressAsync_ptsz 12060;
    }
    "a session has one device: use cuLaunchCooperativeKernel", Found {
        cuLaunchCooperativeKernelMultiDevice: cuLaunchCooperativeKernelMultiDevice 9000;
    }
    "tensor maps and bulk copies (TMA) are not there: build kernels for an architecture without them, such as sm_80", Found {
        cuTensorMapEncodeIm2colWide: cuTensorMapEncodeIm2colWide 12080;
        cuTensorMapReplaceAddress: cuTensorMapReplaceAddress 12000;
    }
    "the launch calls of CUDA 3 are not there: use cuLaunchKernel", Found {
        cuFuncSetBlockShape: cuFuncSetBlockShape 2000;
        cuFuncSetSharedSize: cuFuncSetSharedSize 2000;
        cuLaunch: cuLaunch 2000;
        cuLaunchGrid: cuLaunchGrid 2000;
        cuLaunchGridAsync: cuLaunchGridAsync 2000;
        cuParamSetSize: cuParamSetSize 2000;
        cuParamSetf: cuParamSetf 2000;
        cuParamSeti: cuParamSeti 2000;
        cuParamSetv: cuParamSetv 2000;
    }
    "processes are not saved and restored: have the program write its own checkpoints", Found {
        cuCheckpointProcessCheckpoint: cuCheckpointProcessCheckpoint 12080;
        cuCheckpointProcessGetRestoreThreadId: cuCheckpointProcessGetRestoreThreadId 12080;
        cuCheckpointProcessGetState: cuCheckpointProcessGetState 12080;
        cuCheckpointProcessLock: cuCheckpointProcessLock 12080;
        cuCheckpointProcessRestore: cuCheckpointProcessRestore 12080;
        cuCheckpointProcessUnlock: cuCheckpointProcessUnlock 12080;
    }
    "the driver's dumps and notifications are not there: bulkhead status and the kernel's log tell more", Found {
        cuCoredumpGetAttribute: cuCoredumpGetAttribute 12010;
        cuCoredumpGetAttributeGlobal: cuCoredumpGetAttributeGlobal 12010;
        cuCoredumpSetAttribute: cuCoredumpSetAttribute 12010;
        cuCoredumpSetAttributeGlobal: cuCoredumpSetAttributeGlobal 12010;
        cuDeviceRegisterAsyncNotification: cuDeviceRegisterAsyncNotification 12040;
        cuDeviceUnregisterAsyncNotification: cuDeviceUnregisterAsyncNotification 12040;
    }
    "contexts are not counted: use the primary context (cuDevicePrimaryCtxRetain)", Found {
        cuCtxAttach: cuCtxAttach 2000;
        cuCtxDetach: cuCtxDetach 2000;
    }
    "functions have no address that host and device share: use cuLibraryGetKernel", Found {
        cuLibraryGetUnifiedFunction: cuLibraryGetUnifiedFunction 12000;
    }
    "there is no NVSwitch multicast, since a session has one device: cuDeviceGetAttribute says so (MULTICAST_SUPPORTED)", Found {
        cuMulticastAddDevice: cuMulticastAddDevice 12010;
        cuMulticastBindAddr: cuMulticastBindAddr 12010;
        cuMulticastBindMem: cuMulticastBindMem 12010;
        cuMulticastCreate: cuMulticastCreate 12010;
        cuMulticastGetGranularity: cuMulticastGetGranularity 12010;
        cuMulticastUnbind: cuMulticastUnbind 12010;
    }
    "memory has no DMA-BUF descriptor: share it with cuMemExportToShareableHandle or cuIpcGetMemHandle", Absent {
        cuMemGetHandleForAddressRange: cuMemGetHandleForAddressRange 11070;
    }
    "its addresses and sizes have 32 bits, as before CUDA 3.2: build with a newer cuda.h, or look up the name with _v2", Found {
        cuArray3DCreate: cuArray3DCreate 2000;
        cuArray3DGetDescriptor: cuArray3DGetDescriptor 2000;
        cuArrayCreate: cuArrayCreate 2000;
        cuArrayGetDescriptor: cuArrayGetDescriptor 2000;
        cuDeviceTotalMem: cuDeviceTotalMem 2000;
        cuMemAlloc: cuMemAlloc 2000;
        cuMemAllocHost: cuMemAllocHost 2000;
        cuMemAllocPitch: cuMemAllocPitch 2000;
        cuMemFree: cuMemFree 2000;
        cuMemGetAddressRange: cuMemGetAddressRange 2000;
        cuMemGetInfo: cuMemGetInfo 2000;
        cuMemHostGetDevicePointer: cuMemHostGetDevicePointer 2020;
        cuMemcpy2D: cuMemcpy2D 2000;
        cuMemcpy2DAsync: cuMemcpy2DAsync 2000;
        cuMemcpy2DUnaligned: cuMemcpy2DUnaligned 2000;
        cuMemcpy3D: cuMemcpy3D 2000;
        cuMemcpy3DAsync: cuMemcpy3DAsync 2000;
        cuMemcpyAtoA: cuMemcpyAtoA 2000;
        cuMemcpyAtoD: cuMemcpyAtoD 2000;
        cuMemcpyAtoH: cuMemcpyAtoH 2000;
        cuMemcpyAtoHAsync: cuMemcpyAtoHAsync 2000;
        cuMemcpyDtoA: cuMemcpyDtoA 2000;
        cuMemcpyDtoD: cuMemcpyDtoD 2000;
        cuMemcpyDtoDAsync: cuMemcpyDtoDAsync 3000;
        cuMemcpyDtoH: cuMemcpyDtoH 2000;
        cuMemcpyDtoHAsync: cuMemcpyDtoHAsync 2000;
        cuMemcpyHtoA: cuMemcpyHtoA 2000;
        cuMemcpyHtoAAsync: cuMemcpyHtoAAsync 2000;
        cuMemcpyHtoD: cuMemcpyHtoD 2000;
        cuMemcpyHtoDAsync: cuMemcpyHtoDAsync 2000;
        cuMemsetD16: cuMemsetD16 2000;
        cuMemsetD2D16: cuMemsetD2D16 2000;
        cuMemsetD2D32: cuMemsetD2D32 2000;
        cuMemsetD2D8: cuMemsetD2D8 2000;
        cuMemsetD32: cuMemsetD32 2000;
        cuMemsetD8: cuMemsetD8 2000;
        cuModuleGetGlobal: cuModuleGetGlobal 2000;
    }
}
