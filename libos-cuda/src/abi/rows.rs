//! All exports that are served, whichever file they stand in.

use super::row::Row;
use super::{code, graphs, memory, pools, queries, streams, textures, virtual_memory};

/// Every export.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    [
        queries::ROWS,
        code::ROWS,
        memory::ROWS,
        pools::ROWS,
        textures::ROWS,
        streams::ROWS,
        virtual_memory::ROWS,
        graphs::ROWS,
    ]
    .into_iter()
    .flatten()
}
