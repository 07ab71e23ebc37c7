//! Where the variables of the gates lie in the module's window. Written by `bulkhead module`.
#![allow(dead_code, unreachable_pub, reason = "a host half uses what it needs")]

/// Tells these gates from others.
pub const GATES: u64 = 0x4175FDDED96D35AF;

/// `instances`: where it begins in device memory.
pub const INSTANCES: u64 = 0;
/// `instances`: its bytes.
pub const INSTANCES_BYTES: u64 = 60224;

/// Bytes of all of them in device memory.
pub const WINDOW_BYTES: u64 = 60224;

/// What that begins with before the first call: the host half writes it. The rest is zero.
pub const INITIAL: &[u8] = &[];

/// `device`: where it begins in the host memory, which counts for itself.
pub const DEVICE: u64 = 0;
/// `device`: its bytes.
pub const DEVICE_BYTES: u64 = 9142784;

/// Bytes of all of them in the host memory, which counts for itself.
pub const HOST_WINDOW_BYTES: u64 = 9142784;

/// What that begins with before the first call: the host half writes it. The rest is zero.
pub const HOST_INITIAL: &[u8] = &[];
