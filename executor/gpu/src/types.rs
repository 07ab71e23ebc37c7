//! The values that cross the [`crate::Gpu`] trait.

/// What has to be reserved of device addresses at least so that they are the ones asked for: for 2 MiB the driver of an
/// H200 gives others, whatever is free (CUDA 13.0; 64 MiB and more it gives where they were asked for).
pub const RESERVATION_BYTES_MIN: u64 = 64 << 20;

/// An address in the device's address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceAddress(pub u64);

/// An address in the executor's own address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostAddress(pub usize);

/// A range of the executor's own memory. Whoever makes one keeps the memory mapped while the device may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostRange {
    /// First byte.
    pub at: HostAddress,
    /// Length in bytes.
    pub bytes: usize,
}

/// Physical memory, named by the device that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryId(pub u64);

/// A stream, named by the device that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId(pub u64);

/// An event, named by the device that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventId(pub u64);

/// A loaded image, named by the device that loaded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageId(pub u64);

/// A graph, named by the device that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GraphId(pub u64);

/// An entry of a loaded image, named by the device that loaded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryId(pub u64);

/// What kernels may do to mapped memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads only; a store is a fault.
    Read,
    /// Loads, stores and atomics.
    ReadWrite,
}

/// The element of a [`crate::Gpu::fill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillPattern {
    /// One byte.
    Bits8(u8),
    /// Two bytes.
    Bits16(u16),
    /// Four bytes.
    Bits32(u32),
}

impl FillPattern {
    /// Its size in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bits8(_) => 1,
            Self::Bits16(_) => 2,
            Self::Bits32(_) => 4,
        }
    }
}

/// Grid, block, shared memory and parameters of one launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// The parameter block.
    pub parameters: &'a [u8],
}

/// How many kernels a graph of [`crate::Gpu::launch_graph`] has, most first.
pub const GRAPH_SIZES: [usize; 6] = [128, 64, 32, 16, 8, 4];

/// What a driver is asked, and the words that it is asked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// How many clusters of a launch are on the device at a time. Grid, block (three words each), bytes of dynamic shared
    /// memory, sides of a cluster (three; 0 where the launch has none), whether all blocks are there at once.
    ActiveClusters,
    /// How many blocks its largest cluster may have. The same words.
    ClusterSize,
    /// A tiled tensor map. Type, rank, address, 5 dimensions, 4 strides, 5 sides of the box, 5 strides of elements,
    /// interleave, swizzle, promotion, fill: as `cuTensorMapEncodeTiled` takes them, what is beyond the rank 0.
    TensorMapTiled,
    /// Another kind. Type, rank, address, 5 dimensions, 4 strides, 3 lower and 3 upper corners (as 32-bit integers), channels,
    /// pixels, 5 strides of elements, interleave, swizzle, promotion, fill: as `cuTensorMapEncodeIm2col` takes them.
    TensorMapIm2col,
    /// Nothing: the driver writes what kernels have printed to the process's standard output, of those that have
    /// passed.
    Output,
    /// A new array's number. Width, height, depth, format, channels, flags: as `cuArray3DCreate` takes them.
    MakeArray,
    /// Nothing: an array is destroyed, by its number.
    FreeArray,
    /// A new texture, as kernels name it. The kind of its resource; an array's number, or address, format and channels, and
    /// extents (5 words of `CUDA_RESOURCE_DESC`); `CUDA_TEXTURE_DESC` (13 words); whether there is a view, and that
    /// (`CUDA_RESOURCE_VIEW_DESC`, 14 words).
    MakeTexture,
    /// Nothing: a texture is destroyed.
    FreeTexture,
    /// A new surface, as kernels name it, of an array, by its number.
    MakeSurface,
    /// Nothing: a surface is destroyed.
    FreeSurface,
    /// Nothing: a limit of the context is set. Which, and to what: as `cuCtxSetLimit` takes them.
    SetLimit,
}

/// A copy between an array and device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayCopy {
    /// The array's number.
    pub array: u64,
    /// From where on in it: bytes of a row, rows, slices or layers.
    pub at: [u32; 3],
    /// The memory.
    pub memory: DeviceAddress,
    /// From row to row of it, in bytes.
    pub row_bytes: u64,
    /// Rows from slice to slice of it.
    pub rows: u32,
    /// Bytes of a row, rows, slices.
    pub shape: [u32; 3],
    /// Into the array; else out of it.
    pub to_array: bool,
}

impl ArrayCopy {
    /// Bytes of the memory from the first to the last that is copied; `None` where no range has so many.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let [width, height, depth] = self.shape.map(u64::from);
        let rows_overlap = height > 1 && self.row_bytes < width;
        let slices_overlap = depth > 1 && (self.rows < self.shape[1] || self.row_bytes < width);
        if rows_overlap || slices_overlap {
            return None;
        }
        let slices = depth.checked_sub(1)?.checked_mul(u64::from(self.rows))?;
        let rows = slices.checked_add(height.checked_sub(1)?)?;
        rows.checked_mul(self.row_bytes)?.checked_add(width)
    }
}

impl Question {
    /// How many words it is asked with.
    #[must_use]
    pub fn words(self) -> usize {
        match self {
            Self::ActiveClusters | Self::ClusterSize => 11,
            Self::TensorMapTiled => 26,
            Self::TensorMapIm2col => 29,
            Self::Output => 0,
            Self::MakeArray => 6,
            Self::SetLimit => 2,
            Self::MakeTexture => 34,
            Self::FreeArray | Self::FreeTexture | Self::MakeSurface | Self::FreeSurface => 1,
        }
    }

    /// Whether it is about an entry.
    #[must_use]
    pub fn is_of_entry(self) -> bool {
        matches!(self, Self::ActiveClusters | Self::ClusterSize)
    }
}

/// Where one parameter lies in the parameter block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterLayout {
    /// Offset in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

/// What is known of an entry once it is loaded: CUDA's function attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryInfo {
    /// Name in the image.
    pub name: String,
    /// For launches.
    pub id: EntryId,
    /// Parameters in order, hidden ones included (they come last).
    pub parameters: Vec<ParameterLayout>,
    /// Most threads a block may have.
    pub threads_max: u32,
    /// Static shared memory in bytes.
    pub shared_bytes: u32,
    /// Local memory per thread in bytes.
    pub local_bytes: u32,
    /// Constant memory in bytes.
    pub constant_bytes: u32,
    /// Registers per thread.
    pub registers: u32,
    /// The virtual architecture that the text is for, as the device tells it; what clients see is that of the text's
    /// `.target`.
    pub ptx_version: u32,
    /// The architecture that it was compiled for: 90 for `sm_90`.
    pub binary_version: u32,
}

/// What a node of a graph does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Nothing: others wait for it, and it for others.
    Nothing,
    /// Launches an entry, in clusters of so many blocks in x, y, z where there are `sides`, and with all blocks there at once
    /// if `together`.
    Launch {
        /// The entry.
        entry: EntryId,
        /// Blocks in x, y, z.
        grid: [u32; 3],
        /// Threads of a block in x, y, z.
        block: [u32; 3],
        /// Dynamic shared memory of a block in bytes.
        shared_bytes: u32,
        /// The whole parameter block.
        parameters: Box<[u8]>,
        /// Blocks of a cluster.
        sides: Option<[u8; 3]>,
        /// Whether all blocks are there at once.
        together: bool,
    },
    /// Copies device memory to device memory; the ranges do not overlap.
    Copy {
        /// Destination.
        to: DeviceAddress,
        /// Source.
        from: DeviceAddress,
        /// Length in bytes.
        bytes: u64,
    },
    /// Writes `count` elements; `to` is aligned to an element's size.
    Fill {
        /// Destination.
        to: DeviceAddress,
        /// The element.
        pattern: FillPattern,
        /// How many.
        count: u64,
    },
}

/// A node of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it does.
    pub work: Work,
    /// The nodes that it comes after, by their places, each of which is before its own.
    pub before: Vec<u32>,
    /// It and the one node before it are kernels, and it may begin while that is about to end: it says itself when it needs what
    /// that leaves (`griddepcontrol`).
    pub is_early: bool,
}

/// Code in the form that the device loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The PTX that it was compiled from.
    pub ptx: String,
    /// What the device's compiler made of it; empty where there is none.
    pub code: Vec<u8>,
}

/// A loaded image and its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedImage {
    /// For unloading.
    pub id: ImageId,
    /// Its entries, in the order of the source.
    pub entries: Vec<EntryInfo>,
    /// Memory that its code takes: machine code, or the form that is interpreted and compiled.
    pub code_bytes: u64,
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `software` or `cuda`.
    pub backend: &'static str,
    /// Marketing name.
    pub name: String,
    /// 16-byte UUID.
    pub uuid: [u8; 16],
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Granule of physical memory in bytes.
    pub granule_bytes: u64,
    /// CUDA driver version as `cuDriverGetVersion` gives it (13000).
    pub driver_version: u32,
    /// `CUdevice_attribute` number and value, for every attribute the device answers.
    pub attributes: Vec<(u32, i32)>,
    /// The architecture images are compiled for, as in `sm_90`.
    pub architecture: u32,
}

impl DeviceInfo {
    /// The value of a `CUdevice_attribute`, by its number.
    #[must_use]
    pub fn attribute(&self, number: u32) -> Option<i32> {
        self.attributes.iter().find(|(known, _)| *known == number).map(|(_, value)| *value)
    }

    /// Whether kernels can follow pointers into the ordinary memory of the process that has the device (HMM or ATS). Where they
    /// can, a shared context is not safe to run guarded sessions in.
    #[must_use]
    pub fn pageable_memory_access(&self) -> bool {
        /// `CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS`.
        const PAGEABLE_MEMORY_ACCESS: u32 = 88;
        self.attribute(PAGEABLE_MEMORY_ACCESS).is_some_and(|value| value != 0)
    }
}

/// Why a device did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The context is dead; the process must end.
    #[error("the device's context is lost: {reason}")]
    Lost {
        /// What the device reported.
        reason: String,
        /// CUDA's error number, as `CUresult` (700, 716, 719, ...).
        code: u32,
    },
    /// No memory of the kind asked for is left.
    #[error("out of device memory")]
    OutOfMemory,
    /// The image does not compile or load.
    #[error("the image does not load: {0}")]
    Image(String),
    /// The launch asks for more than the entry or the device has.
    #[error("launch out of resources: {0}")]
    LaunchResources(String),
    /// An argument that the device refuses, though it may be well formed.
    #[error("the device refused: {0}")]
    Refused(String),
    /// The device, or its driver, is not there.
    #[error("no such device: {0}")]
    Missing(String),
}
