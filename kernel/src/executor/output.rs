//! What an isolated session's executor writes to its standard output and its standard error.
//!
//! NVIDIA's driver prints there what kernels print, and which assertions failed: words for the program. They are kept until the
//! session's client fetches them. The executor's own log comes the same way, in lines that begin with [`limits::LOG_MARK`], and
//! goes into the kernel's log.
//!
//! The executor counts as its tenant, so nothing here waits for it: what does not fit is dropped, and read so slowly that
//! a flood costs little.

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::OwnedFd,
    rc::Rc,
    time::Duration,
};

use bulkhead_schema::limits::{self, OUTPUT_BYTES_MAX};
use tokio::{
    net::unix::pipe::Receiver,
    process::{ChildStderr, ChildStdout},
    sync::Notify,
};

use crate::principals::Lines;

/// Read at a time.
const READ_BYTES: usize = 16 << 10;
/// A line of the log; what is longer counts as several.
const LINE_BYTES_MAX: usize = 8 << 10;
/// How long whoever fetches may take before something is dropped.
const PATIENCE: Duration = Duration::from_secs(1);
/// From then on, how long nothing is read after so many pieces were dropped.
const PAUSE: Duration = Duration::from_millis(10);
const DROPPED_AT_A_TIME: usize = 16;

/// What is kept of an executor's output at most, with what is kept of lines.
pub(crate) const OUTPUT_KEPT_BYTES: u64 = (2 * OUTPUT_BYTES_MAX + LINE_BYTES_MAX + READ_BYTES) as u64;

/// Bytes that were written and not fetched.
struct Kept {
    pipe: Option<Receiver>,
    bytes: RefCell<Vec<u8>>,
    /// Told when somebody has fetched.
    fetched: Notify,
    /// Where the log's lines are taken out: what came of a line that has not ended.
    line: Option<RefCell<Vec<u8>>>,
    pid: Cell<u32>,
    budget: Lines,
}

/// Both of an executor's.
pub(crate) struct Output {
    out: Rc<Kept>,
    err: Rc<Kept>,
    /// Told when something has come.
    come: Rc<Notify>,
}

/// What was written.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    /// Whether there may be more.
    pub(crate) more: bool,
}

impl Kept {
    fn new(pipe: Option<OwnedFd>, has_log: bool, pid: u32) -> Rc<Self> {
        let pipe = pipe.and_then(|pipe| {
            let opened = Receiver::from_owned_fd(pipe);
            opened.inspect_err(|error| tracing::warn!(pid, %error, "an executor's output is not read")).ok()
        });
        let line = has_log.then(RefCell::default);
        let (bytes, fetched) = (RefCell::default(), Notify::new());
        Rc::new(Self { pipe, bytes, fetched, line, pid: Cell::new(pid), budget: Lines::new() })
    }

    fn room(&self) -> usize {
        OUTPUT_BYTES_MAX.saturating_sub(self.bytes.borrow().len())
    }

    /// Reads what is there, as much as there is room for, or some pieces where what is read is dropped. Whether more may come.
    ///
    /// `now` asks the system, also where tokio has not heard yet that there is something.
    fn read(&self, drops: bool, now: bool) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut buffer = [0; READ_BYTES];
        let mut dropped = 0;
        while self.room() >= READ_BYTES || (drops && dropped < DROPPED_AT_A_TIME) {
            dropped += usize::from(self.room() < READ_BYTES);
            let read = match now {
                true => rustix::io::read(pipe, &mut buffer).map_err(io::Error::from),
                false => pipe.try_read(&mut buffer),
            };
            match read {
                Ok(0) => {
                    self.end_line();
                    return false;
                }
                Ok(bytes) => self.add(buffer.get(..bytes).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }

    fn add(&self, bytes: &[u8]) {
        let Some(line) = &self.line else { return self.keep(bytes) };
        let mut line = line.borrow_mut();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || line.len() >= LINE_BYTES_MAX {
                self.tell(&line);
                line.clear();
            }
        }
    }

    fn end_line(&self) {
        if let Some(line) = &self.line {
            self.tell(&line.take());
        }
    }

    fn keep(&self, bytes: &[u8]) {
        let room = self.room();
        self.bytes.borrow_mut().extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// Puts a line into the log, no more of them than a principal may cause; what is not the executor's own is the program's too.
    fn tell(&self, line: &[u8]) {
        let own = line.strip_prefix(&[limits::LOG_MARK]);
        if own.is_none() {
            self.keep(line);
        }
        let text = String::from_utf8_lossy(own.unwrap_or(line));
        if !text.trim().is_empty()
            && let Some(unsaid) = self.budget.take()
        {
            let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
            let text: String = text.trim_end().chars().map(plain).collect();
            tracing::warn!(target: "bulkhead::executor", pid = self.pid.get(), unsaid, "{text}");
        }
    }

    /// Reads all that comes; ends with the executor.
    async fn relay(self: Rc<Self>, come: Rc<Notify>) {
        let Some(pipe) = &self.pipe else { return };
        let mut patience = PATIENCE;
        while pipe.readable().await.is_ok() {
            let fetched = async {
                while self.room() < READ_BYTES {
                    self.fetched.notified().await;
                }
            };
            let drops = tokio::time::timeout(patience, fetched).await.is_err();
            patience = if drops { PAUSE } else { PATIENCE };
            if !self.read(drops, false) {
                break;
            }
            come.notify_waiters();
            tokio::task::yield_now().await;
        }
        come.notify_waiters();
    }

    fn take(&self) -> Vec<u8> {
        self.read(false, true);
        self.fetched.notify_one();
        self.bytes.take()
    }
}

impl Output {
    /// Begins to read what such a process writes.
    pub(super) fn begin(out: Option<ChildStdout>, err: Option<ChildStderr>, pid: u32) -> Rc<Self> {
        let out = Kept::new(out.and_then(|pipe| pipe.into_owned_fd().ok()), false, pid);
        let err = Kept::new(err.and_then(|pipe| pipe.into_owned_fd().ok()), true, pid);
        let come = Rc::new(Notify::new());
        for kept in [&out, &err] {
            tokio::task::spawn_local(Rc::clone(kept).relay(Rc::clone(&come)));
        }
        Rc::new(Self { out, err, come })
    }

    /// Takes what was written, also what nobody has read yet.
    pub(crate) fn take(&self) -> Written {
        let (out, err) = (self.out.take(), self.err.take());
        let more = [&out, &err].into_iter().any(|taken| taken.len() + READ_BYTES > OUTPUT_BYTES_MAX);
        Written { out, err, more }
    }

    /// Waits until there is room for hardly anything.
    pub(crate) async fn full(&self) {
        loop {
            let come = self.come.notified();
            if [&self.out, &self.err].into_iter().any(|kept| kept.room() < READ_BYTES) {
                return;
            }
            come.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use tokio::{process::Command, task::LocalSet};

    use super::*;

    /// Runs a shell's script as an executor, and answers what was kept of its output once it has ended.
    async fn said(script: &str) -> (Rc<Output>, bool) {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let output = Output::begin(child.stdout.take(), child.stderr.take(), 1);
        let ended = tokio::time::timeout(Duration::from_secs(60), child.wait()).await;
        (output, ended.is_ok_and(|status| status.is_ok_and(|status| status.success())))
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn what_the_driver_writes_is_kept_and_the_log_is_taken_out() {
        run(async {
            let script = "printf 'of a kernel, no newline'; printf '\\036a line of the log\\nfailed\\n\\036another\\nlast' >&2";
            let (output, ended) = said(script).await;
            assert!(ended);
            let written = output.take();
            assert_eq!(written.out, b"of a kernel, no newline");
            assert_eq!(written.err, b"failed\nlast");
            assert!(!written.more);
            let again = output.take();
            assert!(again.out.is_empty() && again.err.is_empty());
        });
    }

    #[test]
    fn an_executor_that_floods_is_held_up_and_no_more_is_kept_than_fits() {
        run(async {
            // Some 3 MiB to each, which nobody fetches.
            let (output, ended) = said("yes | head -c 3000000 & yes | head -c 3000000 >&2; wait").await;
            assert!(ended, "nothing of it waits for whoever does not fetch");
            let written = output.take();
            for bytes in [written.out, written.err] {
                assert!(
                    bytes.len() <= OUTPUT_BYTES_MAX && bytes.len() + 2 * READ_BYTES > OUTPUT_BYTES_MAX,
                    "{}",
                    bytes.len()
                );
            }
        });
    }

    #[test]
    fn what_was_written_before_somebody_asks_is_there_when_they_do() {
        run(async {
            let (reader, mut writer) = io::pipe().unwrap();
            let kept = Kept::new(Some(reader.into()), false, 1);
            for turn in 0..100 {
                let text = format!("turn {turn}");
                io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
                // Nothing here lets tokio look.
                assert_eq!(kept.take(), text.as_bytes());
            }
        });
    }

    #[test]
    fn whoever_goes_on_fetching_gets_all() {
        run(async {
            let mut child = Command::new("sh")
                .args(["-c", "yes | head -c 3000000"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let output = Output::begin(child.stdout.take(), None, 1);
            let mut bytes = 0;
            while bytes < 3_000_000 {
                // Not at once, as over a socket.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let full = tokio::time::timeout(Duration::from_secs(20), output.full());
                tokio::select! {
                    result = full => result.unwrap(),
                    _ = child.wait() => {}
                }
                bytes += output.take().out.len();
            }
            assert_eq!(bytes, 3_000_000);
        });
    }
}
