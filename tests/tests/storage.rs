//! The module `storage`: kernels read and write the extents that their program was given, and nothing else.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

use bulkhead_tests::{
    kernel::Kernel,
    place::{host_half, repository, toolchain_libraries},
    process::{Done, bulkhead, run},
    scratch::Scratch,
};

const PATIENCE: Duration = Duration::from_secs(240);
const BLOCK: usize = 512;

/// The program of `modules/storage/tests`, compiled once.
fn tenant() -> &'static Path {
    static TENANT: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    let (_, program) = TENANT.get_or_init(|| {
        let scratch = Scratch::new();
        let program = scratch.path().join("tenant");
        compile("modules/storage/tests/tenant.cu", &program);
        (scratch, program)
    });
    program
}

/// Compiles a program that calls the gates.
fn compile(source: &str, to: &Path) {
    let mut command = Command::new(toolchain_libraries().with_file_name("bin").join("nvcc"));
    command.args(["-gencode", "arch=compute_75,code=compute_75", "-I"]);
    command.arg(repository().join("modules/storage/include")).arg("-o").arg(to);
    let done = run(command.arg(repository().join(source)), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
}

/// A kernel that serves with the module, and what the module tells.
struct Served {
    kernel: Kernel,
    module: Child,
    told: BufReader<std::process::ChildStderr>,
    scratch: Scratch,
}

impl Served {
    /// With these gates, and namespaces `scratch` (4 MiB of memory) and `data` (2 MiB of a file).
    fn with(gates: &Path) -> Self {
        Self::on(Kernel::start(), gates, "2MiB")
    }

    /// On a kernel of the test's own, with a file of another size.
    fn on(kernel: Kernel, gates: &Path, bytes: &str) -> Self {
        let scratch = Scratch::new();
        let mebibytes: u64 = bytes.trim_end_matches("MiB").parse().expect("a size");
        let data = scratch.path().join("data.img");
        fs::File::create(&data)
            .and_then(|file| file.set_len(mebibytes << 20))
            .expect("scratch can be written");
        let manifest = scratch.path().join("module.toml");
        let text = format!(
            "name = \"storage\"\ngates = {gates:?}\ninstances = 8\n\
             host = [{:?}, \"--namespace\", \"scratch=ram:4MiB\", \"--namespace\", \"data=file:{}\"]\n",
            host_half("storage"),
            data.display()
        );
        fs::write(&manifest, text).expect("scratch can be written");
        let mut command = bulkhead(&["module", "start", "--socket"]);
        command.arg(kernel.socket()).arg(&manifest).stdout(Stdio::null()).stderr(Stdio::piped());
        // One test has them without their checks.
        command.env("BULKHEAD_MODULE_ANY_GATES", "1");
        let mut module = command.spawn().expect("it starts");
        let told = BufReader::new(module.stderr.take().expect("a pipe"));
        let mut served = Self { kernel, module, told, scratch };
        served.line("serves at");
        served
    }

    fn new() -> Self {
        Self::with(&repository().join("modules/storage/gates.ptx"))
    }

    /// Reads what the module tells until it tells this.
    fn line(&mut self, what: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.told.read_line(&mut line).expect("it tells") > 0, "it has ended: {all}");
            all.push_str(&line);
            if line.contains(what) {
                return all;
            }
        }
    }

    fn data(&self) -> Vec<u8> {
        fs::read(self.scratch.path().join("data.img")).expect("a file")
    }

    fn command(&self, extents: &str, arguments: &[&str]) -> Command {
        let mut command = bulkhead(&["run", "--module", &format!("storage={extents}"), "--socket"]);
        command.arg(self.kernel.socket()).arg("--").arg(tenant()).args(arguments);
        command.env("TMPDIR", self.scratch.path());
        command
    }

    fn run(&self, extents: &str, arguments: &[&str]) -> Done {
        run(&mut self.command(extents, arguments), PATIENCE)
    }

    fn right(&self, extents: &str, arguments: &[&str]) {
        let done = self.run(extents, arguments);
        assert!(done.code() == Some(0) && done.stdout.contains(" 0 wrong"), "{arguments:?}: {}", done.told());
    }

    /// The host half's process.
    fn host_half(&self) -> rustix::process::Pid {
        let mut command = bulkhead(&["module", "list", "--json", "--socket"]);
        let listed = run(command.arg(self.kernel.socket()), PATIENCE);
        let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
        let pid = listed["modules"][0]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        rustix::process::Pid::from_raw(pid.expect("a process")).expect("a process")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(i32::try_from(self.module.id()).unwrap_or(0)) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap_or_default();
        }
        self.module.wait().expect("it ends");
    }
}

/// What `tenant fill` leaves in a block.
fn filled(seed: u64, block: u64) -> Vec<u8> {
    let word = |at: u64| {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(block * 64 + at);
        x ^= x >> 30;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 27;
        x.wrapping_mul(0x94D0_49BB_1331_11EB).to_le_bytes()
    };
    (0..64).flat_map(word).collect()
}

fn blocks_of(data: &[u8], seed: u64, first: u64) -> usize {
    let blocks = data.chunks(BLOCK).zip(first..);
    blocks.filter(|(block, at)| **block == filled(seed, *at)).count()
}

#[test]
fn kernels_write_and_read_a_file_as_the_host_sees_it() {
    let served = Served::new();
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
    let mut served = Served::new();
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
    let stop =
        run(bulkhead(&["module", "stop", "storage", "--socket"]).arg(served.kernel.socket()), PATIENCE);
    assert_eq!(stop.code(), Some(0), "{}", stop.told());
    let told = served.line("was taken away");
    assert!(!told.contains("may not"), "{told}");
}

#[test]
fn without_its_checks_the_same_attack_writes_what_is_not_the_callers() {
    let scratch = Scratch::new();
    let gates = scratch.path().join("unchecked.ptx");
    let folder = repository().join("modules/storage");
    let mut command = bulkhead(&["module", "build"]);
    command.arg(folder.join("gates.cu")).arg("-o").arg(&gates);
    command.args(["--", "-DSTORAGE_UNCHECKED"]);
    command.env("NVCC", toolchain_libraries().with_file_name("bin").join("nvcc"));
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
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
    let served = Served::new();
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
    let served = Served::new();
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
    let mut served = Served::new();
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
    let served = Served::on(
        Kernel::with(&["--session-limit", "device_bytes=136MiB"]),
        &repository().join("modules/storage/gates.ptx"),
        "32MiB",
    );
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
