//! Containers inside of other files: objects of a host's compiler, and archives of them.

use crate::container::{CONTAINER_HEADER_BYTES, CONTAINER_MAGIC, container_bytes};
use crate::{ENTRIES_MAX, Image};

/// The containers that lie anywhere in `bytes`, in order: at most [`ENTRIES_MAX`]. What only looks like the beginning of one
/// is passed over.
#[must_use]
pub fn containers_in(bytes: &[u8]) -> Vec<&[u8]> {
    let magic = CONTAINER_MAGIC.to_le_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while found.len() < ENTRIES_MAX
        && let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= CONTAINER_HEADER_BYTES)
    {
        if !rest.starts_with(&magic) {
            at += 1;
            continue;
        }
        let length = container_bytes(rest).ok().and_then(|length| usize::try_from(length).ok());
        let container = length.and_then(|length| rest.get(..length));
        match container.filter(|container| Image::read(container).is_ok()) {
            Some(container) => {
                found.push(container);
                at += container.len().max(1);
            }
            None => at += 1,
        }
    }
    found
}
