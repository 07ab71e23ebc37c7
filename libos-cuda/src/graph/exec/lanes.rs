//! Streams of the library's own, in which branches of graphs run.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::abi::NullStream;
use crate::driver::Driver;
use crate::order::{Order, Target};
use crate::stream::PRIORITY_LEAST;

/// How many there are at most: a session has 64 streams, and they are the program's.
const STREAMS: usize = 8;

/// They are made when a launch needs them first, and shared by all graphs. Graphs that share one run one after the other
/// there, which every order of their own allows: whatever waits was submitted after what it waits for.
#[derive(Default)]
pub(crate) struct Lanes {
    streams: Mutex<Vec<Target>>,
    next: AtomicUsize,
}

impl Lanes {
    /// The place of a graph's first lane: graphs that are launched side by side share as few streams as may be.
    pub(super) fn place(&self, lanes: usize) -> usize {
        self.next.fetch_add(lanes.saturating_sub(1), Ordering::Relaxed) % STREAMS
    }

    /// As many streams as a graph wants from its place on, or as there are.
    pub(super) fn take(&self, driver: &Driver, first: usize, count: usize) -> Vec<Target> {
        let mut streams = self.streams.lock();
        while streams.len() < STREAMS.min(first + count) {
            // Of no context: they outlive all of them.
            let made = driver.streams.create(&driver.session, Order::NonBlocking, PRIORITY_LEAST, 0);
            let Ok(made) = made.and_then(|handle| driver.streams.target(NullStream::Legacy, handle)) else {
                break;
            };
            streams.push(made);
        }
        if streams.is_empty() {
            return Vec::new();
        }
        let count = count.min(streams.len());
        (0..count).filter_map(|lane| streams.get((first + lane) % streams.len()).copied()).collect()
    }
}
