//! Submission queue entries.

use super::{
    AdminOpcode, BusAddress, CommandId, IoOpcode, NamespaceId, QueueId,
    bytes::{low_u16, low_u32, put, u16_at, u32_at, u64_at},
};

/// Size of a submission queue entry.
pub const SUBMISSION_BYTES: usize = 64;

const FUA: u32 = 1 << 30;

/// A submission queue entry (base specification, figure "Common Command Format").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Submission {
    /// What to do.
    pub opcode: u8,
    /// Bits 9:8 of dword 0: 0 where the command is not part of a pair.
    pub fused: u8,
    /// Bits 15:14 of dword 0 (PSDT): 0 for PRPs.
    pub transfer: u8,
    /// The host's name for the command.
    pub command: CommandId,
    /// Which namespace.
    pub namespace: NamespaceId,
    /// Where metadata lies.
    pub metadata: BusAddress,
    /// Where the data begins.
    pub prp1: BusAddress,
    /// The second page, or the list of pages.
    pub prp2: BusAddress,
    /// Dwords 10 to 15.
    pub dwords: [u32; 6],
}

/// The blocks that a read, a write or write zeroes names (NVM command set specification, "Read command").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block.
    pub first: u64,
    /// How many: 1 to 65,536.
    pub count: u32,
    /// Force unit access: a write is durable before it completes.
    pub fua: bool,
}

impl Submission {
    /// The 64 bytes. Reserved ones are zero.
    #[must_use]
    pub fn encode(&self) -> [u8; SUBMISSION_BYTES] {
        let mut bytes = [0; SUBMISSION_BYTES];
        bytes[0] = self.opcode;
        bytes[1] = self.fused & 3 | (self.transfer & 3) << 6;
        put(&mut bytes, 2, &self.command.0.to_le_bytes());
        put(&mut bytes, 4, &self.namespace.0.to_le_bytes());
        put(&mut bytes, 16, &self.metadata.0.to_le_bytes());
        put(&mut bytes, 24, &self.prp1.0.to_le_bytes());
        put(&mut bytes, 32, &self.prp2.0.to_le_bytes());
        for (index, dword) in self.dwords.iter().enumerate() {
            put(&mut bytes, 40 + 4 * index, &dword.to_le_bytes());
        }
        bytes
    }

    /// The entry in these bytes; reserved ones are ignored.
    #[must_use]
    pub fn decode(bytes: &[u8; SUBMISSION_BYTES]) -> Self {
        Self {
            opcode: bytes[0],
            fused: bytes[1] & 3,
            transfer: bytes[1] >> 6,
            command: CommandId(u16_at(bytes, 2)),
            namespace: NamespaceId(u32_at(bytes, 4)),
            metadata: BusAddress(u64_at(bytes, 16)),
            prp1: BusAddress(u64_at(bytes, 24)),
            prp2: BusAddress(u64_at(bytes, 32)),
            dwords: std::array::from_fn(|index| u32_at(bytes, 40 + 4 * index)),
        }
    }

    /// Which blocks a read, a write or write zeroes names.
    #[must_use]
    pub fn blocks(&self) -> BlockRange {
        BlockRange {
            first: u64::from(self.dwords[0]) | u64::from(self.dwords[1]) << 32,
            count: u32::from(low_u16(self.dwords[2])) + 1,
            fua: self.dwords[2] & FUA != 0,
        }
    }

    /// A read, a write or write zeroes of `blocks`, of which there must be 1 to 65,536.
    #[must_use]
    pub fn io(opcode: IoOpcode, command: CommandId, namespace: NamespaceId, blocks: BlockRange) -> Self {
        let count = blocks.count.wrapping_sub(1) & 0xffff;
        let fua = if blocks.fua { FUA } else { 0 };
        let dwords = [low_u32(blocks.first), low_u32(blocks.first >> 32), count | fua, 0, 0, 0];
        Self { opcode: opcode as u8, command, namespace, dwords, ..Self::default() }
    }

    /// A flush of one namespace.
    #[must_use]
    pub fn flush(command: CommandId, namespace: NamespaceId) -> Self {
        Self { opcode: IoOpcode::Flush as u8, command, namespace, ..Self::default() }
    }

    /// An admin command with these dwords 10 and 11.
    #[must_use]
    pub fn admin(opcode: AdminOpcode, command: CommandId, dword10: u32, dword11: u32) -> Self {
        Self { opcode: opcode as u8, command, dwords: [dword10, dword11, 0, 0, 0, 0], ..Self::default() }
    }

    /// Makes a completion queue of `entries` (2 to 65,536) at `base`, without interrupts.
    #[must_use]
    pub fn create_completion_queue(
        command: CommandId,
        queue: QueueId,
        entries: u32,
        base: BusAddress,
    ) -> Self {
        let dword10 = entries.wrapping_sub(1) << 16 | u32::from(queue.0);
        Self { prp1: base, ..Self::admin(AdminOpcode::CreateCompletionQueue, command, dword10, 1) }
    }

    /// Makes a submission queue of `entries` (2 to 65,536) at `base`, that completes to the queue `completions`.
    #[must_use]
    pub fn create_submission_queue(
        command: CommandId,
        queue: QueueId,
        entries: u32,
        base: BusAddress,
        completions: QueueId,
    ) -> Self {
        let dword10 = entries.wrapping_sub(1) << 16 | u32::from(queue.0);
        let dword11 = u32::from(completions.0) << 16 | 1;
        Self { prp1: base, ..Self::admin(AdminOpcode::CreateSubmissionQueue, command, dword10, dword11) }
    }

    /// The same command with this place for its data.
    #[must_use]
    pub fn with_prps(self, prp1: BusAddress, prp2: BusAddress) -> Self {
        Self { prp1, prp2, ..self }
    }

    /// The same command for this namespace.
    #[must_use]
    pub fn with_namespace(self, namespace: NamespaceId) -> Self {
        Self { namespace, ..self }
    }
}
