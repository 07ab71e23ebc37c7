//! What clients are told when the tree, the regions or the ledger refuse.

use bulkhead_caps as caps;
use bulkhead_mm::{LedgerError, RegionError, Resource};
use bulkhead_schema::{Error, ErrorCode, Handle};

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

/// What a client is told who names an entry that is not there.
pub(crate) fn not_here(entry: Handle) -> Error {
    let message = format!("handle {}.{} names no entry of it", entry.slot, entry.generation);
    Error::new(ErrorCode::InvalidHandle, message)
}

pub(crate) fn ledger(error: LedgerError) -> Error {
    let (resource, whose) = match error {
        LedgerError::AccountLimit { resource, .. } => {
            let whose = match resource {
                Resource::SwapBytes => "its terms, `bulkhead serve --swap-memory` and `--session-limit`",
                _ => "its terms, and `bulkhead serve --session-limit`,",
            };
            (resource, whose)
        }
        LedgerError::AncestorLimit { resource, .. } => {
            (resource, "the terms of the session that it draws on")
        }
        LedgerError::TotalLimit { resource, .. } => (resource, of_total(resource)),
        LedgerError::TooDeep => return Error::new(ErrorCode::LimitReached, error.to_string()),
        LedgerError::NoAccount
        | LedgerError::Underflow { .. }
        | LedgerError::Consumed { .. }
        | LedgerError::OpenChildren { .. } => return internal(error.to_string()),
    };
    let code = if resource.is_bytes() { ErrorCode::OutOfMemory } else { ErrorCode::LimitReached };
    let wait = match resource {
        Resource::DeviceBytes | Resource::HostBytes | Resource::SwapBytes => "free memory",
        Resource::Pieces => "free memory, and allocate larger pieces",
        Resource::CodeBytes | Resource::LocalBytes | Resource::Images => "unload images",
        Resource::KernelBytes | Resource::Uploads => {
            "load or unload images, or wait until those offered expire"
        }
        Resource::Capabilities => "close capabilities",
        Resource::Streams | Resource::Events => "use those that there are",
        Resource::Fences => "wait for some to pass",
        Resource::Tokens => "drop tokens",
        Resource::Descriptors => "close images and host memory",
        Resource::Revocations => "drop revocations",
        Resource::Gifts => "wait until the session has taken some",
        Resource::Sessions => "close sessions",
        Resource::CompileMilliseconds => "open a new session",
    };
    let key = resource.key();
    Error::new(code, error.to_string()).remedy(format!("{wait}; {whose} set the limit of {key}"))
}

/// Who sets what all sessions may have together.
const fn of_total(resource: Resource) -> &'static str {
    match resource {
        Resource::SwapBytes => "`bulkhead serve --swap-memory`, and `--total-limit`,",
        Resource::DeviceBytes => "the device, `bulkhead serve --device-memory` and `--total-limit`",
        _ => "`bulkhead serve --total-limit`",
    }
}

/// An error that is ours: the client can do nothing about it.
pub(crate) fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::Internal, message).remedy("this is a bug in Bulkhead: please report it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_all_sessions_names_the_option_that_sets_it() {
        for (resource, option) in [
            (Resource::SwapBytes, "--swap-memory"),
            (Resource::DeviceBytes, "--device-memory"),
            (Resource::HostBytes, "--total-limit"),
            (Resource::Capabilities, "--total-limit"),
        ] {
            let refused = ledger(LedgerError::TotalLimit { resource, asked: 2, used: 1, limit: 2 });
            assert!(refused.to_string().contains(option), "{refused}");
        }
    }
}
