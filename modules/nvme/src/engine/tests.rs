use std::{
    collections::VecDeque,
    io, process,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    file::{Positioned, execute},
    *,
};

static FILES: AtomicU64 = AtomicU64::new(0);

fn store(bytes: u64) -> Store {
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("bulkhead-nvme-engine-{}-{number}", process::id()));
    let store = Store::create(&path, bytes, Caching::Cached).unwrap();
    std::fs::remove_file(&path).unwrap();
    store
}

fn filled(bytes: usize, with: u8) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes);
    buffer.as_mut_slice().fill(with);
    buffer
}

/// A store whose calls give what they are told to, and are recorded.
#[derive(Default)]
struct Told {
    answers: Mutex<VecDeque<io::Result<usize>>>,
    calls: Mutex<Vec<(u64, usize)>>,
}

impl Told {
    fn new(answers: impl IntoIterator<Item = io::Result<usize>>) -> Self {
        Self { answers: Mutex::new(answers.into_iter().collect()), calls: Mutex::default() }
    }

    fn call(&self, offset: u64, bytes: usize) -> io::Result<usize> {
        self.calls.lock().unwrap().push((offset, bytes));
        self.answers.lock().unwrap().pop_front().unwrap()
    }
}

impl Positioned for Told {
    fn read_some(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.call(offset, bytes.len())
    }

    fn write_some(&self, bytes: &[u8], offset: u64, _: Durability) -> io::Result<usize> {
        self.call(offset, bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.call(0, 0).map(|_| ())
    }
}

fn write(offset: u64, buffer: Buffer) -> Operation {
    Operation::Write { offset, buffer, durability: Durability::Flushed }
}

#[test]
fn short_and_interrupted_transfers_are_continued() {
    let interrupted = || Err(io::ErrorKind::Interrupted.into());
    let store = Told::new([Ok(100), interrupted(), Ok(1), Ok(411)]);
    let done = execute(
        &store,
        Request { tag: 7, operation: Operation::Read { offset: 1000, buffer: filled(512, 0) } },
    );
    assert!(done.result.is_ok());
    assert_eq!(*store.calls.lock().unwrap(), [(1000, 512), (1100, 412), (1100, 412), (1101, 411)]);

    let store = Told::new([interrupted(), Ok(0)]);
    assert!(execute(&store, Request { tag: 8, operation: Operation::Flush }).result.is_ok());
}

#[test]
fn an_end_of_file_an_error_and_a_lie_are_errors() {
    let full = || Err(io::ErrorKind::StorageFull.into());
    for (answers, kind) in [
        (vec![Ok(10), Ok(0)], io::ErrorKind::UnexpectedEof),
        (vec![Ok(10), full()], io::ErrorKind::StorageFull),
        (vec![Ok(513)], io::ErrorKind::Other),
    ] {
        let done = execute(&Told::new(answers), Request { tag: 1, operation: write(0, filled(512, 1)) });
        assert_eq!(done.result.unwrap_err().kind(), kind);
    }
}

/// Each engine that this machine has, on a store of so many bytes.
fn engines(bytes: usize) -> Vec<Box<dyn Engine>> {
    let mut engines: Vec<Box<dyn Engine>> =
        vec![Box::new(RamEngine::zeroed(bytes)), Box::new(Threads::new(store(bytes as u64), 8, 3).unwrap())];
    match probe() {
        Ok(()) => engines.push(Box::new(Uring::new(store(bytes as u64), 8).unwrap())),
        Err(why) => println!("skipped: {why}"),
    }
    engines
}

fn wait(engine: &mut dyn Engine) -> Vec<Done> {
    let mut done = Vec::new();
    while engine.in_flight() > 0 {
        engine.poll(&mut done);
        std::thread::yield_now();
    }
    done
}

#[test]
fn what_was_written_is_read_and_each_request_is_given_back_once() {
    for mut engine in engines(1 << 20) {
        for tag in 0..8_u8 {
            let durability = if tag % 2 == 0 { Durability::Forced } else { Durability::Flushed };
            let operation =
                Operation::Write { offset: u64::from(tag) * 4096, buffer: filled(4096, tag + 1), durability };
            assert!(engine.submit(Request { tag: tag.into(), operation }).is_ok());
        }
        let done = wait(&mut *engine);
        let mut tags: Vec<u64> = done.iter().map(|done| done.tag).collect();
        tags.sort_unstable();
        assert_eq!(tags, [0, 1, 2, 3, 4, 5, 6, 7], "{}", engine.name());
        assert!(done.iter().all(|done| done.result.is_ok()));

        assert!(engine.submit(Request { tag: 8, operation: Operation::Flush }).is_ok());
        let read = Operation::Read { offset: 4096, buffer: Buffer::zeroed(8192) };
        assert!(engine.submit(Request { tag: 9, operation: read }).is_ok());
        for done in wait(&mut *engine) {
            assert!(done.result.is_ok());
            if let Operation::Read { buffer, .. } = done.operation {
                assert_eq!(buffer.as_slice()[..4096], [2; 4096]);
                assert_eq!(buffer.as_slice()[4096..], [3; 4096]);
            }
        }
    }
}

#[test]
fn reading_past_the_end_is_an_error() {
    for mut engine in engines(8192) {
        let operation = Operation::Read { offset: 4096, buffer: Buffer::zeroed(8192) };
        assert!(engine.submit(Request { tag: 1, operation }).is_ok());
        let done = wait(&mut *engine);
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].result.as_ref().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn an_engine_on_a_file_takes_no_more_than_its_depth() {
    for mut engine in engines(8192).into_iter().skip(1) {
        for tag in 0..8 {
            assert!(engine.submit(Request { tag, operation: Operation::Flush }).is_ok());
        }
        let refused = engine.submit(Request { tag: 8, operation: Operation::Flush });
        assert_eq!(refused.unwrap_err().tag, 8);
        assert_eq!(wait(&mut *engine).len(), 8);
    }
}

#[test]
fn dropping_an_engine_with_requests_in_flight_ends() {
    for mut engine in engines(1 << 20) {
        for tag in 0..8 {
            assert!(engine.submit(Request { tag, operation: write(tag * 512, filled(512, 1)) }).is_ok());
        }
        let mut done = Vec::new();
        engine.poll(&mut done);
    }
}

#[test]
fn buffers_are_aligned_for_direct_transfers() {
    for bytes in [1, 512, 4096, 1 << 20] {
        let mut buffer = Buffer::zeroed(bytes);
        assert_eq!(buffer.bytes(), bytes);
        assert_eq!(buffer.as_mut_slice().len(), bytes);
        assert_eq!(buffer.as_slice().as_ptr().addr() % BUFFER_ALIGNMENT, 0);
    }
}
