//! `cuLogs*`: what is said on stderr, kept for the program to read back, and told to functions of its own.
//!
//! A function is called when the call that said something is about to return: nothing of the library's is locked then.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CString;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::abi::{Callback, InOut, InOutMaybe, LogCallback, Out, OutBytes, OutMaybe, Text, thread_id};
use crate::status::{Answer, Status};

/// Bytes that are kept, as CUDA documents it.
const BYTES_MAX: usize = 25_600;
/// Functions that a program may register.
const CALLBACKS_MAX: usize = 1024;
/// Messages that a thread may have to tell at a time.
const PENDING_MAX: usize = 64;
/// `CU_LOG_LEVEL_ERROR`.
const ERROR: u32 = 0;
/// What stands before messages where others are missing.
const MISSING: &str = "(earlier messages are not here: the log is short, or there was no room)\n";

/// The last lines, and who is told.
struct Log {
    lines: VecDeque<String>,
    bytes: usize,
    /// The number of the next line.
    next: u32,
    callbacks: Vec<(u64, LogCallback, Callback)>,
    last_handle: u64,
}

static LOG: Mutex<Log> =
    Mutex::new(Log { lines: VecDeque::new(), bytes: 0, next: 0, callbacks: Vec::new(), last_handle: 0 });

thread_local! {
    /// What this thread's call has said so far.
    static PENDING: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// The time of day, UTC.
fn time() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, milliseconds) = (since.as_secs() % 86_400, since.subsec_millis());
    format!("{:02}:{:02}:{:02}.{milliseconds:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

impl Log {
    fn add(&mut self, message: &str) {
        let line = format!("[{}][{}][Bulkhead][E] {message}\n", time(), thread_id());
        self.bytes += line.len();
        self.lines.push_back(line);
        self.next = self.next.wrapping_add(1);
        while self.bytes > BYTES_MAX
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len();
        }
    }

    /// The lines from a number on, or all, whether some of them are gone, and the number of the next one.
    fn since(&self, number: Option<u32>) -> (Vec<String>, bool, u32) {
        let kept = self.lines.len();
        let all = usize::try_from(self.next).unwrap_or(usize::MAX);
        let behind = |number: u32| usize::try_from(self.next.wrapping_sub(number)).unwrap_or(all);
        let wanted = number.map_or(all, behind).min(all);
        (self.lines.iter().skip(kept.saturating_sub(wanted)).cloned().collect(), wanted > kept, self.next)
    }
}

/// Notes what is said.
pub(crate) fn note(message: &str) {
    let mut log = LOG.lock();
    log.add(message);
    if log.callbacks.is_empty() {
        return;
    }
    drop(log);
    // A thread that ends has nobody to tell.
    let pushed = PENDING.try_with(|pending| {
        if let Ok(mut pending) = pending.try_borrow_mut()
            && pending.len() < PENDING_MAX
        {
            pending.push(message.to_owned());
        }
    });
    pushed.unwrap_or_default();
}

/// Tells the program's functions what this thread's call has said.
#[cold]
pub(crate) fn tell() {
    let messages = PENDING.try_with(RefCell::take).unwrap_or_default();
    // What a function itself is told it is not told again.
    if messages.is_empty() || IS_TELLING.replace(true) {
        return;
    }
    let callbacks = LOG.lock().callbacks.clone();
    for message in messages {
        let length = message.len();
        let Ok(message) = CString::new(message) else { continue };
        for (_, LogCallback(function), data) in &callbacks {
            function(data.pointer(), ERROR, message.as_ptr().cast_mut(), length);
        }
    }
    IS_TELLING.set(false);
}

pub(crate) fn register(function: LogCallback, data: Callback, to: OutMaybe<u64>) -> Answer {
    let mut log = LOG.lock();
    if log.callbacks.len() >= CALLBACKS_MAX {
        return Err(Status::OUT_OF_MEMORY);
    }
    log.last_handle += 1;
    let handle = log.last_handle;
    log.callbacks.push((handle, function, data));
    to.set(handle);
    Ok(())
}

pub(crate) fn unregister(handle: u64) -> Answer {
    let callbacks = &mut LOG.lock().callbacks;
    let before = callbacks.len();
    callbacks.retain(|(known, ..)| *known != handle);
    if callbacks.len() < before { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

fn check(flags: u32) -> Answer {
    if flags == 0 { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

pub(crate) fn current(to: Out<u32>, flags: u32) -> Answer {
    check(flags)?;
    to.set(LOG.lock().next);
    Ok(())
}

/// Adds the lines to a file.
pub(crate) fn dump_to_file(from: InOutMaybe<u32>, path: Text, flags: u32) -> Answer {
    check(flags)?;
    let (lines, is_cut, next) = LOG.lock().since(from.get());
    let missing = if is_cut { MISSING } else { "" };
    let text = format!("{missing}{}", lines.concat());
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path.0);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|_| Status::INVALID_VALUE)?;
    from.set(next);
    Ok(())
}

/// The last of the lines that fit, behind a word on what is missing. `None` where not one of them fits.
fn fit(lines: &[String], is_cut: bool, space: usize) -> Option<String> {
    let mut left = space;
    let all: usize = lines.iter().map(String::len).sum();
    let is_short = is_cut || all > space;
    if is_short {
        left = left.saturating_sub(MISSING.len());
    }
    let fits = |line: &&String| {
        let rest = left.checked_sub(line.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let count = lines.iter().rev().take_while(fits).count();
    let shown = lines.get(lines.len() - count..).unwrap_or_default().concat();
    match (lines.is_empty(), shown.is_empty()) {
        (true, _) => Some(String::new()),
        (false, true) => None,
        (false, false) => Some(format!("{}{shown}", if is_short { MISSING } else { "" })),
    }
}

/// Writes the lines into a buffer, with a NUL behind them.
pub(crate) fn dump_to_memory(from: InOutMaybe<u32>, to: OutBytes, room: InOut<usize>, flags: u32) -> Answer {
    check(flags)?;
    let (lines, is_cut, next) = LOG.lock().since(from.get());
    let has_room = room.get() > 0;
    let text = fit(&lines, is_cut, room.get().saturating_sub(1));
    room.set(text.as_ref().map_or(0, String::len));
    let text = text.ok_or(Status::INVALID_VALUE)?;
    if has_room {
        to.write(format!("{text}\0").as_bytes());
    }
    from.set(next);
    Ok(())
}
