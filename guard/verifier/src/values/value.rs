//! What may be known of a register: a number, or an address by what it is relative to.

use super::number::{Number, Width};
use crate::most::Parts;

/// Where a pointer came from: eight bytes of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Root<'a> {
    /// The parameter that it is in.
    pub parameter: &'a str,
    /// In bytes, from the parameter's first.
    pub offset: i64,
}

/// What an address is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base<'a> {
    /// A pointer in a parameter.
    Parameter(Root<'a>),
    /// A variable in shared memory.
    Shared(&'a str),
    /// What a pointer was when it was checked.
    Checked(CheckedPointer),
}

/// A pointer that was checked to lie in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedPointer {
    /// Which one: no two checks have the same.
    pub number: usize,
    /// Whether stores go through it.
    pub writes: bool,
    /// Of what it is a multiple, in bytes.
    pub align: u64,
}

/// An address: how far from what it is relative to. What it is as a number nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer<'a> {
    /// Where it counts from.
    pub base: Base<'a>,
    /// Its zeros are those of the distance: the base's own are for others to know.
    pub offset: Number,
}

impl<'a> Pointer<'a> {
    /// The first byte of something.
    pub const fn start(base: Base<'a>) -> Self {
        Self { base, offset: Number::between(0, 0).with_zeros(63) }
    }

    /// So much further on.
    pub fn plus(self, number: Number) -> Self {
        Self { offset: self.offset.plus(number), ..self }
    }

    /// So much before.
    pub fn minus(self, number: Number) -> Self {
        Self { offset: self.offset.minus(number), ..self }
    }

    /// Whichever of the two it is, where both are relative to the same.
    pub fn or(self, other: Self) -> Option<Self> {
        (self.base == other.base).then(|| Self { offset: self.offset.or(other.offset), ..self })
    }
}

/// What is known of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact<'a> {
    /// A number.
    Number(Number),
    /// An address.
    Pointer(Pointer<'a>),
}

impl<'a> Fact<'a> {
    /// The number, where it is one.
    pub const fn number(self) -> Option<Number> {
        match self {
            Self::Number(number) => Some(number),
            Self::Pointer(_) => None,
        }
    }

    /// The address, where it is one.
    pub const fn pointer(self) -> Option<Pointer<'a>> {
        match self {
            Self::Number(_) => None,
            Self::Pointer(pointer) => Some(pointer),
        }
    }

    /// Bytes of the name that it has in it.
    pub const fn name_bytes(self) -> usize {
        match self {
            Self::Pointer(Pointer { base: Base::Parameter(root), .. }) => root.parameter.len(),
            Self::Pointer(Pointer { base: Base::Shared(name), .. }) => name.len(),
            Self::Pointer(Pointer { base: Base::Checked(_), .. }) | Self::Number(_) => 0,
        }
    }

    /// A number of a 32-bit register that is the same signed and unsigned.
    pub fn small(self) -> Option<Number> {
        self.number().filter(|number| number.is_small(Width::WORD))
    }

    /// The sum, where it has a meaning.
    pub fn plus(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => Some(Self::Number(one.plus(other))),
            (Self::Pointer(pointer), Self::Number(number))
            | (Self::Number(number), Self::Pointer(pointer)) => Some(Self::Pointer(pointer.plus(number))),
            (Self::Pointer(_), Self::Pointer(_)) => None,
        }
    }

    /// The difference, where it has a meaning.
    pub fn minus(self, other: Self) -> Option<Self> {
        let number = other.number()?;
        Some(match self {
            Self::Number(from) => Self::Number(from.minus(number)),
            Self::Pointer(from) => Self::Pointer(from.minus(number)),
        })
    }

    /// The product, where it has a meaning.
    pub fn times(self, other: Self) -> Option<Self> {
        Some(Self::Number(self.number()?.times(other.number()?)))
    }

    /// Whichever of the two it is.
    pub fn or(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => Some(Self::Number(one.or(other))),
            (Self::Pointer(one), Self::Pointer(other)) => one.or(other).map(Self::Pointer),
            (Self::Number(_), Self::Pointer(_)) | (Self::Pointer(_), Self::Number(_)) => None,
        }
    }

    /// Whether it does not depend on where in its block a thread is.
    pub fn is_plain(&self) -> bool {
        match self {
            Self::Number(number) | Self::Pointer(Pointer { offset: number, .. }) => number.is_plain(),
        }
    }

    /// What both say together, of the same register.
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => Self::Number(one.with(other)),
            (Self::Pointer(one), Self::Pointer(other)) if one.base == other.base => {
                Self::Pointer(Pointer { offset: one.offset.with(other.offset), ..one })
            }
            _ => self,
        }
    }

    /// Whether it follows from what is known.
    pub fn implied_by(self, known: Self) -> bool {
        let (claimed, known) = match (self, known) {
            (Self::Number(claimed), Self::Number(known)) => (claimed, known),
            (Self::Pointer(claimed), Self::Pointer(known)) if claimed.base == known.base => {
                (claimed.offset, known.offset)
            }
            _ => return false,
        };
        claimed.implied_by(known)
    }

    /// Whether it says no more of a register than this does.
    pub fn holds(self, other: Self) -> bool {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.holds(other),
            (Self::Pointer(one), Self::Pointer(other)) => {
                one.base == other.base && one.offset.holds(other.offset)
            }
            (Self::Number(_), Self::Pointer(_)) | (Self::Pointer(_), Self::Number(_)) => false,
        }
    }

    /// Itself, where its number fits.
    pub fn fits(self) -> Option<Self> {
        match self {
            Self::Number(number) => number.fits().map(Self::Number),
            Self::Pointer(Pointer { base, offset }) => {
                offset.fits().map(|offset| Self::Pointer(Pointer { base, offset }))
            }
        }
    }
}

/// What an access of global memory needs of a pointer so that it is where it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerProof<'a> {
    /// The parameter that the pointer is in.
    pub root: Root<'a>,
    /// Of what the pointer is a multiple, in bytes.
    pub align: u64,
    /// Whether it points where stores may go.
    pub writes: bool,
    /// How far from it the access begins at least, in bytes.
    pub low: i128,
    /// And at most.
    pub high: i128,
}

/// Where an access of shared memory that begins in or behind a variable ends at most. It is aligned where the variable
/// is for the widest access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedProof<'a> {
    /// The variable.
    pub variable: &'a str,
    /// How far into the variable it begins at least, in bytes.
    pub start: u64,
    /// In any block, in bytes from the variable's first.
    pub end: u64,
    /// The same: a constant, and parts of where in its block a thread is.
    pub most: (u64, Parts),
}

/// What a launch of a fast version is asked about shared memory: parts of where in its block a thread is, and what
/// they and a constant do not exceed; the block's dynamic shared memory where that is none.
pub type SharedKey = (Parts, Option<u64>);

impl SharedProof<'_> {
    /// Whether the access stays in its variable of so many bytes, 0 for the block's dynamic shared memory: `Some(None)` in
    /// every launch, otherwise in one that keeps the term, which has this constant.
    pub fn term(&self, bytes: u64) -> Option<Option<(SharedKey, u64)>> {
        let (constant, by) = self.most;
        if bytes == 0 {
            return Some(Some(((by, None), constant)));
        }
        let ever = constant <= bytes;
        ever.then(|| (self.end > bytes).then_some(((by, Some(bytes)), constant)))
    }
}

/// What an access rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof<'a> {
    /// It goes through a pointer of the launch's.
    Pointer(PointerProof<'a>),
    /// It goes to shared memory.
    Shared(SharedProof<'a>),
    /// A check before the turns of a loop.
    Checked,
}

#[cfg(test)]
mod tests;
