//! Exports that are refused: each says so once on stderr, with the reason and what would work.
//!
//! They are there so that programs find them: the runtime library otherwise ends with an error about the driver's
//! version, which says nothing.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::Function;
use crate::report;
use crate::status::Status;

/// A call that is refused.
pub(crate) struct Refused {
    /// The name that `cuGetProcAddress` takes.
    pub(crate) name: &'static str,
    /// Its symbols.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the tests that compare the list with the header"))]
    pub(crate) symbols: &'static [&'static str],
    /// Why, and what to do instead.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the list in docs/SUPPORT.md"))]
    pub(crate) why: &'static str,
    functions: &'static [Function],
}

/// The function that refuses, whatever the version.
pub(crate) fn find(name: &str) -> Option<Function> {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static [Function]>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| REFUSED.iter().map(|call| (call.name, call.functions)).collect());
    by_name.get(name)?.first().copied()
}

fn refuse(name: &str, why: &str) -> u32 {
    report::refused(name, why);
    Status::NOT_SUPPORTED.code()
}

/// Defines exports that refuse, each with all its symbols. They take no arguments: who passes some leaves them where nobody looks.
macro_rules! refused {
    ($($why:literal { $($name:ident: $($symbol:ident)+;)+ })+) => {
        $($($(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "CUDA's names")]
            extern "C" fn $symbol() -> u32 {
                refuse(stringify!($name), $why)
            }
        )+)+)+

        /// These calls.
        pub(crate) static REFUSED: &[Refused] = &[$($(Refused {
            name: stringify!($name),
            symbols: &[$(stringify!($symbol)),+],
            why: $why,
            functions: &[$(Function($symbol as *const std::ffi::c_void)),+],
        },)+)+];
    };
}

refused! {
    "texture and surface references are not there: use texture objects (cudaCreateTextureObject)" {
        cuModuleGetSurfRef: cuModuleGetSurfRef;
        cuModuleGetTexRef: cuModuleGetTexRef;
        cuParamSetTexRef: cuParamSetTexRef;
        cuSurfRefGetArray: cuSurfRefGetArray;
        cuSurfRefSetArray: cuSurfRefSetArray;
        cuTexRefCreate: cuTexRefCreate;
        cuTexRefDestroy: cuTexRefDestroy;
        cuTexRefGetAddress: cuTexRefGetAddress cuTexRefGetAddress_v2;
        cuTexRefGetAddressMode: cuTexRefGetAddressMode;
        cuTexRefGetArray: cuTexRefGetArray;
        cuTexRefGetBorderColor: cuTexRefGetBorderColor;
        cuTexRefGetFilterMode: cuTexRefGetFilterMode;
        cuTexRefGetFlags: cuTexRefGetFlags;
        cuTexRefGetFormat: cuTexRefGetFormat;
        cuTexRefGetMaxAnisotropy: cuTexRefGetMaxAnisotropy;
        cuTexRefGetMipmapFilterMode: cuTexRefGetMipmapFilterMode;
        cuTexRefGetMipmapLevelBias: cuTexRefGetMipmapLevelBias;
        cuTexRefGetMipmapLevelClamp: cuTexRefGetMipmapLevelClamp;
        cuTexRefGetMipmappedArray: cuTexRefGetMipmappedArray;
        cuTexRefSetAddress: cuTexRefSetAddress cuTexRefSetAddress_v2;
        cuTexRefSetAddress2D: cuTexRefSetAddress2D cuTexRefSetAddress2D_v2 cuTexRefSetAddress2D_v3;
        cuTexRefSetAddressMode: cuTexRefSetAddressMode;
        cuTexRefSetArray: cuTexRefSetArray;
        cuTexRefSetBorderColor: cuTexRefSetBorderColor;
        cuTexRefSetFilterMode: cuTexRefSetFilterMode;
        cuTexRefSetFlags: cuTexRefSetFlags;
        cuTexRefSetFormat: cuTexRefSetFormat;
        cuTexRefSetMaxAnisotropy: cuTexRefSetMaxAnisotropy;
        cuTexRefSetMipmapFilterMode: cuTexRefSetMipmapFilterMode;
        cuTexRefSetMipmapLevelBias: cuTexRefSetMipmapLevelBias;
        cuTexRefSetMipmapLevelClamp: cuTexRefSetMipmapLevelClamp;
        cuTexRefSetMipmappedArray: cuTexRefSetMipmappedArray;
    }
    "arrays have one level, one plane and no sparse parts" {
        cuArrayGetMemoryRequirements: cuArrayGetMemoryRequirements;
        cuArrayGetPlane: cuArrayGetPlane;
        cuArrayGetSparseProperties: cuArrayGetSparseProperties;
        cuMemMapArrayAsync: cuMemMapArrayAsync cuMemMapArrayAsync_ptsz;
        cuMipmappedArrayCreate: cuMipmappedArrayCreate;
        cuMipmappedArrayDestroy: cuMipmappedArrayDestroy;
        cuMipmappedArrayGetLevel: cuMipmappedArrayGetLevel;
        cuMipmappedArrayGetMemoryRequirements: cuMipmappedArrayGetMemoryRequirements;
        cuMipmappedArrayGetSparseProperties: cuMipmappedArrayGetSparseProperties;
        cuTexObjectGetResourceViewDesc: cuTexObjectGetResourceViewDesc;
    }
    "memory of graphics and of other devices is not shared: copy it through host memory" {
        cuDestroyExternalMemory: cuDestroyExternalMemory;
        cuDestroyExternalSemaphore: cuDestroyExternalSemaphore;
        cuDeviceGetNvSciSyncAttributes: cuDeviceGetNvSciSyncAttributes;
        cuExternalMemoryGetMappedBuffer: cuExternalMemoryGetMappedBuffer;
        cuExternalMemoryGetMappedMipmappedArray: cuExternalMemoryGetMappedMipmappedArray;
        cuFlushGPUDirectRDMAWrites: cuFlushGPUDirectRDMAWrites;
        cuGraphicsMapResources: cuGraphicsMapResources cuGraphicsMapResources_ptsz;
        cuGraphicsResourceGetMappedMipmappedArray: cuGraphicsResourceGetMappedMipmappedArray;
        cuGraphicsResourceGetMappedPointer: cuGraphicsResourceGetMappedPointer cuGraphicsResourceGetMappedPointer_v2;
        cuGraphicsResourceSetMapFlags: cuGraphicsResourceSetMapFlags cuGraphicsResourceSetMapFlags_v2;
        cuGraphicsSubResourceGetMappedArray: cuGraphicsSubResourceGetMappedArray;
        cuGraphicsUnmapResources: cuGraphicsUnmapResources cuGraphicsUnmapResources_ptsz;
        cuGraphicsUnregisterResource: cuGraphicsUnregisterResource;
        cuImportExternalMemory: cuImportExternalMemory;
        cuImportExternalSemaphore: cuImportExternalSemaphore;
        cuMemGetHandleForAddressRange: cuMemGetHandleForAddressRange;
        cuSignalExternalSemaphoresAsync: cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz;
        cuWaitExternalSemaphoresAsync: cuWaitExternalSemaphoresAsync cuWaitExternalSemaphoresAsync_ptsz;
    }
    "multiprocessors are not divided among contexts" {
        cuCtxFromGreenCtx: cuCtxFromGreenCtx;
        cuCtxGetDevResource: cuCtxGetDevResource;
        cuCtxGetExecAffinity: cuCtxGetExecAffinity;
        cuCtxRecordEvent: cuCtxRecordEvent;
        cuCtxWaitEvent: cuCtxWaitEvent;
        cuDevResourceGenerateDesc: cuDevResourceGenerateDesc;
        cuDevSmResourceSplitByCount: cuDevSmResourceSplitByCount;
        cuDeviceGetDevResource: cuDeviceGetDevResource;
        cuDeviceGetExecAffinitySupport: cuDeviceGetExecAffinitySupport;
        cuGreenCtxCreate: cuGreenCtxCreate;
        cuGreenCtxDestroy: cuGreenCtxDestroy;
        cuGreenCtxGetDevResource: cuGreenCtxGetDevResource;
        cuGreenCtxGetId: cuGreenCtxGetId;
        cuGreenCtxRecordEvent: cuGreenCtxRecordEvent;
        cuGreenCtxStreamCreate: cuGreenCtxStreamCreate;
        cuGreenCtxWaitEvent: cuGreenCtxWaitEvent;
        cuStreamGetGreenCtx: cuStreamGetGreenCtx;
    }
    "graphs have no such nodes or objects: docs/CAVEATS.md lists what they have" {
        cuGraphAddBatchMemOpNode: cuGraphAddBatchMemOpNode;
        cuGraphAddExternalSemaphoresSignalNode: cuGraphAddExternalSemaphoresSignalNode;
        cuGraphAddExternalSemaphoresWaitNode: cuGraphAddExternalSemaphoresWaitNode;
        cuGraphBatchMemOpNodeGetParams: cuGraphBatchMemOpNodeGetParams;
        cuGraphBatchMemOpNodeSetParams: cuGraphBatchMemOpNodeSetParams;
        cuGraphConditionalHandleCreate: cuGraphConditionalHandleCreate;
        cuGraphExecBatchMemOpNodeSetParams: cuGraphExecBatchMemOpNodeSetParams;
        cuGraphExecExternalSemaphoresSignalNodeSetParams: cuGraphExecExternalSemaphoresSignalNodeSetParams;
        cuGraphExecExternalSemaphoresWaitNodeSetParams: cuGraphExecExternalSemaphoresWaitNodeSetParams;
        cuGraphExternalSemaphoresSignalNodeGetParams: cuGraphExternalSemaphoresSignalNodeGetParams;
        cuGraphExternalSemaphoresSignalNodeSetParams: cuGraphExternalSemaphoresSignalNodeSetParams;
        cuGraphExternalSemaphoresWaitNodeGetParams: cuGraphExternalSemaphoresWaitNodeGetParams;
        cuGraphExternalSemaphoresWaitNodeSetParams: cuGraphExternalSemaphoresWaitNodeSetParams;
        cuGraphReleaseUserObject: cuGraphReleaseUserObject;
        cuGraphRetainUserObject: cuGraphRetainUserObject;
        cuUserObjectCreate: cuUserObjectCreate;
        cuUserObjectRelease: cuUserObjectRelease;
        cuUserObjectRetain: cuUserObjectRetain;
    }
    "streams do not wait for values in memory: use events" {
        cuStreamBatchMemOp: cuStreamBatchMemOp cuStreamBatchMemOp_ptsz cuStreamBatchMemOp_v2 cuStreamBatchMemOp_v2_ptsz;
        cuStreamWaitValue32: cuStreamWaitValue32 cuStreamWaitValue32_ptsz cuStreamWaitValue32_v2 cuStreamWaitValue32_v2_ptsz;
        cuStreamWaitValue64: cuStreamWaitValue64 cuStreamWaitValue64_ptsz cuStreamWaitValue64_v2 cuStreamWaitValue64_v2_ptsz;
        cuStreamWriteValue32: cuStreamWriteValue32 cuStreamWriteValue32_ptsz cuStreamWriteValue32_v2 cuStreamWriteValue32_v2_ptsz;
        cuStreamWriteValue64: cuStreamWriteValue64 cuStreamWriteValue64_ptsz cuStreamWriteValue64_v2 cuStreamWriteValue64_v2_ptsz;
    }
    "copies and prefetches in batches are not there: make one call for each" {
        cuMemBatchDecompressAsync: cuMemBatchDecompressAsync cuMemBatchDecompressAsync_ptsz;
        cuMemDiscardAndPrefetchBatchAsync: cuMemDiscardAndPrefetchBatchAsync cuMemDiscardAndPrefetchBatchAsync_ptsz;
        cuMemDiscardBatchAsync: cuMemDiscardBatchAsync cuMemDiscardBatchAsync_ptsz;
        cuMemPrefetchBatchAsync: cuMemPrefetchBatchAsync cuMemPrefetchBatchAsync_ptsz;
        cuMemcpy3DBatchAsync: cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_ptsz cuMemcpy3DBatchAsync_v2 cuMemcpy3DBatchAsync_v2_ptsz;
        cuMemcpyBatchAsync: cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz;
    }
    "a session has one device" {
        cuDeviceGetHostAtomicCapabilities: cuDeviceGetHostAtomicCapabilities;
        cuDeviceGetP2PAtomicCapabilities: cuDeviceGetP2PAtomicCapabilities;
        cuLaunchCooperativeKernelMultiDevice: cuLaunchCooperativeKernelMultiDevice;
        cuMemcpy3DPeer: cuMemcpy3DPeer cuMemcpy3DPeer_ptds;
        cuMemcpy3DPeerAsync: cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz;
        cuMulticastAddDevice: cuMulticastAddDevice;
        cuMulticastBindAddr: cuMulticastBindAddr;
        cuMulticastBindMem: cuMulticastBindMem;
        cuMulticastCreate: cuMulticastCreate;
        cuMulticastGetGranularity: cuMulticastGetGranularity;
        cuMulticastUnbind: cuMulticastUnbind;
    }
    "tensor maps and bulk copies (TMA) are not there" {
        cuTensorMapEncodeIm2col: cuTensorMapEncodeIm2col;
        cuTensorMapEncodeIm2colWide: cuTensorMapEncodeIm2colWide;
        cuTensorMapEncodeTiled: cuTensorMapEncodeTiled;
        cuTensorMapReplaceAddress: cuTensorMapReplaceAddress;
    }
    "thread block clusters are not there" {
        cuOccupancyMaxActiveClusters: cuOccupancyMaxActiveClusters;
        cuOccupancyMaxPotentialClusterSize: cuOccupancyMaxPotentialClusterSize;
    }
    "the launch calls of CUDA 3 are not there: use cuLaunchKernel" {
        cuFuncSetBlockShape: cuFuncSetBlockShape;
        cuFuncSetSharedSize: cuFuncSetSharedSize;
        cuLaunch: cuLaunch;
        cuLaunchGrid: cuLaunchGrid;
        cuLaunchGridAsync: cuLaunchGridAsync;
        cuParamSetSize: cuParamSetSize;
        cuParamSetf: cuParamSetf;
        cuParamSeti: cuParamSeti;
        cuParamSetv: cuParamSetv;
    }
    "processes are not saved and restored" {
        cuCheckpointProcessCheckpoint: cuCheckpointProcessCheckpoint;
        cuCheckpointProcessGetRestoreThreadId: cuCheckpointProcessGetRestoreThreadId;
        cuCheckpointProcessGetState: cuCheckpointProcessGetState;
        cuCheckpointProcessLock: cuCheckpointProcessLock;
        cuCheckpointProcessRestore: cuCheckpointProcessRestore;
        cuCheckpointProcessUnlock: cuCheckpointProcessUnlock;
    }
    "the driver's logs, dumps and notifications are not there: bulkhead status and the kernel's log tell more" {
        cuCoredumpGetAttribute: cuCoredumpGetAttribute;
        cuCoredumpGetAttributeGlobal: cuCoredumpGetAttributeGlobal;
        cuCoredumpSetAttribute: cuCoredumpSetAttribute;
        cuCoredumpSetAttributeGlobal: cuCoredumpSetAttributeGlobal;
        cuDeviceRegisterAsyncNotification: cuDeviceRegisterAsyncNotification;
        cuDeviceUnregisterAsyncNotification: cuDeviceUnregisterAsyncNotification;
        cuLogsCurrent: cuLogsCurrent;
        cuLogsDumpToFile: cuLogsDumpToFile;
        cuLogsDumpToMemory: cuLogsDumpToMemory;
        cuLogsRegisterCallback: cuLogsRegisterCallback;
        cuLogsUnregisterCallback: cuLogsUnregisterCallback;
    }
    "it left CUDA long ago: use the primary context, and cuDeviceGetAttribute" {
        cuCtxAttach: cuCtxAttach;
        cuCtxDetach: cuCtxDetach;
        cuDeviceGetProperties: cuDeviceGetProperties;
    }
    "functions have no address that host and device share" {
        cuLibraryGetUnifiedFunction: cuLibraryGetUnifiedFunction;
    }
}
