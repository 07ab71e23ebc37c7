//! Copies a file into an extent and back, as a Rust service would: without a kernel, and with the module's checks.
//!
//! ```text
//! cargo run --release -p bulkhead-storage --example storage_client -- put write:scratch FILE
//! cargo run --release -p bulkhead-storage --example storage_client -- get read:scratch FILE BYTES
//! cargo run --release -p bulkhead-storage --example storage_client -- rate read:scratch BLOCKS SECONDS
//! ```

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use bulkhead_client::{Error, ErrorCode, default_socket};
use bulkhead_module::door::socket_of;
use bulkhead_storage::{Storage, rules::BLOCK_BYTES};

const HELP: &str = "Reads and writes the extents of the module `storage` from the host.

usage: storage_client put EXTENT FILE           copies a file to the extent's begin, and flushes
       storage_client get EXTENT FILE BYTES     copies so many bytes back into a file
       storage_client rate EXTENT BLOCKS SECONDS   reads of 1 MiB from random places of so many blocks

EXTENT is read:NAME or write:NAME, with @FIRST+BLOCKS behind it for a part. The module's socket lies beside BULKHEAD_SOCKET.
";

/// Bytes of one call.
const PIECE_BYTES: usize = 1 << 20;

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidArgument, message.into())
}

fn put(storage: &mut Storage, file: &PathBuf) -> Result<String, Error> {
    let mut bytes = std::fs::read(file).map_err(|error| wrong(format!("{}: {error}", file.display())))?;
    let length = bytes.len();
    // The rest of the last block is zero.
    bytes.resize(length.next_multiple_of(BLOCK_BYTES), 0);
    for (piece, at) in bytes.chunks(PIECE_BYTES).zip((0..).step_by(PIECE_BYTES / BLOCK_BYTES)) {
        storage.write(0, at, piece)?;
    }
    storage.flush(0)?;
    Ok(format!("{length} bytes were written"))
}

fn get(storage: &mut Storage, file: &PathBuf, length: usize) -> Result<String, Error> {
    let mut bytes = vec![0; length.next_multiple_of(BLOCK_BYTES)];
    for (piece, at) in bytes.chunks_mut(PIECE_BYTES).zip((0..).step_by(PIECE_BYTES / BLOCK_BYTES)) {
        storage.read(0, at, piece)?;
    }
    bytes.truncate(length);
    std::fs::write(file, bytes).map_err(|error| wrong(format!("{}: {error}", file.display())))?;
    Ok(format!("{length} bytes were read"))
}

fn rate(storage: &mut Storage, blocks: u64, time: Duration) -> Result<String, Error> {
    let mut bytes = vec![0; PIECE_BYTES];
    let places = (blocks / (PIECE_BYTES / BLOCK_BYTES) as u64).max(1);
    let (mut state, mut read, begun) = (0x9E37_79B9_7F4A_7C15_u64, 0_u64, Instant::now());
    while begun.elapsed() < time {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        storage.read(0, state % places * (PIECE_BYTES / BLOCK_BYTES) as u64, &mut bytes)?;
        read += PIECE_BYTES as u64;
    }
    let took = begun.elapsed();
    let commands = u128::from(read / 4096) * 1_000_000 / took.as_micros().max(1);
    Ok(format!(
        "{commands} reads of 4 KiB a second, {} MiB/s",
        (u128::from(read) * 1_000_000 / took.as_micros().max(1)) >> 20
    ))
}

fn run(arguments: &[String]) -> Result<String, Error> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| wrong(format!("{text}: {error}")));
    let (what, extent, rest) = match arguments {
        [what, extent, rest @ ..] => (what.as_str(), extent, rest),
        _ => return Err(wrong(HELP)),
    };
    let mut storage = Storage::open(&socket_of(&default_socket(), "storage"), extent)?;
    match (what, rest) {
        ("put", [file]) => put(&mut storage, &PathBuf::from(file)),
        ("get", [file, bytes]) => {
            let bytes = usize::try_from(number(bytes)?).map_err(|_| wrong("too many bytes"))?;
            get(&mut storage, &PathBuf::from(file), bytes)
        }
        ("rate", [blocks, seconds]) => {
            rate(&mut storage, number(blocks)?, Duration::from_secs(number(seconds)?))
        }
        _ => Err(wrong(HELP)),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(told) => {
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("storage_client: {error}");
            ExitCode::FAILURE
        }
    }
}
