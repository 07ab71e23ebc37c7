//! A host: what a driver does to start a controller, make queues, submit commands and see completions.

use std::{sync::Arc, time::Duration};

use bulkhead_nvme::{
    Config, Controller, Iommu, Memory, Namespace, RamMemory, Rights,
    formats::{
        BusAddress, COMPLETION_BYTES, Completion, QueueId, SUBMISSION_BYTES, Submission,
        registers::{self, Configuration, Doorbell, DoorbellStride},
    },
};

/// Where the host's memory begins on the bus.
pub const BASE: u64 = 0x10_0000_0000;
const ADMIN_ENTRIES: u32 = 32;
const STEPS_MAX: u32 = 10_000_000;

/// A pair of queues of the same number, as the host sees them.
pub struct Pair {
    pub entries: u32,
    pub submissions: BusAddress,
    pub completions: BusAddress,
    pub tail: u32,
    pub head: u32,
    phase: bool,
}

/// A controller, and the memory of whoever drives it.
pub struct Host {
    pub controller: Controller,
    pub iommu: Arc<Iommu>,
    pub memory: Arc<RamMemory>,
    pub now: Duration,
    free: u64,
    stride: DoorbellStride,
    pub pairs: Vec<Pair>,
}

impl Host {
    /// A host with so much memory that the controller reaches all of, and a controller that is ready.
    pub fn start(config: Config, namespaces: Vec<Namespace>, memory_bytes: usize) -> Self {
        let iommu = Arc::new(Iommu::new());
        let memory = Arc::new(RamMemory::zeroed(memory_bytes));
        let stride = config.stride;
        iommu.map(BusAddress(BASE), memory.bytes(), memory.clone(), 0, Rights::ReadWrite).unwrap();
        let controller = Controller::new(config, namespaces, Arc::clone(&iommu)).unwrap();
        let mut host =
            Self { controller, iommu, memory, now: Duration::ZERO, free: BASE, stride, pairs: Vec::new() };
        host.enable();
        host
    }

    /// Sets the admin queue up and waits until the controller is ready, as section "Controller Initialization" says.
    pub fn enable(&mut self) {
        let admin = self.pair(ADMIN_ENTRIES);
        let size = ADMIN_ENTRIES - 1;
        self.controller.write_register(registers::AQA, size << 16 | size);
        self.controller.write_register_64(registers::ASQ, admin.submissions.0);
        self.controller.write_register_64(registers::ACQ, admin.completions.0);
        self.pairs = vec![admin];
        self.controller.write_register(registers::CC, Configuration::START.encode());
        for _ in 0..STEPS_MAX {
            if self.controller.read_register(registers::CSTS) & registers::READY != 0 {
                return;
            }
            self.controller.step(self.now);
        }
        panic!("the controller is not ready");
    }

    /// So many bytes, from a page on.
    pub fn allocate(&mut self, bytes: u64) -> BusAddress {
        let at = self.free;
        self.free += bytes.next_multiple_of(4096);
        assert!(self.free <= BASE + self.memory.bytes(), "the host's memory is too small");
        BusAddress(at)
    }

    pub fn write(&self, address: BusAddress, bytes: &[u8]) {
        self.memory.write(address.0 - BASE, bytes);
    }

    pub fn read(&self, address: BusAddress, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        self.memory.read(address.0 - BASE, &mut copy);
        copy
    }

    /// Memory for a pair of queues, zeroed.
    fn pair(&mut self, entries: u32) -> Pair {
        let submissions = self.allocate(u64::from(entries) * SUBMISSION_BYTES as u64);
        let bytes = u64::from(entries) * COMPLETION_BYTES as u64;
        let completions = self.allocate(bytes);
        self.write(completions, &vec![0; usize::try_from(bytes).unwrap()]);
        Pair { entries, submissions, completions, tail: 0, head: 0, phase: true }
    }

    /// Makes the next pair of I/O queues; its number.
    pub fn create_pair(&mut self, entries: u32) -> QueueId {
        let id = QueueId(u16::try_from(self.pairs.len()).unwrap());
        let pair = self.pair(entries);
        let (submissions, completions) = (pair.submissions, pair.completions);
        self.pairs.push(pair);
        let command = bulkhead_nvme::formats::CommandId(0xf000);
        let create = Submission::create_completion_queue(command, id, entries, completions);
        assert!(self.call(QueueId::ADMIN, create).status.is_success());
        let create = Submission::create_submission_queue(command, id, entries, submissions, id);
        assert!(self.call(QueueId::ADMIN, create).status.is_success());
        id
    }

    /// Writes an entry at the queue's tail, and rings.
    pub fn submit(&mut self, queue: QueueId, entry: Submission) {
        let pair = &mut self.pairs[usize::from(queue.0)];
        let address = pair.submissions.0 + u64::from(pair.tail) * SUBMISSION_BYTES as u64;
        pair.tail = (pair.tail + 1) % pair.entries;
        let tail = pair.tail;
        self.memory.write(address - BASE, &entry.encode());
        self.ring(Doorbell::SubmissionTail(queue), tail);
    }

    pub fn ring(&mut self, doorbell: Doorbell, value: u32) {
        self.controller.write_register(self.stride.offset(doorbell), value);
    }

    /// Looks at the next completion without consuming it.
    pub fn peek(&self, queue: QueueId) -> Option<Completion> {
        let pair = &self.pairs[usize::from(queue.0)];
        let address = pair.completions.0 + u64::from(pair.head) * COMPLETION_BYTES as u64;
        let mut bytes = [0; COMPLETION_BYTES];
        self.memory.read(address - BASE, &mut bytes);
        let entry = Completion::decode(&bytes);
        (entry.phase == pair.phase).then_some(entry)
    }

    /// Consumes the next completion, if there is one, and rings.
    pub fn poll(&mut self, queue: QueueId) -> Option<Completion> {
        let entry = self.peek(queue)?;
        let pair = &mut self.pairs[usize::from(queue.0)];
        pair.head += 1;
        if pair.head == pair.entries {
            pair.head = 0;
            pair.phase = !pair.phase;
        }
        let head = pair.head;
        self.ring(Doorbell::CompletionHead(queue), head);
        Some(entry)
    }

    /// Steps until the queue has a completion.
    pub fn wait(&mut self, queue: QueueId) -> Completion {
        for _ in 0..STEPS_MAX {
            if let Some(entry) = self.poll(queue) {
                return entry;
            }
            if self.controller.step(self.now) == bulkhead_nvme::Stepped::Idle {
                std::thread::yield_now();
            }
        }
        panic!("no completion in {queue:?}");
    }

    /// Submits a command and waits for its completion, while no other of the queue is outstanding.
    pub fn call(&mut self, queue: QueueId, entry: Submission) -> Completion {
        self.submit(queue, entry);
        let completion = self.wait(queue);
        assert_eq!(completion.command, entry.command);
        completion
    }
}
