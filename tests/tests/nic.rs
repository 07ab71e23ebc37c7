//! The module `nic`: kernels send and receive over the flows that their program was given, and no others.

use std::{
    collections::HashSet,
    io::{BufRead as _, BufReader},
    net::UdpSocket,
    ops::{Deref, DerefMut},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_tests::{
    kernel::Kernel,
    module::{Module, PATIENCE, build_gates, gates, program},
    process::{Done, run},
    scratch::Scratch,
};

const NAME: &str = "nic";

/// A port that nobody has now.
fn free_port() -> u16 {
    peer().1
}

/// A socket, and its port.
fn peer() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    // Whoever sends may have to be compiled first.
    socket.set_read_timeout(Some(PATIENCE)).expect("it is set");
    let port = socket.local_addr().expect("an address").port();
    (socket, port)
}

/// A socket that answers so many datagrams, as they came.
fn answers(count: usize) -> (u16, thread::JoinHandle<()>) {
    let (socket, port) = peer();
    let answering = thread::spawn(move || {
        let mut bytes = [0; 2048];
        for _ in 0..count {
            let (length, from) = socket.recv_from(&mut bytes).expect("it comes");
            socket.send_to(&bytes[..length], from).expect("it is sent");
        }
    });
    (port, answering)
}

/// The flows of `tenant attack`: one with a remote, one that listens, one that puts.
fn attackers(own: u16, listens: u16, port: u16) -> String {
    format!("udp:{own}~127.0.0.1:{port},listen:{listens},put:{}~127.0.0.1:{port}", free_port())
}

/// Byte `at` of the tenant's datagram `number`.
fn byte(number: u64, at: usize) -> u8 {
    let [low, ..] = match at {
        0..8 => return number.to_le_bytes()[at],
        _ => ((number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) + at as u64 * 7).to_le_bytes(),
    };
    low
}

/// Receives so many different datagrams of the tenant's, whole and of this length.
fn collect(socket: &UdpSocket, count: usize, length: usize) {
    let (mut seen, mut bytes) = (HashSet::new(), [0; 2048]);
    while seen.len() < count {
        let got = socket.recv(&mut bytes).expect("what was sent comes");
        let number = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        let right = bytes[..got].iter().enumerate().all(|(at, found)| *found == byte(number, at));
        assert!(right && got == length && number < count as u64, "{number}");
        seen.insert(number);
    }
}

/// A kernel that serves with the module.
struct Served(Module);

impl Deref for Served {
    type Target = Module;

    fn deref(&self) -> &Module {
        &self.0
    }
}

impl DerefMut for Served {
    fn deref_mut(&mut self) -> &mut Module {
        &mut self.0
    }
}

impl Served {
    fn with(gates: &Path, allow: &str) -> Self {
        Self(Module::start(Kernel::start(), Scratch::new(), NAME, gates, &["--allow", allow]))
    }

    fn new() -> Self {
        Self::with(&gates(NAME), "127.0.0.1:*~127.0.0.0/8:*")
    }

    /// A program of `modules/nic/tests`: the hostile one, or the honest one.
    fn command(&self, flows: &str, arguments: &[&str]) -> Command {
        let source = match arguments[0] {
            "attack" | "spin" => "modules/nic/tests/hostile.cu",
            _ => "modules/nic/tests/tenant.cu",
        };
        let mut command = self.0.command(flows, &program(NAME, source));
        command.args(arguments);
        command
    }

    fn run(&self, flows: &str, arguments: &[&str]) -> Done {
        run(&mut self.command(flows, arguments), PATIENCE)
    }

    fn right(&self, flows: &str, arguments: &[&str]) {
        let done = self.run(flows, arguments);
        assert!(done.code() == Some(0) && done.stdout.contains(" 0 wrong"), "{arguments:?}: {}", done.told());
    }
}

/// A program that runs beside the test, once it has told its first line.
struct Beside(Child);

impl Beside {
    fn start(command: &mut Command, told: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let mut from = BufReader::new(child.stdout.take().expect("a pipe"));
        from.read_line(&mut line).expect("it tells");
        assert_eq!(line, told);
        // Whatever else it tells has room in the pipe.
        child.stdout = Some(from.into_inner());
        Self(child)
    }

    /// Waits for its end: the status, and what else it told.
    fn end(self) -> (Option<i32>, String) {
        let done = self.0.wait_with_output().expect("it ends");
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
    }
}

#[test]
fn kernels_send_what_peers_receive_and_receive_what_peers_send() {
    let served = Served::new();
    let ((socket, port), own) = (peer(), free_port());
    let flow = format!("udp:127.0.0.1:{own}~127.0.0.1:{port}");
    // Fewer than the peer's socket has room for, should it look late.
    for (arguments, count, length) in [
        (["stream", "200", "8", "64"], 200, 8),
        (["stream", "60", "1472", "64"], 60, 1472),
        (["warps", "60", "300", ""], 60, 300),
    ] {
        thread::scope(|scope| {
            scope.spawn(|| collect(&socket, count, length));
            served.right(&flow, &arguments);
        });
    }
    // Answers go to whom the question came from, however long it is.
    let listens =
        Beside::start(&mut served.command(&format!("listen:{own}"), &["echo", "300", "32"]), "listens\n");
    let asking: Vec<_> = (0..3).map(|_| peer().0).collect();
    let mut bytes = [0; 2048];
    for number in 0..100_usize {
        for (which, socket) in asking.iter().enumerate() {
            let data: Vec<u8> = (0..(number * 15 + which) % 1473).map(|at| byte(number as u64, at)).collect();
            socket.send_to(&data, ("127.0.0.1", own)).expect("it is sent");
            let length = socket.recv(&mut bytes).expect("it is answered");
            assert_eq!(bytes[..length], data);
        }
    }
    assert_eq!(listens.end().0, Some(0));
    // From kernel to kernel.
    let (from, to) = (free_port(), free_port());
    let counts =
        Beside::start(&mut served.command(&format!("listen:{to}"), &["count", "150", "32"]), "listens\n");
    served.right(&format!("udp:{from}~127.0.0.1:{to}"), &["stream", "150", "200", "32"]);
    let (code, told) = counts.end();
    assert!(code == Some(0) && told.contains("count: 0 wrong"), "{told}");
}

#[test]
fn no_caller_sends_from_or_to_what_it_was_not_given_whatever_it_says() {
    let mut served = Served::new();
    let (own, listens, (other, others)) = (free_port(), free_port(), peer());
    let (port, answering) = answers(1);
    // Another caller's flow, whose packets are its own.
    let neighbour = free_port();
    let neighbours = Beside::start(
        &mut served.command(&format!("listen:{neighbour}"), &["count", "1", "32"]),
        "listens\n",
    );
    served.right(&attackers(own, listens, port), &["attack"]);
    answering.join().expect("it was asked");
    other.set_nonblocking(true).expect("it is set");
    assert!(other.recv(&mut [0; 16]).is_err(), "nobody may send there");
    // Nothing came to the neighbour's flow before this.
    let mut datagram = vec![0; 16];
    datagram[..8].copy_from_slice(&5_u64.to_le_bytes());
    for (at, value) in datagram.iter_mut().enumerate() {
        *value = byte(5, at);
    }
    other.send_to(&datagram, ("127.0.0.1", neighbour)).expect("it is sent");
    let (code, told) = neighbours.end();
    assert!(code == Some(0) && told.contains("count: 0 wrong"), "{told}");
    // A flow is what the words say, and what the operator allows.
    for (flows, told) in [
        (format!("udp:{own}~192.0.2.1:{others}"), "is not allowed"),
        (format!("listen:127.0.0.2:{own}"), "is not allowed"),
        (format!("udp:{own}"), "is no flow"),
        (format!("listen:{others}"), "in use"),
    ] {
        let done = served.run(&flows, &["attack"]);
        assert!(done.code() == Some(1) && done.stderr.contains(told), "{flows}: {}", done.told());
    }
    // The device was never told to do what it may not: the module would have told.
    let told = served.stop();
    assert!(!told.contains("may not"), "{told}");
}

#[test]
fn without_its_checks_the_same_attack_has_the_device_send_what_is_not_the_callers() {
    let scratch = Scratch::new();
    let gates = scratch.path().join("unchecked.ptx");
    build_gates(NAME, "NIC_UNCHECKED", &gates);
    let mut served = Served::with(&gates, "127.0.0.1:*~127.0.0.0/8:*");
    let (own, listens, (socket, port)) = (free_port(), free_port(), peer());
    let done = served.run(&attackers(own, listens, port), &["attack"]);
    assert!(done.code() == Some(4), "{}", done.told());
    drop(socket);
    let told = served.stop();
    assert!(told.contains("may not"), "nothing was tried: the test above shows nothing: {told}");
}

#[test]
fn an_answer_to_what_another_thread_gives_back_meanwhile_is_refused() {
    let scratch = Scratch::new();
    let gates = scratch.path().join("outrun.ptx");
    build_gates(NAME, "NIC_OUTRUN", &gates);
    let mut served = Served::with(&gates, "127.0.0.1:*~127.0.0.0/8:*");
    let (port, answering) = answers(1);
    served.right(&attackers(free_port(), free_port(), port), &["attack"]);
    answering.join().expect("it was asked");
    let told = served.stop();
    assert!(!told.contains("may not"), "{told}");
}

#[test]
fn who_reads_nothing_of_what_the_module_reports_harms_nobody() {
    let mut served = Served::new();
    let (own, before) = (free_port(), served.host_half());
    for _ in 0..2 {
        let (port, answering) = answers(40);
        served.right(&format!("udp:{own}~127.0.0.1:{port}"), &["turns", "20"]);
        answering.join().expect("it answers");
    }
    // The first has ended by now: it had the address. At its end the module reports.
    assert_eq!(served.host_half(), before);
    let told = served.stop();
    assert!(!told.contains("is started again"), "{told}");
}

#[test]
fn puts_reach_the_region_of_whom_they_are_for_and_nothing_beside_its_part() {
    let served = Served::new();
    // From kernel to kernel.
    let (from, to) = (free_port(), free_port());
    let window = format!("window:{to}~127.0.0.1:{from}");
    let waits = Beside::start(&mut served.command(&window, &["window", "60", "1000"]), "listens\n");
    served.right(&format!("put:{from}~127.0.0.1:{to}"), &["puts", "60", "1000"]);
    let (code, told) = waits.end();
    assert!(code == Some(0) && told.contains("window: 0 wrong"), "{told}");
    // From a peer that is hostile before it is honest.
    let ((socket, port), to) = (peer(), free_port());
    let window = format!("window:{to}~127.0.0.1:{port}+0+16KiB");
    let waits = Beside::start(&mut served.command(&window, &["window", "20", "64"]), "listens\n");
    let put = |socket: &UdpSocket, number: u64, offset: u64, signal: u32| {
        let mut datagram: Vec<u8> = (0..64).map(|at| byte(number, at)).collect();
        datagram.extend(b"BHP1");
        datagram.extend(64_u32.to_le_bytes());
        datagram.extend(offset.to_le_bytes());
        datagram.extend(signal.to_le_bytes());
        datagram.extend([0; 4]);
        socket.send_to(&datagram, ("127.0.0.1", to)).expect("it is sent");
    };
    for offset in [16384 - 63, 16384, 65536, 1 << 40, u64::MAX, u64::MAX - 63] {
        put(&socket, 77, offset, 3);
    }
    for signal in [16, 1 << 10, u32::MAX] {
        put(&socket, 77, 0, signal);
    }
    // A signal of another part: the tenant finds that this one has counted nothing.
    put(&socket, 77, 0, 4);
    // Of whoever is not the flow's remote.
    put(&peer().0, 77, 0, 3);
    for number in 0..20 {
        put(&socket, number, number * 64, 3);
    }
    let (code, told) = waits.end();
    assert!(code == Some(0) && told.contains("window: 0 wrong"), "{told}");
}

#[test]
fn a_hostile_tenant_beside_an_honest_one_changes_nothing_of_it() {
    let served = Served::new();
    thread::scope(|scope| {
        let honest = scope.spawn(|| {
            for _ in 0..3 {
                let (port, answering) = answers(200);
                served.right(&format!("udp:{}~127.0.0.1:{port}", free_port()), &["turns", "100"]);
                answering.join().expect("it answers");
            }
        });
        while !honest.is_finished() {
            let (port, answering) = answers(1);
            served.right(&attackers(free_port(), free_port(), port), &["attack"]);
            answering.join().expect("it answers");
        }
        honest.join().expect("the honest tenant is right");
    });
}

#[test]
fn who_is_killed_in_the_middle_harms_nobody_and_its_addresses_are_free_again() {
    let served = Served::new();
    let (own, (socket, port)) = (free_port(), peer());
    let flow = format!("udp:{own}~127.0.0.1:{port}");
    for _ in 0..9 {
        while socket.set_nonblocking(true).is_ok() && socket.recv(&mut [0; 64]).is_ok() {}
        let mut spins = Beside::start(&mut served.command(&flow, &["spin"]), "spins\n");
        socket.set_nonblocking(false).expect("it is set");
        socket.recv(&mut [0; 64]).expect("its kernel sends");
        spins.0.kill().expect("it is killed");
        spins.0.wait().expect("it ends");
    }
    // There are eight places: those of the nine were given back, and the address each time.
    let (port, answering) = answers(40);
    served.right(&format!("udp:{own}~127.0.0.1:{port}"), &["turns", "20"]);
    answering.join().expect("it answers");
}

#[test]
fn a_module_that_is_killed_in_the_middle_tells_its_callers_and_is_there_again() {
    let mut served = Served::new();
    let (own, (socket, port)) = (free_port(), peer());
    let flow = format!("udp:{own}~127.0.0.1:{port}");
    let spins = Beside::start(&mut served.command(&flow, &["spin"]), "spins\n");
    socket.recv(&mut [0; 64]).expect("its kernel sends");
    rustix::process::kill_process(served.host_half(), rustix::process::Signal::KILL).expect("it is killed");
    let (code, told) = spins.end();
    assert!(code == Some(3) && told.contains("fffffff0"), "{told}");
    served.line("is started again");
    served.line("serves at");
    let (port, answering) = answers(40);
    served.right(&format!("udp:{own}~127.0.0.1:{port}"), &["turns", "20"]);
    answering.join().expect("it answers");
}

#[test]
fn a_flow_sends_no_faster_than_its_rate_and_loses_nothing_by_it() {
    // Fewer than the peer's socket has room for, should it look late.
    const COUNT: u32 = 200;
    let served = Served::with(&gates(NAME), "127.0.0.1:*~127.0.0.0/8:*@1000");
    let ((socket, port), own) = (peer(), free_port());
    for (rate, limit) in [("@200", 200), ("", 1000)] {
        let flow = format!("udp:{own}~127.0.0.1:{port}{rate}");
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| collect(&socket, COUNT as usize, 64));
            served.right(&flow, &["stream", &COUNT.to_string(), "64", "32"]);
        });
        // A hundredth of a second's worth, or four datagrams, go at once.
        let least = Duration::from_millis(u64::from(COUNT - (limit / 100).max(4)) * 1000 / u64::from(limit));
        assert!(begun.elapsed() >= least, "{:?} for {limit} a second", begun.elapsed());
    }
    let done = served.run(&format!("udp:{own}~127.0.0.1:{port}@1001"), &["stream", "1", "64", "32"]);
    assert!(done.code() == Some(1) && done.stderr.contains("the operator allows"), "{}", done.told());
}

#[test]
fn a_key_value_server_answers_from_kernels_and_ends_when_it_is_told() {
    const KEYS: usize = 60;
    let served = Served::new();
    let (own, kv) = (free_port(), program(NAME, "modules/examples/kv.cu"));
    let server = served.0.command(&format!("listen:{own}"), &kv).stdout(Stdio::piped()).spawn();
    let server = server.expect("it starts");
    let clients: Vec<_> = (0..8).map(|_| peer().0).collect();
    for client in &clients {
        client.connect(("127.0.0.1", own)).expect("it is set");
        client.set_read_timeout(Some(Duration::from_millis(500))).expect("it is set");
    }
    // As UDP's clients do, one that is not answered asks again: the server may not listen yet.
    let asked = AtomicU32::new(0);
    let ask = |client: &UdpSocket, request: &str| {
        let mut bytes = [0; 2048];
        let tag = format!("{} ", asked.fetch_add(1, Ordering::Relaxed));
        for _ in 0..100 {
            let sent = client.send(format!("{tag}{request}").as_bytes()).is_ok();
            while sent && let Ok(length) = client.recv(&mut bytes) {
                // What was asked twice is answered twice.
                if let Some(answer) = String::from_utf8_lossy(&bytes[..length]).strip_prefix(&tag) {
                    return answer.to_owned();
                }
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{request}: nobody answers");
    };
    assert_eq!(ask(&clients[0], "GET nothing"), "NONE");
    thread::scope(|scope| {
        for (which, client) in clients.iter().enumerate() {
            let ask = &ask;
            scope.spawn(move || {
                for key in 0..KEYS {
                    let put = ask(client, &format!("PUT key-{which}-{key} {}", "v".repeat(key * 2)));
                    assert_eq!(put, "STORED");
                }
            });
        }
    });
    for key in 0..KEYS {
        let value = ask(&clients[0], &format!("GET key-3-{key}"));
        assert_eq!(value, format!("VALUE {}", "v".repeat(key * 2)));
    }
    for request in ["", "GET", "PUT", "DELETE x", &format!("PUT k {}", "v".repeat(129)), &"k".repeat(1400)] {
        assert_eq!(ask(&clients[1], request), "WHAT", "{request}");
    }
    assert_eq!(ask(&clients[2], "END"), "ENDS");
    let done = server.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && told.ends_with(" requests served\n"), "{told}");
}
