//! Two sessions on one kernel, side by side: neither waits for the other, and neither reaches the other's memory.
//!
//! ```sh
//! bulkhead serve --backend software &
//! cargo run -p bulkhead-client --example two_sessions
//! ```
//!
//! Each session is used from a thread here. Two processes would see the same.

use std::thread;

use bulkhead_client::{DeviceRange, Error, ErrorCode, Launch, Options, Parameters, Session, Stream};

const COUNT: u32 = 4096;
const ROUNDS: u16 = 50;

fn main() -> Result<(), Error> {
    let open = |name: &str| Session::open(&Options { name: name.into(), ..Options::default() });
    let (first, second) = (open("first")?, open("second")?);
    for (name, session) in [("first", &first), ("second", &second)] {
        let (base, bytes) = session.window();
        println!("{name:<6} session: device addresses {base:#x} to {:#x}", base + bytes);
    }

    // Both work at once. A failure of one is an error in its own thread, and of no concern to the other.
    thread::scope(|scope| {
        let work = [
            scope.spawn(|| accumulate("first", &first, 1.0)),
            scope.spawn(|| accumulate("second", &second, 0.25)),
        ];
        let ended = work.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.into_iter().collect::<Result<(), Error>>()
    })?;

    // A handle is a name in its own session: in another one it means nothing, or something of that one's own.
    let secret = first.allocate(4096)?;
    first.write(Stream::DEFAULT, secret.all(), &[0x5a; 4096])?;
    let mut stolen = vec![0; 4096];
    let refused = steal(&second, secret.all(), &mut stolen);
    println!("second session reads by the first one's handle: {refused}");
    assert!(stolen != [0x5a; 4096], "the second session has read the first one's bytes");
    Ok(())
}

/// Adds to an array, round after round, and compares every round with what the CPU computes.
fn accumulate(name: &str, session: &Session, step: f32) -> Result<(), Error> {
    let image = session.load_image(include_bytes!("saxpy.ptx"))?;
    let saxpy = image.entry("saxpy")?;
    // A stream of its own; the default stream would do as well.
    let stream = session.create_stream(0)?;
    let (ones, sums) = (session.allocate(u64::from(COUNT) * 4)?, session.allocate(u64::from(COUNT) * 4)?);
    session.write(stream, ones.all(), &1.0_f32.to_ne_bytes().repeat(COUNT as usize))?;
    session.write(stream, sums.all(), &0.0_f32.to_ne_bytes().repeat(COUNT as usize))?;
    let parameters = Parameters::new().u32(COUNT).f32(step).buffer(&ones).buffer(&sums);
    let mut found = vec![0; COUNT as usize * 4];
    for round in 1..=ROUNDS {
        session.launch(stream, &saxpy, &Launch::linear(COUNT, 128), &parameters)?;
        session.read(stream, &mut found, sums.all())?;
        let expected = (f32::from(round) * step).to_ne_bytes();
        assert!(
            found.as_chunks::<4>().0.iter().all(|sum| *sum == expected),
            "round {round} of {name} is wrong"
        );
    }
    session.destroy_stream(stream)?;
    println!("{name:<6} session: {ROUNDS} rounds, all as the CPU computes them");
    Ok(())
}

/// Tries to read through another session's handle, and tells what came of it.
fn steal(session: &Session, range: DeviceRange, into: &mut [u8]) -> String {
    match session.read(Stream::DEFAULT, into, range) {
        Err(error) if error.code == ErrorCode::InvalidHandle => "refused, no such handle".into(),
        Err(error) => format!("refused, {error}"),
        Ok(()) => "it is a handle of its own, too".into(),
    }
}
