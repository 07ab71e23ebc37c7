//! The linter: reads a cubin before it is loaded, and refuses what a verified text cannot have become.
//!
//! The verifier decides on text, and the assembler, a large program that is fed a tenant's names and numbers,
//! makes machine code of it. The linter does not verify that code: an address that the assembler computed wrongly
//! looks like any other. It bounds what a broken or subverted assembler can bring in.
//!
//! # What holds for a cubin that passes
//! 1. It is a 64-bit little-endian ELF file of CUDA for the architecture asked for, every table and section of it
//!    inside the file, and what is mapped executable is its entries' code and nothing else.
//! 2. Sections, attributes and symbols are of the kinds in the lists here. There is no `.nv.global`, no texture, no
//!    local variable of the module, and no symbol that somebody else would have to define but the driver's words in shared memory.
//! 3. No relocation changes code or constants.
//! 4. Its entries are those of the text, with the same number of parameters and a parameter block of the same size.
//! 5. Shared variables and constants are no larger than the text declares, and the stack holds its local variable
//!    and at most [`SPILL_BYTES_MAX`] more.
//! 6. On sm_90, every instruction is one that NVIDIA's disassembler names (`opcodes.rs`, generated) and that does what
//!    a verified text may do (`effects.rs`, by hand): none addresses memory generically, jumps to a computed place
//!    outside of a listed table, traps, changes how the hardware runs a thread, or works on textures, surfaces,
//!    tensor maps, clusters, barrier objects, or matrices in memory. Branches and calls stay in their own entry, and
//!    code does not run off its end. The only barrier is number 0 without a count. A refusal says what the
//!    instruction does.
//! 7. On sm_90, an entry does only to global and shared memory what its text does at all: code of a text without a
//!    store to global memory has none.
//!
//! Numbers of instructions are counted and told, not bounded: the assembler unrolls, splits and joins accesses.
//! On other architectures 6 and 7 are not checked, which [`Linted::opcodes_checked`] says.
//!
//! # Trust
//! Nothing here trusts its input: every offset is checked before it is used.

mod attribute_names;
mod attributes;
mod code;
mod effects;
mod elf;
mod entry;
mod linted;
mod opcodes;
mod refusal;

use std::collections::{BTreeMap, BTreeSet};

pub use bulkhead_verifier::{Footprint, Uses};

pub use linted::{Counts, LintedEntry, SPILL_BYTES_MAX};
pub use refusal::Refusal;

use crate::{
    attributes::Attributes,
    elf::{Elf, Section, Symbol, kind, segment},
    entry::{Cubin, Found},
    linted::{ARCHITECTURE, named},
    refusal::{malformed, not_allowed},
};

/// Bytes of a cubin.
pub const CUBIN_BYTES_MAX: usize = 256 << 20;
/// A cubin that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linted {
    /// The architecture it is for: 90 for sm_90.
    pub architecture: u32,
    /// Whether its instructions were looked at: on sm_90 they are.
    pub opcodes_checked: bool,
    /// Bytes of code.
    pub code_bytes: u64,
    /// Its entries, by name; an entry comes before its fast version.
    pub entries: Vec<LintedEntry>,
}

/// Reads a cubin that was made of a text with these footprints.
///
/// # Errors
/// The first thing that stands against it.
pub fn lint(cubin: &[u8], architecture: u32, text: &[Footprint]) -> Result<Linted, Refusal> {
    let (linted, constant_bytes) = read(cubin, Some(architecture))?;
    let mut left: BTreeMap<&str, &Footprint> =
        text.iter().map(|footprint| (footprint.name.as_str(), footprint)).collect();
    for found in &linted {
        let footprint = left.remove(found.symbol.as_str()).ok_or_else(|| {
            Refusal::OtherText(format!("it has an entry {} that the text has not", named(&found.symbol)))
        })?;
        found.check_against(footprint, constant_bytes)?;
    }
    // In the order of names: the same file is refused for the same reason each time.
    if let Some(name) = left.keys().next() {
        return Err(Refusal::OtherText(format!("it lacks the entry {}", named(name))));
    }
    Ok(summary(architecture, linted))
}

/// Reads a cubin of which no text is known, for whatever architecture it says.
///
/// # Errors
/// The first thing that stands against it, as far as that can be said without the text.
pub fn inspect(cubin: &[u8]) -> Result<Linted, Refusal> {
    let (found, _) = read(cubin, None)?;
    Ok(summary(Elf::read(cubin)?.architecture, found))
}

fn summary(architecture: u32, found: Vec<Found>) -> Linted {
    let code_bytes = found.iter().map(|found| found.code_bytes).sum();
    let mut entries: Vec<LintedEntry> = found.into_iter().map(|found| found.entry).collect();
    entries.sort_by(|one, other| (&one.name, one.is_fast).cmp(&(&other.name, other.is_fast)));
    Linted { architecture, opcodes_checked: architecture == ARCHITECTURE, code_bytes, entries }
}

/// The entries, and the bytes of the module's constants.
fn read(cubin: &[u8], architecture: Option<u32>) -> Result<(Vec<Found>, u64), Refusal> {
    if cubin.len() > CUBIN_BYTES_MAX {
        return Err(malformed(format!("it has more than {CUBIN_BYTES_MAX} bytes")));
    }
    let elf = Elf::read(cubin)?;
    if let Some(asked) = architecture.filter(|asked| *asked != elf.architecture) {
        return Err(Refusal::Architecture { found: format!("sm_{}", elf.architecture), asked });
    }
    let symbols = elf.symbols()?;
    let mut places = Places::default();
    for section in &elf.sections {
        places.sort(&elf, section, &symbols)?;
    }
    let names: BTreeSet<&str> = places.code.keys().copied().collect();
    check_symbols(&elf, &symbols, &names)?;
    check_segments(&elf, &places)?;
    let mut module = Attributes::default();
    if let Some(section) = places.module_attributes {
        module.read(elf.bytes_of(section)?)?;
    }
    let cubin = Cubin { elf: &elf, symbols: &symbols, attributes: &module };
    let mut found = Vec::with_capacity(places.code.len());
    for (name, section) in &places.code {
        let mut own = Attributes::default();
        let attributes = places.attributes.remove(name);
        let attributes = attributes.ok_or_else(|| malformed(format!("{} has no attributes", named(name))))?;
        own.read(elf.bytes_of(attributes)?)?;
        let block = places.parameters.remove(name);
        let block = block.ok_or_else(|| malformed(format!("{} has no parameter block", named(name))))?;
        let shared = places.shared.remove(name).map_or(0, |section| section.bytes);
        found.push(Found::read(&cubin, name, section, &own, block.bytes, shared)?);
        places.tables.remove(name);
    }
    let left = [&places.attributes, &places.parameters, &places.shared, &places.tables];
    if let Some(name) = left.iter().find_map(|left| left.keys().next()) {
        return Err(malformed(format!("there are sections for `{name}`, which has no code")));
    }
    Ok((found, places.constants))
}

/// The sections by what they are for.
#[derive(Default)]
struct Places<'a> {
    code: BTreeMap<&'a str, &'a Section<'a>>,
    attributes: BTreeMap<&'a str, &'a Section<'a>>,
    parameters: BTreeMap<&'a str, &'a Section<'a>>,
    shared: BTreeMap<&'a str, &'a Section<'a>>,
    /// Constants that the assembler made for itself.
    tables: BTreeMap<&'a str, &'a Section<'a>>,
    module_attributes: Option<&'a Section<'a>>,
    /// Bytes of the module's constants.
    constants: u64,
}

/// Why sections are refused, by how their names begin; what begins otherwise is refused too.
const REFUSED_SECTIONS: &[(&str, &str)] = &[
    (".nv.global", "holds variables, which lie in no session's memory"),
    (".nv.local", "holds local variables that no entry counts"),
    (".nv.constant", "holds constants of a bank that verified texts have none in"),
    (".nv.uft", "is a table of functions that others call by"),
    (".nv.udt", "is a table of functions that others call by"),
    (".nv.merc", "holds code that the driver translates, and that nothing reads here"),
    (".nv.capmerc", "holds code that the driver translates, and that nothing reads here"),
    (".nv.rel", "says what the driver changes when it loads"),
    (".nv.resolved", "says what the driver changes when it loads"),
    (".nv.prototype", "is for calls through pointers"),
    (".nv.host", "is for debuggers"),
    (".nv_debug", "is for debuggers"),
    (".debug", "is for debuggers"),
    (".rel", "says what the driver changes when it loads"),
    (".text", "holds code that is not mapped executable, or is of no entry"),
    (".nv.shared", "holds shared memory that is of no entry"),
];

fn unknown_section(name: &str, of: u32) -> String {
    let known = REFUSED_SECTIONS.iter().find(|(begins, _)| name.starts_with(begins));
    let why = known.map_or("is in no list", |(_, why)| *why);
    format!("the section `{name}` of type {of:#x}, which {why},")
}

/// What the flags of a section may be, apart from where it is linked to.
const FLAGS_MAX: u64 = 0xfff;

impl<'a> Places<'a> {
    /// Notes what a section is for, and refuses it where that is in no list.
    fn sort(
        &mut self,
        elf: &Elf<'_>,
        section: &'a Section<'a>,
        symbols: &[Symbol<'_>],
    ) -> Result<(), Refusal> {
        let Section { name, kind: of, .. } = *section;
        let executable = section.flags & elf::flag::EXECUTE != 0;
        let writable = section.flags & elf::flag::WRITE != 0;
        let unknown = || Err(not_allowed(unknown_section(name, of)));
        let prefixed = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        let note = |map: &mut BTreeMap<&'a str, &'a Section<'a>>, entry: &'a str| {
            if map.insert(entry, section).is_some() {
                return Err(malformed(format!("there are two sections `{name}`")));
            }
            Ok(())
        };
        if executable != (of == kind::PROGRAM && name.starts_with(".text."))
            || (writable && of != kind::NO_BITS)
        {
            return unknown();
        }
        match of {
            kind::NULL if name.is_empty() => Ok(()),
            kind::STRINGS if matches!(name, ".shstrtab" | ".strtab") => Ok(()),
            kind::SYMBOLS if name == ".symtab" => Ok(()),
            kind::NOTE
                if matches!(name, ".note.nv.tkinfo" | ".note.nv.cuinfo") && section.flags >> 28 == 0 =>
            {
                Ok(())
            }
            kind::INFORMATION | kind::CALL_GRAPH | kind::COMPATIBILITY | kind::PROGRAM | kind::NO_BITS
                if section.flags > FLAGS_MAX =>
            {
                unknown()
            }
            kind::INFORMATION if name == ".nv.info" => {
                if self.module_attributes.replace(section).is_some() {
                    return Err(malformed("there are two sections `.nv.info`"));
                }
                Ok(())
            }
            kind::INFORMATION => {
                prefixed(".nv.info.").map_or_else(unknown, |entry| note(&mut self.attributes, entry))
            }
            kind::CALL_GRAPH if name == ".nv.callgraph" => Ok(()),
            kind::COMPATIBILITY if name == ".nv.compat" => Ok(()),
            kind::ADDENDS => elf.check_relocations(section, symbols),
            kind::NO_BITS if name == ".nv.shared.reserved.0" && section.bytes == 0 => Ok(()),
            kind::NO_BITS => {
                prefixed(".nv.shared.").map_or_else(unknown, |entry| note(&mut self.shared, entry))
            }
            kind::PROGRAM if name == ".debug_frame" => Ok(()),
            kind::PROGRAM if name == ".nv.constant3" && self.constants == 0 => {
                self.constants = section.bytes;
                Ok(())
            }
            kind::PROGRAM => {
                if let Some(entry) = prefixed(".text.") {
                    note(&mut self.code, entry)
                } else if let Some(entry) = prefixed(".nv.constant0.") {
                    note(&mut self.parameters, entry)
                } else if let Some(entry) = prefixed(".nv.constant2.") {
                    note(&mut self.tables, entry)
                } else {
                    unknown()
                }
            }
            _ => unknown(),
        }
    }
}

/// Shared memory that the driver keeps words in, where it is defined, and an alias of it.
const RESERVED_SHARED: [&str; 2] = [".nv.reservedSmem.offset0", ".nv.reservedSmem.cap"];
const RESERVED_SHARED_ALIAS: &str = "__nv_reservedSMEM_offset_0_alias";
/// What the assembler calls functions of its own: division, square root.
const INTERNAL_FUNCTION: &str = "$__internal_";

fn check_symbols(elf: &Elf<'_>, symbols: &[Symbol<'_>], entries: &BTreeSet<&str>) -> Result<(), Refusal> {
    let mut defined = BTreeSet::new();
    for symbol in symbols.iter().skip(1) {
        let Symbol { name, .. } = *symbol;
        let place = symbol.section.and_then(|index| elf.sections.get(index));
        let Some(place) = place else {
            // A place that is left empty has no name and stands for nothing.
            let empty = symbol.kind == elf::symbol::NO_TYPE && name.is_empty() && !symbol.is_global();
            let reserved = symbol.kind == elf::symbol::OBJECT && RESERVED_SHARED.contains(&name);
            if symbol.section.is_none() && (empty || reserved) {
                continue;
            }
            return Err(not_allowed(format!("the undefined symbol `{name}`")));
        };
        let code = place.name.strip_prefix(".text.");
        let inside = symbol.value.checked_add(symbol.bytes).is_some_and(|end| end <= place.bytes);
        let fits = match symbol.kind {
            elf::symbol::SECTION => symbol.value == 0,
            // Of an entry that is not `.visible` the symbol is local.
            elf::symbol::FUNCTION if code == Some(name) => {
                symbol.value == 0 && symbol.bytes == place.bytes && defined.insert(name)
            }
            // Nobody is to find it in the place of an entry.
            elf::symbol::FUNCTION => {
                code.is_some() && name.starts_with(INTERNAL_FUNCTION) && !entries.contains(name) && inside
            }
            elf::symbol::OBJECT => {
                (place.name == ".nv.constant3" || place.name.starts_with(".nv.shared.")) && inside
            }
            elf::symbol::NO_TYPE => name == RESERVED_SHARED_ALIAS && place.name == ".nv.shared.reserved.0",
            _ => false,
        };
        if !fits {
            return Err(not_allowed(format!("the symbol `{name}` in `{}`", place.name)));
        }
    }
    match entries.iter().find(|entry| !defined.contains(*entry)) {
        Some(entry) => Err(malformed(format!("`{entry}` has code and no symbol"))),
        None => Ok(()),
    }
}

/// What is mapped executable is code, all of it and nothing else.
fn check_segments(elf: &Elf<'_>, places: &Places<'_>) -> Result<(), Refusal> {
    let code = |segment: &elf::Segment| {
        let inside = |section: &&&Section<'_>| {
            segment.offset <= section.offset
                && section.offset + section.bytes <= segment.offset + segment.bytes
        };
        places.code.values().filter(inside).collect::<Vec<_>>()
    };
    let mut mapped = 0;
    for found in &elf.segments {
        if !matches!(found.kind, segment::LOAD | segment::TABLE) {
            return Err(not_allowed(format!("a segment of type {:#x}", found.kind)));
        }
        if found.flags & segment::EXECUTE == 0 {
            let overlaps = |section: &&Section<'_>| {
                section.offset < found.offset + found.bytes && found.offset < section.offset + section.bytes
            };
            if places.code.values().any(overlaps) {
                return Err(not_allowed("code that is mapped as data"));
            }
            continue;
        }
        let sections = code(found);
        let first = sections.iter().map(|section| section.offset).min();
        let last = sections.iter().map(|section| section.offset + section.bytes).max();
        let whole = first == Some(found.offset) && last == Some(found.offset + found.bytes);
        let gaps = elf.sections.iter().any(|section| {
            let has_bytes = section.kind != kind::NO_BITS && section.bytes > 0;
            let begins = (found.offset..found.offset + found.bytes).contains(&section.offset);
            has_bytes && begins && !section.name.starts_with(".text.")
        });
        if !whole || gaps || found.flags & segment::WRITE != 0 || found.memory_bytes != found.bytes {
            return Err(not_allowed("an executable segment that is not the code"));
        }
        mapped += sections.len();
    }
    if mapped == places.code.len() {
        Ok(())
    } else {
        Err(malformed("code that is not mapped, or mapped twice"))
    }
}

#[cfg(test)]
mod tests;
