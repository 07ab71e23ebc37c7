//! Notices that the warden hangs.
//!
//! A call of the driver's that waits for a kernel keeps other calls waiting, and whoever needs what its thread holds: the
//! warden, too, who would end that kernel. None is known that does so beside a kernel that runs on, but drivers change. Where
//! the warden has not come around for long the executor ends, and a standby, or a new one, goes on.

use std::{
    sync::{
        Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use bulkhead_gpu::Error as DeviceError;

use crate::control::{link::Link, lost::lose_device};

/// How often the warden is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// After so many looks in vain the executor ends. They are counted, and no clock is read: a process that is stopped for a while,
/// or has no processor, has looked as seldom as its warden.
const LOOKS: u32 = 60;
/// `CUDA_ERROR_LAUNCH_TIMEOUT`.
const LAUNCH_TIMEOUT: u32 = 702;

/// Counts how often the warden came around.
#[derive(Debug, Default)]
pub(crate) struct Pulse(AtomicU64);

impl Pulse {
    pub(crate) fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What was seen of a pulse.
#[derive(Debug, Default)]
struct Seen {
    beats: u64,
    in_vain: u32,
}

impl Seen {
    /// Whether it has stopped.
    fn look(&mut self, pulse: &Pulse) -> bool {
        let beats = pulse.0.load(Ordering::Relaxed);
        self.in_vain = if beats == self.beats { self.in_vain + 1 } else { 0 };
        self.beats = beats;
        self.in_vain >= LOOKS
    }
}

/// The life of the thread that looks. It calls no device, and takes no lock.
pub(crate) fn run(pulse: &Weak<Pulse>, link: &Link) {
    let mut seen = Seen::default();
    while let Some(pulse) = pulse.upgrade() {
        if seen.look(&pulse) {
            let reason = format!(
                "a call of the driver has kept the executor waiting for {} s",
                LOOK.as_secs() * u64::from(LOOKS)
            );
            lose_device(link, &DeviceError::Lost { code: LAUNCH_TIMEOUT, reason });
        }
        drop(pulse);
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warden_that_does_not_come_around_is_noticed_and_a_slow_one_is_not() {
        let (pulse, mut seen) = (Pulse::default(), Seen::default());
        for _ in 0..3 {
            assert!((1..LOOKS).all(|_| !seen.look(&pulse)));
            pulse.beat();
        }
        assert!(!seen.look(&pulse), "it has come around");
        assert!((1..LOOKS).all(|_| !seen.look(&pulse)));
        assert!(seen.look(&pulse));
    }
}
