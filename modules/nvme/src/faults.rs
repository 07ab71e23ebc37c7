//! Faults on demand: what a device does on a bad day, so that whoever drives it can be tested.

use std::{collections::BTreeSet, ops::RangeInclusive, time::Duration};

use crate::{
    formats::{IoOpcode, QueueId, Status, Submission},
    random::Random,
};

/// How many rules there are at most.
pub const RULES_MAX: usize = 256;
/// How many queues can be stuck.
pub const STUCK_QUEUES_MAX: usize = 256;

/// Which of the commands that a rule fits it holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrence {
    /// All.
    Every,
    /// The n-th only, counted from 1.
    Nth(u64),
    /// Each n-th; 0 is none.
    EachNth(u64),
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It completes with this status, and is not executed.
    Fail(Status),
    /// It completes later by this.
    Delay(Duration),
}

/// A fault of I/O commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Of this queue; of any.
    pub queue: Option<QueueId>,
    /// With this opcode; with any.
    pub opcode: Option<IoOpcode>,
    /// That name one of these blocks, in any namespace; wherever. A flush names none.
    pub blocks: Option<RangeInclusive<u64>>,
    /// Which of them.
    pub occurrence: Occurrence,
    /// What happens.
    pub effect: Effect,
}

/// How long I/O commands take at least, from when they are taken from their queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// Each.
    pub base: Duration,
    /// And up to this more, at random: so commands complete out of order.
    pub jitter: Duration,
}

/// Why a fault is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// There are as many rules as may be.
    #[error("there are {RULES_MAX} rules already")]
    Rules,
    /// As many queues are stuck as may be.
    #[error("{STUCK_QUEUES_MAX} queues are stuck already")]
    Stuck,
}

/// What goes wrong. Nothing, to begin with.
#[derive(Debug)]
pub struct Faults {
    rules: Vec<(Rule, u64)>,
    latency: Latency,
    stuck: BTreeSet<QueueId>,
    random: Random,
}

impl Default for Faults {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Faults {
    /// No faults; latencies will be drawn with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            rules: Vec::new(),
            latency: Latency::default(),
            stuck: BTreeSet::new(),
            random: Random::new(seed),
        }
    }

    /// Adds a rule. Of several that fit a command, the first failure counts, and all delays.
    ///
    /// # Errors
    /// Where there are [`RULES_MAX`].
    pub fn add(&mut self, rule: Rule) -> Result<(), FaultError> {
        if self.rules.len() == RULES_MAX {
            return Err(FaultError::Rules);
        }
        self.rules.push((rule, 0));
        Ok(())
    }

    /// Ends all rules.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// How long commands take from now on.
    pub fn set_latency(&mut self, latency: Latency) {
        self.latency = latency;
    }

    /// From now on nothing is taken from this submission queue.
    ///
    /// # Errors
    /// Where [`STUCK_QUEUES_MAX`] are stuck.
    pub fn stick(&mut self, queue: QueueId) -> Result<(), FaultError> {
        if self.stuck.len() == STUCK_QUEUES_MAX {
            return Err(FaultError::Stuck);
        }
        self.stuck.insert(queue);
        Ok(())
    }

    /// The queue goes on. Whether it was stuck.
    pub fn release(&mut self, queue: QueueId) -> bool {
        self.stuck.remove(&queue)
    }

    pub(crate) fn is_stuck(&self, queue: QueueId) -> bool {
        self.stuck.contains(&queue)
    }

    /// What happens to an I/O command: how late it is, and with which status it fails.
    pub(crate) fn judge(&mut self, queue: QueueId, entry: &Submission) -> (Duration, Option<Status>) {
        let jitter = u64::try_from(self.latency.jitter.as_nanos()).unwrap_or(u64::MAX);
        let extra = match jitter {
            0 => 0,
            _ => self.random.next() % jitter,
        };
        let mut delay = self.latency.base.saturating_add(Duration::from_nanos(extra));
        let mut failure = None;
        for (rule, fitted) in &mut self.rules {
            if !rule.fits(queue, entry) {
                continue;
            }
            *fitted = fitted.saturating_add(1);
            let holds = match rule.occurrence {
                Occurrence::Every => true,
                Occurrence::Nth(n) => *fitted == n,
                Occurrence::EachNth(n) => n != 0 && fitted.is_multiple_of(n),
            };
            match rule.effect {
                Effect::Fail(status) if holds => failure = failure.or(Some(status)),
                Effect::Delay(more) if holds => delay = delay.saturating_add(more),
                Effect::Fail(_) | Effect::Delay(_) => {}
            }
        }
        (delay, failure)
    }
}

impl Rule {
    fn fits(&self, queue: QueueId, entry: &Submission) -> bool {
        let in_blocks = |blocks: &RangeInclusive<u64>| {
            let named = entry.blocks();
            let last = named.first.saturating_add(u64::from(named.count) - 1);
            entry.opcode != IoOpcode::Flush as u8 && named.first <= *blocks.end() && *blocks.start() <= last
        };
        self.queue.is_none_or(|of| of == queue)
            && self.opcode.is_none_or(|opcode| opcode as u8 == entry.opcode)
            && self.blocks.as_ref().is_none_or(in_blocks)
    }
}
