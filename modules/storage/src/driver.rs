//! Drives the controller as an operating system's driver would: starts it, and makes and deletes queues.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bulkhead_client::{Error, ErrorCode};
use bulkhead_nvme::{
    Config, Controller, Iommu, Latency, Memory, Namespace, RamMemory, Rights, Stepped,
    formats::{
        AdminOpcode, BusAddress, COMPLETION_BYTES, CommandId, Completion, QueueId, SUBMISSION_BYTES, Status,
        Submission,
        registers::{self, Configuration, Doorbell, DoorbellStride},
    },
};

use crate::layout::{ENTRIES, INSTANCES};

/// Where the admin queues lie on the bus: a page each.
const ADMIN: BusAddress = BusAddress(0x1000);
const ADMIN_ENTRIES: u32 = 32;
const PAGE_BYTES: u64 = 4096;
/// How long an admin command may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Driver {
    controller: Controller,
    pub(crate) iommu: Arc<Iommu>,
    stride: DoorbellStride,
    begun: Instant,
    admin: Arc<RamMemory>,
    tail: u32,
    head: u32,
    phase: bool,
    /// Admin commands that are not answered, and what the others were answered.
    outstanding: u32,
    answers: HashMap<CommandId, Status>,
    next_id: u16,
}

fn broken(what: impl Into<String>) -> Error {
    Error::new(ErrorCode::Internal, what.into())
}

impl Driver {
    /// Starts a controller of these namespaces, whose commands take so long at least.
    pub(crate) fn start(namespaces: Vec<Namespace>, latency: Duration) -> Result<Self, Error> {
        let iommu = Arc::new(Iommu::new());
        let queues_max = u16::try_from(INSTANCES).unwrap_or(u16::MAX);
        let config = Config { queues_max, queue_entries_max: ENTRIES, ..Config::default() };
        let stride = config.stride;
        let admin = Arc::new(RamMemory::zeroed(8192));
        let bytes = admin.bytes();
        let mapped = iommu.map(ADMIN, bytes, Arc::clone(&admin) as Arc<dyn Memory>, 0, Rights::ReadWrite);
        mapped.map_err(|error| broken(error.to_string()))?;
        let controller = Controller::new(config, namespaces, Arc::clone(&iommu));
        let mut controller = controller.map_err(|error| broken(error.to_string()))?;
        controller.faults().set_latency(Latency { base: latency, jitter: Duration::ZERO });
        let begun = Instant::now();
        let mut driver = Self {
            controller,
            iommu,
            stride,
            begun,
            admin,
            tail: 0,
            head: 0,
            phase: true,
            outstanding: 0,
            answers: HashMap::new(),
            next_id: 0,
        };
        let size = ADMIN_ENTRIES - 1;
        driver.controller.write_register(registers::AQA, size << 16 | size);
        driver.controller.write_register_64(registers::ASQ, ADMIN.0);
        driver.controller.write_register_64(registers::ACQ, ADMIN.0 + PAGE_BYTES);
        driver.controller.write_register(registers::CC, Configuration::START.encode());
        let until = Instant::now() + PATIENCE;
        while driver.controller.read_register(registers::CSTS) & registers::READY == 0 {
            driver.step();
            if Instant::now() > until {
                return Err(broken("the controller is not ready"));
            }
        }
        Ok(driver)
    }

    /// Has the controller do a bounded amount of work.
    pub(crate) fn step(&mut self) -> Stepped {
        self.controller.step(self.begun.elapsed())
    }

    /// Whether commands are on their way.
    pub(crate) fn is_busy(&self) -> bool {
        let counters = self.controller.counters();
        counters.taken > counters.completed + counters.discarded + counters.lost
    }

    /// Writes a doorbell register.
    pub(crate) fn ring(&mut self, doorbell: Doorbell, value: u32) {
        self.controller.write_register(self.stride.offset(doorbell), value);
    }

    /// Makes a pair of queues, both of which have this number.
    pub(crate) fn create(
        &mut self,
        queue: QueueId,
        submissions: BusAddress,
        completions: BusAddress,
    ) -> Result<(), Error> {
        self.call(|id| Submission::create_completion_queue(id, queue, ENTRIES, completions))?;
        self.call(|id| Submission::create_submission_queue(id, queue, ENTRIES, submissions, queue))
    }

    /// Begins to delete a pair of queues; [`Driver::delete`] says when that is done.
    pub(crate) fn deletion(queue: QueueId) -> Deletion {
        Deletion { queue, asked: None, submissions_gone: false }
    }

    /// Goes on deleting a pair of queues: whether both are gone. Of their commands none is on its way then. Never waits.
    pub(crate) fn delete(&mut self, deletion: &mut Deletion) -> Result<bool, Error> {
        self.collect();
        let Some(id) = deletion.asked else {
            let opcode = if deletion.submissions_gone {
                AdminOpcode::DeleteCompletionQueue
            } else {
                AdminOpcode::DeleteSubmissionQueue
            };
            let queue = deletion.queue.0.into();
            deletion.asked = self.submit(|id| Submission::admin(opcode, id, queue, 0));
            return Ok(false);
        };
        let Some(status) = self.answers.remove(&id) else { return Ok(false) };
        if !status.is_success() {
            return Err(broken(format!("queue {} is not deleted: {status:?}", deletion.queue.0)));
        }
        deletion.asked = None;
        Ok(std::mem::replace(&mut deletion.submissions_gone, true))
    }

    /// Submits an admin command, if there is room for one.
    fn submit(&mut self, entry: impl FnOnce(CommandId) -> Submission) -> Option<CommandId> {
        if self.outstanding >= ADMIN_ENTRIES - 2 {
            return None;
        }
        self.next_id = self.next_id.wrapping_add(1);
        let id = CommandId(self.next_id);
        self.admin.write(u64::from(self.tail) * SUBMISSION_BYTES as u64, &entry(id).encode());
        self.tail = (self.tail + 1) % ADMIN_ENTRIES;
        self.outstanding += 1;
        self.ring(Doorbell::SubmissionTail(QueueId::ADMIN), self.tail);
        Some(id)
    }

    /// Takes what the controller has answered.
    fn collect(&mut self) {
        loop {
            let mut bytes = [0; COMPLETION_BYTES];
            self.admin.read(PAGE_BYTES + u64::from(self.head) * COMPLETION_BYTES as u64, &mut bytes);
            let completion = Completion::decode(&bytes);
            if completion.phase != self.phase {
                return;
            }
            self.head = (self.head + 1) % ADMIN_ENTRIES;
            if self.head == 0 {
                self.phase = !self.phase;
            }
            self.outstanding = self.outstanding.saturating_sub(1);
            self.ring(Doorbell::CompletionHead(QueueId::ADMIN), self.head);
            self.answers.insert(completion.command, completion.status);
        }
    }

    /// Submits an admin command that the controller answers at once, and waits for that.
    fn call(&mut self, entry: impl FnOnce(CommandId) -> Submission) -> Result<(), Error> {
        let until = Instant::now() + PATIENCE;
        let id = self.submit(entry).ok_or_else(|| broken("the admin queue is full"))?;
        loop {
            self.collect();
            if let Some(status) = self.answers.remove(&id) {
                return status.is_success().then_some(()).ok_or_else(|| broken(format!("{status:?}")));
            }
            if Instant::now() > until {
                return Err(broken("the controller does not answer"));
            }
            self.step();
        }
    }
}

/// A pair of queues that is being deleted.
pub(crate) struct Deletion {
    queue: QueueId,
    /// The command that is on its way.
    asked: Option<CommandId>,
    submissions_gone: bool,
}

#[cfg(test)]
mod tests {
    use bulkhead_nvme::{
        engine::{Done, Engine, RamEngine, Request},
        formats::{BlockRange, BlockSize, IoOpcode, NamespaceId},
    };

    use super::*;

    const QUEUES: u64 = 1 << 40;
    const SLOW: Duration = Duration::from_millis(300);

    /// Does nothing for a while.
    struct Slow(RamEngine, Vec<(Instant, Request)>);

    impl Engine for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn bytes(&self) -> u64 {
            self.0.bytes()
        }

        fn submit(&mut self, request: Request) -> Result<(), Request> {
            self.1.push((Instant::now(), request));
            Ok(())
        }

        fn poll(&mut self, done: &mut Vec<Done>) {
            while let Some((begun, request)) = self.1.pop() {
                if begun.elapsed() < SLOW {
                    return self.1.push((begun, request));
                }
                assert!(self.0.submit(request).is_ok());
            }
            self.0.poll(done);
        }

        fn in_flight(&self) -> usize {
            self.1.len() + self.0.in_flight()
        }
    }

    #[test]
    fn queues_are_deleted_while_others_are_made_however_long_a_command_takes() {
        let engine = Slow(RamEngine::zeroed(1 << 20), Vec::new());
        let namespace = Namespace::new(Box::new(engine), BlockSize::B512).unwrap();
        let mut driver = Driver::start(vec![namespace], Duration::ZERO).unwrap();
        let memory = Arc::new(RamMemory::zeroed(1 << 20));
        let bytes = memory.bytes();
        driver.iommu.map(BusAddress(QUEUES), bytes, memory.clone(), 0, Rights::ReadWrite).unwrap();
        let place = |at: u64| BusAddress(QUEUES + (at << 16));
        driver.create(QueueId(1), place(0), place(1)).unwrap();
        let range = BlockRange { first: 0, count: 1, fua: false };
        let read = Submission::io(IoOpcode::Read, CommandId(7), NamespaceId(1), range);
        memory.write(0, &read.with_prps(place(4), BusAddress(0)).encode());
        driver.ring(Doorbell::SubmissionTail(QueueId(1)), 1);
        let begun = Instant::now();
        while !driver.is_busy() {
            driver.step();
        }
        let mut deletion = Driver::deletion(QueueId(1));
        let mut looks = 0_u32;
        while !driver.delete(&mut deletion).unwrap() {
            if looks == 10 {
                // Nobody waits for that queue.
                driver.create(QueueId(2), place(2), place(3)).unwrap();
                assert!(begun.elapsed() < SLOW, "it was waited for the slow command");
            }
            driver.step();
            looks += 1;
        }
        assert!(begun.elapsed() >= SLOW && !driver.is_busy() && looks > 10);
        // Its number is free again.
        driver.create(QueueId(1), place(0), place(1)).unwrap();
    }
}
