//! `bulkhead bench`: what the crate of that name measures, with kernels of this program's.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use bulkhead_bench::{Host, Kernel};
use clap::Args;

use crate::{
    Failure,
    place::{self, Scratch},
    private,
    serve::Backend,
};

/// Measure Bulkhead against the driver alone, in alternating processes.
///
/// Starts a private kernel, then measures in turns: a process that calls NVIDIA's driver, and the same program
/// through `bulkhead run`; then what only Bulkhead has, each group in a process of its own. Each figure is the
/// median over the rounds; the table shows both, how they compare, and whether the agreed bar is met. Where there is no NVIDIA driver, only the software GPU is measured, and
/// no bar is judged.
///
/// Exit status: 0 when everything was measured, whatever the bars say (but see --strict); 1 otherwise.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    measured: bulkhead_bench::Arguments,
    /// Which device the private kernel drives.
    #[arg(long, value_enum, default_value_t = Backend::Auto, env = "BULKHEAD_BACKEND")]
    backend: Backend,
}

impl Kernel for private::Kernel {
    fn socket(&self) -> PathBuf {
        self.socket()
    }

    fn log(&self) -> String {
        self.log()
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}

impl Host for Bench {
    fn program(&self) -> Result<PathBuf, bulkhead_bench::Failure> {
        Ok(place::binary().map_err(|failure| failure.to_string())?)
    }

    fn start(&self, arguments: &[&str]) -> Result<Box<dyn Kernel>, bulkhead_bench::Failure> {
        let kernel = private::Kernel::start_with(self.backend, arguments);
        Ok(Box::new(kernel.map_err(|failure| failure.to_string())?))
    }

    fn scratch(&self) -> Result<Box<dyn AsRef<Path>>, bulkhead_bench::Failure> {
        Ok(Box::new(Scratch::new().map_err(|failure| failure.to_string())?))
    }

    fn has_native(&self) -> bool {
        self.backend != Backend::Software
    }
}

pub(crate) fn run(arguments: &Bench) -> Result<ExitCode, Failure> {
    bulkhead_bench::run(&arguments.measured, arguments).map_err(|failure| Failure::new(failure.to_string()))
}

pub(crate) fn worker(arguments: &bulkhead_bench::WorkerArguments) -> Result<ExitCode, Failure> {
    bulkhead_bench::worker(arguments).map_err(|failure| Failure::new(failure.to_string()))
}
