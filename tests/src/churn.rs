//! Sessions that come and go all the time.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::Connection;

use crate::{calls, kernel::Kernel, status::local};

/// How many sessions come, a second.
pub const SESSIONS_A_SECOND: u32 = 10;

/// Asks for a session and memory in it, and hangs up so long after: while it is opened, while memory is made, or later.
fn hang_up(socket: &Path, after: Duration) {
    local(async {
        let connection = Connection::open(socket, "churn").await.expect("the kernel serves");
        let working = async {
            let session = calls::open(&connection, "churn").await.ok()?.copying();
            let asked: Vec<_> = (0..8)
                .map(|_| {
                    let mut allocate = session.allocate_request();
                    allocate.get().set_bytes(1 << 20);
                    allocate.send().promise
                })
                .collect();
            for allocated in asked {
                drop(allocated.await.ok()?);
            }
            Some(())
        };
        tokio::time::timeout(after, working).await.unwrap_or_default();
    });
}

/// Opens sessions until it is over, and counts them. Some do work, some end at once, and of some the client hangs up
/// while they are opened; all at once, so that some open while others close.
pub fn come_and_go(kernel: &Kernel, over: &AtomicBool, opened: &AtomicU32) {
    let work = |worker: u32| {
        let pause = Duration::from_secs(1);
        while !over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let number = opened.fetch_add(1, Ordering::Relaxed);
            if worker.is_multiple_of(2) {
                hang_up(&kernel.socket(), Duration::from_micros(u64::from(number % 40) * 1000));
            } else {
                let session = kernel.open("churn");
                if number.is_multiple_of(3) {
                    drop(session.allocate(1 << 20));
                }
            }
            thread::sleep(pause.saturating_sub(began.elapsed()));
        }
    };
    thread::scope(|scope| {
        for worker in 0..SESSIONS_A_SECOND {
            scope.spawn(move || work(worker));
        }
    });
}
