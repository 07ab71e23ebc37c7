//! Rows of opcodes that access memory in a way that can be confined.

use super::row::{Align, Effect, Memory, Row, Treatment, Width, row};

const ORDER: &str = "weak volatile relaxed acquire release acq_rel cta gpu sys";
const CACHE: &str = "ca cg cs lu cv wb wt";
const MEMORY: &str = "b8 u8 s8 b16 u16 s16 b32 u32 s32 b64 u64 s64 f32 f64 v2 v4";
const SPACES: &str = "global shared shared::cta local";
/// What atomics take: no 16 bits, of which ptxas makes loops that compare and swap. How often those turn depends on what
/// all other threads do, and nothing looks in them whether the kernel is to end: `guard/src/confine/halves.rs` writes loops that do.
/// In shared memory ptxas makes such loops of more (floats, and 64 bits); there only threads of the same block make them turn
/// once more, each of which looks at the flag before its next.
const UPDATED: &str = "b32 b64 u32 s32 u64 s64 f16x2 bf16x2 f32 f64";
const UPDATES: &str = "global shared shared::cta and or xor cas exch add inc dec min max noftz";

/// An access of the type and vector that the modifiers name, aligned to all of it.
const fn typed(operand: usize, effect: Effect, spaces: &'static str) -> Memory {
    Memory { operand, effect, spaces, width: Width::Typed, align: Align::Natural }
}

const LOAD: &[Memory] = &[typed(
    1,
    Effect::Reads,
    "generic global shared shared::cta shared::cluster local const param param::entry param::func",
)];
const STORE: &[Memory] =
    &[typed(0, Effect::Writes, "generic global shared shared::cta shared::cluster local param param::func")];
const ATOMIC: &[Memory] = &[typed(1, Effect::Updates, "generic global shared shared::cta shared::cluster")];
const REDUCTION: &[Memory] =
    &[typed(0, Effect::Updates, "generic global shared shared::cta shared::cluster")];
const COPY: &[Memory] = &[
    Memory {
        operand: 0,
        effect: Effect::Writes,
        spaces: "shared shared::cta",
        width: Width::Operand(2),
        align: Align::Natural,
    },
    Memory {
        operand: 1,
        effect: Effect::Reads,
        spaces: "global",
        width: Width::Operand(2),
        align: Align::Natural,
    },
];
/// Rows of a matrix of 16 bytes each, one at each lane's address.
const fn rows(operand: usize, effect: Effect) -> Memory {
    let spaces = "generic shared shared::cta";
    Memory { operand, effect, spaces, width: Width::Bytes(16), align: Align::Bytes(16) }
}

/// Lines of a matrix, a stride apart.
const fn lines(operand: usize, effect: Effect) -> Memory {
    let spaces = "generic global shared shared::cta";
    Memory { operand, effect, spaces, width: Width::Matrix, align: Align::Bytes(16) }
}

/// A line of a cache that advice is about.
const fn line(effect: Effect) -> Memory {
    let (spaces, width, align) = ("generic global", Width::Bytes(128), Align::Bytes(128));
    Memory { operand: 0, effect, spaces, width, align }
}

const EIGHTS: &[&str] = &["sync aligned m8n8 x1 x2 x4 trans shared shared::cta b16"];
const LINES: &str =
    "sync aligned row col m16n16k16 m8n32k16 m32n8k16 m16n16k8 m8n8k4 global shared shared::cta";
const LINE_TYPES: &str = "f16 bf16 tf32 f32 f64 s8 u8 s32";
const PREFETCH: &[Memory] = &[Memory {
    operand: 0,
    effect: Effect::Touches,
    spaces: "generic global local",
    width: Width::Bytes(1),
    align: Align::Bytes(1),
}];

const fn access(row: Row, memory: &'static [Memory]) -> Row {
    Row { memory, ..row }
}

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    access(row("applypriority", Treatment::Hint, 0, 2..=2, &["global"]), &[line(Effect::Touches)]),
    access(row("atom", Treatment::Atomic, 1, 3..=4, &[ORDER, UPDATES, UPDATED]), ATOMIC),
    access(row("cp.async", Treatment::Copy, 0, 3..=4, &["async ca cg shared shared::cta global"]), COPY),
    access(
        row("cp.async.bulk.prefetch", Treatment::Hint, 0, 2..=2, &["async bulk prefetch L2 global"]),
        &[Memory {
            operand: 0,
            effect: Effect::Touches,
            spaces: "global",
            width: Width::Operand(1),
            align: Align::Bytes(16),
        }],
    ),
    row("cp.async.commit_group", Treatment::Pure, 0, 0..=0, &["async commit_group"]),
    row("cp.async.wait_all", Treatment::Pure, 0, 0..=0, &["async wait_all"]),
    row("cp.async.wait_group", Treatment::Pure, 0, 1..=1, &["async wait_group"]),
    // What it would leave is anything, also what is there; the device leaves what was there before that was written.
    access(row("discard", Treatment::Hint, 0, 2..=2, &["global L2"]), &[line(Effect::Writes)]),
    access(
        row("ld", Treatment::Load, 1, 2..=2, &[SPACES, "param const nc mmio", ORDER, CACHE, MEMORY]),
        LOAD,
    ),
    access(row("ldmatrix", Treatment::Load, 1, 2..=2, EIGHTS), &[rows(1, Effect::Reads)]),
    access(row("prefetch", Treatment::Hint, 0, 1..=1, &["global local L1 L2"]), PREFETCH),
    access(row("prefetchu", Treatment::Hint, 0, 1..=1, &["L1"]), PREFETCH),
    access(row("red", Treatment::Reduction, 0, 2..=2, &[ORDER, UPDATES, UPDATED]), REDUCTION),
    access(row("st", Treatment::Store, 0, 2..=2, &[SPACES, "mmio", ORDER, CACHE, MEMORY]), STORE),
    access(row("stmatrix", Treatment::Store, 0, 2..=2, EIGHTS), &[rows(0, Effect::Writes)]),
    access(
        row("wmma.load", Treatment::Load, 1, 2..=3, &["load a b c", LINES, LINE_TYPES]),
        &[lines(1, Effect::Reads)],
    ),
    access(
        row("wmma.store", Treatment::Store, 0, 2..=3, &["store d", LINES, LINE_TYPES]),
        &[lines(0, Effect::Writes)],
    ),
];
