//! The thin path of a protected module that works with the host: a gate writes a question into host memory, a thread of
//! this process answers it there, and another gate fetches the answer.
//!
//! ```sh
//! bulkhead serve --backend software --module echo=client/examples/echo/gates.ptx:4MiB &
//! cargo run --release -p bulkhead-client --example echo
//! ```
//!
//! It prints how long a question takes, as the kernel's own clock tells, and how many are answered in a second.

mod window;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{
    Activity, Error, Launch, ModuleHost, Options, Parameters, Session, Stream, SturdyToken, Uses,
    default_socket,
};

/// How many questions are on their way at most, and how long each and each answer is, as in `gates.cu`.
const SLOTS: u64 = 256;
const QUESTION_BYTES: u64 = window::QUESTIONS_BYTES / SLOTS;
const ANSWER_BYTES: u64 = window::ANSWERS_BYTES / SLOTS;

fn main() -> Result<(), Error> {
    let host = open("echo")?;
    let token = SturdyToken::read_file(&default_socket().with_file_name("echo.token"))?;
    let (module, _) = host.claim_module(token)?;
    let (memory, activity) = (module.host()?, module.activity()?);
    let ends = Arc::new(AtomicBool::new(false));
    let answering = thread::spawn({
        let ends = Arc::clone(&ends);
        move || answer(&memory, &activity, &ends)
    });

    let tenant = open("asks")?;
    let gates = module.gates_with_badge(7)?;
    let _accepted = tenant.accept_gates_of(gates.token(Uses::One)?)?;
    let image = tenant.load_image(include_bytes!("tenant.ptx"))?;
    println!("threads  questions  p50 us  p99 us  thousand/s");
    for (blocks, threads, turns) in [(1, 1, 2000), (1, 32, 200), (8, 32, 100)] {
        let questions = blocks as usize * threads as usize * turns as usize;
        let to = tenant.allocate(16 * questions as u64)?;
        let parameters = Parameters::new().buffer(&to).u64(1000).u32(turns);
        let begun = Instant::now();
        let fence = tenant.launch(
            Stream::DEFAULT,
            &image.entry("ask")?,
            &Launch::linear(blocks * threads, threads),
            &parameters,
        )?;
        tenant.wait(fence)?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut found = vec![0; 16 * questions];
        tenant.read(Stream::DEFAULT, &mut found, to.all())?;
        let words: Vec<u64> = found.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let answers = words.iter().step_by(2);
        // The host adds the badge.
        assert!(answers.zip(1000..).all(|(answer, value)| *answer == value + 7), "an answer is another's");
        let mut times: Vec<u64> = words.into_iter().skip(1).step_by(2).collect();
        times.sort_unstable();
        let at = |part: usize| times.get(questions * part / 100).copied().unwrap_or(0) as f64 / 1000.0;
        let rate = questions as f64 / seconds / 1000.0;
        println!("{:7}  {questions:9}  {:6.1}  {:6.1}  {rate:10.1}", blocks * threads, at(50), at(99));
    }
    ends.store(true, Ordering::Relaxed);
    answering.join().unwrap_or_default();
    Ok(())
}

/// Answers questions until it is told to end: each with its value and the badge of who asks.
fn answer(memory: &ModuleHost, activity: &Activity, ends: &AtomicBool) {
    let mut answered = vec![0; place(SLOTS)];
    while !ends.load(Ordering::Relaxed) {
        // Nothing is asked while nobody's kernel calls the gates.
        if !activity.wait(Duration::from_millis(100)) {
            continue;
        }
        for (slot, last) in (0..).zip(&mut answered) {
            let question = place(window::QUESTIONS + slot * QUESTION_BYTES);
            let Some((number, badge)) = memory.message(question).filter(|(number, _)| number != last) else {
                continue;
            };
            // The words come in any order: those of a part may be there before the other's.
            let Some((_, value)) = memory.message(question + 16).filter(|(of, _)| *of == number) else {
                continue;
            };
            memory.post(place(window::ANSWERS + slot * ANSWER_BYTES), number, value.wrapping_add(badge));
            *last = number;
        }
    }
}

/// An offset into memory that is mapped here.
fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn open(name: &str) -> Result<Session, Error> {
    Session::open(&Options { name: name.into(), ..Options::default() })
}
