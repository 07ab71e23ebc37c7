//! What clients are told when the tables, the window or the ledger refuse.

use bulkhead_caps as caps;
use bulkhead_mm::{LedgerError, Resource, WindowError};
use bulkhead_schema::{Error, ErrorCode};

pub(crate) fn table(error: caps::TableError) -> Error {
    let code = match error {
        caps::TableError::Full { .. } => ErrorCode::LimitReached,
        caps::TableError::Stale { .. } | caps::TableError::WrongKind { .. } => ErrorCode::InvalidHandle,
    };
    Error::new(code, error.to_string())
}

pub(crate) fn window(error: WindowError) -> Error {
    let code = match error {
        WindowError::Empty => ErrorCode::InvalidArgument,
        WindowError::Full { .. } => ErrorCode::OutOfMemory,
        WindowError::Mismatch { .. } => ErrorCode::Internal,
    };
    Error::new(code, error.to_string())
}

pub(crate) fn ledger(error: LedgerError) -> Error {
    let code = match error {
        LedgerError::AccountLimit { resource, .. }
        | LedgerError::AncestorLimit { resource, .. }
        | LedgerError::TotalLimit { resource, .. } => match resource {
            Resource::DeviceBytes
            | Resource::BufferBytes
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
