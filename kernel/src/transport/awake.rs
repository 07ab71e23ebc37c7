//! Staying awake for a client that is talking: going to sleep and being woken costs more than most calls.

use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How long after a client's latest message the kernel polls before it sleeps. A client that keeps the kernel awake
/// costs at most the processor time that it takes to keep talking.
const AWAKE: Duration = Duration::from_micros(50);

/// Polls after each message that `heard` tells of. Never ends.
pub(crate) async fn stay_awake(heard: &Notify) {
    loop {
        heard.notified().await;
        let until = Instant::now() + AWAKE;
        while Instant::now() < until {
            // Comes back after the sockets have been looked at.
            tokio::task::yield_now().await;
        }
    }
}
