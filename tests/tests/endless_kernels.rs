//! Kernels that run on, and whoever waits for a moment when none does: nobody is held up for ever, whoever comes back, and
//! nobody holds himself.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{Access, Error, ErrorCode, Launch, Moment, Parameters, Pattern, Session, Stream, Uses};
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

/// Adds a number up so often.
const WORKS: &str = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry works(.param .u64 to, .param .u32 n)\n{\n
    .reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [to];\nld.param.u32 %r1, [n];\nmov.u32 %r2, 1;\n
    AGAIN:\nmad.lo.u32 %r2, %r2, 1664525, %r1;\nadd.s32 %r1, %r1, -1;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra AGAIN;\n
    st.global.u32 [%rd1], %r2;\nret;\n}\n";

#[test]
fn who_waits_for_the_device_behind_others_is_not_ended_for_who_loads_code() {
    const SECONDS: u64 = 5;
    const STREAMS: usize = 40;
    let kernel = Kernel::with(&["--loading-seconds", &SECONDS.to_string()]);
    let innocent = kernel.open("innocent");
    let image = innocent.load_image(WORKS.as_bytes()).unwrap();
    let word = innocent.allocate(4).unwrap();
    // Kernels that are shorter than anybody is ended for, and that leave others little of the device.
    let long = LASTS.replace("450000000", &(SECONDS * 700_000_000).to_string());
    let hogs: Vec<_> = (0..2).map(|_| kernel.open("hog")).collect();
    let images: Vec<_> = hogs.iter().map(|hog| hog.load_image(long.as_bytes()).unwrap()).collect();
    let goes_on = AtomicBool::new(true);
    thread::scope(|scope| {
        for (hog, image) in hogs.iter().zip(&images) {
            let streams: Vec<_> = (0..STREAMS).map(|_| hog.create_stream(0).unwrap()).collect();
            let goes_on = &goes_on;
            scope.spawn(move || {
                let entry = image.entry("lasts").unwrap();
                let launch = Launch { grid: [8, 1, 1], ..ONE };
                let submit =
                    |stream: &Stream| hog.launch(*stream, &entry, &launch, &Parameters::new()).is_ok();
                while goes_on.load(Ordering::Relaxed) && streams.iter().all(submit) {
                    thread::sleep(Duration::from_millis(SECONDS * 700));
                }
            });
        }
        scope.spawn(|| {
            while goes_on.load(Ordering::Relaxed) {
                let entry = image.entry("works").unwrap();
                for _ in 0..20 {
                    let parameters = Parameters::new().buffer(&word).u32(500_000);
                    innocent.launch(Stream::DEFAULT, &entry, &ONE, &parameters).unwrap();
                }
                innocent.wait(innocent.fence(Stream::DEFAULT)).unwrap();
            }
        });
        thread::sleep(Duration::from_secs(1));
        let loaded = kernel.open("loader").load_image(NEW);
        goes_on.store(false, Ordering::Relaxed);
        loaded.unwrap();
    });
    innocent.status().unwrap();
}

/// A kernel whose block of 1,024 threads takes so many bytes of local memory for each, and goes on while a word is 0.
fn large(bytes: u32) -> String {
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry large(.param .u64 word)\n{\n\
        .local .align 16 .b8 array[BYTES];\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n\
        ld.param.u64 %rd1, [word];\nmov.u32 %r1, %tid.x;\nst.local.u32 [array], %r1;\n\
        AGAIN:\nld.volatile.global.u32 %r2, [%rd1];\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 bra AGAIN;\n\
        cvt.u64.u32 %rd2, %r2;\nand.b64 %rd2, %rd2, 1020;\nmov.u64 %rd3, array;\nadd.s64 %rd3, %rd3, %rd2;\n\
        ld.local.u32 %r3, [%rd3];\nor.b32 %r3, %r3, 1;\nst.global.u32 [%rd1], %r3;\nret;\n}\n";
    text.replace("BYTES", &bytes.to_string())
}

/// Blocks that take all there is for large ones are endless; others with more streams wait behind them, and did nothing.
#[test]
fn who_has_more_streams_waiting_behind_an_endless_kernel_is_not_ended_for_it() {
    let kernel = Kernel::with(&["--loading-seconds", "3"]);
    let launch = Launch { block: [1024, 1, 1], ..ONE };
    let waits = kernel.open("waits");
    let image = waits.load_image(large(80 << 10).as_bytes()).unwrap();
    let (entry, ready) = (image.entry("large").unwrap(), waits.allocate(4).unwrap());
    waits.fill(Stream::DEFAULT, ready.range(0, 4), Pattern::Bits32(1)).unwrap();
    let streams: Vec<_> = (0..3).map(|_| waits.create_stream(0).unwrap()).collect();
    let hogs: Vec<_> = (0..4).map(|_| kernel.open("hog")).collect();
    for hog in &hogs {
        let image = hog.load_image(large(495 << 10).as_bytes()).unwrap();
        let word = hog.allocate(4).unwrap();
        hog.launch(
            Stream::DEFAULT,
            &image.entry("large").unwrap(),
            &launch,
            &Parameters::new().buffer(&word),
        )
        .unwrap();
        std::mem::forget((image, word));
    }
    thread::sleep(Duration::from_secs(1));
    for stream in &streams {
        waits.launch(*stream, &entry, &launch, &Parameters::new().buffer(&ready)).unwrap();
    }
    thread::sleep(Duration::from_millis(500));
    assert!(!waits.is_done(waits.fence(streams[0])).unwrap(), "it had room");
    kernel.open("loader").load_image(NEW).unwrap();
    for stream in &streams {
        waits.wait(waits.fence(*stream)).unwrap();
    }
    waits.status().unwrap();
    assert!(hogs.iter().any(|hog| hog.status().is_err()));
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
