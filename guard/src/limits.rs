//! The limits of what the guard reads: everything that a client can make large has one.

/// Bytes of one PTX text.
pub const TEXT_BYTES_MAX: usize = 64 << 20;
/// Tokens of one PTX text, white space and comments not counted.
pub const TOKENS_MAX: usize = 16 << 20;
/// Statements of one PTX text, declarations and labels included.
pub const STATEMENTS_MAX: usize = 2 << 20;
/// Braces inside one another in a body.
pub const NESTING_MAX: usize = 32;
/// Lists inside one another in an operand.
pub const OPERAND_NESTING_MAX: usize = 3;
/// Operands of one instruction, elements of its lists included.
pub const OPERANDS_MAX: usize = 256;
/// Modifiers of one opcode.
pub const MODIFIERS_MAX: usize = 24;
/// Entries and functions of one module.
pub const ENTRIES_MAX: usize = 16 << 10;
/// Parameters of one entry or function.
pub const PARAMETERS_MAX: usize = 4096;
/// Registers that one body declares, ranges counted in full.
pub const REGISTERS_MAX: u64 = 1 << 20;
/// Bytes of one name.
pub const NAME_BYTES_MAX: usize = 4096;
/// Bytes of the name of one register, a range's prefix.
pub const REGISTER_NAME_BYTES_MAX: usize = 256;
/// Dimensions of one array.
pub const DIMENSIONS_MAX: usize = 8;
/// Findings that a report holds; the rest is only counted.
pub const FINDINGS_MAX: usize = 1000;
/// Oldest PTX version that has every instruction the confined form uses.
pub const PTX_VERSION_MIN: (u32, u32) = (6, 0);
/// Newest PTX version that the opcode table was written for.
pub const PTX_VERSION_MAX: (u32, u32) = (9, 0);
/// Bytes of the constant bank that a module's variables share.
pub const CONSTANT_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a module's block, in which its `.global` variables lie.
pub const DATA_BYTES_MAX: u64 = 4 << 30;
/// Bytes of a module's block that are not zero from the start: they travel in one message.
pub const DATA_INITIAL_BYTES_MAX: u64 = 256 << 10;
/// Largest alignment of a variable in a module's block, and that of the block itself.
pub const DATA_ALIGN_MAX: u64 = 512;
/// Bytes of local variables of one entry: a thread has 512 KiB of local memory, and some is for what the assembler spills.
/// The driver's pool for all threads of the device is another limit, which the ledger keeps.
pub const LOCAL_BYTES_MAX: u64 = 496 << 10;
/// Bytes of local variables that are zeroed by one store after another; more in a loop.
pub const LOCAL_BYTES_IN_LINE_MAX: u64 = 8 << 10;
/// Bytes of local variables that each turn of such a loop zeroes.
pub const LOCAL_BYTES_PER_TURN: u64 = 256;
/// Bytes of parameters of one entry that each thread copies to its local memory, where their addresses are taken.
pub const COPIED_PARAMETER_BYTES_MAX: u64 = 8 << 10;
/// Bytes of parameters of one entry, hidden ones included.
pub const PARAMETER_BYTES_MAX: u64 = 32_764;
/// Immediate offsets stay on an access only within this distance (exclusive), the reach of the hardware's
/// own field; the guard zones of a window are wider.
pub const OFFSET_BOUND: u64 = 1 << 23;
/// Bytes that an access may cover where its address may be the last of a slot: with an offset, less than the margin there.
pub const EXTENT_BOUND: u64 = 1 << 23;

const _: () = assert!(
    OFFSET_BOUND + EXTENT_BOUND <= bulkhead_mm::MARGIN_BYTES,
    "an offset that is added after confining ends in the margin"
);
/// Terms about shared memory that a fast version may have: each launch checks them.
pub const SHARED_TERMS_MAX: usize = 16;
/// Words of parameters that a fast version may bound: each launch checks them.
pub const BOUND_TERMS_MAX: usize = 4;
/// How far from a pointer into a window an access may reach that is left alone: the guard zones are as wide, and take
/// whatever half of the slot the window is of.
pub const REACH_BYTES: u64 = bulkhead_mm::ZONE_BYTES;
/// Where a block's shared memory begins since sm_90: what comes first is the system's. Where that is not so, accesses
/// stay inside the block's all the same, but not where they were meant.
pub const SHARED_BASE: u64 = 1024;
/// Bytes of shared memory that the threads of a block along x alone zero.
pub const LITTLE_BYTES_MAX: u64 = 256;
/// Bytes of shared memory that a block can have at most, in which an offset can make sense.
pub const SHARED_BYTES_MAX: u64 = 256 << 10;
/// Bytes that a run of shared accesses may span on the strength of a launch giving that much.
pub const DYNAMIC_SPAN_MAX: u64 = 16 << 10;
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
/// Calls and braces inside one another.
pub const CALL_NESTING_MAX: usize = 64;
/// What a thread may have done before it looks at its session's flag for the first time, in the units of the table.
pub const UNLOOKED_COST_MAX: u64 = 64;
/// What all turns of a loop may cost together that turns without a look.
pub const CHUNK_COST_MAX: u64 = 1 << 17;
/// What a thread may do on any path between two looks.
pub const PATH_COST_MAX: u64 = 1 << 19;
/// What a thread of a fast version may do in all where it never looks: launches are bounded instead.
pub const SHORT_COST_MAX: u64 = 1024;
/// Bytes of the names of entries and files that records of violations can tell; others have none there.
pub const FAULT_NAMES_BYTES_MAX: usize = 64 << 10;
/// Modules whose gates one entry may call: each has hidden parameters of its own.
pub const GATE_MODULES_MAX: usize = 8;
/// Statements of a gate's confined body, which stands wherever it is called.
pub const GATE_STATEMENTS_MAX: usize = 4096;
/// What a thread may do in one call of a gate: nothing ends it there.
pub const GATE_COST_MAX: u64 = 16 << 10;
/// Bytes of a gate's name.
pub const GATE_NAME_BYTES_MAX: usize = 256;
