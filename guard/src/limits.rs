//! The limits of what the guard makes of a text, and those of what it reads and of what the verifier accepts.

pub use bulkhead_verifier::limits::*;

/// Bytes of a module's block, in which its `.global` variables lie.
pub const DATA_BYTES_MAX: u64 = 4 << 30;
/// Bytes of a module's block that are not zero from the start: they travel in one message.
pub const DATA_INITIAL_BYTES_MAX: u64 = 256 << 10;
/// Largest alignment of a variable in a module's block, and that of the block itself.
pub const DATA_ALIGN_MAX: u64 = 512;
/// Bytes of parameters of one entry that each thread copies to its local memory, where their addresses are taken.
pub const COPIED_PARAMETER_BYTES_MAX: u64 = 8 << 10;
/// Statements that calls may add to any module, all entries together: functions are inlined where they are called, and
/// a few bytes of text could make the guard work for long.
pub const INLINED_STATEMENTS_MIN: usize = 16 << 10;
/// Bytes of a module's text for each of which calls may add one statement more.
pub const INLINED_STATEMENT_BYTES: usize = 64;
/// What a generic access counts among those, wherever it stands, if nobody knows which memory it is of: it becomes up to
/// three accesses, each with what confines it.
pub const SPLIT_COST: usize = 2;
/// Statements that the guard's own functions may add to any module (what traps, fails, prints or allocates is a call of
/// one), and how many more for each byte of its text.
pub const OWN_STATEMENTS_MIN: usize = 48 << 10;
/// Bytes of text for each of which those may add one statement more.
pub const OWN_STATEMENT_BYTES: usize = 16;
/// Statements that the checks of accesses may add to a module, where its session asks for them.
pub const CHECK_STATEMENTS_MAX: usize = 128 << 10;
/// Statements of a module that are gone through to try out bounds on parameters, each as often as it is.
pub const TRIED_STATEMENTS_MAX: usize = 1 << 20;
/// Functions that a call through a pointer names as what it may mean.
pub const TARGETS_MAX: usize = 1024;
/// Bytes of the stack of each thread of an entry whose functions call themselves.
pub const STACK_BYTES: u64 = 16 << 10;
/// Calls and braces inside one another.
pub const CALL_NESTING_MAX: usize = 64;
/// Bytes of the names of entries and files that records of violations can tell; others have none there.
pub const FAULT_NAMES_BYTES_MAX: usize = 64 << 10;
