//! NVML's structures, as nvidia-ml-py 13 lays them out. A byte that only padding follows is as long as both, and so written
//! whole: nvidia-ml-py reads the fabric's state so.

/// The version of a structure: its size, and which of its forms it is.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the structures are small, which the assertions below say"
)]
pub(crate) const fn version_of<T>(form: u32) -> u32 {
    size_of::<T>() as u32 | form << 24
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident $bytes:literal { $($field:ident: $kind:ty),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind),+
        }

        // Padding would take what lies on the stack to the program: there is none.
        const _: () = assert!(size_of::<$name>() == $bytes && 0 $(+ size_of::<$kind>())+ == $bytes);
    )+};
}

layouts! {
    /// `nvmlMemory_t`.
    Memory 24 { total: u64, free: u64, used: u64 }
    /// `nvmlMemory_v2_t`.
    MemoryV2 40 { version: u32, padding: u32, total: u64, reserved: u64, free: u64, used: u64 }
    /// `nvmlProcessInfo_v1_t`.
    ProcessInfoV1 16 { pid: u32, padding: u32, used_bytes: u64 }
    /// `nvmlProcessInfo_v2_t`, which is the third too.
    ProcessInfo 24 { pid: u32, padding: u32, used_bytes: u64, gpu_instance: u32, compute_instance: u32 }
    /// What callers of the first `nvmlDeviceGetPciInfo` have room for.
    PciInfoV1 32 { bus_id: [u8; 16], domain: u32, bus: u32, device: u32, pci_device_id: u32 }
    /// `nvmlPciInfo_t` before NVML 9.
    PciInfoV2 52 {
        bus_id: [u8; 16], domain: u32, bus: u32, device: u32, pci_device_id: u32, pci_subsystem_id: u32, reserved: [u32; 4],
    }
    /// `nvmlPciInfo_t`.
    PciInfo 68 {
        bus_id_legacy: [u8; 16], domain: u32, bus: u32, device: u32, pci_device_id: u32, pci_subsystem_id: u32, bus_id: [u8; 32],
    }
    /// `nvmlPciInfoExt_v1_t`.
    PciInfoExt 64 {
        version: u32, domain: u32, bus: u32, device: u32, pci_device_id: u32, pci_subsystem_id: u32, base_class: u32,
        sub_class: u32, bus_id: [u8; 32],
    }
    /// `nvmlUUID_v1_t`.
    Uuid 52 { version: u32, kind: u32, value: [u8; 44] }
    /// `nvmlFieldValue_t`.
    FieldValue 40 {
        field: u32, scope: u32, timestamp_us: i64, latency_us: i64, value_type: u32, answer: u32, value: u64,
    }
    /// `nvmlGpuFabricInfo_t`.
    FabricInfo 28 { cluster: [u8; 16], status: u32, clique: u32, state: u32 }
    /// `nvmlGpuFabricInfo_v2_t`.
    FabricInfoV2 36 { version: u32, cluster: [u8; 16], status: u32, clique: u32, state: u32, health: u32 }
    /// `nvmlGpuFabricInfo_v3_t`.
    FabricInfoV3 40 {
        version: u32, cluster: [u8; 16], status: u32, clique: u32, state: u32, health: u32, summary: u32,
    }
    /// `nvmlConfComputeSystemState_t`.
    ConfComputeState 12 { environment: u32, feature: u32, tools: u32 }
    /// `nvmlSystemConfComputeSettings_v1_t`.
    ConfComputeSettings 20 { version: u32, environment: u32, feature: u32, tools: u32, multi_gpu: u32 }
}

// The versions that nvidia-ml-py passes.
const _: () = assert!(version_of::<MemoryV2>(2) == 0x0200_0028 && version_of::<Uuid>(1) == 0x0100_0034);
const _: () =
    assert!(version_of::<FabricInfoV2>(2) == 0x0200_0024 && version_of::<FabricInfoV3>(3) == 0x0300_0028);
const _: () = assert!(
    version_of::<PciInfoExt>(1) == 0x0100_0040 && version_of::<ConfComputeSettings>(1) == 0x0100_0014
);
