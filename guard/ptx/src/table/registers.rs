//! Rows of opcodes that work on registers: arithmetic, moves, control and barriers.

use super::lanes::WHOLE;
use super::row::{BITS, CLEAR, FLOAT, GATE, INT, Row, Treatment, row};

const ROUND: &str = "rn rz rm rp ftz sat";
const COMPARE: &str = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz";
const BARRIER: &[&str] = &["sync warp cta aligned", WHOLE];
const REDUCING_BARRIER: &[&str] = &["cta red aligned popc and or pred u32"];

const fn pure(name: &'static str, operands: usize, modifiers: &'static [&'static str]) -> Row {
    row(name, Treatment::Pure, 1, operands..=operands, modifiers)
}

/// Arithmetic on bytes and halves of words, whose operands can be parts of registers.
const VIDEO: &str = "u32 s32 sat";
const VIDEO_SECOND: &str = "add min max";

const fn video(name: &'static str, least: usize, modifiers: &'static [&'static str]) -> Row {
    row(name, Treatment::Pure, 1, least..=4, modifiers)
}

/// Products of matrices that whole warps hold.
const PRODUCT: &[&str] = &[
    "mma sync aligned row col satfinite rn",
    "m8n8k4 m16n8k4 m16n8k8 m16n8k16 m16n8k32 m8n8k16 m16n16k16 m8n32k16 m32n8k16 m16n16k8",
    "f16 bf16 tf32 f32 f64 s8 u8 s32",
];

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    row(CLEAR, Treatment::Pure, 0, 1..=1, &[]),
    row(GATE, Treatment::Gate, 1, 4..=4, &[]),
    pure("abs", 2, &[INT, FLOAT, "ftz"]),
    row("activemask", Treatment::Pure, 1, 1..=1, &["b32"]),
    pure("add", 3, &[INT, FLOAT, ROUND, "cc u16x2 s16x2"]),
    pure("addc", 3, &[INT, "cc"]),
    pure("and", 3, &[BITS, "pred"]),
    row("bar", Treatment::Barrier, 0, 1..=2, BARRIER),
    row("bar.cta.red", Treatment::Barrier, 1, 3..=3, REDUCING_BARRIER),
    row("bar.red", Treatment::Barrier, 1, 3..=3, REDUCING_BARRIER),
    row("barrier", Treatment::Barrier, 0, 1..=2, BARRIER),
    row("barrier.cta.red", Treatment::Barrier, 1, 3..=3, REDUCING_BARRIER),
    row("barrier.red", Treatment::Barrier, 1, 3..=3, REDUCING_BARRIER),
    pure("bfe", 4, &["u32 s32 u64 s64"]),
    pure("bfi", 5, &["b32 b64"]),
    pure("bfind", 2, &["u32 s32 u64 s64 shiftamt"]),
    pure("bmsk", 3, &["clamp wrap b32"]),
    row("bra", Treatment::Branch, 0, 1..=1, &[]),
    pure("brev", 2, &["b32 b64"]),
    pure("clz", 2, &["b32 b64"]),
    pure("cnot", 2, &[BITS]),
    pure("copysign", 3, &["f32 f64"]),
    pure("cos", 2, &["approx ftz f32"]),
    row(
        "cvt",
        Treatment::Pure,
        1,
        2..=4,
        &[
            "rni rzi rmi rpi rna rs relu satfinite pack b8 u8 s8 b32 tf32 e4m3x2 e5m2x2 scaled",
            INT,
            FLOAT,
            ROUND,
        ],
    ),
    pure("cvta", 2, &["to global shared shared::cta local u32 u64"]),
    pure("div", 3, &[INT, FLOAT, ROUND, "approx full"]),
    pure("dp2a", 4, &["lo hi u32 s32"]),
    pure("dp4a", 4, &["u32 s32"]),
    row("elect", Treatment::Pure, 1, 2..=2, &["sync"]),
    pure("ex2", 2, &["approx ftz f32 f16 f16x2 bf16 bf16x2"]),
    row("exit", Treatment::Pure, 0, 0..=0, &[]),
    row("fence", Treatment::Pure, 0, 0..=0, &["sc acq_rel acquire release cta gpu sys"]),
    pure("fma", 4, &[FLOAT, ROUND, "relu"]),
    pure("fns", 4, &["b32"]),
    // Nothing starts before what stands before it in its stream has ended: neither waits, nor lets anything go on.
    row("griddepcontrol", Treatment::Hint, 0, 0..=0, &["wait launch_dependents"]),
    pure("isspacep", 2, &["global shared shared::cta local"]),
    pure("lg2", 2, &["approx ftz f32"]),
    row("lop3", Treatment::Pure, 1, 5..=6, &["b32 or and"]),
    pure("mad", 4, &[INT, FLOAT, ROUND, "hi lo wide cc"]),
    pure("mad24", 4, &["hi lo sat u32 s32"]),
    pure("madc", 4, &[INT, "hi lo cc"]),
    pure("match", 3, &["any all sync b32 b64"]),
    pure("max", 3, &[INT, FLOAT, "ftz NaN xorsign relu u16x2 s16x2 abs"]),
    row("membar", Treatment::Pure, 0, 0..=0, &["cta gl sys"]),
    pure("min", 3, &[INT, FLOAT, "ftz NaN xorsign relu u16x2 s16x2 abs"]),
    row("mma", Treatment::Pure, 1, 4..=4, PRODUCT),
    row("mov", Treatment::Move, 1, 2..=2, &[BITS, INT, "f16 f16x2 bf16 bf16x2 f32 f64 pred"]),
    row("movmatrix", Treatment::Pure, 1, 2..=2, &["sync aligned m8n8 trans b16"]),
    pure("mul", 3, &[INT, FLOAT, ROUND, "hi lo wide"]),
    pure("mul24", 3, &["hi lo u32 s32"]),
    row("nanosleep", Treatment::Pure, 0, 1..=1, &["u32"]),
    pure("neg", 2, &[INT, FLOAT, "ftz"]),
    pure("not", 2, &[BITS, "pred"]),
    pure("or", 3, &[BITS, "pred"]),
    pure("popc", 2, &["b32 b64"]),
    pure("prmt", 4, &["b32 f4e b4e rc8 ecl ecr rc16"]),
    pure("rcp", 2, &["approx f32 f64", ROUND]),
    pure("redux", 3, &["sync add min max and or xor abs NaN u32 s32 b32 f32"]),
    pure("rem", 3, &[INT]),
    row("ret", Treatment::Pure, 0, 0..=0, &[]),
    pure("rsqrt", 2, &["approx ftz f32 f64"]),
    pure("sad", 4, &[INT]),
    pure("selp", 4, &[BITS, INT, "f32 f64"]),
    row("set", Treatment::Pure, 1, 3..=4, &[COMPARE, BITS, INT, FLOAT]),
    row("setp", Treatment::Pure, 1, 3..=4, &[COMPARE, BITS, INT, FLOAT]),
    pure("shf", 4, &["l r clamp wrap b32"]),
    pure("shfl", 5, &["sync up down bfly idx b32"]),
    pure("shl", 3, &[BITS]),
    pure("shr", 3, &[BITS, INT]),
    pure("sin", 2, &["approx ftz f32"]),
    pure("slct", 4, &[BITS, INT, "f32 f64 ftz"]),
    pure("sqrt", 2, &["approx f32 f64", ROUND]),
    pure("sub", 3, &[INT, FLOAT, ROUND, "cc"]),
    pure("subc", 3, &[INT, "cc"]),
    pure("szext", 3, &["clamp wrap u32 s32"]),
    pure("tanh", 2, &["approx f32 f16 f16x2 bf16 bf16x2"]),
    pure("testp", 2, &["finite infinite number notanumber normal subnormal f32 f64"]),
    video("vabsdiff", 3, &[VIDEO, VIDEO_SECOND]),
    video("vabsdiff2", 4, &[VIDEO, "add"]),
    video("vabsdiff4", 4, &[VIDEO, "add"]),
    video("vadd", 3, &[VIDEO, VIDEO_SECOND]),
    video("vadd2", 4, &[VIDEO, "add"]),
    video("vadd4", 4, &[VIDEO, "add"]),
    video("vavrg2", 4, &[VIDEO, "add"]),
    video("vavrg4", 4, &[VIDEO, "add"]),
    video("vmad", 4, &[VIDEO, "po shr7 shr15"]),
    video("vmax", 3, &[VIDEO, VIDEO_SECOND]),
    video("vmax2", 4, &[VIDEO, "add"]),
    video("vmax4", 4, &[VIDEO, "add"]),
    video("vmin", 3, &[VIDEO, VIDEO_SECOND]),
    video("vmin2", 4, &[VIDEO, "add"]),
    video("vmin4", 4, &[VIDEO, "add"]),
    pure("vote", 3, &["sync all any uni ballot pred b32"]),
    video("vset", 3, &["u32 s32 eq ne lt le gt ge", VIDEO_SECOND]),
    video("vset2", 4, &["u32 s32 eq ne lt le gt ge add"]),
    video("vset4", 4, &["u32 s32 eq ne lt le gt ge add"]),
    video("vshl", 3, &[VIDEO, VIDEO_SECOND, "clamp wrap"]),
    video("vshr", 3, &[VIDEO, VIDEO_SECOND, "clamp wrap"]),
    video("vsub", 3, &[VIDEO, VIDEO_SECOND]),
    video("vsub2", 4, &[VIDEO, "add"]),
    video("vsub4", 4, &[VIDEO, "add"]),
    row("wmma.mma", Treatment::Pure, 1, 4..=4, PRODUCT),
    pure("xor", 3, &[BITS, "pred"]),
];
