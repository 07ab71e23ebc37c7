//! Device attributes that are different for a program on Bulkhead than for one on the device.

use crate::device::Domain;

/// Attributes by `CUdevice_attribute` number that Bulkhead answers itself: what it does not offer is said not to
/// be there, so that programs take another way.
#[rustfmt::skip]
const OURS: &[(u32, i32)] = &[
    (17, 0),  // KERNEL_EXEC_TIMEOUT
    (19, 1),  // CAN_MAP_HOST_MEMORY
    (20, 0),  // COMPUTE_MODE: default
    (41, 1),  // UNIFIED_ADDRESSING
    (78, 1),  // STREAM_PRIORITIES_SUPPORTED
    (83, 1),  // MANAGED_MEMORY
    (88, 0),  // PAGEABLE_MEMORY_ACCESS
    (89, 1),  // CONCURRENT_MANAGED_ACCESS
    (91, 0),  // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (92, 0),  // CAN_USE_STREAM_MEM_OPS_V1
    (93, 0),  // CAN_USE_64_BIT_STREAM_MEM_OPS_V1
    (94, 0),  // CAN_USE_STREAM_WAIT_VALUE_NOR_V1
    (96, 0),  // COOPERATIVE_MULTI_DEVICE_LAUNCH
    (99, 1),  // HOST_REGISTER_SUPPORTED
    (100, 0), // PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
    (101, 0), // DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
    (102, 1), // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (103, 1), // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    (107, 0), // GENERIC_COMPRESSION_SUPPORTED
    (108, 0), // MAX_PERSISTING_L2_CACHE_SIZE
    (109, 0), // MAX_ACCESS_POLICY_WINDOW_SIZE
    (110, 0), // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
    (112, 0), // SPARSE_CUDA_ARRAY_SUPPORTED
    (113, 0), // READ_ONLY_HOST_REGISTER_SUPPORTED
    (114, 0), // TIMELINE_SEMAPHORE_INTEROP_SUPPORTED
    (115, 1), // MEMORY_POOLS_SUPPORTED
    (116, 0), // GPU_DIRECT_RDMA_SUPPORTED
    (117, 0), // GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
    (118, 0), // GPU_DIRECT_RDMA_WRITES_ORDERING
    (119, 1), // MEMPOOL_SUPPORTED_HANDLE_TYPES
    (120, 0), // CLUSTER_LAUNCH
    (121, 0), // DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
    (122, 0), // CAN_USE_64_BIT_STREAM_MEM_OPS
    (123, 0), // CAN_USE_STREAM_WAIT_VALUE_NOR
    (124, 0), // DMA_BUF_SUPPORTED
    (125, 1), // IPC_EVENT_SUPPORTED
    (126, 1), // MEM_SYNC_DOMAIN_COUNT
    (127, 0), // TENSOR_MAP_ACCESS_SUPPORTED
    (128, 0), // HANDLE_TYPE_FABRIC_SUPPORTED
    (129, 0), // UNIFIED_FUNCTION_POINTERS
    (132, 0), // MULTICAST_SUPPORTED
    (133, 0), // MPS_ENABLED
    (136, 0), // MEM_DECOMPRESS_ALGORITHM_MASK
    (137, 0), // MEM_DECOMPRESS_MAXIMUM_LENGTH
    (141, 0), // HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (142, 0), // HOST_NUMA_MEMORY_POOLS_SUPPORTED
    (143, 0), // HOST_NUMA_MULTINODE_IPC_SUPPORTED
    (144, 0), // HOST_MEMORY_POOLS_SUPPORTED
    (145, 0), // HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (146, 0), // HOST_ALLOC_DMA_BUF_SUPPORTED
];

/// Those of them that are the device's own in an isolated session.
const ITS_OWN_ISOLATED: &[u32] = &[120, 127];

pub(crate) const THREADS_PER_BLOCK_MAX: u32 = 1;
pub(crate) const BLOCK_X_MAX: u32 = 2;
pub(crate) const GRID_X_MAX: u32 = 5;
pub(crate) const SHARED_BYTES_PER_BLOCK: u32 = 8;
pub(crate) const WARP_THREADS: u32 = 10;
pub(crate) const REGISTERS_PER_BLOCK: u32 = 12;
pub(crate) const MULTIPROCESSORS: u32 = 16;
pub(crate) const PCI_BUS: u32 = 33;
pub(crate) const PCI_DEVICE: u32 = 34;
pub(crate) const THREADS_PER_MULTIPROCESSOR: u32 = 39;
pub(crate) const PCI_DOMAIN: u32 = 50;
pub(crate) const TEXTURE1D_LINEAR_WIDTH_MAX: u32 = 69;
pub(crate) const CAPABILITY_MAJOR: u32 = 75;
pub(crate) const CAPABILITY_MINOR: u32 = 76;
pub(crate) const SHARED_BYTES_PER_MULTIPROCESSOR: u32 = 81;
pub(crate) const REGISTERS_PER_MULTIPROCESSOR: u32 = 82;
pub(crate) const SHARED_BYTES_PER_BLOCK_MAX: u32 = 97;
pub(crate) const BLOCKS_PER_MULTIPROCESSOR: u32 = 106;
pub(crate) const SHARED_BYTES_RESERVED: u32 = 111;

/// The value of an attribute that Bulkhead answers itself.
pub(crate) fn ours(number: u32, domain: Domain) -> Option<i32> {
    if domain == Domain::Isolated && ITS_OWN_ISOLATED.contains(&number) {
        return None;
    }
    OURS.iter().find(|(listed, _)| *listed == number).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_those_of_the_header() {
        let Some(header) = crate::tests::header("cuda.h") else { return };
        let text = include_str!("attributes.rs");
        let mut seen = 0;
        for line in text.lines().filter(|line| line.starts_with("    (")) {
            let Some((row, name)) =
                line.trim().split_once(", // ").or_else(|| line.trim().split_once(",  // "))
            else {
                continue;
            };
            let number: u32 = row.trim_start_matches('(').split(',').next().unwrap().parse().unwrap();
            let name = format!("CU_DEVICE_ATTRIBUTE_{}", name.split(':').next().unwrap());
            let listed =
                header.lines().find(|line| line.trim_start().starts_with(&format!("{name} "))).unwrap();
            let value = listed.split('=').nth(1).unwrap().trim();
            let value = value.split(|c: char| !c.is_ascii_digit()).next().unwrap();
            assert_eq!(value.parse::<u32>().unwrap(), number, "{name}");
            seen += 1;
        }
        assert_eq!(seen, OURS.len());
    }
}
