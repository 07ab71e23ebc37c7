use std::io::Read;

use crate::read::{span, u16_at, u32_at, u64_at};
use crate::{ENTRIES_MAX, Error, TEXT_BYTES_MAX};

/// First word of a container.
pub(crate) const CONTAINER_MAGIC: u32 = 0xBA55_ED50;
/// Bytes of a container's header that are always there.
pub(crate) const CONTAINER_HEADER_BYTES: usize = 16;
/// Bytes of an entry's header that are always there; a compressed one has eight more at least.
const ENTRY_HEADER_BYTES: u64 = 64;
/// No entry header seen is longer than 128 bytes.
const ENTRY_HEADER_BYTES_MAX: u64 = 4096;

const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// What an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PTX text.
    Ptx,
    /// Machine code for one architecture, as an ELF file.
    Cubin,
    /// NVVM bitcode for link-time optimization.
    LtoIr,
    /// Something newer, by its number.
    Other(u16),
}

/// How an entry's payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As it is.
    None,
    /// One LZ4 block.
    Lz4,
    /// One Zstandard frame.
    Zstd,
}

/// One entry of a container: code of one kind for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it holds.
    pub kind: Kind,
    /// Architecture as in `sm_90`: 90. For PTX the earliest one that it compiles for.
    pub sm: u32,
    /// The flags word as it is in the file.
    pub flags: u64,
    /// How [`Entry::payload`] is stored.
    pub compression: Compression,
    /// The stored bytes, without padding where they are compressed.
    pub payload: &'a [u8],
    /// What the header claims for the decompressed size; equal to the payload's where it is not compressed.
    pub bytes: u64,
}

impl Entry<'_> {
    /// The entry's content, decompressed. Nothing is allocated beyond what the input can really fill, and
    /// nothing beyond [`TEXT_BYTES_MAX`].
    pub fn content(&self) -> Result<Vec<u8>, Error> {
        let limit = u64::try_from(TEXT_BYTES_MAX).unwrap_or(u64::MAX);
        if self.bytes > limit {
            return Err(Error::Limit { what: "bytes in an entry", value: self.bytes, limit });
        }
        match self.compression {
            Compression::None => Ok(self.payload.to_vec()),
            Compression::Lz4 => lz4(self.payload, self.bytes),
            Compression::Zstd => zstd(self.payload, self.bytes),
        }
    }

    /// The first bytes of the content, as many as there are up to `most`: in machine code that is where names stand. What is
    /// compressed as one LZ4 block is decompressed whole.
    pub fn beginning(&self, most: usize) -> Result<Vec<u8>, Error> {
        let mut content = match self.compression {
            Compression::None => self.payload.get(..most).unwrap_or(self.payload).to_vec(),
            Compression::Lz4 => self.content()?,
            Compression::Zstd => zstd_beginning(self.payload, most as u64)?,
        };
        content.truncate(most);
        Ok(content)
    }
}

fn lz4(payload: &[u8], bytes: u64) -> Result<Vec<u8>, Error> {
    // An LZ4 byte yields at most 255 bytes, so a claim beyond that is refused before it costs memory.
    let reachable = (payload.len() as u64).saturating_mul(255).saturating_add(64);
    if bytes > reachable {
        return Err(Error::Malformed { what: "the decompressed size", value: bytes });
    }
    let size = usize::try_from(bytes)
        .map_err(|_| Error::Malformed { what: "the decompressed size", value: bytes })?;
    let mut content = vec![0; size];
    let written = lz4_flex::block::decompress_into(payload, &mut content)
        .map_err(|error| Error::Decompress(error.to_string()))?;
    content.truncate(written);
    Ok(content)
}

fn zstd_beginning(payload: &[u8], most: u64) -> Result<Vec<u8>, Error> {
    let window_bytes_max = TEXT_BYTES_MAX as u64;
    let decoder = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(payload, window_bytes_max)
        .map_err(|error| Error::Decompress(error.to_string()))?;
    let mut content = Vec::new();
    decoder.take(most).read_to_end(&mut content).map_err(|error| Error::Decompress(error.to_string()))?;
    Ok(content)
}

fn zstd(payload: &[u8], bytes: u64) -> Result<Vec<u8>, Error> {
    let content = zstd_beginning(payload, bytes.saturating_add(1))?;
    if content.len() as u64 > bytes {
        return Err(Error::Malformed { what: "the decompressed size", value: bytes });
    }
    Ok(content)
}

/// Size of a container with its header, from that header.
pub(crate) fn container_bytes(header: &[u8]) -> Result<u64, Error> {
    let header_bytes = u64::from(u16_at(header, 6, "a container's header")?);
    if header_bytes < CONTAINER_HEADER_BYTES as u64 {
        return Err(Error::Malformed { what: "a container's header size", value: header_bytes });
    }
    let content = u64_at(header, 8, "a container's header")?;
    header_bytes.checked_add(content).ok_or(Error::Malformed { what: "a container's size", value: content })
}

/// All entries of the containers that lie one after another in `bytes`. Zero bytes may follow each one.
pub(crate) fn entries(bytes: &[u8]) -> Result<Vec<Entry<'_>>, Error> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let magic = u32_at(rest, 0, "a container's header")?;
        if magic != CONTAINER_MAGIC {
            return Err(Error::Malformed { what: "the first word of a container", value: magic.into() });
        }
        let size = container_bytes(rest)?;
        let container = span(rest, 0, size, "a container")?;
        let header_bytes = usize::from(u16_at(container, 6, "a container's header")?);
        let content = container.get(header_bytes..).unwrap_or_default();
        entries_of(content, &mut found)?;
        let after = rest.get(container.len()..).unwrap_or_default();
        let padding = after.iter().take_while(|byte| **byte == 0).count();
        rest = after.get(padding..).unwrap_or_default();
    }
    Ok(found)
}

fn entries_of<'a>(mut rest: &'a [u8], found: &mut Vec<Entry<'a>>) -> Result<(), Error> {
    while !rest.is_empty() {
        if found.len() >= ENTRIES_MAX {
            return Err(Error::Limit {
                what: "entries",
                value: ENTRIES_MAX as u64 + 1,
                limit: ENTRIES_MAX as u64,
            });
        }
        let (entry, bytes) = entry_at(rest)?;
        found.push(entry);
        rest = rest.get(bytes..).unwrap_or_default();
    }
    Ok(())
}

/// The entry that `bytes` begin with, and how many bytes it takes.
fn entry_at(bytes: &[u8]) -> Result<(Entry<'_>, usize), Error> {
    const WHAT: &str = "an entry's header";
    let kind = match u16_at(bytes, 0, WHAT)? {
        1 => Kind::Ptx,
        2 => Kind::Cubin,
        8 => Kind::LtoIr,
        other => Kind::Other(other),
    };
    let header_bytes = u64::from(u32_at(bytes, 4, WHAT)?);
    if !(ENTRY_HEADER_BYTES..=ENTRY_HEADER_BYTES_MAX).contains(&header_bytes) {
        return Err(Error::Malformed { what: "an entry's header size", value: header_bytes });
    }
    let header = span(bytes, 0, header_bytes, WHAT)?;
    let stored = u64_at(header, 8, WHAT)?;
    let compressed = u64::from(u32_at(header, 16, WHAT)?);
    let sm = u32_at(header, 28, WHAT)?;
    let flags = u64_at(header, 40, WHAT)?;
    let stored = span(bytes, header.len(), stored, "an entry")?;
    let compression = match (flags & FLAG_LZ4 != 0, flags & FLAG_ZSTD != 0) {
        (false, false) => Compression::None,
        (true, false) => Compression::Lz4,
        (false, true) => Compression::Zstd,
        (true, true) => return Err(Error::Malformed { what: "an entry's flags", value: flags }),
    };
    let (payload, size) = match compression {
        Compression::None => (stored, stored.len() as u64),
        Compression::Lz4 | Compression::Zstd => {
            (span(stored, 0, compressed, "a compressed entry")?, u64_at(header, 56, WHAT)?)
        }
    };
    let entry = Entry { kind, sm, flags, compression, payload, bytes: size };
    Ok((entry, header.len() + stored.len()))
}
