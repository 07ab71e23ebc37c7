//! A kernel of a test's own: `bulkhead serve` in a directory that goes with it.

use std::{
    fs::File,
    io::PipeReader,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{Options, Session, SturdyToken};

use crate::{
    patience::until,
    process,
    scratch::Scratch,
    status::{self, Status},
};

/// Names the backend that tests run on, where it is not the software GPU.
const BACKEND: &str = "BULKHEAD_TESTS_BACKEND";

/// Whether tests run on a GPU. Isolated sessions take machine code there, and no PTX.
#[must_use]
pub fn on_gpu() -> bool {
    std::env::var(BACKEND).is_ok_and(|backend| backend == "cuda")
}

/// What fits into the pipe of a kernel whose log nobody reads.
pub const UNREAD_BYTES: usize = 4096;

/// A kernel that serves until it is dropped.
pub struct Kernel {
    child: Child,
    place: Scratch,
}

impl Kernel {
    /// Starts one, on the software GPU unless told otherwise, and waits until it listens and has an executor. It ends with the thread that started it.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// The same with more arguments to `serve`.
    #[must_use]
    pub fn with(arguments: &[&str]) -> Self {
        let backend = std::env::var(BACKEND);
        Self::serving(backend.as_deref().unwrap_or("software"), None, arguments)
    }

    /// The same, saying nothing but what is its own fault.
    #[must_use]
    pub fn quiet(arguments: &[&str]) -> Self {
        Self::serving("software", Some("error"), arguments)
    }

    /// The same, saying what it does.
    #[must_use]
    pub fn telling(arguments: &[&str]) -> Self {
        let backend = std::env::var(BACKEND);
        Self::serving(backend.as_deref().unwrap_or("software"), Some("info"), arguments)
    }

    /// The same on the backend of this name.
    ///
    /// # Panics
    /// Where it does not come to listen.
    #[must_use]
    pub fn on(backend: &str) -> Self {
        Self::serving(backend, None, &[])
    }

    /// The same, started by another program, which becomes it.
    #[must_use]
    pub fn wrapped(wrapper: &[&str], arguments: &[&str]) -> Self {
        Self::started(wrapper, "software", None, arguments)
    }

    /// The same, saying all it has to say to a pipe that nobody reads, and that is soon full.
    ///
    /// # Panics
    /// Where it does not come to listen.
    #[must_use]
    pub fn unread(arguments: &[&str]) -> (Self, PipeReader) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        rustix::pipe::fcntl_setpipe_size(&writer, UNREAD_BYTES).expect("a pipe can be small");
        let place = Scratch::new();
        let kernel = Self::logging(&[], "software", Some("trace"), arguments, (place, writer.into()));
        (kernel, reader)
    }

    fn serving(backend: &str, level: Option<&str>, arguments: &[&str]) -> Self {
        Self::started(&[], backend, level, arguments)
    }

    fn started(wrapper: &[&str], backend: &str, level: Option<&str>, arguments: &[&str]) -> Self {
        let place = Scratch::new();
        let log = File::create(place.path().join("log")).expect("a file for the kernel's log");
        Self::logging(wrapper, backend, level, arguments, (place, log.into()))
    }

    fn logging(
        wrapper: &[&str],
        backend: &str,
        level: Option<&str>,
        arguments: &[&str],
        (place, log): (Scratch, Stdio),
    ) -> Self {
        let mut command = process::bulkhead_in(wrapper, &["serve", "--with-parent", "--backend", backend]);
        command.arg("--runtime-directory").arg(place.path().join("run"));
        // Clients of a test are one process, and many.
        command.args(["--process-limit", "sessions=32", "--process-limit", "connections=240"]);
        command.args(["--process-limit", "descriptor_connections=56"]);
        // What was compiled for other tests is not there.
        command.env("XDG_CACHE_HOME", place.path().join("cache"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.envs(level.map(|level| ("BULKHEAD_LOG", level)));
        let child = command.spawn().expect("the kernel starts");
        let mut kernel = Self { child, place };
        let socket = kernel.socket();
        until("the kernel listens", || {
            let ended = kernel.child.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "the kernel ended: {ended:?}");
            UnixStream::connect(&socket).is_ok()
        });
        until("its executor runs", || kernel.status().executor_pid != 0);
        kernel
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.place.path().join("run/kernel.sock")
    }

    /// Where it hands descriptors over.
    #[must_use]
    pub fn descriptor_socket(&self) -> PathBuf {
        self.place.path().join("run/descriptors.sock")
    }

    /// What a protected module of it is claimed with.
    ///
    /// # Panics
    /// Where it has no such module.
    #[must_use]
    pub fn module_token(&self, module: &str) -> SturdyToken {
        let path = self.place.path().join("run").join(format!("{module}.token"));
        SturdyToken::read_file(&path).expect("a module's token")
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it says of itself.
    ///
    /// # Panics
    /// Where it does not answer.
    #[must_use]
    pub fn status(&self) -> Status {
        match status::of(&self.socket()) {
            Ok(status) => status,
            Err(error) => panic!("the kernel does not tell its status: {error}"),
        }
    }

    /// How many images were compiled so far, taken from the cache, and loaded already.
    ///
    /// # Panics
    /// Where the kernel does not answer.
    #[must_use]
    pub fn images(&self) -> [u32; 3] {
        status::images(&self.socket()).expect("the kernel tells its status")
    }

    /// What a session of a name is opened with.
    #[must_use]
    pub fn options(&self, name: &str) -> Options {
        Options { socket: self.socket(), name: name.into(), ..Options::default() }
    }

    /// Opens a session.
    ///
    /// # Panics
    /// Where the kernel refuses.
    #[must_use]
    pub fn open(&self, name: &str) -> Session {
        match Session::open(&self.options(name)) {
            Ok(session) => session,
            Err(error) => panic!("no session {name}: {error}"),
        }
    }

    /// `bulkhead run` of a program on this kernel.
    #[must_use]
    pub fn run_command(&self, program: &std::path::Path) -> Command {
        let mut command = process::bulkhead(&["run", "--socket"]);
        command.arg(self.socket()).arg("--").arg(program).env("TMPDIR", self.place.path());
        command
    }

    /// Waits until the kernel has given back what sessions of these names had, and answers its status.
    ///
    /// # Panics
    /// Where that does not come about.
    pub fn without(&self, names: &[&str]) -> Status {
        let mut status = self.status();
        until("the sessions are gone", || {
            status = self.status();
            names.iter().all(|name| status.session(name).is_none())
        });
        status
    }

    /// Asks it to end, and waits for that: its exit status.
    ///
    /// # Panics
    /// Where it does not end.
    pub fn end(&mut self) -> std::process::ExitStatus {
        process::terminate(self.child.id());
        self.child.wait().expect("the kernel ends")
    }

    /// Where it writes what it has to say.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.place.path().join("log")
    }

    /// What it has said so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the kernel's log\n{}---", self.log());
        }
        process::terminate(self.child.id());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > Duration::from_secs(30) {
                drop(self.child.kill());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}
