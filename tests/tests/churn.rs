//! Sessions that come and go all the time leave the standby as it is.
//!
//! `BULKHEAD_CHURN_SECONDS` chooses another time than usual.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::Connection;
use bulkhead_schema::bulkhead_capnp::{gpu_copy_session, result};
use bulkhead_tests::{kernel::Kernel, neighbour::Neighbour, patience::until};

/// How long sessions come and go where nobody asks for more.
const SECONDS: u64 = 10;
/// How many, a second.
const SESSIONS_A_SECOND: u32 = 10;

/// Asks for a session and memory in it, and hangs up so long after: while it is opened, while memory is made, or later.
fn hang_up(socket: &Path, after: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let connection = Connection::open(socket, "churn").await.expect("the kernel serves");
        let working = async {
            let response = connection.kernel.open_session_request().send().promise.await.ok()?;
            let Ok(result::Ok(Ok(opened))) = response.get().ok()?.get_result().ok()?.which() else {
                return None;
            };
            let session = gpu_copy_session::Client { client: opened.get_session().ok()?.client };
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

#[test]
fn a_standby_is_ready_while_sessions_come_and_go() {
    let seconds = std::env::var("BULKHEAD_CHURN_SECONDS").ok();
    let seconds = seconds.map_or(SECONDS, |seconds| seconds.parse().expect("a number of seconds"));
    let kernel = Kernel::with(&["--standby"]);
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    until("a standby is ready", || kernel.status().standby_pid != 0);
    let before = kernel.status();
    let (over, opened) = (AtomicBool::new(false), AtomicU32::new(0));
    let (mut looks, mut ready, mut other) = (0_u32, 0_u32, 0_u32);
    thread::scope(|scope| {
        let (kernel, over, opened) = (&kernel, &over, &opened);
        // All at once, so that some open while others close: some do work, some end at once, and of some the client hangs
        // up while they are opened.
        for worker in 0..SESSIONS_A_SECOND {
            scope.spawn(move || {
                let pause = Duration::from_secs(1);
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let number = opened.fetch_add(1, Ordering::Relaxed);
                    if worker % 2 == 0 {
                        hang_up(&kernel.socket(), Duration::from_micros(u64::from(number % 40) * 1000));
                    } else {
                        let session = kernel.open("churn");
                        if number.is_multiple_of(3) {
                            drop(session.allocate(1 << 20));
                        }
                    }
                    thread::sleep(pause.saturating_sub(began.elapsed()));
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until {
            let status = kernel.status();
            looks += 1;
            ready += u32::from(status.standby_pid != 0);
            other += u32::from(status.standby_pid != before.standby_pid);
            neighbour.work();
            thread::sleep(Duration::from_millis(20));
        }
        over.store(true, Ordering::Relaxed);
    });
    let opened = opened.load(Ordering::Relaxed);
    println!(
        "{opened} sessions came and went in {seconds} s; a standby was ready in {ready} of {looks} looks"
    );
    assert!(opened > 0 && looks > 0);
    assert!(u64::from(ready) * 100 >= u64::from(looks) * 99, "ready in {ready} of {looks} looks");
    assert_eq!(other, 0, "it is the same standby all the time");
    neighbour.work();
    let after = kernel.status();
    println!("{} executors were started in all", after.executor_starts);
    until("what came and went is gone", || kernel.status().sessions.len() == before.sessions.len());
}
