//! What the software GPU says it is.

use bulkhead_gpu::DeviceInfo;

use crate::memory::GRANULE_BYTES;

/// Shared memory of a block without opting in.
pub(crate) const SHARED_BYTES_DEFAULT: u32 = 48 << 10;
/// Shared memory of a block at most.
pub(crate) const SHARED_BYTES_MAX: u32 = 227 << 10;

/// `CUdevice_attribute` numbers and values that do not depend on the host. Where a number stands for
/// something that a GPU of this architecture can and this one cannot do, the value says that it cannot.
const ATTRIBUTES: &[(u32, i32)] = &[
    (1, 1024),                        // MAX_THREADS_PER_BLOCK
    (2, 1024),                        // MAX_BLOCK_DIM_X
    (3, 1024),                        // MAX_BLOCK_DIM_Y
    (4, 64),                          // MAX_BLOCK_DIM_Z
    (5, i32::MAX),                    // MAX_GRID_DIM_X
    (6, 65_535),                      // MAX_GRID_DIM_Y
    (7, 65_535),                      // MAX_GRID_DIM_Z
    (8, SHARED_BYTES_DEFAULT as i32), // MAX_SHARED_MEMORY_PER_BLOCK
    (9, 65_536),                      // TOTAL_CONSTANT_MEMORY
    (10, 32),                         // WARP_SIZE
    (11, i32::MAX),                   // MAX_PITCH
    (12, 65_536),                     // MAX_REGISTERS_PER_BLOCK
    (13, 1_000_000),                  // CLOCK_RATE in kHz: %clock64 counts nanoseconds
    (14, 512),                        // TEXTURE_ALIGNMENT
    (15, 1),                          // GPU_OVERLAP
    (17, 0),                          // KERNEL_EXEC_TIMEOUT
    (18, 0),                          // INTEGRATED
    (19, 1),                          // CAN_MAP_HOST_MEMORY
    (20, 0),                          // COMPUTE_MODE
    (21, 131_072),                    // MAXIMUM_TEXTURE1D_WIDTH
    (22, 131_072),                    // MAXIMUM_TEXTURE2D_WIDTH
    (23, 65_536),                     // MAXIMUM_TEXTURE2D_HEIGHT
    (24, 16_384),                     // MAXIMUM_TEXTURE3D_WIDTH
    (25, 16_384),                     // MAXIMUM_TEXTURE3D_HEIGHT
    (26, 16_384),                     // MAXIMUM_TEXTURE3D_DEPTH
    (27, 32_768),                     // MAXIMUM_TEXTURE2D_LAYERED_WIDTH
    (28, 32_768),                     // MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
    (29, 2_048),                      // MAXIMUM_TEXTURE2D_LAYERED_LAYERS
    (30, 512),                        // SURFACE_ALIGNMENT
    (31, 1),                          // CONCURRENT_KERNELS
    (32, 0),                          // ECC_ENABLED
    (33, 0),                          // PCI_BUS_ID
    (34, 0),                          // PCI_DEVICE_ID
    (35, 0),                          // TCC_DRIVER
    (36, 1_000_000),                  // MEMORY_CLOCK_RATE in kHz
    (37, 64),                         // GLOBAL_MEMORY_BUS_WIDTH
    (38, 4 << 20),                    // L2_CACHE_SIZE
    (39, 2_048),                      // MAX_THREADS_PER_MULTIPROCESSOR
    (40, 1),                          // ASYNC_ENGINE_COUNT
    (41, 1),                          // UNIFIED_ADDRESSING
    (42, 32_768),                     // MAXIMUM_TEXTURE1D_LAYERED_WIDTH
    (43, 2_048),                      // MAXIMUM_TEXTURE1D_LAYERED_LAYERS
    (50, 0),                          // PCI_DOMAIN_ID
    (51, 32),                         // TEXTURE_PITCH_ALIGNMENT
    (75, 9),                          // COMPUTE_CAPABILITY_MAJOR
    (76, 0),                          // COMPUTE_CAPABILITY_MINOR
    (78, 1),                          // STREAM_PRIORITIES_SUPPORTED
    (79, 1),                          // GLOBAL_L1_CACHE_SUPPORTED
    (80, 1),                          // LOCAL_L1_CACHE_SUPPORTED
    (81, 228 << 10),                  // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    (82, 65_536),                     // MAX_REGISTERS_PER_MULTIPROCESSOR
    (83, 0),                          // MANAGED_MEMORY
    (84, 0),                          // MULTI_GPU_BOARD
    (85, 0),                          // MULTI_GPU_BOARD_GROUP_ID
    (86, 0),                          // HOST_NATIVE_ATOMIC_SUPPORTED
    (87, 2),                          // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
    (88, 0),                          // PAGEABLE_MEMORY_ACCESS
    (89, 0),                          // CONCURRENT_MANAGED_ACCESS
    (90, 1),                          // COMPUTE_PREEMPTION_SUPPORTED
    (91, 0),                          // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (95, 1),                          // COOPERATIVE_LAUNCH
    (96, 0),                          // COOPERATIVE_MULTI_DEVICE_LAUNCH
    (97, SHARED_BYTES_MAX as i32),    // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    (98, 0),                          // CAN_FLUSH_REMOTE_WRITES
    (99, 1),                          // HOST_REGISTER_SUPPORTED
    (100, 0),                         // PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
    (101, 0),                         // DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
    (102, 0),                         // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (103, 0),                         // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    (106, 32),                        // MAX_BLOCKS_PER_MULTIPROCESSOR
    (107, 0),                         // GENERIC_COMPRESSION_SUPPORTED
    (108, 0),                         // MAX_PERSISTING_L2_CACHE_SIZE
    (109, 0),                         // MAX_ACCESS_POLICY_WINDOW_SIZE
    (110, 0),                         // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
    (111, 1024),                      // RESERVED_SHARED_MEMORY_PER_BLOCK
    (112, 0),                         // SPARSE_CUDA_ARRAY_SUPPORTED
    (113, 0),                         // READ_ONLY_HOST_REGISTER_SUPPORTED
    (114, 0),                         // TIMELINE_SEMAPHORE_INTEROP_SUPPORTED
    (115, 0),                         // MEMORY_POOLS_SUPPORTED
    (116, 0),                         // GPU_DIRECT_RDMA_SUPPORTED
    (117, 0),                         // GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
    (118, 0),                         // GPU_DIRECT_RDMA_WRITES_ORDERING
    (119, 0),                         // MEMPOOL_SUPPORTED_HANDLE_TYPES
    (120, 0),                         // CLUSTER_LAUNCH
    (121, 0),                         // DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
    (122, 1),                         // CAN_USE_64_BIT_STREAM_MEM_OPS
    (123, 0),                         // CAN_USE_STREAM_WAIT_VALUE_NOR
    (124, 0),                         // DMA_BUF_SUPPORTED
    (125, 0),                         // IPC_EVENT_SUPPORTED
    (126, 1),                         // MEM_SYNC_DOMAIN_COUNT
    (127, 0),                         // TENSOR_MAP_ACCESS_SUPPORTED
    (128, 0),                         // HANDLE_TYPE_FABRIC_SUPPORTED
    (129, 0),                         // UNIFIED_FUNCTION_POINTERS
    (130, 0),                         // NUMA_CONFIG
    (131, -1),                        // NUMA_ID
    (132, 0),                         // MULTICAST_SUPPORTED
    (133, 0),                         // MPS_ENABLED
    (134, -1),                        // HOST_NUMA_ID
];

/// The largest attribute that CUDA 13.0 knows. A driver answers every one: 0 where it does not have the thing.
const ATTRIBUTE_MAX: u32 = 148;

/// Describes a device with so much memory and so many multiprocessors.
pub(crate) fn info(memory_bytes: u64, multiprocessors: u32) -> DeviceInfo {
    let mut attributes = ATTRIBUTES.to_vec();
    attributes.push((16, i32::try_from(multiprocessors).unwrap_or(i32::MAX)));
    let known: Vec<u32> = attributes.iter().map(|(number, _)| *number).collect();
    attributes.extend((1..=ATTRIBUTE_MAX).filter(|number| !known.contains(number)).map(|number| (number, 0)));
    attributes.sort_unstable();
    DeviceInfo {
        backend: "software",
        name: "Bulkhead software GPU".to_owned(),
        uuid: *b"bulkhead softgpu",
        memory_bytes,
        granule_bytes: GRANULE_BYTES,
        driver_version: 13_000,
        attributes,
        architecture: 90,
    }
}
