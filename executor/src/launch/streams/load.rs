//! What a session has in flight.

/// What launches have the device do before their threads look at the session's flag, and copies and fills, which never do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// What those do that never look, in units of the guard's opcode table for each warp.
    pub(crate) unlooked: u64,
    pub(crate) blocks: u64,
    /// Those of large launches and of slices, by weight.
    pub(crate) large: u64,
    /// What all of them do until they look, in the same units.
    pub(crate) work: u64,
    /// Bytes of copies and fills.
    pub(crate) moved: u64,
}

impl Load {
    pub(super) fn add(&mut self, other: Self) {
        self.unlooked = self.unlooked.saturating_add(other.unlooked);
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.large = self.large.saturating_add(other.large);
        self.work = self.work.saturating_add(other.work);
        self.moved = self.moved.saturating_add(other.moved);
    }

    pub(super) fn take(&mut self, other: Self) {
        self.unlooked = self.unlooked.saturating_sub(other.unlooked);
        self.blocks = self.blocks.saturating_sub(other.blocks);
        self.large = self.large.saturating_sub(other.large);
        self.work = self.work.saturating_sub(other.work);
        self.moved = self.moved.saturating_sub(other.moved);
    }
}
