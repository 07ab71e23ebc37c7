//! The parts of an ELF file that a cubin has, every offset checked: ELF-64 specification, figures 2, 3, 5, 7.

use crate::refusal::{Refusal, malformed, not_allowed};

/// Section types; from 0x7000_0000 on NVIDIA's own.
pub(crate) mod kind {
    pub(crate) const NULL: u32 = 0;
    pub(crate) const PROGRAM: u32 = 1;
    pub(crate) const SYMBOLS: u32 = 2;
    pub(crate) const STRINGS: u32 = 3;
    pub(crate) const ADDENDS: u32 = 4;
    pub(crate) const NOTE: u32 = 7;
    pub(crate) const NO_BITS: u32 = 8;
    pub(crate) const INFORMATION: u32 = 0x7000_0000;
    pub(crate) const CALL_GRAPH: u32 = 0x7000_0001;
    pub(crate) const COMPATIBILITY: u32 = 0x7000_0086;
}

/// Section flags.
pub(crate) mod flag {
    pub(crate) const WRITE: u64 = 1;
    pub(crate) const EXECUTE: u64 = 4;
}

/// Segment types and flags.
pub(crate) mod segment {
    pub(crate) const LOAD: u32 = 1;
    pub(crate) const TABLE: u32 = 6;
    pub(crate) const EXECUTE: u32 = 1;
    pub(crate) const WRITE: u32 = 2;
}

/// Symbol types.
pub(crate) mod symbol {
    pub(crate) const NO_TYPE: u8 = 0;
    pub(crate) const OBJECT: u8 = 1;
    pub(crate) const FUNCTION: u8 = 2;
    pub(crate) const SECTION: u8 = 3;
    pub(super) const GLOBAL: u8 = 1;
}

const MACHINE_CUDA: u16 = 190;
const SECTIONS_MAX: u16 = 0xff00;
const SECTION_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SYMBOL_BYTES: usize = 24;
const RELOCATION_BYTES: u64 = 24;
/// `e_ident[EI_OSABI]` and where `e_flags` has the architecture: the assembler of CUDA 13, and those before it.
const FORMS: [(u8, u32); 2] = [(0x41, 8), (0x33, 0)];
/// A whole address: in `.debug_frame`.
const RELOCATION_ADDRESS: u64 = 2;

#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) memory_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: u8,
    binding: u8,
    /// None where it is defined elsewhere.
    pub(crate) section: Option<usize>,
    pub(crate) value: u64,
    pub(crate) bytes: u64,
}

impl Symbol<'_> {
    pub(crate) fn is_global(&self) -> bool {
        self.binding == symbol::GLOBAL
    }
}

#[derive(Debug)]
pub(crate) struct Elf<'a> {
    pub(crate) bytes: &'a [u8],
    /// 90 for sm_90.
    pub(crate) architecture: u32,
    pub(crate) sections: Vec<Section<'a>>,
    pub(crate) segments: Vec<Segment>,
}

/// Little-endian numbers at offsets that may lie anywhere.
pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..at.checked_add(N)?)?;
    Some(found.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    number::<4>(bytes, at).and_then(|value| u32::try_from(value).ok())
}

pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    number::<2>(bytes, at).and_then(|value| u16::try_from(value).ok())
}

/// A string of a string table.
fn string(table: &[u8], at: u32) -> Option<&str> {
    let rest = table.get(usize::try_from(at).ok()?..)?;
    let length = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(rest.get(..length)?).ok()
}

struct Raw {
    name: u32,
    kind: u32,
    flags: u64,
    offset: u64,
    bytes: u64,
    link: u32,
}

fn raw_section(header: &[u8]) -> Option<Raw> {
    Some(Raw {
        name: word(header, 0)?,
        kind: word(header, 4)?,
        flags: number::<8>(header, 8)?,
        offset: number::<8>(header, 24)?,
        bytes: number::<8>(header, 32)?,
        link: word(header, 40)?,
    })
}

impl<'a> Elf<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let short = || malformed("it ends in its header");
        if !bytes.starts_with(b"\x7fELF\x02\x01\x01") {
            return Err(malformed("it is no 64-bit little-endian ELF file"));
        }
        let machine = half(bytes, 18).ok_or_else(short)?;
        let flags = word(bytes, 48).ok_or_else(short)?;
        if machine != MACHINE_CUDA || half(bytes, 16) != Some(2) {
            return Err(malformed(format!("machine {machine} is not CUDA, or it is not executable")));
        }
        let form = FORMS.iter().find(|(abi, _)| bytes.get(7) == Some(abi));
        let (_, shift) = form.ok_or_else(|| malformed("an unknown ABI"))?;
        let architecture = flags >> shift & 0xff;
        let table = |at: usize, length: usize, count: usize, each: usize| -> Option<&'a [u8]> {
            let start = usize::try_from(number::<8>(bytes, at)?).ok()?;
            let count = half(bytes, count).filter(|count| *count < SECTIONS_MAX)?;
            let right = usize::from(half(bytes, length)?) == each || count == 0;
            bytes.get(start..start.checked_add(each * usize::from(count))?).filter(|_| right)
        };
        let headers =
            table(0x28, 0x3a, 0x3c, SECTION_BYTES).ok_or_else(|| malformed("its section headers"))?;
        let segments =
            table(0x20, 0x36, 0x38, SEGMENT_BYTES).ok_or_else(|| malformed("its program headers"))?;
        let raw: Option<Vec<Raw>> = headers.chunks_exact(SECTION_BYTES).map(raw_section).collect();
        let raw = raw.ok_or_else(short)?;
        let names = half(bytes, 0x3e).and_then(|index| raw.get(usize::from(index)));
        let names = names.filter(|names| names.kind == kind::STRINGS);
        let names = names.and_then(|names| part(bytes, names.offset, names.bytes));
        let names = names.ok_or_else(|| malformed("its section names"))?;
        let mut sections = Vec::with_capacity(raw.len());
        for found in &raw {
            let name = string(names, found.name).ok_or_else(|| malformed("a section's name"))?;
            if found.kind != kind::NO_BITS && part(bytes, found.offset, found.bytes).is_none() {
                return Err(malformed(format!("the section `{name}` lies outside of the file")));
            }
            let Raw { kind, flags, offset, bytes, .. } = *found;
            sections.push(Section { name, kind, flags, offset, bytes });
        }
        let segments = segments.chunks_exact(SEGMENT_BYTES).map(|header| raw_segment(bytes, header));
        let segments = segments.collect::<Option<_>>().ok_or_else(|| malformed("a segment"))?;
        let links = raw.iter().filter(|found| found.kind == kind::SYMBOLS);
        // What is looked up by its name is what the symbols' table says.
        let tables = sections.iter().filter(|section| section.name == ".strtab").count();
        if links.clone().count() != 1
            || tables != 1
            || links.clone().any(|found| !is_string_table(&sections, found.link))
        {
            return Err(malformed("its symbol table"));
        }
        Ok(Self { bytes, architecture, sections, segments })
    }

    /// A section's bytes in the file.
    pub(crate) fn bytes_of(&self, section: &Section<'_>) -> Result<&'a [u8], Refusal> {
        let outside = || malformed(format!("the section `{}`", section.name));
        part(self.bytes, section.offset, section.bytes).ok_or_else(outside)
    }

    fn named(&self, name: &str) -> Result<&'a [u8], Refusal> {
        let section = self.sections.iter().find(|section| section.name == name);
        self.bytes_of(section.ok_or_else(|| malformed(format!("there is no `{name}`")))?)
    }

    pub(crate) fn symbols(&self) -> Result<Vec<Symbol<'a>>, Refusal> {
        let (table, names) = (self.named(".symtab")?, self.named(".strtab")?);
        if !table.len().is_multiple_of(SYMBOL_BYTES) {
            return Err(malformed("its symbol table"));
        }
        let read = |entry: &[u8]| {
            let section = half(entry, 6)?;
            let info = entry.get(4)?;
            Some(Symbol {
                name: string(names, word(entry, 0)?)?,
                kind: info & 15,
                binding: info >> 4,
                section: (section != 0).then_some(usize::from(section)),
                value: number::<8>(entry, 8)?,
                bytes: number::<8>(entry, 16)?,
            })
        };
        table.chunks_exact(SYMBOL_BYTES).map(read).collect::<Option<_>>().ok_or_else(|| malformed("a symbol"))
    }

    /// Relocations say where functions lie, to a debugger; code and constants have none.
    pub(crate) fn check_relocations(
        &self,
        section: &Section<'_>,
        symbols: &[Symbol<'_>],
    ) -> Result<(), Refusal> {
        if section.bytes == 0 {
            return Ok(());
        }
        if section.name != ".rela.debug_frame" || !section.bytes.is_multiple_of(RELOCATION_BYTES) {
            return Err(not_allowed(format!("a relocation in `{}`", section.name)));
        }
        for entry in self.bytes_of(section)?.chunks_exact(24) {
            let info = number::<8>(entry, 8).unwrap_or(u64::MAX);
            let symbol = usize::try_from(info >> 32).ok().and_then(|index| symbols.get(index));
            let function = symbol.is_some_and(|symbol| symbol.kind == symbol::FUNCTION);
            if info & 0xffff_ffff != RELOCATION_ADDRESS || !function {
                return Err(not_allowed(format!(
                    "a relocation of type {} in `.debug_frame`",
                    info & 0xffff_ffff
                )));
            }
        }
        Ok(())
    }
}

fn is_string_table(sections: &[Section<'_>], index: u32) -> bool {
    let found = usize::try_from(index).ok().and_then(|index| sections.get(index));
    found.is_some_and(|found| found.kind == kind::STRINGS && found.name == ".strtab")
}

fn raw_segment(bytes: &[u8], header: &[u8]) -> Option<Segment> {
    let found = Segment {
        kind: word(header, 0)?,
        flags: word(header, 4)?,
        offset: number::<8>(header, 8)?,
        bytes: number::<8>(header, 32)?,
        memory_bytes: number::<8>(header, 40)?,
    };
    part(bytes, found.offset, found.bytes)?;
    Some(found)
}

fn part(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}
