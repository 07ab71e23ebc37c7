//! A controller that ends in the middle of its work, and what is on the media then.
//!
//! Each block holds one number, over and over: which write of it was the last. A host counts up, with one write of a
//! block in flight at a time, so that of each block it is known which numbers may be found.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use bulkhead_nvme::{
    Config, Faults, Latency, Namespace,
    engine::{Caching, Engine, Store, Threads, Uring, probe},
    formats::{BlockRange, BlockSize, BusAddress, CommandId, IoOpcode, QueueId, Submission},
};

use crate::{
    engines::Volatile,
    host::Host,
    support::{MIB, ONE, Random, TestFile, file_engines},
};

const BLOCK: usize = 512;
const BLOCKS: usize = 64;
const BLOCKS_A_WRITE_MAX: u64 = 8;
const SLOTS: u16 = 8;

/// What is known of a block.
#[derive(Clone, Copy, Default)]
struct Block {
    /// The last number that a write was given.
    submitted: u64,
    /// The last that was acknowledged.
    acknowledged: u64,
    /// The last that is durable.
    durable: u64,
}

/// A command in flight.
enum Flight {
    Write {
        first: usize,
        numbers: Vec<u64>,
        fua: bool,
    },
    /// What was acknowledged when the flush was submitted.
    Flush {
        durable: Vec<u64>,
    },
}

struct Writer {
    host: Host,
    queue: QueueId,
    random: Random,
    data: Vec<BusAddress>,
    blocks: Vec<Block>,
    flights: BTreeMap<CommandId, Flight>,
}

/// Something that became known, for a process that watches.
enum Told {
    Submitted { block: usize, number: u64 },
    Acknowledged { block: usize, number: u64 },
}

impl Writer {
    fn new(engine: Box<dyn Engine>, seed: u64) -> Self {
        let namespace = Namespace::new(engine, BlockSize::B512).unwrap();
        let mut host = Host::start(Config::default(), vec![namespace], MIB);
        let mut faults = Faults::new(seed);
        faults.set_latency(Latency { base: Duration::ZERO, jitter: Duration::from_micros(3) });
        host.controller.set_faults(faults);
        let queue = host.create_pair(16);
        let data = (0..SLOTS).map(|_| host.allocate(4096)).collect();
        Self {
            host,
            queue,
            random: Random::new(seed),
            data,
            blocks: vec![Block::default(); BLOCKS],
            flights: BTreeMap::new(),
        }
    }

    fn in_flight(&self, first: usize, count: usize) -> bool {
        self.flights.values().any(|flight| match flight {
            Flight::Write { first: other, numbers, .. } => {
                first < other + numbers.len() && *other < first + count
            }
            Flight::Flush { .. } => false,
        })
    }

    fn submit(&mut self, command: CommandId, tell: &mut impl FnMut(Told)) {
        if self.random.chance(20) {
            self.host.submit(self.queue, Submission::flush(command, ONE));
            let durable = self.blocks.iter().map(|block| block.acknowledged).collect();
            self.flights.insert(command, Flight::Flush { durable });
            return;
        }
        let count = usize::try_from(self.random.below(BLOCKS_A_WRITE_MAX) + 1).unwrap();
        let first = self.random.index(BLOCKS - count + 1);
        if self.in_flight(first, count) {
            return;
        }
        let mut numbers = Vec::new();
        let mut bytes = Vec::new();
        for (index, block) in self.blocks[first..first + count].iter_mut().enumerate() {
            block.submitted += 1;
            tell(Told::Submitted { block: first + index, number: block.submitted });
            numbers.push(block.submitted);
            bytes.extend(block.submitted.to_le_bytes().repeat(BLOCK / 8));
        }
        let data = self.data[usize::from(command.0)];
        self.host.write(data, &bytes);
        let fua = self.random.chance(15);
        let range = BlockRange { first: first as u64, count: u32::try_from(count).unwrap(), fua };
        let entry = Submission::io(IoOpcode::Write, command, ONE, range).with_prps(data, BusAddress(0));
        self.host.submit(self.queue, entry);
        self.flights.insert(command, Flight::Write { first, numbers, fua });
    }

    fn step(&mut self, tell: &mut impl FnMut(Told)) {
        let command = CommandId(u16::try_from(self.random.below(SLOTS.into())).unwrap());
        if !self.flights.contains_key(&command) {
            self.submit(command, tell);
        }
        self.host.now += Duration::from_micros(1);
        self.host.controller.step(self.host.now);
        while let Some(completion) = self.host.poll(self.queue) {
            assert!(completion.status.is_success());
            match self.flights.remove(&completion.command).unwrap() {
                Flight::Write { first, numbers, fua } => {
                    for (index, number) in numbers.into_iter().enumerate() {
                        let block = &mut self.blocks[first + index];
                        block.acknowledged = number;
                        if fua {
                            block.durable = number;
                        }
                        tell(Told::Acknowledged { block: first + index, number });
                    }
                }
                Flight::Flush { durable } => {
                    for (block, durable) in self.blocks.iter_mut().zip(durable) {
                        block.durable = block.durable.max(durable);
                    }
                }
            }
        }
    }

    /// Works for so many steps, then ends without any order.
    fn killed_after(mut self, steps: u64) -> Vec<Block> {
        for _ in 0..steps {
            self.step(&mut |_| {});
        }
        self.blocks
    }
}

/// Holds what is on the media against what is known; how many blocks hold anything.
fn check(media: &[u8], blocks: &[Block]) -> usize {
    let mut written = 0;
    for (index, (bytes, block)) in media.chunks_exact(BLOCK).zip(blocks).enumerate() {
        let mut numbers = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let number = numbers.next().unwrap();
        assert!(numbers.all(|other| other == number), "block {index} is torn");
        assert!(
            (block.durable..=block.submitted).contains(&number),
            "block {index} holds {number}, and {} was made durable",
            block.durable
        );
        written += usize::from(number > 0);
    }
    written
}

#[test]
fn what_was_flushed_or_forced_is_on_the_media_of_a_volatile_cache() {
    let mut written = 0;
    for seed in 0..300 {
        let media = Arc::new(Mutex::new(vec![0; BLOCK * BLOCKS]));
        let writer = Writer::new(Box::new(Volatile::new(Arc::clone(&media), seed)), seed);
        let blocks = writer.killed_after(Random::new(seed).below(400));
        written += check(&media.lock().unwrap(), &blocks);
    }
    assert!(written > 1000);
}

#[test]
fn what_was_acknowledged_is_in_the_file_of_a_dropped_controller() {
    for (name, open) in file_engines() {
        for seed in 0..40 {
            println!("{name}, seed {seed}");
            let file = TestFile::new(BLOCK * BLOCKS);
            let mut blocks = Writer::new(open(&file), seed).killed_after(Random::new(seed).below(2000));
            // The system's cache outlives the controller.
            for block in &mut blocks {
                block.durable = block.acknowledged;
            }
            check(&fs::read(&file.0).unwrap(), &blocks);
        }
    }
}

const FILE: &str = "BULKHEAD_NVME_TEST_FILE";
const ENGINE: &str = "BULKHEAD_NVME_TEST_ENGINE";

/// No test of its own: what the next test runs as a process, and kills.
#[test]
fn a_process_that_writes_until_it_is_killed() {
    let (Some(path), Ok(engine)) = (env::var_os(FILE), env::var(ENGINE)) else { return };
    let store = Store::open(&PathBuf::from(path), Caching::Cached).unwrap();
    let engine: Box<dyn Engine> = match engine.as_str() {
        "threads" => Box::new(Threads::new(store, 64, 4).unwrap()),
        _ => Box::new(Uring::new(store, 64).unwrap()),
    };
    let mut writer = Writer::new(engine, 1);
    loop {
        writer.step(&mut |told| match told {
            Told::Submitted { block, number } => println!("submitted {block} {number}"),
            Told::Acknowledged { block, number } => println!("acknowledged {block} {number}"),
        });
    }
}

#[test]
fn what_was_acknowledged_is_in_the_file_of_a_killed_process() {
    let mut engines = vec!["threads"];
    engines.extend(probe().is_ok().then_some("io_uring"));
    let mut random = Random::new(3);
    let mut written = 0;
    for engine in engines {
        for _ in 0..5 {
            let file = TestFile::new(BLOCK * BLOCKS);
            let mut child = Command::new(env::current_exe().unwrap())
                .args(["--exact", "killed::a_process_that_writes_until_it_is_killed", "--nocapture"])
                .env(FILE, &file.0)
                .env(ENGINE, engine)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut blocks = vec![Block::default(); BLOCKS];
            let mut lines_left = random.below(20_000);
            for line in BufReader::new(child.stdout.take().unwrap()).lines() {
                if lines_left == 0 {
                    child.kill().unwrap();
                }
                lines_left = lines_left.wrapping_sub(1);
                let line = line.unwrap();
                let words: Vec<&str> = line.split(' ').collect();
                let [what, block, number] = words[..] else { continue };
                let (Ok(block), Ok(number)) = (block.parse::<usize>(), number.parse()) else { continue };
                match what {
                    "submitted" => blocks[block].submitted = number,
                    "acknowledged" => blocks[block].durable = number,
                    _ => {}
                }
            }
            child.wait().unwrap();
            written += check(&fs::read(&file.0).unwrap(), &blocks);
        }
    }
    assert!(written > 0);
}
