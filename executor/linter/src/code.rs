//! The instructions of an entry: 16 bytes each, the number in the lowest twelve bits and, above them, bit 91.
//!
//! What a number is, says a table ([`crate::effects`]). The low nine bits of a number say what is done and the three
//! above where operands come from (registers, a literal, a constant bank, uniform registers). Bits beside the number
//! say where a jump goes, which constants are read, or make something else of an instruction: they are looked at here.

use std::collections::HashSet;

use crate::{
    attributes::Jump,
    effects::{self, Effect},
    linted::Counts,
    refusal::{Refusal, malformed, not_allowed},
};

const INSTRUCTION_BYTES: u64 = 16;
/// The part of a number that is in the lowest bits, and how long it is.
const OPCODE: u128 = 0xfff;
const OPCODE_BITS: u32 = 12;
/// The highest bit of a number, set where a uniform register is an operand. Of a constant, that says where it lies.
const UNIFORM: u32 = 91;
/// The predicate, four bits from here: 7 without one.
const PREDICATE: u32 = 12;
const ALWAYS: u128 = 7;
/// Where scheduling bits begin.
const SCHEDULE: u32 = 105;

/// The bits of a jump or a wait for other threads that say which form of it this is.
const FORM: u128 = 0x1f << 82 | 0x3fff << 91 | 3 << 32;
/// `CALL.NOINC`, `RET.NODEC`: nothing counts how deep calls are.
const UNCOUNTED: u128 = 1 << 86;
/// Taken where threads are not together: the mask in a uniform register says which ones have to be.
const DIVERGENT: u128 = 1 << 91 | 1 << 33;
/// Taken where they are together.
const CONVERGED: u128 = DIVERGENT | 1 << 32;
const COLLECTIVE: u128 = 1 << 86;
const EXCLUSIVE: u128 = 1 << 85;

/// `BRA.U`: the assembler found that all threads which come here go the same way.
const SAME_WAY: u128 = 1 << 32;

/// Which bits of an instruction, by the lowest twelve of its number, make something else of it, and what they may be.
const FORMS: &[(u16, u128, &[u128])] = &[
    // Others go to absolute places, or to ones that a uniform register says.
    (0x348, FORM, &[0, EXCLUSIVE, COLLECTIVE]),
    (0x91b, FORM, &[0]),
    (0x941, FORM, &[0]),
    (0x942, FORM, &[0]),
    (0x944, FORM, &[UNCOUNTED]),
    (0x945, FORM, &[0]),
    (0x946, FORM, &[0]),
    (0x947, FORM, &[0, SAME_WAY, DIVERGENT, CONVERGED]),
    (0x948, FORM, &[0, COLLECTIVE]),
    (0x949, FORM, &[0]),
    (0x94d, FORM, &[0]),
    (0x950, FORM, &[UNCOUNTED]),
    // The mask as it is, and not as whole quads of threads.
    (0x356, 1 << 84, &[0]),
    // For a time, and not for a barrier object.
    (0x35d, 7 << 84, &[0]),
    (0x95d, 7 << 84, &[0]),
    // An index never reaches another bank.
    (0xb82, 3 << 78, &[0]),
    // `SYNC` and `RED` wait for all; others arrive without waiting.
    (0x31d, 7 << 77, &[0, 2 << 77]),
    (0xb1d, 7 << 77, &[0, 2 << 77]),
];

/// Registers that hold which threads will meet. Beyond them are masks and places by which the hardware runs a warp.
const MASKS: u128 = 16;
/// Where the three bits above the operation say that an operand is a constant: the third, or the second.
const CONSTANT_OPERAND: [u16; 2] = [3, 5];
/// `ULDC` at an offset in a uniform register, which is within a bank.
const INDEXED_CONSTANT: u16 = 0x1abb;
/// Parameters, what the assembler made for itself, and the module's constants.
const BANKS: [u128; 3] = [0, 2, 3];

/// The 16 bytes of one instruction.
#[derive(Clone, Copy)]
struct Instruction {
    bits: u128,
    at: u64,
}

impl Instruction {
    fn field(self, from: u32, bits: u32) -> u128 {
        self.bits >> from & ((1 << bits) - 1)
    }

    /// The lowest twelve bits of its number.
    fn opcode(self) -> u16 {
        u16::try_from(self.bits & OPCODE).unwrap_or(u16::MAX)
    }

    fn number(self) -> u16 {
        self.opcode() | u16::from(self.field(UNIFORM, 1) != 0) << OPCODE_BITS
    }

    fn has_known_form(self) -> bool {
        let forms = FORMS.iter().find(|(opcode, ..)| *opcode == self.opcode());
        forms.is_none_or(|(_, mask, forms)| forms.contains(&(self.bits & mask)))
    }

    /// Whether it reads no constants, or ones of the module: asked of what computes with registers and constants.
    fn has_known_constants(self) -> bool {
        if !CONSTANT_OPERAND.contains(&(self.opcode() >> 9)) {
            return true;
        }
        let described = self.number() != self.opcode() && self.number() != INDEXED_CONSTANT;
        !described && BANKS.contains(&self.field(54, 5))
    }

    fn is_unconditional(self) -> bool {
        self.field(PREDICATE, 4) == ALWAYS
    }

    /// The bits, without predicate and scheduling.
    fn body(self) -> u128 {
        self.field(0, SCHEDULE) & !(0xf << PREDICATE)
    }

    /// A distance in words from the instruction after this one, as `BRA`, `CALL`, `BRX`, `RET` and `WARPSYNC` have it.
    fn far(self) -> i128 {
        signed(self.field(34, 48) << 8 | self.field(16, 8), 56) * 4
    }

    /// The same, as `BSSY` has it.
    fn near(self) -> i128 {
        signed(self.field(34, 30), 30) * 4
    }

    fn after(self, distance: i128) -> i128 {
        i128::from(self.at) + i128::from(INSTRUCTION_BYTES) + distance
    }
}

fn signed(value: u128, bits: u32) -> i128 {
    let value = i128::try_from(value).unwrap_or(i128::MAX);
    if value >> (bits - 1) & 1 == 1 { value - (1 << bits) } else { value }
}

/// `CCTL.IVALL`: forgets what the first-level cache has, and names no address.
const INVALIDATE_ALL: u128 = 0x0200_0000_0000_0000_ff00_098f;

/// What was found in an entry up to an instruction.
struct Scan<'a> {
    /// Bytes of the entry.
    length: u64,
    architecture: u32,
    /// What its attributes say of computed branches.
    jumps: &'a [Jump],
    counts: Counts,
    /// Computed branches so far.
    tables: usize,
    /// Where threads go on that are gathered, and where what gathers them ends.
    gathered: HashSet<i128>,
    ends: HashSet<i128>,
}

/// Counts an entry's accesses; refuses what is in no list, and what leaves the entry.
pub(crate) fn scan(
    code: &[u8],
    architecture: u32,
    jumps: &[Jump],
    marked: &[u32],
) -> Result<Counts, Refusal> {
    let length = u64::try_from(code.len()).unwrap_or(u64::MAX);
    if code.is_empty() || !length.is_multiple_of(INSTRUCTION_BYTES) {
        return Err(malformed("code that is not whole instructions"));
    }
    let mut scan = Scan {
        length,
        architecture,
        jumps,
        counts: Counts::default(),
        tables: 0,
        gathered: HashSet::new(),
        ends: HashSet::new(),
    };
    if let Some(place) = marked.iter().find(|place| !scan.is_place(i128::from(**place))) {
        return Err(malformed(format!("an attribute of an instruction at {place:#x}")));
    }
    let mut last = None;
    for (chunk, at) in code.chunks_exact(16).zip((0..).step_by(16)) {
        let bits = u128::from_le_bytes(chunk.try_into().unwrap_or_default());
        let instruction = Instruction { bits, at };
        if scan.instruction(instruction)? {
            last = Some(instruction);
        }
    }
    scan.end(last)
}

impl Scan<'_> {
    /// Whether an instruction of the entry begins there.
    fn is_place(&self, place: i128) -> bool {
        u64::try_from(place).is_ok_and(|place| place < self.length && place % INSTRUCTION_BYTES == 0)
    }

    /// Whether it is more than padding.
    fn instruction(&mut self, instruction: Instruction) -> Result<bool, Refusal> {
        let (number, at) = (instruction.number(), instruction.at);
        let Some((name, effect)) = effects::of(number, self.architecture) else {
            return Err(not_allowed(format!(
                "the opcode {number:#05x} at {at:#x}, which is in no list (report it, with the PTX and ptxas's version),"
            )));
        };
        match effect {
            Effect::Refused(why) => {
                return Err(not_allowed(format!(
                    "the opcode {number:#05x} ({name}) at {at:#x}, which {why},"
                )));
            }
            _ if !instruction.has_known_form() => {
                return Err(not_allowed(format!("an unknown form of {name} at {at:#x}")));
            }
            Effect::Padding => return Ok(false),
            Effect::Plain if instruction.has_known_constants() => {}
            Effect::Plain => return Err(not_allowed(format!("a constant of elsewhere at {at:#x}"))),
            Effect::Mask if instruction.field(24, 8) < MASKS => {}
            Effect::Mask => {
                return Err(not_allowed(format!("a {name} of what the hardware runs a warp by at {at:#x}")));
            }
            Effect::Barrier if instruction.field(42, 16) == 0 => {}
            Effect::Barrier => {
                return Err(not_allowed(format!("a barrier other than number 0 without a count at {at:#x}")));
            }
            Effect::Cache if instruction.body() == INVALIDATE_ALL => {}
            Effect::Cache => return Err(not_allowed(format!("cache control of an address at {at:#x}"))),
            Effect::Branch
            | Effect::Meeting
            | Effect::Table
            | Effect::Return
            | Effect::Gathering
            | Effect::Gathered => self.jump(instruction, effect)?,
            Effect::GlobalLoad
            | Effect::GlobalStore
            | Effect::GlobalUpdate
            | Effect::SharedLoad
            | Effect::SharedStore
            | Effect::SharedUpdate
            | Effect::GlobalToShared
            | Effect::LocalLoad
            | Effect::LocalStore => self.count(effect),
        }
        self.counts.instructions += 1;
        Ok(true)
    }

    /// Where an instruction goes is in the entry.
    fn jump(&mut self, instruction: Instruction, effect: Effect) -> Result<(), Refusal> {
        let at = instruction.at;
        let far = instruction.after(instruction.far());
        match effect {
            Effect::Branch if self.is_place(far) => Ok(()),
            Effect::Meeting if self.is_place(instruction.after(instruction.near())) => Ok(()),
            // What the table holds are places in the entry.
            Effect::Table => {
                self.tables += 1;
                let listed = self.jumps.iter().find(|jump| u64::from(jump.at) == at);
                let inside =
                    |jump: &Jump| jump.targets.iter().all(|target| self.is_place(i128::from(*target)));
                if far != 0 || !listed.is_some_and(inside) {
                    return Err(not_allowed(format!("a computed branch without a table at {at:#x}")));
                }
                Ok(())
            }
            // What the register holds is an offset in the entry.
            Effect::Return if far == 0 => Ok(()),
            Effect::Return => Err(not_allowed(format!("a return from elsewhere at {at:#x}"))),
            Effect::Gathering => {
                if instruction.bits & FORM == COLLECTIVE {
                    self.gathered.insert(far);
                }
                Ok(())
            }
            Effect::Gathered => {
                self.ends.insert(instruction.after(0));
                Ok(())
            }
            _ => Err(not_allowed(format!("a branch out of its entry at {at:#x}"))),
        }
    }

    /// An access of memory.
    fn count(&mut self, access: Effect) {
        let counts = &mut self.counts;
        match access {
            Effect::GlobalLoad => counts.global_loads += 1,
            Effect::GlobalStore => counts.global_stores += 1,
            Effect::GlobalUpdate => counts.global_updates += 1,
            Effect::SharedLoad => counts.shared_loads += 1,
            Effect::SharedStore => counts.shared_stores += 1,
            Effect::SharedUpdate => counts.shared_updates += 1,
            Effect::LocalLoad => counts.local_loads += 1,
            Effect::LocalStore => counts.local_stores += 1,
            Effect::GlobalToShared => {
                counts.shared_stores += 1;
                counts.global_loads += 1;
            }
            _ => {}
        }
    }

    /// Nothing runs off the entry's end, and what its parts say of each other is so.
    fn end(self, last: Option<Instruction>) -> Result<Counts, Refusal> {
        // The assembler ends an entry with a branch to itself, so that nothing runs on into the next.
        let stops = |last: Instruction| {
            last.opcode() == 0x947 && last.is_unconditional() && last.after(last.far()) == i128::from(last.at)
        };
        if !last.is_some_and(stops) {
            return Err(not_allowed("code that runs off its end"));
        }
        if self.tables != self.jumps.len() {
            return Err(malformed("a table for a computed branch that is not there"));
        }
        // The assembler ends what threads are gathered for right before the place where they go on.
        if self.gathered != self.ends {
            return Err(not_allowed("threads that are gathered and go on elsewhere"));
        }
        Ok(self.counts)
    }
}
