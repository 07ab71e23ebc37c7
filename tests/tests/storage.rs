//! The module `storage`: kernels read and write the extents that their program was given, and nothing else.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::FileExt as _,
    process::Stdio,
    thread,
    time::Duration,
};

use bulkhead_tests::{
    kernel::Kernel,
    module::{build_gates, gates},
    place::{repository, toolchain_libraries},
    process::{bulkhead, run},
    scratch::Scratch,
    storage::{BLOCK, PATIENCE, Served, blocks_of, compile, filled},
};

#[test]
fn kernels_write_and_read_a_file_as_the_host_sees_it() {
    let served = Served::start();
    served.right("write:data", &["fill", "5", "4096"]);
    assert_eq!(blocks_of(&served.data(), 5, 0), 4096);
    served.right("read:data", &["check", "5", "4096"]);
    served.right("read:data", &["warps", "5", "4096"]);
    // What the host writes, kernels read.
    let file =
        fs::OpenOptions::new().write(true).open(served.scratch.path().join("data.img")).expect("a file");
    for block in 0..64 {
        file.write_all_at(&filled(9, block), block * BLOCK as u64).expect("it is written");
    }
    served.right("read:data", &["check", "9", "64"]);
    let done = served.run("read:data", &["check", "5", "64"]);
    assert!(done.code() == Some(4) && done.stdout.contains("4096 wrong"), "{}", done.told());
    // A part begins with its own block 0.
    served.right("write:data@100+64", &["fill", "6", "64"]);
    let data = served.data();
    assert_eq!(blocks_of(&data[100 * BLOCK..164 * BLOCK], 6, 0), 64);
    assert_eq!(blocks_of(&data[64 * BLOCK..100 * BLOCK], 5, 64), 36);
    assert_eq!(blocks_of(&data[164 * BLOCK..], 5, 164), 4096 - 164);
    served.right("write:scratch", &["fill", "7", "8192"]);
    served.right("read:scratch", &["check", "7", "8192"]);
}

#[test]
fn no_caller_reaches_what_it_was_not_given_whatever_it_says() {
    let mut served = Served::start();
    served.right("write:data", &["fill", "5", "4096"]);
    // Extent 0 may be written, extent 1 read; both are 64 blocks of the file, and what is beside them is nobody's.
    served.right("write:data@1000+64,read:data@2000+64", &["attack"]);
    let data = served.data();
    assert_eq!(blocks_of(&data[..1000 * BLOCK], 5, 0), 1000);
    assert_eq!(blocks_of(&data[1064 * BLOCK..], 5, 1064), 4096 - 1064);
    // Rights are those of the opening, and an extent is one that there is.
    for (extents, arguments, code) in [
        ("read:data", ["fill", "1", "64"], "fffffff3"),
        ("write:data@0+32", ["fill", "1", "64"], "fffffff2"),
        ("read:data@0+32", ["check", "5", "64"], "fffffff2"),
    ] {
        let done = served.run(extents, &arguments);
        assert!(done.code() == Some(3) && done.stdout.contains(code), "{extents}: {}", done.told());
    }
    for (extents, told) in
        [("read:nope", "no namespace"), ("data", "is no extent"), ("read:data@4096+1", "has 4096 blocks")]
    {
        let done = served.run(extents, &["check", "5", "64"]);
        assert!(done.code() == Some(1) && done.stderr.contains(told), "{extents}: {}", done.told());
    }
    assert_eq!(blocks_of(&served.data()[1064 * BLOCK..], 5, 1064), 4096 - 1064);
    // The controller was never told to reach what it may not: the module would have told.
    let told = served.stop();
    assert!(!told.contains("may not"), "{told}");
}

#[test]
fn without_its_checks_the_same_attack_writes_what_is_not_the_callers() {
    let scratch = Scratch::new();
    let gates = scratch.path().join("unchecked.ptx");
    build_gates("storage", "STORAGE_UNCHECKED", &gates);
    let served = Served::with(&gates);
    served.right("write:data", &["fill", "5", "4096"]);
    let done = served.run("write:data@1000+64,read:data@2000+64", &["attack"]);
    assert!(done.code() == Some(4), "{}", done.told());
    let data = served.data();
    let kept = blocks_of(&data[..1000 * BLOCK], 5, 0) + blocks_of(&data[1064 * BLOCK..], 5, 1064);
    assert!(kept < 4096 - 64, "nothing was reached: the tests above show nothing");
}

#[test]
fn a_hostile_tenant_beside_an_honest_one_changes_nothing_of_it() {
    let served = Served::start();
    thread::scope(|scope| {
        let honest = scope.spawn(|| {
            for seed in 1..4 {
                served.right("write:data@0+2048", &["fill", &seed.to_string(), "2048"]);
                served.right("read:data@0+2048", &["check", &seed.to_string(), "2048"]);
            }
        });
        while !honest.is_finished() {
            served.right("write:data@2048+64,read:data@3000+64", &["attack"]);
        }
        honest.join().expect("the honest tenant is right");
    });
    assert_eq!(blocks_of(&served.data()[..2048 * BLOCK], 3, 0), 2048);
}

#[test]
fn who_is_killed_in_the_middle_harms_nobody_and_its_place_is_free_again() {
    let served = Served::start();
    served.right("write:data", &["fill", "5", "4096"]);
    for _ in 0..10 {
        let mut command = served.command("read:data", &["spin"]);
        let mut spins = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(spins.stdout.take().expect("a pipe")).read_line(&mut line).expect("it tells");
        assert_eq!(line, "spins\n");
        thread::sleep(Duration::from_millis(30));
        spins.kill().expect("it is killed");
        spins.wait().expect("it ends");
    }
    // There are eight places: those of the ten were given back.
    served.right("read:data", &["check", "5", "4096"]);
}

#[test]
fn a_module_that_is_killed_in_the_middle_loses_no_write_that_was_flushed() {
    let mut served = Served::start();
    for seed in 1..4 {
        served.right("write:data@0+1024", &["fill", &seed.to_string(), "1024"]);
        thread::scope(|scope| {
            // Another goes on writing while the module dies.
            let writes = scope.spawn(|| served.run("write:data@1024+3072", &["fill", "8", "3072"]));
            thread::sleep(Duration::from_millis(20 * seed));
            rustix::process::kill_process(served.host_half(), rustix::process::Signal::KILL)
                .expect("it is killed");
            let done = writes.join().expect("it ends");
            assert!(done.code().is_some(), "{}", done.told());
        });
        served.line("is started again");
        served.line("serves at");
        let data = served.data();
        assert_eq!(blocks_of(&data[..1024 * BLOCK], seed, 0), 1024, "a write that was flushed is lost");
        // No block is torn: each is as it was or as it was written.
        let torn = data[1024 * BLOCK..]
            .chunks(BLOCK)
            .zip(0..)
            .filter(|(block, at)| **block != filled(8, *at) && block.iter().any(|byte| *byte != 0));
        assert_eq!(torn.count(), 0);
        served.right("read:data@0+1024", &["check", &seed.to_string(), "1024"]);
    }
}

#[test]
fn grep_finds_in_a_file_that_is_larger_than_the_memory_granted_what_the_host_finds() {
    const BYTES: usize = (24 << 20) - 100;
    // Its session has 8 MiB beside what every session begins with.
    let served =
        Served::on(Kernel::with(&["--session-limit", "device_bytes=136MiB"]), &gates("storage"), "32MiB");
    let (mut text, mut state) = (vec![0_u8; 32 << 20], 1_u64);
    for byte in &mut text[..BYTES] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = b'a' + u8::try_from(state >> 62).expect("two bits");
    }
    // Also where blocks, reads and the file end.
    for at in [510, 3582, 4094, 7 * BLOCK - 3, BYTES - 10] {
        text[at..at + 10].copy_from_slice(b"abcdabcdzz");
    }
    fs::write(served.scratch.path().join("data.img"), &text).expect("a file");
    let program = served.scratch.path().join("grep");
    compile("modules/examples/grep.cu", &program);
    for pattern in ["abcdabcdzz", "zz", "abcdabcd", "aaaaaaaaaa", "nowhere"] {
        let expected =
            text[..BYTES].windows(pattern.len()).filter(|found| *found == pattern.as_bytes()).count();
        let mut command = bulkhead(&["run", "--module", "storage=read:data", "--socket"]);
        command.arg(served.kernel.socket()).arg("--").arg(&program).args([pattern, &BYTES.to_string()]);
        let done = run(command.env("TMPDIR", served.scratch.path()), PATIENCE);
        assert_eq!(done.stdout.trim(), expected.to_string(), "{pattern}: {}", done.told());
        assert_eq!(done.code(), Some(i32::from(expected == 0)), "{pattern}: {}", done.told());
    }
}

#[test]
fn the_gates_are_those_of_their_source() {
    let scratch = Scratch::new();
    for folder in ["modules/storage", "modules/nic", "modules/examples/counter"] {
        let folder = repository().join(folder);
        let (ptx, window) = (scratch.path().join("gates.ptx"), scratch.path().join("window.rs"));
        let mut command = bulkhead(&["module", "build", "gates.cu", "-o"]);
        command.arg(&ptx).arg("--rust").arg(&window).current_dir(&folder);
        command.env("NVCC", toolchain_libraries().with_file_name("bin").join("nvcc"));
        let done = run(&mut command, PATIENCE);
        assert_eq!(done.code(), Some(0), "{}", done.told());
        for (made, kept) in [(ptx, folder.join("gates.ptx")), (window, folder.join("src/window.rs"))] {
            let same = fs::read(&made).expect("made") == fs::read(&kept).expect("kept");
            assert!(same, "{} is stale: build it anew as gates.cu says", kept.display());
        }
    }
}
