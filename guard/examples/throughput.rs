//! How fast PTX is read: `cargo run --release -p bulkhead-guard --example throughput [FILE...]`.
//!
//! Without files it reads the guard's own file tests, over and over. It prints bytes of text a second for the
//! lexer alone, for the parser (which lexes), and for the canonical print.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bulkhead_guard::{parse, print, tokens};

/// How much text one turn reads: little, so that some turns are not interrupted.
const TEXT_BYTES: usize = 64 << 10;
/// The best of so many turns counts.
const TURNS: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests/accept");
        for entry in std::fs::read_dir(folder)? {
            paths.push(entry?.path());
        }
        paths.sort();
    }
    let mut texts = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        match parse(&text) {
            Ok(_) => texts.push(text),
            Err(report) => eprintln!("{}: {report}", path.display()),
        }
    }
    let once: usize = texts.iter().map(String::len).sum();
    if once == 0 {
        return Err("there is nothing to read".into());
    }
    let rounds = TEXT_BYTES.div_ceil(once);
    let modules: Vec<_> = texts.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    let report = |what: &str, time: Duration| {
        let bytes = u32::try_from(once * rounds).map_or(f64::MAX, f64::from);
        println!("{what:<6} {:7.1} MB/s", bytes / time.as_secs_f64() / 1e6);
    };
    println!("{} texts, {once} bytes, {rounds} times", texts.len());
    report("lex", best(rounds, || texts.iter().for_each(|text| _ = black_box(tokens::tokens(text).count()))));
    report("parse", best(rounds, || texts.iter().for_each(|text| _ = black_box(parse(text)))));
    report("print", best(rounds, || modules.iter().for_each(|module| _ = black_box(print(module)))));
    Ok(())
}

fn best(rounds: usize, work: impl Fn()) -> Duration {
    let turn = |_| {
        let start = Instant::now();
        (0..rounds).for_each(|_| work());
        start.elapsed()
    };
    (0..TURNS).map(turn).min().unwrap_or_default()
}
