//! The log: lines on standard error, which nobody waits for.
//!
//! Whoever reads standard error may stop reading, and clients cause lines: a process that waited until a line is written
//! could be stopped by either. So lines go through a queue to a thread of their own; what does not fit is dropped and
//! counted, and the count is written when there is room again. What a terminal would act on is escaped.

use std::{
    io::{self, Write},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::{self, MakeWriter},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::plain::plain;

/// Lines that wait to be written.
const LINES_MAX: usize = 1024;
/// Of a line; longer ones are cut.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// How long the end of a process waits for what it said last.
const FAREWELL: Duration = Duration::from_millis(200);

static LOG: OnceLock<Log> = OnceLock::new();

/// The queue of lines.
struct Log {
    lines: SyncSender<Vec<u8>>,
    queued: AtomicU64,
    /// Of those that were queued.
    written: AtomicU64,
    dropped: AtomicU64,
    /// What each line begins with.
    mark: &'static str,
}

impl Log {
    fn new(mark: &'static str) -> (Self, Receiver<Vec<u8>>) {
        let (lines, queue) = sync_channel(LINES_MAX);
        let count = || AtomicU64::new(0);
        (Self { lines, queued: count(), written: count(), dropped: count(), mark }, queue)
    }

    /// Queues a line, or counts it. Never waits.
    fn say(&self, text: &str) {
        let mut end = text.len().min(LINE_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let line = plain(text.get(..end).unwrap_or_default().trim_end_matches('\n'));
        let line = format!("{}{line}\n", self.mark);
        match self.lines.try_send(line.into_bytes()) {
            Ok(()) => self.queued.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.dropped.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Writes what is queued. Never ends, and waits as long as whoever reads does.
    fn write(&self, queue: &Receiver<Vec<u8>>, out: &mut impl Write) {
        while let Ok(line) = queue.recv() {
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            let note = if dropped > 0 {
                format!("{}bulkhead: {dropped} lines were dropped\n", self.mark)
            } else {
                String::new()
            };
            // There is nobody to tell where it cannot be written.
            out.write_all(note.as_bytes()).and_then(|()| out.write_all(&line)).unwrap_or_default();
            self.written.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One event on its way into the queue.
struct Line<'a>(&'a Log, Vec<u8>);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.0.say(&String::from_utf8_lossy(&self.1));
    }
}

struct Writer(&'static Log);

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self.0, Vec::new())
    }
}

/// What is written: `LEVEL` and `TARGET=LEVEL`, with commas between them. What cannot be read asks for nothing.
fn targets(asked: &str, unless_told: &str) -> Targets {
    let read =
        |text: &str| Some(text).filter(|text| !text.is_empty() && misread_of(text).is_none())?.parse().ok();
    read(asked).or_else(|| read(unless_told)).unwrap_or_default()
}

/// The first part that is neither a level, nor `TARGET=LEVEL`, nor a target of ours.
fn misread_of(asked: &str) -> Option<&str> {
    let is_level = |text: &str| text.trim().parse::<LevelFilter>().is_ok();
    let is_read = |part: &&str| match part.split_once('=') {
        Some((_, level)) => is_level(level),
        None => is_level(part) || part.trim().starts_with("bulkhead"),
    };
    asked.split(',').find(|part| !is_read(part)).filter(|_| !asked.is_empty())
}

/// What is said of `BULKHEAD_LOG` where it cannot be read.
pub fn misread() -> Option<String> {
    let asked = std::env::var("BULKHEAD_LOG").unwrap_or_default();
    let part = misread_of(&asked)?;
    Some(format!(
        "BULKHEAD_LOG: {part:?} is none of off, error, warn, info, debug, trace, and no TARGET=LEVEL: the log is as if it were \
         not set"
    ))
}

/// Begins to write what `BULKHEAD_LOG` asks for, or else `unless_told`; and what panics say. Each line begins with `mark`.
pub fn begin(unless_told: &str, mark: &'static str) {
    let (log, queue) = Log::new(mark);
    let log = LOG.get_or_init(|| log);
    let (runs, running) = sync_channel(1);
    let written = thread::Builder::new().name("log".into()).spawn(move || {
        // Whoever began may have gone.
        runs.send(()).unwrap_or_default();
        log.write(&queue, &mut io::stderr());
    });
    // A thread makes system calls as it starts, which a compile process gives up next.
    if let Err(error) = written.and_then(|_| running.recv().map_err(io::Error::other)) {
        eprintln!("bulkhead: there is no log: {error}");
        return;
    }
    let lines = fmt::layer().with_ansi(false).with_writer(Writer(log));
    let asked = std::env::var("BULKHEAD_LOG").unwrap_or_default();
    tracing_subscriber::registry().with(targets(&asked, unless_told)).with(lines).init();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = thread::current();
        log.say(&format!("thread '{}' {panic}", thread.name().unwrap_or("unnamed")));
        end();
    }));
}

/// Says something that is no event.
pub fn say(text: &str) {
    if let Some(log) = LOG.get() {
        log.say(text);
    }
}

/// Waits a moment for what was said last to be written.
pub fn end() {
    let Some(log) = LOG.get() else { return };
    let (said, until) = (log.queued.load(Ordering::Relaxed), Instant::now() + FAREWELL);
    while log.written.load(Ordering::Relaxed) < said && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_level_is_told_and_takes_nothing_away() {
        for asked in ["", "debug", "WARN", "bulkhead::audit", "bulkhead::audit=off,info", "warn, hyper=error"]
        {
            assert_eq!(misread_of(asked), None, "{asked}");
        }
        for (asked, part) in [("verbose", "verbose"), ("wran", "wran"), ("info,bulkhead=all", "bulkhead=all")]
        {
            assert_eq!(misread_of(asked), Some(part), "{asked}");
            assert_eq!(targets(asked, "warn").to_string(), "warn");
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted_and_nobody_waits() {
        let (log, queue) = Log::new("");
        for line in 0..LINES_MAX + 7 {
            log.say(&format!("line {line}"));
        }
        let mut out = Vec::new();
        thread::scope(|scope| {
            let (log, out) = (&log, &mut out);
            scope.spawn(move || {
                let _stop = queue;
                let mut room = std::iter::from_fn(|| _stop.try_recv().ok());
                let first = room.next().unwrap();
                let (sender, one) = sync_channel(1);
                sender.send(first).unwrap();
                drop(sender);
                log.write(&one, out);
            });
        });
        assert_eq!(String::from_utf8(out).unwrap(), "bulkhead: 7 lines were dropped\nline 0\n");
    }

    #[test]
    fn what_is_asked_for_is_written_and_else_what_is_said_where_nothing_is() {
        use tracing::Level;
        let unless_told = "warn,bulkhead::audit::session=info";
        for asked in ["", "a=b=c"] {
            let targets = targets(asked, unless_told);
            assert!(targets.would_enable("bulkhead::audit::session", &Level::INFO), "{asked}");
            assert!(!targets.would_enable("bulkhead::audit", &Level::INFO), "{asked}");
            assert!(targets.would_enable("anything", &Level::WARN), "{asked}");
        }
        let asked = targets("debug", unless_told);
        assert!(
            asked.would_enable("bulkhead", &Level::DEBUG) && !asked.would_enable("bulkhead", &Level::TRACE)
        );
        let asked = targets("bulkhead_kernel=info", unless_told);
        assert!(asked.would_enable("bulkhead_kernel::server", &Level::INFO));
        assert!(!asked.would_enable("bulkhead::audit::session", &Level::INFO));
    }

    #[test]
    fn a_line_is_one_line_whatever_is_in_it() {
        let (log, queue) = Log::new("");
        log.say("a name\nof two lines\x1b[2J\n");
        log.say(&"\u{e9}".repeat(LINE_BYTES_MAX));
        assert_eq!(queue.recv().unwrap(), b"a name\\u{a}of two lines\\u{1b}[2J\n");
        assert!(queue.recv().unwrap().len() <= LINE_BYTES_MAX + 1);
    }
}
