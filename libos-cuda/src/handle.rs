//! Handles as programs see them: a tag, a kind, a generation and an index, in the shape of a pointer that no
//! process can dereference.

use crate::status::Status;

/// Bits 56 to 63 of every handle. An address with these bits is not canonical, so it faults when it is followed. The topmost
/// is 0: `cuda.core` and numba take handles for signed numbers, and refuse negative ones.
const TAG: u64 = 0x34;

/// What a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `CUcontext`.
    Context = 1,
    /// `CUstream`.
    Stream = 2,
    /// `CUevent`.
    Event = 3,
    /// `CUmodule`.
    Module = 4,
    /// `CUlibrary`.
    Library = 5,
    /// `CUfunction` and `CUkernel`: they may be used for each other, as on NVIDIA's driver.
    Function = 6,
    /// `CUmemoryPool`.
    Pool = 7,
    /// `CUmemGenericAllocationHandle`.
    Physical = 8,
    /// `CUgraph`.
    Graph = 9,
    /// `CUgraphNode`.
    GraphNode = 10,
    /// `CUgraphExec`.
    GraphExec = 11,
    /// `CUarray`.
    Array = 12,
    /// `CUlinkState`.
    Linker = 13,
    /// `CUuserObject`.
    UserObject = 14,
}

const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// The handle of a thing.
pub(crate) fn encode(kind: Kind, generation: u32, index: u32) -> u64 {
    let generation = u64::from(generation & INDEX_MASK);
    TAG << 56 | (kind as u64) << 48 | generation << INDEX_BITS | u64::from(index & INDEX_MASK)
}

/// Generation and index of a handle of `kind`.
#[inline]
pub(crate) fn decode(kind: Kind, handle: u64) -> Result<(u32, u32), Status> {
    if handle >> 48 != TAG << 8 | kind as u64 {
        return Err(match handle {
            0 => Status::INVALID_HANDLE,
            _ if kind == Kind::Context => Status::INVALID_CONTEXT,
            _ => Status::INVALID_HANDLE,
        });
    }
    let low = |bits: u64| u32::try_from(bits & u64::from(INDEX_MASK)).map_err(|_| Status::INVALID_HANDLE);
    Ok((low(handle >> INDEX_BITS)?, low(handle)?))
}

/// The generation after `generation`; never 0.
pub(crate) fn next_generation(generation: u32) -> u32 {
    match generation.wrapping_add(1) & INDEX_MASK {
        0 => 1,
        next => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_one_thing_of_one_kind() {
        let handle = encode(Kind::Event, 7, 42);
        assert_eq!(decode(Kind::Event, handle), Ok((7, 42)));
        assert_eq!(decode(Kind::Stream, handle), Err(Status::INVALID_HANDLE));
        assert_eq!(decode(Kind::Event, 0), Err(Status::INVALID_HANDLE));
        assert_eq!(decode(Kind::Context, handle), Err(Status::INVALID_CONTEXT));
    }

    #[test]
    fn a_handle_is_no_address_of_any_process() {
        let handle = encode(Kind::UserObject, u32::MAX, u32::MAX);
        assert!(handle >> 47 != 0 && handle >> 47 != 0x1_FFFF);
        assert!(handle >> 63 == 0, "a negative number");
    }

    #[test]
    fn generations_go_round_without_zero() {
        assert_eq!(next_generation(0), 1);
        assert_eq!(next_generation(INDEX_MASK), 1);
    }
}
