//! What kernels of machine code print: the driver writes it in the session's executor, and it is fetched from there.
//!
//! That takes a remote call, so it is done where an image calls for `printf`, at the end of the process, and when the session
//! is lost: NVIDIA's words on assertions that failed come the same way.

use std::ffi::CString;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use bulkhead_fatbin::{Entry, Image, Kind};

use crate::abi::Print;
use crate::device::Domain;
use crate::driver::{Driver, opened};

/// What an image's machine code calls where it prints.
const CALLED: &[u8] = b"vprintf";
/// As much of an image's machine code is looked at: the names that it uses come first.
const LOOKED_AT: usize = 1 << 20;

/// Whether an image that was loaded may print.
pub(super) static PRINTS: AtomicBool = AtomicBool::new(false);

fn has(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// Whether an image, or what the driver takes of it on such a device, may print. What cannot be read does not load either.
pub(super) fn may_print(content: &[u8], architecture: u32) -> bool {
    match Image::read(content) {
        Ok(Image::Ptx(text)) => has(text, CALLED),
        Ok(Image::Cubin { .. }) => has(content.get(..LOOKED_AT).unwrap_or(content), CALLED),
        Ok(Image::Containers(entries)) => {
            let runs_here =
                |entry: &&Entry<'_>| entry.kind == Kind::Cubin && entry.sm / 10 == architecture / 10;
            let calls = |entry: &Entry<'_>| entry.beginning(LOOKED_AT).is_ok_and(|names| has(&names, CALLED));
            let mut here = entries.iter().filter(runs_here).peekable();
            if here.peek().is_some() {
                return here.any(calls);
            }
            // The driver compiles PTX where there is nothing else.
            let ptx = entries.iter().filter(|entry| entry.kind == Kind::Ptx);
            ptx.filter_map(|entry| entry.beginning(LOOKED_AT).ok()).any(|text| has(&text, CALLED))
        }
        Err(_) => false,
    }
}

/// Prints what the executor has written, once all work has passed.
pub(super) fn flush(driver: &Driver) {
    if PRINTS.load(Ordering::Acquire) {
        fetch(driver);
    }
}

fn fetch(driver: &Driver) {
    // Whoever is told of a lost connection is told elsewhere.
    let Ok((out, err)) = driver.session.output() else { return };
    for text in out.split(|byte| *byte == 0).filter(|text| !text.is_empty()) {
        if let Ok(text) = CString::new(text) {
            Print::text(&text);
        }
    }
    if !out.is_empty() {
        Print::flush();
    }
    // Nobody to tell when stderr is closed.
    std::io::stderr().write_all(&err).unwrap_or_default();
}

/// The session is lost: says what the driver has said of that. Only once; answers whether there is a driver's word on it.
pub(crate) fn last_words() -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let Some(driver) = opened().filter(|driver| driver.domain == Domain::Isolated) else { return false };
    if !SAID.swap(true, Ordering::AcqRel) {
        fetch(driver);
    }
    true
}

/// At the end of the process: what was launched and not waited for prints nothing more, as with NVIDIA's driver.
pub(crate) extern "C" fn at_exit() {
    if let Some(driver) = opened() {
        fetch(driver);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_call_for_printf_are_told_from_others() {
        assert!(may_print(b".version 9.0\n.target sm_90\n.extern .func vprintf\n\0", 90));
        assert!(!may_print(b".version 9.0\n.target sm_90\n.visible .entry k\n\0", 90));
        let elf = |names: &[u8]| [b"\x7fELF\x02\x01".as_slice(), &[0; 58], names].concat();
        assert!(may_print(&elf(b"\0kernel\0vprintf\0"), 90));
        assert!(!may_print(&elf(b"\0kernel\0printf\0"), 90));
        assert!(!may_print(b"nothing", 90));
    }
}
