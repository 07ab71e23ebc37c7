//! Tells the crate a digest of its own sources, and of how it reads PTX: machine code that was kept is good for the verifier
//! that verified its text.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            sources(&path, into);
        } else {
            into.push(path);
        }
    }
}

fn main() {
    let mut files = Vec::new();
    let folders = ["src", "../ptx/src"];
    for folder in folders {
        sources(Path::new(folder), &mut files);
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.hash(&mut hasher);
        fs::read(&file).unwrap_or_default().hash(&mut hasher);
    }
    for folder in folders {
        println!("cargo::rerun-if-changed={folder}");
    }
    println!("cargo::rustc-env=BULKHEAD_VERIFIER_SOURCES={:016x}", hasher.finish());
}
