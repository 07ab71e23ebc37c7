//! CUDA arrays: memory of the session's in which texels lie row by row, slice by slice, layer by layer.
//!
//! Natively the driver chooses how an array lies in memory. In guarded sessions it is linear, since kernels read it by loads of
//! their own (see [`crate::texture`]); in isolated ones it is the driver's.

mod calls;

pub(crate) use calls::*;

use crate::abi::ArrayDescription3d;
use crate::device::{Question, Session};
use crate::memory::Memory;
use crate::status::{Answer, Status};

/// What a texel consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    /// `CUarray_format`.
    pub(crate) number: u32,
    pub(crate) channels: u32,
    pub(crate) channel: Channel,
    /// Of a channel.
    pub(crate) bits: u32,
}

/// What a channel holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Unsigned,
    Signed,
    /// An integer that always stands for a part of 1.
    Unorm,
    Snorm,
    Half,
    Float,
}

impl Format {
    pub(crate) fn of(number: u32, channels: u32) -> Result<Self, Status> {
        let (channel, bits, own) = match number {
            0x01 => (Channel::Unsigned, 8, None),
            0x02 => (Channel::Unsigned, 16, None),
            0x03 => (Channel::Unsigned, 32, None),
            0x08 => (Channel::Signed, 8, None),
            0x09 => (Channel::Signed, 16, None),
            0x0a => (Channel::Signed, 32, None),
            0x10 => (Channel::Half, 16, None),
            0x20 => (Channel::Float, 32, None),
            // They say how many channels they have.
            0xc0..=0xc2 => (Channel::Unorm, 8, Some(1 << (number - 0xc0))),
            0xc3..=0xc5 => (Channel::Unorm, 16, Some(1 << (number - 0xc3))),
            0xc6..=0xc8 => (Channel::Snorm, 8, Some(1 << (number - 0xc6))),
            0xc9..=0xcb => (Channel::Snorm, 16, Some(1 << (number - 0xc9))),
            _ => return Err(Status::NOT_SUPPORTED),
        };
        if !matches!(channels, 1 | 2 | 4) || own.is_some_and(|own| own != channels) {
            return Err(Status::INVALID_VALUE);
        }
        Ok(Self { number, channels, channel, bits })
    }

    /// Bytes of a texel.
    pub(crate) fn bytes(self) -> u32 {
        self.channels * self.bits / 8
    }
}

/// An array.
pub(crate) struct Array {
    session: &'static Session,
    memory: &'static Memory,
    pub(crate) context: u64,
    asked: ArrayDescription3d,
    pub(crate) format: Format,
    /// Texels; an axis that it does not have counts 1.
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    /// Of a layered array or a cube; 0 of others.
    pub(crate) layers: u64,
    pub(crate) row_bytes: u64,
    pub(crate) slice_bytes: u64,
    /// 0 of an array of the driver's.
    pub(crate) address: u64,
    /// The number of the allocation at that address.
    allocation: u64,
    /// The driver's array, by its number: in isolated sessions, whose machine code reads arrays by its own instructions.
    pub(crate) number: Option<u64>,
}

impl Drop for Array {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // A session that is over has none.
            let _gone = self.session.ask_driver(Question::FreeArray, None, &[number]);
            return;
        }
        self.memory.release_same(self.address, self.allocation);
    }
}

impl Array {
    /// Slices, layers or faces.
    pub(crate) fn slices(&self) -> u64 {
        self.depth.max(self.layers)
    }

    /// Bytes of an element.
    pub(crate) fn element_bytes(&self) -> usize {
        self.format.bytes() as usize
    }

    /// That a part lies in it; `width` in bytes.
    pub(crate) fn check(&self, from: [usize; 3], shape: [usize; 3]) -> Answer {
        let extent = [self.width * u64::from(self.format.bytes()), self.height, self.slices()];
        for ((from, count), extent) in from.into_iter().zip(shape).zip(extent) {
            let end = from.checked_add(count).ok_or(Status::INVALID_VALUE)?;
            if end as u64 > extent {
                return Err(Status::INVALID_VALUE);
            }
        }
        Ok(())
    }
}
