//! Isolated sessions that are suspended.

use super::*;

/// The number of a session.
fn number(kernel: &Kernel, name: &str) -> String {
    kernel.status().session(name).unwrap().id.to_string()
}

fn operator(kernel: &Kernel, what: &str, session: &str) -> process::Done {
    process::run(process::bulkhead(&[what, session, "--socket"]).arg(kernel.socket()), PATIENCE)
}

#[test]
fn a_suspended_session_has_no_memory_on_the_device_and_goes_on_where_it_was() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let guarded = Tenant::new(&kernel, "guarded");
    let alone = Tenant::over(isolated(&kernel, "isolated"));
    for (name, tenant) in [("guarded", &guarded), ("isolated", &alone)] {
        let arena = tenant.arena(8 * PAGE_BYTES, 9);
        let (before, id) = (kernel.status(), number(&kernel, name));
        let done = operator(&kernel, "suspend", &id);
        assert!(done.code() == Some(0) && done.stdout.contains(&format!("resume {id}")), "{}", done.told());
        let status = kernel.status();
        let session = status.session(name).unwrap();
        assert!(session.suspended && session.swapped_bytes >= 8 * PAGE_BYTES, "{session:?}");
        assert!(status.charged_bytes + 8 * PAGE_BYTES <= before.charged_bytes);
        // Twice is once.
        assert_eq!(operator(&kernel, "suspend", &id).code(), Some(0));
        let fence = tenant.launch("store", &Parameters::new().u64(arena.address()).u32(10));
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!tenant.session.is_done(fence).unwrap(), "{name} works though it is suspended");
        assert!(kernel.status().session(name).unwrap().suspended);
        neighbour.work();
        let done = operator(&kernel, "resume", &id);
        assert_eq!(done.code(), Some(0), "{}", done.told());
        tenant.session.wait(fence).unwrap();
        assert_eq!((tenant.loads(arena.address()), tenant.loads(arena.address() + 4)), (10, 9));
        assert_eq!(kernel.status().session(name).unwrap().swapped_bytes, 0);
        let again = operator(&kernel, "resume", &id);
        assert!(again.code() == Some(1) && again.stderr.contains("not suspended"), "{}", again.told());
    }
    let nobody = operator(&kernel, "suspend", "4711");
    assert!(nobody.code() == Some(1) && nobody.stderr.contains("no session 4711"), "{}", nobody.told());
    neighbour.work();
}

#[test]
fn a_suspended_session_can_end_and_one_that_cannot_be_moved_goes_on() {
    let kernel = Kernel::with(&["--swap-memory", "192MiB"]);
    let before = kernel.status();
    let tenant = Tenant::over(isolated(&kernel, "ended"));
    let arena = tenant.arena(PAGE_BYTES, 1);
    assert_eq!(operator(&kernel, "suspend", &number(&kernel, "ended")).code(), Some(0));
    drop((arena, tenant));
    assert_eq!(kernel.without(&["ended"]).charged_bytes, before.charged_bytes);
    let tenant = Tenant::over(isolated(&kernel, "large"));
    let arena = tenant.arena(256 << 20, 2);
    let done = operator(&kernel, "suspend", &number(&kernel, "large"));
    assert_eq!(done.code(), Some(1), "there is no room for it: {}", done.told());
    assert!(!kernel.status().session("large").unwrap().suspended);
    assert_eq!(tenant.loads(arena.address()), 2);
}

#[test]
fn a_session_stays_suspended_where_there_is_no_room_for_it() {
    let kernel = Kernel::with(&["--device-memory", "512MiB"]);
    let tenant = Tenant::new(&kernel, "away");
    let arena = tenant.arena(64 << 20, 4);
    let id = number(&kernel, "away");
    assert_eq!(operator(&kernel, "suspend", &id).code(), Some(0));
    let other = isolated(&kernel, "other");
    let others = (0..20).map_while(|_| other.allocate_arena(64 << 20).ok()).collect::<Vec<_>>();
    let refused = operator(&kernel, "resume", &id);
    assert_eq!(refused.code(), Some(1), "{}", refused.told());
    assert!(kernel.status().session("away").unwrap().suspended);
    drop((others, other));
    kernel.without(&["other"]);
    let done = operator(&kernel, "resume", &id);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    assert_eq!(tenant.loads(arena.address()), 4);
}

#[test]
fn plain_programs_are_guarded_and_those_of_machine_code_alone_are_not() {
    let kernel = Kernel::start();
    let run = |name: &str| process::run(&mut kernel.run_command(&program(name)), PATIENCE);
    // The last is linked of units, whose PTX lies apart.
    for name in ["vecadd", "relocatable"] {
        let done = run(name);
        assert_eq!(done.code(), Some(0), "{}", done.told());
        assert!(!done.stderr.contains("isolated session"), "{}", done.told());
    }
    // Memory of others is what isolated sessions do not have.
    let done = run("ipc");
    assert_eq!(done.code(), Some(0), "{}", done.told());
}

#[test]
fn who_allocates_in_a_suspended_session_is_told_that_it_is_suspended() {
    let kernel = Kernel::start();
    let session = isolated(&kernel, "suspended");
    assert_eq!(operator(&kernel, "suspend", &number(&kernel, "suspended")).code(), Some(0));
    let error = session.allocate(64 << 20).err().unwrap();
    assert!(error.code == ErrorCode::Unavailable && error.message.contains("suspended"), "{error}");
}

#[test]
fn a_call_of_a_suspended_session_waits_for_no_longer_than_its_session_is_there() {
    let kernel = Kernel::start();
    let tenant = Tenant::over(isolated(&kernel, "waits"));
    let arena = tenant.arena(PAGE_BYTES, 3);
    let id = number(&kernel, "waits");
    assert_eq!(operator(&kernel, "suspend", &id).code(), Some(0));
    let session = tenant.session.clone();
    let waiting = std::thread::spawn(move || session.allocate_arena(64 << 20).err().map(|error| error.code));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!waiting.is_finished(), "it waits");
    assert_eq!(operator(&kernel, "evict", &id).code(), Some(0));
    assert!(waiting.join().unwrap().is_some());
    drop((arena, tenant));
    kernel.without(&["waits"]);
    // The kernel has nothing left to do.
    let ticks = || process_ticks(kernel.pid());
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = ticks();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(ticks() - before < 50, "{} of 100 ticks", ticks() - before);
}

/// Processor time of a process so far, in hundredths of a second.
fn process_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_session_is_suspended_however_often_it_allocates_and_whoever_gives_up_asking() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "busy");
    let arena = tenant.arena(PAGE_BYTES, 6);
    let id = number(&kernel, "busy");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                drop(tenant.session.allocate_arena(64 << 20).unwrap());
            }
        });
        for round in 0..6 {
            // An operator that is killed in the middle, and one that is not.
            let mut asking = process::bulkhead(&["suspend", &id, "--socket"]);
            let mut asking = asking.arg(kernel.socket()).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5 * round));
            drop(asking.kill());
            asking.wait().unwrap();
            let done = operator(&kernel, "suspend", &id);
            assert_eq!(done.code(), Some(0), "{}", done.told());
            assert!(kernel.status().session("busy").unwrap().suspended);
            let done = operator(&kernel, "resume", &id);
            assert_eq!(done.code(), Some(0), "{}", done.told());
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        worker.join().unwrap();
    });
    assert_eq!(tenant.loads(arena.address()), 6);
}

#[test]
fn the_memory_of_a_suspended_session_is_not_waited_for_by_others() {
    let kernel = Kernel::start();
    let (owner, other) = (Tenant::new(&kernel, "owner"), Tenant::new(&kernel, "other"));
    let arena = owner.arena(PAGE_BYTES, 3);
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let share = other.restore(share.token(Uses::One).unwrap());
    assert_eq!(operator(&kernel, "suspend", &number(&kernel, "owner")).code(), Some(0));
    let begun = Instant::now();
    let refused = other.session.accept(&share).err().unwrap();
    assert!(refused.message.contains("suspended"), "{refused}");
    assert!(begun.elapsed() < PATIENCE / 4, "{:?}", begun.elapsed());
    assert_eq!(operator(&kernel, "resume", &number(&kernel, "owner")).code(), Some(0));
    other.session.accept(&share).unwrap();
}

#[test]
fn status_tells_a_session_that_is_to_be_suspended_from_one_that_is() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "busy");
    let word = tenant.session.allocate(4).unwrap();
    let running = tenant.runs(word.address());
    let id = number(&kernel, "busy");
    let mut asking = process::bulkhead(&["suspend", &id, "--socket"]);
    let mut asking = asking.arg(kernel.socket()).spawn().unwrap();
    let table = || process::run(process::bulkhead(&["status", "--socket"]).arg(kernel.socket()), PATIENCE);
    until("it is being suspended", || kernel.status().session("busy").unwrap().suspending);
    assert!(!kernel.status().session("busy").unwrap().suspended);
    assert!(table().stdout.contains(", suspending"), "{}", table().told());
    running.end();
    assert!(asking.wait().unwrap().success());
    let status = kernel.status();
    let session = status.session("busy").unwrap();
    assert!(session.suspended && !session.suspending, "{session:?}");
    assert!(table().stdout.contains(", suspended"), "{}", table().told());
}
