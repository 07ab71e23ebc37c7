//! Rows of opcodes that never pass, with the reason, and with what is known of the memory they access.

use super::row::Effect::{Reads, Touches, Updates, Writes};
use super::row::{Align, Effect, Memory, Refusal, Row, Treatment, Width};

const fn missing(
    name: &'static str,
    what: &'static str,
    destinations: usize,
    memory: &'static [Memory],
) -> Row {
    never(name, Refusal::NotImplemented(what), destinations, memory)
}

const fn refused(
    name: &'static str,
    what: &'static str,
    why: &'static str,
    destinations: usize,
    memory: &'static [Memory],
) -> Row {
    never(name, Refusal::NotAllowed(what, why), destinations, memory)
}

const fn never(name: &'static str, refusal: Refusal, destinations: usize, memory: &'static [Memory]) -> Row {
    let treatment = Treatment::Refused(refusal);
    Row { name, treatment, destinations, least: 0, most: 0, modifiers: &[], memory }
}

const fn typed(operand: usize, effect: Effect, spaces: &'static str) -> Memory {
    Memory { operand, effect, spaces, width: Width::Typed, align: Align::Natural }
}

const fn object(operand: usize, effect: Effect, spaces: &'static str, width: Width, align: u64) -> Memory {
    Memory { operand, effect, spaces, width, align: Align::Bytes(align) }
}

/// The address of an `mbarrier` object.
const fn barrier(operand: usize) -> Memory {
    let spaces = "generic shared shared::cta shared::cluster";
    Memory { operand, effect: Updates, spaces, width: Width::Bytes(8), align: Align::Bytes(8) }
}

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    missing("alloca", "stack allocation (`alloca`)", 1, &[]),
    missing("barrier.cluster", "clusters (`barrier.cluster`)", 0, &[]),
    refused("brkpt", "`brkpt`", "it stops the context", 0, &[]),
    missing("brx", "indirect branches (`brx`)", 0, &[]),
    missing("call", "function calls (`call`)", 0, &[]),
    missing("clusterlaunchcontrol", "clusters (`clusterlaunchcontrol`)", 1, &[]),
    missing(
        "clusterlaunchcontrol.try_cancel",
        "clusters (`clusterlaunchcontrol`)",
        0,
        &[object(0, Writes, "generic shared shared::cta shared::cluster", Width::Bytes(16), 16), barrier(1)],
    ),
    missing("cp", "bulk copies (`cp`)", 0, &[]),
    missing(
        "cp.async.bulk",
        "bulk copies (`cp`)",
        0,
        &[
            object(0, Writes, "shared::cta shared::cluster global", Width::Operand(2), 16),
            object(1, Reads, "global shared::cta", Width::Operand(2), 16),
            barrier(3),
        ],
    ),
    missing("cp.async.bulk.commit_group", "bulk copies (`cp`)", 0, &[]),
    missing(
        "cp.async.bulk.prefetch.tensor",
        "bulk copies (`cp`)",
        0,
        &[object(0, Touches, "global", Width::Tensor, 128)],
    ),
    missing(
        "cp.async.bulk.tensor",
        "bulk copies (`cp`)",
        0,
        &[
            object(0, Writes, "shared::cta shared::cluster global", Width::Tensor, 128),
            object(1, Reads, "global shared::cta", Width::Tensor, 128),
            barrier(2),
        ],
    ),
    missing("cp.async.bulk.wait_group", "bulk copies (`cp`)", 0, &[]),
    missing("cp.async.mbarrier", "barrier objects (`mbarrier`)", 0, &[barrier(0)]),
    missing(
        "cp.reduce.async.bulk",
        "bulk copies (`cp`)",
        0,
        &[
            object(0, Updates, "shared::cluster global", Width::Operand(2), 16),
            object(1, Reads, "shared::cta", Width::Operand(2), 16),
            barrier(3),
        ],
    ),
    missing(
        "cp.reduce.async.bulk.tensor",
        "bulk copies (`cp`)",
        0,
        &[
            object(0, Updates, "global", Width::Tensor, 128),
            object(1, Reads, "shared::cta", Width::Tensor, 128),
        ],
    ),
    missing("createpolicy", "cache policies (`createpolicy`)", 1, &[]),
    missing(
        "createpolicy.range",
        "cache policies (`createpolicy`)",
        1,
        &[object(1, Touches, "generic global", Width::Operand(2), 1)],
    ),
    missing("fence.mbarrier_init", "clusters (`fence.mbarrier_init`)", 0, &[]),
    missing(
        "fence.proxy",
        "proxy fences (`fence.proxy`)",
        0,
        &[object(0, Touches, "generic global", Width::Bytes(128), 128)],
    ),
    missing("getctarank", "clusters (`getctarank`)", 1, &[]),
    missing("istypep", "textures and surfaces (`istypep`)", 1, &[]),
    missing("ldu", "`ldu`", 1, &[typed(1, Reads, "generic global")]),
    missing("mapa", "clusters (`mapa`)", 1, &[]),
    missing("mbarrier", "barrier objects (`mbarrier`)", 0, &[]),
    missing("mbarrier.arrive", "barrier objects (`mbarrier`)", 1, &[barrier(1)]),
    missing("mbarrier.arrive_drop", "barrier objects (`mbarrier`)", 1, &[barrier(1)]),
    missing("mbarrier.complete_tx", "barrier objects (`mbarrier`)", 0, &[barrier(0)]),
    missing("mbarrier.expect_tx", "barrier objects (`mbarrier`)", 0, &[barrier(0)]),
    missing("mbarrier.init", "barrier objects (`mbarrier`)", 0, &[barrier(0)]),
    missing("mbarrier.inval", "barrier objects (`mbarrier`)", 0, &[barrier(0)]),
    missing("mbarrier.pending_count", "barrier objects (`mbarrier`)", 1, &[]),
    missing("mbarrier.test_wait", "barrier objects (`mbarrier`)", 1, &[barrier(1)]),
    missing("mbarrier.try_wait", "barrier objects (`mbarrier`)", 1, &[barrier(1)]),
    refused("multimem", "`multimem`", "it takes addresses that no window confines", 0, &[]),
    refused(
        "multimem.ld_reduce",
        "`multimem`",
        "it takes addresses that no window confines",
        1,
        &[typed(1, Reads, "generic global")],
    ),
    refused(
        "multimem.red",
        "`multimem`",
        "it takes addresses that no window confines",
        0,
        &[typed(0, Updates, "generic global")],
    ),
    refused(
        "multimem.st",
        "`multimem`",
        "it takes addresses that no window confines",
        0,
        &[typed(0, Writes, "generic global")],
    ),
    refused("pmevent", "`pmevent`", "it triggers the profiler of others", 0, &[]),
    missing(
        "prefetch.const.tensormap",
        "tensor maps (`prefetch.tensormap`)",
        0,
        &[object(0, Touches, "generic const param", Width::Bytes(128), 64)],
    ),
    missing(
        "prefetch.param.tensormap",
        "tensor maps (`prefetch.tensormap`)",
        0,
        &[object(0, Touches, "generic const param", Width::Bytes(128), 64)],
    ),
    missing(
        "prefetch.tensormap",
        "tensor maps (`prefetch.tensormap`)",
        0,
        &[object(0, Touches, "generic const param", Width::Bytes(128), 64)],
    ),
    missing(
        "red.async",
        "clusters (`red.async`)",
        0,
        &[typed(0, Updates, "shared::cluster global"), barrier(2)],
    ),
    refused("setmaxnreg", "`setmaxnreg`", "it waits for registers without end", 0, &[]),
    missing(
        "st.async",
        "clusters (`st.async`)",
        0,
        &[typed(0, Writes, "shared::cluster global"), barrier(2)],
    ),
    missing(
        "st.bulk",
        "bulk stores (`st.bulk`)",
        0,
        &[object(0, Writes, "generic shared shared::cta", Width::Operand(1), 8)],
    ),
    missing("stackrestore", "stack allocation (`stackrestore`)", 0, &[]),
    missing("stacksave", "stack allocation (`stacksave`)", 1, &[]),
    missing("suld", "surfaces (`suld`)", 1, &[object(1, Reads, "surface", Width::Handle, 1)]),
    missing("suq", "surfaces (`suq`)", 1, &[object(1, Reads, "surface", Width::Handle, 1)]),
    missing("sured", "surfaces (`sured`)", 0, &[object(0, Updates, "surface", Width::Handle, 1)]),
    missing("sust", "surfaces (`sust`)", 0, &[object(0, Writes, "surface", Width::Handle, 1)]),
    missing("tcgen05", "matrix instructions (`tcgen05`)", 0, &[]),
    missing(
        "tcgen05.alloc",
        "matrix instructions (`tcgen05`)",
        0,
        &[object(0, Writes, "generic shared shared::cta", Width::Bytes(4), 4)],
    ),
    missing("tcgen05.commit", "matrix instructions (`tcgen05`)", 0, &[barrier(0)]),
    missing(
        "tcgen05.cp",
        "matrix instructions (`tcgen05`)",
        0,
        &[object(0, Writes, "tensor", Width::Matrix, 1)],
    ),
    missing(
        "tcgen05.ld",
        "matrix instructions (`tcgen05`)",
        1,
        &[object(1, Reads, "tensor", Width::Matrix, 1)],
    ),
    missing(
        "tcgen05.mma",
        "matrix instructions (`tcgen05`)",
        0,
        &[object(0, Updates, "tensor", Width::Matrix, 1)],
    ),
    missing(
        "tcgen05.shift",
        "matrix instructions (`tcgen05`)",
        0,
        &[object(0, Updates, "tensor", Width::Matrix, 1)],
    ),
    missing(
        "tcgen05.st",
        "matrix instructions (`tcgen05`)",
        0,
        &[object(0, Writes, "tensor", Width::Matrix, 1)],
    ),
    missing("tensormap", "tensor maps (`tensormap`)", 0, &[]),
    missing(
        "tensormap.cp_fenceproxy",
        "tensor maps (`tensormap`)",
        0,
        &[
            object(0, Writes, "global", Width::Bytes(128), 128),
            object(1, Reads, "shared::cta", Width::Bytes(128), 128),
        ],
    ),
    missing(
        "tensormap.replace",
        "tensor maps (`tensormap`)",
        0,
        &[object(0, Writes, "generic global shared::cta", Width::Bytes(128), 128)],
    ),
    missing("tex", "textures (`tex`)", 1, &[object(1, Reads, "texture", Width::Handle, 1)]),
    missing("tld4", "gathers from textures (`tld4`)", 1, &[object(1, Reads, "texture", Width::Handle, 1)]),
    refused("trap", "`trap`", "it ends the context of every session", 0, &[]),
    missing("txq", "such questions of textures (`txq`)", 1, &[object(1, Reads, "texture", Width::Handle, 1)]),
    missing("wgmma", "matrix instructions (`wgmma`)", 0, &[]),
    missing("wgmma.mma_async", "matrix instructions (`wgmma`)", 1, &[]),
    missing("wmma", "matrix instructions (`wmma`)", 0, &[]),
];
