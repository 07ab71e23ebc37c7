//! The host half of a key-value counter: who opens it gets counters of its own, and a limit of what one call may add.

mod window;

use bulkhead_client::Error;
use bulkhead_module::{Badge, Closed, Service, Window, codes, refuse};

/// Bytes of an account in `gates.cu`: its badge, and its limit.
const ACCOUNT_BYTES: u64 = 16;
/// Bytes of an instance's counters.
const COUNTERS_BYTES: usize = 8 * 1024;

struct Counter;

fn account(badge: Badge) -> u64 {
    window::ACCOUNTS + badge.slot() as u64 * ACCOUNT_BYTES
}

fn counters(badge: Badge) -> u64 {
    window::COUNTERS + (badge.slot() * COUNTERS_BYTES) as u64
}

impl Service for Counter {
    type Instance = ();

    const GATES: u64 = window::GATES;
    const INITIAL: &'static [u8] = window::INITIAL;
    const INSTANCES_MAX: usize = (window::ACCOUNTS_BYTES / ACCOUNT_BYTES) as usize;

    fn open(&mut self, window: &Window, badge: Badge, words: &str) -> Result<(), Error> {
        let limit: u64 = match words.split_once('=') {
            None if words.is_empty() => u64::MAX,
            Some(("limit", most)) => most.parse().map_err(|_| refuse(format!("{most:?} is no limit")))?,
            _ => return Err(refuse("`limit=NUMBER` belongs here, or nothing")),
        };
        // Nothing of whoever had these counters before.
        window.write(counters(badge), &[0; COUNTERS_BYTES])?;
        window.write(account(badge) + 8, &limit.to_le_bytes())?;
        // Last: from here on the gates know the badge.
        window.write(account(badge), &badge.value().to_le_bytes())
    }

    fn quiesce(&mut self, window: &Window, badge: Badge, _: &mut ()) -> Result<(), Error> {
        window.write(account(badge), &u64::from(codes::REVOKED).to_le_bytes())
    }

    fn cut_off(&mut self, _: &Window, _: Badge, _: &mut ()) -> Result<(), Error> {
        // A gate adds in one step: it leaves nothing half done.
        Ok(())
    }

    fn close(&mut self, window: &Window, badge: Badge, _: &mut ()) -> Closed {
        let mut left = [0; COUNTERS_BYTES];
        if window.read(counters(badge), &mut left).is_ok() {
            let used = left.as_chunks::<8>().0.iter().filter(|counter| **counter != [0; 8]).count();
            bulkhead_module::report(format_args!("instance {badge:?} leaves {used} counters"));
        }
        Closed::Done
    }
}

fn main() -> std::process::ExitCode {
    bulkhead_module::main(Counter)
}
