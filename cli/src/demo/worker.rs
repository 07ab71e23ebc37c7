//! A tenant that works: rounds of a kernel, every result compared with the CPU's, and a vault that nobody touches.

use std::{
    io::Read as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bulkhead_client::{Image, Launch, Parameters, Session, Stream};
use serde_json::{Value, json};

use super::entry;
use crate::Failure;

/// Elements of the work.
const COUNT: usize = 4096;
/// Bytes in front of the work: more than the attacker's first arena.
const PAD_BYTES: u64 = 128 << 20;
/// Bytes of the vault.
const VAULT_BYTES: usize = 1 << 20;
/// Fewest rounds.
const ROUNDS_MIN: u64 = 20;

/// What a worker computes.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Saxpy,
    Scramble,
}

/// Works until standard input closes.
pub(super) fn run(session: &Session, image: &Image, work: Work) -> Result<Value, Failure> {
    let stream = Stream::DEFAULT;
    let bytes = COUNT as u64 * 4;
    // Keeps the rest away from the addresses of the attacker's own few buffers, so that its stores meet its sink.
    let _pad = session.allocate(PAD_BYTES)?;
    let (x, y) = (session.allocate(bytes)?, session.allocate(bytes)?);
    let vault = session.allocate(VAULT_BYTES as u64)?;
    let secret: Vec<u8> =
        (0..VAULT_BYTES).map(|index| index.wrapping_mul(151).to_le_bytes()[0] ^ 0x5a).collect();
    session.write(stream, vault.all(), &secret)?;

    let entry = match work {
        Work::Saxpy => entry(image, "saxpy")?,
        Work::Scramble => entry(image, "scramble")?,
    };
    let count = u32::try_from(COUNT).map_err(Failure::doing("count"))?;
    let mut expected: Vec<u32> = (0..count).collect();
    let xs: Vec<f32> =
        (0..count).map(|index| f32::from(u16::try_from(index % 1000).unwrap_or(0)) * 0.25).collect();
    if let Work::Saxpy = work {
        expected = xs.iter().map(|x| (x + 1.0).to_bits()).collect();
        let bytes: Vec<u8> = xs.iter().flat_map(|x| x.to_ne_bytes()).collect();
        session.write(stream, x.all(), &bytes)?;
    }
    let bytes: Vec<u8> = expected.iter().flat_map(|word| word.to_ne_bytes()).collect();
    session.write(stream, y.all(), &bytes)?;

    println!("{}", json!({"vault": vault.address(), "work": y.address()}));
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    std::thread::spawn(move || {
        let ended = std::io::stdin().read_to_end(&mut Vec::new());
        tracing::debug!(?ended, "told to finish");
        told.store(true, Ordering::Relaxed);
    });
    let launch = Launch::linear(count, 128);
    let parameters = match work {
        Work::Saxpy => Parameters::new().u32(count).f32(0.5).buffer(&x).buffer(&y),
        Work::Scramble => Parameters::new().u32(count).buffer(&y),
    };
    let (mut rounds, mut right) = (0, true);
    let mut result = vec![0; COUNT * 4];
    while rounds < ROUNDS_MIN || !over.load(Ordering::Relaxed) {
        session.launch(stream, &entry, &launch, &parameters)?;
        session.read(stream, &mut result, y.all())?;
        match work {
            Work::Saxpy => {
                for (word, x) in expected.iter_mut().zip(&xs) {
                    *word = 0.5_f32.mul_add(*x, f32::from_bits(*word)).to_bits();
                }
            }
            Work::Scramble => {
                for word in &mut expected {
                    *word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                }
            }
        }
        right &= result
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_ne_bytes(*word))
            .eq(expected.iter().copied());
        rounds += 1;
    }
    let mut found = vec![0; VAULT_BYTES];
    session.read(stream, &mut found, vault.all())?;
    Ok(json!({"rounds": rounds, "results": right, "vault_intact": found == secret}))
}
