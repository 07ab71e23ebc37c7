//! The extent of a 64-bit little-endian ELF file, from its own headers.

use crate::read::{u16_at, u32_at, u64_at};
use crate::{Error, Needed};

pub(crate) const ELF_MAGIC: u32 = 0x464C_457F;
pub(crate) const ELF_HEADER_BYTES: usize = 64;
/// Sections without bytes in the file (`SHT_NOBITS`).
const SECTION_NOBITS: u32 = 8;
const SECTION_HEADER_BYTES: u64 = 64;
const SEGMENT_HEADER_BYTES: u64 = 56;
const WHAT: &str = "a cubin's header";

/// A table of headers in the file.
struct Table {
    at: u64,
    stride: u64,
    count: u64,
}

impl Table {
    fn read(bytes: &[u8], at: usize, sizes: usize, least: u64) -> Result<Table, Error> {
        let table = Table {
            at: u64_at(bytes, at, WHAT)?,
            stride: u16_at(bytes, sizes, WHAT)?.into(),
            count: u16_at(bytes, sizes + 2, WHAT)?.into(),
        };
        if table.count != 0 && table.stride < least {
            return Err(Error::Malformed { what: "the size of an ELF table's row", value: table.stride });
        }
        Ok(table)
    }

    fn end(&self) -> u64 {
        if self.count == 0 { 0 } else { self.at.saturating_add(self.stride * self.count) }
    }

    /// Offset of a field in row `row`. The table's end was checked against a slice, so it fits.
    fn field(&self, row: u64, field: u64) -> Result<usize, Error> {
        let at = self.at.saturating_add(row * self.stride).saturating_add(field);
        usize::try_from(at).map_err(|_| Error::Malformed { what: "an ELF table's offset", value: at })
    }
}

/// What is needed of an ELF file whose beginning is `bytes`.
pub(crate) fn needed(bytes: &[u8]) -> Result<Needed, Error> {
    if bytes.len() < ELF_HEADER_BYTES {
        return Ok(Needed::More(ELF_HEADER_BYTES));
    }
    // EI_CLASS, EI_DATA: 64 bits, little-endian.
    let class = u16_at(bytes, 4, WHAT)?;
    if class != 0x0102 {
        return Err(Error::Malformed { what: "a cubin's ELF class", value: class.into() });
    }
    let segments = Table::read(bytes, 32, 54, SEGMENT_HEADER_BYTES)?;
    let sections = Table::read(bytes, 40, 58, SECTION_HEADER_BYTES)?;
    let tables = segments.end().max(sections.end()).max(ELF_HEADER_BYTES as u64);
    if (bytes.len() as u64) < tables {
        return crate::size::bounded(tables).map(Needed::More);
    }
    let mut end = tables;
    for row in 0..segments.count {
        let at = u64_at(bytes, segments.field(row, 8)?, WHAT)?;
        let size = u64_at(bytes, segments.field(row, 32)?, WHAT)?;
        end = end.max(at.saturating_add(size));
    }
    for row in 0..sections.count {
        let kind = u32_at(bytes, sections.field(row, 4)?, WHAT)?;
        if kind != SECTION_NOBITS {
            let at = u64_at(bytes, sections.field(row, 24)?, WHAT)?;
            let size = u64_at(bytes, sections.field(row, 32)?, WHAT)?;
            end = end.max(at.saturating_add(size));
        }
    }
    crate::size::bounded(end).map(Needed::Exactly)
}

/// The architecture of a cubin, from its ELF flags: the low byte up to ELF ABI 7, the second byte later.
pub(crate) fn architecture(bytes: &[u8]) -> Option<u32> {
    let abi = *bytes.get(8)?;
    let flags = u32_at(bytes, 48, WHAT).ok()?;
    Some(if abi >= 8 { (flags >> 8) & 0xFF } else { flags & 0xFF })
}
