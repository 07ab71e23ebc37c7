//! Why cubins are refused.

/// Why a cubin is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no file of the form that the assembler writes.
    #[error("not a well-formed cubin: {0}")]
    Malformed(String),
    /// It is for another device.
    #[error("it is for {found}, not for sm_{asked}")]
    Architecture {
        /// What it says.
        found: String,
        /// What it has to be.
        asked: u32,
    },
    /// It has something that no verified text becomes.
    #[error("{0} is not allowed")]
    NotAllowed(String),
    /// It asks for more than its text does.
    #[error("{0}")]
    Exceeds(String),
    /// It is not what its text becomes.
    #[error("it is not of this text: {0}")]
    OtherText(String),
}

pub(crate) fn malformed(what: impl Into<String>) -> Refusal {
    Refusal::Malformed(what.into())
}

pub(crate) fn not_allowed(what: impl Into<String>) -> Refusal {
    Refusal::NotAllowed(what.into())
}
