//! What a memory instruction accesses: space, width, and where its address stands.

use crate::ast::{Address, Instruction, Operand, Space};
use crate::report::Reason;
use crate::table::{Effect, Memory, Row, Treatment, Width};

/// A memory access, as far as the guard has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access<'a> {
    /// The memory that it names.
    pub space: Space,
    /// Whether it only reads.
    pub reads_only: bool,
    /// What it is aligned to: the bytes of the whole access, all elements of a vector together; a power of two.
    pub bytes: u64,
    /// From its address to its last byte; more than what it is aligned to for the lines of a matrix.
    pub extent: u64,
    /// The operand that says how far apart lines are, where a register does, and to which bits that is cut.
    pub stride: Option<(usize, u32)>,
    /// Where, in the address operand.
    pub address: &'a Address,
    /// Which operand the address is.
    pub index: usize,
}

/// What a memory instruction accesses by its row.
fn memory(row: &Row) -> &'static [Memory] {
    match row.treatment {
        Treatment::Load | Treatment::Store | Treatment::Reduction | Treatment::Atomic | Treatment::Copy => {
            row.memory
        }
        Treatment::Pure
        | Treatment::Move
        | Treatment::Branch
        | Treatment::Barrier
        | Treatment::Hint
        | Treatment::Gate
        | Treatment::Refused(_) => &[],
    }
}

/// Which operand the address of a memory instruction is that names no state space; none for all others.
pub fn generic(row: &Row, instruction: &Instruction) -> Option<usize> {
    let index = memory(row).first().filter(|memory| memory.permits("generic"))?.operand;
    instruction.modifiers.iter().all(|modifier| space(modifier).is_none()).then_some(index)
}

/// Whether a modifier says how an access is ordered with those of other threads.
pub fn is_ordering(modifier: &str) -> bool {
    matches!(
        modifier,
        "mmio" | "weak" | "volatile" | "relaxed" | "acquire" | "release" | "acq_rel" | "cta" | "gpu" | "sys"
    )
}

/// Whether a modifier chooses among the caches of global memory.
pub fn is_caching(modifier: &str) -> bool {
    matches!(modifier, "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "nc")
}

/// Decodes a memory instruction whose modifiers the table knows: what it accesses, in the order of its operands. Nothing
/// where the row is no memory access, two where it copies.
pub fn decode<'a>(row: &Row, instruction: &'a Instruction) -> Result<Accesses<'a>, Reason> {
    match memory(row) {
        [] => Ok(Accesses::default()),
        [first] => Ok(Accesses([Some(one(row, first, instruction)?), None])),
        [first, second] => {
            Ok(Accesses([Some(one(row, first, instruction)?), Some(one(row, second, instruction)?)]))
        }
        _ => Err(Reason::NotImplemented { what: format!("what `{}` accesses", row.name) }),
    }
}

/// What an instruction accesses: at most two places.
#[derive(Debug, Clone, Copy, Default)]
pub struct Accesses<'a>([Option<Access<'a>>; 2]);

impl<'a> Accesses<'a> {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Access<'a>> {
        self.0.iter().flatten()
    }

    /// The one in shared memory, of which there is never more than one.
    pub fn shared(&self) -> Option<&Access<'a>> {
        self.iter().find(|access| access.space == Space::Shared)
    }
}

fn one<'a>(row: &Row, memory: &Memory, instruction: &'a Instruction) -> Result<Access<'a>, Reason> {
    let (opcode, index) = (row.name, memory.operand);
    let reads_only = memory.effect == Effect::Reads;
    let Some(Operand::Address(address)) = instruction.operands.get(index) else {
        return Err(Reason::Malformed(format!("operand {} of `{opcode}` is not an address", index + 1)));
    };
    let permitted = |modifier: &&String| memory.permits(modifier);
    let mut spaces = instruction.modifiers.iter().filter(permitted).filter_map(|modifier| space(modifier));
    let space = match (spaces.next(), spaces.next()) {
        (Some(space), None) => space,
        (None, _) => {
            return Err(Reason::NotImplemented {
                what: format!("a generic address (`{opcode}` without a state space)"),
            });
        }
        (Some(_), Some(_)) => return Err(Reason::Malformed(format!("`{opcode}` names two state spaces"))),
    };
    let lines = match memory.width {
        Width::Matrix => Some(lines(row, index, instruction)?),
        Width::Typed | Width::Bytes(_) | Width::Operand(_) | Width::Tensor | Width::Handle => None,
    };
    let bytes = match memory.width {
        Width::Matrix => 16,
        Width::Typed => typed_bytes(opcode, instruction)?,
        Width::Bytes(bytes) => bytes,
        Width::Operand(size) if row.treatment == Treatment::Copy => match instruction.operands.get(size) {
            Some(Operand::Integer(4)) => 4,
            Some(Operand::Integer(8)) => 8,
            Some(Operand::Integer(16)) => 16,
            _ => return Err(Reason::Malformed(format!("`{opcode}` copies 4, 8 or 16 bytes"))),
        },
        Width::Operand(_) | Width::Tensor | Width::Handle => {
            return Err(Reason::NotImplemented { what: format!("what `{opcode}` accesses") });
        }
    };
    if bytes > 16 {
        return Err(Reason::Malformed(format!("`{opcode}` of {bytes} bytes")));
    }
    let (extent, stride) = lines.unwrap_or((bytes, None));
    Ok(Access { space, reads_only, bytes, extent, stride, address, index })
}

/// Strides below this many elements are taken as they are: all lines of a matrix are less than 2^31 bytes then.
const STRIDE_BOUND: u32 = 1 << 24;

/// From the address of a matrix to its last byte; where a register says how far apart lines are, which operand that is and
/// to which bits it is cut.
fn lines(
    row: &Row,
    address: usize,
    instruction: &Instruction,
) -> Result<(u64, Option<(usize, u32)>), Reason> {
    let unknown = || Reason::NotImplemented { what: format!("this form of `{}`", row.name) };
    let has = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    let shape = instruction.modifiers.iter().filter_map(|modifier| match modifier.as_str() {
        "m16n16k16" => Some([16, 16, 16]),
        "m8n32k16" => Some([8, 32, 16]),
        "m32n8k16" => Some([32, 8, 16]),
        "m16n16k8" => Some([16, 16, 8]),
        "m8n8k4" => Some([8, 8, 4]),
        _ => None,
    });
    let types = instruction.modifiers.iter().filter_map(|modifier| match modifier.as_str() {
        "tf32" => Some(4),
        modifier => bytes(modifier),
    });
    let (shapes, types): (Vec<[u64; 3]>, Vec<u64>) = (shape.collect(), types.collect());
    let ([[m, n, k]], [element]) = (shapes.as_slice(), types.as_slice()) else { return Err(unknown()) };
    let (rows, columns) = match (has("a"), has("b"), has("c") || has("d")) {
        (true, false, false) => (m, k),
        (false, true, false) => (k, n),
        (false, false, true) => (m, n),
        _ => return Err(unknown()),
    };
    let (lines, line) = match (has("row"), has("col")) {
        (true, false) => (rows, columns),
        (false, true) => (columns, rows),
        _ => return Err(unknown()),
    };
    let extent = |stride: u64| ((lines - 1) * stride + line) * element;
    // Every line begins at a multiple of 16 bytes.
    let mask = (STRIDE_BOUND - 1) & !u32::try_from(16 / element - 1).map_err(|_| unknown())?;
    let stride = instruction.operands.get(if address == 0 { 2 } else { address + 1 });
    match stride {
        None => Ok((extent(*line), None)),
        Some(Operand::Integer(stride)) => {
            let stride = u32::try_from(*stride).ok().filter(|stride| stride & mask == *stride);
            let Some(stride) = stride else {
                return Err(Reason::Malformed(format!("a stride that `{}` cannot have", row.name)));
            };
            Ok((extent(stride.into()).max(extent(0)), None))
        }
        Some(_) => Ok((extent(mask.into()), Some((if address == 0 { 2 } else { address + 1 }, mask)))),
    }
}

/// Bytes of the type and vector that the modifiers name.
fn typed_bytes(opcode: &str, instruction: &Instruction) -> Result<u64, Reason> {
    let mut types = instruction.modifiers.iter().filter_map(|modifier| bytes(modifier));
    let element = match (types.next(), types.next()) {
        (Some(bytes), None) => bytes,
        _ => return Err(Reason::Malformed(format!("`{opcode}` does not name one type"))),
    };
    let mut vectors = instruction.modifiers.iter().filter_map(|modifier| vector(modifier));
    match (vectors.next(), vectors.next()) {
        (None, _) => Ok(element),
        (Some(elements), None) => Ok(element * elements),
        (Some(_), Some(_)) => Err(Reason::Malformed(format!("`{opcode}` names two vector sizes"))),
    }
}

fn space(modifier: &str) -> Option<Space> {
    Some(match modifier {
        "global" => Space::Global,
        "shared" | "shared::cta" => Space::Shared,
        "local" => Space::Local,
        "const" => Space::Constant,
        "param" => Space::Parameter,
        _ => return None,
    })
}

fn bytes(modifier: &str) -> Option<u64> {
    Some(match modifier {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        _ => return None,
    })
}

fn vector(modifier: &str) -> Option<u64> {
    Some(match modifier {
        "v2" => 2,
        "v4" => 4,
        _ => return None,
    })
}
