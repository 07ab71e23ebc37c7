//! The memories of a program, and which of them a generic address means.

/// Where shared memory starts for a block: the first KiB belongs to the system, as on sm_90.
pub(crate) const SHARED_BASE: u64 = 1024;
/// Generic addresses of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x7fff_f200_0000;
/// Generic addresses of shared memory.
pub(crate) const SHARED_WINDOW: u64 = 0x7fff_f400_0000;
/// Generic addresses of constant memory.
pub(crate) const CONSTANT_WINDOW: u64 = 0x7fff_f600_0000;
/// Generic addresses of the parameter block.
pub(crate) const PARAMETER_WINDOW: u64 = 0x7fff_f700_0000;
/// Length of each window.
const WINDOW_BYTES: u64 = 16 << 20;

/// The memory that an access goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Region {
    /// `.global`
    Global,
    /// `.shared`
    Shared,
    /// `.local`
    Local,
    /// `.const`
    Constant,
    /// `.param`
    Parameter,
    /// None given: the address says which.
    Generic,
}

/// Which memory a generic address means.
#[inline(always)]
pub(crate) fn region_of(address: u64) -> Region {
    let within = |window: u64| address.wrapping_sub(window) < WINDOW_BYTES;
    if within(SHARED_WINDOW) {
        Region::Shared
    } else if within(LOCAL_WINDOW) {
        Region::Local
    } else if within(CONSTANT_WINDOW) {
        Region::Constant
    } else if within(PARAMETER_WINDOW) {
        Region::Parameter
    } else {
        Region::Global
    }
}

/// `isspacep`: the windows of constants and parameters count as global memory too (ISA, "Generic
/// Addressing").
pub(crate) fn lies_in(region: Region, address: u64) -> bool {
    match (region, region_of(address)) {
        (Region::Generic, _) => true,
        (Region::Global, is) => !matches!(is, Region::Shared | Region::Local),
        (wanted, is) => wanted == is,
    }
}
