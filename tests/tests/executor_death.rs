//! When the executor dies, or a client does: everybody concerned is told at once, everybody else goes on, and
//! nothing of the dead is left.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::{BufRead as _, BufReader},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::ExitStatusExt as _,
    },
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use bulkhead_client::{Error, ErrorCode, Launch, Options, Parameters, Pattern, Session, Stream};
use bulkhead_tests::{
    child,
    hostile::RawSession,
    kernel::Kernel,
    neighbour::{KERNELS, Neighbour},
    patience::{until, within},
    place::program,
    process::{kill, lives},
};

/// Whether an error says that a session's executor, or its kernel, is gone.
fn tells_of_a_loss(error: &Error) -> bool {
    matches!(error.code, ErrorCode::DeviceLost | ErrorCode::SessionLost)
}

#[test]
fn a_cuda_program_whose_executor_is_killed_says_why_its_calls_fail() {
    // As it opens its session, loads its code, and while its kernels run.
    for after in [0, 5, 20, 50, 100, 200, 300].map(Duration::from_millis) {
        let kernel = Kernel::start();
        let mut command = kernel.run_command(&program("stencil"));
        let child = command.arg("large").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the program has a session", || !kernel.status().sessions.is_empty());
        thread::sleep(after);
        kill(kernel.status().executor_pid);
        let done = within("the program ends", || child.wait_with_output().unwrap());
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success(), "{after:?}: {told}");
        let says = |line: &str| {
            line.starts_with("bulkhead: ")
                && (line.contains("context was lost") || line.contains("executor is lost"))
        };
        assert!(told.lines().any(says), "{after:?}: {told}");
    }
}

#[test]
fn sessions_of_a_killed_executor_are_told_and_new_ones_work() {
    let kernel = Kernel::start();
    let mut workers = Vec::new();
    for name in ["first", "second", "third"] {
        let mut neighbour = Neighbour::new(&kernel, name);
        neighbour.work();
        workers.push(thread::spawn(move || {
            loop {
                if let Err(error) = neighbour.round() {
                    return (error, neighbour);
                }
            }
        }));
    }
    let idle = kernel.open("idle");
    let before = kernel.status();
    assert_ne!(before.executor_pid, 0);
    thread::sleep(Duration::from_millis(50));
    kill(before.executor_pid);
    for worker in workers {
        let (error, neighbour) =
            within("a session learns of its executor's death", || worker.join().unwrap());
        assert!(tells_of_a_loss(&error), "{error:?}");
        // Once lost, always lost, whatever is asked of it.
        let session = neighbour.session().clone();
        within("a lost session answers", move || {
            assert!(tells_of_a_loss(&session.status().unwrap_err()));
            assert!(tells_of_a_loss(&session.allocate(4096).err().unwrap()));
            assert!(tells_of_a_loss(&session.load_image(KERNELS).err().unwrap()));
            drop(neighbour);
        });
    }
    until("an idle session learns of it", || idle.status().is_err());
    assert!(tells_of_a_loss(&idle.status().unwrap_err()));

    let kernel_pid = kernel.pid();
    Neighbour::new(&kernel, "newcomer").work();
    drop(idle);
    let after = kernel.without(&["first", "second", "third", "idle", "newcomer"]);
    assert!(lives(kernel_pid));
    assert_eq!(after.executor_starts, before.executor_starts + 1);
    assert_ne!(after.executor_pid, before.executor_pid);
    assert_eq!((after.charged_bytes, after.sessions.len()), (0, 0));
}

#[test]
fn what_waits_when_the_executor_dies_does_not_hang() {
    let kernel = Kernel::start();
    let session = kernel.open("waiting");
    let image = session.load_image(KERNELS).unwrap();
    let successor = image.entry("successor").unwrap();
    let number = session.allocate(4).unwrap();
    // Work that takes longer than the executor lives.
    let parameters = Parameters::new().u32(u32::MAX).buffer(&number).buffer(&number);
    let fence = session.launch(Stream::DEFAULT, &successor, &Launch::linear(1, 1), &parameters).unwrap();
    let (waiting, reading, filling) = (session.clone(), session.clone(), session.clone());
    let (read_range, fill_range) = (number.all(), number.all());
    let waiters = [
        thread::spawn(move || waiting.wait(fence).err()),
        thread::spawn(move || reading.read(Stream::DEFAULT, &mut [0; 4], read_range).err()),
        // Fills the ring and then waits for room in it.
        thread::spawn(move || {
            (0..100_000).find_map(|_| filling.fill(Stream::DEFAULT, fill_range, Pattern::Bits32(1)).err())
        }),
        // Needs the device to hold still.
        thread::spawn(move || session.allocate(1 << 30).err()),
    ];
    thread::sleep(Duration::from_millis(300));
    kill(kernel.status().executor_pid);
    for waiter in waiters {
        let error = within("a waiting thread is told", || waiter.join().unwrap()).unwrap();
        assert!(tells_of_a_loss(&error), "{error:?}");
    }
    Neighbour::new(&kernel, "newcomer").work();
}

#[test]
fn an_executor_that_dies_again_and_again_is_started_again() {
    let kernel = Kernel::start();
    for round in 0..4 {
        let mut neighbour = Neighbour::new(&kernel, "round");
        neighbour.work();
        let status = kernel.status();
        assert_eq!(status.executor_starts, round + 1);
        kill(status.executor_pid);
        until("the session is told", || neighbour.round().is_err());
    }
    Neighbour::new(&kernel, "last").work();
}

#[test]
fn the_death_of_the_kernel_ends_its_sessions_and_its_executor() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "orphan");
    neighbour.work();
    let executor = kernel.status().executor_pid;
    kill(kernel.pid());
    until("the executor ends with its kernel", || !lives(executor));
    let error = within("a session learns of the kernel's death", move || {
        // The ring may take a round's work for a while, but nothing answers a call.
        neighbour.session().memory().unwrap_err()
    });
    assert!(tells_of_a_loss(&error), "{error:?}");
}

/// Holds a session with memory of every kind, says so, and waits to be killed.
fn be_a_client_with_memory(socket: &std::path::Path) {
    let options = Options { socket: socket.to_owned(), name: "doomed".into(), ..Options::default() };
    let session = Session::open(&options).unwrap();
    let mut neighbour = Neighbour::over(session.clone()).unwrap();
    let _memory = (session.allocate(200 << 20).unwrap(), session.allocate_host(5 << 20).unwrap());
    println!("\nholding");
    loop {
        neighbour.work();
    }
}

/// Waits until a client has said that it holds what it is to hold; answers the rest of that line.
fn holding(client: &mut Child) -> String {
    let stdout = BufReader::new(client.stdout.take().unwrap());
    within("the client gets ready", move || {
        let line = stdout.lines().map_while(Result::ok).find(|line| line.starts_with("holding"));
        line.expect("a line").trim_start_matches("holding").trim().to_owned()
    })
}

#[test]
fn a_killed_client_gives_everything_back() {
    if let Some(socket) = child::role() {
        return be_a_client_with_memory(&socket);
    }
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    let before = kernel.status();
    for _ in 0..2 {
        let mut client = child::start("a_killed_client_gives_everything_back", &kernel.socket());
        holding(&mut client);
        let held = kernel.status();
        let doomed = held.session("doomed").unwrap();
        assert_eq!(doomed.pid, client.id());
        assert!(doomed.buffer_bytes >= 200 << 20 && doomed.host_bytes >= 5 << 20, "{doomed:?}");
        client.kill().unwrap();
        assert_eq!(client.wait().unwrap().signal(), Some(9));
        assert_eq!(kernel.without(&["doomed"]), before);
        neighbour.work();
    }
}

/// Opens a session, leaves copies of all its sockets to a process of its own, says which, and waits to be killed.
#[expect(clippy::zombie_processes, reason = "its children outlive it")]
fn be_a_client_whose_child_lives_on(socket: &std::path::Path) {
    let options = Options { socket: socket.to_owned(), name: "forked".into(), ..Options::default() };
    let session = Session::open(&options).unwrap();
    let _buffer = session.allocate(64 << 20).unwrap();
    let own = rustix::process::getpid();
    let own = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).unwrap();
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let number: i32 = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let target = std::fs::read_link(format!("/proc/self/fd/{number}"));
        if target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:")) {
            let flags = rustix::process::PidfdGetfdFlags::empty();
            let copy: OwnedFd = rustix::process::pidfd_getfd(own.as_fd(), number, flags).unwrap();
            // A socket as standard input outlives its client.
            let child =
                std::process::Command::new("sleep").arg("120").stdin(Stdio::from(copy)).spawn().unwrap();
            children.push(child.id().to_string());
        }
    }
    println!("\nholding {}", children.join(" "));
    loop {
        thread::park();
    }
}

#[test]
fn a_killed_client_whose_child_keeps_its_socket_gives_everything_back() {
    if let Some(socket) = child::role() {
        return be_a_client_whose_child_lives_on(&socket);
    }
    let kernel = Kernel::start();
    let idle = kernel.status();
    let test = "a_killed_client_whose_child_keeps_its_socket_gives_everything_back";
    let mut client = child::start(test, &kernel.socket());
    let children: Vec<u32> =
        holding(&mut client).split_whitespace().map(|child| child.parse().unwrap()).collect();
    assert!(!children.is_empty(), "the client has no socket to leave behind");
    client.kill().unwrap();
    client.wait().unwrap();
    let after = kernel.without(&["forked"]);
    let outlived = children.iter().all(|child| lives(*child));
    for child in children {
        kill(child);
    }
    assert!(outlived, "nobody held the socket");
    assert_eq!((after.charged_bytes, after.sessions.len()), (0, 0));
    assert!(after.executor_starts >= idle.executor_starts);
}

#[test]
fn a_client_that_goes_away_with_a_full_ring_gives_everything_back() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    let before = kernel.status();
    let session = RawSession::open(&kernel, "gone");
    let own = u64::from(session.buffer.slot) | u64::from(session.buffer.generation) << 32;
    let mut fill = [0; bulkhead_ring::layout::RECORD_WORDS];
    (fill[0], fill[1], fill[3], fill[4]) = (5, own, 1024, 4);
    for index in 0..bulkhead_ring::layout::RECORDS {
        session.put(index, &fill);
    }
    session.set_tail(bulkhead_ring::layout::RECORDS as u64);
    drop(session);
    assert_eq!(kernel.without(&["gone"]), before);
    neighbour.work();
}
