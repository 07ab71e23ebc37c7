//! What a controller is made with.

use crate::{
    engine::BUFFER_ALIGNMENT,
    formats::registers::{Capabilities, DoorbellStride},
};

/// How many I/O queues of either kind there are at most.
pub const QUEUES_MAX: u16 = 256;
/// How many entries a queue has at most.
pub const QUEUE_ENTRIES_MAX: u32 = 4096;
/// How many namespaces there are at most.
pub const NAMESPACES_MAX: usize = 64;
/// A transfer has at most 2 to this power of pages of 4 KiB: 1 MiB.
pub const TRANSFER_PAGES_SHIFT_MAX: u8 = 8;
/// The largest memory page is 64 KiB.
const PAGE_SHIFT_MAX: u8 = 4;
/// Size of the smallest memory page, the unit of MDTS.
pub(super) const PAGE_BYTES_MIN: usize = BUFFER_ALIGNMENT;

/// What a controller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Serial number, up to 20 ASCII characters.
    pub serial: String,
    /// Model, up to 40 ASCII characters.
    pub model: String,
    /// I/O queues of either kind: 1 to [`QUEUES_MAX`].
    pub queues_max: u16,
    /// Entries of a queue: 2 to [`QUEUE_ENTRIES_MAX`].
    pub queue_entries_max: u32,
    /// MDTS: 1 to [`TRANSFER_PAGES_SHIFT_MAX`].
    pub transfer_pages_shift_max: u8,
    /// Distance of the doorbells.
    pub stride: DoorbellStride,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            serial: "0".to_owned(),
            model: "Bulkhead model controller".to_owned(),
            queues_max: 64,
            queue_entries_max: 1024,
            transfer_pages_shift_max: TRANSFER_PAGES_SHIFT_MAX,
            stride: DoorbellStride::default(),
        }
    }
}

/// Why a controller cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// [`Config::queues_max`].
    #[error("a controller has 1 to {QUEUES_MAX} I/O queues, not {asked}")]
    Queues {
        /// What was asked for.
        asked: u16,
    },
    /// [`Config::queue_entries_max`].
    #[error("a queue has 2 to {QUEUE_ENTRIES_MAX} entries, not {asked}")]
    QueueEntries {
        /// What was asked for.
        asked: u32,
    },
    /// [`Config::transfer_pages_shift_max`].
    #[error("the largest transfer is 2 to the power of 1 to {TRANSFER_PAGES_SHIFT_MAX} pages, not {asked}")]
    Transfer {
        /// What was asked for.
        asked: u8,
    },
    /// The number of namespaces.
    #[error("a controller has 0 to {NAMESPACES_MAX} namespaces, not {asked}")]
    Namespaces {
        /// What was asked for.
        asked: usize,
    },
}

impl Config {
    pub(super) fn check(&self, namespaces: usize) -> Result<(), ConfigError> {
        if !(1..=QUEUES_MAX).contains(&self.queues_max) {
            return Err(ConfigError::Queues { asked: self.queues_max });
        }
        if !(2..=QUEUE_ENTRIES_MAX).contains(&self.queue_entries_max) {
            return Err(ConfigError::QueueEntries { asked: self.queue_entries_max });
        }
        if !(1..=TRANSFER_PAGES_SHIFT_MAX).contains(&self.transfer_pages_shift_max) {
            return Err(ConfigError::Transfer { asked: self.transfer_pages_shift_max });
        }
        if namespaces > NAMESPACES_MAX {
            return Err(ConfigError::Namespaces { asked: namespaces });
        }
        Ok(())
    }

    /// How many bytes a command transfers at most.
    pub(super) fn transfer_bytes_max(&self) -> usize {
        PAGE_BYTES_MIN << self.transfer_pages_shift_max
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities {
            queue_entries_max_less_one: crate::formats::low_u16(self.queue_entries_max - 1),
            contiguous_queues: true,
            timeout_500ms: 20,
            stride: self.stride,
            page_shift_min: 0,
            page_shift_max: PAGE_SHIFT_MAX,
        }
    }
}
