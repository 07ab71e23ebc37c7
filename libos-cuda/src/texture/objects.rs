//! The texture and surface objects of a session.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::abi::{Resource, TextureDescription};
use crate::device::Stream;

/// The objects of a session.
#[derive(Default)]
pub(crate) struct Objects(pub(super) Mutex<State>);

impl Objects {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().live.is_empty()
    }
}

#[derive(Default)]
pub(super) struct State {
    /// By their handles; a surface has no description of how it is read.
    pub(super) live: BTreeMap<u64, (Resource, Option<TextureDescription>)>,
    pub(super) free: Vec<u64>,
    /// The stream in which descriptions are written: nothing else is in it, so nobody waits.
    pub(super) stream: Option<Stream>,
}
