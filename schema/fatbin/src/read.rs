//! Little-endian fields at checked offsets.

use crate::Error;

/// `N` bytes at `at`, or the error that `what` is cut short.
fn array<const N: usize>(bytes: &[u8], at: usize, what: &'static str) -> Result<[u8; N], Error> {
    at.checked_add(N)
        .and_then(|end| bytes.get(at..end))
        .and_then(|field| <[u8; N]>::try_from(field).ok())
        .ok_or(Error::Truncated {
            what,
            needed: (at as u64).saturating_add(N as u64),
            present: bytes.len() as u64,
        })
}

pub(crate) fn u16_at(bytes: &[u8], at: usize, what: &'static str) -> Result<u16, Error> {
    array(bytes, at, what).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize, what: &'static str) -> Result<u32, Error> {
    array(bytes, at, what).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize, what: &'static str) -> Result<u64, Error> {
    array(bytes, at, what).map(u64::from_le_bytes)
}

/// `count` bytes from `at` on, or the error that `what` is cut short.
pub(crate) fn span<'a>(
    bytes: &'a [u8],
    at: usize,
    count: u64,
    what: &'static str,
) -> Result<&'a [u8], Error> {
    let cut =
        Error::Truncated { what, needed: (at as u64).saturating_add(count), present: bytes.len() as u64 };
    let Ok(count) = usize::try_from(count) else { return Err(cut) };
    at.checked_add(count).and_then(|end| bytes.get(at..end)).ok_or(cut)
}
