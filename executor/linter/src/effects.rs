//! What each instruction does, by name, and so whether it may be in code.
//!
//! The numbers of names are generated ([`crate::opcodes`]); what a name means is said here, by hand. A number that the
//! disassembler of NVIDIA's toolkit does not name, and a name that is not here, are refused.

use crate::opcodes::{ARCHITECTURES, OPCODES};

/// What an instruction is to the linter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Computes with registers, uniform registers, predicates, special registers and constants, also those of other
    /// lanes; orders memory, or waits for what was begun.
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
    GlobalToShared,
    LocalLoad,
    LocalStore,
    /// `BRA`, `CALL.REL`: to a place that the instruction says.
    Branch,
    /// `BSSY`: where the threads meet again.
    Meeting,
    /// `BMOV` between a register and a mask of threads that will meet.
    Mask,
    /// `BRX`: to a place that a table says.
    Table,
    /// `RET.REL`: to a place of its entry that a register says.
    Return,
    /// `WARPSYNC`, which may say where the threads go on that were gathered for one instruction.
    Gathering,
    /// `ENDCOLLECTIVE`: the end of what they were gathered for.
    Gathered,
    /// `BAR` with a number in the instruction.
    Barrier,
    /// `CCTL`, of which there is one that names no address.
    Cache,
    /// What is refused, with the reason.
    Refused(&'static str),
}

use Effect::{
    Barrier, Branch, Cache, Gathered, Gathering, GlobalLoad, GlobalStore, GlobalToShared, GlobalUpdate,
    LocalLoad, LocalStore, Mask, Meeting, Padding, Plain, Refused, Return, SharedLoad, SharedStore,
    SharedUpdate, Table,
};

const GENERIC: Effect = Refused("addresses memory generically, so it may reach any address space");
const TEXTURE: Effect = Refused("reads a texture: a handle, which nothing checks, says which memory");
const SURFACE: Effect = Refused("works on a surface: a handle, which nothing checks, says which memory");
const TENSOR: Effect =
    Refused("copies, without the thread, what a tensor map or an address that nothing checks says");
const CLUSTER: Effect = Refused("reaches the shared memory of other blocks of a cluster, or waits for these");
const MATRIX: Effect = Refused("multiplies matrices in memory that descriptors say, which nothing checks");
const TENSOR_MEMORY: Effect = Refused("works on tensor memory, where nothing checks which part is whose");
const OBJECT: Effect =
    Refused("works on a barrier object in shared memory, which traps where it is not well-formed");
const DESCRIBED: Effect =
    Refused("works on what an address in a uniform register says, beside the checked accesses");
const JUMP: Effect = Refused("goes to a place that a register, a constant or an absolute address says");
const TRAP: Effect = Refused("traps, ends threads for the driver, or stops them for a debugger");
const STATE: Effect = Refused("changes how the hardware runs the thread, or where its memory lies");
const PLACE: Effect = Refused("tells where code or local memory lies");
const KERNELS: Effect = Refused("waits for other kernels, or lets them begin");
const GRAPHICS: Effect = Refused("belongs to the stages of drawing, and works on their memory");
const COUNTERS: Effect = Refused("works on the profiler's counters, which are everybody's");
const LINES: Effect = Refused("controls caches by addresses or for textures");

/// What a name does; where numbers are listed, with these only. The first row that fits counts.
const EFFECTS: &[(&[&str], &[u16], Effect)] = &[
    // Numbers, in registers and uniform registers.
    (&["MOV", "UMOV", "SEL", "USEL", "PRMT", "UPRMT", "SGXT", "USGXT", "BMSK", "UBMSK"], &[], Plain),
    (&["IADD3", "UIADD3", "IMAD", "UIMAD", "IABS", "IMNMX", "VABSDIFF", "VABSDIFF4", "IDP"], &[], Plain),
    (&["LEA", "ULEA", "LOP3", "ULOP3", "SHF", "USHF", "ISETP", "UISETP", "I2I", "I2IP"], &[], Plain),
    (&["IADD", "IMUL", "UIABS", "UIMNMX", "UVIADD", "UVIMNMX", "UI2I", "UI2IP", "MOV64IUR"], &[], Plain),
    (&["VIADD", "VIMNMX", "VIMNMX3", "VIADDMNMX", "VHMNMX"], &[], Plain),
    (&["FLO", "UFLO", "BREV", "UBREV", "POPC", "UPOPC"], &[], Plain),
    (
        &["FADD", "FMUL", "FFMA", "FMNMX", "FSEL", "FSET", "FSETP", "FCHK", "FSWZADD", "MUFU", "FRND"],
        &[],
        Plain,
    ),
    (&["FADD2", "FMUL2", "FFMA2", "FMNMX3", "FHADD", "FHFMA", "QADD4", "QMUL4", "QFMA4"], &[], Plain),
    (
        &["UFADD", "UFMUL", "UFFMA", "UFMNMX", "UFSEL", "UFSET", "UFSETP", "UFRND", "UFHADD", "UFHFMA"],
        &[],
        Plain,
    ),
    (&["DADD", "DMUL", "DFMA", "DSETP"], &[], Plain),
    (&["HADD2", "HMUL2", "HFMA2", "HSET2", "HSETP2", "HMNMX2"], &[], Plain),
    (
        &["F2F", "F2I", "I2F", "I2FP", "F2FP", "F2IP", "UF2FP", "UF2F", "UF2I", "UF2IP", "UI2F", "UI2FP"],
        &[],
        Plain,
    ),
    // Matrices in registers.
    (&["HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "MOVM"], &[], Plain),
    // Predicates, lanes, special registers.
    (
        &["P2R", "R2P", "PLOP3", "UPLOP3", "UP2UR", "UR2UP", "R2UR", "S2R", "S2UR", "CS2R", "CS2UR", "B2R"],
        &[],
        Plain,
    ),
    (&["VOTE", "VOTEU", "SHFL", "MATCH", "REDUX", "CREDUX", "ELECT"], &[], Plain),
    (&["QSPC"], &[0x3aa, 0x19aa], Plain),
    // Waiting for what was begun.
    (&["MEMBAR", "FENCE", "ERRBAR", "CGAERRBAR", "DEPBAR", "LDGDEPBAR"], &[], Plain),
    (&["NANOSLEEP"], &[0x35d, 0x95d], Plain),
    (&["NOP"], &[], Padding),
    // Constants: from a bank by its number.
    (&["LDC"], &[0xb82], Plain),
    (&["ULDC"], &[0xab9, 0x1abb], Plain),
    (&["LDC", "ULDC", "NANOSLEEP", "UCLEA", "USTGR", "UREDGR", "UMEMSETS"], &[], DESCRIBED),
    (&["LDCU"], &[], Refused("loads constants in a way of sm_100 that is not known here")),
    // Memory.
    (&["LDG"], &[0x381, 0x197e, 0x1981], GlobalLoad),
    (&["STG"], &[0x386, 0x197f, 0x1986], GlobalStore),
    (&["ATOMG"], &[0x3a3, 0x3a8, 0x3a9, 0x19a3, 0x19a8], GlobalUpdate),
    // Before sm_90 the same is called `RED`; generic ones are `ATOM` everywhere.
    (&["RED", "REDG"], &[0x98e, 0x9a6, 0x198e, 0x19a6], GlobalUpdate),
    (&["LDS"], &[0x984, 0x1984], SharedLoad),
    (&["LDSM"], &[0x83b, 0x183b], SharedLoad),
    (&["STS"], &[0x388, 0x1988], SharedStore),
    (&["STSM"], &[0x844, 0x1844], SharedStore),
    (&["ATOMS"], &[0x38c, 0x38d, 0x198c, 0x1f8c], SharedUpdate),
    (&["ATOMS"], &[], Refused("updates shared memory in a way of sm_100 that is not known here")),
    (&["LDGSTS"], &[0x1dae, 0x1fae], GlobalToShared),
    (&["LDL"], &[0x983, 0x1983], LocalLoad),
    (&["STL"], &[0x387, 0x1987], LocalStore),
    (&["LD", "ST", "ATOM"], &[], GENERIC),
    (&["TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ", "FOOTPRINT"], &[], TEXTURE),
    (&["SUATOM", "SULD", "SUST", "SURED", "SUQUERY"], &[], SURFACE),
    (&["UBLKCP", "UBLKPF", "UBLKRED"], &[], TENSOR),
    (&["UTMALDG", "UTMASTG", "UTMAPF", "UTMAREDG", "UTMACCTL", "UTMACMDFLUSH"], &[], TENSOR),
    (&["LDGMC"], &[], Refused("loads what several devices have at an address")),
    (&["STAS", "REDAS", "UCGABAR_ARV", "UCGABAR_WAIT"], &[], CLUSTER),
    (&["HGMMA", "IGMMA", "BGMMA", "QGMMA", "WARPGROUP", "WARPGROUPSET"], &[], MATRIX),
    (
        &["UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCCP", "UTCBAR", "UTCSHIFT", "UTCATOMSWS", "LDTM", "STTM"],
        &[],
        TENSOR_MEMORY,
    ),
    (&["SYNCS", "ARRIVES"], &[], OBJECT),
    (&["CCTL"], &[0x98f], Cache),
    (&["CCTL", "CCTLL", "CCTLT"], &[], LINES),
    // Where threads go on.
    (&["BRA"], &[0x947, 0x1947], Branch),
    (&["CALL"], &[0x944], Branch),
    (&["BRX"], &[0x949], Table),
    (&["RET"], &[0x950], Return),
    (&["BSSY"], &[0x945], Meeting),
    (&["BSYNC", "BREAK", "YIELD", "EXIT"], &[0x941, 0x942, 0x946, 0x94d], Plain),
    (&["WARPSYNC"], &[0x348, 0x948], Gathering),
    (&["ENDCOLLECTIVE"], &[0x91b], Gathered),
    (&["BMOV"], &[0x355, 0x356], Mask),
    // The number of the barrier may be in a register where a warp that may not be together is gathered for it; the
    // guard lets in number 0.
    (&["BAR"], &[0x31d], Plain),
    (&["BAR"], &[0xb1d], Barrier),
    (&["BAR"], &[], Refused("waits at a barrier for a number of threads that a register says")),
    (&["BRA", "CALL", "BRX", "RET", "WARPSYNC", "BRXU", "JMP", "JMX", "JMXU"], &[], JUMP),
    // The last is how the return from a trap is called.
    (&["BPT", "KILL", "__HIR0X1E0"], &[], TRAP),
    (&["BMOV", "RPCMOV", "SETLMEMBASE", "SETCTAID", "USETMAXREG", "USETSHMSZ"], &[], STATE),
    (&["UVIRTCOUNT", "ACQSHMINIT"], &[], STATE),
    (&["LEPC", "ULEPC", "GETLMEMBASE"], &[], PLACE),
    (
        &["UGETNEXTWORKID"],
        &[],
        Refused("takes blocks that have not begun, and writes their numbers to shared memory"),
    ),
    (&["PREEXIT", "ACQBULK"], &[], KERNELS),
    (&["AL2P", "ALD", "AST", "IPA", "ISBERD", "ISBEWR", "LDTRAM", "OUT", "PIXLD", "CSMTEST"], &[], GRAPHICS),
    (&["PMTRIG"], &[], COUNTERS),
];

/// Names of a number: the disassembler has several for some.
fn names(number: u16, architectures: u8) -> impl Iterator<Item = &'static str> {
    let first = OPCODES.partition_point(|(known, ..)| *known < number);
    let same = OPCODES.iter().skip(first).take_while(move |(known, ..)| *known == number);
    same.filter(move |(.., on)| on & architectures != 0).map(|(_, name, _)| *name)
}

fn of_name(number: u16, name: &str) -> Option<Effect> {
    let fits = |(names, numbers, _): &&(&[&str], &[u16], Effect)| {
        names.contains(&name) && (numbers.is_empty() || numbers.contains(&number))
    };
    EFFECTS.iter().find(fits).map(|(.., effect)| *effect)
}

/// Name and effect of a number on an architecture: none where nothing is known of it, or it has two different effects.
pub(crate) fn of(number: u16, architecture: u32) -> Option<(&'static str, Effect)> {
    let bit = ARCHITECTURES.iter().position(|known| *known == architecture)?;
    let mut names = names(number, 1 << bit);
    let name = names.next()?;
    let effect = of_name(number, name)?;
    names.all(|other| of_name(number, other) == Some(effect)).then_some((name, effect))
}

#[cfg(test)]
mod tests;
