//! The cuFFT service: one process that lets callers in, and a worker for each of them.

mod account;
mod engine;
mod options;
mod serve;
mod worker;

use std::process::ExitCode;

use options::{Options, Role};

const HELP: &str = "Fourier transforms for programs without NVIDIA's cuFFT (docs/MODULES.md).

usage: cufft serve [OPTIONS]      started by `bulkhead module start modules/cufft`

  --engine auto|nvidia|host  what computes: NVIDIA's library, guarded, or this process on the host (auto: NVIDIA's where
                             it is found and the device is a GPU)
  --library PATH             NVIDIA's libcufft.so.12 or .11, by its whole path
  --host-memory SIZE         most bytes of a transform that the host computes (2GiB)
  --work-memory SIZE         most bytes of a caller's work area on the device (8GiB)
  --host-memory-of-all SIZE  the same of all callers together (8GiB)
  --work-memory-of-all SIZE  the same of all callers together (32GiB)
  --host-memory-of-process SIZE
  --work-memory-of-process SIZE
                             of these, of one process's callers together (a quarter, or one caller's where that is more)
  --callers N                callers at a time (12: a program and its worker have a session each, of the 32 that a user has
                             at a kernel; for more, start the kernel with `serve --user-limit sessions=N`)
  --callers-of-process N     of these, callers of one process (4)
  --help                     this
";

fn main() -> ExitCode {
    let done = match Options::read(std::env::args().skip(1)) {
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Some(options)) => match options.role {
            Role::Serve => serve::serve(&options),
            Role::Work => worker::work(&options),
        },
        Err(wrong) => {
            eprintln!("cufft: {wrong}: see --help");
            return ExitCode::from(bulkhead_module::CANNOT_SERVE);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cufft: {error}");
            ExitCode::FAILURE
        }
    }
}
