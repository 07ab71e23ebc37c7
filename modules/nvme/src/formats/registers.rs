//! The registers of BAR0 (base specification, section "Controller Properties") and the doorbells behind them
//! (PCIe transport specification, section "Doorbell Registers").

use super::QueueId;

/// Controller capabilities, 8 bytes.
pub const CAP: u64 = 0x00;
/// Version.
pub const VS: u64 = 0x08;
/// Interrupt mask set.
pub const INTMS: u64 = 0x0c;
/// Interrupt mask clear.
pub const INTMC: u64 = 0x10;
/// Controller configuration.
pub const CC: u64 = 0x14;
/// Controller status.
pub const CSTS: u64 = 0x1c;
/// Admin queue attributes.
pub const AQA: u64 = 0x24;
/// Base of the admin submission queue, 8 bytes.
pub const ASQ: u64 = 0x28;
/// Base of the admin completion queue, 8 bytes.
pub const ACQ: u64 = 0x30;
/// Where the doorbells begin.
pub const DOORBELLS: u64 = 0x1000;

/// The value of VS: 2.0.0.
pub const VERSION: u32 = 0x0002_0000;

/// Which end of a pair of queues a doorbell moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doorbell {
    /// The tail of a submission queue.
    SubmissionTail(QueueId),
    /// The head of a completion queue.
    CompletionHead(QueueId),
}

/// Bytes from one doorbell to the next: 4 to the power that `CAP.DSTRD` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoorbellStride(u8);

impl DoorbellStride {
    /// `4 << shift` bytes; `shift` has 4 bits.
    #[must_use]
    pub const fn new(shift: u8) -> Self {
        Self(shift & 0xf)
    }

    /// What CAP.DSTRD holds.
    #[must_use]
    pub const fn shift(self) -> u8 {
        self.0
    }

    /// The distance.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        4 << self.0
    }

    /// The register's offset in BAR0.
    #[must_use]
    pub fn offset(self, doorbell: Doorbell) -> u64 {
        let index = match doorbell {
            Doorbell::SubmissionTail(queue) => 2 * u64::from(queue.0),
            Doorbell::CompletionHead(queue) => 2 * u64::from(queue.0) + 1,
        };
        DOORBELLS + index * self.bytes()
    }

    /// The doorbell at this offset of BAR0, where one can be.
    #[must_use]
    pub fn doorbell_at(self, offset: u64) -> Option<Doorbell> {
        let from_first = offset.checked_sub(DOORBELLS)?;
        if !from_first.is_multiple_of(self.bytes()) {
            return None;
        }
        let index = from_first / self.bytes();
        let queue = QueueId(u16::try_from(index / 2).ok()?);
        Some(if index.is_multiple_of(2) {
            Doorbell::SubmissionTail(queue)
        } else {
            Doorbell::CompletionHead(queue)
        })
    }
}

/// CAP: what the controller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// MQES: entries of the largest queue, less one.
    pub queue_entries_max_less_one: u16,
    /// CQR: queues must be contiguous in memory.
    pub contiguous_queues: bool,
    /// TO: how long the controller may take to be ready, in 500 ms.
    pub timeout_500ms: u8,
    /// DSTRD.
    pub stride: DoorbellStride,
    /// MPSMIN: the smallest memory page is `4096 << page_shift_min` bytes.
    pub page_shift_min: u8,
    /// MPSMAX: the largest, likewise.
    pub page_shift_max: u8,
}

impl Capabilities {
    /// The 8 bytes. Bit 37 says that the NVM command set is there.
    #[must_use]
    pub fn encode(&self) -> u64 {
        u64::from(self.queue_entries_max_less_one)
            | u64::from(self.contiguous_queues) << 16
            | u64::from(self.timeout_500ms) << 24
            | u64::from(self.stride.shift()) << 32
            | 1 << 37
            | u64::from(self.page_shift_min & 0xf) << 48
            | u64::from(self.page_shift_max & 0xf) << 52
    }

    /// What these 8 bytes say.
    #[must_use]
    pub fn decode(bits: u64) -> Self {
        let [low, high, flags, timeout, stride, _, pages, _] = bits.to_le_bytes();
        Self {
            queue_entries_max_less_one: u16::from_le_bytes([low, high]),
            contiguous_queues: flags & 1 == 1,
            timeout_500ms: timeout,
            stride: DoorbellStride::new(stride),
            page_shift_min: pages & 0xf,
            page_shift_max: pages >> 4,
        }
    }
}

/// CC: what the host wants the controller to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Configuration {
    /// EN.
    pub enable: bool,
    /// CSS: 0 is the NVM command set.
    pub command_set: u8,
    /// MPS: a memory page is `4096 << page_shift` bytes.
    pub page_shift: u8,
    /// AMS: 0 is round robin.
    pub arbitration: u8,
    /// SHN: 0 none, 1 normal, 2 abrupt shutdown.
    pub shutdown: u8,
    /// IOSQES: a submission entry is 2 to this power bytes; must be 6.
    pub submission_shift: u8,
    /// IOCQES: a completion entry is 2 to this power bytes; must be 4.
    pub completion_shift: u8,
}

impl Configuration {
    /// What a host writes to start a controller with pages of 4 KiB.
    pub const START: Self = Self {
        enable: true,
        command_set: 0,
        page_shift: 0,
        arbitration: 0,
        shutdown: 0,
        submission_shift: 6,
        completion_shift: 4,
    };

    /// The register's bits.
    #[must_use]
    pub fn encode(&self) -> u32 {
        u32::from(self.enable)
            | u32::from(self.command_set & 7) << 4
            | u32::from(self.page_shift & 0xf) << 7
            | u32::from(self.arbitration & 7) << 11
            | u32::from(self.shutdown & 3) << 14
            | u32::from(self.submission_shift & 0xf) << 16
            | u32::from(self.completion_shift & 0xf) << 20
    }

    /// What these bits say.
    #[must_use]
    pub fn decode(bits: u32) -> Self {
        let field = |shift: u32, mask: u8| super::low_u8(bits >> shift) & mask;
        Self {
            enable: bits & 1 == 1,
            command_set: field(4, 7),
            page_shift: field(7, 0xf),
            arbitration: field(11, 7),
            shutdown: field(14, 3),
            submission_shift: field(16, 0xf),
            completion_shift: field(20, 0xf),
        }
    }
}

/// CSTS, bit 0: the controller takes commands.
pub const READY: u32 = 1;
/// CSTS, bit 1: the controller failed, and only a reset helps.
pub const FATAL: u32 = 1 << 1;
/// CSTS, bits 3:2: the shutdown goes on.
pub const SHUTDOWN_RUNS: u32 = 1 << 2;
/// CSTS, bits 3:2: the shutdown is done.
pub const SHUTDOWN_DONE: u32 = 2 << 2;
