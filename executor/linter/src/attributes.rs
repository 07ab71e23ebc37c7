//! What a cubin tells the driver of its entries: the records of `.nv.info` (their numbers are those that
//! `cuobjdump -elf` names `EIATTR_...`).

use crate::{
    Refusal,
    elf::{half, word},
    malformed, not_allowed,
};

/// What follows a record's number: nothing, a byte, two bytes, or so many bytes.
mod form {
    pub(super) const NONE: u8 = 1;
    pub(super) const BYTE: u8 = 2;
    pub(super) const HALF: u8 = 3;
    pub(super) const SIZED: u8 = 4;
}

const MAX_THREADS: u8 = 0x05;
const CTAIDZ_USED: u8 = 0x04;
const PARAM_CBANK: u8 = 0x0a;
const REQNTID: u8 = 0x10;
const FRAME_SIZE: u8 = 0x11;
const MIN_STACK_SIZE: u8 = 0x12;
const KPARAM_INFO: u8 = 0x17;
const CBANK_PARAM_SIZE: u8 = 0x19;
const MAXREG_COUNT: u8 = 0x1b;
const EXIT_INSTR_OFFSETS: u8 = 0x1c;
const S2RCTAID_INSTR_OFFSETS: u8 = 0x1d;
const CRS_STACK_SIZE: u8 = 0x1e;
const MAX_STACK_SIZE: u8 = 0x23;
const COOP_GROUP_INSTR_OFFSETS: u8 = 0x28;
const COOP_GROUP_MASK_REGIDS: u8 = 0x29;
const WMMA_USED: u8 = 0x2b;
/// Where 16-bit atomics that the device has not are emulated, with the registers.
const ATOM16_EMUL_INSTR_REG_MAP: u8 = 0x2e;
const REGCOUNT: u8 = 0x2f;
const INT_WARP_WIDE_INSTR_OFFSETS: u8 = 0x31;
const INDIRECT_BRANCH_TARGETS: u8 = 0x34;
const SW_WAR: u8 = 0x36;
const CUDA_API_VERSION: u8 = 0x37;
const UNUSED_LOAD_BYTE_OFFSET: u8 = 0x44;
const NUM_BARRIERS: u8 = 0x4c;
const SPARSE_MMA_MASK: u8 = 0x50;
/// Notes of the compiler for tools.
const ANNOTATIONS: u8 = 0x55;
/// The version of the attributes, which `cuobjdump` 13.2 does not name.
const VERSION: u8 = 0x5f;

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
        match (form, number) {
            (form::SIZED, FRAME_SIZE) => self.frames.push(pair().ok_or_else(wrong)?),
            (form::SIZED, MIN_STACK_SIZE | MAX_STACK_SIZE) => self.stacks.push(pair().ok_or_else(wrong)?),
            (form::SIZED, REGCOUNT) => self.registers.push(pair().ok_or_else(wrong)?),
            (form::SIZED, KPARAM_INFO) if value.len() == 12 => {
                self.parameters.push(half(value, 4).ok_or_else(wrong)?);
            }
            (form::SIZED, PARAM_CBANK) if value.len() == 8 && self.block.is_none() => {
                self.block = half(value, 4).zip(half(value, 6));
            }
            (form::HALF, CBANK_PARAM_SIZE) => self.parameter_bytes = Some(small),
            (
                form::SIZED,
                EXIT_INSTR_OFFSETS
                | S2RCTAID_INSTR_OFFSETS
                | COOP_GROUP_INSTR_OFFSETS
                | INT_WARP_WIDE_INSTR_OFFSETS,
            ) if value.len().is_multiple_of(4) => self.instructions.extend(words(value)),
            (form::SIZED, INDIRECT_BRANCH_TARGETS) => self.jumps(value).ok_or_else(wrong)?,
            (form::SIZED, COOP_GROUP_MASK_REGIDS | ATOM16_EMUL_INSTR_REG_MAP | UNUSED_LOAD_BYTE_OFFSET)
            | (
                form::SIZED,
                MAX_THREADS | REQNTID | CRS_STACK_SIZE | SW_WAR | CUDA_API_VERSION | ANNOTATIONS,
            )
            | (form::HALF, MAXREG_COUNT | SPARSE_MMA_MASK | VERSION)
            | (form::BYTE, NUM_BARRIERS)
            | (form::NONE, CTAIDZ_USED | WMMA_USED) => {}
            _ => return Err(not_allowed(format!("attribute {number:#x} of form {form}"))),
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

    /// Bytes of stack of a function, or of several together: whichever is said to be more.
    pub(crate) fn stack_bytes(&self, symbols: &[u32]) -> Option<u32> {
        let frames = self.frames.iter().filter(|(symbol, _)| symbols.contains(symbol));
        let frames = frames.fold(0, |sum: u32, (_, bytes)| sum.saturating_add(*bytes));
        Self::most(&self.stacks, symbols).map(|stack| stack.max(frames))
    }

    pub(crate) fn registers(&self, symbols: &[u32]) -> Option<u32> {
        Self::most(&self.registers, symbols)
    }
}
