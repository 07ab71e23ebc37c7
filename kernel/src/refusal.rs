//! What clients are told when the tree, the regions or the ledger refuse.

use bulkhead_caps as caps;
use bulkhead_mm::{LedgerError, RegionError, Resource};
use bulkhead_schema::{Error, ErrorCode};

pub(crate) fn tree(error: caps::Error) -> Error {
    let code = match error {
        caps::Error::Full { .. } | caps::Error::TreeFull { .. } => ErrorCode::LimitReached,
        caps::Error::Stale { .. } | caps::Error::WrongKind { .. } => ErrorCode::InvalidHandle,
        caps::Error::NotAllowed { .. } => ErrorCode::NotPermitted,
        caps::Error::OutOfReach { .. } => ErrorCode::InvalidArgument,
        caps::Error::Unknown(_) | caps::Error::InUse => ErrorCode::Internal,
    };
    Error::new(code, error.to_string())
}

pub(crate) fn region(error: RegionError) -> Error {
    let code = match error {
        RegionError::Empty => ErrorCode::InvalidArgument,
        RegionError::Full { .. } => ErrorCode::OutOfMemory,
        RegionError::Mismatch { .. } => ErrorCode::Internal,
    };
    Error::new(code, error.to_string())
}

pub(crate) fn ledger(error: LedgerError) -> Error {
    let code = match error {
        LedgerError::AccountLimit { resource, .. }
        | LedgerError::AncestorLimit { resource, .. }
        | LedgerError::TotalLimit { resource, .. } => match resource {
            Resource::DeviceBytes
            | Resource::HostBytes
            | Resource::SwapBytes
            | Resource::CodeBytes
            | Resource::LocalBytes => ErrorCode::OutOfMemory,
            Resource::Capabilities
            | Resource::Images
            | Resource::Streams
            | Resource::Events
            | Resource::Fences
            | Resource::Tokens
            | Resource::Descriptors
            | Resource::CompileMilliseconds => ErrorCode::LimitReached,
        },
        LedgerError::TooDeep => ErrorCode::LimitReached,
        LedgerError::NoAccount
        | LedgerError::Underflow { .. }
        | LedgerError::Consumed { .. }
        | LedgerError::OpenChildren { .. } => ErrorCode::Internal,
    };
    Error::new(code, error.to_string()).remedy(match code {
        ErrorCode::OutOfMemory | ErrorCode::LimitReached => "close what is not needed any more",
        _ => "",
    })
}

/// An error that is ours: the client can do nothing about it.
pub(crate) fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::Internal, message).remedy("this is a bug in Bulkhead: please report it")
}
