//! The decoded form of an entry: what the interpreter runs.

use std::collections::HashMap;

use bulkhead_gpu::ParameterLayout;
use bulkhead_ptx::ast::Place;

use crate::alu::carry::Kind as CarryKind;
use crate::alu::convert::Conversion;
use crate::alu::update::Update;
use crate::alu::video::Video;
use crate::alu::{Binary, LANES, Lanes, Property, Ternary, Test, Unary};
use crate::compiled::Compiled;
use crate::exec::BARRIERS;
use crate::matrix::Matrix;

/// Where shared memory starts for a block: the first KiB belongs to the system, as on sm_90.
pub(crate) const SHARED_BASE: u64 = 1024;
/// Generic addresses of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x7fff_f200_0000;
/// Generic addresses of shared memory.
pub(crate) const SHARED_WINDOW: u64 = 0x7fff_f400_0000;
/// Generic addresses of constant memory.
pub(crate) const CONSTANT_WINDOW: u64 = 0x7fff_f600_0000;
/// Generic addresses of the parameter block.
pub(crate) const PARAMETER_WINDOW: u64 = 0x7fff_f700_0000;
/// Length of each window.
pub(crate) const WINDOW_BYTES: u64 = 16 << 20;

/// A register, or a constant, that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Src(u32);

const CONSTANT_BIT: u32 = 1 << 31;

impl Src {
    /// The constant with this number.
    pub(crate) fn constant(index: u32) -> Self {
        Self(index | CONSTANT_BIT)
    }

    /// The register with this number.
    pub(crate) fn register(index: u32) -> Self {
        Self(index & !CONSTANT_BIT)
    }

    /// The number of the register, unless it is a constant.
    pub(crate) fn register_number(self) -> Option<u32> {
        (!self.is_constant()).then_some(self.0)
    }

    /// The number of the constant, unless it is a register.
    pub(crate) fn constant_number(self) -> Option<u32> {
        self.is_constant().then_some(self.0 & !CONSTANT_BIT)
    }

    /// Whether all lanes see one value.
    #[inline(always)]
    pub(crate) fn is_constant(self) -> bool {
        self.0 & CONSTANT_BIT != 0
    }

    /// Looks the operand up.
    #[inline(always)]
    pub(crate) fn of<'a>(self, registers: &'a [Lanes], constants: &'a [Lanes]) -> &'a Lanes {
        if self.0 & CONSTANT_BIT == 0 {
            &registers[self.0 as usize]
        } else {
            &constants[(self.0 & !CONSTANT_BIT) as usize]
        }
    }
}

/// A register that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dst(pub(crate) u32);

impl Dst {
    /// Takes what nobody reads: the operand `_`.
    pub(crate) const SINK: Self = Self(0);
}

/// A predicate register that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pred(pub(crate) u32);

impl Pred {
    /// Takes what nobody reads.
    pub(crate) const SINK: Self = Self(0);
    /// Always true.
    pub(crate) const TRUE: Self = Self(1);
    /// The carry flag.
    pub(crate) const CARRY: Self = Self(2);
    /// Predicates with a fixed meaning.
    pub(crate) const FIXED: u32 = 3;
}

/// A predicate that is read, possibly inverted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PredSrc {
    /// The predicate.
    pub(crate) of: Pred,
    /// Whether it is inverted.
    pub(crate) negated: bool,
}

impl PredSrc {
    /// Holds for every lane.
    pub(crate) const TRUE: Self = Self { of: Pred::TRUE, negated: false };
    /// Holds for no lane.
    pub(crate) const FALSE: Self = Self { of: Pred::TRUE, negated: true };

    /// The lanes for which it holds.
    #[inline(always)]
    pub(crate) fn lanes(self, predicates: &[u32]) -> u32 {
        let mask = predicates[self.of.0 as usize];
        if self.negated { !mask } else { mask }
    }
}

/// A logic operation on predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logic {
    /// Both.
    And,
    /// Either.
    Or,
    /// One of them.
    Xor,
}

impl Logic {
    /// All lanes at once.
    #[inline(always)]
    pub(crate) fn of(self, a: u32, b: u32) -> u32 {
        match self {
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
        }
    }
}

/// The memory that an access goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Region {
    /// `.global`
    Global,
    /// `.shared`
    Shared,
    /// `.local`
    Local,
    /// `.const`
    Constant,
    /// `.param`
    Parameter,
    /// None given: the address says which.
    Generic,
}

/// A special register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// `%tid.{x,y,z}`
    Thread(usize),
    /// `%ntid.{x,y,z}`
    Threads(usize),
    /// `%ctaid.{x,y,z}`
    Block(usize),
    /// `%nctaid.{x,y,z}`
    Blocks(usize),
    /// `%laneid`
    Lane,
    /// `%warpid`
    Warp,
    /// `%nwarpid`
    Warps,
    /// `%smid`
    Multiprocessor,
    /// `%nsmid`
    Multiprocessors,
    /// `%gridid`
    Grid,
    /// `%lanemask_eq`
    LaneEqual,
    /// `%lanemask_lt`
    LanesBelow,
    /// `%lanemask_le`
    LanesUpTo,
    /// `%lanemask_gt`
    LanesAbove,
    /// `%lanemask_ge`
    LanesFrom,
    /// `%clock64`, `%clock`, `%globaltimer`: so many bits of the nanoseconds since the device was made.
    Time { bits: u32, high: bool },
    /// `%dynamic_smem_size`
    DynamicShared,
    /// `%total_smem_size`
    TotalShared,
    /// A fixed value.
    Fixed(u32),
}

/// An address operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    /// Register or constant.
    pub(crate) base: Src,
    /// Added to it.
    pub(crate) offset: i64,
}

/// Shape of a load or store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Where.
    pub(crate) region: Region,
    /// Bytes of one element.
    pub(crate) size: u8,
    /// Elements.
    pub(crate) count: u8,
    /// A loaded element is sign-extended to so many bits (0: zero-extended).
    pub(crate) extend: u8,
    /// Whether others may see it, or make what it sees: `.volatile`, `.relaxed` and their like.
    pub(crate) strong: bool,
}

/// How `shfl` finds the lane it reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    /// `.up`
    Up,
    /// `.down`
    Down,
    /// `.bfly`
    Butterfly,
    /// `.idx`
    Index,
}

/// What a vote answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VoteMode {
    /// `.all`
    All,
    /// `.any`
    Any,
    /// `.uni`
    Uniform,
}

/// What all lanes named by a mask do together.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Collective {
    /// `shfl.sync`
    Shuffle { mode: ShuffleMode, d: Dst, p: Pred, a: Src, b: Src, c: Src },
    /// `vote.sync.{all,any,uni}`
    Vote { mode: VoteMode, d: Pred, a: PredSrc },
    /// `vote.sync.ballot`
    Ballot { d: Dst, a: PredSrc },
    /// `match.any.sync`
    MatchAny { d: Dst, a: Src },
    /// `match.all.sync`
    MatchAll { d: Dst, p: Pred, a: Src },
    /// `redux.sync`
    Reduce { f: Update, d: Dst, a: Src },
    /// `elect.sync`
    Elect { d: Dst, p: Pred },
}

/// What an atomic operation computes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AtomicOp {
    /// A function of the old value and `a`.
    Update(Update),
    /// Compare with `a`, swap with `b`.
    CompareSwap,
}

impl AtomicOp {
    /// What becomes of the old value.
    #[inline(always)]
    pub(crate) fn apply(self, old: u64, a: u64, b: u64) -> u64 {
        match self {
            Self::Update(f) => f(old, a),
            Self::CompareSwap if old == a => b,
            Self::CompareSwap => old,
        }
    }
}

/// What a block barrier does besides waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierMode {
    /// `.sync`
    Sync,
    /// `.arrive`: it does not wait.
    Arrive,
    /// `.red.popc`
    Count(Dst),
    /// `.red.and`
    All(Pred),
    /// `.red.or`
    Any(Pred),
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    /// Hints.
    Nop,
    Unary {
        f: Unary,
        d: Dst,
        a: Src,
    },
    Binary {
        f: Binary,
        d: Dst,
        a: Src,
        b: Src,
    },
    Ternary {
        f: Ternary,
        d: Dst,
        a: Src,
        b: Src,
        c: Src,
    },
    Lop3 {
        table: u8,
        d: Dst,
        a: Src,
        b: Src,
        c: Src,
    },
    Insert {
        wide: bool,
        d: Dst,
        a: Src,
        b: Src,
        position: Src,
        length: Src,
    },
    Convert {
        /// Index into [`Program::conversions`].
        conversion: u32,
        d: Dst,
        a: Src,
    },
    Carry {
        kind: CarryKind,
        wide: bool,
        takes: bool,
        gives: bool,
        d: Dst,
        operands: [Src; 3],
    },
    Video {
        /// Index into [`Program::videos`].
        video: u32,
        d: Dst,
        operands: [Src; 3],
    },
    /// `setp`
    Test {
        f: Test,
        p: Pred,
        q: Pred,
        a: Src,
        b: Src,
        combine: Logic,
        c: PredSrc,
    },
    /// `set`: `truth` where the test holds, else zero.
    Set {
        f: Test,
        truth: u32,
        d: Dst,
        a: Src,
        b: Src,
        combine: Logic,
        c: PredSrc,
    },
    /// `testp`
    Property {
        f: Property,
        p: Pred,
        a: Src,
    },
    /// `isspacep`
    InRegion {
        region: Region,
        p: Pred,
        a: Src,
    },
    /// Logic on predicates; `mov.pred` and `not.pred` too.
    Logic {
        op: Logic,
        p: Pred,
        a: PredSrc,
        b: PredSrc,
    },
    /// `selp`
    Select {
        d: Dst,
        a: Src,
        b: Src,
        c: PredSrc,
    },
    Special {
        what: Special,
        d: Dst,
    },
    /// Joins `count` parts of `bits` each.
    Pack {
        bits: u8,
        count: u8,
        d: Dst,
        parts: [Src; 4],
    },
    /// The opposite of `Pack`.
    Unpack {
        bits: u8,
        count: u8,
        d: [Dst; 4],
        a: Src,
    },
    Load {
        shape: Shape,
        at: At,
        d: [Dst; 4],
    },
    Store {
        shape: Shape,
        at: At,
        a: [Src; 4],
    },
    Atomic {
        op: AtomicOp,
        region: Region,
        size: u8,
        d: Dst,
        at: At,
        a: Src,
        b: Src,
    },
    /// `cp.async`: done at once. Bytes beyond `valid` are zero.
    Copy {
        bytes: u8,
        to: At,
        from: At,
        valid: Src,
    },
    /// Memory ordering.
    Fence,
    /// Lets others run.
    Yield,
    Branch {
        target: u32,
    },
    /// `brx.idx`
    Switch {
        /// Index into [`Program::tables`].
        table: u32,
        a: Src,
    },
    Exit,
    Trap,
    Barrier {
        mode: BarrierMode,
        id: Src,
        count: Option<Src>,
        a: PredSrc,
    },
    WarpBarrier {
        members: Src,
    },
    Collective {
        members: Src,
        what: Collective,
    },
    /// What a whole warp does with matrices.
    Matrix {
        /// Index into [`Program::matrices`].
        index: u32,
    },
    /// `activemask`
    ActiveMask {
        d: Dst,
    },
}

/// One instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inst {
    /// Lanes it is for.
    pub(crate) guard: Option<PredSrc>,
    /// What they do.
    pub(crate) op: Op,
}

/// What the guard asks before lanes wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    /// Who is here, of lanes that meet for a wait for all of them.
    Lanes,
    /// Who is left of the warp, behind that; and who of a group came, behind that.
    Left,
    /// The same, for a barrier of the block.
    Block,
    /// The same, for lanes of a group, which come again until all of it are here.
    Group,
    /// Nothing: lanes meet so that others go on.
    Poll,
    /// Whether the lanes that are here are those that a mask names.
    Mask(Src),
}

/// A decoded entry.
#[derive(Debug)]
pub(crate) struct Program {
    /// Name in the image.
    pub(crate) name: String,
    /// Which text it is in, see [`crate::text_number`].
    pub(crate) text: u64,
    /// Instructions; the last one is an unconditional exit.
    pub(crate) code: Vec<Inst>,
    /// Where each instruction stands in the source.
    pub(crate) places: Vec<Place>,
    /// Stores by which the guard zeroes shared and local memory, in order.
    pub(crate) zeroing: Vec<u32>,
    /// Fences, atomic operations and accesses that only threads of the block may see meanwhile, in order.
    pub(crate) of_block: Vec<u32>,
    /// Fences that only acquire, in order.
    pub(crate) acquires: Vec<u32>,
    /// Atomic operations that add or count, in order.
    pub(crate) counting: Vec<u32>,
    /// What the guard asks before lanes wait, in order.
    pub(crate) asked: Vec<(u32, Ask)>,
    /// Immediate operands, one value in all lanes.
    pub(crate) constants: Vec<Lanes>,
    /// Conversions that have no loop of their own.
    pub(crate) conversions: Vec<Conversion>,
    /// Video instructions.
    pub(crate) videos: Vec<Video>,
    /// Instructions on matrices.
    pub(crate) matrices: Vec<Matrix>,
    /// Targets of indexed branches.
    pub(crate) tables: Vec<Vec<u32>>,
    /// Registers per thread, as the interpreter needs them.
    pub(crate) registers: u32,
    /// Width of each register in bits.
    pub(crate) widths: Vec<u8>,
    /// Predicate registers.
    pub(crate) predicates: u32,
    /// Parameters.
    pub(crate) parameters: Vec<ParameterLayout>,
    /// Length of the parameter block.
    pub(crate) parameter_bytes: u32,
    /// Static shared memory.
    pub(crate) shared_bytes: u32,
    /// Local memory per thread.
    pub(crate) local_bytes: u32,
    /// `.maxntid` or `.reqntid`, as a product; 1024 where neither is given.
    pub(crate) threads_max: u32,
    /// `.reqntid`.
    pub(crate) threads_required: Option<[u32; 3]>,
    /// Its compiled form, once somebody needed it.
    pub(crate) compiled: Compiled,
}

/// Constant memory of an image.
#[derive(Debug, Default)]
pub(crate) struct ConstantBank {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// Offsets by name.
    pub(crate) symbols: HashMap<String, u64>,
}

impl Program {
    /// Whether all threads of the block wait for each other at an instruction, and that is all.
    pub(crate) fn is_barrier_for_all(&self, pc: u32) -> bool {
        let Inst { guard: None, op: Op::Barrier { mode: BarrierMode::Sync, id, count: None, a: _ } } =
            self.code[pc as usize]
        else {
            return false;
        };
        id.constant_number().is_some_and(|index| self.constants[index as usize][0] < BARRIERS as u64)
    }

    /// What the guard asks by an operation.
    pub(crate) fn ask(&self, pc: u32) -> Option<Ask> {
        let index = self.asked.binary_search_by_key(&pc, |(at, _)| *at).ok()?;
        self.asked.get(index).map(|(_, ask)| *ask)
    }

    /// Host memory that it takes, about: what the interpreter runs, and what may be compiled of it.
    pub(crate) fn host_bytes(&self) -> u64 {
        let tables: usize =
            self.tables.iter().map(|table| size_of_val(table) + size_of_val(table.as_slice())).sum();
        let bytes = size_of::<Self>()
            + size_of_val(self.code.as_slice())
            + size_of_val(self.places.as_slice())
            + size_of_val(self.zeroing.as_slice())
            + size_of_val(self.of_block.as_slice())
            + size_of_val(self.acquires.as_slice())
            + size_of_val(self.counting.as_slice())
            + size_of_val(self.asked.as_slice())
            + size_of_val(self.constants.as_slice())
            + size_of_val(self.conversions.as_slice())
            + size_of_val(self.videos.as_slice())
            + size_of_val(self.matrices.as_slice())
            + size_of_val(self.widths.as_slice())
            + size_of_val(self.parameters.as_slice())
            + tables;
        (bytes as u64).saturating_add(crate::compiled::bytes_max(self.code.len()))
    }

    /// Host memory that one warp takes while it runs.
    pub(crate) fn warp_bytes(&self) -> u64 {
        u64::from(self.registers) * size_of::<Lanes>() as u64 + u64::from(self.local_bytes) * LANES as u64
    }
}
