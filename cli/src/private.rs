//! A kernel of a command's own, for as long as the command runs.

use std::{
    ffi::OsStr,
    fs::File,
    os::unix::{net::UnixStream, process::CommandExt as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Failure, interrupt,
    place::{self, Scratch},
    serve::Backend,
};

/// How long a kernel may take to listen.
const START_MAX: Duration = Duration::from_secs(60);

/// A private kernel; ends when dropped.
pub(crate) struct Kernel {
    child: Child,
    scratch: Scratch,
}

impl Kernel {
    /// Starts one, with these arguments to `serve` besides, and waits until it listens.
    pub(crate) fn start_with<A: AsRef<OsStr>>(backend: Backend, arguments: &[A]) -> Result<Self, Failure> {
        let scratch = Scratch::new()?;
        let log = scratch.path().join("kernel.log");
        let stderr = match std::env::var_os("BULKHEAD_LOG") {
            Some(_) => Stdio::inherit(),
            None => File::create(&log)?.into(),
        };
        let mut command = Command::new(place::binary()?);
        command
            .arg("serve")
            .arg(format!("--with-parent={}", std::process::id()))
            .args(["--backend", backend.name(), "--runtime-directory"])
            .arg(scratch.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            // Ctrl-C is for the program, which goes on with the kernel until it ends.
            .process_group(0);
        let child = interrupt::start_kernel(&mut command).map_err(Failure::doing("starting a kernel"))?;
        let mut kernel = Self { child, scratch };
        kernel.wait_until_it_listens()?;
        Ok(kernel)
    }

    fn wait_until_it_listens(&mut self) -> Result<(), Failure> {
        let start = Instant::now();
        while UnixStream::connect(self.socket()).is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Err(Failure::new(format!("the kernel ended with {status}\n{}", self.log())));
            }
            if start.elapsed() > START_MAX {
                return Err(Failure::new(format!("the kernel does not listen\n{}", self.log())));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.scratch.path().join("kernel.sock")
    }

    /// What it has said so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("kernel.log")).unwrap_or_default()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let ended = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
        tracing::debug!(?ended, "private kernel");
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > Duration::from_secs(15) {
                let killed = self.child.kill();
                tracing::warn!(?killed, "the kernel did not end by itself");
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}
