//! Tests of the crate as a whole, and what tests share.

use std::path::Path;

/// A header of the CUDA toolchain, where that is installed.
pub(crate) fn header(name: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(".toolchain");
    let found = find(&root, name, 0);
    if found.is_none() {
        eprintln!("skipped: no {name} under {} (tests/toolchain.sh installs it)", root.display());
    }
    std::fs::read_to_string(found?).ok()
}

fn find(folder: &Path, name: &str, depth: u32) -> Option<std::path::PathBuf> {
    let direct = folder.join("include").join(name);
    if direct.is_file() {
        return Some(direct);
    }
    if depth > 8 {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .find_map(|entry| find(&entry.path(), name, depth + 1))
}
