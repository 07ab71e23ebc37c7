//! Bugs of the parts that are only modelled here: the simulation has to notice them.

/// A bug of the modelled executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Memory is unmapped while work runs.
    UnmapWithoutPause,
    /// Launches go on before the sinks are back.
    ResumeBeforeSinks,
    /// The standby still binds what was unbound.
    StandbyForgetsUnbind,
    /// A session is swapped out while its work runs.
    SwapWhileRunning,
    /// Unbinding is answered before the handle is refused.
    AcknowledgeBeforeUnbind,
    /// Records that were on the device are not reported lost.
    ForgetLostWork,
    /// Pages are given back unscrubbed.
    SkipScrub,
    /// A copy that was not finished when the executor died is taken for whole.
    TrustHalfACopy,
    /// A session that comes back is let go before the standby has all of its memory.
    LetGoBeforeAdopted,
    /// The executor that goes on does not hold who is away.
    ForgetToHold,
    /// An isolated session counts as closed while its process lives.
    ClosedBeforeDeath,
    /// Guarded and isolated sessions map each other's memory.
    ShareAcrossDomains,
    /// Everybody's context is ended where an isolated session is in the way.
    EndAllForOne,
    /// Memory is given out that a process keeps against its word.
    ReuseWhatIsKept,
}

impl Fault {
    /// Every one of them.
    pub const ALL: [Self; 14] = [
        Self::UnmapWithoutPause,
        Self::ResumeBeforeSinks,
        Self::StandbyForgetsUnbind,
        Self::SwapWhileRunning,
        Self::AcknowledgeBeforeUnbind,
        Self::ForgetLostWork,
        Self::SkipScrub,
        Self::TrustHalfACopy,
        Self::LetGoBeforeAdopted,
        Self::ForgetToHold,
        Self::ClosedBeforeDeath,
        Self::ShareAcrossDomains,
        Self::EndAllForOne,
        Self::ReuseWhatIsKept,
    ];
}
