//! `nvmlReturn_t`: numbers and texts, as nvidia-ml-py has them.

use std::ffi::CStr;

use bulkhead_schema::ErrorCode;

/// What a call returns in place of nothing.
pub(crate) type Answer = Result<(), Status>;

/// `NVML_SUCCESS`.
pub(crate) const SUCCESS: u32 = 0;

/// Why a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(u32);

impl Status {
    pub(crate) const UNINITIALIZED: Status = Status(1);
    pub(crate) const INVALID_ARGUMENT: Status = Status(2);
    pub(crate) const NOT_SUPPORTED: Status = Status(3);
    pub(crate) const NOT_FOUND: Status = Status(6);
    pub(crate) const INSUFFICIENT_SIZE: Status = Status(7);
    pub(crate) const DRIVER_NOT_LOADED: Status = Status(9);
    pub(crate) const GPU_IS_LOST: Status = Status(15);
    pub(crate) const INSUFFICIENT_RESOURCES: Status = Status(23);
    pub(crate) const VERSION_MISMATCH: Status = Status(25);
    pub(crate) const UNKNOWN: Status = Status(999);

    pub(crate) fn code(self) -> u32 {
        self.0
    }

    /// What a kernel's error is to a program that had a device a moment ago.
    pub(crate) fn of(code: ErrorCode) -> Status {
        match code {
            ErrorCode::LimitReached => Status::INSUFFICIENT_RESOURCES,
            ErrorCode::Unavailable | ErrorCode::SessionLost | ErrorCode::DeviceLost => Status::GPU_IS_LOST,
            ErrorCode::Internal
            | ErrorCode::InvalidArgument
            | ErrorCode::InvalidHandle
            | ErrorCode::NotFound
            | ErrorCode::NotPermitted
            | ErrorCode::NotSupported
            | ErrorCode::OutOfMemory
            | ErrorCode::ImageInvalid
            | ErrorCode::ImageRefused
            | ErrorCode::LaunchResources
            | ErrorCode::Protocol
            | ErrorCode::TimedOut
            | ErrorCode::Version
            | ErrorCode::Revoked
            | ErrorCode::WorkLost
            | ErrorCode::LaunchTimeout
            | ErrorCode::Trapped
            | ErrorCode::AssertionFailed => Status::UNKNOWN,
        }
    }
}

/// Texts by number.
const TEXTS: &[(u32, &CStr)] = &[
    (0, c"Success"),
    (1, c"Uninitialized"),
    (2, c"Invalid Argument"),
    (3, c"Not Supported"),
    (4, c"Insufficient Permissions"),
    (5, c"Already Initialized"),
    (6, c"Not Found"),
    (7, c"Insufficient Size"),
    (8, c"Insufficient External Power"),
    (9, c"Driver Not Loaded"),
    (10, c"Timeout"),
    (11, c"Interrupt Request Issue"),
    (12, c"NVML Shared Library Not Found"),
    (13, c"Function Not Found"),
    (14, c"Corrupted infoROM"),
    (15, c"GPU is lost"),
    (16, c"GPU requires reset"),
    (17, c"Blocked by the operating system"),
    (18, c"Versions of driver and library differ"),
    (19, c"In use by another client"),
    (20, c"Insufficient Memory"),
    (21, c"No data"),
    (22, c"Not available with ECC enabled"),
    (23, c"Insufficient resources"),
    (24, c"Frequency not supported"),
    (25, c"Version of the argument not supported"),
    (26, c"Deprecated"),
    (27, c"Not ready"),
    (28, c"No GPU found"),
    (29, c"Invalid state"),
    (30, c"Kind of reset not supported"),
    (999, c"Unknown Error"),
];

/// What a number means; never null.
pub(crate) fn text(code: u32) -> &'static CStr {
    TEXTS.iter().find(|(known, _)| *known == code).map_or(c"Unknown Error", |(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_text() {
        assert_eq!(text(Status::NOT_SUPPORTED.code()), c"Not Supported");
        assert_eq!(text(31), text(Status::UNKNOWN.code()));
        assert!(TEXTS.windows(2).all(|two| two[0].0 < two[1].0));
    }
}
