//! What a compile process can do once it has confined itself: each act in a process of its own, which is this binary
//! again. There is no harness, which would act on a second thread: the heap of a second thread asks the system for more.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]
#![expect(unsafe_code, reason = "system calls that no library makes")]

use std::{
    collections::HashMap,
    fs::File,
    io::{Read as _, Seek as _, Write as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Command, Output},
};

use bulkhead_executor::{compiler::confinement, sandbox};
use rustix::process::{Resource, Rlimit};

/// Names the act to a process that is this binary again.
const ACT: &str = "BULKHEAD_ACT";

/// How a process ends that makes a system call which is not listed.
const STOPPED: Option<i32> = Some(libc::SIGSYS);

/// Makes a system call, whatever it does.
fn call(number: i64, arguments: [i64; 4]) -> i64 {
    let [first, second, third, fourth] = arguments;
    // SAFETY: callers pass no addresses but null and those of constants, and what the call does ends with this process,
    // which has been started for it.
    unsafe { libc::syscall(number, first, second, third, fourth, 0, 0) }
}

/// The acts that are refused, as system calls.
fn refused(act: &str) -> Option<(i64, [i64; 4])> {
    let file = c"/etc/passwd".as_ptr() as i64;
    let here = i64::from(libc::AT_FDCWD);
    let page = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let code = i64::from(libc::PROT_READ | libc::PROT_EXEC);
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    Some(match act {
        "openat" => (libc::SYS_openat, [here, file, 0, 0]),
        "openat2" => (libc::SYS_openat2, [here, file, 0, 0]),
        "statx" => (libc::SYS_statx, [here, file, 0, 0]),
        "unlinkat" => (libc::SYS_unlinkat, [here, 0, 0, 0]),
        "socket" => (libc::SYS_socket, [i64::from(libc::AF_UNIX), i64::from(libc::SOCK_STREAM), 0, 0]),
        "ptrace" => (libc::SYS_ptrace, [i64::from(libc::PTRACE_ATTACH), parent.into(), 0, 0]),
        "process_vm_readv" => (libc::SYS_process_vm_readv, [parent.into(), 0, 0, 0]),
        "execve" => (libc::SYS_execve, [file, 0, 0, 0]),
        "clone" => (libc::SYS_clone, [i64::from(libc::SIGCHLD), 0, 0, 0]),
        "kill" => (libc::SYS_kill, [parent.into(), 0, 0, 0]),
        "a signal to another" => (libc::SYS_tgkill, [parent.into(), parent.into(), 0, 0]),
        "prctl" => (libc::SYS_prctl, [i64::from(libc::PR_SET_DUMPABLE), 1, 0, 0]),
        "prlimit" => (libc::SYS_prlimit64, [parent.into(), 0, 0, 0]),
        "io_uring" => (libc::SYS_io_uring_setup, [1, 0, 0, 0]),
        "bpf" => (libc::SYS_bpf, [0, 0, 0, 0]),
        "memfd" => (libc::SYS_memfd_create, [file, 0, 0, 0]),
        "memory with code" => (libc::SYS_mmap, [0, 4096, code, page]),
        "memory that becomes code" => (libc::SYS_mprotect, [0, 4096, code, 0]),
        "a descriptor's flags" => (libc::SYS_fcntl, [0, i64::from(libc::F_SETFL), 0, 0]),
        // The calls of another kind of program (x32) on the same processor.
        "a call with bit 30" => (libc::SYS_getpid | 1 << 30, [0, 0, 0, 0]),
        _ => return None,
    })
}

const REFUSED: [&str; 20] = [
    "openat",
    "openat2",
    "statx",
    "unlinkat",
    "socket",
    "ptrace",
    "process_vm_readv",
    "execve",
    "clone",
    "kill",
    "a signal to another",
    "prctl",
    "prlimit",
    "io_uring",
    "bpf",
    "memfd",
    "memory with code",
    "memory that becomes code",
    "a descriptor's flags",
    "a call with bit 30",
];

/// What a compile process does, with what its gates and its image are read from and its answer is written to.
fn work(mut input: File, mut output: File) {
    let mut bytes = Vec::new();
    input.rewind().unwrap();
    (&mut input).take(1 << 20).read_to_end(&mut bytes).unwrap();
    assert!(!bytes.is_empty());
    // From the heap, from maps of its own, moved, and given back.
    let mut blocks: Vec<Vec<u8>> = (0..24).map(|power| vec![1; 1 << power]).collect();
    for block in &mut blocks {
        block.resize(block.len() * 3, 2);
        block.shrink_to_fit();
    }
    let counts: HashMap<usize, u8> = blocks.iter().map(|block| (block.len(), 0)).collect();
    drop(blocks);
    write!(output, "{} sizes", counts.len()).unwrap();
    output.flush().unwrap();
}

/// What the process does that is started for an act.
fn perform(act: &str) {
    let (input, output) = (File::open("/proc/self/exe").unwrap(), File::create("/dev/null").unwrap());
    if act == "files alone" {
        let version = confinement::take_files().unwrap();
        let opened = File::open("/etc/passwd").map(drop).map_err(|error| error.kind());
        let made = File::create("/tmp/bulkhead-made").map(drop).map_err(|error| error.kind());
        match version {
            Some(_) => {
                assert_eq!(opened, Err(std::io::ErrorKind::PermissionDenied));
                assert_eq!(made, Err(std::io::ErrorKind::PermissionDenied));
                println!("both are refused");
            }
            None => println!("skipped: no Landlock"),
        }
        return;
    }
    if act == "huge pages" {
        sandbox::take_calls().unwrap();
        let (name, pages) = (c"x".as_ptr() as i64, i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS));
        let mapped =
            |flags: i64| call(libc::SYS_mmap, [0, 2 << 20, i64::from(libc::PROT_READ), pages | flags]);
        let made = |flags: u32| call(libc::SYS_memfd_create, [name, i64::from(flags), 0, 0]);
        let is_refused = |answer: i64| {
            answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS)
        };
        assert!(made(libc::MFD_CLOEXEC) >= 0 && mapped(0) > 0);
        assert!(is_refused(made(libc::MFD_HUGETLB)));
        assert!(is_refused(mapped(i64::from(libc::MAP_HUGETLB))));
        return;
    }
    let most = Rlimit { current: Some(1 << 30), maximum: Some(1 << 30) };
    rustix::process::setrlimit(Resource::As, most).unwrap();
    let refused = refused(act);
    let mut command = Command::new("/bin/true");
    confinement::confine().unwrap();
    match (act, refused) {
        (_, Some((number, arguments))) => println!("it answered {}", call(number, arguments)),
        ("work", None) => work(input, output),
        ("open a file", None) => println!("it is {:?}", File::open("/etc/passwd")),
        ("become a program", None) => println!("it is {:?}", command.exec()),
        ("panic", None) => panic!("by order"),
        ("abort", None) => std::process::abort(),
        ("use up memory", None) => {
            let mut blocks = Vec::new();
            loop {
                blocks.push(vec![1_u8; 1 << 20]);
            }
        }
        (_, None) => panic!("no act is called {act}"),
    }
}

/// Does an act in a process of its own, with nothing else in its environment.
fn act(act: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env_clear().env(ACT, act).output().unwrap()
}

fn told(done: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{}: {}{}", done.status, text(&done.stdout), text(&done.stderr))
}

fn a_confined_process_reaches_no_file_no_socket_and_no_process() {
    for name in REFUSED.into_iter().chain(["open a file", "become a program"]) {
        let done = act(name);
        assert_eq!(done.status.signal(), STOPPED, "{name}: {}", told(&done));
    }
}

fn files_are_refused_even_to_whoever_is_let_call_the_system() {
    let done = act("files alone");
    assert!(done.status.success(), "{}", told(&done));
    let text = told(&done);
    assert!(text.contains("both are refused") || text.contains("skipped"), "{text}");
    println!("{text}");
}

fn a_confined_process_reads_computes_and_writes() {
    let done = act("work");
    assert!(done.status.success(), "{}", told(&done));
}

fn an_executor_of_one_session_takes_no_huge_pages() {
    let done = act("huge pages");
    assert!(done.status.success(), "{}", told(&done));
}

fn a_confined_process_ends_as_others_do() {
    let done = act("panic");
    assert_eq!(done.status.code(), Some(101), "{}", told(&done));
    assert!(told(&done).contains("by order"), "{}", told(&done));
    for name in ["abort", "use up memory"] {
        let done = act(name);
        assert_eq!(done.status.signal(), Some(libc::SIGABRT), "{name}: {}", told(&done));
    }
}

/// The tests by name.
const TESTS: [(&str, fn()); 5] = [
    (
        "a_confined_process_reaches_no_file_no_socket_and_no_process",
        a_confined_process_reaches_no_file_no_socket_and_no_process,
    ),
    (
        "files_are_refused_even_to_whoever_is_let_call_the_system",
        files_are_refused_even_to_whoever_is_let_call_the_system,
    ),
    ("a_confined_process_reads_computes_and_writes", a_confined_process_reads_computes_and_writes),
    ("an_executor_of_one_session_takes_no_huge_pages", an_executor_of_one_session_takes_no_huge_pages),
    ("a_confined_process_ends_as_others_do", a_confined_process_ends_as_others_do),
];

fn main() {
    if let Ok(act) = std::env::var(ACT) {
        return perform(&act);
    }
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    for (name, test) in TESTS.into_iter().filter(|(name, _)| name.contains(&filter)) {
        test();
        println!("test {name} ... ok");
    }
}
