//! What measures, and on what.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

/// Why nothing could be measured, in words.
pub type Failure = Box<dyn Error>;

/// A private kernel; ends when dropped.
pub trait Kernel {
    /// Its socket for clients.
    fn socket(&self) -> PathBuf;
    /// What it has said so far.
    fn log(&self) -> String;
}

/// The program that measures.
pub trait Host {
    /// Its file: `PROGRAM bench-worker` measures, and `PROGRAM run` runs a program on Bulkhead.
    ///
    /// # Errors
    /// Where it is not known.
    fn program(&self) -> Result<PathBuf, Failure>;

    /// Starts a private kernel, with these arguments besides.
    ///
    /// # Errors
    /// Where it does not listen.
    fn start(&self, arguments: &[&str]) -> Result<Box<dyn Kernel>, Failure>;

    /// A fresh directory, removed when dropped.
    ///
    /// # Errors
    /// Where none can be made.
    fn scratch(&self) -> Result<Box<dyn AsRef<Path>>, Failure>;

    /// Whether there may be a driver to compare with: not where the software GPU was asked for.
    fn has_native(&self) -> bool;
}
