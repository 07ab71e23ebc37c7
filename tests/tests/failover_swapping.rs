//! A standby and swapping at once: the executor is lost while some sessions are away, some are on the device and some are
//! on their way, and every session keeps every byte.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bulkhead_client::{Buffer, DeviceRange, Error, ErrorCode, Pattern, Stream};
use bulkhead_tests::{
    kernel::Kernel,
    neighbour::numbers,
    patience::until,
    process,
    tenant::{PAGE_BYTES, Tenant},
};

const MIB: u64 = 1 << 20;
/// Of each session beside the arena of its small buffers, which is twice as large.
const EACH: u64 = 32 * MIB;
/// Room for two sessions, with the sinks of three.
const DEVICE: &str = "400MiB";
const FIRST: Stream = Stream::DEFAULT;

fn protected() -> Kernel {
    let kernel = Kernel::with(&["--standby", "--device-memory", DEVICE, "--swap-memory", "2GiB"]);
    until("a standby is ready", || kernel.status().standby_pid != 0);
    kernel
}

/// Kills the executor with SIGKILL, once there is somebody who goes on, and waits until that has everybody.
fn lose_executor(kernel: &Kernel, tenants: &[&Tenant]) {
    until("a standby is ready", || kernel.status().standby_pid != 0);
    let before: Vec<_> = tenants.iter().map(|tenant| tenant.session.moves()).collect();
    process::kill(kernel.status().executor_pid);
    for (tenant, before) in tenants.iter().zip(before) {
        until("a session moves", || tenant.session.moves() > before);
    }
}

/// Does something, again where it was lost with the executor. Answers how often it was.
fn in_the_end<T>(mut work: impl FnMut() -> Result<T, Error>) -> (T, u32) {
    let mut lost = 0;
    loop {
        match work() {
            Ok(done) => return (done, lost),
            Err(error) if error.code == ErrorCode::WorkLost => lost += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

fn words(tenant: &Tenant, range: DeviceRange) -> Result<Vec<u32>, Error> {
    let mut found = vec![0; usize::try_from(range.bytes).unwrap()];
    tenant.session.read(FIRST, &mut found, range)?;
    Ok(numbers(&found))
}

fn fill(tenant: &Tenant, range: DeviceRange, value: u32) -> Result<(), Error> {
    let fence = tenant.session.fill(FIRST, range, Pattern::Bits32(value))?;
    tenant.session.wait(fence)
}

fn holds(tenant: &Tenant, arena: &Buffer, value: u32) {
    let (found, _) = in_the_end(|| words(tenant, arena.all()));
    let wrong = found.iter().position(|word| *word != value);
    assert_eq!(wrong.map(|at| (at, found[at])), None, "not all words are {value}");
}

#[test]
fn sessions_that_are_away_on_the_device_or_on_their_way_keep_every_byte_when_the_executor_is_killed() {
    let seed = std::env::var("BULKHEAD_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut seed: u64 = seed
        .unwrap_or_else(|| u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos()));
    println!("seed {seed}");
    let kernel = protected();
    let tenants: Vec<Tenant> = (0..3).map(|index| Tenant::new(&kernel, &format!("tenant {index}"))).collect();
    let arenas: Vec<Buffer> = tenants.iter().map(|tenant| tenant.arena(EACH, 0)).collect();
    let stop = AtomicBool::new(false);
    let rounds: Vec<AtomicU32> = tenants.iter().map(|_| AtomicU32::new(0)).collect();
    const LOSSES: u32 = 5;
    thread::scope(|scope| {
        let workers: Vec<_> = tenants
            .iter()
            .zip(&arenas)
            .zip(&rounds)
            .map(|((tenant, arena), rounds)| {
                let stop = &stop;
                scope.spawn(move || {
                    let (mut value, mut lost) = (0, 0);
                    while !stop.load(Ordering::Relaxed) {
                        match fill(tenant, arena.all(), value + 1) {
                            Ok(()) => {
                                value += 1;
                                rounds.fetch_add(1, Ordering::Relaxed);
                            }
                            // Done, not done, or done in part.
                            Err(error) => {
                                assert_eq!(error.code, ErrorCode::WorkLost, "{error}");
                                lost += 1;
                                let (found, more) = in_the_end(|| words(tenant, arena.all()));
                                lost += more;
                                let wrong = found.iter().find(|word| ![value, value + 1].contains(word));
                                assert_eq!(wrong, None, "neither {value} nor what comes next");
                                lost += in_the_end(|| fill(tenant, arena.all(), value)).1;
                            }
                        }
                        let (found, more) = in_the_end(|| words(tenant, arena.all()));
                        lost += more;
                        let wrong = found.iter().position(|word| *word != value);
                        assert_eq!(wrong.map(|at| (at, found[at])), None, "not all words are {value}");
                    }
                    (value, lost)
                })
            })
            .collect();
        let everybody: Vec<&Tenant> = tenants.iter().collect();
        for loss in 1..=LOSSES {
            let is_over = || workers.iter().any(thread::ScopedJoinHandle::is_finished);
            let all_went_on = || rounds.iter().all(|rounds| rounds.load(Ordering::Relaxed) >= loss);
            until("everybody goes on", || is_over() || all_went_on());
            if is_over() {
                break;
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            thread::sleep(Duration::from_millis(seed >> 40 & 255));
            lose_executor(&kernel, &everybody);
        }
        stop.store(true, Ordering::Relaxed);
        for (worker, arena) in workers.into_iter().zip(&arenas) {
            let (value, lost) = worker.join().unwrap();
            println!("{value} rounds at {:#x}, {lost} errors", arena.address());
            assert!(value > 0 && lost <= LOSSES, "{lost} errors in {LOSSES} losses");
        }
    });
    let status = kernel.status();
    println!("{status:?}");
    assert_eq!(status.failovers, LOSSES);
    assert!(status.swaps.0 >= 3 && status.swaps.1 >= 3, "{status:?}");
    assert!(status.charged_bytes <= 400 * MIB, "{status:?}");
}

#[test]
fn a_session_that_is_away_stays_away_and_keeps_its_bytes_through_one_loss_after_the_other() {
    let kernel = protected();
    let (away, there) = (Tenant::new(&kernel, "away"), Tenant::new(&kernel, "there"));
    let kept = away.arena(EACH, 0xa);
    let freed = away.arena(PAGE_BYTES, 0xb);
    let large = there.arena(160 * MIB, 0xc);
    let swapped = || kernel.status().session("away").unwrap().swapped_bytes;
    assert!(swapped() >= EACH + PAGE_BYTES);
    // Freed between two losses; the second standby is told of what is away as the first was not.
    drop(freed);
    for _ in 0..2 {
        lose_executor(&kernel, &[&away, &there]);
        assert!(swapped() >= EACH);
        holds(&there, &large, 0xc);
    }
    // What it pushes brings it back, to the same addresses, and the other goes.
    holds(&away, &kept, 0xa);
    away.stores(kept.address() + 8, 0xd);
    assert_eq!(kernel.status().session("away").unwrap().swapped_bytes, 0);
    assert!(kernel.status().session("there").unwrap().swapped_bytes >= 160 * MIB);
    lose_executor(&kernel, &[&away, &there]);
    let (found, _) = in_the_end(|| words(&away, kept.range(8, 4)));
    assert_eq!(found, [0xd]);
    holds(&there, &large, 0xc);
    assert_eq!(kernel.status().failovers, 3);
}

#[test]
fn an_allocation_that_was_under_way_is_made_by_the_executor_that_goes_on() {
    let kernel = protected();
    let tenant = Tenant::new(&kernel, "busy");
    let arena = tenant.arena(PAGE_BYTES, 7);
    // Its own kernel runs, so that new memory has to wait.
    let _runs = tenant.runs(arena.address());
    let made = thread::scope(|scope| {
        let making = scope.spawn(|| tenant.session.allocate_arena(3 * PAGE_BYTES));
        thread::sleep(Duration::from_millis(200));
        assert!(!making.is_finished(), "nothing was under way");
        lose_executor(&kernel, &[&tenant]);
        making.join().unwrap()
    });
    let made = made.unwrap();
    in_the_end(|| fill(&tenant, made.all(), 9));
    holds(&tenant, &made, 9);
    // The standby after this one knows it too.
    lose_executor(&kernel, &[&tenant]);
    holds(&tenant, &made, 9);
    holds(&tenant, &arena, 7);
}
