//! The session that everything here runs on: the client library's, or in tests one that records what it is asked.
//!
//! The only place that names the client library, so that a change there is one here.

#[cfg(any(test, recording_device))]
mod recording;

#[cfg(any(test, recording_device))]
pub(crate) use recording::*;

#[cfg(not(any(test, recording_device)))]
mod client;

pub(crate) use bulkhead_client::{
    AddressRange, ArrayCopy, Bind, Domain, Freed, Question, Stray, SturdyToken, Terms, Uses, Violation,
    ViolationKind, count_remote_calls, default_socket, remote_calls,
};
pub(crate) use bulkhead_schema::{Error, ErrorCode, Handle};
#[cfg(not(any(test, recording_device)))]
pub(crate) use client::*;
