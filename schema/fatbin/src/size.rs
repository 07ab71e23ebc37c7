//! How large an image is, for those that come without a length.

use crate::container::{CONTAINER_HEADER_BYTES, CONTAINER_MAGIC, container_bytes};
use crate::elf::ELF_MAGIC;
use crate::read::{u32_at, u64_at};
use crate::{Error, IMAGE_BYTES_MAX, elf};

/// First word of the structure that nvcc puts around a container in a program's data.
const WRAPPER_MAGIC: u32 = 0x4662_43B1;

/// What the beginning of an image says about its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// Ask again with at least this many bytes: the image is known to have them.
    More(usize),
    /// The image has exactly this many bytes.
    Exactly(usize),
    /// The image is text and ends before its first NUL.
    UpToNul,
    /// These are the bytes of a [`Wrapper`], which points to the image.
    Wrapper(Wrapper),
}

/// The structure that nvcc puts around a container in a program's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrapper {
    /// Version; 1 and 2 are known.
    pub version: u32,
    /// Address of the container.
    pub data: u64,
    /// Version 1: a file name, or null. Version 2: more containers, or null.
    pub extra: u64,
}

impl Wrapper {
    /// Size in bytes.
    pub const BYTES: usize = 24;

    /// The version of a wrapper around what nvcc linked, whose units `extra` lists: addresses of containers, up to a null
    /// (the toolkit's `crt/link.stub`).
    pub const LINKED: u32 = 2;
}

/// What is needed of the image whose beginning is `bytes`. Begin with no bytes at all; each answer
/// [`Needed::More`] names only bytes that the headers seen so far prove to be there.
///
/// A container ends with itself here: whether another one of the same image follows cannot be known without
/// reading what may not be mapped.
pub fn needed(bytes: &[u8]) -> Result<Needed, Error> {
    let Some(first) = bytes.first() else { return Ok(Needed::More(1)) };
    // The second byte decides between text and the container's magic, which begins with a letter.
    match (*first, bytes.get(1)) {
        (0x50 | 0xB1 | 0x7F, None) => return Ok(Needed::More(2)),
        (0x50, Some(0xED)) | (0xB1, Some(0x43)) | (0x7F, Some(0x45)) => {}
        (text, _) if text == b'\n' || text == b'\r' || text == b'\t' || (b' '..=b'~').contains(&text) => {
            return Ok(Needed::UpToNul);
        }
        _ => return Err(Error::Unknown),
    }
    if bytes.len() < 4 {
        return Ok(Needed::More(4));
    }
    match u32_at(bytes, 0, "an image")? {
        ELF_MAGIC => elf::needed(bytes),
        CONTAINER_MAGIC if bytes.len() < CONTAINER_HEADER_BYTES => Ok(Needed::More(CONTAINER_HEADER_BYTES)),
        CONTAINER_MAGIC => bounded(container_bytes(bytes)?).map(Needed::Exactly),
        WRAPPER_MAGIC if bytes.len() < Wrapper::BYTES => Ok(Needed::More(Wrapper::BYTES)),
        WRAPPER_MAGIC => Ok(Needed::Wrapper(Wrapper {
            version: u32_at(bytes, 4, "a wrapper")?,
            data: u64_at(bytes, 8, "a wrapper")?,
            extra: u64_at(bytes, 16, "a wrapper")?,
        })),
        _ => Err(Error::Unknown),
    }
}

/// A size from a header, as one that an image may have.
pub(crate) fn bounded(bytes: u64) -> Result<usize, Error> {
    let limit = IMAGE_BYTES_MAX as u64;
    match usize::try_from(bytes) {
        Ok(size) if size <= IMAGE_BYTES_MAX => Ok(size),
        _ => Err(Error::Limit { what: "bytes", value: bytes, limit }),
    }
}
