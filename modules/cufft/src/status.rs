//! cuFFT's results, and refusals that say why.

/// A `cufftResult` that this service gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Success,
    /// No plan, or none of this kind.
    InvalidPlan,
    /// No memory for it.
    AllocFailed,
    /// No type of transforms.
    InvalidType,
    /// A pointer or a parameter is wrong.
    InvalidValue,
    /// The service is at fault.
    InternalError,
    /// A transform was begun and failed.
    ExecFailed,
    /// There is no service.
    SetupFailed,
    /// No such size.
    InvalidSize,
    /// Not in this library.
    NotImplemented,
    /// Not for these types.
    NotSupported,
}

const ALL: [(Status, u32); 11] = [
    (Status::Success, 0),
    (Status::InvalidPlan, 1),
    (Status::AllocFailed, 2),
    (Status::InvalidType, 3),
    (Status::InvalidValue, 4),
    (Status::InternalError, 5),
    (Status::ExecFailed, 6),
    (Status::SetupFailed, 7),
    (Status::InvalidSize, 8),
    (Status::NotImplemented, 0xE),
    (Status::NotSupported, 0x10),
];

impl Status {
    /// As C has it.
    #[must_use]
    pub fn code(self) -> u32 {
        ALL.iter().find(|(status, _)| *status == self).map_or(5, |(_, code)| *code)
    }

    /// What a code means; a code that nobody gives is the service's fault.
    #[must_use]
    pub fn of(code: u64) -> Self {
        ALL.iter()
            .find(|(_, known)| u64::from(*known) == code)
            .map_or(Self::InternalError, |(status, _)| *status)
    }
}

/// Why something is not done, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// What the program is told.
    pub status: Status,
    /// What a person is told.
    pub message: String,
}

impl Refused {
    /// A refusal.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}
