//! What an isolated session's executor writes to its standard output and its standard error.
//!
//! NVIDIA's driver prints there what kernels print, and which assertions failed: words for the program. They are kept until the
//! session's client fetches them. The executor's own log comes the same way, in lines that begin with [`limits::LOG_MARK`], and
//! goes into the kernel's log.
//!
//! The executor counts as its tenant, so nothing here waits for it, and nothing costs more than it may: what does not fit is lost,
//! no more than [`TURN_BYTES`] are read in one go whatever becomes of them, and whoever writes what is lost or logged is read
//! slowly. The pipes end with the process, and not with whoever else has a copy of their other ends.

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
use tokio_util::sync::CancellationToken;

use crate::principals::{Counted, Lines, Party};

/// Read at a time.
const READ_BYTES: usize = 16 << 10;
/// Read in one go: what a pipe holds.
const TURN_BYTES: usize = 64 << 10;
/// After so many bytes that were not kept, nothing is read for [`PAUSE`]: 0.8 MB a second.
const LOST_BYTES_AT_ONCE: usize = 16 << 10;
/// After so many reads likewise, which nobody asked for: a pipe may be written so that each byte takes one.
const READS_AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(20);
/// How long whoever fetches may take before something is lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// A line of the log; what is longer counts as several.
const LINE_BYTES_MAX: usize = 8 << 10;
/// What the kernel's log gets of a line.
const LOGGED_BYTES_MAX: usize = 1 << 10;

/// How long after the end of its process what it has written can be fetched.
const AFTER: Duration = Duration::from_secs(10);

/// What is kept of an executor's output at most: until it is fetched, of what its pipes hold when it ends, of lines.
pub(crate) const OUTPUT_KEPT_BYTES: u64 =
    (2 * (OUTPUT_BYTES_MAX + TURN_BYTES) + LINE_BYTES_MAX + READ_BYTES) as u64;

/// Bytes that were written and not fetched.
struct Kept {
    /// Until the process has ended.
    pipe: RefCell<Option<Rc<Receiver>>>,
    bytes: RefCell<Vec<u8>>,
    /// How many there may be.
    most: Cell<usize>,
    /// Bytes that were not kept since the last pause.
    lost: Cell<usize>,
    /// Reads that nobody asked for since then.
    reads: Cell<usize>,
    /// Told when somebody has fetched.
    fetched: Notify,
    /// Where the log's lines are taken out.
    log: Option<Log>,
}

/// Lines for the kernel's log, no more of them than a principal may cause.
struct Log {
    pid: u32,
    /// What came of a line that has not ended.
    line: RefCell<Vec<u8>>,
    /// For as long as it is nobody's.
    budget: Lines,
    owner: Rc<Owner>,
}

/// Whose session it is, once it is somebody's.
type Owner = RefCell<Option<Rc<Party>>>;

/// Both of an executor's.
pub(crate) struct Output {
    out: Rc<Kept>,
    err: Rc<Kept>,
    /// Told when something has come.
    come: Rc<Notify>,
    ended: CancellationToken,
    owner: Rc<Owner>,
}

/// What was written.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    /// Whether there may be more.
    pub(crate) more: bool,
}

/// Who reads, and what becomes of that for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The relay, which leaves it in the pipe.
    Fitting,
    /// The relay, which loses it.
    Losing,
    /// Somebody who wants to know now, also where tokio has not heard yet that there is something.
    Now,
}

/// What reading came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    /// There is nothing more for now.
    All,
    /// There may be more at once.
    Some,
    /// The other ends are closed.
    End,
}

impl Log {
    /// Puts a line into it, where one more may be.
    fn tell(&self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let may = match &*self.owner.borrow() {
            Some(party) => party.line(),
            None => self.budget.take(),
        };
        if let Some(unsaid) = may {
            let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
            let text = String::from_utf8_lossy(line.get(..LOGGED_BYTES_MAX).unwrap_or(line));
            let text: String = text.trim_end().chars().map(plain).collect();
            tracing::warn!(target: "bulkhead::executor", pid = self.pid, unsaid, "{text}");
        }
    }
}

impl Kept {
    fn new(pipe: Option<OwnedFd>, log: Option<Log>, pid: u32) -> Rc<Self> {
        let pipe = pipe.and_then(|pipe| {
            let opened = Receiver::from_owned_fd(pipe);
            opened.inspect_err(|error| tracing::warn!(pid, %error, "an executor's output is not read")).ok()
        });
        Rc::new(Self {
            pipe: RefCell::new(pipe.map(Rc::new)),
            bytes: RefCell::default(),
            most: Cell::new(OUTPUT_BYTES_MAX),
            lost: Cell::new(0),
            reads: Cell::new(0),
            fetched: Notify::new(),
            log,
        })
    }

    fn room(&self) -> usize {
        self.most.get().saturating_sub(self.bytes.borrow().len())
    }

    /// Reads what is there, no more than a turn.
    fn read(&self, pipe: &Receiver, reading: Reading) -> Came {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..TURN_BYTES / READ_BYTES {
            if self.lost.get() >= LOST_BYTES_AT_ONCE {
                return Came::All;
            }
            if self.room() < READ_BYTES && reading != Reading::Losing {
                return Came::Some;
            }
            let read = match reading {
                Reading::Now => rustix::io::read(pipe, &mut buffer).map_err(io::Error::from),
                Reading::Fitting | Reading::Losing => pipe.try_read(&mut buffer),
            };
            match read {
                Ok(0) => {
                    self.end_line();
                    return Came::End;
                }
                Ok(bytes) => {
                    // What a client asks for has its own price.
                    if reading != Reading::Now {
                        self.reads.set(self.reads.get() + 1);
                    }
                    self.add(buffer.get(..bytes).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Came::All,
                Err(_) => return Came::End,
            }
        }
        Came::Some
    }

    fn add(&self, bytes: &[u8]) {
        let Some(log) = &self.log else { return self.keep(bytes) };
        let mut line = log.line.borrow_mut();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || line.len() >= LINE_BYTES_MAX {
                self.sort(log, &line);
                line.clear();
            }
        }
    }

    fn end_line(&self) {
        if let Some(log) = &self.log {
            let line = log.line.take();
            self.sort(log, &line);
        }
    }

    /// What is not the executor's own is the program's too.
    fn sort(&self, log: &Log, line: &[u8]) {
        match line.strip_prefix(&[limits::LOG_MARK]) {
            Some(own) => {
                self.lose(line.len());
                log.tell(own);
            }
            None => {
                self.keep(line);
                log.tell(line);
            }
        }
    }

    fn keep(&self, bytes: &[u8]) {
        let kept = bytes.get(..self.room()).unwrap_or(bytes);
        self.bytes.borrow_mut().extend_from_slice(kept);
        self.lose(bytes.len() - kept.len());
    }

    fn lose(&self, bytes: usize) {
        self.lost.set(self.lost.get() + bytes);
    }

    /// Reads until the process has ended, and then once more what its pipe holds.
    ///
    /// What nobody has fetched is there for `after` then, and counts as messages of whoever had the session.
    async fn relay(
        self: Rc<Self>,
        come: Rc<Notify>,
        ended: CancellationToken,
        owner: Rc<Owner>,
        after: Duration,
    ) {
        let Some(pipe) = self.pipe.borrow().clone() else { return };
        tokio::select! {
            biased;
            () = ended.cancelled() => {}
            () = self.follow(&pipe, &come) => {}
        }
        self.most.set(OUTPUT_BYTES_MAX + TURN_BYTES);
        self.lost.set(0);
        self.read(&pipe, Reading::Now);
        self.end_line();
        self.pipe.take();
        drop(pipe);
        come.notify_waiters();
        ended.cancelled().await;
        let counted = owner.borrow().as_ref().map(|party| {
            let kept = self.bytes.borrow().capacity();
            party.count(Counted::MessageBytes, kept as u64)
        });
        if counted.is_some() {
            tokio::time::sleep(after).await;
        }
        self.most.set(0);
        self.bytes.take();
    }

    /// Reads all that comes.
    async fn follow(&self, pipe: &Receiver, come: &Notify) {
        let mut patience = PATIENCE;
        while pipe.readable().await.is_ok() {
            let fetched = async {
                while self.room() < READ_BYTES {
                    self.fetched.notified().await;
                }
            };
            let fits = tokio::time::timeout(patience, fetched).await.is_ok();
            patience = if fits { PATIENCE } else { Duration::ZERO };
            if self.read(pipe, if fits { Reading::Fitting } else { Reading::Losing }) == Came::End {
                break;
            }
            come.notify_waiters();
            if self.lost.get() >= LOST_BYTES_AT_ONCE || self.reads.get() >= READS_AT_ONCE {
                tokio::time::sleep(PAUSE).await;
                self.lost.set(0);
                self.reads.set(0);
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// What was written, and whether there may be more.
    fn take(&self) -> (Vec<u8>, bool) {
        let pipe = self.pipe.borrow().clone();
        let more = pipe.is_some_and(|pipe| self.read(&pipe, Reading::Now) == Came::Some);
        self.fetched.notify_one();
        (self.bytes.take(), more)
    }
}

impl Output {
    /// Begins to read what such a process writes, until it [has ended](Self::end).
    pub(super) fn begin(out: Option<ChildStdout>, err: Option<ChildStderr>, pid: u32) -> Rc<Self> {
        let owner: Rc<Owner> = Rc::default();
        let log = Log { pid, line: RefCell::default(), budget: Lines::new(), owner: Rc::clone(&owner) };
        let out = Kept::new(out.and_then(|pipe| pipe.into_owned_fd().ok()), None, pid);
        let err = Kept::new(err.and_then(|pipe| pipe.into_owned_fd().ok()), Some(log), pid);
        let (come, ended) = (Rc::new(Notify::new()), CancellationToken::new());
        for kept in [&out, &err] {
            let kept = Rc::clone(kept);
            tokio::task::spawn_local(kept.relay(Rc::clone(&come), ended.clone(), Rc::clone(&owner), AFTER));
        }
        Rc::new(Self { out, err, come, ended, owner })
    }

    /// Whose log lines it writes from here on.
    pub(super) fn belongs_to(&self, party: &Rc<Party>) {
        self.owner.replace(Some(Rc::clone(party)));
    }

    /// The process has ended: whoever else has its pipes is not listened to.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// Takes what was written, also what nobody has read yet.
    pub(crate) fn take(&self) -> Written {
        let ((out, more_out), (err, more_err)) = (self.out.take(), self.err.take());
        Written { out, err, more: more_out || more_err }
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
    use crate::{Quota, principals::Principals, transport::door::Peer};

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

    fn party() -> Rc<Party> {
        let all = Quota::UNLIMITED;
        Principals::new(all, all, all, Vec::new()).of(Peer { uid: 1, pid: None })
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

    /// What is left in a pipe.
    fn left(mut reader: io::PipeReader) -> usize {
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let mut bytes = Vec::new();
        drop(io::Read::read_to_end(&mut reader, &mut bytes));
        bytes.len()
    }

    #[test]
    fn a_flood_of_log_lines_costs_no_more_than_its_pace() {
        run(async {
            for (text, lost) in
                [(b"\x1e\n".repeat(TURN_BYTES / 2), true), (b"kept\n\n\n\n".repeat(TURN_BYTES / 8), false)]
            {
                let (reader, mut writer) = io::pipe().unwrap();
                let again = reader.try_clone().unwrap();
                io::Write::write_all(&mut writer, &text).unwrap();
                let log =
                    Log { pid: 1, line: RefCell::default(), budget: Lines::new(), owner: Rc::default() };
                let kept = Kept::new(Some(reader.into()), Some(log), 1);
                // However often somebody asks before the pause is over.
                let taken: usize = (0..10).map(|_| kept.take().0.len()).sum();
                let read = if lost { LOST_BYTES_AT_ONCE } else { TURN_BYTES };
                assert_eq!((taken, left(again)), (if lost { 0 } else { read }, TURN_BYTES - read));
            }
        });
    }

    #[test]
    fn whoever_writes_byte_by_byte_is_read_slowly() {
        run(async {
            let (reader, mut writer) = io::pipe().unwrap();
            // Each byte is a packet of its own, and takes a read.
            let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
            rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::DIRECT).unwrap();
            (0..15).for_each(|_| io::Write::write_all(&mut writer, b"x").unwrap());
            let kept = Kept::new(Some(reader.into()), None, 1);
            let pipe = kept.pipe.borrow().clone().unwrap();
            pipe.readable().await.unwrap();
            for _ in 0..20 {
                io::Write::write_all(&mut writer, b"x").unwrap();
                kept.read(&pipe, Reading::Fitting);
            }
            assert!(kept.reads.get() >= 20, "{}", kept.reads.get());
            assert!(kept.bytes.borrow().len() >= 20, "and nothing of it is lost");
        });
    }

    #[test]
    fn both_outputs_can_be_fetched_after_the_end() {
        run(async {
            let (output, ended) = said("printf 'of a kernel'; printf 'failed' >&2").await;
            assert!(ended);
            output.belongs_to(&party());
            output.end();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let written = output.take();
            assert_eq!((written.out, written.err), (b"of a kernel".to_vec(), b"failed".to_vec()));
        });
    }

    #[test]
    fn the_pipes_end_with_the_process_and_not_with_whoever_else_has_them() {
        run(async {
            let (reader, mut writer) = io::pipe().unwrap();
            let kept = Kept::new(Some(reader.into()), None, 1);
            let (come, ended) = (Rc::new(Notify::new()), CancellationToken::new());
            let owner = Rc::new(RefCell::new(Some(party())));
            let relay =
                Rc::clone(&kept).relay(Rc::clone(&come), ended.clone(), owner, Duration::from_secs(1));
            let relay = tokio::task::spawn_local(relay);
            tokio::task::yield_now().await;
            io::Write::write_all(&mut writer, b"its last words").unwrap();
            ended.cancel();
            // The other end is open still.
            come.notified().await;
            assert_eq!(kept.take(), (b"its last words".to_vec(), false));
            kept.bytes.borrow_mut().extend_from_slice(b"nobody fetches this");
            relay.await.unwrap();
            assert!(kept.take().0.is_empty(), "it is not kept for ever");
            assert_eq!(io::Write::write(&mut writer, b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        });
    }

    #[test]
    fn what_was_written_before_somebody_asks_is_there_when_they_do() {
        run(async {
            let (reader, mut writer) = io::pipe().unwrap();
            let kept = Kept::new(Some(reader.into()), None, 1);
            for turn in 0..100 {
                let text = format!("turn {turn}");
                io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
                // Nothing here lets tokio look.
                assert_eq!(kept.take(), (text.into_bytes(), false));
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
