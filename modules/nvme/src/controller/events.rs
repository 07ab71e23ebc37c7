//! The error log, and asynchronous events.

use std::collections::VecDeque;

use crate::formats::{AsyncEvent, CommandId, ERROR_ENTRY_BYTES, ErrorEntry};

/// How many events wait for a request; later ones are in the error log only.
pub const EVENTS_WAITING_MAX: usize = 16;
/// How many asynchronous event requests wait for an event (AERL).
pub(super) const REQUESTS_MAX: usize = 4;
/// How many entries the error log keeps (ELPE).
pub(super) const ERROR_ENTRIES_MAX: usize = 64;

/// What is to be told to the host.
#[derive(Debug, Default)]
pub(super) struct Events {
    waiting: VecDeque<AsyncEvent>,
    requests: VecDeque<CommandId>,
    /// One event was told, and its log page not read since: others of its type wait.
    masked: bool,
    /// Newest first.
    errors: VecDeque<ErrorEntry>,
    error_count: u64,
}

impl Events {
    /// A reset: requests and events end, the log stays.
    pub(super) fn reset(&mut self) {
        self.waiting.clear();
        self.requests.clear();
        self.masked = false;
    }

    /// Adds an entry to the log, and numbers it.
    pub(super) fn record(&mut self, mut entry: ErrorEntry) {
        self.error_count += 1;
        entry.count = self.error_count;
        self.errors.truncate(ERROR_ENTRIES_MAX - 1);
        self.errors.push_front(entry);
    }

    /// An event is to be told.
    pub(super) fn tell(&mut self, event: AsyncEvent) {
        if self.waiting.len() < EVENTS_WAITING_MAX {
            self.waiting.push_back(event);
        }
    }

    /// Takes a request for an event; whether there was room.
    pub(super) fn request(&mut self, command: CommandId) -> bool {
        let room = self.requests.len() < REQUESTS_MAX;
        if room {
            self.requests.push_back(command);
        }
        room
    }

    /// Takes a request back; whether there was one of that id.
    pub(super) fn abort(&mut self, command: CommandId) -> bool {
        let before = self.requests.len();
        self.requests.retain(|request| *request != command);
        self.requests.len() < before
    }

    /// The next event, with the request that it completes.
    pub(super) fn next(&mut self) -> Option<(CommandId, AsyncEvent)> {
        if self.masked || self.waiting.is_empty() {
            return None;
        }
        let command = self.requests.pop_front()?;
        let event = self.waiting.pop_front()?;
        self.masked = true;
        Some((command, event))
    }

    /// The host read the log page: the next event may be told.
    pub(super) fn unmask(&mut self) {
        self.masked = false;
    }

    /// How many errors there were.
    pub(super) fn error_count(&self) -> u64 {
        self.error_count
    }

    /// The error log, as long as it can be.
    pub(super) fn error_log(&self) -> Vec<u8> {
        let mut log: Vec<u8> = self.errors.iter().flat_map(ErrorEntry::encode).collect();
        log.resize(ERROR_ENTRIES_MAX * ERROR_ENTRY_BYTES, 0);
        log
    }
}
