//! Log pages and asynchronous events.

use super::{
    CommandId, NamespaceId, QueueId, Status,
    bytes::{put, u16_at, u32_at, u64_at},
};

/// Size of an entry of the error log.
pub const ERROR_ENTRY_BYTES: usize = 64;

/// Which log page is read (base specification, figure "Get Log Page - Log Page Identifiers").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LogPage {
    /// The last errors, newest first.
    ErrorInformation = 0x01,
    /// Health: 512 bytes.
    Health = 0x02,
    /// Firmware slots: 512 bytes.
    FirmwareSlots = 0x03,
}

impl LogPage {
    /// The page with this number, where the model has it.
    #[must_use]
    pub fn decode(page: u8) -> Option<Self> {
        Some(match page {
            0x01 => Self::ErrorInformation,
            0x02 => Self::Health,
            0x03 => Self::FirmwareSlots,
            _ => return None,
        })
    }
}

/// What an asynchronous event request tells: here, errors only (base specification, figure "Asynchronous Event
/// Information - Error Status").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AsyncEvent {
    /// A doorbell of a queue that does not exist was written.
    InvalidDoorbellRegister = 0x00,
    /// A doorbell was written with a value that its queue cannot have.
    InvalidDoorbellValue = 0x01,
    /// The controller cannot go on with a queue.
    PersistentInternalError = 0x03,
}

impl AsyncEvent {
    /// Dword 0 of the completion: type 2:0 (0, error), information 15:8, log page 23:16.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self as u8) << 8 | u32::from(LogPage::ErrorInformation as u8) << 16
    }

    /// The event in dword 0 of a completion, where it is one of these.
    #[must_use]
    pub fn decode(dword: u32) -> Option<Self> {
        [Self::InvalidDoorbellRegister, Self::InvalidDoorbellValue, Self::PersistentInternalError]
            .into_iter()
            .find(|event| event.encode() == dword & 0x00ff_ff07)
    }
}

/// An entry of the error log (base specification, figure "Error Information Log Entry").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorEntry {
    /// Counts errors, from 1. 0 where there is no entry.
    pub count: u64,
    /// Of which submission queue the command was.
    pub queue: QueueId,
    /// Which command; all ones where there was none.
    pub command: CommandId,
    /// How it completed.
    pub status: Status,
    /// The first block that it named.
    pub first_block: u64,
    /// The namespace.
    pub namespace: NamespaceId,
}

impl ErrorEntry {
    /// The 64 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ERROR_ENTRY_BYTES] {
        let mut bytes = [0; ERROR_ENTRY_BYTES];
        put(&mut bytes, 0, &self.count.to_le_bytes());
        put(&mut bytes, 8, &self.queue.0.to_le_bytes());
        put(&mut bytes, 10, &self.command.0.to_le_bytes());
        put(&mut bytes, 12, &(self.status.bits() << 1).to_le_bytes());
        // The place of the wrong field is not told: all ones.
        put(&mut bytes, 14, &u16::MAX.to_le_bytes());
        put(&mut bytes, 16, &self.first_block.to_le_bytes());
        put(&mut bytes, 24, &self.namespace.0.to_le_bytes());
        bytes
    }

    /// What these bytes say.
    #[must_use]
    pub fn decode(bytes: &[u8; ERROR_ENTRY_BYTES]) -> Self {
        Self {
            count: u64_at(bytes, 0),
            queue: QueueId(u16_at(bytes, 8)),
            command: CommandId(u16_at(bytes, 10)),
            status: Status::from_bits(u16_at(bytes, 12) >> 1),
            first_block: u64_at(bytes, 16),
            namespace: NamespaceId(u32_at(bytes, 24)),
        }
    }
}
