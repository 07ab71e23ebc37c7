//! The limits of what the verifier accepts.

pub use bulkhead_ptx::limits::*;

/// Registers that one body declares, ranges counted in full.
pub const REGISTERS_MAX: u64 = 1 << 20;
/// Bytes of the name of one register, a range's prefix.
pub const REGISTER_NAME_BYTES_MAX: usize = 256;
/// Oldest PTX version that has every instruction the confined form uses.
pub const PTX_VERSION_MIN: (u32, u32) = (6, 0);
/// Newest PTX version that the opcode table was written for.
pub const PTX_VERSION_MAX: (u32, u32) = (9, 0);
/// Bytes of the constant bank that a module's variables share.
pub const CONSTANT_BYTES_MAX: u64 = 64 << 10;
/// Bytes of local variables of one entry: a thread has 512 KiB of local memory, and some is for what the assembler spills.
/// The driver's pool for all threads of the device is another limit, which the ledger keeps.
pub const LOCAL_BYTES_MAX: u64 = 496 << 10;
/// Bytes of local variables that are zeroed by one store after another; more in a loop.
pub const LOCAL_BYTES_IN_LINE_MAX: u64 = 8 << 10;
/// Bytes of local variables that each turn of such a loop zeroes.
pub const LOCAL_BYTES_PER_TURN: u64 = 256;
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
/// Where a block's shared memory begins since sm_90: what comes first is the system's. Where that is not so a clamped access may
/// end as far behind what the block has: an executor serves no such device.
pub const SHARED_BASE: u64 = 1024;
/// Shared variables of an entry, each of which takes up to five instructions before the entry looks at the flag.
pub const SHARED_VARIABLES_MAX: usize = 256;
/// Bytes of shared memory that the threads of a block along x alone zero.
pub const LITTLE_BYTES_MAX: u64 = 256;
/// Bytes of shared memory that a block can have at most, in which an offset can make sense.
pub const SHARED_BYTES_MAX: u64 = 256 << 10;
/// Bytes that a run of shared accesses may span on the strength of a launch giving that much.
pub const DYNAMIC_SPAN_MAX: u64 = 16 << 10;
/// What a thread may have done before it looks at its session's flag for the first time, in the units of the table.
pub const UNLOOKED_COST_MAX: u64 = 64;
/// What all turns of a loop may cost together that turns without a look.
pub const CHUNK_COST_MAX: u64 = 1 << 17;
/// What a thread may do on any path between two looks.
pub const PATH_COST_MAX: u64 = 1 << 19;
/// What a wait for the block takes of what a thread may do between two looks, besides its cost. Of threads that wait for
/// each other between any two things that they do, one works at a time. Whoever works behind `n` waits has so much less left:
/// all of a block together do no more than the sum of that, which is [`ONE_BY_ONE_MAX`] times what one may do alone. Between
/// two waits lanes of a warp that are apart work one after the other, too: then it is 760 times (decision 0090).
pub const BLOCK_WAIT_COST: u64 = 1 << 13;
/// See [`BLOCK_WAIT_COST`].
pub const ONE_BY_ONE_MAX: u64 = 33;
const _: () = {
    let (mut left, mut all) = (PATH_COST_MAX, 0);
    while left > 0 {
        all += left;
        left = left.saturating_sub(BLOCK_WAIT_COST);
    }
    assert!(all <= ONE_BY_ONE_MAX * PATH_COST_MAX, "threads that work one after the other");
};
/// What a thread of a fast version may do in all where it never looks: launches are bounded instead.
pub const SHORT_COST_MAX: u64 = 1024;
/// Modules whose gates one entry may call: each has hidden parameters of its own.
pub const GATE_MODULES_MAX: usize = 8;
/// Statements of a gate's confined body, which stands wherever it is called.
pub const GATE_STATEMENTS_MAX: usize = 4096;
/// What a thread may do in one call of a gate: nothing ends it there.
pub const GATE_COST_MAX: u64 = 16 << 10;
/// Bytes of a gate's name.
pub const GATE_NAME_BYTES_MAX: usize = 256;
