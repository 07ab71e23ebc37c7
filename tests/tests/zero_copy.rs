//! Pinned host memory that kernels reach: what kernel and host store, the other sees; nobody else's kernel reaches it;
//! it is given back, however its owner ends.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    thread,
    time::Duration,
};

use bulkhead_client::{ErrorCode, HostBuffer, Options, Parameters, Pattern, Session, Stream};
use bulkhead_tests::{
    child,
    kernel::Kernel,
    neighbour::Neighbour,
    patience::{until, within},
    process,
    tenant::{ONE, PAGE_BYTES, Tenant},
};

const FIRST: Stream = Stream::DEFAULT;
const MIB: usize = 1 << 20;

fn word(buffer: &HostBuffer, offset: usize) -> u32 {
    let mut found = [0; 4];
    buffer.read(offset, &mut found);
    u32::from_ne_bytes(found)
}

fn set(buffer: &HostBuffer, offset: usize, word: u32) {
    buffer.write(offset, &word.to_ne_bytes());
}

fn host_bytes(kernel: &Kernel, name: &str) -> u64 {
    kernel.status().session(name).map_or(0, |session| session.host_bytes)
}

#[test]
fn kernels_and_the_host_see_each_others_stores_at_one_address() {
    // In a process of its own: the other tests have sessions of other kernels, with windows at the same addresses.
    let Some(socket) = child::role() else {
        let kernel = Kernel::start();
        let test = "kernels_and_the_host_see_each_others_stores_at_one_address";
        let done = process::run(&mut child::command(test, &kernel.socket()), Duration::from_secs(60));
        assert_eq!(done.code(), Some(0), "{}", done.told());
        assert!(done.stdout.contains("1 passed"), "{}", done.told());
        return;
    };
    let options = Options { socket, name: "one".into(), ..Options::default() };
    let tenant = Tenant::over(Session::open(&options).unwrap());
    let host = tenant.session.allocate_mapped(3 * MIB).unwrap();
    let at = host.address().unwrap();
    let (window, bytes) = tenant.session.window();
    assert!((window..window + bytes / 2).contains(&at), "it does not lie where stores reach");
    assert_eq!(host.as_ptr() as u64, at, "two addresses");
    for (offset, value) in [(0, 5), (MIB, 6), (3 * MIB - 4, 7)] {
        tenant.stores(at + offset as u64, value);
        assert_eq!(word(&host, offset), value, "the host does not see a store at {offset}");
        set(&host, offset, value + 100);
        assert_eq!(tenant.loads(at + offset as u64), value + 100, "a kernel does not see {offset}");
    }
    // Copies and fills by name.
    let device = tenant.session.allocate(4096).unwrap();
    tenant.fill(device.all(), 0xabcd);
    let copied = tenant.session.copy_to_host(FIRST, host.span(8192, 4096), device.all()).unwrap();
    tenant.session.wait(copied).unwrap();
    assert_eq!((word(&host, 8192), word(&host, 8192 + 4092)), (0xabcd, 0xabcd));
    tenant.fill(host.range(16384, 8), 0x77);
    assert_eq!((word(&host, 16384), word(&host, 16388), word(&host, 16392)), (0x77, 0x77, 0));
    // What does not lie in it is refused.
    let beyond = tenant.session.fill(FIRST, host.range(3 * MIB as u64 - 4, 8), Pattern::Bits32(1)).unwrap();
    assert_eq!(tenant.session.wait(beyond).unwrap_err().code, ErrorCode::InvalidArgument);
    // A buffer for copies is not what a kernel reaches, nor what is filled.
    let plain = tenant.session.allocate_host(4096).unwrap();
    assert_eq!(plain.address(), None);
    let filled = tenant.session.fill(FIRST, plain.range(0, 4), Pattern::Bits32(1)).unwrap();
    assert_eq!(tenant.session.wait(filled).unwrap_err().code, ErrorCode::InvalidHandle);
}

#[test]
fn small_buffers_share_what_is_pinned_and_it_goes_back_when_nobody_needs_it() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "many");
    // What copies are staged in is pinned too.
    tenant.stores(tenant.session.window().0, 1);
    let _seen = tenant.loads(tenant.session.window().0);
    let before = host_bytes(&kernel, "many");
    let small: Vec<_> = (0..100).map(|_| tenant.session.allocate_mapped(4096).unwrap()).collect();
    assert_eq!(host_bytes(&kernel, "many") - before, PAGE_BYTES);
    for (index, buffer) in (0..).zip(&small) {
        assert!(buffer.address().unwrap().is_multiple_of(512));
        tenant.stores(buffer.address().unwrap() + 4092, index);
    }
    for (index, buffer) in (0..).zip(&small) {
        assert_eq!(word(buffer, 4092), index);
    }
    let large = tenant.session.allocate_mapped(20 * MIB).unwrap();
    assert!(large.address().unwrap().is_multiple_of(PAGE_BYTES));
    assert_eq!(host_bytes(&kernel, "many") - before, PAGE_BYTES + 20 * MIB as u64);
    drop(large);
    until("much is given back at once", || host_bytes(&kernel, "many") - before == PAGE_BYTES);
    drop(small);
    until("little is given back when it is idle", || host_bytes(&kernel, "many") == before);
    // Its addresses are good for other memory.
    let again = tenant.session.allocate_mapped(4096).unwrap();
    tenant.stores(again.address().unwrap(), 3);
    assert_eq!(word(&again, 0), 3);
}

#[test]
fn a_kernel_that_sprays_its_own_slot_does_not_reach_the_host_memory_of_another() {
    let kernel = Kernel::start();
    let (owner, sprayer) = (Tenant::new(&kernel, "owner"), Tenant::new(&kernel, "sprayer"));
    let hosts: Vec<_> = (0..4).map(|_| owner.session.allocate_mapped(MIB).unwrap()).collect();
    for host in &hosts {
        host.write(0, &[0x11; MIB]);
    }
    let (base, bytes) = sprayer.session.window();
    for round in 0..20 {
        // All of its slot, while its own host memory comes and goes, and where the owner's lies.
        let own = sprayer.session.allocate_mapped(if round % 2 == 0 { 4096 } else { 5 * MIB }).unwrap();
        let mask = bytes - 1;
        let parameters = Parameters::new().u32(2000).u64(base).u64(mask).u32(0xdead + round);
        let fence = sprayer.session.launch(FIRST, &sprayer.entry("spray"), &ONE, &parameters).unwrap();
        for host in &hosts {
            sprayer.stores(host.address().unwrap() + 16, 0xbad);
            assert_ne!(sprayer.loads(host.address().unwrap()), 0x1111_1111, "it reads the owner's memory");
        }
        drop(own);
        sprayer.session.wait(fence).unwrap();
    }
    for host in &hosts {
        let mut found = vec![0; MIB];
        host.read(0, &mut found);
        assert!(found.iter().all(|byte| *byte == 0x11), "the owner's memory was changed");
    }
    assert_eq!(kernel.status().executor_starts, 1);
}

#[test]
fn memory_that_is_freed_under_a_kernel_is_nobodys_until_the_kernel_has_passed() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "busy");
    let host = tenant.session.allocate_mapped(30 * MIB).unwrap();
    let (at, before) = (host.address().unwrap(), host_bytes(&kernel, "busy"));
    let running = tenant.runs(at);
    drop(host);
    thread::sleep(Duration::from_millis(300));
    let pinned = host_bytes(&kernel, "busy");
    assert!(pinned >= before, "{pinned} of {before} bytes are charged while a kernel reaches them");
    running.end();
    until("it is given back", || host_bytes(&kernel, "busy") + 30 * MIB as u64 <= pinned);
    let next = tenant.session.allocate_mapped(4096).unwrap();
    tenant.stores(next.address().unwrap(), 4);
    assert_eq!(word(&next, 0), 4);
}

#[test]
fn beside_a_kernel_that_runs_on_sessions_allocate_free_and_close() {
    let kernel = Kernel::start();
    let busy = Tenant::new(&kernel, "busy");
    let word_of_its_own = busy.session.allocate(4).unwrap();
    let running = busy.runs(word_of_its_own.address());
    let mut windows = Vec::new();
    for round in 0..3 {
        let session = within("a session with host memory opens and closes", {
            let socket = kernel.socket();
            move || {
                let options = Options { socket, name: format!("guest {round}"), ..Options::default() };
                let session = Session::open(&options).unwrap();
                let host = session.allocate_mapped(MIB).unwrap();
                host.write(0, &[9; 64]);
                let window = session.window();
                drop(host);
                drop(session);
                window
            }
        });
        windows.push(session.0);
        kernel.without(&[&format!("guest {round}")]);
    }
    windows.sort_unstable();
    windows.dedup();
    assert_eq!(windows.len(), 3, "a slot was given out while host memory of another session lay in it");
    running.end();
    // Idle: now they are free again.
    until("the slots are free", || {
        let session = kernel.open("next");
        windows.contains(&session.window().0)
    });
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
}

#[test]
fn sizes_that_cannot_be_are_refused_and_the_session_goes_on() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "greedy");
    let code = |bytes| tenant.session.allocate_mapped(bytes).err().unwrap().code;
    assert_eq!(code(0), ErrorCode::InvalidArgument);
    for bytes in [usize::MAX, usize::MAX - 4096, 1 << 63, 1 << 47, 1 << 37, (16 << 30) + 1] {
        assert_eq!(code(bytes), ErrorCode::OutOfMemory, "{bytes}");
    }
    let host = tenant.session.allocate_mapped(1).unwrap();
    tenant.stores(host.address().unwrap(), 0x55);
    let mut found = [0];
    host.read(0, &mut found);
    assert_eq!(found, [0x55]);
}

/// Holds host memory that its kernel is busy with, and waits to be killed.
fn be_a_client_with_host_memory(socket: &Path) {
    let options = Options { socket: socket.to_owned(), name: "killed".into(), ..Options::default() };
    let tenant = Tenant::over(Session::open(&options).unwrap());
    let hosts: Vec<_> = [4096, 30 * MIB].map(|bytes| tenant.session.allocate_mapped(bytes).unwrap()).into();
    let (base, bytes) = tenant.session.window();
    let spray = Parameters::new().u32(200_000).u64(base).u64(bytes - 1).u32(7);
    for _ in 0..4 {
        tenant.session.launch(FIRST, &tenant.entry("spray"), &ONE, &spray).unwrap();
    }
    println!("\nholding {}", hosts.len());
    loop {
        thread::park();
    }
}

#[test]
fn a_client_that_is_killed_gives_all_of_it_back() {
    let test = "a_client_that_is_killed_gives_all_of_it_back";
    if let Some(socket) = child::role() {
        return be_a_client_with_host_memory(&socket);
    }
    let kernel = Kernel::start();
    let before = kernel.status();
    let mut client = child::start(test, &kernel.socket());
    let stdout = BufReader::new(client.stdout.take().unwrap());
    within("the client gets ready", move || {
        let mut lines = stdout.lines().map_while(Result::ok);
        lines.find(|line| line.starts_with("holding ")).unwrap()
    });
    assert!(host_bytes(&kernel, "killed") >= 32 * MIB as u64);
    client.kill().unwrap();
    client.wait().unwrap();
    until("everything has returned", || kernel.status() == before);
    // In the same place, nothing of it is left.
    let next = Tenant::new(&kernel, "next");
    let host = next.session.allocate_mapped(30 * MIB).unwrap();
    let mut found = vec![1; 30 * MIB];
    host.read(0, &mut found);
    assert!(found.iter().all(|byte| *byte == 0), "it holds what was there before");
}

#[test]
fn host_memory_is_where_it_was_after_its_executor_was_killed() {
    let kernel = Kernel::with(&["--standby"]);
    until("a standby is ready", || kernel.status().standby_pid != 0);
    let tenant = Tenant::new(&kernel, "survivor");
    let early = tenant.session.allocate_mapped(MIB).unwrap();
    for round in 1..3 {
        until("a standby is ready", || kernel.status().standby_pid != 0);
        let late = tenant.session.allocate_mapped(3 * MIB).unwrap();
        let freed = tenant.session.allocate_mapped(40 * MIB).unwrap();
        set(&early, 0, round);
        set(&late, 0, round + 10);
        drop(freed);
        let moves = tenant.session.moves();
        process::kill(kernel.status().executor_pid);
        until("the session moves", || tenant.session.moves() != moves);
        // Told of once, by whoever waits first.
        let lost = tenant.session.fill(FIRST, early.range(4096, 4), Pattern::Bits32(1));
        drop(lost.and_then(|fence| tenant.session.wait(fence)));
        assert_eq!(tenant.loads(early.address().unwrap()), round, "a kernel sees something else");
        assert_eq!(tenant.loads(late.address().unwrap()), round + 10);
        tenant.stores(late.address().unwrap() + 8, round + 20);
        assert_eq!(word(&late, 8), round + 20, "the host sees something else");
    }
    drop(early);
    until("all is given back", || host_bytes(&kernel, "survivor") <= 36 * MIB as u64 + PAGE_BYTES);
}
