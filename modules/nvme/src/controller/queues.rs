//! Submission and completion queues: rings of entries in host memory.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use crate::formats::{
    BusAddress, COMPLETION_BYTES, CommandId, Completion, QueueId, SUBMISSION_BYTES, Status,
};

/// The address of an entry. One that is beyond the last address becomes that, which no range of the IOMMU reaches.
fn entry_address(base: BusAddress, index: u32, bytes: usize) -> BusAddress {
    BusAddress(base.0.saturating_add(u64::from(index) * bytes as u64))
}

/// How far `to` is from `from` in a ring.
fn distance(from: u32, to: u32, entries: u32) -> u32 {
    if to >= from { to - from } else { entries - from + to }
}

/// What is to become of a submission queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueState {
    /// Commands are taken from it.
    Running,
    /// An entry could not be read: nothing is taken any more.
    Halted,
    /// It ends when none of its commands executes; then this admin command completes.
    Deleting(CommandId),
}

/// A submission queue. It is empty where head is tail, and full where tail + 1 is head.
#[derive(Debug)]
pub(super) struct SubmissionQueue {
    pub(super) completions: QueueId,
    base: BusAddress,
    entries: u32,
    head: u32,
    tail: u32,
    pub(super) state: QueueState,
    /// The commands that were taken and have not completed, with how many have that id: more than one is the host's
    /// error, and each completes.
    outstanding: BTreeMap<CommandId, u32>,
    /// How many in all.
    pub(super) outstanding_count: usize,
    /// How many of them an engine executes.
    pub(super) executing: usize,
}

impl SubmissionQueue {
    /// An empty queue of `entries`, at least 2.
    pub(super) fn new(base: BusAddress, entries: u32, completions: QueueId) -> Self {
        Self {
            completions,
            base,
            entries,
            head: 0,
            tail: 0,
            state: QueueState::Running,
            outstanding: BTreeMap::new(),
            outstanding_count: 0,
            executing: 0,
        }
    }

    pub(super) fn head(&self) -> u16 {
        crate::formats::low_u16(self.head)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Moves the tail to where the host says; whether it can be there.
    pub(super) fn ring(&mut self, tail: u32) -> bool {
        if tail >= self.entries {
            return false;
        }
        let free = self.entries - 1 - distance(self.head, self.tail, self.entries);
        if distance(self.tail, tail, self.entries) > free {
            return false;
        }
        self.tail = tail;
        true
    }

    /// Where the next entry lies.
    pub(super) fn next_address(&self) -> BusAddress {
        entry_address(self.base, self.head, SUBMISSION_BYTES)
    }

    /// The next entry was copied.
    pub(super) fn advance(&mut self) {
        self.head = if self.head + 1 == self.entries { 0 } else { self.head + 1 };
    }

    /// Counts a command as outstanding; whether it is the only one of that id.
    pub(super) fn begin(&mut self, command: CommandId) -> bool {
        let count = self.outstanding.entry(command).or_insert(0);
        *count += 1;
        self.outstanding_count += 1;
        *count == 1
    }

    /// A command is completed or discarded.
    pub(super) fn end(&mut self, command: CommandId) {
        if let Some(count) = self.outstanding.get_mut(&command) {
            *count -= 1;
            self.outstanding_count -= 1;
            if *count == 0 {
                self.outstanding.remove(&command);
            }
        }
    }
}

/// A completion that is to be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Not before this.
    pub(super) due: Duration,
    /// Of those due at once, the first first.
    pub(super) order: u64,
    pub(super) queue: QueueId,
    pub(super) command: CommandId,
    pub(super) status: Status,
    pub(super) result: u32,
}

impl Ord for Waiting {
    /// The one to be posted first is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    base: BusAddress,
    entries: u32,
    head: u32,
    tail: u32,
    phase: bool,
    /// An entry could not be written: nothing is posted any more.
    pub(super) halted: bool,
    pub(super) waiting: BinaryHeap<Waiting>,
    /// How many submission queues complete to it.
    pub(super) users: usize,
}

impl CompletionQueue {
    /// An empty queue of `entries`, at least 2.
    pub(super) fn new(base: BusAddress, entries: u32) -> Self {
        Self {
            base,
            entries,
            head: 0,
            tail: 0,
            phase: true,
            halted: false,
            waiting: BinaryHeap::new(),
            users: 0,
        }
    }

    /// Whether the host has consumed too little for another entry.
    pub(super) fn is_full(&self) -> bool {
        distance(self.head, self.tail, self.entries) == self.entries - 1
    }

    /// Moves the head to where the host says; whether it can be there.
    pub(super) fn ring(&mut self, head: u32) -> bool {
        if head >= self.entries
            || distance(self.head, head, self.entries) > distance(self.head, self.tail, self.entries)
        {
            return false;
        }
        self.head = head;
        true
    }

    /// The next completion that is due and has room, with its entry but for the head of its submission queue.
    pub(super) fn next(&mut self, now: Duration) -> Option<(BusAddress, Completion)> {
        if self.halted || self.is_full() || self.waiting.peek()?.due > now {
            return None;
        }
        let Waiting { queue, command, status, result, .. } = self.waiting.pop()?;
        let entry = Completion { result, queue_head: 0, queue, command, phase: self.phase, status };
        Some((entry_address(self.base, self.tail, COMPLETION_BYTES), entry))
    }

    /// An entry was written.
    pub(super) fn advance(&mut self) {
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
            self.phase = !self.phase;
        }
    }

    /// Takes the waiting completions of one submission queue.
    pub(super) fn take_waiting(&mut self, queue: QueueId) -> Vec<Waiting> {
        let (taken, kept): (Vec<_>, Vec<_>) =
            self.waiting.drain().partition(|waiting| waiting.queue == queue);
        self.waiting = kept.into();
        taken
    }

    /// Changes a waiting completion of a command that is not due, if there is one, to this status and to be due now.
    pub(super) fn abort(
        &mut self,
        queue: QueueId,
        command: CommandId,
        now: Duration,
        status: Status,
    ) -> bool {
        let mut waiting = std::mem::take(&mut self.waiting).into_vec();
        let found = waiting
            .iter_mut()
            .find(|waiting| waiting.queue == queue && waiting.command == command && waiting.due > now);
        let aborted = found.is_some();
        if let Some(found) = found {
            found.status = status;
            found.due = now;
        }
        self.waiting = waiting.into();
        aborted
    }
}
