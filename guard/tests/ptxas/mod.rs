//! Finds and runs NVIDIA's assembler.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// `BULKHEAD_PTXAS`, else the one under `.toolchain` of the workspace, else the one on the path.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("BULKHEAD_PTXAS") {
        return Some(PathBuf::from(path));
    }
    let mut folders =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join(".toolchain"));
    let installed = folders.find(|folder| folder.is_dir()).and_then(|folder| below(&folder, 8));
    installed.or_else(|| {
        let paths = std::env::var_os("PATH")?;
        std::env::split_paths(&paths).map(|folder| folder.join("ptxas")).find(|path| path.is_file())
    })
}

fn below(folder: &Path, depth: usize) -> Option<PathBuf> {
    let candidate = folder.join("bin").join("ptxas");
    if candidate.is_file() {
        return Some(candidate);
    }
    if depth == 0 {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .find_map(|entry| below(&entry.path(), depth - 1))
}

/// Assembles a text for the architecture the CUDA backend runs on.
pub(crate) fn assemble(ptxas: &Path, text: &str) -> Result<(), String> {
    cubin(ptxas, text, "sm_90a").map(drop)
}

/// Assembles a text and returns the machine code.
pub(crate) fn cubin(ptxas: &Path, text: &str, architecture: &str) -> Result<Vec<u8>, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let source = std::env::temp_dir().join(format!("bulkhead-guard-{}-{number}.ptx", std::process::id()));
    let object = source.with_extension("cubin");
    std::fs::write(&source, text).map_err(|error| error.to_string())?;
    let output =
        Command::new(ptxas).args(["-arch", architecture]).arg(&source).arg("-o").arg(&object).output();
    let code = std::fs::read(&object);
    for path in [&source, &object] {
        if path.exists() {
            std::fs::remove_file(path).map_err(|error| error.to_string())?;
        }
    }
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return code.map_err(|error| error.to_string());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}
