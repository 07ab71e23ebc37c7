//! A client that sends garbage gets a typed error or the end of its own session. Never is a neighbour's work
//! disturbed, and never do the kernel or the executor end.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::{Read as _, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use bulkhead_client::{ErrorCode, Session};
use bulkhead_ring::layout::{RECORD_WORDS, RECORDS, RING_BYTES};
use bulkhead_tests::{
    hostile::{BUFFER_BYTES, Garbage, RawSession, descriptor_socket, exchange},
    kernel::Kernel,
    neighbour::{KERNELS, Neighbour},
    patience::{PATIENCE, until},
    process::lives,
};

type Words = [u64; RECORD_WORDS];

/// Says that an attack is over, also where it panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs an attack beside a neighbour that was there before, works all the time, and checks every result. Afterwards
/// the same kernel and the same executor serve, and nothing of the attacker is left.
fn beside_a_neighbour(attack: impl FnOnce(&Kernel)) {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    let before = kernel.status();
    let (over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (neighbour, over, rounds) = (&mut neighbour, &over, &rounds);
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                neighbour.work();
                rounds.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let _over = Over(over);
        attack(&kernel);
        let worked = rounds.load(Ordering::Relaxed);
        until("the neighbour works on", || rounds.load(Ordering::Relaxed) > worked + 2);
    });
    neighbour.work();
    assert!(lives(kernel.pid()));
    let mut after = kernel.status();
    until("nothing of the attacker is left", || {
        after = kernel.status();
        after.sessions.len() == before.sessions.len()
    });
    assert_eq!(after, before);
    Neighbour::new(&kernel, "newcomer").work();
}

fn connect(kernel: &Kernel) -> UnixStream {
    let stream = UnixStream::connect(kernel.socket()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads until the kernel hangs up.
fn hung_up(mut stream: UnixStream) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the kernel did not hang up: {error}"),
        }
    }
}

#[test]
fn garbage_on_the_rpc_socket_ends_its_connection_only() {
    beside_a_neighbour(|kernel| {
        let mut garbage = Garbage::new(0x5eed_0001);
        for round in 0..150 {
            let mut stream = connect(kernel);
            // The kernel may hang up before all was written.
            drop(stream.write_all(&garbage.bytes(round * 11)));
            drop(stream.shutdown(std::net::Shutdown::Write));
            hung_up(stream);
        }
        // Frames whose segment tables ask for far too much.
        for header in [[0, u32::MAX], [u32::MAX, u32::MAX], [511, 0], [0, 1 << 26], [3, 1]] {
            let mut stream = connect(kernel);
            stream.write_all(&header.map(u32::to_le_bytes).concat()).unwrap();
            drop(stream.shutdown(std::net::Shutdown::Write));
            hung_up(stream);
        }
    });
}

#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    beside_a_neighbour(|kernel| {
        let silent: Vec<UnixStream> = (0..100).map(|_| connect(kernel)).collect();
        Neighbour::new(kernel, "beside the silent").work();
        drop(silent);
        // More than the kernel takes: it hangs up on those beyond.
        let many: Vec<UnixStream> =
            (0..400).map_while(|_| UnixStream::connect(kernel.socket()).ok()).collect();
        drop(many);
        until("the kernel takes new clients", || Session::open(&kernel.options("after the crowd")).is_ok());
    });
}

#[test]
fn garbage_on_the_descriptor_socket_ends_its_connection_only() {
    beside_a_neighbour(|kernel| {
        let path = kernel.descriptor_socket();
        let mut garbage = Garbage::new(0x5eed_0002);
        for length in [1, 15, 17, 63, 4096, 65_536] {
            let socket = descriptor_socket(&path);
            assert!(exchange(&socket, &garbage.bytes(length), None).is_none(), "{length} bytes are no token");
        }
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let socket = descriptor_socket(&path);
        for _ in 0..200 {
            let guess = garbage.bytes(16);
            assert_eq!(exchange(&socket, &guess, None).unwrap().0, [1], "a guessed token");
            // Refused by the system, or dropped on the way.
            if let Some((answer, given)) = exchange(&socket, &guess, Some(&null)) {
                assert_eq!((answer, given.len()), (vec![1], 0));
            }
        }
        let silent: Vec<OwnedFd> = (0..40).map(|_| descriptor_socket(&path)).collect();
        Neighbour::new(kernel, "beside the silent").work();
        drop(silent);
    });
}

fn record(operation: u32, stream: u32) -> Words {
    let mut words = [0; RECORD_WORDS];
    words[0] = u64::from(operation) | u64::from(stream) << 32;
    words
}

fn with(mut words: Words, fields: &[(usize, u64)]) -> Words {
    for (index, value) in fields {
        words[*index] = *value;
    }
    words
}

const LAUNCH: u32 = 1;
const COPY_TO_DEVICE: u32 = 2;
const COPY_TO_HOST: u32 = 3;
const COPY_ON_DEVICE: u32 = 4;
const FILL: u32 = 5;
const WAIT_ON: u32 = 6;
const RECORD_EVENT: u32 = 7;
const DESTROY_EVENT: u32 = 8;
const ELAPSED: u32 = 9;
const CREATE_STREAM: u32 = 10;
const DESTROY_STREAM: u32 = 11;

/// A fill of the session's own buffer: honest work.
fn honest(session: &RawSession) -> Words {
    let buffer = u64::from(session.buffer.slot) | u64::from(session.buffer.generation) << 32;
    with(record(FILL, 0), &[(1, buffer), (3, BUFFER_BYTES / 4), (4, 4 | 0x1234_5678 << 32)])
}

/// Every case gets a session of its own and has to end it, with `protocol`.
fn breaks_the_protocol(cases: Vec<(&str, Words)>) {
    beside_a_neighbour(|kernel| {
        for (what, words) in cases {
            let session = RawSession::open(kernel, what);
            session.put(0, &words);
            session.set_tail(1);
            until(what, || session.ended().is_some());
            assert_eq!(session.ended().unwrap().code, ErrorCode::Protocol as u16, "{what}");
        }
    });
}

#[test]
fn a_tail_that_makes_no_sense_ends_its_session_only() {
    beside_a_neighbour(|kernel| {
        let full = RECORDS as u64;
        for (first, then) in
            [(full + 1, full + 1), (u64::MAX, u64::MAX), (3, 1), (3, 0), (2, 3 + full), (1, 1 << 63)]
        {
            let session = RawSession::open(kernel, "bad tail");
            for index in 0..4 {
                session.put(index, &honest(&session));
            }
            session.set_tail(first);
            if first < full {
                until("honest records are taken", || session.head() == first);
            }
            session.set_tail(then);
            until("the session is over", || session.ended().is_some());
            assert_eq!(session.ended().unwrap().code, ErrorCode::Protocol as u16, "{first} and {then}");
        }
    });
}

#[test]
fn a_record_that_is_none_ends_its_session_only() {
    let mut cases = vec![
        ("a stream beyond the last", record(FILL, 64)),
        ("a stream far beyond", record(LAUNCH, u32::MAX)),
        ("more inline parameters than fit", with(record(LAUNCH, 0), &[(5, 81 << 32)])),
        ("parameters outside the arena", with(record(LAUNCH, 0), &[(5, (1 << 63) | 8 << 32), (6, 131_072)])),
        ("parameters far outside", with(record(LAUNCH, 0), &[(5, u64::MAX << 32), (6, u64::MAX)])),
        ("a pattern of three bytes", with(record(FILL, 0), &[(4, 3)])),
        ("a byte that is none", with(record(FILL, 0), &[(4, 1 | 256 << 32)])),
        ("a wait for a stream that cannot be", with(record(WAIT_ON, 0), &[(1, 64)])),
        ("a wait for itself", with(record(WAIT_ON, 0), &[(1, 0), (2, 1)])),
        ("a wait for what never comes", with(record(WAIT_ON, 0), &[(1, 1), (2, u64::MAX)])),
        ("a reply slot that is none", with(record(ELAPSED, 0), &[(2, 64)])),
    ];
    for operation in [0, 13, 99, u32::MAX] {
        cases.push(("an operation that is none", record(operation, 0)));
    }
    breaks_the_protocol(cases);
}

#[test]
fn wild_handles_and_ranges_are_refused_and_the_session_goes_on() {
    beside_a_neighbour(|kernel| {
        let session = RawSession::open(kernel, "wild");
        let own = honest(&session)[1];
        let mut wild = Vec::new();
        for handle in [u64::MAX, own ^ 1, own ^ 1 << 32, own + 7, 0xffff_ffff, 1 << 63] {
            wild.push(with(
                record(LAUNCH, 0),
                &[(1, handle), (2, 1 << 32 | 1), (3, 1 << 32 | 1), (4, 1 << 32 | 1)],
            ));
            for copy in [COPY_TO_DEVICE, COPY_TO_HOST, COPY_ON_DEVICE] {
                wild.push(with(record(copy, 0), &[(1, handle), (3, own), (5, 16)]));
                wild.push(with(record(copy, 0), &[(1, own), (3, handle), (5, 16)]));
            }
            wild.push(with(record(FILL, 0), &[(1, handle), (3, 1), (4, 1)]));
        }
        for (offset, count) in [
            (0, BUFFER_BYTES + 1),
            (BUFFER_BYTES, 1),
            (u64::MAX, 1),
            (1, u64::MAX),
            (u64::MAX, u64::MAX),
            (1 << 40, 1),
        ] {
            wild.push(with(record(FILL, 0), &[(1, own), (2, offset), (3, count), (4, 1)]));
            wild.push(with(record(FILL, 0), &[(1, own), (2, offset), (3, count), (4, 4)]));
            wild.push(with(
                record(COPY_ON_DEVICE, 0),
                &[(1, own), (2, offset), (3, own), (4, 0), (5, count)],
            ));
            wild.push(with(
                record(COPY_ON_DEVICE, 0),
                &[(1, own), (2, 0), (3, own), (4, offset), (5, count)],
            ));
        }
        wild.push(with(record(FILL, 0), &[(1, own), (2, 1), (3, 4), (4, 4)]));
        wild.push(with(record(RECORD_EVENT, 0), &[(1, 4096)]));
        wild.push(with(record(RECORD_EVENT, 0), &[(1, u64::MAX)]));
        wild.push(record(CREATE_STREAM, 0));
        // Nobody has reserved it.
        wild.push(with(record(CREATE_STREAM, 7), &[(1, u64::MAX)]));
        wild.push(with(record(FILL, 9), &[(1, own), (3, 1), (4, 1)]));
        wild.push(record(DESTROY_STREAM, 9));
        let harmless = [
            with(record(DESTROY_EVENT, 0), &[(1, u64::MAX)]),
            with(record(ELAPSED, 0), &[(1, u64::MAX), (2, 63)]),
            with(record(WAIT_ON, 0), &[(1, 63), (2, 1)]),
        ];
        let mut position = 0;
        for (index, words) in (0..).zip(wild.iter().chain(&harmless)) {
            session.put(index, words);
            position = index as u64 + 1;
        }
        session.put(wild.len() + harmless.len(), &honest(&session));
        session.set_tail(position + 1);
        until("honest work after the wild records is done", || {
            assert_eq!(session.ended(), None);
            session.mark(0) > position
        });
        assert_eq!(session.refusals(), wild.len() as u64);
    });
}

#[test]
fn random_records_end_their_session_or_are_refused() {
    beside_a_neighbour(|kernel| {
        let mut garbage = Garbage::new(0x5eed_0003);
        for _ in 0..25 {
            let session = RawSession::open(kernel, "random");
            let own = honest(&session)[1];
            let count = 1 + garbage.below(RECORDS as u64 - 1);
            for index in 0..count {
                let mut words = [0; RECORD_WORDS];
                for word in &mut words {
                    *word = match garbage.below(5) {
                        0 => 0,
                        1 => garbage.below(70),
                        2 => own,
                        3 => u64::MAX - garbage.below(3),
                        _ => garbage.word(),
                    };
                }
                let streams = if garbage.below(50) == 0 { 70 } else { 3 };
                words[0] = garbage.below(12) | garbage.below(streams) << 32;
                session.put(usize::try_from(index).unwrap(), &words);
            }
            session.set_tail(count);
            until("the records are judged", || session.ended().is_some() || session.head() == count);
            if let Some(ended) = session.ended() {
                assert_eq!(ended.code, ErrorCode::Protocol as u16);
            }
        }
    });
}

#[test]
fn a_ring_whose_memory_changes_all_the_time_hurts_its_session_only() {
    beside_a_neighbour(|kernel| {
        let mut garbage = Garbage::new(0x5eed_0004);
        for _ in 0..6 {
            let session = RawSession::open(kernel, "scribbled");
            for index in 0..RECORDS {
                session.put(index, &honest(&session));
            }
            session.set_tail(200);
            for _ in 0..20_000 {
                // Heads, bells and flags more often than records, the tail not at all: that would end it at once.
                let offset = match garbage.below(4) {
                    0 => 128 + garbage.below(512),
                    _ => 4096 + garbage.below(RING_BYTES as u64 - 4096 - 8),
                };
                session.scribble(usize::try_from(offset).unwrap(), &garbage.word().to_ne_bytes());
            }
            session.set_tail(garbage.below(1 << 12));
            thread::sleep(Duration::from_millis(20));
            session.set_tail(u64::MAX);
            until("the session is over", || session.ended().is_some());
        }
    });
}

/// A container of code as nvcc writes it, with one entry.
fn container(flags: u64, stored: &[u8], compressed: u32, claimed: u64) -> Vec<u8> {
    let mut padded = stored.to_vec();
    padded.resize(stored.len().next_multiple_of(8), 0);
    let mut entry = vec![0; 64];
    entry[0..2].copy_from_slice(&1_u16.to_le_bytes());
    entry[2..4].copy_from_slice(&0x101_u16.to_le_bytes());
    entry[4..8].copy_from_slice(&64_u32.to_le_bytes());
    entry[8..16].copy_from_slice(&(padded.len() as u64).to_le_bytes());
    entry[16..20].copy_from_slice(&compressed.to_le_bytes());
    entry[28..32].copy_from_slice(&75_u32.to_le_bytes());
    entry[40..48].copy_from_slice(&flags.to_le_bytes());
    entry[56..64].copy_from_slice(&claimed.to_le_bytes());
    entry.extend_from_slice(&padded);
    let mut bytes = 0xBA55_ED50_u32.to_le_bytes().to_vec();
    bytes.extend_from_slice(&1_u16.to_le_bytes());
    bytes.extend_from_slice(&16_u16.to_le_bytes());
    bytes.extend_from_slice(&(entry.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&entry);
    bytes
}

const PLAIN: u64 = 1;
const LZ4: u64 = 0x2001;
const ZSTD: u64 = 0x8001;

/// A Zstandard frame of blocks that repeat one byte: four bytes make 128 KiB.
fn zstd_bomb(blocks: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
    for index in 0..blocks {
        let header = (128_u32 << 10) << 3 | 1 << 1 | u32::from(index + 1 == blocks);
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(b' ');
    }
    frame
}

/// An LZ4 block that repeats one byte: each byte makes 255.
fn lz4_bomb(bytes: usize) -> Vec<u8> {
    let mut block = vec![0x1f, b' ', 1, 0];
    block.resize(4 + bytes, 0xff);
    block.extend_from_slice(&[0, 0x50, b' ', b' ', b' ', b' ', b' ']);
    block
}

fn stored(flags: u64, payload: &[u8], claimed: u64) -> Vec<u8> {
    container(flags, payload, u32::try_from(payload.len()).unwrap(), claimed)
}

/// PTX around a body.
fn entry(body: &str) -> Vec<u8> {
    format!(".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry e()\n{{\n{body}\nret;\n}}\n")
        .into_bytes()
}

/// Each of these images is refused with a typed error that blames the image, and the session goes on.
fn are_refused(images: Vec<(String, Vec<u8>)>) {
    beside_a_neighbour(|kernel| {
        let session = kernel.open("hostile images");
        for (what, image) in images {
            let refused = match session.load_image(&image) {
                Err(refused) => refused,
                Ok(_) => panic!("{what} was loaded"),
            };
            let blamed = matches!(
                refused.code,
                ErrorCode::ImageInvalid
                    | ErrorCode::ImageRefused
                    | ErrorCode::NotSupported
                    | ErrorCode::LimitReached
                    | ErrorCode::InvalidArgument
            );
            assert!(blamed, "{what}: {:?}: {refused}", refused.code);
            assert!(!refused.message.is_empty(), "{what}");
            session.status().unwrap();
        }
        session.load_image(KERNELS).unwrap();
    });
}

#[test]
fn bytes_that_are_no_image_are_refused() {
    let mut garbage = Garbage::new(0x5eed_0005);
    let mut images = vec![
        ("nothing".to_owned(), Vec::new()),
        ("zeros".to_owned(), vec![0; 4096]),
        ("spaces".to_owned(), vec![b' '; 1 << 20]),
        ("the beginning of an ELF file".to_owned(), b"\x7fELF\x02\x01\x01".to_vec()),
        ("an ELF file of ones".to_owned(), [b"\x7fELF".as_slice(), &[0xff; 4096]].concat()),
        ("text that is not ASCII".to_owned(), entry("// \u{1F600}\nmov.u32 %r\u{e9}, 1;")),
        ("a NUL in the text".to_owned(), entry("mov.u32 %r1, 1;\0add.u32 %r1, %r1, 1;")),
    ];
    for length in [1, 7, 64, 4096, 1 << 20] {
        images.push((format!("{length} random bytes"), garbage.bytes(length)));
    }
    let magic = 0xBA55_ED50_u32.to_le_bytes();
    for length in [0, 4, 12, 60, 3000] {
        images.push((
            format!("a container of {length} random bytes"),
            [&magic, garbage.bytes(length).as_slice()].concat(),
        ));
    }
    are_refused(images);
}

#[test]
fn containers_that_are_cut_off_or_lie_are_refused() {
    let whole = stored(PLAIN, KERNELS, 0);
    let mut images: Vec<_> = [1, 15, 16, 17, 40, 79, 80, 81, 200, 1000, whole.len() - 9]
        .map(|length| (format!("a container cut off after {length} bytes"), whole[..length].to_vec()))
        .into();
    for (what, at, value) in [
        ("a container's size", 8, u64::MAX),
        ("an entry's stored size", 24, u64::MAX),
        ("an entry's stored size, wrapping", 24, u64::MAX - 63),
        ("an entry's header size", 16, u64::MAX << 32 | 0x0101_0001),
    ] {
        let mut lying = whole.clone();
        lying[at..at + 8].copy_from_slice(&value.to_le_bytes());
        images.push((format!("{what} that lies"), lying));
    }
    for flags in [LZ4, ZSTD, LZ4 | ZSTD] {
        images.push((
            format!("text that is not compressed as flags {flags:#x} say"),
            stored(flags, KERNELS, 1000),
        ));
    }
    are_refused(images);
}

#[test]
fn bombs_are_refused() {
    let mut images = Vec::new();
    for claimed in [0, 1 << 20, 64 << 20, 6 << 30, u64::MAX] {
        images.push((
            format!("6 GB in Zstandard, said to be {claimed}"),
            stored(ZSTD, &zstd_bomb(50_000), claimed),
        ));
        images.push((
            format!("500 MB in LZ4, said to be {claimed}"),
            stored(LZ4, &lz4_bomb(2_000_000), claimed),
        ));
    }
    are_refused(images);
}

#[test]
fn text_without_measure_is_refused() {
    let deep = |open: &str, count: usize| entry(&open.repeat(count));
    let mut images = vec![
        ("200,000 parentheses".to_owned(), b"(".repeat(200_000)),
        ("200,000 brackets".to_owned(), b"[".repeat(200_000)),
        ("200,000 braces in an entry".to_owned(), deep("{", 200_000)),
        ("parentheses in an operand".to_owned(), entry(&format!("mov.u32 %r1, {}1;", "(".repeat(200_000)))),
        ("minus signs in an operand".to_owned(), entry(&format!("mov.u32 %r1, {}1;", "-".repeat(200_000)))),
        ("braces in an operand".to_owned(), entry(&format!("mov.u32 %r1, {}", "{".repeat(200_000)))),
        ("an initializer of braces".to_owned(), {
            let braces = "{".repeat(200_000);
            format!(".version 8.0\n.target sm_75\n.address_size 64\n.const .b32 c[] = {braces}").into_bytes()
        }),
        ("four billion registers".to_owned(), entry(".reg .b32 %r<4294967295>;")),
        ("an exabyte of shared memory".to_owned(), entry(".shared .align 4 .b8 s[1152921504606846976];")),
        ("a number of a megabyte".to_owned(), entry(&format!("mov.u32 %r1, {};", "9".repeat(1 << 20)))),
        ("a comment without an end".to_owned(), [b"/*".as_slice(), &b"x".repeat(1 << 20)].concat()),
        ("a string without an end".to_owned(), [b".pragma \"".as_slice(), &b"x".repeat(1 << 20)].concat()),
    ];
    let entries: String =
        (0..20_000).map(|index| format!(".visible .entry e{index}() {{ ret; }}\n")).collect();
    let head = ".version 8.0\n.target sm_75\n.address_size 64\n";
    images.push(("20,000 entries".to_owned(), format!("{head}{entries}").into_bytes()));
    are_refused(images);
}
