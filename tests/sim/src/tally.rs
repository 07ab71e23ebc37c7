//! How often what mattered happened: a simulation in which nothing happens breaks no promise.

use std::fmt;

/// Something that has to happen often for a run to mean anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named for what it counts")]
pub enum Event {
    Admitted,
    AdmittedWhileSevering,
    Refused,
    Completed,
    Lost,
    Touched,
    Mapped,
    MappingRefused,
    Shared,
    Derived,
    Ended,
    Unmapped,
    Reclaimed,
    ReclaimedLate,
    Quarantined,
    SwappedOut,
    SwappedIn,
    DiedWhileAway,
    DiedWhileMoving,
    Transferred,
    ContextEnded,
    ExecutorDied,
    ClientDied,
    SessionShut,
    ProcessEnded,
    FellMute,
    Lied,
    SharedAlone,
    EndedForOthers,
    KeptByALiar,
    TouchedWhatItKept,
}

impl Event {
    /// Every one of them.
    pub const ALL: [Self; 31] = [
        Self::Admitted,
        Self::AdmittedWhileSevering,
        Self::Refused,
        Self::Completed,
        Self::Lost,
        Self::Touched,
        Self::Mapped,
        Self::MappingRefused,
        Self::Shared,
        Self::Derived,
        Self::Ended,
        Self::Unmapped,
        Self::Reclaimed,
        Self::ReclaimedLate,
        Self::Quarantined,
        Self::SwappedOut,
        Self::SwappedIn,
        Self::DiedWhileAway,
        Self::DiedWhileMoving,
        Self::Transferred,
        Self::ContextEnded,
        Self::ExecutorDied,
        Self::ClientDied,
        Self::SessionShut,
        Self::ProcessEnded,
        Self::FellMute,
        Self::Lied,
        Self::SharedAlone,
        Self::EndedForOthers,
        Self::KeptByALiar,
        Self::TouchedWhatItKept,
    ];
}

/// How often each happened.
#[derive(Clone, Copy, Default)]
pub struct Tally([u64; Event::ALL.len()]);

impl Tally {
    #[inline]
    pub(crate) fn note(&mut self, event: Event) {
        self.0[event as usize] += 1;
    }

    /// How often something happened.
    #[must_use]
    pub fn of(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(Event::ALL.into_iter().zip(self.0)).finish()
    }
}
