//! Sessions that come and go all the time leave the standby as it is.
//!
//! `BULKHEAD_CHURN_SECONDS` chooses another time than usual.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_tests::{churn::come_and_go, kernel::Kernel, neighbour::Neighbour, patience::until};

/// How long sessions come and go where nobody asks for more.
const SECONDS: u64 = 10;

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
        scope.spawn(move || come_and_go(kernel, over, opened));
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
