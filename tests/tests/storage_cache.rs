//! The module `storage`, by the device library: a cache of pages, arrays, transfers of many blocks, and programs that use them.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

use bulkhead_module::OpenedHost;
use bulkhead_storage::{rules::Request, wire};

use bulkhead_tests::{
    kernel::Kernel,
    place::repository,
    process::run,
    storage::{BLOCK, PATIENCE, Served, blocks_of, program},
};

const CACHED: &str = "modules/storage/tests/cached.cu";
const EDGES: &str = "modules/storage/tests/edges.cu";
const BLOCKS: &str = "modules/storage/tests/blocks.cu";
const WORKLOAD: &str = "modules/storage/tests/workload.cu";
const BFS: &str = "modules/examples/bfs.cu";
const PAGERANK: &str = "modules/examples/pagerank.cu";

/// The number behind a word of what a program told.
fn counted(told: &str, word: &str) -> u64 {
    let behind = told.split_once(word).map_or("", |(_, rest)| rest.trim_start());
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{word}: {told}"))
}

#[test]
fn lanes_that_miss_on_one_page_and_on_all_pages_of_a_set_read_what_is_there_and_end() {
    let served = Served::start();
    served.right("write:data", &["fill", "5", "512"]);
    let told = served.right_of(CACHED, "read:data", &["lanes", "5"]);
    // There is one set of eight lines, which all of them want.
    assert!(counted(&told, "past") > 0 && counted(&told, "loaded") > 0, "{told}");
    served.right_of(EDGES, "read:data", &["pinned", "5"]);
    served.right_of(EDGES, "read:data", &["targets"]);
    served.right_of(EDGES, "write:data@0+32,read:data@100+64", &["errors", "32"]);
}

#[test]
fn under_other_schedules_of_lanes_too() {
    for seed in ["2", "7"] {
        let kernel = Kernel::with(&["--schedule", seed]);
        let served = Served::on(kernel, &repository().join("modules/storage/gates.ptx"), "2MiB");
        served.right("write:data", &["fill", "5", "512"]);
        served.right_of(CACHED, "read:data", &["lanes", "5"]);
        // Where two lines have one page, some of what is written is lost.
        served.right_of(CACHED, "write:data", &["write", "6", "256", "8"]);
        assert_eq!(blocks_of(&served.data(), 6, 0), 256);
    }
}

#[test]
fn what_is_read_through_a_cache_is_what_the_file_has_however_small_it_is() {
    let served = Served::start();
    served.right("write:data", &["fill", "5", "4096"]);
    for pages in ["8", "64", "1024"] {
        let told = served.right_of(CACHED, "read:data", &["check", "5", "4096", pages]);
        assert!(counted(&told, "ahead") > 0, "{told}");
    }
}

#[test]
fn what_is_written_through_a_cache_and_flushed_is_in_the_file_and_nothing_beside_it() {
    let served = Served::start();
    served.right("write:data", &["fill", "5", "4096"]);
    // The last page of the extent has five blocks.
    let told = served.right_of(CACHED, "write:data@16+29", &["write", "6", "29", "16"]);
    assert!(counted(&told, "written") > 0, "{told}");
    served.right_of(CACHED, "write:data@1024+256", &["write", "7", "256", "8"]);
    let data = served.data();
    assert_eq!(blocks_of(&data[16 * BLOCK..45 * BLOCK], 6, 0), 29);
    assert_eq!(blocks_of(&data[1024 * BLOCK..1280 * BLOCK], 7, 0), 256);
    assert_eq!(blocks_of(&data[..16 * BLOCK], 5, 0), 16);
    assert_eq!(blocks_of(&data[45 * BLOCK..1024 * BLOCK], 5, 45), 979);
    assert_eq!(blocks_of(&data[1280 * BLOCK..], 5, 1280), 4096 - 1280);
    served.right_of(CACHED, "read:data@16+29", &["check", "6", "29", "8"]);
}

#[test]
fn warps_and_blocks_of_threads_move_many_blocks() {
    let served = Served::start();
    served.right_of(BLOCKS, "write:data", &["write", "8", "4003"]);
    assert_eq!(blocks_of(&served.data(), 8, 0), 4003);
    served.right_of(BLOCKS, "read:data", &["check", "8", "4003"]);
    let done = run(&mut served.command_of(BLOCKS, "read:data@0+4000", &["check", "8", "4003"]), PATIENCE);
    assert!(done.code() == Some(3) && done.stdout.contains("fffffff2"), "{}", done.told());
}

#[test]
fn a_matrix_of_transfers_reads_what_was_written() {
    let served = Served::start();
    served.right_of(WORKLOAD, "write:data", &["fill", "4096"]);
    for (order, bytes, depth, turns, writes) in [
        ("random", "512", "64", "10", "30"),
        ("sequential", "1536", "33", "10", "50"),
        ("random", "4096", "96", "10", "30"),
        ("random", "65536", "3", "5", "30"),
        ("sequential", "1048576", "2", "2", "50"),
    ] {
        let arguments = ["run", order, bytes, depth, turns, writes, "1", "4096"];
        served.right_of(WORKLOAD, "write:data", &arguments);
    }
    served.right_of(WORKLOAD, "read:data", &["run", "sequential", "4096", "64", "8", "0", "1", "4096"]);
}

#[test]
fn a_search_and_ranks_of_a_graph_in_a_file_are_those_that_the_host_finds() {
    let served = Served::start();
    let file = served.scratch.path().join("data.img");
    let make = |to: &std::path::Path| {
        let mut command = std::process::Command::new(program(BFS));
        command.arg("make").arg(to).args(["1500", "12000", "3"]);
        assert_eq!(run(&mut command, PATIENCE).code(), Some(0));
    };
    let made = served.scratch.path().join("graph");
    make(&made);
    // Into the file as it is: the module has it open.
    let graph = fs::read(&made).expect("a graph");
    let into = fs::OpenOptions::new().write(true).open(&file).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&into, &graph, 0).expect("it is written");
    let place = made.to_str().expect("a path");
    for pages in ["8", "64"] {
        let told = served.right_of(BFS, "read:data", &["run", place, "1", pages]);
        assert!(counted(&told, "levels;") > 10, "{told}");
        let told = served.right_of(PAGERANK, "read:data", &["run", place, "3", pages]);
        assert!(counted(&told, "rounds;") > 10, "{told}");
    }
}

#[test]
fn two_tenants_of_one_store_of_whom_one_is_hostile_in_kernels_and_from_the_host() {
    let mut served = Served::start();
    thread::scope(|scope| {
        let honest = scope.spawn(|| {
            for seed in ["6", "7"] {
                served.right_of(CACHED, "write:data@0+128", &["write", seed, "128", "16"]);
                served.right_of(CACHED, "read:data@0+128", &["check", seed, "128", "8"]);
                served.right("read:data@0+128", &["check", seed, "128"]);
            }
        });
        let socket = served.socket();
        while !honest.is_finished() {
            if let Ok(ring) = OpenedHost::open(&socket, "write:data@2100+8") {
                for number in 0..200 {
                    let block = u64::from(number) << (number % 60);
                    let request = Request {
                        buffer: number,
                        operation: number % 4,
                        extent: number % 3,
                        count: 8,
                        block,
                        mark: 1,
                        // Of lent memory, which this caller has none of.
                        target: number % 5,
                    };
                    wire::put(ring.memory(), number, &request);
                    ring.memory().word(wire::TAIL).expect("a word").store(number + 1, Ordering::Release);
                }
                ring.ring();
            }
            served.right("write:data@2048+64,read:data@3000+64", &["attack"]);
        }
        honest.join().expect("the honest tenant is right");
    });
    let data = served.data();
    assert_eq!(blocks_of(&data[..128 * BLOCK], 7, 0), 128);
    let beside = data[128 * BLOCK..2048 * BLOCK].iter().chain(&data[2112 * BLOCK..]);
    assert!(beside.clone().all(|byte| *byte == 0), "something was written that is nobody's");
    // The controller was never told to reach what it may not.
    let told = served.stop();
    assert!(!told.contains("may not"), "{told}");
}

#[test]
fn rounds_that_were_flushed_are_in_the_file_of_a_module_that_was_killed_at_any_moment() {
    let mut served = Served::start();
    for turn in 0..4_u64 {
        let mut command = served.command_of(WORKLOAD, "write:data", &["sequence", "100000"]);
        let mut writes = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut lines = BufReader::new(writes.stdout.take().expect("a pipe")).lines();
        let first = lines.next().expect("it tells").expect("a line");
        assert_eq!(first, "flushed 1");
        let host_half = served.host_half();
        thread::sleep(Duration::from_millis(7 + 31 * turn));
        rustix::process::kill_process(host_half, rustix::process::Signal::KILL).expect("it is killed");
        let told: Vec<String> = lines.map_while(Result::ok).collect();
        writes.wait().expect("it ends");
        let flushed = told.iter().rev().find_map(|line| line.strip_prefix("flushed ")?.parse::<u64>().ok());
        let flushed = flushed.unwrap_or(1);
        served.line("is started again");
        served.line("serves at");
        for (at, block) in served.data()[..512 * BLOCK].chunks(BLOCK).enumerate() {
            let number = u64::from_le_bytes(block[..8].try_into().expect("8 bytes"));
            assert_eq!(block, number.to_le_bytes().repeat(64), "block {at} is torn");
            assert!(
                (flushed..=flushed + 1).contains(&number),
                "block {at} has {number}, and {flushed} was flushed"
            );
        }
    }
}
