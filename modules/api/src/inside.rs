//! Who is inside: connections at a module's door, by process.

use std::{
    collections::HashMap,
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bulkhead_client::{Error, ErrorCode};

use crate::door::{CALLERS_MAX, CALLERS_OF_A_PROCESS};

/// Counts connections.
#[derive(Clone, Default)]
pub struct Inside(Arc<Mutex<HashMap<i32, usize>>>);

/// A connection, counted for as long as this is held.
pub struct Entered {
    inside: Inside,
    process: i32,
}

impl Inside {
    /// Lets a caller in. It counts as the process that connected.
    ///
    /// # Errors
    /// `limit reached` where there are [`CALLERS_MAX`] connections, or [`CALLERS_OF_A_PROCESS`] of its process.
    pub fn enter(&self, caller: &UnixStream) -> Result<Entered, Error> {
        let peer = rustix::net::sockopt::socket_peercred(caller.as_fd());
        let process = peer.map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        let mut counts = self.counts();
        let refused = |message| Err(Error::new(ErrorCode::LimitReached, message));
        if counts.values().sum::<usize>() >= CALLERS_MAX {
            return refused(format!("the module has {CALLERS_MAX} callers"));
        }
        let own = counts.entry(process).or_default();
        if *own >= CALLERS_OF_A_PROCESS {
            return refused(format!(
                "process {process} has {CALLERS_OF_A_PROCESS} connections to the module"
            ));
        }
        *own += 1;
        drop(counts);
        Ok(Entered { inside: self.clone(), process })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<i32, usize>> {
        // Counts are right after a panic as before it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.inside.counts();
        if let Some(count) = counts.get_mut(&self.process) {
            *count -= 1;
            if *count == 0 {
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
        let inside = Inside::default();
        let (caller, _other) = UnixStream::pair().unwrap();
        let mut own: Vec<_> = (0..CALLERS_OF_A_PROCESS).map(|_| inside.enter(&caller).unwrap()).collect();
        assert_eq!(inside.enter(&caller).err().unwrap().code, ErrorCode::LimitReached);
        own.pop();
        own.push(inside.enter(&caller).unwrap());
        assert!(inside.enter(&caller).is_err());
        drop(own);
        assert!(inside.counts().is_empty(), "nothing is kept of who has gone");
    }
}
