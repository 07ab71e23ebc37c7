//! What becomes of a record.

use bulkhead_schema::ErrorCode;

/// Why a record was not carried out, though the session goes on.
pub(crate) struct Refused {
    pub(super) code: ErrorCode,
    pub(super) device: u32,
}

/// What a record came to.
pub(crate) enum Outcome {
    /// The device has work to do.
    Submitted,
    /// It does not.
    Nothing,
    /// It has no place in its stream's order: nobody waits for it, and a stream may end before it has passed.
    Aside,
    /// It comes again once what it waits for has passed.
    Held,
}

impl From<ErrorCode> for Refused {
    fn from(code: ErrorCode) -> Self {
        Self { code, device: 0 }
    }
}
