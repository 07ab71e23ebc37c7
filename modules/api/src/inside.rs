//! Who is inside: connections at a module's door, by process.

use std::{
    collections::HashMap,
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bulkhead_client::{Error, ErrorCode};

/// Of one process: callers that have said nothing yet. Whoever says nothing has a place for ten seconds all the same.
const SILENT_MAX: usize = 16;

/// Callers of a process.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    all: usize,
    silent: usize,
}

/// Counts callers.
#[derive(Clone)]
pub struct Inside {
    counts: Arc<Mutex<HashMap<i32, Count>>>,
    most: usize,
    of_process: usize,
}

/// A connection, counted for as long as this is held.
pub struct Entered {
    inside: Inside,
    process: i32,
    is_silent: bool,
}

impl Entered {
    /// The process that connected.
    pub(crate) fn process(&self) -> i32 {
        self.process
    }

    /// The caller has said what it wants.
    pub fn has_spoken(&mut self) {
        if std::mem::replace(&mut self.is_silent, false)
            && let Some(count) = self.inside.counts().get_mut(&self.process)
        {
            count.silent -= 1;
        }
    }
}

impl Inside {
    /// Lets in as many at a time, and so many of one process.
    #[must_use]
    pub fn new(most: usize, of_process: usize) -> Self {
        Self { counts: Arc::default(), most, of_process }
    }

    /// Lets a caller in. It counts as the process that connected.
    ///
    /// # Errors
    /// `limit reached` where there are as many as may be, or as many of its process.
    pub fn enter(&self, caller: &UnixStream) -> Result<Entered, Error> {
        let peer = rustix::net::sockopt::socket_peercred(caller.as_fd());
        let process = peer.map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        let mut counts = self.counts();
        let refused = |message| Err(Error::new(ErrorCode::LimitReached, message));
        if counts.values().map(|count| count.all).sum::<usize>() >= self.most {
            return refused(format!("the module has {} callers", self.most));
        }
        let own = counts.get(&process).copied().unwrap_or_default();
        if own.all >= self.of_process {
            return refused(format!("process {process} has {} places, as many as one may", own.all));
        }
        if own.silent >= SILENT_MAX {
            return refused(format!("process {process} has {SILENT_MAX} connections that say nothing"));
        }
        counts.insert(process, Count { all: own.all + 1, silent: own.silent + 1 });
        drop(counts);
        Ok(Entered { inside: self.clone(), process, is_silent: true })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<i32, Count>> {
        // Counts are right after a panic as before it.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.inside.counts();
        if let Some(count) = counts.get_mut(&self.process) {
            count.all -= 1;
            count.silent -= usize::from(self.is_silent);
            if count.all == 0 {
                counts.remove(&self.process);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_no_more_than_its_share_of_the_door() {
        let inside = Inside::new(100, 64);
        let (caller, _other) = UnixStream::pair().unwrap();
        let spoken = || {
            let mut entered = inside.enter(&caller)?;
            entered.has_spoken();
            Ok::<_, Error>(entered)
        };
        let mut own: Vec<_> = (0..64).map(|_| spoken().unwrap()).collect();
        assert_eq!(inside.enter(&caller).err().unwrap().code, ErrorCode::LimitReached);
        own.pop();
        own.push(inside.enter(&caller).unwrap());
        assert!(inside.enter(&caller).is_err());
        drop(own);
        assert!(inside.counts().is_empty(), "nothing is kept of who has gone");
        let silent: Vec<_> = (0..SILENT_MAX).map(|_| inside.enter(&caller).unwrap()).collect();
        assert!(inside.enter(&caller).is_err());
        drop(silent);
        assert!(inside.enter(&caller).is_ok());
    }
}
