//! When pages of a slot may change: *pause*.
//!
//! A page never changes while its session has work on the device. So a change is asked for; the session's launches are
//! held back until its work has passed; the change is handed out, made, and reported done; launches go on. This is the
//! one mechanism for arenas, shared mappings, revocation and swapping. It is pure: whoever drives it tells it how much
//! work is on the device and what time it is, asks [`Pause::holds`] before each launch, and does what [`Pause::poll`]
//! says.
//!
//! # Rules
//! 1. A change is handed out only while nothing is on the device, one at a time, oldest first, and at most once.
//! 2. A change whose deadline has come is refused at the next poll, whatever waits before it. One without a deadline
//!    waits for as long as it takes.
//! 3. Launches are held from the poll that begins a pause until the last of its changes is done or refused, and while
//!    somebody [holds](Pause::hold) the session.
//! 4. A pause begins for what was asked before it. What is asked later joins only if the session's work passes while
//!    those are still waiting: nobody can prolong a pause by asking for more.
//! 5. Between two pauses the session has a turn: what was asked meanwhile waits for one answer of [`Step::Turn`] or
//!    [`Step::Idle`]. So a storm of changes cannot starve it.

use std::collections::VecDeque;

#[cfg(test)]
use tests::Mutant;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<C> {
    /// Nothing is asked for. If the session is not held, let it launch before polling again.
    Idle,
    /// Changes wait until the session has had its turn: let it launch, then poll again without waiting for anything.
    Turn,
    /// A change waits for work to pass, or for the one in hand: poll again when either is over, or at
    /// [`Pause::deadline`].
    Wait,
    /// Nothing is on the device: make this change, then call [`Pause::done`].
    Change(C),
    /// The deadline of this change has come: answer that it was not made, and poll again.
    Refuse(C),
}

/// What the driver of a pause did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PauseError {
    /// A change was done that had not been handed out.
    #[error("no change is in hand")]
    NothingInHand,
    /// A hold was released that nobody had.
    #[error("the session is not held")]
    NotHeld,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
struct Pending<C> {
    change: C,
    deadline_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
enum Phase {
    /// No pause: the session launches, unless it is held.
    Running,
    /// Launches are held, no change was handed out yet.
    Draining,
    /// Launches are held, and changes have been handed out. All of them are done.
    Serving,
    /// The same, but one of them is not done.
    InHand,
}

/// The changes that wait for one session, and whether its launches are held back.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub struct Pause<C> {
    /// In the order they were asked for.
    pending: VecDeque<Pending<C>>,
    /// How many of them, from the front, this pause is for.
    batch: usize,
    phase: Phase,
    holders: u32,
    /// Launches were held and the session has not had its turn since.
    owed: bool,
    #[cfg(test)]
    mutant: Option<Mutant>,
}

impl<C> Default for Pause<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> Pause<C> {
    /// Nothing asked for, nothing held.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pending: VecDeque::new(),
            batch: 0,
            phase: Phase::Running,
            holders: 0,
            owed: false,
            #[cfg(test)]
            mutant: None,
        }
    }

    /// Asks for a change, to be handed out before `deadline_ns`. The caller sees to it that there are not too many.
    pub fn ask(&mut self, change: C, deadline_ns: Option<u64>) {
        self.pending.push_back(Pending { change, deadline_ns });
    }

    /// Whether the session's launches are held back. What it has on the device goes on.
    #[must_use]
    pub fn holds(&self) -> bool {
        let paused = self.phase != Phase::Running;
        #[cfg(test)]
        let paused = paused
            && !self.is(Mutant::ForgetToHold)
            && !(self.is(Mutant::LaunchWhileChanging) && self.phase == Phase::InHand);
        paused || self.holders > 0
    }

    /// The next deadline of all that was asked for and not handed out.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.pending.iter().filter_map(|pending| pending.deadline_ns).min()
    }

    /// Says what to do, with `in_flight` pieces of the session's work on the device.
    pub fn poll(&mut self, in_flight: u32, now_ns: u64) -> Step<C> {
        if let Some(change) = self.take_overdue(now_ns) {
            return Step::Refuse(change);
        }
        if self.phase == Phase::Running {
            let launches = self.holders == 0;
            let turn = self.owed && launches;
            #[cfg(test)]
            let turn = turn && !self.is(Mutant::NoTurn);
            if self.pending.is_empty() || turn {
                self.owed &= !launches;
                return if self.pending.is_empty() { Step::Idle } else { Step::Turn };
            }
            self.phase = Phase::Draining;
            self.batch = self.pending.len();
        }
        let waits = in_flight > 0;
        #[cfg(test)]
        let waits = waits && !self.is(Mutant::ChangeWithoutWaiting);
        if self.phase == Phase::InHand || waits {
            return Step::Wait;
        }
        if self.phase == Phase::Draining {
            self.batch = self.pending.len();
        }
        // A pause goes on only as long as its batch is not empty.
        let Some(pending) = self.pending.pop_front() else { return Step::Idle };
        self.batch -= 1;
        self.phase = Phase::InHand;
        Step::Change(pending.change)
    }

    /// Takes out the oldest change whose deadline has come.
    fn take_overdue(&mut self, now_ns: u64) -> Option<C> {
        let overdue = |pending: &Pending<C>| pending.deadline_ns.is_some_and(|deadline| deadline <= now_ns);
        let at = self.pending.iter().position(overdue)?;
        #[cfg(test)]
        if self.is(Mutant::RefuseTheFirstOnly) && at > 0 {
            return None;
        }
        let refused = self.pending.remove(at)?;
        if at < self.batch {
            self.batch -= 1;
        }
        self.end_if_served();
        #[cfg(test)]
        if self.is(Mutant::RefuseSilently) {
            return None;
        }
        Some(refused.change)
    }

    /// The change in hand has been made, or has failed: its pages do not change any more.
    pub fn done(&mut self) -> Result<(), PauseError> {
        if self.phase != Phase::InHand {
            return Err(PauseError::NothingInHand);
        }
        self.phase = Phase::Serving;
        self.end_if_served();
        Ok(())
    }

    fn end_if_served(&mut self) {
        if self.batch == 0 && matches!(self.phase, Phase::Draining | Phase::Serving) {
            self.phase = Phase::Running;
            self.owed = true;
        }
    }

    #[cfg(test)]
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Holds the session's launches back until [`Pause::release`], with or without changes: the session is swapped
    /// out. Changes go on meanwhile. Holds add up.
    pub fn hold(&mut self) {
        self.holders = self.holders.saturating_add(1);
        self.owed = true;
    }

    /// Ends one hold.
    pub fn release(&mut self) -> Result<(), PauseError> {
        self.holders = self.holders.checked_sub(1).ok_or(PauseError::NotHeld)?;
        Ok(())
    }

    /// Gives back all that was asked for and not handed out, since the session is over.
    pub fn abandon(&mut self) -> Vec<C> {
        self.batch = 0;
        let abandoned = self.pending.drain(..).map(|pending| pending.change).collect();
        self.end_if_served();
        abandoned
    }
}

#[cfg(test)]
mod tests;
