//! NVMe formats, a model controller that executes commands in user space, and the engines that it executes them with.
//!
//! A *controller* takes 64-byte submission entries from queues in host memory and posts 16-byte completion entries to
//! others. A *doorbell* is a register that tells it how far a queue goes. A *PRP* is the bus address of a page of data.
//! A *namespace* is an array of logical blocks; its *engine* is where they are: RAM or a file. The *IOMMU* is the table
//! of what the controller reaches: ranges of *bus addresses*, and the host memory behind them.
//!
//! [`Controller`] stands where an SSD would: the same registers, queues and data structures, so that what drives it
//! drives a device. It has no thread; whoever owns it calls [`Controller::step`]. What a device has and the model has
//! not: interrupts, SGLs, metadata, fused commands, several command sets, queues that are not contiguous.
//!
//! # Invariants
//! 1. The controller reads and writes host memory through [`Iommu`] only. An access outside of its table, or against
//!    the rights there, touches nothing, is recorded as a [`Violation`], and fails its command.
//! 2. A submission entry is copied once, and a PRP list too; the copies are checked, and the copies are used.
//! 3. Each command that was taken from a queue completes exactly once, with the id it was submitted with, unless its
//!    queue is deleted or the controller reset before, or its completion queue cannot be written.
//! 4. A completion never overwrites one that the host has not consumed: while a completion queue is full, nothing is
//!    taken from its submission queues.
//! 5. A flush completes after all writes of its namespace that completed before it was submitted are durable, a write
//!    with FUA when it is durable itself. A block is written whole or not at all as far as the engine's store does so.
//! 6. No register, doorbell, queue entry, list or data makes the controller panic, loop or use memory without bound.
//!
//! # What it trusts
//! Its owner: what it maps, which namespaces it gives, which faults it asks for. The engines, and with them the file
//! system. Not trusted: whoever writes registers, doorbells, queues and data. Commands that overlap and are in flight
//! together are done in any order, and a read beside a write of the same block may see part of it on a file.

pub mod engine;
pub mod formats;

mod controller;
mod faults;
mod iommu;
mod namespace;
mod prp;
mod random;

pub use controller::{
    Config, ConfigError, Controller, Counters, EVENTS_WAITING_MAX, IN_FLIGHT_MAX, NAMESPACES_MAX,
    QUEUE_ENTRIES_MAX, QUEUES_MAX, Stepped, TRANSFER_PAGES_SHIFT_MAX,
};
pub use faults::{Effect, FaultError, Faults, Latency, Occurrence, RULES_MAX, Rule, STUCK_QUEUES_MAX};
pub use iommu::{
    Access, IOMMU_PAGE_BYTES, Iommu, MAPPINGS_MAX, MapError, Memory, RamMemory, Rights, VIOLATIONS_MAX,
    Violation, Who,
};
pub use namespace::{Namespace, NamespaceError};
