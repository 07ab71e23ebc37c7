//! `bulkhead run --sanitize`: calls of the driver that failed, which a program may not have looked at.

use std::backtrace::Backtrace;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::status::{Status, describe};
use crate::{check, faults, freed, report};

/// The file that every process of the run appends to: a call a line, as JSON.
const VARIABLE: &str = "BULKHEAD_CALLS";
/// Calls with an error that are told apart.
const TOLD_MAX: usize = 256;

/// The file, and what was told.
type Run = (std::fs::File, Mutex<Vec<(&'static str, Status)>>);

fn run() -> Option<&'static Run> {
    static RUN: OnceLock<Option<Run>> = OnceLock::new();
    let open = || {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let file = file.inspect_err(|error| report::once(&format!("{VARIABLE}: {error}"))).ok()?;
        Some((file, Mutex::default()))
    };
    RUN.get_or_init(open).as_ref()
}

/// A session is opened: from now on the file is there.
pub(crate) fn begin() {
    run();
}

/// Whether an answer is no mistake: the call asks, and that is the answer, or an error that was told before is told again.
fn is_answer(symbol: &str, status: Status) -> bool {
    let asks = ["Get", "Query", "CanAccess", "Occupancy"].iter().any(|word| symbol.contains(word));
    let again = [Status::NOT_READY, Status::NOT_INITIALIZED, Status::DEINITIALIZED];
    (asks && !is_refusal(symbol, status)) || again.contains(&status) || faults::stopped().is_some()
}

/// Whether code was asked for that is there and refused: a kernel, or an image that the program is linked with, as it is when
/// it is first used. Who loads an image by hand may have another. The names and codes are also in `cli/src/sanitize/report.rs`.
fn is_refusal(symbol: &str, status: Status) -> bool {
    let asked = ["cuKernelGetFunction", "cuLibraryGet", "cuModuleGetFunction"];
    let refused = [Status::NOT_SUPPORTED, Status::INVALID_PTX, Status::NO_BINARY_FOR_GPU];
    asked.iter().any(|begin| symbol.starts_with(begin)) && refused.contains(&status)
}

/// A call answers an error; told once for each.
#[cold]
pub(crate) fn failed(symbol: &'static str, status: Status) {
    if report::tracing() && status != Status::NOT_READY {
        let name =
            describe(status.code()).map_or_else(String::new, |(name, _)| name.to_string_lossy().into_owned());
        report::once(&format!("{symbol}: {} {name}", status.code()));
    }
    let Some((file, told)) = run().filter(|_| !is_answer(symbol, status)) else { return };
    let mut told = told.lock();
    if told.len() >= TOLD_MAX || told.contains(&(symbol, status)) {
        return;
    }
    told.push((symbol, status));
    let text = |text: Option<&std::ffi::CStr>| check::quoted(&text.unwrap_or_default().to_string_lossy());
    let described = describe(status.code());
    let by = freed::caller(&Backtrace::force_capture().to_string());
    let line = format!(
        "{{\"call\":{},\"code\":{},\"name\":{},\"what\":{},\"by\":{}}}\n",
        check::quoted(symbol),
        status.code(),
        text(described.map(|(name, _)| name)),
        text(described.map(|(_, what)| what)),
        by.map_or_else(|| "null".to_owned(), |by| check::quoted(&by)),
    );
    let mut file = file;
    if let Err(error) = file.write_all(line.as_bytes()) {
        report::once(&format!("{VARIABLE}: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_answers_a_question_is_no_mistake() {
        for (symbol, status, is) in [
            ("cuMemAlloc_v2", Status::OUT_OF_MEMORY, false),
            ("cuLaunchKernel", Status::INVALID_VALUE, false),
            ("cuPointerGetAttribute", Status::INVALID_VALUE, true),
            ("cuLibraryGetKernel", Status::NOT_FOUND, true),
            ("cuLibraryGetKernel", Status::NOT_SUPPORTED, false),
            // An image is loaded when it is first asked for something.
            ("cuLibraryGetManaged", Status::INVALID_PTX, false),
            ("cuLibraryGetGlobal", Status::NOT_FOUND, true),
            ("cuModuleLoadData", Status::NO_BINARY_FOR_GPU, false),
            ("cuStreamQuery", Status::NOT_READY, true),
            ("cuEventSynchronize", Status::NOT_READY, true),
            ("cuMemFree_v2", Status::DEINITIALIZED, true),
        ] {
            assert_eq!(is_answer(symbol, status), is, "{symbol}");
        }
    }
}
