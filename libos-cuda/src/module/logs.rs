//! The two buffers for text that options of NVIDIA's compiler describe.

use std::ffi::c_void;

use crate::abi::{InSlice, Room};
use crate::status::Status;

/// `CU_JIT_*` options that name a buffer for text, or its size.
const INFO_LOG: u32 = 3;
const INFO_LOG_BYTES: u32 = 4;
const ERROR_LOG: u32 = 5;
const ERROR_LOG_BYTES: u32 = 6;
pub(crate) const OPTIONS_MAX: u32 = 64;

/// A buffer for text, and how much of the text is kept: its NUL comes behind.
#[derive(Clone, Copy)]
struct Log {
    buffer: Room,
    kept: usize,
}

/// The two buffers for text that options of NVIDIA's compiler describe.
pub(crate) struct Logs {
    info: Option<Log>,
    error: Option<Log>,
}

impl Logs {
    /// Reads `count` options and their values.
    pub(crate) fn read(
        count: u32,
        options: &InSlice<u32>,
        values: &InSlice<*mut c_void>,
    ) -> Result<Logs, Status> {
        if count > OPTIONS_MAX {
            return Err(Status::INVALID_VALUE);
        }
        let count = usize::try_from(count).map_err(|_| Status::INVALID_VALUE)?;
        let options: Vec<(u32, *mut c_void)> =
            options.read(count)?.into_iter().zip(values.read(count)?).collect();
        let value =
            |wanted: u32| options.iter().find(|(option, _)| *option == wanted).map(|(_, value)| *value);
        let log = |buffer, bytes| {
            let room = value(bytes).map_or(0, |value| value.addr());
            let buffer = value(buffer).and_then(Room::of_option)?;
            Some(Log { buffer, kept: room.checked_sub(1)? })
        };
        Ok(Logs { info: log(INFO_LOG, INFO_LOG_BYTES), error: log(ERROR_LOG, ERROR_LOG_BYTES) })
    }

    /// Writes text, cut to what fits, with its NUL.
    pub(crate) fn info(&self, text: &str) {
        write(self.info, text);
    }

    /// Writes text, cut to what fits, with its NUL.
    pub(crate) fn error(&self, text: &str) {
        write(self.error, text);
    }
}

fn write(log: Option<Log>, text: &str) {
    if let Some(Log { buffer, kept }) = log {
        let mut content = text.as_bytes().get(..kept).unwrap_or(text.as_bytes()).to_vec();
        content.push(0);
        buffer.write(&content);
    }
}
