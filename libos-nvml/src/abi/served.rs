//! Exports that are served.

use std::ffi::{c_char, c_void};

use super::args::Argument;
use super::{
    ConfComputeState, Device, FabricInfo, FieldValue, InOut, InOutSlice, Memory, Out, OutSlice, OutText,
    PciInfo, PciInfoV1, PciInfoV2, ProcessInfo, ProcessInfoV1, Text, Versioned, call,
};
use crate::{device, init, links, memory, status, system};

/// Defines exports: those that may be called `always`, and those that need `nvmlInit` first.
macro_rules! exports {
    (
        always { $($early:ident ($($earg:ident: $ekind:ty),*) => $etarget:path;)* }
        initialized { $($symbol:ident ($($arg:ident: $kind:ty),*) => $target:path;)* }
    ) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "NVML's names")]
            unsafe extern "C" fn $early($($earg: <$ekind as Argument>::C),*) -> u32 {
                call(stringify!($early), || $etarget($(
                    // SAFETY: the argument is what a C caller passed under this call's contract.
                    unsafe { <$ekind as Argument>::from_c($earg) }?
                ),*))
            }
        )*
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "NVML's names")]
            unsafe extern "C" fn $symbol($($arg: <$kind as Argument>::C),*) -> u32 {
                call(stringify!($symbol), || {
                    init::require()?;
                    $target($(
                        // SAFETY: the argument is what a C caller passed under this call's contract.
                        unsafe { <$kind as Argument>::from_c($arg) }?
                    ),*)
                })
            }
        )*

        /// These, and the one that returns no number.
        #[cfg(test)]
        pub(crate) const SERVED: &[&str] =
            &["nvmlErrorString", $(stringify!($early),)* $(stringify!($symbol)),*];
    };
}

/// Texts are the library's own and last as long as it.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NVML's name")]
extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    status::text(code).as_ptr()
}

exports! {
    always {
        nvmlInit () => init::init;
        nvmlInit_v2 () => init::init;
        nvmlInitWithFlags (flags: u32) => init::init_with_flags;
        nvmlShutdown () => init::shutdown;
        nvmlSystemGetCudaDriverVersion (to: Out<i32>) => system::cuda_version;
        nvmlSystemGetCudaDriverVersion_v2 (to: Out<i32>) => system::cuda_version;
        nvmlSystemGetNVMLVersion (to: OutText, room: u32) => system::nvml_version;
    }
    initialized {
        nvmlSystemGetDriverVersion (to: OutText, room: u32) => system::driver_version;
        nvmlSystemGetProcessName (process: u32, to: OutText, room: u32) => system::process_name;
        nvmlSystemGetConfComputeState (to: Out<ConfComputeState>) => system::conf_compute_state;
        nvmlSystemGetConfComputeSettings (to: Versioned) => system::conf_compute_settings;
        nvmlUnitGetCount (to: Out<u32>) => system::none;
        nvmlGetExcludedDeviceCount (to: Out<u32>) => system::none;

        nvmlDeviceGetCount (to: Out<u32>) => device::count;
        nvmlDeviceGetCount_v2 (to: Out<u32>) => device::count;
        nvmlDeviceGetHandleByIndex (index: u32, to: Out<*mut c_void>) => device::by_index;
        nvmlDeviceGetHandleByIndex_v2 (index: u32, to: Out<*mut c_void>) => device::by_index;
        nvmlDeviceGetHandleByPciBusId (bus: Text, to: Out<*mut c_void>) => device::by_pci_bus_id;
        nvmlDeviceGetHandleByPciBusId_v2 (bus: Text, to: Out<*mut c_void>) => device::by_pci_bus_id;
        nvmlDeviceGetHandleByUUID (uuid: Text, to: Out<*mut c_void>) => device::by_uuid;
        nvmlDeviceGetHandleByUUIDV (uuid: Versioned, to: Out<*mut c_void>) => device::by_uuid_versioned;
        nvmlDeviceGetIndex (device: Device, to: Out<u32>) => device::index;
        nvmlDeviceGetName (device: Device, to: OutText, room: u32) => device::name;
        nvmlDeviceGetUUID (device: Device, to: OutText, room: u32) => device::uuid;
        nvmlDeviceGetPciInfo (device: Device, to: Out<PciInfoV1>) => device::pci_v1;
        nvmlDeviceGetPciInfo_v2 (device: Device, to: Out<PciInfoV2>) => device::pci_v2;
        nvmlDeviceGetPciInfo_v3 (device: Device, to: Out<PciInfo>) => device::pci;
        nvmlDeviceGetPciInfoExt (device: Device, to: Versioned) => device::pci_extended;
        nvmlDeviceGetCudaComputeCapability (device: Device, major: Out<i32>, minor: Out<i32>) => device::capability;
        nvmlDeviceGetArchitecture (device: Device, to: Out<u32>) => device::architecture;
        nvmlDeviceGetMemoryBusWidth (device: Device, to: Out<u32>) => device::memory_bus_width;
        nvmlDeviceGetComputeMode (device: Device, to: Out<u32>) => device::zero;
        nvmlDeviceGetMaxMigDeviceCount (device: Device, to: Out<u32>) => device::zero;
        nvmlDeviceIsMigDeviceHandle (device: Device, to: Out<u32>) => device::zero;

        nvmlDeviceGetMemoryInfo (device: Device, to: Out<Memory>) => memory::info;
        nvmlDeviceGetMemoryInfo_v2 (device: Device, to: Versioned) => memory::info_versioned;
        nvmlDeviceGetComputeRunningProcesses (device: Device, count: InOut<u32>, to: OutSlice<ProcessInfoV1>)
            => memory::processes_v1;
        nvmlDeviceGetComputeRunningProcesses_v2 (device: Device, count: InOut<u32>, to: OutSlice<ProcessInfo>)
            => memory::processes;
        nvmlDeviceGetComputeRunningProcesses_v3 (device: Device, count: InOut<u32>, to: OutSlice<ProcessInfo>)
            => memory::processes;
        nvmlDeviceGetGraphicsRunningProcesses (device: Device, count: InOut<u32>, to: OutSlice<ProcessInfoV1>)
            => memory::no_processes;
        nvmlDeviceGetGraphicsRunningProcesses_v2 (device: Device, count: InOut<u32>, to: OutSlice<ProcessInfo>)
            => memory::no_processes;
        nvmlDeviceGetGraphicsRunningProcesses_v3 (device: Device, count: InOut<u32>, to: OutSlice<ProcessInfo>)
            => memory::no_processes;
        nvmlDeviceGetMPSComputeRunningProcesses (device: Device, count: InOut<u32>, to: OutSlice<ProcessInfoV1>)
            => memory::no_processes;
        nvmlDeviceGetMPSComputeRunningProcesses_v2 (device: Device, count: InOut<u32>, to: OutSlice<ProcessInfo>)
            => memory::no_processes;
        nvmlDeviceGetMPSComputeRunningProcesses_v3 (device: Device, count: InOut<u32>, to: OutSlice<ProcessInfo>)
            => memory::no_processes;

        nvmlDeviceGetP2PStatus (device: Device, other: Device, kind: u32, to: Out<u32>) => links::peer;
        nvmlDeviceGetTopologyCommonAncestor (device: Device, other: Device, to: Out<u32>) => links::ancestor;
        nvmlDeviceGetTopologyNearestGpus (device: Device, level: u32, count: InOut<u32>, to: OutSlice<*mut c_void>)
            => links::nearest;
        nvmlDeviceOnSameBoard (device: Device, other: Device, to: Out<i32>) => links::same_board;
        nvmlDeviceGetNvLinkState (device: Device, link: u32, to: Out<u32>) => links::state;
        nvmlDeviceGetNvLinkCapability (device: Device, link: u32, kind: u32, to: Out<u32>) => links::capability;
        nvmlDeviceGetGpuFabricInfo (device: Device, to: Out<FabricInfo>) => links::fabric;
        nvmlDeviceGetGpuFabricInfoV (device: Device, to: Versioned) => links::fabric_versioned;
        nvmlDeviceGetFieldValues (device: Device, count: i32, values: InOutSlice<FieldValue>) => links::field_values;
    }
}
