//! Matrices as warps hold them: which lane has which elements.
//!
//! A *fragment* is the registers in which the lanes of a warp hold one matrix together. Fragments of `mma` lie as PTX says
//! (ISA, "Matrix Fragments for mma"); those of `wmma` as an implementation likes, and here in the order of the elements.

use crate::code::{At, Dst, Region, Src};

/// What a matrix consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    S8,
    U8,
    S32,
}

impl Element {
    /// By modifier.
    pub(crate) fn named(word: &str) -> Option<Self> {
        Some(match word {
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "tf32" => Self::Tf32,
            "f32" => Self::F32,
            "f64" => Self::F64,
            "s8" => Self::S8,
            "u8" => Self::U8,
            "s32" => Self::S32,
            _ => return None,
        })
    }

    /// Bytes of one.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::S8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::Tf32 | Self::F32 | Self::S32 => 4,
            Self::F64 => 8,
        }
    }

    /// How many lie in one register.
    pub(crate) fn in_a_register(self) -> usize {
        4_usize.div_ceil(self.bytes())
    }
}

/// Which matrix of a product a fragment is, and so how it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// The left one of `mma`.
    Left,
    /// The right one of `mma`.
    Right,
    /// What `mma` adds to.
    Sum,
    /// Any of `wmma`; elements may be held twice.
    InOrder,
}

/// How many elements a matrix has, of what kind, and how they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) element: Element,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) lie: Lie,
}

impl Fragment {
    /// Whether so many registers of every lane hold it.
    pub(crate) fn fits(self, registers: usize) -> bool {
        let (held, elements) = (registers * self.element.in_a_register() * 32, self.rows * self.columns);
        match self.lie {
            Lie::InOrder => held > 0 && held.is_multiple_of(elements),
            Lie::Left | Lie::Right | Lie::Sum => held == elements,
        }
    }

    /// The row and column of the element at a place in a register of a lane.
    pub(crate) fn at(self, lane: usize, register: usize, place: usize) -> (usize, usize) {
        let width = self.element.in_a_register();
        let (group, thread) = (lane / 4, lane % 4);
        match self.lie {
            Lie::Left => {
                let low = if self.rows > 8 { register % 2 } else { 0 };
                let high = if self.rows > 8 { register / 2 } else { register };
                (group + 8 * low, width * (thread + 4 * high) + place)
            }
            Lie::Right => (width * (thread + 4 * register) + place, group),
            Lie::Sum => {
                let index = register * width + place;
                (group + 8 * (index / 2), 2 * thread + index % 2)
            }
            Lie::InOrder => {
                let index = (register * width + place) * 32 + lane;
                let index = index % (self.rows * self.columns);
                (index / self.columns, index % self.columns)
            }
        }
    }
}

/// What a warp does with matrices.
#[derive(Debug, Clone)]
pub(crate) enum Matrix {
    /// `ldmatrix`: up to four matrices of 8 by 8 halves of words, one row from each lane's address.
    Load { at: At, transposed: bool, d: Vec<Dst> },
    /// `stmatrix`
    Store { at: At, transposed: bool, a: Vec<Src> },
    /// `movmatrix`
    Transpose { d: Dst, a: Src },
    /// `mma`, `wmma.mma`: the fragments and registers of both factors, of what is added and of the result.
    Multiply {
        a: (Fragment, Vec<Src>),
        b: (Fragment, Vec<Src>),
        c: (Fragment, Vec<Src>),
        d: (Fragment, Vec<Dst>),
        saturate: bool,
    },
    /// `wmma.load`
    LoadLines { fragment: Fragment, lines: Lines, d: Vec<Dst> },
    /// `wmma.store`
    StoreLines { fragment: Fragment, lines: Lines, a: Vec<Src> },
}

impl Matrix {
    /// The registers that it reads, and those that it writes.
    pub(crate) fn touched(&self) -> (Vec<Src>, Vec<Dst>) {
        match self {
            Self::Load { at, transposed: _, d } => (vec![at.base], d.clone()),
            Self::Store { at, transposed: _, a } => {
                (a.iter().copied().chain([at.base]).collect(), Vec::new())
            }
            Self::Transpose { d, a } => (vec![*a], vec![*d]),
            Self::Multiply { a, b, c, d, saturate: _ } => ([&a.1[..], &b.1, &c.1].concat(), d.1.clone()),
            Self::LoadLines { fragment: _, lines, d } => (vec![lines.at.base, lines.stride], d.clone()),
            Self::StoreLines { fragment: _, lines, a } => {
                (a.iter().copied().chain([lines.at.base, lines.stride]).collect(), Vec::new())
            }
        }
    }
}

/// How a matrix lies in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    pub(crate) region: Region,
    pub(crate) at: At,
    /// Elements from one line to the next.
    pub(crate) stride: Src,
    /// Whether lines are columns.
    pub(crate) by_column: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_a_matrix_is_held_once() {
        for (element, rows, columns, lie, registers) in [
            (Element::F16, 16, 16, Lie::Left, 4),
            (Element::Bf16, 16, 8, Lie::Left, 2),
            (Element::Tf32, 16, 8, Lie::Left, 4),
            (Element::S8, 16, 32, Lie::Left, 4),
            (Element::F64, 8, 4, Lie::Left, 1),
            (Element::F16, 16, 8, Lie::Right, 2),
            (Element::S8, 32, 8, Lie::Right, 2),
            (Element::F64, 4, 8, Lie::Right, 1),
            (Element::F32, 16, 8, Lie::Sum, 4),
            (Element::F16, 16, 8, Lie::Sum, 2),
            (Element::F64, 8, 8, Lie::Sum, 2),
            (Element::F32, 16, 16, Lie::InOrder, 8),
        ] {
            let fragment = Fragment { element, rows, columns, lie };
            assert!(fragment.fits(registers), "{fragment:?}");
            let mut held = vec![0; rows * columns];
            for lane in 0..32 {
                for register in 0..registers {
                    for place in 0..element.in_a_register() {
                        let (row, column) = fragment.at(lane, register, place);
                        held[row * columns + column] += 1;
                    }
                }
            }
            assert!(held.iter().all(|count| *count == 1), "{fragment:?}");
        }
    }

    #[test]
    fn the_left_factor_of_16_by_16_halves_lies_as_the_instruction_set_says() {
        let fragment = Fragment { element: Element::F16, rows: 16, columns: 16, lie: Lie::Left };
        // Lane 5 is the second thread of the second group.
        let places = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)];
        let found = places.map(|(register, place)| fragment.at(5, register, place));
        assert_eq!(found, [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]);
    }
}
