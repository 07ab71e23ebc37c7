//! What a session has reserved.

/// How many streams, or events, records may name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reserved {
    pub(super) streams: u32,
    pub(super) events: u32,
}
