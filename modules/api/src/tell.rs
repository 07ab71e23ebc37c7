//! What a host half tells its operator. Whoever reads that may be gone, or not read: `println!` would panic, or block, and with it
//! the thread that serves. So a thread of its own writes, and what it has no room for is counted and dropped.

use std::{
    fmt::Display,
    io::{self, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, SyncSender},
    },
    thread,
};

/// Lines that wait to be written.
const LINES_MAX: usize = 256;

/// Tells what is as it should be, over stdout. Nobody waits until it is written.
pub fn report(line: impl Display) {
    static LINES: OnceLock<Lines> = OnceLock::new();
    LINES.get_or_init(|| Lines::to(io::stdout())).add(line.to_string());
}

/// Tells what is not, over stderr. Nobody waits until it is written.
pub fn warn(line: impl Display) {
    static LINES: OnceLock<Lines> = OnceLock::new();
    LINES.get_or_init(|| Lines::to(io::stderr())).add(line.to_string());
}

/// Tells, before the process ends, why it does.
pub fn end(line: impl Display) {
    writeln!(io::stderr(), "{line}").unwrap_or_default();
}

/// Lines on their way.
struct Lines {
    waiting: SyncSender<String>,
    dropped: Arc<AtomicU64>,
}

impl Lines {
    fn to(mut place: impl Write + Send + 'static) -> Self {
        let (waiting, lines) = mpsc::sync_channel::<String>(LINES_MAX);
        let dropped = Arc::<AtomicU64>::default();
        let missing = Arc::clone(&dropped);
        // Where no thread starts nothing is told.
        let writes = move || {
            for line in lines {
                let missing = missing.swap(0, Ordering::Relaxed);
                if missing > 0 {
                    writeln!(place, "{missing} lines were dropped: nobody read them").unwrap_or_default();
                }
                writeln!(place, "{line}").unwrap_or_default();
            }
        };
        thread::Builder::new().spawn(writes).map(drop).unwrap_or_default();
        Self { waiting, dropped }
    }

    fn add(&self, line: String) {
        if self.waiting.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    #[test]
    fn who_does_not_read_holds_up_nobody_and_is_told_how_much_it_missed() {
        let (reads, writes) = io::pipe().unwrap();
        let lines = Lines::to(writes);
        // More than a pipe and the queue have room for.
        let long = "x".repeat(1000);
        for _ in 0..2000 {
            lines.add(long.clone());
        }
        let told = thread::spawn(move || {
            let told: Vec<_> = BufReader::new(reads).lines().map_while(Result::ok).collect();
            let count = |what: &str| told.iter().filter(|line| line.contains(what)).count();
            (count("xxx"), count("were dropped"))
        });
        while lines.dropped.load(Ordering::Relaxed) > 0 {
            lines.add("last".to_owned());
            thread::yield_now();
        }
        drop(lines);
        let (told, notices) = told.join().unwrap();
        assert!((1..2000).contains(&told) && notices > 0, "{told} lines, {notices} notices");
    }
}
