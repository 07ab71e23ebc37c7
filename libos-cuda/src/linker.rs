//! `cuLink*`, and programs of `nvcc -rdc=true`: units of relocatable PTX, linked to one image before it is loaded.
//!
//! What links is a library of this process ([`bulkhead_link`]): the kernel gets one module as from everybody else. The
//! "cubin" of `cuLinkComplete` is the linked PTX, which every call that loads an image takes.

mod calls;
mod units;

use parking_lot::Mutex;

pub(crate) use calls::*;
pub(crate) use units::relocatable;

use crate::module::Logs;

/// A unit: what errors call it, and its PTX.
type Named = (String, String);

/// A `CUlinkState`.
pub(crate) struct Linker {
    logs: Logs,
    units: Mutex<Vec<Named>>,
    /// What it linked, with a NUL behind it. It lives as long as the linker, since the program reads it.
    linked: Mutex<Vec<Vec<u8>>>,
}
