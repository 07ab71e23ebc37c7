//! CUDA's structures about graphs as C lays them out.

use std::ffi::c_void;

use super::args::InSlice;
use super::callbacks::{Callback, HostFunction};
use super::layouts::{Copy3d, Location};
use super::packed::{Extra, Parameters};
use crate::status::Status;

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
}
const _: () = assert!(size_of::<KernelNode>() == 56 && std::mem::offset_of!(KernelNode, parameters) == 40);

impl KernelNode {
    /// One whose parameters lie at these addresses.
    pub(crate) fn new(
        function: u64,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        addresses: &[usize],
    ) -> KernelNode {
        let parameters = addresses.as_ptr().cast_mut().cast();
        KernelNode { function, grid, block, shared_bytes, parameters, extra: std::ptr::null_mut() }
    }

    /// One pointer for each parameter, if the caller gave them so.
    pub(crate) fn parameters(&self) -> Parameters {
        Parameters::nested(self.parameters)
    }

    /// The packed parameters, if the caller gave them so.
    pub(crate) fn extra(&self) -> Extra {
        Extra::nested(self.extra)
    }
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelNodeOfContext {
    pub(crate) node: KernelNode,
    /// Used where the function is null.
    pub(crate) kernel: u64,
    pub(crate) context: u64,
}
const _: () = assert!(size_of::<KernelNodeOfContext>() == 72);

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct MemsetNode {
    pub(crate) to: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) element_bytes: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
}
const _: () = assert!(size_of::<MemsetNode>() == 40 && std::mem::offset_of!(MemsetNode, width) == 24);

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct HostNode {
    function: Option<extern "C" fn(*mut c_void)>,
    data: *mut c_void,
}
const _: () = assert!(size_of::<HostNode>() == 16);

impl HostNode {
    /// One that calls `function`.
    pub(crate) fn new(function: HostFunction, data: Callback) -> HostNode {
        HostNode { function: Some(function.0), data: data.pointer() }
    }

    /// What it calls, and with what.
    pub(crate) fn call(&self) -> Result<(HostFunction, Callback), Status> {
        let function = self.function.ok_or(Status::INVALID_VALUE)?;
        Ok((HostFunction(function), Callback(self.data.expose_provenance())))
    }
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`, with the properties of a pool in front.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationNode {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    pool: [u64; 9],
    accesses: u64,
    access_count: usize,
    pub(crate) bytes: usize,
    pub(crate) address: u64,
}
const _: () = assert!(
    size_of::<AllocationNode>() == 120
        && std::mem::offset_of!(AllocationNode, bytes) == 104
        && std::mem::offset_of!(AllocationNode, address) == 112
);

impl AllocationNode {
    /// One of so many bytes, of the first device.
    pub(crate) fn new(kind: u32, location: u32, bytes: u64, address: u64) -> AllocationNode {
        AllocationNode {
            kind,
            handle_types: 0,
            location: Location { kind: location, id: 0 },
            pool: [0; 9],
            accesses: 0,
            access_count: 0,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            address,
        }
    }
}

/// `CUgraphEdgeData`.
pub(crate) type EdgeData = [u8; 8];

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct InstantiateParameters {
    pub(crate) flags: u64,
    pub(crate) upload_stream: u64,
    pub(crate) error_node: u64,
    pub(crate) result: u32,
    pub(crate) padding: u32,
}
const _: () = assert!(size_of::<InstantiateParameters>() == 32);

/// `CUgraphExecUpdateResultInfo`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct UpdateResult {
    pub(crate) result: u32,
    pub(crate) padding: u32,
    pub(crate) node: u64,
    pub(crate) from: u64,
}
const _: () = assert!(size_of::<UpdateResult>() == 24);

/// `CUgraphNodeParams`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NodeParameters {
    pub(crate) kind: u32,
    reserved: [u32; 3],
    of_kind: OfKind,
    reserved_behind: u64,
}
const _: () =
    assert!(size_of::<NodeParameters>() == 256 && std::mem::offset_of!(NodeParameters, of_kind) == 16);

/// What the kind says which one it is.
#[derive(Clone, Copy)]
#[repr(C)]
union OfKind {
    words: [u64; 29],
    kernel: KernelNodeOfContext,
    copy: CopyNode,
    memset: MemsetNode,
    host: HostNode,
    allocation: AllocationNode,
    handle: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct CopyNode {
    flags: [u32; 2],
    context: u64,
    copy: Copy3d,
}
const _: () = assert!(size_of::<CopyNode>() == 216);

macro_rules! of_kind {
    ($($name:ident $($field:ident).+: $kind:ty;)*) => {
        impl NodeParameters {
            $(
                /// The parameters, of a node of this kind.
                pub(crate) fn $name(&self) -> $kind {
                    // SAFETY: the C caller filled the whole structure, and this field is valid for any bits.
                    unsafe { self.of_kind.$($field).+ }
                }
            )*
        }
    };
}

of_kind! {
    kernel kernel: KernelNodeOfContext;
    copy copy.copy: Copy3d;
    memset memset: MemsetNode;
    host host: HostNode;
    allocation allocation: AllocationNode;
    handle handle: u64;
}

impl NodeParameters {
    /// Has the parameters of an allocation.
    pub(crate) fn set_allocation(&mut self, allocation: AllocationNode) {
        self.of_kind.allocation = allocation;
    }
}

/// Most edges that a call may name.
const COUNT_MAX: usize = 1 << 20;

impl InSlice<EdgeData> {
    /// That they are dependencies. All are kept as full ones, from the end of one node to the beginning of the other: those
    /// that let a kernel begin before another has ended (programmatic ones) allow that, and ask for nothing.
    pub(crate) fn check(&self, count: usize) -> Result<(), Status> {
        if count > COUNT_MAX {
            return Err(Status::INVALID_VALUE);
        }
        // The ports of its two ends, its type, and five bytes of zeros.
        let is_one = |edge: &EdgeData| matches!(edge, [0..=2, 0, 0..=1, 0, 0, 0, 0, 0]);
        if self.is_null() || self.read(count)?.iter().all(is_one) {
            return Ok(());
        }
        Err(Status::INVALID_VALUE)
    }
}
