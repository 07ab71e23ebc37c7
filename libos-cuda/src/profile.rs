//! `bulkhead run --profile`: the images that the program loads are kept for the command, which tells of their lines.

use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::report;

/// The folder that every process of the run puts its images into.
const VARIABLE: &str = "BULKHEAD_PROFILE";
/// Images that are kept of a run.
const IMAGES_MAX: usize = 1024;

fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let named = || std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    FOLDER.get_or_init(named).as_deref()
}

/// Whether this is such a run.
pub(crate) fn runs() -> bool {
    folder().is_some()
}

/// Keeps an image that was loaded.
pub(crate) fn keep(image: &[u8]) {
    let Some(folder) = folder() else { return };
    let kept = std::fs::read_dir(folder).map_or(IMAGES_MAX, Iterator::count);
    if kept >= IMAGES_MAX {
        report::once(&format!("{VARIABLE}: no more images are kept"));
        return;
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(image);
    let path = folder.join(format!("{:016x}", hasher.finish()));
    // Another process may keep the same image.
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    match made.and_then(|mut file| file.write_all(image)) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            report::once(&format!("{VARIABLE}: {error}"));
        }
        Ok(()) | Err(_) => {}
    }
}

/// At the end of the process: waits for what was launched and not waited for, so that all of it is counted.
pub(crate) extern "C" fn at_exit() {
    if let Ok(driver) = crate::driver::driver() {
        // Whoever could be told is gone.
        driver.streams.synchronize_all(&driver.session).ok();
    }
}
