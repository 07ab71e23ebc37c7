//! A protected module, served for a test, and programs that call its gates.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use crate::{
    kernel::Kernel,
    place::{host_half, repository, toolchain_libraries},
    process::{bulkhead, run},
    scratch::Scratch,
};

/// How long a program may take.
pub const PATIENCE: Duration = Duration::from_secs(240);

fn nvcc() -> PathBuf {
    toolchain_libraries().with_file_name("bin").join("nvcc")
}

/// Compiles a program that calls the gates of a module.
///
/// # Panics
/// Where it cannot be.
pub fn compile(module: &str, source: &str, to: &Path) {
    let mut command = Command::new(nvcc());
    command.args(["-gencode", "arch=compute_75,code=compute_75", "-I"]);
    command.arg(repository().join("modules").join(module).join("include")).arg("-o").arg(to);
    let done = run(command.arg(repository().join(source)), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
}

/// A program that calls the gates of a module, compiled once by each test process.
#[must_use]
pub fn program(module: &str, source: &str) -> PathBuf {
    static BUILT: OnceLock<(Scratch, Mutex<BTreeMap<String, PathBuf>>)> = OnceLock::new();
    let (scratch, built) = BUILT.get_or_init(|| (Scratch::new(), Mutex::new(BTreeMap::new())));
    let mut built = built.lock().unwrap_or_else(PoisonError::into_inner);
    let made = built.entry(source.to_owned()).or_insert_with(|| {
        let program = scratch.path().join(source.replace('/', "-"));
        compile(module, source, &program);
        program
    });
    made.clone()
}

/// The gates of a module, as they are checked in.
#[must_use]
pub fn gates(module: &str) -> PathBuf {
    repository().join("modules").join(module).join("gates.ptx")
}

/// Builds the gates of a module with a macro that changes them.
///
/// # Panics
/// Where they cannot be.
pub fn build_gates(module: &str, defined: &str, to: &Path) {
    let mut command = bulkhead(&["module", "build"]);
    command.arg(gates(module).with_extension("cu")).arg("-o").arg(to);
    command.args(["--", &format!("-D{defined}")]).env("NVCC", nvcc());
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
}

/// A kernel that serves with a module, and what the module tells.
pub struct Module {
    /// The kernel.
    pub kernel: Kernel,
    /// Where its file lies.
    pub scratch: Scratch,
    name: String,
    starting: Child,
    told: BufReader<ChildStderr>,
}

impl Module {
    /// Starts a module with these gates, and a host half with these arguments. Whatever that reports on stdout, nobody reads: it is
    /// a pipe that is closed at the other end.
    ///
    /// # Panics
    /// Where it does not serve.
    #[must_use]
    pub fn start(kernel: Kernel, scratch: Scratch, name: &str, gates: &Path, arguments: &[&str]) -> Self {
        let manifest = scratch.path().join("module.toml");
        let half = host_half(name);
        let mut host = vec![half.to_str().expect("text")];
        host.extend(arguments);
        let text = format!("name = {name:?}\ngates = {gates:?}\ninstances = 8\nhost = {host:?}\n");
        fs::write(&manifest, text).expect("scratch can be written");
        let (_, nobody_reads) = io::pipe().expect("a pipe");
        let mut command = bulkhead(&["module", "start", "--socket"]);
        command.arg(kernel.socket()).arg(&manifest).stdout(nobody_reads).stderr(Stdio::piped());
        // Some tests have gates without their checks.
        command.env("BULKHEAD_MODULE_ANY_GATES", "1");
        let mut starting = command.spawn().expect("it starts");
        let told = BufReader::new(starting.stderr.take().expect("a pipe"));
        let mut module = Self { kernel, scratch, name: name.to_owned(), starting, told };
        module.line("serves at");
        module
    }

    /// The module's own socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        bulkhead_module::door::socket_of(&self.kernel.socket(), &self.name)
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

    /// Takes the module away, and reads what it told until then.
    ///
    /// # Panics
    /// Where that cannot be.
    pub fn stop(&mut self) -> String {
        let mut command = bulkhead(&["module", "stop", &self.name, "--socket"]);
        let stop = run(command.arg(self.kernel.socket()), PATIENCE);
        assert_eq!(stop.code(), Some(0), "{}", stop.told());
        self.line("was taken away")
    }

    /// A program that has opened the module with these words.
    #[must_use]
    pub fn command(&self, words: &str, program: &Path) -> Command {
        let mut command = bulkhead(&["run", "--module", &format!("{}={words}", self.name), "--socket"]);
        command.arg(self.kernel.socket()).arg("--").arg(program).env("TMPDIR", self.scratch.path());
        command
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

impl Drop for Module {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(i32::try_from(self.starting.id()).unwrap_or(0)) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap_or_default();
        }
        self.starting.wait().expect("it ends");
    }
}
