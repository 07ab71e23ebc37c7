//! Generated programs that look for a way out of their slot, through the guard and on a device laid out as production has it.
//!
//! `BULKHEAD_ESCAPES` says how many programs, `BULKHEAD_ESCAPES_SEED` which is the first; a seed is one program. With
//! `BULKHEAD_ESCAPES_ALL` the tests go on behind what they find, and show what the rewriter writes and the verifier refuses.
//!
//! The oracle has no layout and no check of launches of its own: slot, flag and versions are the executor's (`Testbed`).
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

/// Writes a line.
macro_rules! put {
    ($self:ident, $($words:tt)*) => {{
        let line = format!($($words)*);
        $self.lines.push(line);
    }};
}

mod bed;
mod generate;
mod loops;
mod mutate;
mod random;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bed::{Arguments, Bed, Outcome, PROGRAMS_OF_A_DEVICE};
use generate::Program;
use random::Random;

/// Programs where nobody asks for more.
const PROGRAMS: u64 = 2000;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The first seed: another one at each time.
fn first_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    variable("BULKHEAD_ESCAPES_SEED").unwrap_or((now.as_secs() % 1_000_000) * 1_000_000)
}

/// What a seed stands for.
fn of_seed(seed: u64) -> (Program, Vec<Arguments>) {
    let mut random = Random::of_seed(seed);
    let program = generate::program(&mut random);
    (program, bed::arguments(&mut random))
}

/// The same without what it does not need to fail.
fn shrunk(program: &Program, mut fails: impl FnMut(&Program) -> bool) -> Program {
    let mut program = program.clone();
    let mut piece = if fails(&program) { program.lines.len() } else { 0 };
    while piece > 0 {
        let (mut at, mut less) = (0, false);
        while at < program.lines.len() {
            let mut tried = program.clone();
            tried.lines.drain(at..(at + piece).min(program.lines.len()));
            if fails(&tried) {
                program = tried;
                less = true;
            } else {
                at += piece;
            }
        }
        if !less || piece > 1 {
            piece /= 2;
        }
    }
    program
}

/// The same without what it does not need to get out.
fn smallest(program: &Program, arguments: &[Arguments]) -> Program {
    let mut bed = Bed::new();
    shrunk(program, |program| {
        let outcome = bed.check(&program.text(), arguments);
        if matches!(outcome, Outcome::Broken(_)) {
            bed = Bed::new();
        }
        outcome.is_found()
    })
}

#[test]
fn no_generated_program_gets_out() {
    let (first, count) = (first_seed(), variable("BULKHEAD_ESCAPES").unwrap_or(PROGRAMS));
    println!("BULKHEAD_ESCAPES_SEED={first} BULKHEAD_ESCAPES={count}");
    let goes_on = variable("BULKHEAD_ESCAPES_ALL").is_some();
    let began = Instant::now();
    let mut bed = Bed::new();
    let (mut refused, mut unverified, mut ran, mut fast, mut confined, mut instructions) =
        (0, 0, 0_u64, 0, 0, 0);
    let mut found = Vec::new();
    let (mut anchored, mut versioned) = (0, 0);
    let mut guarding = std::time::Duration::ZERO;
    for seed in first..first + count {
        if seed % PROGRAMS_OF_A_DEVICE == 0 {
            bed = Bed::new();
        }
        if goes_on && (seed - first).is_multiple_of(10_000) {
            println!("{} programs, {:?}", seed - first, began.elapsed());
        }
        let (program, arguments) = of_seed(seed);
        let text = program.text();
        let at = Instant::now();
        let verified = bed::guarded(&text);
        guarding += at.elapsed();
        let outcome = match verified {
            Ok(verified) => {
                anchored += u64::from(verified.text().contains("setp.ge.or.u64"));
                versioned += u64::from(verified.entries()[0].fast.is_some());
                bed.run(&verified, &arguments)
            }
            Err(outcome) => outcome,
        };
        match &outcome {
            Outcome::Refused(why) => {
                refused += 1;
                if goes_on && refused < 10 {
                    println!("seed {seed}: refused: {why}");
                }
            }
            Outcome::Unverified(why) => {
                unverified += 1;
                if goes_on && unverified < 30 {
                    let same = |program: &Program| {
                        matches!(bed::guarded(&program.text()), Err(Outcome::Unverified(_)))
                    };
                    let smaller = shrunk(&program, same);
                    println!("seed {seed}: confined, but not verified: {why}\n{}", smaller.text());
                }
            }
            Outcome::Ran { fast: so_fast, confined: so_confined, steps } => {
                ran += 1;
                fast += so_fast;
                confined += so_confined;
                instructions += steps;
            }
            Outcome::Escaped(..) | Outcome::Broken(_) => {
                let after = began.elapsed();
                let only: Vec<Arguments> = match &outcome {
                    Outcome::Escaped(_, arguments) => vec![*arguments],
                    _ => arguments.clone(),
                };
                let smaller = smallest(&program, &only);
                let again = Bed::new().check(&smaller.text(), &only);
                println!(
                    "seed {seed} ({} programs, {after:?}): {outcome:x?}\nagain: {again:x?}\n{}",
                    seed - first + 1,
                    smaller.text()
                );
                found.push(seed);
                if matches!(outcome, Outcome::Broken(_)) {
                    bed = Bed::new();
                }
                assert!(goes_on, "seed {seed} gets out");
            }
        }
    }
    println!(
        "{count} programs in {:?}: {refused} refused, {unverified} not verified, {ran} ran, {fast} times as fast versions and \
         {confined} times not, {instructions} instructions, {guarding:?} in the guard, {versioned} with fast versions, {anchored} with anchors; found {found:?}",
        began.elapsed()
    );
    assert!(ran > count / 3 && fast > count / 10 && confined > count / 3, "{ran} {fast} {confined}");
    assert!(found.is_empty(), "{found:?}");
}

/// Mutants of one program.
const MUTANTS: u64 = 24;

#[test]
fn nothing_that_the_verifier_lets_through_gets_out() {
    let (first, count) = (first_seed(), variable("BULKHEAD_ESCAPES").unwrap_or(PROGRAMS));
    println!("BULKHEAD_ESCAPES_SEED={first} BULKHEAD_ESCAPES={count}");
    let goes_on = variable("BULKHEAD_ESCAPES_ALL").is_some();
    let began = Instant::now();
    let mut bed = Bed::new();
    let (mut tried, mut same, mut refused, mut ran, mut fast) = (0, 0, 0, 0_u64, 0);
    let mut found = Vec::new();
    for seed in first.. {
        if ran >= count {
            break;
        }
        if seed % PROGRAMS_OF_A_DEVICE == 0 {
            bed = Bed::new();
        }
        let (program, arguments) = of_seed(seed);
        let Ok(honest) = bed::guarded(&program.text()) else { continue };
        let mut random = Random::of_seed(!seed);
        for number in 0..MUTANTS {
            tried += 1;
            let text = mutate::mutant(honest.text(), &mut random);
            if text == honest.text() {
                same += 1;
                continue;
            }
            let verified = match bed::verified(&text) {
                Ok(verified) => verified,
                Err(outcome) => {
                    assert!(!outcome.is_found(), "seed {seed}, mutant {number}: {outcome:?}");
                    refused += 1;
                    continue;
                }
            };
            let outcome = bed.run(&verified, &arguments);
            ran += 1;
            match &outcome {
                Outcome::Ran { fast: so_fast, .. } => fast += so_fast,
                Outcome::Refused(why) | Outcome::Unverified(why) => {
                    println!("seed {seed}, mutant {number}: verified, and the device refuses it: {why}");
                }
                Outcome::Escaped(..) | Outcome::Broken(_) => {
                    let again = Bed::new().run(&verified, &arguments);
                    println!(
                        "seed {seed}, mutant {number}, after {:?}: {outcome:x?}\nagain: {again:x?}",
                        began.elapsed()
                    );
                    println!("{}\nfrom\n{text}", difference(honest.text(), &text));
                    found.push((seed, number));
                    bed = Bed::new();
                    assert!(goes_on, "seed {seed}, mutant {number} gets out");
                }
            }
        }
    }
    println!(
        "{tried} mutants in {:?}: {same} the same, {refused} refused, {ran} ran, {fast} times as fast versions; found {found:?}",
        began.elapsed()
    );
    assert!(found.is_empty(), "{found:?}");
}

/// The lines that differ.
fn difference(one: &str, other: &str) -> String {
    let (one, other): (Vec<&str>, Vec<&str>) = (one.lines().collect(), other.lines().collect());
    let start = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let part = |lines: &[&str]| {
        let end = lines.len().saturating_sub(end).max(start);
        lines[start..end].join("\n")
    };
    format!("line {}:\n- {}\n+ {}", start + 1, part(&one), part(&other))
}

#[test]
#[ignore = "prints programs"]
fn some() {
    for seed in first_seed()..first_seed() + variable("BULKHEAD_ESCAPES").unwrap_or(5) {
        let (program, _) = of_seed(seed);
        println!("seed {seed}: {}", program.text());
        if let Ok(verified) = bed::guarded(&program.text()) {
            println!("{}\n{:?}", verified.text(), verified.entries());
        }
    }
}

#[test]
#[ignore = "runs the file that BULKHEAD_ESCAPES_FILE names"]
fn a_file() {
    let text = std::fs::read_to_string(std::env::var("BULKHEAD_ESCAPES_FILE").unwrap()).unwrap();
    for seed in 0..variable("BULKHEAD_ESCAPES").unwrap_or(100) {
        let mut random = Random::of_seed(seed);
        let outcome = Bed::new().check(&text, &bed::arguments(&mut random));
        println!("{seed}: {outcome:x?}");
        if !matches!(outcome, Outcome::Ran { .. }) {
            break;
        }
    }
}
