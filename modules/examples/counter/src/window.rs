//! Where the variables of the gates lie in the module's window. Written by `bulkhead module`.
#![allow(dead_code, unreachable_pub, reason = "a host half uses what it needs")]

/// Tells these gates from others.
pub const GATES: u64 = 0xDE69554ACAEE2877;

/// `accounts`: where it begins in device memory.
pub const ACCOUNTS: u64 = 0;
/// `accounts`: its bytes.
pub const ACCOUNTS_BYTES: u64 = 1024;

/// `counters`: where it begins in device memory.
pub const COUNTERS: u64 = 1024;
/// `counters`: its bytes.
pub const COUNTERS_BYTES: u64 = 524288;

/// Bytes of all of them in device memory.
pub const WINDOW_BYTES: u64 = 525312;

/// What that begins with before the first call: the host half writes it. The rest is zero.
pub const INITIAL: &[u8] = &[];
