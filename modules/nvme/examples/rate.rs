//! How many random reads of 4 KiB a second the model controller does, over RAM and over a file with each engine.
//!
//! `cargo run --release -p bulkhead-nvme --example rate -- --help`

#![expect(clippy::unwrap_used, reason = "an example that fails may panic")]
#![expect(unreachable_pub, reason = "a module of the tests")]

#[path = "../tests/nvme/host.rs"]
mod host;

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process,
    time::{Duration, Instant},
};

use bulkhead_nvme::{
    Config, Namespace, Stepped,
    engine::{Caching, DEPTH_MAX, Engine, RamEngine, Store, Threads, Uring, probe},
    formats::{BlockRange, BlockSize, BusAddress, CommandId, IoOpcode, NamespaceId, QueueId, Submission},
};
use host::Host;

const HELP: &str = "Random 4 KiB reads per second through the model NVMe controller.

usage: rate [--seconds N] [--threads N] [--folder PATH]

  --seconds N    how long each row is measured (default 1)
  --threads N    threads of the pool (default 16)
  --folder PATH  where the file of 256 MiB is made, and removed (default: the system's for temporary files)

One process does both sides: host and controller take turns on one thread.
";

const READ_BYTES: usize = 4096;
const STORE_BYTES: usize = 256 << 20;
const BLOCKS: u64 = (STORE_BYTES / READ_BYTES) as u64;
const DEPTHS: [u16; 3] = [1, 16, 128];

struct Arguments {
    seconds: u64,
    threads: usize,
    folder: PathBuf,
}

fn arguments() -> Result<Option<Arguments>, String> {
    let mut found = Arguments { seconds: 1, threads: 16, folder: std::env::temp_dir() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            return Ok(None);
        }
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"));
        match word.as_str() {
            "--seconds" => found.seconds = number()?,
            "--threads" => found.threads = usize::try_from(number()?).map_err(|error| error.to_string())?,
            "--folder" => found.folder = PathBuf::from(value),
            _ => return Err(format!("{word} is not known; see --help")),
        }
    }
    Ok(Some(found))
}

/// Fills the store's file: each block begins with its number.
fn fill(path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
    let mut block = [0x5a; READ_BYTES];
    for number in 0..BLOCKS {
        block[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&block)?;
    }
    file.into_inner().map_err(|error| error.into_error())?.sync_all()
}

/// The same in RAM, written through the controller.
fn fill_ram(host: &mut Host, queue: QueueId, data: BusAddress) {
    for number in 0..BLOCKS {
        host.write(data, &number.to_le_bytes());
        assert!(host.call(queue, command(IoOpcode::Write, 0, number, data)).status.is_success());
    }
}

fn command(opcode: IoOpcode, id: u16, block: u64, data: BusAddress) -> Submission {
    let range = BlockRange { first: block, count: 1, fua: false };
    Submission::io(opcode, CommandId(id), NamespaceId(1), range).with_prps(data, BusAddress(0))
}

/// Reads at this depth for so long; how many reads that were.
fn measure(host: &mut Host, queue: QueueId, data: &[BusAddress], depth: u16, time: Duration) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % BLOCKS
    };
    let mut blocks = vec![0; usize::from(depth)];
    let mut submit = |host: &mut Host, blocks: &mut Vec<u64>, id: u16| {
        let block = random();
        blocks[usize::from(id)] = block;
        host.submit(queue, command(IoOpcode::Read, id, block, data[usize::from(id)]));
    };
    (0..depth).for_each(|id| submit(host, &mut blocks, id));
    let (start, mut reads, mut left) = (Instant::now(), 0, depth);
    while left > 0 {
        let now = start.elapsed();
        let stepped = host.controller.step(now);
        while let Some(completion) = host.poll(queue) {
            assert!(completion.status.is_success(), "{completion:?}");
            let id = completion.command.0;
            let found = host.read(data[usize::from(id)], 8);
            assert_eq!(found, blocks[usize::from(id)].to_le_bytes(), "the wrong block was read");
            reads += 1;
            if now < time {
                submit(host, &mut blocks, id);
            } else {
                left -= 1;
            }
        }
        if stepped == Stepped::Idle {
            std::thread::yield_now();
        }
    }
    reads
}

fn row(name: &str, cache: &str, engine: Box<dyn Engine>, time: Duration) {
    let ram = name == "ram";
    let namespace = Namespace::new(engine, BlockSize::B4096).unwrap();
    let mut host = Host::start(Config::default(), vec![namespace], 4 << 20);
    let queue = host.create_pair(256);
    let data: Vec<BusAddress> =
        DEPTHS.iter().max().map_or(0..0, |depth| 0..*depth).map(|_| host.allocate(4096)).collect();
    if ram {
        fill_ram(&mut host, queue, data[0]);
    }
    for depth in DEPTHS {
        let start = Instant::now();
        let reads = measure(&mut host, queue, &data, depth, time);
        let rate = u128::from(reads) * 1_000_000_000 / start.elapsed().as_nanos();
        println!("{name:<9} {cache:<7} {depth:>5} {rate:>12} {:>9}", (rate * READ_BYTES as u128) >> 20);
    }
    assert_eq!(host.iommu.violation_count(), 0);
}

fn rows(arguments: &Arguments, path: &Path) {
    let time = Duration::from_secs(arguments.seconds);
    println!("{:<9} {:<7} {:>5} {:>12} {:>9}", "engine", "cache", "depth", "reads/s", "MiB/s");
    row("ram", "-", Box::new(RamEngine::zeroed(STORE_BYTES)), time);
    let uring = probe();
    for (cache, caching) in [("cached", Caching::Cached), ("direct", Caching::Direct)] {
        let open = || Store::open(path, caching);
        if let Err(why) = open() {
            println!("{:<9} {cache:<7} skipped: {why}", "file");
            continue;
        }
        let engine = Threads::new(open().unwrap(), DEPTH_MAX, arguments.threads).unwrap();
        row("threads", cache, Box::new(engine), time);
        match &uring {
            Ok(()) => row("io_uring", cache, Box::new(Uring::new(open().unwrap(), 256).unwrap()), time),
            Err(why) => println!("{:<9} {cache:<7} skipped: {why}", "io_uring"),
        }
    }
}

fn main() {
    let arguments = match arguments() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            print!("{HELP}");
            return;
        }
        Err(why) => {
            eprintln!("{why}");
            process::exit(2);
        }
    };
    let path = arguments.folder.join(format!("bulkhead-nvme-rate-{}", process::id()));
    fill(&path).unwrap();
    rows(&arguments, &path);
    std::fs::remove_file(&path).unwrap();
}
