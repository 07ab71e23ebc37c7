//! Where the variables of the gates lie in the module's window. Written by `bulkhead module`.
#![allow(dead_code, unreachable_pub, reason = "a host half uses what it needs")]

/// Tells these gates from others.
pub const GATES: u64 = 0xA925AF90BA5507BD;

/// `count`: where it begins in device memory.
pub const COUNT: u64 = 0;
/// `count`: its bytes.
pub const COUNT_BYTES: u64 = 8;

/// `records`: where it begins in device memory.
pub const RECORDS: u64 = 8;
/// `records`: its bytes.
pub const RECORDS_BYTES: u64 = 65520;

/// Bytes of all of them in device memory.
pub const WINDOW_BYTES: u64 = 65528;

/// What that begins with before the first call: the host half writes it. The rest is zero.
pub const INITIAL: &[u8] = &[];
