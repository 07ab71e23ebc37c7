//! Descriptors that tokio watches.

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// Watches an owned descriptor, which stays what it is until it is dropped.
#[expect(
    deprecated,
    reason = "the replacement is unsafe for the sake of types that are no owned descriptors"
)]
pub(crate) fn watched(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}
