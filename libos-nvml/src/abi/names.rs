//! Exports that are not served: what the card as a whole does, what others do on it, and what a session has not.
//!
//! They are there so that a program whose loader binds every name finds them, and answer as NVML does for a device that
//! has not got something. Nothing is said on stderr unasked: who watches a card asks again and again.

use super::call;
use crate::init;
use crate::status::Status;

/// Calls that are not served for one reason.
#[cfg(test)]
pub(crate) struct Family {
    /// Why, and what to do instead.
    pub(crate) why: &'static str,
    /// The symbols.
    pub(crate) names: &'static [&'static str],
}

/// Defines exports that take no arguments: who passes some leaves them where nobody looks.
macro_rules! unserved {
    ($($why:literal { $($symbol:ident)+ })+) => {
        $($(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "NVML's names")]
            extern "C" fn $symbol() -> u32 {
                call(stringify!($symbol), || init::require().and(Err(Status::NOT_SUPPORTED)))
            }
        )+)+

        /// These calls.
        #[cfg(test)]
        pub(crate) const FAMILIES: &[Family] =
            &[$(Family { why: $why, names: &[$(stringify!($symbol)),+] }),+];
    };
}

unserved! {
    "the settings of the card belong to whoever has the machine, not to a session: ask the operator" {
        nvmlDeviceClearAccountingPids nvmlDeviceClearCpuAffinity nvmlDeviceClearEccErrorCounts
        nvmlDeviceClearFieldValues nvmlDeviceDiscoverGpus nvmlDeviceFreezeNvLinkUtilizationCounter
        nvmlDeviceLockNvlinkRemapTable_v1 nvmlDeviceModifyDrainState
        nvmlDevicePowerSmoothingActivatePresetProfile nvmlDevicePowerSmoothingSetState
        nvmlDevicePowerSmoothingUpdatePresetProfileParam nvmlDeviceReadWritePRM_v1 nvmlDeviceRegisterEvents
        nvmlDeviceRemoveGpu nvmlDeviceRemoveGpu_v2 nvmlDeviceResetApplicationsClocks
        nvmlDeviceResetGpuLockedClocks nvmlDeviceResetMemoryLockedClocks nvmlDeviceResetNvLinkErrorCounters
        nvmlDeviceResetNvLinkUtilizationCounter nvmlDeviceSetAPIRestriction nvmlDeviceSetAccountingMode
        nvmlDeviceSetAdaptiveTgpMode_v1 nvmlDeviceSetApplicationsClocks
        nvmlDeviceSetAutoBoostedClocksEnabled nvmlDeviceSetClockOffsets nvmlDeviceSetComputeMode
        nvmlDeviceSetConfComputeUnprotectedMemSize nvmlDeviceSetCpuAffinity
        nvmlDeviceSetDefaultAutoBoostedClocksEnabled nvmlDeviceSetDefaultFanSpeed_v2
        nvmlDeviceSetDramEncryptionMode nvmlDeviceSetDriverModel nvmlDeviceSetEccMode
        nvmlDeviceSetFanControlPolicy nvmlDeviceSetFanSpeed_v2 nvmlDeviceSetGpcClkVfOffset
        nvmlDeviceSetGpuLockedClocks nvmlDeviceSetGpuOperationMode nvmlDeviceSetHostname_v1
        nvmlDeviceSetMemClkVfOffset nvmlDeviceSetMemoryLimits_v1 nvmlDeviceSetMemoryLockedClocks
        nvmlDeviceSetMigMode nvmlDeviceSetNvLinkDeviceLowPowerThreshold
        nvmlDeviceSetNvLinkUtilizationControl nvmlDeviceSetNvlinkBwMode nvmlDeviceSetNvlinkBwModeAsync_v1
        nvmlDeviceSetNvlinkNvleReady_v1 nvmlDeviceSetPersistenceMode nvmlDeviceSetPowerManagementLimit
        nvmlDeviceSetPowerManagementLimit_v2 nvmlDeviceSetPowerMizerMode_v1 nvmlDeviceSetRusdSettings_v1
        nvmlDeviceSetTemperatureThreshold nvmlDeviceSetVgpuCapabilities nvmlDeviceSetVgpuHeterogeneousMode
        nvmlDeviceSetVgpuSchedulerState nvmlDeviceSetVgpuSchedulerState_v2 nvmlDeviceSetVirtualizationMode
        nvmlDeviceSetupNvlinkNvleEncryptionKey_v1 nvmlDeviceValidateInforom nvmlDeviceVgpuForceGspUnload
        nvmlDeviceWorkloadPowerProfileClearRequestedProfiles
        nvmlDeviceWorkloadPowerProfileSetRequestedProfiles nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1
        nvmlSetVgpuVersion nvmlSystemRegisterEvents nvmlSystemSetConfComputeGpusReadyState
        nvmlSystemSetConfComputeKeyRotationThresholdInfo nvmlSystemSetNvlinkBwMode nvmlUnitSetLedState
    }
    "virtual GPUs (vGPU, GRID) are not there: a session is Bulkhead's own share of the device" {
        nvmlDeviceGetActiveVgpus nvmlDeviceGetCreatableVgpus nvmlDeviceGetGridLicensableFeatures
        nvmlDeviceGetGridLicensableFeatures_v2 nvmlDeviceGetGridLicensableFeatures_v3
        nvmlDeviceGetGridLicensableFeatures_v4 nvmlDeviceGetHostVgpuMode nvmlDeviceGetPgpuMetadataString
        nvmlDeviceGetSupportedVgpus nvmlDeviceGetVgpuCapabilities nvmlDeviceGetVgpuHeterogeneousMode
        nvmlDeviceGetVgpuInstancesUtilizationInfo nvmlDeviceGetVgpuMetadata
        nvmlDeviceGetVgpuProcessUtilization nvmlDeviceGetVgpuProcessesUtilizationInfo
        nvmlDeviceGetVgpuSchedulerCapabilities nvmlDeviceGetVgpuSchedulerLog
        nvmlDeviceGetVgpuSchedulerLog_v2 nvmlDeviceGetVgpuSchedulerState nvmlDeviceGetVgpuSchedulerState_v2
        nvmlDeviceGetVgpuTypeCreatablePlacements nvmlDeviceGetVgpuTypeSupportedPlacements
        nvmlDeviceGetVgpuUtilization nvmlDeviceGetVirtualizationMode nvmlGetVgpuCompatibility
        nvmlGetVgpuDriverCapabilities nvmlGetVgpuVersion nvmlGpuInstanceGetActiveVgpus
        nvmlGpuInstanceGetCreatableVgpus nvmlGpuInstanceGetVgpuHeterogeneousMode
        nvmlGpuInstanceGetVgpuSchedulerLog nvmlGpuInstanceGetVgpuSchedulerLog_v2
        nvmlGpuInstanceGetVgpuSchedulerState nvmlGpuInstanceGetVgpuSchedulerState_v2
        nvmlGpuInstanceGetVgpuTypeCreatablePlacements nvmlGpuInstanceSetVgpuHeterogeneousMode
        nvmlGpuInstanceSetVgpuSchedulerState nvmlGpuInstanceSetVgpuSchedulerState_v2
        nvmlVgpuInstanceClearAccountingPids nvmlVgpuInstanceGetAccountingMode
        nvmlVgpuInstanceGetAccountingPids nvmlVgpuInstanceGetAccountingStats nvmlVgpuInstanceGetEccMode
        nvmlVgpuInstanceGetEncoderCapacity nvmlVgpuInstanceGetEncoderSessions
        nvmlVgpuInstanceGetEncoderStats nvmlVgpuInstanceGetFBCSessions nvmlVgpuInstanceGetFBCStats
        nvmlVgpuInstanceGetFbUsage nvmlVgpuInstanceGetFrameRateLimit nvmlVgpuInstanceGetGpuInstanceId
        nvmlVgpuInstanceGetGpuPciId nvmlVgpuInstanceGetLicenseInfo nvmlVgpuInstanceGetLicenseInfo_v2
        nvmlVgpuInstanceGetLicenseStatus nvmlVgpuInstanceGetMdevUUID nvmlVgpuInstanceGetMetadata
        nvmlVgpuInstanceGetPlacementId nvmlVgpuInstanceGetRuntimeStateSize nvmlVgpuInstanceGetType
        nvmlVgpuInstanceGetUUID nvmlVgpuInstanceGetVmDriverVersion nvmlVgpuInstanceGetVmID
        nvmlVgpuInstanceSetEncoderCapacity nvmlVgpuTypeGetBAR1Info nvmlVgpuTypeGetCapabilities
        nvmlVgpuTypeGetClass nvmlVgpuTypeGetDeviceID nvmlVgpuTypeGetFbReservation
        nvmlVgpuTypeGetFrameRateLimit nvmlVgpuTypeGetFramebufferSize nvmlVgpuTypeGetGpuInstanceProfileId
        nvmlVgpuTypeGetGspHeapSize nvmlVgpuTypeGetLicense nvmlVgpuTypeGetMaxInstances
        nvmlVgpuTypeGetMaxInstancesPerGpuInstance nvmlVgpuTypeGetMaxInstancesPerVm nvmlVgpuTypeGetName
        nvmlVgpuTypeGetNumDisplayHeads nvmlVgpuTypeGetResolution
    }
    "instances of MIG are not shown: a session is Bulkhead's own share of the device" {
        nvmlComputeInstanceDestroy nvmlComputeInstanceGetInfo nvmlComputeInstanceGetInfo_v2
        nvmlDeviceCreateGpuInstance nvmlDeviceCreateGpuInstanceWithPlacement nvmlDeviceGetAttributes
        nvmlDeviceGetAttributes_v2 nvmlDeviceGetComputeInstanceId
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle nvmlDeviceGetGpuInstanceById nvmlDeviceGetGpuInstanceId
        nvmlDeviceGetGpuInstancePossiblePlacements nvmlDeviceGetGpuInstancePossiblePlacements_v2
        nvmlDeviceGetGpuInstanceProfileInfo nvmlDeviceGetGpuInstanceProfileInfoByIdV
        nvmlDeviceGetGpuInstanceProfileInfoV nvmlDeviceGetGpuInstanceRemainingCapacity
        nvmlDeviceGetGpuInstances nvmlDeviceGetMigDeviceHandleByIndex nvmlDeviceGetMigMode
        nvmlGpmMigSampleGet nvmlGpuInstanceCreateComputeInstance
        nvmlGpuInstanceCreateComputeInstanceWithPlacement nvmlGpuInstanceDestroy
        nvmlGpuInstanceGetComputeInstanceById nvmlGpuInstanceGetComputeInstancePossiblePlacements
        nvmlGpuInstanceGetComputeInstanceProfileInfo nvmlGpuInstanceGetComputeInstanceProfileInfoV
        nvmlGpuInstanceGetComputeInstanceRemainingCapacity nvmlGpuInstanceGetComputeInstances
        nvmlGpuInstanceGetInfo
    }
    "events of the card are not told: a program learns what ends its session from its own calls" {
        nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetSupportedClocksEventReasons
        nvmlDeviceGetSupportedEventTypes nvmlEventSetCreate nvmlEventSetFree nvmlEventSetGetContextCount_v1
        nvmlEventSetGetContextData_v1 nvmlEventSetGetContextInfo_v1
        nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1 nvmlEventSetRegisterGpuOperationalEvents_v1
        nvmlEventSetWait nvmlEventSetWait_v2 nvmlEventSetWait_v3 nvmlSystemEventSetCreate
        nvmlSystemEventSetFree nvmlSystemEventSetWait nvmlSystemGetCPER_v1
    }
    "links and fabric are not shown, since a session has one device: nvmlDeviceGetNvLinkState says that links are down" {
        nvmlDeviceGetC2cModeInfoV nvmlDeviceGetGpuFabricInfo_v4 nvmlDeviceGetNvLinkErrorCounter
        nvmlDeviceGetNvLinkInfo nvmlDeviceGetNvLinkInfo_v3 nvmlDeviceGetNvLinkRemoteDeviceType
        nvmlDeviceGetNvLinkRemotePciInfo nvmlDeviceGetNvLinkRemotePciInfo_v2
        nvmlDeviceGetNvLinkTelemetrySamples_v1 nvmlDeviceGetNvLinkUtilizationControl
        nvmlDeviceGetNvLinkUtilizationCounter nvmlDeviceGetNvLinkVersion nvmlDeviceGetNvlinkBwMode
        nvmlDeviceGetNvlinkNvlePrivateInfo_v1 nvmlDeviceGetNvlinkRemapTableInfo_v1
        nvmlDeviceGetNvlinkSupportedBwModes nvmlDeviceGetPlatformInfo nvmlSystemGetNvlinkBwMode
    }
    "confidential computing is not there: nvmlSystemGetConfComputeSettings says that it is off" {
        nvmlDeviceGetConfComputeGpuAttestationReport nvmlDeviceGetConfComputeGpuCertificate
        nvmlDeviceGetConfComputeMemSizeInfo nvmlDeviceGetConfComputeProtectedMemoryUsage
        nvmlDeviceGetDramEncryptionMode nvmlSystemGetConfComputeCapabilities
        nvmlSystemGetConfComputeGpusReadyState nvmlSystemGetConfComputeKeyRotationThresholdInfo
        nvmlSystemGetConfComputeSettings_v2
    }
    "units, boards and other parts of the machine are not shown: ask the operator" {
        nvmlDeviceGetAddressingMode nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetBoardId
        nvmlDeviceGetBoardPartNumber nvmlDeviceGetBrand nvmlDeviceGetBridgeChipInfo nvmlDeviceGetBusType
        nvmlDeviceGetCapabilities nvmlDeviceGetCpuAffinity nvmlDeviceGetCpuAffinityWithinScope
        nvmlDeviceGetDisplayActive nvmlDeviceGetDisplayMode nvmlDeviceGetDriverModel
        nvmlDeviceGetDriverModel_v2 nvmlDeviceGetGpuOperationMode nvmlDeviceGetGspFirmwareMode
        nvmlDeviceGetGspFirmwareVersion nvmlDeviceGetHandleBySerial nvmlDeviceGetHostname_v1
        nvmlDeviceGetInforomConfigurationChecksum nvmlDeviceGetInforomImageVersion
        nvmlDeviceGetInforomVersion nvmlDeviceGetIrqNum nvmlDeviceGetMemoryAffinity nvmlDeviceGetMinorNumber
        nvmlDeviceGetModuleId nvmlDeviceGetMultiGpuBoard nvmlDeviceGetNumaNodeId nvmlDeviceGetPdi
        nvmlDeviceGetSerial nvmlDeviceGetVbiosVersion nvmlGetExcludedDeviceInfoByIndex
        nvmlSystemGetDriverBranch nvmlSystemGetHicVersion nvmlSystemGetTopologyGpuSet nvmlUnitGetDevices
        nvmlUnitGetFanSpeedInfo nvmlUnitGetHandleByIndex nvmlUnitGetLedState nvmlUnitGetPsuInfo
        nvmlUnitGetTemperature nvmlUnitGetUnitInfo
    }
    "what the whole card does is not told to one session, since others use it too: time the program, or ask the operator for bulkhead status" {
        nvmlDeviceGetAPIRestriction nvmlDeviceGetAccountingBufferSize nvmlDeviceGetAccountingMode
        nvmlDeviceGetAccountingPids nvmlDeviceGetAccountingStats nvmlDeviceGetAccountingStats_v2
        nvmlDeviceGetAdaptiveClockInfoStatus nvmlDeviceGetAdaptiveTgpModeInfo_v1
        nvmlDeviceGetApplicationsClock nvmlDeviceGetAutoBoostedClocksEnabled nvmlDeviceGetBBXTimeData_v1
        nvmlDeviceGetBankRemapperStatus_v1 nvmlDeviceGetClkMonStatus nvmlDeviceGetClock
        nvmlDeviceGetClockInfo nvmlDeviceGetClockOffsets nvmlDeviceGetCoolerInfo
        nvmlDeviceGetCurrPcieLinkGeneration nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetCurrentClockFreqs
        nvmlDeviceGetCurrentClocksThrottleReasons nvmlDeviceGetDecoderUtilization
        nvmlDeviceGetDefaultApplicationsClock nvmlDeviceGetDefaultEccMode nvmlDeviceGetDetailedEccErrors
        nvmlDeviceGetDynamicPstatesInfo nvmlDeviceGetEccMode nvmlDeviceGetEncoderCapacity
        nvmlDeviceGetEncoderSessions nvmlDeviceGetEncoderStats nvmlDeviceGetEncoderUtilization
        nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetFBCSessions nvmlDeviceGetFBCStats
        nvmlDeviceGetFanControlPolicy_v2 nvmlDeviceGetFanSpeed nvmlDeviceGetFanSpeedRPM
        nvmlDeviceGetFanSpeed_v2 nvmlDeviceGetGpcClkMinMaxVfOffset nvmlDeviceGetGpcClkVfOffset
        nvmlDeviceGetGpuMaxPcieLinkGeneration nvmlDeviceGetGpuUptime_v1 nvmlDeviceGetJpgUtilization
        nvmlDeviceGetLastBBXFlushTime nvmlDeviceGetMarginTemperature nvmlDeviceGetMaxClockInfo
        nvmlDeviceGetMaxCustomerBoostClock nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetMaxPcieLinkWidth
        nvmlDeviceGetMemClkMinMaxVfOffset nvmlDeviceGetMemClkVfOffset nvmlDeviceGetMemoryErrorCounter
        nvmlDeviceGetMemoryLimits_v1 nvmlDeviceGetMinMaxClockOfPState nvmlDeviceGetMinMaxFanSpeed
        nvmlDeviceGetNumFans nvmlDeviceGetNumGpuCores nvmlDeviceGetOfaUtilization
        nvmlDeviceGetPcieLinkMaxSpeed nvmlDeviceGetPcieReplayCounter nvmlDeviceGetPcieSpeed
        nvmlDeviceGetPcieThroughput nvmlDeviceGetPerformanceModes nvmlDeviceGetPerformanceState
        nvmlDeviceGetPersistenceMode nvmlDeviceGetPowerManagementDefaultLimit
        nvmlDeviceGetPowerManagementLimit nvmlDeviceGetPowerManagementLimitConstraints
        nvmlDeviceGetPowerManagementMode nvmlDeviceGetPowerMizerMode_v1 nvmlDeviceGetPowerSource
        nvmlDeviceGetPowerState nvmlDeviceGetPowerUsage nvmlDeviceGetProcessUtilization
        nvmlDeviceGetProcessesUtilizationInfo nvmlDeviceGetRemappedRows nvmlDeviceGetRemappedRows_v2
        nvmlDeviceGetRepairStatus nvmlDeviceGetRetiredPages nvmlDeviceGetRetiredPagesPendingStatus
        nvmlDeviceGetRetiredPages_v2 nvmlDeviceGetRowRemapperHistogram nvmlDeviceGetRunningProcessDetailList
        nvmlDeviceGetSamples nvmlDeviceGetSramEccErrorStatus
        nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts nvmlDeviceGetSupportedClocksThrottleReasons
        nvmlDeviceGetSupportedGraphicsClocks nvmlDeviceGetSupportedMemoryClocks
        nvmlDeviceGetSupportedPerformanceStates nvmlDeviceGetTargetFanSpeed nvmlDeviceGetTemperature
        nvmlDeviceGetTemperatureThreshold nvmlDeviceGetTemperatureV nvmlDeviceGetThermalSettings
        nvmlDeviceGetTotalEccErrors nvmlDeviceGetTotalEnergyConsumption
        nvmlDeviceGetUnrepairableMemoryFlag_v1 nvmlDeviceGetUtilizationRates nvmlDeviceGetViolationStatus
        nvmlDevicePerfMetricsGetSamples_v1 nvmlDeviceQueryDrainState nvmlDeviceReadPRMCounters_v1
        nvmlDeviceWorkloadPowerProfileGetCurrentProfiles nvmlDeviceWorkloadPowerProfileGetProfilesInfo
        nvmlGpmMetricsGet nvmlGpmQueryDeviceSupport nvmlGpmQueryIfStreamingEnabled nvmlGpmSampleAlloc
        nvmlGpmSampleFree nvmlGpmSampleGet nvmlGpmSetStreamingEnabled
    }
}
