//! The context dies, the data lives: when the executor is lost, a standby goes on with every session's memory and code;
//! what was in flight is lost, and said to be.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{Access, Buffer, ErrorCode, Options, Parameters, Pattern, Session, Stream, Uses};
use bulkhead_tests::{
    child,
    kernel::Kernel,
    neighbour::Neighbour,
    patience::{PATIENCE, until, within},
    place, process,
    tenant::{PAGE_BYTES, Tenant},
};
use rustix::process::Rlimit;

const FIRST: Stream = Stream::DEFAULT;

fn protected() -> Kernel {
    let kernel = Kernel::with(&["--standby"]);
    until("a standby is ready", || kernel.status().standby_pid != 0);
    kernel
}

/// Kills the executor with SIGKILL and waits until every tenant has moved.
fn lose_executor(kernel: &Kernel, tenants: &[&Tenant]) -> Duration {
    let before: Vec<_> = tenants.iter().map(|tenant| tenant.session.moves()).collect();
    let executor = kernel.status().executor_pid;
    let start = Instant::now();
    process::kill(executor);
    for (tenant, before) in tenants.iter().zip(before) {
        while tenant.session.moves() == before {
            assert!(start.elapsed() < PATIENCE, "a session does not move");
            thread::sleep(Duration::from_millis(1));
        }
    }
    let took = start.elapsed();
    assert_ne!(kernel.status().executor_pid, executor);
    took
}

/// Work that was in flight is reported once, by whoever waits next.
fn told_of_loss(tenant: &Tenant) {
    let filled = tenant.session.allocate(4).and_then(|word| {
        tenant
            .session
            .fill(FIRST, word.all(), Pattern::Bits32(1))
            .and_then(|fence| tenant.session.wait(fence))
    });
    if let Err(error) = filled {
        assert_eq!(error.code, ErrorCode::WorkLost, "{error}");
    }
}

#[test]
fn sessions_keep_every_byte_and_go_on_when_their_executor_is_killed() {
    let kernel = protected();
    let tenants = [Tenant::new(&kernel, "one"), Tenant::new(&kernel, "two")];
    let arenas: Vec<Buffer> = tenants.iter().map(|tenant| tenant.arena(3 * PAGE_BYTES, 0xda7a)).collect();
    let small = tenants[0].session.allocate(4096).unwrap();
    tenants[0].fill(small.all(), 0x11);
    let shared = arenas[0].share(0, PAGE_BYTES, Access::Read).unwrap();
    let mapped = tenants[1].session.accept(&tenants[1].restore(shared.token(Uses::One).unwrap())).unwrap();
    let pinned = tenants[0].session.allocate_host(4096).unwrap();
    pinned.write(0, &[5; 4096]);

    let took = lose_executor(&kernel, &[&tenants[0], &tenants[1]]);
    println!("all sessions moved after {took:?}");
    for tenant in &tenants {
        told_of_loss(tenant);
    }
    for (tenant, arena) in tenants.iter().zip(&arenas) {
        assert!(tenant.words(arena.all()).iter().all(|word| *word == 0xda7a), "memory was lost");
        // By the same addresses, with the same code.
        tenant.stores(arena.address() + 8, 0xc0de);
        assert_eq!(tenant.loads(arena.address() + 8), 0xc0de);
    }
    assert!(tenants[0].words(small.all()).iter().all(|word| *word == 0x11));
    assert_eq!(tenants[1].loads(mapped.address() + 8), 0xc0de, "what was shared is shared still");
    tenants[1].stores(mapped.address(), 0xbad);
    assert_eq!(tenants[0].loads(arenas[0].address()), 0xda7a, "and read-only still");
    let copied = tenants[0].session.copy_to_device(FIRST, small.all(), pinned.span(0, 4096)).unwrap();
    tenants[0].session.wait(copied).unwrap();
    assert_eq!(tenants[0].words(small.range(0, 4)), [0x0505_0505]);
    // And everything new works.
    let fresh = tenants[0].arena(PAGE_BYTES, 3);
    assert_eq!(tenants[0].loads(fresh.address()), 3);
    let stream = tenants[1].session.create_stream(0).unwrap();
    let fence = tenants[1].session.fill(stream, arenas[1].range(0, 4), Pattern::Bits32(4)).unwrap();
    tenants[1].session.wait(fence).unwrap();
    assert_eq!(kernel.status().failovers, 1);
}

#[test]
fn work_in_flight_is_lost_with_a_typed_error_and_nobody_waits_for_ever() {
    let kernel = protected();
    let tenant = Tenant::new(&kernel, "busy");
    let arena = tenant.arena(PAGE_BYTES, 7);
    let mut last = tenant.runs(arena.address()).fence();
    for _ in 0..100 {
        last = tenant.launch("store", &Parameters::new().u64(arena.address()).u32(8));
    }
    let waited = thread::scope(|scope| {
        let waiting = scope.spawn(|| tenant.session.wait(last));
        thread::sleep(Duration::from_millis(50));
        lose_executor(&kernel, &[&tenant]);
        waiting.join().unwrap()
    });
    assert_eq!(waited.unwrap_err().code, ErrorCode::WorkLost);
    // Told once; from here on all is well.
    tenant.stores(arena.address() + 4, 9);
    assert_eq!(tenant.words(arena.range(4, 4)), [9]);
}

#[test]
fn a_second_standby_takes_over_from_the_first() {
    let kernel = protected();
    let tenant = Tenant::new(&kernel, "survivor");
    let arena = tenant.arena(PAGE_BYTES, 1);
    for round in 1..4 {
        until("a standby is ready", || kernel.status().standby_pid != 0);
        lose_executor(&kernel, &[&tenant]);
        told_of_loss(&tenant);
        let words = tenant.words(arena.all());
        let wrong = words.iter().filter(|word| **word != round).count();
        assert_eq!(wrong, 0, "round {round}: {wrong} of {} words, the first is {}", words.len(), words[0]);
        tenant.fill(arena.all(), round + 1);
        // What comes between two losses is known to the next standby too.
        let more = tenant.arena(PAGE_BYTES, 50 + round);
        assert_eq!(tenant.loads(more.address()), 50 + round);
    }
    assert_eq!(kernel.status().failovers, 3);
}

#[test]
fn every_loss_is_told_once() {
    let kernel = protected();
    let tenant = Tenant::new(&kernel, "told");
    let arena = tenant.arena(PAGE_BYTES, 0);
    for round in 1..4 {
        until("a standby is ready", || kernel.status().standby_pid != 0);
        lose_executor(&kernel, &[&tenant]);
        let waited = |value| {
            let fence = tenant.session.fill(FIRST, arena.all(), Pattern::Bits32(value)).unwrap();
            tenant.session.wait(fence).map_err(|error| error.code)
        };
        assert_eq!(waited(round), Err(ErrorCode::WorkLost), "round {round}");
        assert_eq!(waited(round), Ok(()), "round {round}");
    }
}

#[test]
fn what_was_revoked_before_the_loss_stays_revoked_after_it() {
    let kernel = protected();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let arena = giver.arena(PAGE_BYTES, 5);
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let mapped = taker.session.accept(&taker.restore(share.token(Uses::One).unwrap())).unwrap();
    let revocation = share.revoke().unwrap();
    assert!(revocation.wait(bulkhead_client::Moment::Quiescent, PATIENCE).unwrap().reached);
    lose_executor(&kernel, &[&giver, &taker]);
    told_of_loss(&taker);
    told_of_loss(&giver);
    taker.stores(mapped.address(), 0xbad);
    assert!(giver.words(arena.all()).iter().all(|word| *word == 5));
    assert_ne!(taker.loads(mapped.address()), 5);
}

#[test]
fn the_loss_of_the_standby_itself_is_nobodys_loss() {
    let kernel = protected();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let standby = kernel.status().standby_pid;
    process::kill(standby);
    neighbour.work();
    until("there is another standby", || ![0, standby].contains(&kernel.status().standby_pid));
    neighbour.work();
    assert_eq!((kernel.status().failovers, neighbour.session().moves()), (0, 0));
}

/// Works until its session has moved, and it has worked on behind that.
fn be_a_client_that_goes_on(socket: &Path) {
    let options = Options { socket: socket.to_owned(), name: "goes on".into(), ..Options::default() };
    let session = Session::open(&options).expect("a session");
    let word = session.allocate(4).expect("memory");
    loop {
        let moved = session.moves() > 0;
        let fence = session.fill(FIRST, word.all(), Pattern::Bits32(1)).expect("the session lives");
        match session.wait(fence) {
            Ok(()) if moved => return,
            Ok(()) => thread::sleep(Duration::from_millis(1)),
            Err(error) => assert_eq!(error.code, ErrorCode::WorkLost, "{error}"),
        }
    }
}

#[test]
fn a_client_without_a_place_for_its_next_page_goes_on_when_there_is_one() {
    if let Some(socket) = child::role() {
        return be_a_client_that_goes_on(&socket);
    }
    let kernel = protected();
    let mut client = child::start(
        "a_client_without_a_place_for_its_next_page_goes_on_when_there_is_one",
        &kernel.socket(),
    );
    until("it has a session", || kernel.status().session("goes on").is_some_and(|one| one.buffer_bytes > 0));
    until("the standby knows it", || kernel.status().standby_pid != 0);
    let before = process::descriptors_max(client.id());
    process::set_descriptors_max(client.id(), Rlimit { current: Some(0), ..before });
    let executor = kernel.status().executor_pid;
    process::kill(executor);
    until("the standby serves", || ![0, executor].contains(&kernel.status().executor_pid));
    // Long enough for it to fetch its page more than once.
    thread::sleep(Duration::from_millis(300));
    assert!(client.try_wait().unwrap().is_none());
    process::set_descriptors_max(client.id(), before);
    let start = Instant::now();
    while client.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            client.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert!(client.wait().unwrap().success(), "it does not go on");
}

#[test]
fn a_program_is_told_of_the_loss_that_its_library_was_told_of() {
    let kernel = protected();
    let mut program = process::start(kernel.run_command(&place::program("takeover")).arg("lost"));
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("waits"));
    let executor = kernel.status().executor_pid;
    process::kill(executor);
    let last = within("the program goes on", move || lines.last());
    assert_eq!(last.as_deref(), Some("PASS takeover told once"));
    assert!(program.wait().unwrap().success());
    assert_eq!(kernel.status().failovers, 1);
}

#[test]
fn a_launch_of_a_graph_keeps_no_loss_from_whoever_waits() {
    let kernel = protected();
    let mut command = kernel.run_command(&place::program("takeover"));
    command.arg("graphs").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("waits"));
    let executor = kernel.status().executor_pid;
    process::kill(executor);
    until("the standby serves", || ![0, executor].contains(&kernel.status().executor_pid));
    // It learns by itself where its session is.
    thread::sleep(Duration::from_millis(500));
    program.stdin.take().unwrap().write_all(b"\n").unwrap();
    let last = within("the program goes on", move || lines.last());
    assert_eq!(last.as_deref(), Some("PASS takeover told once"));
    assert!(program.wait().unwrap().success());
}
