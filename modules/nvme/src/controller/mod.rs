//! The model controller.

mod admin;
mod config;
mod events;
mod io;
mod queues;
mod registers;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub use config::{
    Config, ConfigError, NAMESPACES_MAX, QUEUE_ENTRIES_MAX, QUEUES_MAX, TRANSFER_PAGES_SHIFT_MAX,
};
pub use events::EVENTS_WAITING_MAX;
use events::Events;
use io::Executing;
use queues::{CompletionQueue, QueueState, SubmissionQueue, Waiting};
use registers::{Registers, State};

use crate::{
    engine::{Buffer, Done},
    faults::Faults,
    formats::{
        AsyncEvent, CommandId, ErrorEntry, NamespaceId, QueueId, SUBMISSION_BYTES, Status, Submission,
    },
    iommu::{Iommu, Who},
    namespace::Namespace,
};

/// How many commands the engines execute at once, of all queues.
pub const IN_FLIGHT_MAX: usize = 1024;
/// How many commands of one queue may be outstanding (MAXCMD); further ones stay in the queue.
const OUTSTANDING_MAX: usize = 1024;
/// How many bytes of data of commands that execute are held; a command is begun while there are less.
const BOUNCE_BYTES_MAX: usize = 64 << 20;
/// How many commands one step takes.
const STEP_COMMANDS_MAX: usize = 64;

/// Whether a step did anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// It did: there may be more.
    Worked,
    /// There was nothing to do at this time.
    Idle,
}

/// What became of commands, since the controller was made. What was taken and is in none of the other three is
/// outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Entries copied from submission queues.
    pub taken: u64,
    /// Completions posted.
    pub completed: u64,
    /// Commands that ended with their queue or at a reset, without a completion.
    pub discarded: u64,
    /// Completions that could not be written.
    pub lost: u64,
}

/// A model NVMe controller.
pub struct Controller {
    config: Config,
    iommu: Arc<Iommu>,
    /// The first is number 1.
    namespaces: Vec<Namespace>,
    faults: Faults,
    registers: Registers,
    /// By number.
    submissions: Vec<Option<SubmissionQueue>>,
    /// By number.
    completions: Vec<Option<CompletionQueue>>,
    /// Above the highest number of a queue that was made since the last reset.
    queues_used: usize,
    /// What the engines execute, by tag.
    executing: BTreeMap<u64, Executing>,
    /// Bytes of data in `executing`.
    bounce_bytes: usize,
    /// The last tag or order that was given.
    sequence: u64,
    /// The queue from which a command is taken first.
    turn: usize,
    events: Events,
    /// How many I/O queues of either kind the host may make.
    queues_allocated: u16,
    /// Whether writes may wait for a flush.
    write_cache: bool,
    async_event_configuration: u32,
    counters: Counters,
    /// What engines gave back; kept for its memory.
    done: Vec<Done>,
    /// Buffers to be used again.
    spare: Vec<Buffer>,
}

impl Controller {
    /// A controller that is not enabled, and reaches what is in `iommu`.
    ///
    /// # Errors
    /// Where the configuration or the number of namespaces is out of its limits.
    pub fn new(config: Config, namespaces: Vec<Namespace>, iommu: Arc<Iommu>) -> Result<Self, ConfigError> {
        config.check(namespaces.len())?;
        let queues = usize::from(config.queues_max) + 1;
        let mut controller = Self {
            queues_allocated: config.queues_max,
            config,
            iommu,
            namespaces,
            faults: Faults::default(),
            registers: Registers::default(),
            submissions: Vec::new(),
            completions: Vec::new(),
            queues_used: 1,
            executing: BTreeMap::new(),
            bounce_bytes: 0,
            sequence: 0,
            turn: 0,
            events: Events::default(),
            write_cache: true,
            async_event_configuration: 0,
            counters: Counters::default(),
            done: Vec::new(),
            spare: Vec::new(),
        };
        controller.submissions.resize_with(queues, || None);
        controller.completions.resize_with(queues, || None);
        Ok(controller)
    }

    /// What goes wrong, to change it.
    pub fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Replaces what goes wrong.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// What became of commands.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The table of what it reaches.
    #[must_use]
    pub fn iommu(&self) -> &Arc<Iommu> {
        &self.iommu
    }

    /// The namespaces; the first is number 1.
    #[must_use]
    pub fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Does a bounded amount of work. `now` is the time since some moment, and never runs backwards.
    pub fn step(&mut self, now: Duration) -> Stepped {
        let mut worked = self.settle();
        if self.registers.state == State::Ready {
            worked |= self.take(now);
        }
        worked |= self.collect();
        if self.registers.state == State::Ready {
            worked |= self.finish_deletions(now);
            worked |= self.tell_events(now);
            worked |= self.post(now);
        }
        if worked { Stepped::Worked } else { Stepped::Idle }
    }

    /// When the next completion is due that waits for its time only, if one does.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let queues = self.completions.iter().flatten();
        queues.filter_map(|queue| queue.waiting.peek().map(|waiting| waiting.due)).min()
    }

    fn submission(&mut self, queue: QueueId) -> Option<&mut SubmissionQueue> {
        self.submissions.get_mut(usize::from(queue.0))?.as_mut()
    }

    fn completion(&mut self, queue: QueueId) -> Option<&mut CompletionQueue> {
        self.completions.get_mut(usize::from(queue.0))?.as_mut()
    }

    fn next_in_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Takes commands from the queues, one of each in turn.
    fn take(&mut self, now: Duration) -> bool {
        let queues = self.queues_used;
        let mut taken = 0;
        let mut without = 0;
        while without < queues && taken < STEP_COMMANDS_MAX {
            let queue = QueueId(u16::try_from(self.turn).unwrap_or(0));
            self.turn = (self.turn + 1) % queues;
            if self.take_one(queue, now) {
                taken += 1;
                without = 0;
            } else {
                without += 1;
            }
            if self.registers.state != State::Ready {
                break;
            }
        }
        taken > 0
    }

    fn may_take(&mut self, id: QueueId) -> bool {
        if self.faults.is_stuck(id) || self.registers.shutdown_asked() {
            return false;
        }
        let loaded = self.executing.len() >= IN_FLIGHT_MAX || self.bounce_bytes >= BOUNCE_BYTES_MAX;
        if loaded && id != QueueId::ADMIN {
            return false;
        }
        let Some(queue) = self.submission(id) else { return false };
        if queue.state != QueueState::Running
            || queue.is_empty()
            || queue.outstanding_count >= OUTSTANDING_MAX
        {
            return false;
        }
        let completions = queue.completions;
        self.completion(completions).is_some_and(|queue| !queue.halted && !queue.is_full())
    }

    /// Takes a command from a queue where there is one that may be taken: copies its entry, once, and begins it.
    fn take_one(&mut self, id: QueueId, now: Duration) -> bool {
        if !self.may_take(id) {
            return false;
        }
        let iommu = Arc::clone(&self.iommu);
        let Some(queue) = self.submission(id) else { return false };
        let mut bytes = [0; SUBMISSION_BYTES];
        if iommu.read(Who { queue: id, command: None }, queue.next_address(), &mut bytes).is_err() {
            queue.state = QueueState::Halted;
            self.halt(id);
            return true;
        }
        let entry = Submission::decode(&bytes);
        queue.advance();
        let unique = queue.begin(entry.command);
        self.counters.taken += 1;
        if !unique {
            self.finish(id, &entry, Status::COMMAND_ID_CONFLICT, 0, now);
        } else if id == QueueId::ADMIN {
            self.admin(&entry, now);
        } else {
            self.io(id, &entry, now);
        }
        true
    }

    /// A queue cannot go on: an event tells it, or the controller fails where it is the admin queue.
    fn halt(&mut self, queue: QueueId) {
        if queue == QueueId::ADMIN {
            self.registers.fail();
        } else {
            self.error_event(AsyncEvent::PersistentInternalError, queue);
        }
    }

    /// Records an error that no command made, and tells it.
    fn error_event(&mut self, event: AsyncEvent, queue: QueueId) {
        self.events.record(ErrorEntry {
            queue,
            command: CommandId(u16::MAX),
            status: Status::INTERNAL_ERROR,
            ..ErrorEntry::default()
        });
        self.events.tell(event);
    }

    /// A command is done: its completion waits until it is due. An error is recorded.
    fn finish(&mut self, queue: QueueId, entry: &Submission, status: Status, result: u32, due: Duration) {
        if !status.is_success() {
            let io = queue != QueueId::ADMIN;
            self.events.record(ErrorEntry {
                count: 0,
                queue,
                command: entry.command,
                status,
                first_block: if io { entry.blocks().first } else { 0 },
                namespace: entry.namespace,
            });
        }
        self.queue_completion(queue, entry.command, status, result, due);
    }

    fn queue_completion(
        &mut self,
        queue: QueueId,
        command: CommandId,
        status: Status,
        result: u32,
        due: Duration,
    ) {
        let order = self.next_in_sequence();
        let Some(completions) = self.submission(queue).map(|queue| queue.completions) else { return };
        if let Some(completions) = self.completion(completions) {
            completions.waiting.push(Waiting { due, order, queue, command, status, result });
        }
    }

    /// Posts what is due, as far as the completion queues have room.
    fn post(&mut self, now: Duration) -> bool {
        let mut worked = false;
        for index in 0..self.queues_used {
            let id = QueueId(u16::try_from(index).unwrap_or(0));
            while self.post_one(id, now) {
                worked = true;
            }
        }
        worked
    }

    fn post_one(&mut self, id: QueueId, now: Duration) -> bool {
        let Some((address, mut entry)) = self.completion(id).and_then(|queue| queue.next(now)) else {
            return false;
        };
        if let Some(queue) = self.submission(entry.queue) {
            entry.queue_head = queue.head();
            queue.end(entry.command);
        }
        let who = Who { queue: id, command: Some(entry.command) };
        if self.iommu.publish(who, address, &entry.encode()).is_ok() {
            self.counters.completed += 1;
            if let Some(queue) = self.completion(id) {
                queue.advance();
            }
        } else {
            self.counters.lost += 1;
            if let Some(queue) = self.completion(id) {
                queue.halted = true;
            }
            self.halt(id);
        }
        true
    }

    /// Ends submission queues that are to be deleted and of which no command executes any more.
    fn finish_deletions(&mut self, now: Duration) -> bool {
        let mut worked = false;
        for index in 1..self.queues_used {
            let id = QueueId(u16::try_from(index).unwrap_or(0));
            if let Some(SubmissionQueue { state: QueueState::Deleting(command), executing: 0, .. }) =
                self.submissions[index]
            {
                self.end_queue(id, now);
                self.queue_completion(QueueId::ADMIN, command, Status::SUCCESS, 0, now);
                worked = true;
            }
        }
        worked
    }

    /// Ends a submission queue: what is not due is aborted, and what finds no room in the completion queue ends
    /// without a completion (base specification, "Delete I/O Submission Queue": such commands are implicitly aborted).
    fn end_queue(&mut self, id: QueueId, now: Duration) {
        let Some(completions) = self.submission(id).map(|queue| queue.completions) else { return };
        if let Some(queue) = self.completion(completions) {
            for mut waiting in queue.take_waiting(id) {
                if waiting.due > now {
                    waiting.status = Status::ABORTED_QUEUE_DELETION;
                    waiting.due = now;
                }
                queue.waiting.push(waiting);
            }
        }
        while self.post_one(completions, now) {}
        if let Some(queue) = self.completion(completions) {
            let dropped = queue.take_waiting(id).len();
            queue.users -= 1;
            self.counters.discarded += dropped as u64;
        }
        self.submissions[usize::from(id.0)] = None;
    }

    /// Completes an asynchronous event request where there is one, and an event to tell.
    fn tell_events(&mut self, now: Duration) -> bool {
        let Some((command, event)) = self.events.next() else { return false };
        self.queue_completion(QueueId::ADMIN, command, Status::SUCCESS, event.encode(), now);
        true
    }

    /// The namespace with this number.
    fn namespace_index(&self, namespace: NamespaceId) -> Result<usize, Status> {
        usize::try_from(namespace.0)
            .ok()
            .and_then(|number| number.checked_sub(1))
            .filter(|index| *index < self.namespaces.len())
            .ok_or(Status::INVALID_NAMESPACE)
    }
}
