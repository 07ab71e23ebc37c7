//! What becomes of accesses that go astray.

/// What becomes of an access that goes where the session has nothing. It is confined either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stray {
    /// Nobody is told.
    #[default]
    Silent,
    /// It leaves a record in the module's block, which has what there is to access too.
    Told,
}
