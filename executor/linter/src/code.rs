//! The instructions of sm_90 that verified text becomes: 16 bytes each, the opcode in the lowest twelve bits.
//!
//! NVIDIA publishes no encoding. The list was made by compiling, with `ptxas` 13.0.88 for sm_90a, what the guard makes of
//! the file tests and of the test programs, and some 2,000 forms of the instructions in the guard's table, and by
//! naming what came out with `nvdisasm` 13.2.86. The low nine bits of an opcode say what is done and the three above
//! where operands come from (registers, a literal, a constant bank, uniform registers): for arithmetic, all of
//! these are taken.

use std::collections::HashSet;

use crate::{Counts, Refusal, attributes::Jump, malformed, not_allowed};

const INSTRUCTION_BYTES: u64 = 16;
const OPCODE: u128 = 0xfff;
/// The part of an opcode that says what is done.
const OPERATION: u16 = 0x1ff;
/// The predicate, four bits from here: 7 without one.
const PREDICATE: u32 = 12;
const ALWAYS: u128 = 7;
/// Where scheduling bits begin.
const SCHEDULE: u32 = 105;

/// What an instruction is to the linter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Arithmetic, moves, votes, shuffles, special registers, fences, waits.
    Plain,
    /// `NOP`.
    Padding,
    GlobalLoad,
    GlobalStore,
    GlobalUpdate,
    SharedLoad,
    SharedStore,
    SharedUpdate,
    /// `LDGSTS`: from global to shared memory.
    Copy,
    LocalLoad,
    LocalStore,
    /// `BRA`, `CALL.REL`: to a place that the instruction says.
    Branch,
    /// `BSSY`: where the threads meet again.
    Meeting,
    /// `BRX`: to a place that a table says.
    Table,
    /// `RET.REL`: to a place of its entry that a register says.
    Return,
    /// `WARPSYNC`, which may say where the threads go on that were gathered for one instruction.
    Gathering,
    /// `ENDCOLLECTIVE`: the end of what they were gathered for.
    Gathered,
    /// `BAR`.
    Barrier,
    /// `CCTL`, of which there is one that names no address.
    Cache,
}

/// Arithmetic on registers, uniform registers and predicates, by operation, whatever its operands are.
const ARITHMETIC: &[(u16, &str)] = &[
    (0x002, "MOV"),
    (0x003, "P2R"),
    (0x004, "R2P"),
    (0x006, "VOTE"),
    (0x007, "SEL"),
    (0x008, "FSEL"),
    (0x009, "FMNMX"),
    (0x00a, "FSET"),
    (0x00b, "FSETP"),
    (0x00c, "ISETP"),
    (0x00f, "VIMNMX3"),
    (0x010, "IADD3"),
    (0x011, "LEA"),
    (0x012, "LOP3"),
    (0x013, "IABS"),
    (0x014, "VABSDIFF"),
    (0x015, "VABSDIFF4"),
    (0x016, "PRMT"),
    (0x017, "IMNMX"),
    (0x019, "SHF"),
    (0x01a, "SGXT"),
    (0x01b, "BMSK"),
    (0x01c, "PLOP3"),
    (0x01f, "PLOP3"),
    (0x020, "FMUL"),
    (0x021, "FADD"),
    (0x023, "FFMA"),
    (0x024, "IMAD"),
    (0x025, "IMAD.WIDE"),
    (0x026, "IDP"),
    (0x027, "IMAD.HI"),
    (0x028, "DMUL"),
    (0x029, "DADD"),
    (0x02a, "DSETP"),
    (0x02b, "DFMA"),
    (0x030, "HADD2"),
    (0x031, "HFMA2"),
    (0x032, "HMUL2"),
    (0x033, "HSET2"),
    (0x034, "HSETP2"),
    (0x035, "HFMA2.MMA"),
    (0x036, "VIADD"),
    (0x038, "I2I"),
    (0x039, "I2IP"),
    (0x03e, "F2FP"),
    (0x040, "HMNMX2"),
    (0x043, "F2IP"),
    (0x045, "I2FP"),
    (0x046, "VIADDMNMX"),
    (0x048, "VIMNMX"),
    (0x082, "UMOV"),
    (0x086, "VOTEU"),
    (0x087, "USEL"),
    (0x08c, "UISETP"),
    (0x090, "UIADD3"),
    (0x091, "ULEA"),
    (0x092, "ULOP3"),
    (0x096, "UPRMT"),
    (0x099, "USHF"),
    (0x09a, "USGXT"),
    (0x09b, "UBMSK"),
    (0x0a4, "UIMAD"),
    (0x0a5, "UIMAD.WIDE"),
    (0x0bd, "UFLO"),
    (0x0bf, "UPOPC"),
    (0x0ca, "R2UR"),
    (0x100, "FLO"),
    (0x101, "BREV"),
    (0x102, "FCHK"),
    (0x104, "F2F"),
    (0x105, "F2I"),
    (0x106, "I2F"),
    (0x107, "FRND"),
    (0x108, "MUFU"),
    (0x109, "POPC"),
    (0x110, "F2F.F64"),
    (0x111, "F2I.F64"),
    (0x112, "I2F.F64"),
    (0x113, "FRND.F64"),
];

/// Everything else, by the whole opcode.
const OTHERS: &[(u16, &str, Class)] = &[
    (0x237, "IMMA", Class::Plain),
    (0x23a, "MOVM", Class::Plain),
    (0x23c, "HMMA", Class::Plain),
    (0x23f, "DMMA", Class::Plain),
    (0x31c, "B2R", Class::Plain),
    // Which barrier is in a register where a warp that may not be together is gathered for it; the guard lets in number 0.
    (0x31d, "BAR", Class::Plain),
    (0x348, "WARPSYNC", Class::Gathering),
    (0x35d, "NANOSLEEP", Class::Plain),
    (0x381, "LDG", Class::GlobalLoad),
    (0x383, "LDL", Class::LocalLoad),
    (0x384, "LDS", Class::SharedLoad),
    (0x386, "STG", Class::GlobalStore),
    (0x387, "STL", Class::LocalStore),
    (0x388, "STS", Class::SharedStore),
    (0x389, "SHFL", Class::Plain),
    (0x38c, "ATOMS", Class::SharedUpdate),
    (0x38d, "ATOMS.CAS", Class::SharedUpdate),
    (0x38e, "REDG", Class::GlobalUpdate),
    (0x3a1, "MATCH", Class::Plain),
    (0x3a3, "ATOMG", Class::GlobalUpdate),
    (0x3a6, "REDG", Class::GlobalUpdate),
    (0x3a8, "ATOMG", Class::GlobalUpdate),
    (0x3a9, "ATOMG.CAS", Class::GlobalUpdate),
    (0x3aa, "QSPC", Class::Plain),
    (0x3c4, "REDUX", Class::Plain),
    (0x589, "SHFL", Class::Plain),
    (0x5ab, "CGAERRBAR", Class::Plain),
    (0x805, "CS2R", Class::Plain),
    (0x82f, "ELECT", Class::Plain),
    (0x83b, "LDSM", Class::SharedLoad),
    (0x844, "STSM", Class::SharedStore),
    (0x918, "NOP", Class::Padding),
    (0x919, "S2R", Class::Plain),
    (0x91b, "ENDCOLLECTIVE", Class::Gathered),
    (0x941, "BSYNC", Class::Plain),
    (0x942, "BREAK", Class::Plain),
    (0x944, "CALL.REL", Class::Branch),
    (0x945, "BSSY", Class::Meeting),
    (0x946, "YIELD", Class::Plain),
    (0x947, "BRA", Class::Branch),
    (0x948, "WARPSYNC.ALL", Class::Gathering),
    (0x949, "BRX", Class::Table),
    (0x94d, "EXIT", Class::Plain),
    (0x950, "RET.REL", Class::Return),
    (0x95d, "NANOSLEEP", Class::Plain),
    (0x981, "LDG", Class::GlobalLoad),
    (0x983, "LDL", Class::LocalLoad),
    (0x984, "LDS", Class::SharedLoad),
    (0x986, "STG", Class::GlobalStore),
    (0x987, "STL", Class::LocalStore),
    (0x988, "STS", Class::SharedStore),
    (0x989, "SHFL", Class::Plain),
    (0x98c, "ATOMS", Class::SharedUpdate),
    (0x98d, "ATOMS.CAS", Class::SharedUpdate),
    (0x98e, "REDG", Class::GlobalUpdate),
    (0x98f, "CCTL", Class::Cache),
    (0x992, "MEMBAR", Class::Plain),
    (0x9a3, "ATOMG", Class::GlobalUpdate),
    (0x9a6, "REDG", Class::GlobalUpdate),
    (0x9a8, "ATOMG", Class::GlobalUpdate),
    (0x9aa, "QSPC", Class::Plain),
    (0x9ab, "ERRBAR", Class::Plain),
    (0x9c3, "S2UR", Class::Plain),
    (0xab9, "ULDC", Class::Plain),
    (0xabb, "ULDC", Class::Plain),
    (0x91a, "DEPBAR", Class::Plain),
    (0x9af, "LDGDEPBAR", Class::Plain),
    (0xb1d, "BAR", Class::Barrier),
    (0xb82, "LDC", Class::Plain),
    (0xf89, "SHFL", Class::Plain),
    (0xf8c, "ATOMS.POPC", Class::SharedUpdate),
    (0xfae, "LDGSTS", Class::Copy),
];

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

/// Their forms, of which others go to absolute places, or to ones that a uniform register says.
const FORMS: &[(u16, &[u128])] = &[
    (0x348, &[0, EXCLUSIVE, COLLECTIVE]),
    (0x91b, &[0]),
    (0x941, &[0]),
    (0x942, &[0]),
    (0x944, &[UNCOUNTED]),
    (0x945, &[0]),
    (0x946, &[0]),
    (0x947, &[0, SAME_WAY, DIVERGENT, CONVERGED]),
    (0x948, &[0, COLLECTIVE]),
    (0x949, &[0]),
    (0x94d, &[0]),
    (0x950, &[UNCOUNTED]),
];

/// `LDC`, `ULDC`, and `ULDC` at an offset in a uniform register: what is no arithmetic and reads constants.
const LOADS_OF_CONSTANTS: [u16; 3] = [0xb82, 0xab9, INDEXED_CONSTANT];
const INDEXED_CONSTANT: u16 = 0xabb;
/// Where the three bits above the operation say that an operand is a constant: the third, or the second.
const CONSTANT_OPERAND: [u16; 2] = [3, 5];
/// Set where a uniform register is an operand; of a constant, it says where in memory that lies.
const UNIFORM: u32 = 91;
/// Parameters, what the assembler made for itself, and the module's constants.
const BANKS: [u128; 3] = [0, 2, 3];

/// What people are told about opcodes that never pass.
const REFUSED: &[(u16, &str)] = &[
    (0x180, "LD: a generic load"),
    (0x185, "ST: a generic store"),
    (0x18a, "ATOM: a generic atomic"),
    (0x18b, "ATOM.CAS: a generic atomic"),
    (0x143, "CALL.ABS"),
    (0x14a, "JMP"),
    (0x14c, "JMX"),
    (0x14e, "LEPC"),
    (0x15c, "BPT: a trap"),
    (0x15b, "KILL"),
];

fn arithmetic(opcode: u16) -> Option<&'static str> {
    let operation = opcode & OPERATION;
    // The form 0 has no operands to take from anywhere.
    let found = ARITHMETIC.iter().find(|(known, _)| opcode > OPERATION && *known == operation);
    found.map(|(_, name)| *name)
}

/// The name of an opcode that is in the list.
#[must_use]
pub fn name(opcode: u16) -> Option<&'static str> {
    let other = || OTHERS.iter().find(|(known, ..)| *known == opcode).map(|(_, name, _)| *name);
    arithmetic(opcode).or_else(other)
}

fn class(opcode: u16) -> Option<Class> {
    if arithmetic(opcode).is_some() {
        return Some(Class::Plain);
    }
    OTHERS.iter().find(|(known, ..)| *known == opcode).map(|(.., class)| *class)
}

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

    fn opcode(self) -> u16 {
        u16::try_from(self.bits & OPCODE).unwrap_or(u16::MAX)
    }

    fn has_known_form(self) -> bool {
        let forms = FORMS.iter().find(|(opcode, _)| *opcode == self.opcode());
        forms.is_none_or(|(_, forms)| forms.contains(&(self.bits & FORM)))
    }

    /// Whether it reads no constants, or ones of the module.
    fn has_known_constants(self) -> bool {
        let opcode = self.opcode();
        let is_operand = arithmetic(opcode).is_some() && CONSTANT_OPERAND.contains(&(opcode >> 9));
        if !is_operand && !LOADS_OF_CONSTANTS.contains(&opcode) {
            return true;
        }
        let described = self.field(UNIFORM, 1) != 0 && opcode != INDEXED_CONSTANT;
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

/// Counts an entry's accesses; refuses what is in no list, and what leaves the entry.
pub(crate) fn scan(code: &[u8], jumps: &[Jump], marked: &[u32]) -> Result<Counts, Refusal> {
    let length = u64::try_from(code.len()).unwrap_or(u64::MAX);
    if code.is_empty() || !length.is_multiple_of(INSTRUCTION_BYTES) {
        return Err(malformed("code that is not whole instructions"));
    }
    let is_place = |place: i128| {
        u64::try_from(place).is_ok_and(|place| place < length && place % INSTRUCTION_BYTES == 0)
    };
    if let Some(place) = marked.iter().find(|place| !is_place(i128::from(**place))) {
        return Err(malformed(format!("an attribute of an instruction at {place:#x}")));
    }
    let mut counts = Counts::default();
    let mut last = None;
    let mut tables = 0;
    let (mut gathered, mut ends) = (HashSet::new(), HashSet::new());
    for (chunk, at) in code.chunks_exact(16).zip((0..).step_by(16)) {
        let bits = u128::from_le_bytes(chunk.try_into().unwrap_or_default());
        let instruction = Instruction { bits, at };
        let opcode = instruction.opcode();
        let class = class(opcode).ok_or_else(|| refused(opcode, at))?;
        if !instruction.has_known_form() {
            let name = name(opcode).unwrap_or_default();
            return Err(not_allowed(format!("an unknown form of {name} at {at:#x}")));
        }
        if !instruction.has_known_constants() {
            return Err(not_allowed(format!("a constant of elsewhere at {at:#x}")));
        }
        let count = match class {
            Class::Padding => continue,
            Class::Plain => None,
            Class::GlobalLoad => Some(&mut counts.global_loads),
            Class::GlobalStore => Some(&mut counts.global_stores),
            Class::GlobalUpdate => Some(&mut counts.global_updates),
            Class::SharedLoad => Some(&mut counts.shared_loads),
            Class::SharedStore => Some(&mut counts.shared_stores),
            Class::SharedUpdate => Some(&mut counts.shared_updates),
            Class::Copy => {
                counts.shared_stores += 1;
                Some(&mut counts.global_loads)
            }
            Class::LocalLoad => Some(&mut counts.local_loads),
            Class::LocalStore => Some(&mut counts.local_stores),
            Class::Branch if is_place(instruction.after(instruction.far())) => None,
            Class::Meeting if is_place(instruction.after(instruction.near())) => None,
            Class::Branch | Class::Meeting => {
                return Err(not_allowed(format!("a branch out of its entry at {at:#x}")));
            }
            // What the table holds are places in the entry.
            Class::Table => {
                tables += 1;
                let listed = jumps.iter().find(|jump| u64::from(jump.at) == at);
                let inside = |jump: &Jump| jump.targets.iter().all(|target| is_place(i128::from(*target)));
                if instruction.after(instruction.far()) != 0 || !listed.is_some_and(inside) {
                    return Err(not_allowed(format!("a computed branch without a table at {at:#x}")));
                }
                None
            }
            // What the register holds is an offset in the entry.
            Class::Return if instruction.after(instruction.far()) == 0 => None,
            Class::Return => return Err(not_allowed(format!("a return from elsewhere at {at:#x}"))),
            Class::Gathering => {
                if instruction.bits & FORM == COLLECTIVE {
                    gathered.insert(instruction.after(instruction.far()));
                }
                None
            }
            Class::Gathered => {
                ends.insert(instruction.after(0));
                None
            }
            Class::Barrier if instruction.field(42, 16) == 0 => None,
            Class::Barrier => {
                return Err(not_allowed(format!("a barrier other than number 0 without a count at {at:#x}")));
            }
            Class::Cache if instruction.body() == INVALIDATE_ALL => None,
            Class::Cache => return Err(not_allowed(format!("cache control of an address at {at:#x}"))),
        };
        if let Some(count) = count {
            *count += 1;
        }
        counts.instructions += 1;
        last = Some(instruction);
    }
    // The assembler ends an entry with a branch to itself, so that nothing runs on into the next.
    let stops = |last: Instruction| {
        last.opcode() == 0x947 && last.is_unconditional() && last.after(last.far()) == i128::from(last.at)
    };
    if !last.is_some_and(stops) {
        return Err(not_allowed("code that runs off its end"));
    }
    if tables != jumps.len() {
        return Err(malformed("a table for a computed branch that is not there"));
    }
    // The assembler ends what threads are gathered for right before the place where they go on.
    if gathered != ends {
        return Err(not_allowed("threads that are gathered and go on elsewhere"));
    }
    Ok(counts)
}

fn refused(opcode: u16, at: u64) -> Refusal {
    let known = REFUSED.iter().find(|(known, _)| *known == opcode & OPERATION);
    not_allowed(known.map_or_else(
        || format!("the opcode {opcode:#05x} at {at:#x}, which is in no list (report it, with the PTX and ptxas's version),"),
        |(_, name)| format!("the opcode {opcode:#05x} ({name}) at {at:#x}"),
    ))
}
