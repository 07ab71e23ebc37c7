//! Memory of one process for others: CUDA's IPC, on tokens that stand for capabilities.
//!
//! A handle holds a token, so it is worth as much as the memory: whoever knows it can read and write it until it is
//! freed. What is shared is whole pages, as on NVIDIA's driver.

mod calls;

use std::sync::atomic::AtomicU32;

pub(crate) use calls::*;

use crate::abi::IpcHandle;
use crate::device::{Share, SturdyToken};
use crate::pool::PoolName;
use crate::status::{Answer, Status};

/// The first bytes of a handle of ours, and of what stands for a pointer into a pool.
const MAGIC: [u8; 8] = *b"BHmemory";
const POOLED: [u8; 8] = *b"BHpooled";

/// What a handle says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    token: SturdyToken,
    /// Where the allocation begins in the pages that are shared.
    offset: u64,
    bytes: u64,
    /// The pool that it belongs to, where it can be had by that only.
    pool: Option<PoolName>,
}

impl Name {
    fn encode(self) -> IpcHandle {
        let mut handle = [0; 64];
        let magic = if self.pool.is_some() { &POOLED } else { &MAGIC };
        let (offset, bytes) = (self.offset.to_le_bytes(), self.bytes.to_le_bytes());
        let parts = [&magic[..], &self.token.0, &offset, &bytes, &self.pool.unwrap_or_default()];
        for (to, from) in handle.iter_mut().zip(parts.concat()) {
            *to = from;
        }
        IpcHandle(handle)
    }

    fn decode(handle: &IpcHandle) -> Option<Name> {
        let (magic, rest) = handle.0.split_first_chunk::<8>()?;
        let (token, rest) = rest.split_first_chunk::<32>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (bytes, rest) = rest.split_first_chunk::<8>()?;
        let pool = match *magic {
            MAGIC if rest.iter().all(|byte| *byte == 0) => None,
            POOLED => Some(*rest.first_chunk::<8>()?),
            _ => return None,
        };
        let [offset, bytes] = [offset, bytes].map(|word| u64::from_le_bytes(*word));
        (bytes > 0).then_some(Name { token: SturdyToken(*token), offset, bytes, pool })
    }
}

impl Name {
    /// That it lies in what was imported.
    fn check(self, share: &Share) -> Answer {
        let inside = self.offset <= share.bytes() && self.bytes <= share.bytes() - self.offset;
        if inside { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }
}

/// Memory of another process that this one has opened.
pub(crate) struct Opened {
    pub(crate) share: Share,
    name: Name,
    /// How often it was opened and not closed.
    count: AtomicU32,
}

impl Opened {
    /// Where the allocation begins in what was imported.
    pub(crate) fn offset(&self) -> u64 {
        self.name.offset
    }

    /// Whether it was imported from a pool: such memory is freed, and not closed.
    pub(crate) fn is_pooled(&self) -> bool {
        self.name.pool.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_what_was_put_into_it_and_a_damaged_one_nothing() {
        let name = Name { token: SturdyToken([7; 32]), offset: 0x1_2200, bytes: (8 << 20) + 4, pool: None };
        let handle = name.encode();
        assert_eq!(Name::decode(&handle), Some(name));
        for at in (0..8).chain(56..64) {
            let mut damaged = handle;
            damaged.0[at] ^= 1;
            assert_eq!(Name::decode(&damaged), None, "byte {at}");
        }
        assert_eq!(Name::decode(&IpcHandle([0; 64])), None);
        let pooled = Name { pool: Some([3; 8]), ..name };
        assert_eq!(Name::decode(&pooled.encode()), Some(pooled));
    }
}
