//! CUDA's structures as C lays them out.

use crate::abi::args::{Argument, InSlice, plain};
use crate::status::Status;

plain!(IpcHandle, Location);

/// `CUDA_MEMCPY2D`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Copy2d {
    pub(crate) from: Side2d,
    pub(crate) to: Side2d,
    pub(crate) width: usize,
    pub(crate) height: usize,
}
const _: () = assert!(size_of::<Copy2d>() == 128 && std::mem::offset_of!(Copy2d, width) == 112);

/// One side of a [`Copy2d`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Side2d {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: usize,
}
const _: () = assert!(size_of::<Side2d>() == 56 && std::mem::offset_of!(Side2d, host) == 24);

/// `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER`, which has contexts where the other has nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Copy3d {
    pub(crate) from: Side3d,
    pub(crate) to: Side3d,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}
const _: () = assert!(size_of::<Copy3d>() == 200 && std::mem::offset_of!(Copy3d, width) == 176);

/// One side of a [`Copy3d`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Side3d {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
    pub(crate) level: usize,
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    /// Of a [`Copy3d`] between contexts.
    pub(crate) context: u64,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}
const _: () = assert!(size_of::<Side3d>() == 88 && std::mem::offset_of!(Side3d, host) == 40);

impl Side3d {
    const NOTHING: Side3d = Side3d {
        x: 0,
        y: 0,
        z: 0,
        level: 0,
        kind: 0,
        host: 0,
        device: 0,
        array: 0,
        context: 0,
        pitch: 0,
        height: 0,
    };

    /// `CU_MEMORYTYPE_ARRAY`, from a place on: in x in bytes.
    pub(crate) fn of_array(array: u64, [x, y, z]: [usize; 3]) -> Side3d {
        Side3d { x, y, z, kind: 3, array, ..Side3d::NOTHING }
    }

    /// `CU_MEMORYTYPE_UNIFIED`: of whom the memory is, its address says.
    pub(crate) fn of_pointer(address: u64, pitch: usize, height: usize) -> Side3d {
        Side3d { kind: 4, device: address, pitch, height, ..Side3d::NOTHING }
    }
}

/// `CUmemcpyAttributes`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CopyAttributes {
    /// When the source may be read.
    pub(crate) order: u32,
    /// Where managed memory is best read and written: hints.
    pub(crate) hints: [Location; 2],
    pub(crate) flags: u32,
}
const _: () = assert!(size_of::<CopyAttributes>() == 24 && std::mem::offset_of!(CopyAttributes, flags) == 20);

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchedCopy3d {
    pub(crate) from: BatchOperand,
    pub(crate) to: BatchOperand,
    /// Columns, rows and slices.
    pub(crate) extent: [usize; 3],
    pub(crate) order: u32,
    pub(crate) flags: u32,
}
const _: () = assert!(size_of::<BatchedCopy3d>() == 112 && std::mem::offset_of!(BatchedCopy3d, order) == 104);

/// One side of a [`BatchedCopy3d`], a pointer or an array.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchOperand {
    pub(crate) kind: u32,
    pub(crate) padding: u32,
    /// The pointer, or the array.
    pub(crate) at: u64,
    /// Of a pointer the length of a row and the rows of a slice, then a hint; of an array where the copy begins.
    pub(crate) rest: [usize; 3],
}
const _: () = assert!(size_of::<BatchOperand>() == 40 && std::mem::offset_of!(BatchOperand, rest) == 16);

/// `CUipcMemHandle` and `CUipcEventHandle`, which C passes by value, and `CUmemPoolPtrExportData`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);
const _: () = assert!(size_of::<IpcHandle>() == 64 && align_of::<IpcHandle>() == 1);

/// `CUlaunchConfig`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: u64,
    attributes: *const LaunchAttribute,
    attributes_count: u32,
}
const _: () = assert!(size_of::<LaunchConfig>() == 56 && std::mem::offset_of!(LaunchConfig, stream) == 32);

impl LaunchConfig {
    /// Most attributes that a launch may carry; CUDA knows fewer.
    const ATTRIBUTES_MAX: u32 = 64;

    /// Copies the attributes out.
    pub(crate) fn attributes(&self) -> Result<Vec<LaunchAttribute>, Status> {
        if self.attributes_count > Self::ATTRIBUTES_MAX {
            return Err(Status::INVALID_VALUE);
        }
        InSlice::nested(self.attributes).read(self.attributes_count as usize)
    }
}

/// `CUlaunchAttribute`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: u32,
    padding: u32,
    pub(crate) value: [u32; 16],
}
impl LaunchAttribute {
    /// One with this value.
    pub(crate) fn new(id: u32, value: [u32; 16]) -> LaunchAttribute {
        LaunchAttribute { id, padding: 0, value }
    }
}
const _: () =
    assert!(size_of::<LaunchAttribute>() == 72 && std::mem::offset_of!(LaunchAttribute, value) == 8);

/// `CUmemAllocationProp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Properties {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location_type: u32,
    pub(crate) location_id: i32,
    pub(crate) windows: u64,
    pub(crate) compression: u8,
    pub(crate) rdma: u8,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 4],
}
const _: () = assert!(size_of::<Properties>() == 32 && std::mem::offset_of!(Properties, usage) == 26);

impl Properties {
    /// Those of plain memory of the first device.
    pub(crate) fn of_device(kind: u32, handle_types: u32, location_type: u32) -> Properties {
        Properties {
            kind,
            handle_types,
            location_type,
            location_id: 0,
            windows: 0,
            compression: 0,
            rdma: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }
}

/// `CUmemLocation`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: u32,
    pub(crate) id: i32,
}
const _: () = assert!(size_of::<Location>() == 8);

/// `CUmemPoolProps`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProperties {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    pub(crate) security: u64,
    pub(crate) bytes_max: u64,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}
const _: () = assert!(size_of::<PoolProperties>() == 88 && std::mem::offset_of!(PoolProperties, usage) == 32);

/// `CUmemAccessDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AccessDescription {
    pub(crate) location_type: u32,
    pub(crate) location_id: i32,
    pub(crate) flags: u32,
}
const _: () = assert!(size_of::<AccessDescription>() == 12);
