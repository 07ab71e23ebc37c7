//! What an entry is, and what bounds it.

/// Bytes of stack beyond the entry's local variable: what the assembler spills, and the frames of its own functions.
pub const SPILL_BYTES_MAX: u64 = 8 << 10;
/// Shared memory that every block has beside its own, at its start (sm_90).
pub(crate) const SHARED_RESERVED_BYTES: u64 = 1 << 10;
/// The one whose opcodes are known.
pub(crate) const ARCHITECTURE: u32 = 90;

/// How often an entry accesses memory, by instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// `LDG`.
    pub global_loads: u32,
    /// `STG`.
    pub global_stores: u32,
    /// `ATOMG`, `REDG`.
    pub global_updates: u32,
    /// `LDS`.
    pub shared_loads: u32,
    /// `STS`.
    pub shared_stores: u32,
    /// `ATOMS`.
    pub shared_updates: u32,
    /// `LDL`.
    pub local_loads: u32,
    /// `STL`.
    pub local_stores: u32,
    /// All instructions but padding.
    pub instructions: u32,
}

/// What an entry is, as its machine code says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintedEntry {
    /// What the tenant calls it; its name in the machine code where that is of no confined text.
    pub name: String,
    /// Whether it is the fast version of the entry that is called so.
    pub is_fast: bool,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's stack.
    pub stack_bytes: u64,
    /// Bytes of a block's static shared memory.
    pub shared_bytes: u64,
    /// Bytes of its parameter block.
    pub parameter_bytes: u64,
    /// What it does to memory; zero where opcodes were not checked.
    pub counts: Counts,
}

/// An entry as messages name it: what the tenant calls it.
pub(crate) fn named(symbol: &str) -> String {
    let fast = if bulkhead_verifier::is_fast_version(symbol) { " (its fast version)" } else { "" };
    format!("`{}`{fast}", bulkhead_verifier::entry_of(symbol))
}
