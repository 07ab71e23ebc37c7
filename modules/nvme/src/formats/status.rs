//! Status codes of completions.

use std::fmt;

/// The status field of a completion without its phase: 15 bits (base specification, figure "Completion Queue
/// Entry: Status Field"). Code in bits 7:0, type in 10:8, more in 13, do-not-retry in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(u16);

const DO_NOT_RETRY: u16 = 1 << 14;

impl Status {
    /// The command did what it says.
    pub const SUCCESS: Self = Self::new(0, 0x00);
    /// No such command.
    pub const INVALID_OPCODE: Self = Self::new(0, 0x01).never_retry();
    /// A field that the controller does not take.
    pub const INVALID_FIELD: Self = Self::new(0, 0x02).never_retry();
    /// The submission queue has a command of the same name that has not completed.
    pub const COMMAND_ID_CONFLICT: Self = Self::new(0, 0x03).never_retry();
    /// Data or a PRP list could not be read or written: here, the IOMMU refused.
    pub const DATA_TRANSFER_ERROR: Self = Self::new(0, 0x04);
    /// The controller failed.
    pub const INTERNAL_ERROR: Self = Self::new(0, 0x06);
    /// The host asked to abort it.
    pub const ABORT_REQUESTED: Self = Self::new(0, 0x07);
    /// Its submission queue was deleted.
    pub const ABORTED_QUEUE_DELETION: Self = Self::new(0, 0x08);
    /// No such namespace.
    pub const INVALID_NAMESPACE: Self = Self::new(0, 0x0b).never_retry();
    /// The command may not be given now.
    pub const SEQUENCE_ERROR: Self = Self::new(0, 0x0c).never_retry();
    /// A PRP entry has an offset where none may be, or one that is not aligned.
    pub const INVALID_PRP_OFFSET: Self = Self::new(0, 0x13).never_retry();
    /// The blocks lie beyond the namespace's last.
    pub const LBA_OUT_OF_RANGE: Self = Self::new(0, 0x80).never_retry();
    /// Create submission queue: its completion queue does not exist.
    pub const INVALID_COMPLETION_QUEUE: Self = Self::new(1, 0x00).never_retry();
    /// No queue may have this number, or another has it.
    pub const INVALID_QUEUE_ID: Self = Self::new(1, 0x01).never_retry();
    /// A queue of this size cannot be.
    pub const INVALID_QUEUE_SIZE: Self = Self::new(1, 0x02).never_retry();
    /// As many asynchronous event requests wait as may.
    pub const ASYNC_EVENT_LIMIT: Self = Self::new(1, 0x05).never_retry();
    /// No such interrupt vector.
    pub const INVALID_INTERRUPT_VECTOR: Self = Self::new(1, 0x08).never_retry();
    /// No such log page.
    pub const INVALID_LOG_PAGE: Self = Self::new(1, 0x09).never_retry();
    /// Delete completion queue: submission queues still use it.
    pub const INVALID_QUEUE_DELETION: Self = Self::new(1, 0x0c).never_retry();
    /// The media did not take the data.
    pub const WRITE_FAULT: Self = Self::new(2, 0x80);
    /// The media did not give the data.
    pub const UNRECOVERED_READ_ERROR: Self = Self::new(2, 0x81);

    /// The status of this type (3 bits are used) and code.
    #[must_use]
    pub const fn new(kind: u8, code: u8) -> Self {
        Self(u16::from_le_bytes([code, kind & 7]))
    }

    /// The same with do-not-retry: giving the command again will fail again.
    #[must_use]
    pub const fn never_retry(self) -> Self {
        Self(self.0 | DO_NOT_RETRY)
    }

    /// The status in these 15 bits; bit 15 is ignored.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7fff)
    }

    /// The 15 bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Status code type: 0 generic, 1 command specific, 2 media.
    #[must_use]
    pub const fn kind(self) -> u8 {
        self.0.to_le_bytes()[1] & 7
    }

    /// Status code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// Whether the command did what it says.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.kind() == 0 && self.code() == 0
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry = if self.0 & DO_NOT_RETRY == 0 { "" } else { ", do not retry" };
        write!(f, "Status(type {}, code {:#04x}{retry})", self.kind(), self.code())
    }
}
