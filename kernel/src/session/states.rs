//! The states that a session goes through, as its executor and its standby see them.

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Open,
    Over,
    /// The executor has let go of it.
    Closed,
    Gone,
}

/// What a standby knows of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    /// It does not do what the session's executor does. Its keeper has the session closed there.
    Behind,
    /// Too little to go on with it.
    Nothing,
    /// What it was told is not answered.
    Some,
    /// All that is its own. What it has of others is missing.
    Own,
    All,
}
