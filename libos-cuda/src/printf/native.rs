//! What kernels of machine code print: the driver writes it in the session's executor, and it is fetched from there.
//!
//! That takes a remote call, so it is done where an image calls for `printf`, at the end of the process, and when the session
//! is lost: NVIDIA's words on assertions that failed come the same way.

use std::ffi::CString;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkhead_fatbin::{Compression, Entry, Image, Kind};

use parking_lot::Mutex;

use crate::abi::Print;
use crate::device::Domain;
use crate::driver::{Driver, opened};

/// What an image's machine code calls where it prints.
const CALLED: &[u8] = b"vprintf";
/// As much of an image's machine code is looked at: the names that it uses come first. Programs load hundreds of images, and
/// looking at one takes less than a millisecond.
const LOOKED_AT: usize = 128 << 10;
/// What is compressed as one block is decompressed whole, and not looked at where it is more than this.
const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// How often the executor is asked in vain until it is asked seldom, which is so often.
const IN_VAIN_MAX: u32 = 16;
const SELDOM: Duration = Duration::from_millis(50);

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
            let calls = |entry: &Entry<'_>| {
                (entry.compression != Compression::Lz4 || entry.bytes <= BLOCK_BYTES_MAX)
                    && entry.beginning(LOOKED_AT).is_ok_and(|names| has(&names, CALLED))
            };
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

/// Prints what the executor has written, once all work has passed. Images may have calls that are never made: where
/// nothing comes of asking, it is asked seldom.
pub(super) fn flush(driver: &Driver) {
    static ASKED: Mutex<Asked> = Mutex::new(Asked { in_vain: 0, last: None });
    if PRINTS.load(Ordering::Acquire) {
        // Whoever waits meanwhile for others' kernels waits for what those print.
        let mut asked = ASKED.lock();
        if asked.is_due(Instant::now()) {
            asked.noted(fetch(driver), Instant::now());
        }
    }
}

/// How often the executor was asked, and had nothing.
struct Asked {
    in_vain: u32,
    last: Option<Instant>,
}

impl Asked {
    fn is_due(&self, now: Instant) -> bool {
        self.in_vain < IN_VAIN_MAX
            || self.last.is_none_or(|last| now.saturating_duration_since(last) >= SELDOM)
    }

    fn noted(&mut self, came: bool, now: Instant) {
        self.in_vain = if came { 0 } else { self.in_vain.saturating_add(1) };
        self.last = Some(now);
    }
}

/// Whether anything came.
fn fetch(driver: &Driver) -> bool {
    // Whoever is told of a lost connection is told elsewhere.
    let Ok((out, err)) = driver.session.output() else { return false };
    let came = !out.is_empty() || !err.is_empty();
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
    came
}

/// The session is lost: prints what its executor has written, once. Answers whether it is an isolated session, whose driver may have
/// told why.
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
    fn who_has_nothing_to_say_is_asked_seldom() {
        let (start, mut asked) = (Instant::now(), Asked { in_vain: 0, last: None });
        for _ in 0..IN_VAIN_MAX {
            assert!(asked.is_due(start));
            asked.noted(false, start);
        }
        assert!(!asked.is_due(start) && !asked.is_due(start + SELDOM / 2));
        assert!(asked.is_due(start + SELDOM));
        asked.noted(true, start + SELDOM);
        assert!(asked.is_due(start + SELDOM), "who prints is asked each time");
    }

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
