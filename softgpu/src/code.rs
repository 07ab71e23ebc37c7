//! The decoded form of an entry: what the interpreter runs.

mod program;
mod region;

use crate::alu::carry::Kind as CarryKind;
use crate::alu::update::Update;
use crate::alu::{Binary, Lanes, Property, Ternary, Test, Unary};

pub(crate) use program::{Ask, ConstantBank, Program};
pub(crate) use region::{
    CONSTANT_WINDOW, LOCAL_WINDOW, PARAMETER_WINDOW, Region, SHARED_BASE, SHARED_WINDOW, lies_in, region_of,
};

/// Barriers of a block.
pub(crate) const BARRIERS: usize = 16;

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

/// `atom` or `red`: `op` makes of the word at `at`, and of `a` and `b`, the one that takes its place; `d` gets what was
/// there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Atomic {
    pub(crate) op: AtomicOp,
    pub(crate) region: Region,
    /// Bytes of the word.
    pub(crate) size: u8,
    pub(crate) d: Dst,
    pub(crate) at: At,
    pub(crate) a: Src,
    pub(crate) b: Src,
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
    Atomic(Atomic),
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
