//! A program: what an entry is, once it is decoded.

use std::collections::HashMap;

use bulkhead_gpu::ParameterLayout;
use bulkhead_ptx::ast::Place;

use super::{BARRIERS, BarrierMode, Inst, Op, Src};
use crate::alu::convert::Conversion;
use crate::alu::video::Video;
use crate::alu::{LANES, Lanes};
use crate::matrix::Matrix;

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

    /// Host memory that it takes, about: what the interpreter runs.
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
        bytes as u64
    }

    /// Host memory that one warp takes while it runs.
    pub(crate) fn warp_bytes(&self) -> u64 {
        u64::from(self.registers) * size_of::<Lanes>() as u64 + u64::from(self.local_bytes) * LANES as u64
    }
}
