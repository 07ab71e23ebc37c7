//! Bugs that can be switched on, to see that the tests would notice them.

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(any(test, feature = "mutants")), expect(unreachable_pub, reason = "seen by the tests only"))]
pub enum Mutant {
    /// Objects are quiescent as soon as nobody names them.
    SkipDrain,
    /// The generation of a slot stays as it is when its capability ends.
    KeepGeneration,
    /// The children of what is revoked end, and theirs do not.
    ShallowRevoke,
    /// A worn-out slot is used again, from the first generation on.
    WrapGeneration,
    /// An object is quiescent once its deadline has passed.
    FreeOnTimeout,
    /// Work leaves no marks on the objects that it uses.
    ForgetUse,
    /// A revocation is severed before anybody has acknowledged it.
    SeverEarly,
    /// Objects do not wait for the revocations that ended their capabilities.
    FreeUnsevered,
    /// What an owner held still counts after it has ended.
    KeepCharge,
    /// Anybody's handle is as good as the owner's.
    IgnoreOwner,
    /// A child reaches as far as it asks for.
    UnboundedChild,
}

#[cfg(any(test, feature = "mutants"))]
impl Mutant {
    /// Every one of them.
    pub const ALL: [Self; 11] = [
        Self::SkipDrain,
        Self::KeepGeneration,
        Self::ShallowRevoke,
        Self::WrapGeneration,
        Self::FreeOnTimeout,
        Self::ForgetUse,
        Self::SeverEarly,
        Self::FreeUnsevered,
        Self::KeepCharge,
        Self::IgnoreOwner,
        Self::UnboundedChild,
    ];
}
