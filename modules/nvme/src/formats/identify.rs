//! The data that identify returns: 4,096 bytes each.

use super::{
    NamespaceId,
    bytes::{put, u16_at, u32_at, u64_at},
};

/// Size of what identify returns.
pub const IDENTIFY_BYTES: usize = 4096;

/// Size of a logical block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4,096 bytes.
    B4096,
}

impl BlockSize {
    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// The power of two, as LBADS in an LBA format.
    #[must_use]
    pub const fn shift(self) -> u8 {
        match self {
            Self::B512 => 9,
            Self::B4096 => 12,
        }
    }
}

/// What a driver needs to know of the controller (base specification, figure "Identify Controller Data Structure").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentifyController {
    /// PCI vendor, and the subsystem's.
    pub vendor: u16,
    /// SN: ASCII, cut to 20 bytes and filled with spaces.
    pub serial: String,
    /// MN: likewise, 40 bytes.
    pub model: String,
    /// FR: likewise, 8 bytes.
    pub firmware: String,
    /// MDTS: a transfer has at most 2 to this power of the smallest memory pages. 0: no limit.
    pub transfer_pages_shift_max: u8,
    /// CNTLID.
    pub controller: u16,
    /// VER, as the register VS.
    pub version: u32,
    /// ACL, zero-based.
    pub aborts_max_less_one: u8,
    /// AERL, zero-based.
    pub async_events_max_less_one: u8,
    /// ELPE, zero-based: entries of the error log.
    pub error_entries_less_one: u8,
    /// MAXCMD: commands of one queue that the controller works on at most.
    pub commands_max: u16,
    /// NN: the highest namespace.
    pub namespaces: u32,
    /// ONCS: which optional commands there are; bit 3 is write zeroes.
    pub optional_commands: u16,
    /// VWC: bit 0 says that there is a volatile write cache, bits 2:1 what flush does with all namespaces.
    pub volatile_write_cache: u8,
}

/// ASCII text of a fixed length, filled with spaces; other characters become `?`.
fn text(bytes: &mut [u8], at: usize, length: usize, text: &str) {
    let mut characters = text.chars();
    for byte in &mut bytes[at..at + length] {
        *byte = match characters.next() {
            Some(c @ ' '..='~') => u8::try_from(c).unwrap_or(b'?'),
            Some(_) => b'?',
            None => b' ',
        };
    }
}

fn text_at(bytes: &[u8], at: usize, length: usize) -> String {
    let text: String = bytes[at..at + length].iter().map(|byte| char::from(*byte)).collect();
    text.trim_end().to_owned()
}

impl IdentifyController {
    /// The 4,096 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; IDENTIFY_BYTES] {
        let mut bytes = [0; IDENTIFY_BYTES];
        put(&mut bytes, 0, &self.vendor.to_le_bytes());
        put(&mut bytes, 2, &self.vendor.to_le_bytes());
        text(&mut bytes, 4, 20, &self.serial);
        text(&mut bytes, 24, 40, &self.model);
        text(&mut bytes, 64, 8, &self.firmware);
        bytes[77] = self.transfer_pages_shift_max;
        put(&mut bytes, 78, &self.controller.to_le_bytes());
        put(&mut bytes, 80, &self.version.to_le_bytes());
        // CNTRLTYPE: an I/O controller.
        bytes[111] = 1;
        bytes[258] = self.aborts_max_less_one;
        bytes[259] = self.async_events_max_less_one;
        // FRMW: one slot, read-only.
        bytes[260] = 0b11;
        // LPA: get log page takes offsets and lengths of 32 bits.
        bytes[261] = 1 << 2;
        bytes[262] = self.error_entries_less_one;
        // SQES and CQES: entries of 64 and 16 bytes, no others.
        bytes[512] = 0x66;
        bytes[513] = 0x44;
        put(&mut bytes, 514, &self.commands_max.to_le_bytes());
        put(&mut bytes, 516, &self.namespaces.to_le_bytes());
        put(&mut bytes, 520, &self.optional_commands.to_le_bytes());
        bytes[525] = self.volatile_write_cache;
        // SUBNQN: the form for those without a registered name.
        let name = b"nqn.2014.08.org.nvmexpress:uuid:6d6f6465-6c00-4000-8000-62756c6b6864";
        put(&mut bytes, 768, name);
        bytes
    }

    /// What these bytes say.
    #[must_use]
    pub fn decode(bytes: &[u8; IDENTIFY_BYTES]) -> Self {
        Self {
            vendor: u16_at(bytes, 0),
            serial: text_at(bytes, 4, 20),
            model: text_at(bytes, 24, 40),
            firmware: text_at(bytes, 64, 8),
            transfer_pages_shift_max: bytes[77],
            controller: u16_at(bytes, 78),
            version: u32_at(bytes, 80),
            aborts_max_less_one: bytes[258],
            async_events_max_less_one: bytes[259],
            error_entries_less_one: bytes[262],
            commands_max: u16_at(bytes, 514),
            namespaces: u32_at(bytes, 516),
            optional_commands: u16_at(bytes, 520),
            volatile_write_cache: bytes[525],
        }
    }
}

/// What the NVM command set adds (its specification, figure "I/O Command Set Specific Identify Controller").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandSetController {
    /// WZSL: write zeroes covers at most 2 to this power of the smallest memory pages. 0: no limit.
    pub zeroes_pages_shift_max: u8,
}

impl CommandSetController {
    /// The 4,096 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; IDENTIFY_BYTES] {
        let mut bytes = [0; IDENTIFY_BYTES];
        bytes[1] = self.zeroes_pages_shift_max;
        bytes
    }

    /// What these bytes say.
    #[must_use]
    pub fn decode(bytes: &[u8; IDENTIFY_BYTES]) -> Self {
        Self { zeroes_pages_shift_max: bytes[1] }
    }
}

/// What a driver needs to know of a namespace (NVM command set specification, figure "Identify Namespace Data
/// Structure"). It has one LBA format, without metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentifyNamespace {
    /// NSZE, NCAP and NUSE: blocks.
    pub blocks: u64,
    /// LBADS of the one format: a block is 2 to this power bytes.
    pub block_shift: u8,
}

impl IdentifyNamespace {
    /// The 4,096 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; IDENTIFY_BYTES] {
        let mut bytes = [0; IDENTIFY_BYTES];
        for at in [0, 8, 16] {
            put(&mut bytes, at, &self.blocks.to_le_bytes());
        }
        // NLBAF (25) and FLBAS (26) are zero: one format, in use. LBA format 0 begins at 128.
        bytes[130] = self.block_shift;
        bytes
    }

    /// What these bytes say, by the format in use.
    #[must_use]
    pub fn decode(bytes: &[u8; IDENTIFY_BYTES]) -> Self {
        let format = usize::from(bytes[26] & 0xf);
        Self { blocks: u64_at(bytes, 0), block_shift: bytes[128 + 4 * format + 2] }
    }
}

/// The list of active namespaces above `above`, where 1 to `last` are active (base specification, "Active Namespace
/// ID list").
#[must_use]
pub fn namespace_list(above: NamespaceId, last: u32) -> [u8; IDENTIFY_BYTES] {
    let mut bytes = [0; IDENTIFY_BYTES];
    let numbers = above.0.saturating_add(1)..=last;
    for (slot, number) in bytes.chunks_exact_mut(4).zip(numbers) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// The list of a namespace's names: one, a UUID (base specification, figure "Namespace Identification Descriptor").
#[must_use]
pub fn namespace_descriptors(namespace: NamespaceId) -> [u8; IDENTIFY_BYTES] {
    let mut bytes = [0; IDENTIFY_BYTES];
    // Type 3 is a UUID; its length is 16. Version 8, variant 1: bits of our own.
    bytes[0] = 3;
    bytes[1] = 16;
    put(&mut bytes, 4, b"bulkhe\x80a\x80dns");
    put(&mut bytes, 16, &namespace.0.to_be_bytes());
    bytes
}
