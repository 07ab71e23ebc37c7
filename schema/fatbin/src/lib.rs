//! CUDA images, read from hostile bytes.
//!
//! An *image* is what a program hands to `cuModuleLoadData`: PTX text, a bare cubin (an ELF file), or one or
//! more *containers* in a row, each of which holds *entries* (PTX, cubin or LTO-IR, for one architecture each,
//! mostly compressed). The layout is from facts about driver 580 and nvcc 13.0, checked against their output.
//!
//! # Invariants
//! 1. No input makes this crate panic, recurse, or read outside the slice it was given.
//! 2. Nothing is decompressed that was not asked for, and nothing beyond [`TEXT_BYTES_MAX`].
//! 3. A container has at most [`ENTRIES_MAX`] entries, all containers of an image together.
//!
//! It trusts `ruzstd` and `lz4_flex` to be safe (both are safe Rust), not to be quick: call it where time and
//! memory are limited.

mod container;
mod elf;
mod error;
mod image;
mod read;
mod scan;
mod size;

pub use container::{Compression, Entry, Kind};
pub use error::Error;
pub use image::Image;
pub use scan::containers_in;
pub use size::{Needed, Wrapper, needed};

/// Most entries that all containers of one image may have.
pub const ENTRIES_MAX: usize = 4096;

/// Most bytes that one entry may decompress to.
pub const TEXT_BYTES_MAX: usize = 256 << 20;

/// Most bytes that an image without a length argument may claim to have.
pub const IMAGE_BYTES_MAX: usize = 2 << 30;

#[cfg(test)]
mod tests;
