//! What becomes of accesses that go astray.

/// What becomes of an access that goes where its session has nothing. It reaches nobody else's memory either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stray {
    /// Nobody is told.
    #[default]
    Silent,
    /// The session's client is told.
    Told,
}

impl Stray {
    /// As messages have it.
    #[must_use]
    pub fn of(check: bool) -> Self {
        if check { Self::Told } else { Self::Silent }
    }
}
