//! Completion queue entries.

use super::{
    CommandId, QueueId, Status,
    bytes::{put, u16_at, u32_at},
};

/// Size of a completion queue entry.
pub const COMPLETION_BYTES: usize = 16;

/// A completion queue entry (base specification, figure "Common Completion Queue Entry Layout").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Completion {
    /// Dword 0: what the command answers.
    pub result: u32,
    /// Where the controller's head in the submission queue is: slots before it are free.
    pub queue_head: u16,
    /// The submission queue of the command.
    pub queue: QueueId,
    /// The command.
    pub command: CommandId,
    /// Flips each time the controller comes around the completion queue; starts at 1.
    pub phase: bool,
    /// How it went.
    pub status: Status,
}

impl Completion {
    /// The 16 bytes. Dword 1 is zero.
    #[must_use]
    pub fn encode(&self) -> [u8; COMPLETION_BYTES] {
        let mut bytes = [0; COMPLETION_BYTES];
        put(&mut bytes, 0, &self.result.to_le_bytes());
        put(&mut bytes, 8, &self.queue_head.to_le_bytes());
        put(&mut bytes, 10, &self.queue.0.to_le_bytes());
        put(&mut bytes, 12, &self.command.0.to_le_bytes());
        put(&mut bytes, 14, &(self.status.bits() << 1 | u16::from(self.phase)).to_le_bytes());
        bytes
    }

    /// The entry in these bytes.
    #[must_use]
    pub fn decode(bytes: &[u8; COMPLETION_BYTES]) -> Self {
        let last = u16_at(bytes, 14);
        Self {
            result: u32_at(bytes, 0),
            queue_head: u16_at(bytes, 8),
            queue: QueueId(u16_at(bytes, 10)),
            command: CommandId(u16_at(bytes, 12)),
            phase: last & 1 == 1,
            status: Status::from_bits(last >> 1),
        }
    }
}
