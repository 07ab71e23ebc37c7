//! What is printed on standard output.

use std::io::{self, Write as _};

use bulkhead_kernel::plain::is_active;
pub(crate) use bulkhead_kernel::plain::plain;

use crate::Failure;

/// Prints text. Where whoever reads has seen enough, the program ends there.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        done => done.map_err(Failure::doing("standard output")),
    }
}

/// Tells of what goes on, on standard error. Where nobody reads it the program goes on.
pub(crate) fn write_told(text: &str) {
    writeln!(io::stderr(), "{text}").unwrap_or_default();
}

/// As `eprintln!`, which ends the program where nobody reads.
macro_rules! tell {
    ($($told:tt)*) => { $crate::output::write_told(&format!($($told)*)) };
}
pub(crate) use tell;

/// Text of a client's for JSON, which has escapes of its own: what a terminal would act on is escaped.
pub(crate) fn plain_json(text: &str) -> String {
    let escaped = |character: char| match character {
        '\n' => "\n".to_owned(),
        active if is_active(active) => format!("\\u{:04x}", u32::from(active)),
        shown => shown.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_escaped() {
        assert_eq!(plain("train \u{e9}\u{1f600}"), "train \u{e9}\u{1f600}");
        assert_eq!(
            plain("a\x1b]0;owned\x07\r\n\u{9b}2J\u{202e}b"),
            r"a\u{1b}]0;owned\u{7}\u{d}\u{a}\u{9b}2J\u{202e}b"
        );
        let json = serde_json::json!({"name": "\x1b[2J\u{9b}\u{202e}"});
        let told = plain_json(&format!("{json:#}"));
        assert!(!told.replace('\n', "").chars().any(is_active), "{told}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&told).unwrap(), json);
    }
}
