//! The module `storage` from the host: Rust services reach what kernels reach, by the same rules.

use std::{
    process::Command,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{ErrorCode, Session, Stream, Uses};
use bulkhead_module::{OpenedHost, codes};
use bulkhead_storage::{
    Storage,
    rules::{self, Extent, Request, Rights},
    wire,
};
use bulkhead_tests::{
    kernel::Kernel,
    module::{Module, gates},
    patience::until,
    place::repository,
    process::run,
    scratch::Scratch,
    storage::{BLOCK, PATIENCE, Served, blocks_of, filled},
};

fn pattern(seed: u64, first: u64, blocks: u64) -> Vec<u8> {
    (first..first + blocks).flat_map(|block| filled(seed, block)).collect()
}

#[test]
fn host_code_writes_and_reads_what_kernels_read_and_write() {
    let served = Served::start();
    let mut storage = Storage::open(&served.socket(), "write:data,read:scratch").expect("it opens");
    storage.write(0, 0, &pattern(5, 0, 4096)).expect("it is written");
    storage.flush(0).expect("it is durable");
    assert_eq!(blocks_of(&served.data(), 5, 0), 4096);
    served.right("read:data", &["check", "5", "4096"]);
    served.right("write:data@100+600", &["fill", "6", "600"]);
    let mut found = vec![0; 600 * BLOCK];
    storage.read(0, 100, &mut found).expect("it is read");
    assert_eq!(found, pattern(6, 0, 600));
    // While kernels do.
    thread::scope(|scope| {
        let kernels = scope.spawn(|| served.right("write:data@0+2048", &["fill", "7", "2048"]));
        while !kernels.is_finished() {
            storage.write(0, 2048, &pattern(8, 2048, 2048)).expect("it is written");
            let mut found = vec![0; 2048 * BLOCK];
            storage.read(0, 2048, &mut found).expect("it is read");
            assert_eq!(found, pattern(8, 2048, 2048));
        }
        kernels.join().expect("it is right");
    });
    assert_eq!(blocks_of(&served.data()[..2048 * BLOCK], 7, 0), 2048);
}

#[test]
fn host_code_in_c_does_the_same() {
    let served = Served::start();
    let program = served.scratch.path().join("host");
    let mut compiler = Command::new("g++");
    compiler.args(["-x", "c++", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]);
    compiler.arg(repository().join("modules/storage/include")).arg("-o").arg(&program);
    let done = run(compiler.arg(repository().join("modules/storage/tests/host.cpp")), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let with =
        |extents: &str| run(Command::new(&program).arg(served.socket()).args([extents, "3003"]), PATIENCE);
    let done = with("write:data@0+3003,read:data");
    // What it writes and reads; behind the extent, where it may only read, and where there is none; and once more.
    assert!(done.stdout.contains("0 0 0 fffffff2 fffffff3 fffffff0 0 \n0 wrong"), "{}", done.told());
    for (at, block) in served.data()[..3003 * BLOCK].chunks(BLOCK).enumerate() {
        assert_eq!(block, (at as u64).to_le_bytes().repeat(64), "block {at}");
    }
    let done = with("read:nope");
    assert!(done.code() == Some(1) && done.stdout.contains("no namespace"), "{}", done.told());
}

#[test]
fn host_code_reaches_its_extents_only_and_is_told_why() {
    let served = Served::start();
    let mut storage = Storage::open(&served.socket(), "read:data@10+20,write:scratch@0+8").expect("it opens");
    let mut block = [0; BLOCK];
    for (extent, at, code) in [
        (0, 20, ErrorCode::InvalidArgument),
        (0, u64::MAX, ErrorCode::InvalidArgument),
        (2, 0, ErrorCode::NotFound),
        (u32::MAX, 0, ErrorCode::NotFound),
    ] {
        assert_eq!(storage.read(extent, at, &mut block).expect_err("not there").code, code);
    }
    assert_eq!(storage.write(0, 0, &block).expect_err("read only").code, ErrorCode::NotPermitted);
    assert_eq!(storage.flush(0).expect_err("read only").code, ErrorCode::NotPermitted);
    assert!(storage.read(0, 0, &mut [0; 100]).is_err() && storage.read(0, 0, &mut []).is_err());
    storage.write(1, 7, &block).expect("it goes on");
    assert!(storage.write(1, 7, &[0; 2 * BLOCK]).is_err());
    for words in ["read:nope", "", "read:data@4096+1"] {
        assert!(Storage::open(&served.socket(), words).is_err(), "{words}");
    }
    // There are eight places, which come back.
    drop(storage);
    for _ in 0..20 {
        let begun = Instant::now();
        while Storage::open(&served.socket(), "read:data").is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10), "no place came back");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn the_rules_for_host_code_say_what_the_gates_say() {
    let served = Served::start();
    let extent = |first, rights| Extent { space: 1, first, blocks: 64, rights };
    let extents = [extent(1000, Rights::ReadWrite), extent(2000, Rights::Read)];
    for seed in [1_u64, 77, 12345] {
        let done = served.run("write:data@1000+64,read:data@2000+64", &["codes", &seed.to_string()]);
        let told: Vec<u32> =
            done.stdout.lines().map(|line| u32::from_str_radix(line, 16).expect("a code")).collect();
        assert_eq!(told.len(), 200, "{}", done.told());
        let mut state = seed;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut small = |most: u64| u32::try_from(random() % most).expect("a small number");
        for (at, gate) in told.into_iter().enumerate() {
            let (extent, operation, count) = (small(4), small(5), small(11));
            let block = u64::from(small(80)).wrapping_sub(4);
            let request = Request { extent, operation, count, block, ..Request::default() };
            let rule = rules::check(&extents, 0, &request).map_or_else(|code| code, |_| codes::DONE);
            assert_eq!(rule, gate, "seed {seed}, command {at}: {request:?}");
        }
    }
}

#[test]
fn a_hostile_ring_ends_its_own_instance_and_nobody_waits_for_it() {
    let mut served = Served::start();
    let mut honest = Storage::open(&served.socket(), "write:data").expect("it opens");
    honest.write(0, 0, &pattern(5, 0, 4096)).expect("it is written");
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..10 {
        let begun = Instant::now();
        let hostile = loop {
            match OpenedHost::open(&served.socket(), "write:data@100+1") {
                Ok(opened) => break opened,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
            }
        };
        let memory = hostile.memory();
        // All of the memory, the kit's words too; then rings without an end.
        for at in (0..wire::DATA).step_by(8) {
            memory.write(at, &random().to_le_bytes());
        }
        for _ in 0..50 {
            memory
                .word(wire::TAIL)
                .expect("a word")
                .store(u32::try_from(random() >> 32).expect("32 bits"), Ordering::Release);
            hostile.ring();
        }
        let ended = hostile.wait(Duration::from_secs(10), || None::<()>).expect_err("it is ended");
        assert_eq!(ended.code, ErrorCode::Unavailable);
        let begun = Instant::now();
        let mut found = vec![0; 64 * BLOCK];
        honest.read(0, 200, &mut found).expect("others are served");
        assert_eq!(found, pattern(5, 200, 64));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    let data = served.data();
    assert_eq!(blocks_of(&data[..100 * BLOCK], 5, 0), 100);
    assert_eq!(blocks_of(&data[101 * BLOCK..], 5, 101), 4096 - 101);
    served.right("read:data@200+1000", &["rate", "64", "2", "1000"]);
    served.line("has broken the rules of its ring");
}

#[test]
fn host_code_is_told_when_its_module_ends() {
    let mut served = Served::start();
    let mut storage = Storage::open(&served.socket(), "write:data").expect("it opens");
    storage.write(0, 0, &pattern(5, 0, 64)).expect("it is written");
    rustix::process::kill_process(served.host_half(), rustix::process::Signal::KILL).expect("it is killed");
    let begun = Instant::now();
    assert_eq!(storage.read(0, 0, &mut [0; BLOCK]).expect_err("it has ended").code, ErrorCode::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(20));
    served.line("is started again");
    served.line("serves at");
    let mut storage = Storage::open(&served.socket(), "read:data").expect("it opens again");
    let mut found = vec![0; 64 * BLOCK];
    storage.read(0, 0, &mut found).expect("it is read");
    assert_eq!(found, pattern(5, 0, 64));
}

fn host_bytes(session: &Session) -> u64 {
    session.ledger().expect("a ledger").column("host_bytes").expect("a column").used
}

/// One whose commands take a fifth of a second.
fn slow() -> Module {
    let arguments = ["--namespace", "scratch=ram:4MiB", "--latency", "200000"];
    Module::start(Kernel::start(), Scratch::new(), "storage", &gates("storage"), &arguments)
}

#[test]
fn a_module_reads_a_file_into_memory_that_kernels_reach() {
    let served = Served::start();
    let session = served.kernel.open("lender");
    let memory = session.allocate_lendable(1 << 20).expect("memory");
    assert_eq!(memory.bytes(), 2 << 20);
    let mut storage =
        Storage::open_lending(&served.socket(), "write:data,write:scratch", &memory).expect("it opens");
    storage.write(0, 0, &pattern(5, 0, 4096)).expect("it is written");
    // Not at the beginning of a page.
    storage.read_lent(0, 100, 3 * BLOCK, 1001 * BLOCK).expect("it is read");
    let mut found = vec![0; 1001 * BLOCK];
    memory.read(3 * BLOCK, &mut found);
    assert_eq!(found, pattern(5, 100, 1001));
    // As the device has it.
    let range = memory.range(3 * BLOCK as u64, 1001 * BLOCK as u64);
    found.fill(0);
    session.read(Stream::DEFAULT, &mut found, range).expect("the device reads it");
    assert_eq!(found, pattern(5, 100, 1001));
    memory.write(0, &pattern(6, 0, 4096));
    storage.write_lent(1, 0, 0, 4096 * BLOCK).expect("it is written");
    let mut found = vec![0; 4096 * BLOCK];
    storage.read(1, 0, &mut found).expect("it is read");
    assert_eq!(found, pattern(6, 0, 4096));
    for (offset, bytes) in [(0, 4097 * BLOCK), (1, BLOCK), (4096 * BLOCK, BLOCK), (usize::MAX, BLOCK), (0, 0)]
    {
        assert!(storage.read_lent(0, 0, offset, bytes).is_err(), "{bytes} bytes from {offset} on");
    }
    // The module lets go of it with its instance.
    let held = host_bytes(&session);
    drop((storage, memory));
    until("the memory is given back", || host_bytes(&session) == held - (2 << 20));
}

#[test]
fn what_is_no_lent_memory_is_refused_and_nothing_else_is_reached() {
    let served = Served::start();
    let session = served.kernel.open("lender");
    let small = session.allocate_mapped(4096).expect("memory");
    let refused = small.lend().err().expect("others lie in its pages");
    assert_eq!(refused.code, ErrorCode::NotSupported);
    assert!(refused.remedy.contains("allocate_lendable"), "{refused}");
    // Tokens of something else, and of nothing.
    let device = session.create(2 << 20).expect("device memory");
    let of_device = device.token(Uses::UntilRevoked).expect("a token");
    for token in [format!("{of_device:x}"), "0".repeat(64), "0".repeat(63), String::new()] {
        let stream = std::os::unix::net::UnixStream::connect(served.socket()).expect("it listens");
        std::io::Write::write_all(&mut &stream, format!("lend {token} read:data\n").as_bytes())
            .expect("it is said");
        let mut told = String::new();
        std::io::Read::read_to_string(&mut &stream, &mut told).unwrap_or_default();
        assert!(told.is_empty() || told.starts_with("refused"), "{told}");
    }
    // What lies in it in part only, by a ring of the test's own.
    let memory = session.allocate_lendable(2 << 20).expect("memory");
    memory.write(0, &vec![0xEE; 2 << 20]);
    let lending = memory.lend().expect("it is lent");
    let opened = OpenedHost::open_lending(&served.socket(), "read:data", lending).expect("it opens");
    for (number, target) in (0..).zip([4096, 4090, 4097, u32::MAX, 4089, 0]) {
        let request =
            Request { operation: rules::READ, count: 8, mark: number + 1, target, ..Request::default() };
        wire::put(opened.memory(), number, &request);
        opened.memory().word(wire::TAIL).expect("a word").store(number + 1, Ordering::Release);
        opened.ring();
        let look = || {
            let word = opened.memory().wide(wire::answer(0))?.load(Ordering::Acquire);
            (word >> 32 == u64::from(number + 1)).then_some(word & 0xFFFF_FFFF)
        };
        let code = opened.wait(PATIENCE, look).expect("an answer");
        let expected = if matches!(target, 0 | 4089) { codes::DONE } else { codes::TARGET };
        assert_eq!(code, u64::from(expected), "block {target}");
    }
    let mut found = vec![0; 2 << 20];
    memory.read(0, &mut found);
    assert!(found[..4088 * BLOCK].iter().all(|byte| *byte == 0xEE), "only what was allowed was read");
    assert!(found[4088 * BLOCK..].iter().all(|byte| *byte == 0));
}

#[test]
fn memory_that_is_freed_in_mid_io_counts_as_used_until_the_module_lets_go() {
    let module = slow();
    let (session, other) = (module.kernel.open("lender"), module.kernel.open("other"));
    let memory = session.allocate_lendable(2 << 20).expect("memory");
    let kept = other.allocate_lendable(2 << 20).expect("memory");
    let mut storage = Storage::open_lending(&module.socket(), "read:scratch", &memory).expect("it opens");
    let mut honest = Storage::open_lending(&module.socket(), "write:scratch", &kept).expect("it opens");
    let ended = thread::spawn(move || {
        loop {
            if let Err(error) = storage.read_lent(0, 0, 0, 2 << 20) {
                break error;
            }
        }
    });
    thread::sleep(Duration::from_millis(300));
    drop(memory);
    assert_eq!(ended.join().expect("it ends").code, ErrorCode::Unavailable);
    until("the memory is given back", || host_bytes(&session) == 0);
    session.status().expect("its session goes on");
    honest.write_lent(0, 0, 0, 64 * BLOCK).expect("others are served");
    // And when the session goes with it.
    drop((other, kept));
    assert_eq!(honest.read_lent(0, 0, 0, 2 << 20).expect_err("it is ended").code, ErrorCode::Unavailable);
    drop(honest);
    module.kernel.without(&["other"]);
}

#[test]
fn a_module_that_does_not_let_go_of_lent_memory_is_killed_and_started_again() {
    let mut module = slow();
    let session = module.kernel.open("lender");
    let memory = session.allocate_lendable(2 << 20).expect("memory");
    let mut storage = Storage::open_lending(&module.socket(), "read:scratch", &memory).expect("it opens");
    storage.read_lent(0, 0, 0, BLOCK).expect("it is read");
    rustix::process::kill_process(module.host_half(), rustix::process::Signal::STOP).expect("it is stopped");
    drop(memory);
    // It is still mapped there.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(host_bytes(&session), 2 << 20);
    module.line("is started again");
    until("the memory is given back", || host_bytes(&session) == 0);
    module.line("serves at");
    let memory = session.allocate_lendable(2 << 20).expect("memory");
    let mut storage =
        Storage::open_lending(&module.socket(), "read:scratch", &memory).expect("it opens again");
    storage.read_lent(0, 0, 0, BLOCK).expect("it is read");
}
