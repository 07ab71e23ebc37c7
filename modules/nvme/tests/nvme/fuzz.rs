//! Random hosts against a model of what the queues promise.
//!
//! Queues lie in memory that records which entries were fetched and which completions posted, and nothing else lies
//! there. All else is random: entries, doorbells, data addresses, resets, faults, the order in which engines finish.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bulkhead_nvme::{
    Config, Controller, Iommu, Latency, Memory, Namespace, Rights,
    formats::{
        AdminOpcode, BlockSize, BusAddress, COMPLETION_BYTES, CommandId, Completion, NamespaceId, QueueId,
        SUBMISSION_BYTES, Status, Submission,
        registers::{self, Configuration, Doorbell, DoorbellStride},
    },
};

use crate::{
    engines::Shuffled,
    support::{MIB, Random},
    wild::Watched,
};

const STEPS: u32 = 1_000_000;
const PAGE: u64 = 4096;
/// Where the queues lie: a page for each submission queue, then one for each completion queue.
const QUEUES: u64 = 0x40_0000;
const PAIRS: u16 = 5;
const SUBMISSIONS: u32 = 16;
const COMPLETIONS: u32 = 8;
/// Where data lies.
const DATA: u64 = 0x80_0000;

#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    fetched: Vec<(u16, Submission)>,
    /// Completion queue, index, entry.
    posted: Vec<(u16, u32, Completion)>,
}

/// The memory of the queues.
struct QueueMemory(Mutex<Log>);

fn number(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

impl Memory for QueueMemory {
    fn bytes(&self) -> u64 {
        PAGE * 2 * u64::from(PAIRS)
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        let mut log = self.0.lock().unwrap();
        assert_eq!(into.len(), SUBMISSION_BYTES);
        into.copy_from_slice(&log.bytes[number(offset)..][..SUBMISSION_BYTES]);
        let entry = Submission::decode(&(*into).try_into().unwrap());
        log.fetched.push((u16::try_from(offset / PAGE).unwrap(), entry));
    }

    fn write(&self, offset: u64, from: &[u8]) {
        assert_eq!(from.len(), COMPLETION_BYTES - 4);
        self.0.lock().unwrap().bytes[number(offset)..][..from.len()].copy_from_slice(from);
    }

    fn publish(&self, offset: u64, word: u32) {
        let mut log = self.0.lock().unwrap();
        let start = number(offset) + 4 - COMPLETION_BYTES;
        log.bytes[number(offset)..][..4].copy_from_slice(&word.to_le_bytes());
        let entry = Completion::decode(log.bytes[start..][..COMPLETION_BYTES].try_into().unwrap());
        let queue = u16::try_from(offset / PAGE).unwrap() - PAIRS;
        log.posted.push((queue, u32::try_from(start % number(PAGE)).unwrap() / 16, entry));
    }
}

fn submissions_at(queue: u16) -> BusAddress {
    BusAddress(QUEUES + u64::from(queue) * PAGE)
}

fn completions_at(queue: u16) -> BusAddress {
    BusAddress(QUEUES + u64::from(PAIRS + queue) * PAGE)
}

/// A completion queue as the host knows it.
#[derive(Clone, Copy, Default)]
struct Consumed {
    head: u32,
    unconsumed: u32,
    /// How many were posted in all.
    posted: u32,
}

/// What an admin command does to the pair of queues that it names, when it succeeds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    SubmissionsDeleted,
    SubmissionsCreated,
    CompletionsDeleted,
    CompletionsCreated,
}

/// A pair of queues as the host knows it.
#[derive(Clone, Copy, Default)]
struct Known {
    /// There is a submission queue.
    exists: bool,
    /// So many admin commands that name it were taken, and have no completion: it can be anything until then.
    changing: u32,
}

struct Fuzz {
    random: Random,
    controller: Controller,
    queues: Arc<QueueMemory>,
    data: Arc<Watched>,
    now: Duration,
    /// Commands that were fetched and have no completion: how many of an id.
    outstanding: BTreeMap<(u16, CommandId), u32>,
    changes: BTreeMap<CommandId, (u16, Change)>,
    known: [Known; PAIRS as usize],
    completions: [Consumed; PAIRS as usize],
    seen: u64,
}

impl Fuzz {
    fn new(seed: u64) -> Self {
        let iommu = Arc::new(Iommu::new());
        let log = Log { bytes: vec![0; number(PAGE) * 2 * usize::from(PAIRS)], ..Log::default() };
        let queues = Arc::new(QueueMemory(Mutex::new(log)));
        let half = PAGE * u64::from(PAIRS);
        iommu.map(submissions_at(0), half, queues.clone(), 0, Rights::Read).unwrap();
        iommu.map(completions_at(0), half, queues.clone(), half, Rights::Write).unwrap();
        let data = Arc::new(Watched::new(64));
        for (page, rights) in [(0, Rights::ReadWrite), (20, Rights::Read), (40, Rights::Write)] {
            data.map(&iommu, BusAddress(DATA + page as u64 * PAGE), page, 16, rights);
        }
        let namespaces = vec![
            Namespace::new(Box::new(Shuffled::new(MIB, 4, seed)), BlockSize::B512).unwrap(),
            Namespace::new(Box::new(Shuffled::new(MIB, 64, seed)), BlockSize::B4096).unwrap(),
        ];
        let config = Config { queues_max: PAIRS - 1, queue_entries_max: 64, ..Config::default() };
        let controller = Controller::new(config, namespaces, iommu).unwrap();
        Self {
            random: Random::new(seed),
            controller,
            queues,
            data,
            now: Duration::ZERO,
            outstanding: BTreeMap::new(),
            changes: BTreeMap::new(),
            known: Default::default(),
            completions: Default::default(),
            seen: 0,
        }
    }

    fn address(&mut self) -> BusAddress {
        let page = DATA + self.random.below(64) * PAGE;
        BusAddress(match self.random.below(10) {
            0 => self.random.next() | 1 << 40,
            1 => page + self.random.below(PAGE),
            2 => page + self.random.below(512) * 8,
            3 => u64::MAX - self.random.below(2 * PAGE),
            4 => 0,
            // The first 16 pages may be read and written.
            _ => DATA + self.random.below(16) * PAGE,
        })
    }

    fn entry(&mut self, queue: u16) -> Submission {
        let command = CommandId(u16::try_from(self.random.below(24)).unwrap());
        let word = self.random.next().to_le_bytes();
        let any = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let id = QueueId(u16::try_from(self.random.below(u64::from(PAIRS) + 1)).unwrap());
        let mut entry = Submission {
            opcode: [0x00, 0x01, 0x02, 0x02, 0x08, 0x09, word[4]][self.random.index(7)],
            command,
            namespace: NamespaceId([0, 1, 1, 1, 2, 2, 3, u32::MAX][self.random.index(8)]),
            dwords: [any % 300, 0, any >> 8 & 0x3f, 0, 0, 0],
            ..Submission::default()
        };
        if queue == 0 {
            let (place, other) = (id.0.min(PAIRS - 1), QueueId(any.to_le_bytes()[0].into()));
            let completions = if other.0 % 8 == 0 { other } else { id };
            entry = match self.random.below(12) {
                0..=2 => Submission::create_completion_queue(command, id, COMPLETIONS, completions_at(place)),
                3..=5 => Submission::create_submission_queue(
                    command,
                    id,
                    SUBMISSIONS,
                    submissions_at(place),
                    completions,
                ),
                6 => Submission::admin(AdminOpcode::DeleteSubmissionQueue, command, id.0.into(), 0),
                7 => Submission::admin(AdminOpcode::DeleteCompletionQueue, command, id.0.into(), 0),
                8 => Submission::admin(AdminOpcode::AsyncEventRequest, command, 0, 0),
                9 => Submission::admin(AdminOpcode::Abort, command, (any & 0x1f) << 16 | u32::from(id.0), 0),
                10 => Submission::admin(AdminOpcode::Identify, command, any & 7, 0),
                _ => Submission { opcode: [2, 10, 0x7f, 9][self.random.index(4)], ..entry },
            };
            if entry.opcode == AdminOpcode::SetFeatures as u8 {
                entry.dwords = [[6, 7, 11, 99][self.random.index(4)], any | 0x4, 0, 0, 0, 0];
            }
        }
        if self.random.chance(3) {
            entry.fused = word[5];
            entry.transfer = word[6];
        }
        if queue > 0 || entry.opcode != 0x01 && entry.opcode != 0x05 {
            entry = entry.with_prps(self.address(), self.address());
        }
        entry
    }

    fn act(&mut self) {
        let queue = u16::try_from(self.random.below(u64::from(PAIRS))).unwrap();
        match self.random.below(100) {
            0..=29 => {
                let entry = self.entry(queue);
                let slot = self.random.index(SUBMISSIONS as usize) * SUBMISSION_BYTES;
                let at = usize::from(queue) * number(PAGE) + slot;
                self.queues.0.lock().unwrap().bytes[at..][..SUBMISSION_BYTES]
                    .copy_from_slice(&entry.encode());
            }
            30..=49 => {
                let tail = u32::try_from(self.random.below(u64::from(SUBMISSIONS) + 2)).unwrap();
                let Known { exists, changing } = self.known[usize::from(queue)];
                if queue == 0 || exists && changing == 0 {
                    self.ring(Doorbell::SubmissionTail(QueueId(queue)), tail);
                } else {
                    self.ring(Doorbell::SubmissionTail(QueueId(PAIRS)), tail);
                }
            }
            50..=64 => {
                let Consumed { head, unconsumed, .. } = self.completions[usize::from(queue)];
                let further = u32::try_from(self.random.below(u64::from(unconsumed) + 1)).unwrap();
                self.consume(queue, (head + further) % COMPLETIONS);
            }
            65 => {
                let head = u32::try_from(self.random.below(u64::from(COMPLETIONS) + 2)).unwrap();
                self.consume(queue, head);
            }
            66 => self.data.scribble(&mut self.random, DATA, PAGE),
            67 => {
                let id = QueueId(queue);
                if !self.controller.faults().release(id) {
                    self.controller.faults().stick(id).unwrap();
                }
                let jitter = Duration::from_nanos(self.random.below(2000));
                self.controller.faults().set_latency(Latency { base: Duration::ZERO, jitter });
            }
            68 if self.random.chance(4) => self.reset(),
            69 if self.controller.read_register(registers::CSTS) == 0 => self.enable(),
            _ => {
                self.now += Duration::from_nanos(self.random.below(500));
                self.controller.step(self.now);
            }
        }
        self.check();
    }

    fn ring(&mut self, doorbell: Doorbell, value: u32) {
        self.controller.write_register(DoorbellStride::default().offset(doorbell), value);
    }

    fn consume(&mut self, queue: u16, head: u32) {
        if self.known[usize::from(queue)].changing > 0 {
            return;
        }
        let known = &mut self.completions[usize::from(queue)];
        let further = (head + COMPLETIONS - known.head % COMPLETIONS) % COMPLETIONS;
        let running = self.controller.read_register(registers::CSTS) == registers::READY;
        if head < COMPLETIONS && further <= known.unconsumed && running {
            known.head = head;
            known.unconsumed -= further;
        }
        self.ring(Doorbell::CompletionHead(QueueId(queue)), head);
    }

    fn reset(&mut self) {
        self.controller.write_register(registers::CC, 0);
        self.check();
        let counters = self.controller.counters();
        assert_eq!(counters.taken, counters.completed + counters.discarded + counters.lost);
        self.outstanding.clear();
        self.changes.clear();
    }

    fn enable(&mut self) {
        self.completions = Default::default();
        self.known = Default::default();
        let sizes = (COMPLETIONS - 1) << 16 | (SUBMISSIONS - 1);
        self.controller.write_register(registers::AQA, sizes);
        self.controller.write_register_64(registers::ASQ, submissions_at(0).0);
        self.controller.write_register_64(registers::ACQ, completions_at(0).0);
        self.controller.write_register(registers::CC, Configuration::START.encode());
    }

    /// Holds what was fetched and posted since against what is promised.
    fn check(&mut self) {
        let (fetched, posted) = {
            let mut log = self.queues.0.lock().unwrap();
            (std::mem::take(&mut log.fetched), std::mem::take(&mut log.posted))
        };
        for (queue, entry) in fetched {
            *self.outstanding.entry((queue, entry.command)).or_default() += 1;
            // Of a second command with the same id nothing happens: it is refused.
            if queue == 0 && self.outstanding[&(0, entry.command)] == 1 {
                let id = u16::try_from(entry.dwords[0] & 0xffff).unwrap();
                let change = match AdminOpcode::decode(entry.opcode) {
                    Some(AdminOpcode::DeleteSubmissionQueue) => Change::SubmissionsDeleted,
                    Some(AdminOpcode::CreateSubmissionQueue) => Change::SubmissionsCreated,
                    Some(AdminOpcode::DeleteCompletionQueue) => Change::CompletionsDeleted,
                    Some(AdminOpcode::CreateCompletionQueue) => Change::CompletionsCreated,
                    _ => continue,
                };
                // The admin queue cannot be changed, and the last cannot be.
                if id > 0
                    && let Some(known) = self.known.get_mut(usize::from(id))
                {
                    known.changing += 1;
                    self.changes.insert(entry.command, (id, change));
                }
            }
        }
        for (queue, index, entry) in posted {
            self.seen += 1;
            let known = &mut self.completions[usize::from(queue)];
            assert!(known.unconsumed < COMPLETIONS - 1, "a completion was overwritten");
            assert_eq!(index, (known.head + known.unconsumed) % COMPLETIONS);
            assert_eq!(entry.phase, (known.posted / COMPLETIONS).is_multiple_of(2));
            known.unconsumed += 1;
            known.posted += 1;
            let command = (entry.queue.0, entry.command);
            let left = self.outstanding.get_mut(&command).expect("a command that was fetched");
            *left -= 1;
            if *left == 0 {
                self.outstanding.remove(&command);
            }
            if queue == 0 && entry.status != Status::COMMAND_ID_CONFLICT {
                self.changed(entry);
            }
        }
    }

    /// An admin command completed: what it changed is known now.
    fn changed(&mut self, entry: Completion) {
        let Some((id, change)) = self.changes.remove(&entry.command) else { return };
        let known = &mut self.known[usize::from(id)];
        known.changing -= 1;
        if !entry.status.is_success() {
            return;
        }
        match change {
            Change::SubmissionsCreated => known.exists = true,
            Change::SubmissionsDeleted => {
                known.exists = false;
                self.outstanding.retain(|(of, _), _| *of != id);
            }
            Change::CompletionsCreated => self.completions[usize::from(id)] = Consumed::default(),
            Change::CompletionsDeleted => {}
        }
    }

    /// Lets everything that was taken come to its end.
    fn drain(&mut self) {
        for queue in 0..PAIRS {
            self.controller.faults().release(QueueId(queue));
        }
        for _ in 0..5000 {
            self.now += Duration::from_micros(1);
            self.controller.step(self.now);
            self.check();
            for queue in 0..PAIRS {
                let Consumed { head, unconsumed, .. } = self.completions[usize::from(queue)];
                self.consume(queue, (head + unconsumed) % COMPLETIONS);
            }
        }
    }
}

#[test]
fn each_command_of_a_random_host_completes_once_and_nothing_is_overwritten() {
    for seed in 1..=4 {
        println!("seed {seed}");
        let mut fuzz = Fuzz::new(seed);
        fuzz.enable();
        for _ in 0..STEPS / 4 {
            fuzz.act();
        }
        if fuzz.controller.read_register(registers::CSTS) != registers::READY {
            fuzz.drain();
            fuzz.enable();
        }
        fuzz.drain();
        // Only requests for events may wait for ever.
        assert!(fuzz.outstanding.len() <= 4, "{:?}", fuzz.outstanding);
        assert!(fuzz.outstanding.keys().all(|(queue, _)| *queue == 0), "{:?}", fuzz.outstanding);
        let counters = fuzz.controller.counters();
        assert_eq!((counters.completed, counters.lost), (fuzz.seen, 0));
        println!("{counters:?}");
        // The test reaches something.
        assert!(counters.completed > 1000, "{counters:?}");
    }
}
