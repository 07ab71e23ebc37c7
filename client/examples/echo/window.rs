//! Where the variables of the gates lie in the module's window. Written by `bulkhead module`.
#![allow(dead_code, unreachable_pub, reason = "a host half uses what it needs")]

/// Tells these gates from others.
pub const GATES: u64 = 0xD4C1B53ADC27351B;

/// `holders`: where it begins in device memory.
pub const HOLDERS: u64 = 0;
/// `holders`: its bytes.
pub const HOLDERS_BYTES: u64 = 2048;

/// `next`: where it begins in device memory.
pub const NEXT: u64 = 2048;
/// `next`: its bytes.
pub const NEXT_BYTES: u64 = 4;

/// Bytes of all of them in device memory.
pub const WINDOW_BYTES: u64 = 2052;

/// What that begins with before the first call: the host half writes it. The rest is zero.
pub const INITIAL: &[u8] = &[];

/// `questions`: where it begins in the host memory, which counts for itself.
pub const QUESTIONS: u64 = 0;
/// `questions`: its bytes.
pub const QUESTIONS_BYTES: u64 = 8192;

/// `answers`: where it begins in the host memory, which counts for itself.
pub const ANSWERS: u64 = 8192;
/// `answers`: its bytes.
pub const ANSWERS_BYTES: u64 = 4096;

/// Bytes of all of them in the host memory, which counts for itself.
pub const HOST_WINDOW_BYTES: u64 = 12288;

/// What that begins with before the first call: the host half writes it. The rest is zero.
pub const HOST_INITIAL: &[u8] = &[];
