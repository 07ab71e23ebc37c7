//! The gates of modules that the program's kernels may call: who starts the program names files with their tokens.

use crate::device::{AcceptedGates, Session, SturdyToken};
use crate::report;
use crate::status::Status;

/// Names files with the tokens of gates that the program's kernels may call, as `PATH` names folders.
const GATES: &str = "BULKHEAD_GATES";
/// What such a file is called behind the name of the module that was opened for the program.
const MODULE_TOKEN: &str = ".module.token";

/// Accepts the gates whose tokens lie in the files that the environment names (`bulkhead run --gates`).
pub(crate) fn accepted(session: &Session) -> Result<Vec<AcceptedGates>, Status> {
    let files = std::env::var_os(GATES).unwrap_or_default();
    let files = std::env::split_paths(&files).filter(|file| !file.as_os_str().is_empty());
    let accept = |file: std::path::PathBuf| {
        let accepted = SturdyToken::read_file(&file).and_then(|token| session.accept_gates_of(token));
        // A program that was promised gates does not do without.
        accepted.map_err(|error| {
            report::once(&format!("no gates by {}: {error}", file.display()));
            Status::NO_DEVICE
        })
    };
    files.map(accept).collect()
}

/// The modules whose gates the program was given (`bulkhead run --module`), as far as the files of their tokens say it.
pub(crate) fn modules() -> Vec<String> {
    modules_of(&std::env::var_os(GATES).unwrap_or_default())
}

fn modules_of(files: &std::ffi::OsStr) -> Vec<String> {
    let name = |file: std::path::PathBuf| {
        let name = file.file_name()?.to_str()?.strip_suffix(MODULE_TOKEN)?;
        bulkhead_schema::limits::is_module_name(name).then(|| name.to_owned())
    };
    std::env::split_paths(files).filter_map(name).collect()
}
