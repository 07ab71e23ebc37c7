//! The module `storage`, served for a test.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use crate::{
    kernel::Kernel,
    place::{host_half, repository, toolchain_libraries},
    process::{Done, bulkhead, run},
    scratch::Scratch,
};

/// How long a program may take.
pub const PATIENCE: Duration = Duration::from_secs(240);
/// Bytes of a block.
pub const BLOCK: usize = 512;

/// A program of `modules/storage/tests` or `modules/examples`, compiled once by each test process.
#[must_use]
pub fn program(source: &str) -> PathBuf {
    static BUILT: OnceLock<(Scratch, Mutex<BTreeMap<String, PathBuf>>)> = OnceLock::new();
    let (scratch, built) = BUILT.get_or_init(|| (Scratch::new(), Mutex::new(BTreeMap::new())));
    let mut built = built.lock().unwrap_or_else(PoisonError::into_inner);
    let made = built.entry(source.to_owned()).or_insert_with(|| {
        let program = scratch.path().join(source.replace('/', "-"));
        compile(source, &program);
        program
    });
    made.clone()
}

const TENANT: &str = "modules/storage/tests/tenant.cu";

/// Compiles a program that calls the gates.
///
/// # Panics
/// Where it cannot be.
pub fn compile(source: &str, to: &Path) {
    let mut command = Command::new(toolchain_libraries().with_file_name("bin").join("nvcc"));
    command.args(["-gencode", "arch=compute_75,code=compute_75", "-I"]);
    command.arg(repository().join("modules/storage/include")).arg("-o").arg(to);
    let done = run(command.arg(repository().join(source)), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
}

/// A kernel that serves with the module, and what the module tells.
pub struct Served {
    /// The kernel.
    pub kernel: Kernel,
    module: Child,
    told: BufReader<std::process::ChildStderr>,
    /// Where its file lies.
    pub scratch: Scratch,
}

impl Served {
    /// With these gates, and namespaces `scratch` (4 MiB of memory) and `data` (2 MiB of a file).
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn with(gates: &Path) -> Self {
        Self::on(Kernel::start(), gates, "2MiB")
    }

    /// On a kernel of the test's own, with a file of another size.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn on(kernel: Kernel, gates: &Path, bytes: &str) -> Self {
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

    /// As it is checked in.
    ///
    /// # Panics
    /// Where that cannot be.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&repository().join("modules/storage/gates.ptx"))
    }

    /// The module's own socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        bulkhead_module::door::socket_of(&self.kernel.socket(), "storage")
    }

    /// Reads what the module tells until it tells this.
    ///
    /// # Panics
    /// Where it ends before.
    pub fn line(&mut self, what: &str) -> String {
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

    /// What the file holds.
    ///
    /// # Panics
    /// Where that cannot be.
    #[must_use]
    pub fn data(&self) -> Vec<u8> {
        fs::read(self.scratch.path().join("data.img")).expect("a file")
    }

    /// A program with these extents.
    #[must_use]
    pub fn command_of(&self, source: &str, extents: &str, arguments: &[&str]) -> Command {
        let mut command = bulkhead(&["run", "--module", &format!("storage={extents}"), "--socket"]);
        command.arg(self.kernel.socket()).arg("--").arg(program(source)).args(arguments);
        command.env("TMPDIR", self.scratch.path());
        command
    }

    /// The tenant with these extents.
    #[must_use]
    pub fn command(&self, extents: &str, arguments: &[&str]) -> Command {
        self.command_of(TENANT, extents, arguments)
    }

    /// Runs the tenant.
    #[must_use]
    pub fn run(&self, extents: &str, arguments: &[&str]) -> Done {
        run(&mut self.command(extents, arguments), PATIENCE)
    }

    /// Runs the tenant, and expects that it finds nothing wrong.
    ///
    /// # Panics
    /// Where it does.
    pub fn right(&self, extents: &str, arguments: &[&str]) {
        self.right_of(TENANT, extents, arguments);
    }

    /// The same of another program: what it tells.
    ///
    /// # Panics
    /// Where it finds something wrong.
    pub fn right_of(&self, source: &str, extents: &str, arguments: &[&str]) -> String {
        let done = run(&mut self.command_of(source, extents, arguments), PATIENCE);
        assert!(done.code() == Some(0) && done.stdout.contains(" 0 wrong"), "{arguments:?}: {}", done.told());
        done.stdout
    }

    /// The host half's process.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn host_half(&self) -> rustix::process::Pid {
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
#[must_use]
pub fn filled(seed: u64, block: u64) -> Vec<u8> {
    let word = |at: u64| {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(block * 64 + at);
        x ^= x >> 30;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 27;
        x.wrapping_mul(0x94D0_49BB_1331_11EB).to_le_bytes()
    };
    (0..64).flat_map(word).collect()
}

/// How many blocks, of which the first has this number, hold what `tenant fill` leaves.
#[must_use]
pub fn blocks_of(data: &[u8], seed: u64, first: u64) -> usize {
    let blocks = data.chunks(BLOCK).zip(first..);
    blocks.filter(|(block, at)| **block == filled(seed, *at)).count()
}
