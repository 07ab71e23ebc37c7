//! CUDA's structures as C lays them out.

use crate::abi::args::InSlice;
use crate::status::Status;

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

/// `CUDA_MEMCPY3D`.
#[derive(Debug, Clone, Copy)]
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
#[derive(Debug, Clone, Copy)]
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
    pub(crate) reserved: u64,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}
const _: () = assert!(size_of::<Side3d>() == 88 && std::mem::offset_of!(Side3d, host) == 40);

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
