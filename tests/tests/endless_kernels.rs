//! Kernels that run on, and whoever waits for a moment when none does: nobody is held up for ever, whoever comes back, and
//! nobody holds himself.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{Access, Error, ErrorCode, Moment, Parameters, Session, Stream, Uses};
use bulkhead_tests::{
    kernel::Kernel,
    neighbour::Neighbour,
    patience::until,
    tenant::{NEW, ONE, PAGE_BYTES, SHARING, Tenant},
};

/// Opens a session and has a kernel that does not end run in it, until it is told or the session is over.
fn runs_on(kernel: &Kernel, goes_on: &AtomicBool) -> Result<(), Error> {
    let session = Session::open(&kernel.options("comes back"))?;
    let image = session.load_image(SHARING)?;
    let word = session.allocate(4)?;
    let parameters = Parameters::new().u32(u32::MAX).u64(word.address()).u32(1);
    session.launch(Stream::DEFAULT, &image.entry("persist")?, &ONE, &parameters)?;
    while goes_on.load(Ordering::Relaxed) {
        session.status()?;
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Lasts for 450 ms.
const LASTS: &str = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry lasts()\n{\n
    .reg .pred %p<2>;\n.reg .b64 %rd<4>;\n
    mov.u64 %rd1, %globaltimer;\nadd.s64 %rd2, %rd1, 450000000;\n
    AGAIN:\nmov.u64 %rd3, %globaltimer;\nsetp.lt.u64 %p1, %rd3, %rd2;\n@%p1 bra AGAIN;\nret;\n}\n";

/// Each waits for its kernels, so that there is a moment as soon as the gate is closed for as long as one lasts.
#[test]
fn kernels_of_several_sessions_that_last_for_some_time_keep_nobody_from_loading_code() {
    const SESSIONS: usize = 4;
    const BOUND: Duration = Duration::from_secs(40);
    let kernel = Kernel::with(&["--loading-seconds", "600"]);
    let goes_on = AtomicBool::new(true);
    let sessions: Vec<_> = (0..SESSIONS).map(|_| kernel.open("lasts")).collect();
    let images: Vec<_> =
        sessions.iter().map(|session| session.load_image(LASTS.as_bytes()).unwrap()).collect();
    let loader = kernel.open("loader");
    thread::scope(|scope| {
        for (session, image) in sessions.iter().zip(&images) {
            scope.spawn(|| {
                let begun = Instant::now();
                while begun.elapsed() < BOUND && goes_on.load(Ordering::Relaxed) {
                    let entry = image.entry("lasts").unwrap();
                    session.launch(Stream::DEFAULT, &entry, &ONE, &Parameters::new()).unwrap();
                    session.wait(session.fence(Stream::DEFAULT)).unwrap();
                }
                goes_on.store(false, Ordering::Relaxed);
            });
        }
        thread::sleep(Duration::from_secs(1));
        let loaded = loader.load_image(NEW);
        let in_time = goes_on.swap(false, Ordering::Relaxed);
        loaded.unwrap();
        assert!(in_time, "code was loaded when the others had given up");
    });
}

#[test]
fn whoever_comes_back_with_an_endless_kernel_keeps_nobody_from_loading_code() {
    const SESSIONS: usize = 4;
    /// Until then all others have had their moment, on a busy machine too.
    const BOUND: Duration = Duration::from_secs(20);
    let kernel = Kernel::with(&["--loading-seconds", "2"]);
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let goes_on = AtomicBool::new(true);
    thread::scope(|scope| {
        for _ in 0..SESSIONS {
            scope.spawn(|| {
                while goes_on.load(Ordering::Relaxed) {
                    drop(runs_on(&kernel, &goes_on));
                }
            });
        }
        until("all run", || kernel.status().sessions.len() == SESSIONS + 1);
        let loader = kernel.open("loader");
        // They give up at last, so that this ends.
        scope.spawn(|| {
            let begun = Instant::now();
            while begun.elapsed() < BOUND && goes_on.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(100));
            }
            goes_on.store(false, Ordering::Relaxed);
        });
        let loaded = loader.load_image(NEW);
        let in_time = goes_on.swap(false, Ordering::Relaxed);
        loaded.unwrap();
        assert!(in_time, "code was loaded when the others had given up");
    });
    // Who has short kernels was held up, and no more.
    neighbour.work();
    neighbour.session().status().unwrap();
}

#[test]
fn a_session_whose_load_waits_for_its_own_kernel_gives_back_what_is_taken_back() {
    let kernel = Kernel::with(&["--loading-seconds", "600"]);
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let arena = giver.arena(PAGE_BYTES, 1);
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let mapped = taker.session.accept(&taker.restore(share.token(Uses::One).unwrap())).unwrap();
    let _running = taker.runs(mapped.address());
    // Nobody waits for this thread: where nobody ends the load, it is the end of this process that does.
    let session = taker.session.clone();
    let loading = thread::spawn(move || session.load_image(NEW).map(drop));
    thread::sleep(Duration::from_millis(500));
    assert!(!loading.is_finished(), "code was loaded beside a kernel that runs");
    let revocation = share.revoke().unwrap();
    until("the kernel is ended", || {
        revocation.wait(Moment::Quiescent, Duration::from_millis(200)).unwrap().reached
    });
    until("the load is ended", || loading.is_finished());
    assert_eq!(loading.join().unwrap().unwrap_err().code, ErrorCode::Revoked);
    assert_eq!(taker.session.status().unwrap_err().code, ErrorCode::Revoked);
    kernel.without(&["taker"]);
    assert!(giver.words(arena.range(0, 4096)).iter().all(|word| *word == 1));
}
