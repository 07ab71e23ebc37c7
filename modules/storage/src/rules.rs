//! What a caller may ask for: extents with rights, and the check of a request.

use bulkhead_module::codes;

/// Extents of an instance.
pub const EXTENTS: usize = 16;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 512;
/// Blocks of one command at most.
pub const BLOCKS_MAX: u32 = 8;

/// NVM command set: opcodes that are served.
pub const FLUSH: u32 = 0;
/// See [`FLUSH`].
pub const WRITE: u32 = 1;
/// See [`FLUSH`].
pub const READ: u32 = 2;

/// What a device says of a command that failed stands behind this bit: status type and code of its completion.
pub const FAILED: u32 = 0x8000_0000;

/// What may be done with an extent: a bit for each opcode, as the gates look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// It may be read.
    Read = 1 << READ,
    /// It may be read, written and flushed.
    ReadWrite = 1 << READ | 1 << WRITE | 1 << FLUSH,
}

/// A part of a namespace that an instance may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The number by which the controller knows the namespace.
    pub space: u32,
    /// Its first block there.
    pub first: u64,
    /// How many blocks.
    pub blocks: u64,
    /// What may be done with it.
    pub rights: Rights,
}

/// What a caller asks for, of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// Which buffer it is about.
    pub buffer: u32,
    /// What to do.
    pub operation: u32,
    /// With which extent, and from which of its blocks on.
    pub extent: u32,
    /// How many blocks.
    pub count: u32,
    /// See `extent`.
    pub block: u64,
    /// The answer has it too.
    pub mark: u32,
    /// Where in lent memory: one more than a multiple of [`BLOCK_BYTES`]; 0 for the buffer.
    pub target: u32,
}

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// Makes durable what has ended.
    Flush {
        /// Of which namespace.
        space: u32,
    },
    /// Moves blocks.
    Move {
        /// From the buffer to the namespace, or the other way round.
        writes: bool,
        /// Of which namespace.
        space: u32,
        /// The first of the namespace.
        first: u64,
        /// How many: 1 to [`BLOCKS_MAX`].
        count: u32,
        /// Where in lent memory, in bytes; `None` for the buffer.
        target: Option<u64>,
    },
}

/// Checks a request as the gate `storage_submit` does, in that order, and with the same codes; and that what it reaches of lent
/// memory lies in the `lent` bytes of that.
///
/// # Errors
/// Why it is not served.
pub fn check(extents: &[Extent], lent: u64, request: &Request) -> Result<Checked, u32> {
    let at = usize::try_from(request.extent).unwrap_or(usize::MAX);
    let extent = extents.get(at).filter(|_| at < EXTENTS).ok_or(codes::NOT_OPEN)?;
    let allowed = request.operation <= READ && (extent.rights as u32) >> request.operation & 1 == 1;
    if !allowed {
        return Err(codes::RIGHTS);
    }
    if request.operation == FLUSH {
        return Ok(Checked::Flush { space: extent.space });
    }
    let (block, count) = (request.block, request.count);
    if count == 0 || count > BLOCKS_MAX {
        return Err(codes::LENGTH);
    }
    if block >= extent.blocks || u64::from(count) > extent.blocks - block {
        return Err(codes::RANGE);
    }
    // The extent lies in its namespace.
    let first = extent.first.checked_add(block).ok_or(codes::RANGE)?;
    let target = match request.target.checked_sub(1) {
        None => None,
        Some(at) => {
            let (at, bytes) = (u64::from(at) * BLOCK_BYTES as u64, u64::from(count) * BLOCK_BYTES as u64);
            if at > lent || bytes > lent - at {
                return Err(codes::TARGET);
            }
            Some(at)
        }
    };
    Ok(Checked::Move { writes: request.operation == WRITE, space: extent.space, first, count, target })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_lies_in_the_extent_and_is_allowed() {
        let extents = [
            Extent { space: 1, first: 100, blocks: 64, rights: Rights::ReadWrite },
            Extent { space: 2, first: 7, blocks: u64::MAX - 7, rights: Rights::Read },
        ];
        let ends =
            [0, 1, 2, 7, 8, 9, 56, 57, 63, 64, 65, 1 << 32, 1 << 63, u64::MAX - 8, u64::MAX - 1, u64::MAX];
        for (extent, operation) in (0..4).flat_map(|extent| (0..5).map(move |operation| (extent, operation)))
        {
            for (block, count) in ends.iter().flat_map(|block| ends.iter().map(move |count| (*block, *count)))
            {
                let Ok(count) = u32::try_from(count) else { continue };
                let request = Request { operation, extent, count, block, ..Request::default() };
                match check(&extents, 0, &request) {
                    Err(code) => assert!(code >= codes::NOT_OPEN),
                    Ok(Checked::Flush { space }) => assert_eq!((extent, operation, space), (0, FLUSH, 1)),
                    Ok(Checked::Move { writes, space, first, count, target }) => {
                        assert_eq!(target, None);
                        let of = extents[usize::try_from(extent).unwrap()];
                        let last = u128::from(of.first) + u128::from(of.blocks);
                        assert!(first >= of.first && u128::from(first) + u128::from(count) <= last);
                        assert!((1..=BLOCKS_MAX).contains(&count) && space == of.space);
                        assert!(!writes || of.rights == Rights::ReadWrite);
                        assert_eq!(writes, operation == WRITE);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_moved_to_lent_memory_lies_in_it_whole() {
        let extents = [Extent { space: 1, first: 0, blocks: 64, rights: Rights::ReadWrite }];
        for (lent, count, target, allowed) in [
            (0, 1, 0, true),
            (0, 1, 1, false),
            (4096, 8, 1, true),
            (4096, 8, 2, false),
            (4096, 1, 8, true),
            (4096, 1, 9, false),
            (4095, 8, 1, false),
            (511, 1, 1, false),
            (1 << 50, 8, u32::MAX, true),
            (1 << 41, 1, u32::MAX, true),
            ((1 << 41) - 1024, 8, u32::MAX, false),
        ] {
            let request = Request { operation: READ, count, target, ..Request::default() };
            let checked = check(&extents, lent, &request);
            assert_eq!(checked.is_ok(), allowed, "{lent} bytes, {request:?}: {checked:?}");
            if target > 0 && !allowed {
                assert_eq!(checked, Err(codes::TARGET));
            }
        }
    }
}
