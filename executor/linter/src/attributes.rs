//! What a cubin tells the driver of its entries: the records of `.nv.info`. Their names are generated
//! ([`crate::attribute_names`]), as `cuobjdump -elf` has them behind `EIATTR_`.

use crate::{
    attribute_names::NAMES,
    elf::{half, word},
    refusal::{Refusal, malformed, not_allowed},
};

/// What follows a record's number: nothing, a byte, two bytes, or so many bytes.
mod form {
    pub(super) const NONE: u8 = 1;
    pub(super) const BYTE: u8 = 2;
    pub(super) const HALF: u8 = 3;
    pub(super) const SIZED: u8 = 4;
}

/// Records that change nothing which is checked here, by form: limits, versions, notes for tools.
const NOTES: &[(u8, &[&str])] = &[
    (form::SIZED, &["MAX_THREADS", "REQNTID", "CRS_STACK_SIZE", "SW_WAR", "CUDA_API_VERSION", "ANNOTATIONS"]),
    // Where 16-bit atomics that the device has not are emulated, with the registers.
    (form::SIZED, &["COOP_GROUP_MASK_REGIDS", "ATOM16_EMUL_INSTR_REG_MAP", "UNUSED_LOAD_BYTE_OFFSET"]),
    (form::HALF, &["MAXREG_COUNT", "SPARSE_MMA_MASK", "MERCURY_ISA_VERSION"]),
    (form::BYTE, &["NUM_BARRIERS"]),
    (form::NONE, &["CTAIDZ_USED", "WMMA_USED"]),
];

/// Why the others are refused. Names that tools do not know are refused too.
const REFUSED: &[(&str, &[&str])] = &[
    ("it is for functions that lie elsewhere, or that the driver has", &["EXTERNS", "SYSCALL_OFFSETS"]),
    (
        "it is for functions that lie elsewhere, or that the driver has",
        &["SYSCALLS_FALLBACK", "STUB_FUNCTION_KIND"],
    ),
    ("it is for launches from the device", &["NEED_CNP_WRAPPER", "NEED_CNP_PATCH", "AT_ENTRY_FRAGMENTS"]),
    ("it is for textures and surfaces", &["IMAGE_SLOT", "IMAGE_OFFSET", "IMAGE_SIZE", "TEXTURE_NORMALIZED"]),
    ("it is for textures and surfaces", &["SAMPLER_INIT", "TEXID_SAMPID_MAP", "SAMPLER_FORCE_UNNORMALIZED"]),
    (
        "it is for textures and surfaces",
        &["BINDLESS_IMAGE_OFFSETS", "BINDLESS_TEXTURE_BANK", "TEXMODE_INDEPENDENT"],
    ),
    ("it is for textures and surfaces", &["BINDLESS_SURFACE_BANK", "SUQ_USED", "ISTYPEP_USED"]),
    (
        "it is for clusters",
        &["CTA_PER_CLUSTER", "EXPLICIT_CLUSTER", "MAX_CLUSTER_RANK", "BLOCKS_ARE_CLUSTERS"],
    ),
    ("it is for clusters", &["CLUSTER_LAUNCH_CONTROL_USED", "LOCAL_CTA_ASYNC_STORE_OFFSETS"]),
    ("it is for barrier objects", &["NUM_MBARRIERS", "MBARRIER_INSTR_OFFSETS"]),
    ("it is for tensor memory or copies by descriptors", &["TCGEN05_1CTA_USED", "TCGEN05_2CTA_USED"]),
    ("it is for tensor memory or copies by descriptors", &["IGNOREOOB_CP_ASYNC_BULK_INSTR_OFFSETS"]),
    (
        "it says where parameters lie in a way that is not read here",
        &["SMEM_PARAM_OFFSETS", "SMEM_PARAM_SIZE"],
    ),
    ("it says where parameters lie in a way that is not read here", &["CBANK_PARAM_OFFSETS"]),
    ("it takes memory that is not counted here", &["SYNC_STACK", "SHARED_SCRATCH", "SAM_REGION_STACK_SIZE"]),
    ("it takes memory that is not counted here", &["RESERVED_SMEM_USED", "RESERVED_SMEM_0_SIZE"]),
    ("it takes memory that is not counted here", &["MIN_PER_CTA_MEMORY_SIZE", "REG_RECONFIG"]),
    (
        "it has the driver or tools change code",
        &["JUMPTABLE_RELOCS", "TOOLS_PATCH_FUNC", "UCODE_SECTION_DATA"],
    ),
    (
        "it has the driver or tools change code",
        &["SW1850030_WAR", "SW2393858_WAR", "SW2861232_WAR", "NVSAL_SW_WAR"],
    ),
    (
        "it has the driver or tools change code",
        &["SW_WAR_MEMBAR_SYS_INSTR_OFFSETS", "ATOM_SYS_INSTR_OFFSETS"],
    ),
    ("it has the driver or tools change code", &["LD_CACHEMOD_INSTR_OFFSETS", "ATOMF16_EMUL_INSTR_OFFSETS"]),
    ("it has the driver or tools change code", &["STACK_CANARY_TRAP_OFFSETS", "COROUTINE_RESUME_ID_OFFSETS"]),
    (
        "it has the driver or tools change code",
        &["MERCURY_FINALIZER_OPTIONS", "SANITIZE", "GEN_ERRBAR_AT_EXIT"],
    ),
    ("it has the driver or tools change code", &["EXPLICIT_CACHING", "LOAD_CACHE_REQUEST", "INSTR_REG_MAP"]),
    ("it is for drawing", &["GRAPHICS_GLOBAL_CBANK", "SHADER_TYPE", "VRC_CTA_INIT_COUNT", "RTCORE_ENTRY"]),
    (
        "no verified text has it",
        &["ERROR", "PAD", "QUERY_NUMATTRIB", "HAS_PRE_V10_OBJECT", "LANGUAGE", "CUDA_REQ"],
    ),
    ("no verified text has it", &["STATISTICS", "PERF_STATISTICS", "PER_REG_TARGET_PERF_STATS"]),
];

fn refused(form: u8, number: u8, name: &str) -> Refusal {
    let known = REFUSED.iter().find(|(_, names)| names.contains(&name));
    not_allowed(match known {
        Some((why, _)) => format!("attribute {number:#x} ({name}), because {why},"),
        None => format!("attribute {number:#x} ({name}) of form {form}"),
    })
}

/// A table that a computed branch jumps by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Jump {
    /// Where the branch is.
    pub(crate) at: u32,
    pub(crate) targets: Vec<u32>,
}

/// What the records of one section say.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    /// By symbol: frame, stack and registers.
    frames: Vec<(u32, u32)>,
    stacks: Vec<(u32, u32)>,
    registers: Vec<(u32, u32)>,
    /// Ordinals of parameters.
    pub(crate) parameters: Vec<u16>,
    /// Where parameters begin in their bank, and how many bytes they are.
    pub(crate) block: Option<(u16, u16)>,
    pub(crate) parameter_bytes: Option<u16>,
    /// Instructions that the driver is told of.
    pub(crate) instructions: Vec<u32>,
    pub(crate) jumps: Vec<Jump>,
}

fn words(value: &[u8]) -> impl Iterator<Item = u32> + '_ {
    value.chunks_exact(4).filter_map(|bytes| word(bytes, 0))
}

impl Attributes {
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        let cut = || malformed("attributes that end too early");
        while !bytes.is_empty() {
            let (record, rest) = bytes.split_at_checked(4).ok_or_else(cut)?;
            let (form, number) = (record[0], record[1]);
            let small = half(record, 2).ok_or_else(cut)?;
            let length = if form == form::SIZED { usize::from(small) } else { 0 };
            let (value, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
            self.record(form, number, small, value)?;
            bytes = rest;
        }
        Ok(())
    }

    fn record(&mut self, form: u8, number: u8, small: u16, value: &[u8]) -> Result<(), Refusal> {
        let pair = || match value.len() {
            8 => word(value, 0).zip(word(value, 4)),
            _ => None,
        };
        let wrong = || malformed(format!("attribute {number:#x} of {} bytes", value.len()));
        let name = NAMES.iter().find(|(known, _)| *known == number).map_or("unknown", |(_, name)| *name);
        match (form, name) {
            (form::SIZED, "FRAME_SIZE") => self.frames.push(pair().ok_or_else(wrong)?),
            (form::SIZED, "MIN_STACK_SIZE" | "MAX_STACK_SIZE") => self.stacks.push(pair().ok_or_else(wrong)?),
            (form::SIZED, "REGCOUNT") => self.registers.push(pair().ok_or_else(wrong)?),
            // The second is that of larger parameters; the ordinal, which is all that counts, lies in one place.
            (form::SIZED, "KPARAM_INFO" | "KPARAM_INFO_V2") if value.len() == 12 => {
                self.parameters.push(half(value, 4).ok_or_else(wrong)?);
            }
            (form::SIZED, "PARAM_CBANK") if value.len() == 8 && self.block.is_none() => {
                self.block = half(value, 4).zip(half(value, 6));
            }
            (form::HALF, "CBANK_PARAM_SIZE") => self.parameter_bytes = Some(small),
            (
                form::SIZED,
                "EXIT_INSTR_OFFSETS"
                | "S2RCTAID_INSTR_OFFSETS"
                | "COOP_GROUP_INSTR_OFFSETS"
                | "INT_WARP_WIDE_INSTR_OFFSETS",
            ) if value.len().is_multiple_of(4) => self.instructions.extend(words(value)),
            (form::SIZED, "INDIRECT_BRANCH_TARGETS") => self.jumps(value).ok_or_else(wrong)?,
            _ if NOTES.iter().any(|(of, names)| *of == form && names.contains(&name)) => {}
            _ => return Err(refused(form, number, name)),
        }
        Ok(())
    }

    /// Per branch: where it is, two words that say nothing here, how many targets, and these.
    fn jumps(&mut self, value: &[u8]) -> Option<()> {
        let mut left: Vec<u32> = words(value).collect();
        if !value.len().is_multiple_of(4) {
            return None;
        }
        left.reverse();
        while let Some(at) = left.pop() {
            let (_, count) = (left.pop()?, left.pop()?);
            let count = usize::try_from(count).ok().filter(|count| *count <= left.len())?;
            let targets = left.split_off(left.len() - count).into_iter().rev().collect();
            self.jumps.push(Jump { at, targets });
        }
        Some(())
    }

    fn most(of: &[(u32, u32)], symbols: &[u32]) -> Option<u32> {
        of.iter().filter(|(symbol, _)| symbols.contains(symbol)).map(|(_, value)| *value).max()
    }

    /// Bytes of stack of a function and of those that the assembler adds to it. They are said to have the frame of whom they
    /// serve, so that frames do not add up; what does is in the stack of the entry.
    pub(crate) fn stack_bytes(&self, symbols: &[u32]) -> Option<u32> {
        let frame = Self::most(&self.frames, symbols).unwrap_or(0);
        Self::most(&self.stacks, symbols).map(|stack| stack.max(frame))
    }

    pub(crate) fn registers(&self, symbols: &[u32]) -> Option<u32> {
        Self::most(&self.registers, symbols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records that are read, apart from notes.
    const READ: [&str; 13] = [
        "FRAME_SIZE",
        "MIN_STACK_SIZE",
        "MAX_STACK_SIZE",
        "REGCOUNT",
        "KPARAM_INFO",
        "KPARAM_INFO_V2",
        "PARAM_CBANK",
        "CBANK_PARAM_SIZE",
        "EXIT_INSTR_OFFSETS",
        "S2RCTAID_INSTR_OFFSETS",
        "COOP_GROUP_INSTR_OFFSETS",
        "INT_WARP_WIDE_INSTR_OFFSETS",
        "INDIRECT_BRANCH_TARGETS",
    ];

    #[test]
    fn every_attribute_is_read_or_a_note_or_refused_with_a_reason() {
        for (number, name) in NAMES {
            let read = READ.contains(name);
            let note = NOTES.iter().any(|(_, names)| names.contains(name));
            let refused = REFUSED.iter().any(|(_, names)| names.contains(name));
            assert_eq!(u8::from(read) + u8::from(note) + u8::from(refused), 1, "{number:#x} {name}");
        }
        let listed = NOTES.iter().map(|(_, names)| *names).chain(REFUSED.iter().map(|(_, names)| *names));
        for name in listed.flatten().chain(&READ) {
            assert!(NAMES.iter().any(|(_, known)| known == name), "nothing is called {name}");
        }
    }

    #[test]
    fn attributes_that_are_refused_or_unknown_are_so_in_every_form() {
        for number in 0..=u8::MAX {
            let name = NAMES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
            let why = REFUSED.iter().find(|(_, names)| name.is_some_and(|name| names.contains(&name)));
            if name.is_some() && why.is_none() {
                continue;
            }
            for form in 0..=5 {
                let refused = Attributes::default().read(&[form, number, 0, 0]).unwrap_err().to_string();
                let told = why.map_or("(unknown)", |(why, _)| *why);
                assert!(refused.contains(told), "{number:#x}: {refused}");
            }
        }
    }
}
