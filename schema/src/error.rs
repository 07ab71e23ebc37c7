//! The error that travels to clients: a code to act on, a message to read, a remedy to follow.

use crate::bulkhead_capnp;

pub use crate::bulkhead_capnp::ErrorCode;

/// Longest text of a message or remedy, in bytes; longer ones are cut.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// What went wrong, whose fault it is (by its code), and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}{remedy}", if remedy.is_empty() { "" } else { ": " })]
pub struct Error {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
    /// What to do about it; may be empty.
    pub remedy: String,
    /// CUDA's own error number where the device reported one, else 0.
    pub device: u32,
}

impl Error {
    /// An error with a message and no remedy.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), remedy: String::new(), device: 0 }
    }

    /// For programs.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The same error with what to do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// The same error with CUDA's number for it.
    #[must_use]
    pub fn device(mut self, device: u32) -> Self {
        self.device = device;
        self
    }

    /// Reads one from a message, and no more of its texts than is written. A code this version does not know reads as
    /// `internal`.
    pub fn read(reader: bulkhead_capnp::error::Reader<'_>) -> Self {
        let text = |text: capnp::Result<capnp::text::Reader<'_>>| {
            let Ok(text) = text else { return String::new() };
            let bytes = text.as_bytes();
            let most = bytes.len().min(TEXT_BYTES_MAX);
            cut(&String::from_utf8_lossy(bytes.get(..most).unwrap_or_default())).to_owned()
        };
        Self {
            code: reader.get_code().unwrap_or(ErrorCode::Internal),
            message: text(reader.get_message()),
            remedy: text(reader.get_remedy()),
            device: reader.get_device(),
        }
    }

    /// Writes it into a message.
    pub fn write(&self, mut builder: bulkhead_capnp::error::Builder<'_>) {
        builder.set_code(self.code);
        builder.set_message(cut(&self.message));
        builder.set_remedy(cut(&self.remedy));
        builder.set_device(self.device);
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_text_no_more_is_read_than_would_be_written() {
        // Bytes that are no text become three each.
        for byte in [b'x', 0xff] {
            let mut message = capnp::message::Builder::new_default();
            let mut error: bulkhead_capnp::error::Builder<'_> = message.init_root();
            let length = u32::try_from(4 * TEXT_BYTES_MAX).unwrap();
            error.reborrow().init_message(length).as_bytes_mut().fill(byte);
            error.reborrow().init_remedy(length).as_bytes_mut().fill(byte);
            let read = Error::read(error.into_reader());
            for text in [read.message, read.remedy] {
                assert!((TEXT_BYTES_MAX - 2..=TEXT_BYTES_MAX).contains(&text.len()), "{}", text.len());
            }
        }
    }
}
