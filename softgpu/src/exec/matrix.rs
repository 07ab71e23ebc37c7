//! What whole warps do with matrices.
//!
//! Products are exact, and sums are of double precision; the result is rounded once. PTX leaves the order and the precision
//! of sums open, so programs may expect no more than that these differ in their last bits.

use super::access::{addresses, advance, aligned};
use super::frame::Frame;
use super::warp::Warp;
use crate::alu::rounding::{BF16, Exact, F16, Rounding, bf16_to_f32, f16_to_f32};
use crate::alu::{LANES, Lanes};
use crate::code::{At, Dst, Region, Src};
use crate::fault::Fault;
use crate::matrix::{Element, Fragment, Lines, Matrix};

type Result<T> = std::result::Result<T, (Fault, usize)>;

/// The number that some bits of a register are.
#[expect(clippy::cast_possible_truncation, reason = "elements are parts of registers")]
fn number(element: Element, bits: u64) -> f64 {
    match element {
        Element::F16 => f64::from(f16_to_f32(bits as u16)),
        Element::Bf16 => f64::from(bf16_to_f32(bits as u16)),
        // The tensor cores do not look at the lower bits.
        Element::Tf32 => f64::from(f32::from_bits(bits as u32 & 0xffff_e000)),
        Element::F32 => f64::from(f32::from_bits(bits as u32)),
        Element::F64 => f64::from_bits(bits),
        Element::S8 => f64::from((bits as u8).cast_signed()),
        Element::U8 => f64::from(bits as u8),
        Element::S32 => f64::from((bits as u32).cast_signed()),
    }
}

/// The bits of a result.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sums of integers are exact, and wrap around where they do not saturate"
)]
fn bits(element: Element, value: f64, saturate: bool) -> u64 {
    match element {
        Element::F16 => Exact::of(value).narrow(F16, Rounding::Nearest).into(),
        Element::Bf16 => Exact::of(value).narrow(BF16, Rounding::Nearest).into(),
        Element::Tf32 | Element::F32 if value.is_nan() => 0x7fff_ffff,
        Element::Tf32 | Element::F32 => (value as f32).to_bits().into(),
        Element::F64 => value.to_bits(),
        Element::S8 | Element::U8 | Element::S32 if saturate => u64::from((value as i32).cast_unsigned()),
        Element::S8 | Element::U8 | Element::S32 => value as i64 as u64 & 0xffff_ffff,
    }
}

impl Warp {
    /// An instruction on matrices, for all lanes.
    pub(crate) fn matrix(&mut self, frame: &mut Frame<'_>, what: &Matrix, active: u32) -> Result<()> {
        if active != u32::MAX {
            let lane = active.trailing_zeros() as usize & 31;
            return Err((Fault::illegal("a part of a warp at an instruction for all of it"), lane));
        }
        match what {
            Matrix::Load { at, transposed, d } => self.load_eights(frame, *at, *transposed, d),
            Matrix::Store { at, transposed, a } => self.store_eights(frame, *at, *transposed, a),
            Matrix::Transpose { d, a } => {
                let a = *a.of(&self.registers, &frame.program.constants);
                let at = |row: usize, column: usize| a[row * 4 + column / 2] >> (column % 2 * 16) & 0xffff;
                let out = std::array::from_fn(|lane| {
                    let (row, column) = (lane / 4, lane % 4 * 2);
                    at(column, row) | at(column + 1, row) << 16
                });
                self.write(*d, &out, active);
                Ok(())
            }
            Matrix::Multiply { a, b, c, d, saturate } => {
                let left = self.read_fragment(frame, a.0, &a.1);
                let right = self.read_fragment(frame, b.0, &b.1);
                let mut sum = self.read_fragment(frame, c.0, &c.1);
                let (depth, columns) = (a.0.columns, b.0.columns);
                for (index, sum) in sum.iter_mut().enumerate() {
                    let (row, column) = (index / columns, index % columns);
                    for k in 0..depth {
                        *sum = left[row * depth + k].mul_add(right[k * columns + column], *sum);
                    }
                }
                self.write_fragment(d.0, &d.1, &sum, *saturate);
                Ok(())
            }
            Matrix::LoadLines { fragment, lines, d } => self.load_lines(frame, *fragment, *lines, d),
            Matrix::StoreLines { fragment, lines, a } => self.store_lines(frame, *fragment, *lines, a),
        }
    }

    /// The elements of a matrix, row by row.
    fn read_fragment(&self, frame: &Frame<'_>, fragment: Fragment, registers: &[Src]) -> Vec<f64> {
        let mut matrix = vec![0.0; fragment.rows * fragment.columns];
        let bits = 8 * fragment.element.bytes();
        for (register, source) in registers.iter().enumerate() {
            let words = source.of(&self.registers, &frame.program.constants);
            for place in 0..fragment.element.in_a_register() {
                for (lane, word) in words.iter().enumerate() {
                    let (row, column) = fragment.at(lane, register, place);
                    matrix[row * fragment.columns + column] =
                        number(fragment.element, word >> (place * bits));
                }
            }
        }
        matrix
    }

    fn write_fragment(&mut self, fragment: Fragment, registers: &[Dst], matrix: &[f64], saturate: bool) {
        let width = 8 * fragment.element.bytes();
        for (register, d) in registers.iter().enumerate() {
            let mut out = [0; LANES];
            for place in 0..fragment.element.in_a_register() {
                for (lane, word) in out.iter_mut().enumerate() {
                    let (row, column) = fragment.at(lane, register, place);
                    let value = matrix[row * fragment.columns + column];
                    *word |= bits(fragment.element, value, saturate) << (place * width);
                }
            }
            self.write(*d, &out, u32::MAX);
        }
    }

    /// The addresses of the rows of 16 bytes, which the lanes of each matrix name in turn.
    fn rows(&self, frame: &Frame<'_>, at: At, count: usize) -> Result<Lanes> {
        let rows = addresses(at, &self.registers, &frame.program.constants);
        let named = if count == 4 { u32::MAX } else { (1 << (8 * count)) - 1 };
        aligned(&rows, named, 16, Region::Shared)?;
        Ok(rows)
    }

    fn load_eights(&mut self, frame: &mut Frame<'_>, at: At, transposed: bool, d: &[Dst]) -> Result<()> {
        let rows = self.rows(frame, at, d.len())?;
        for (index, d) in d.iter().enumerate() {
            let mut out = [0; LANES];
            if transposed {
                for half in 0..2 {
                    let places = transposed_places(&rows, index, half);
                    let mut found = [0; LANES];
                    self.words_at(frame, Region::Shared, &places, 2, &mut found)?;
                    for (word, found) in out.iter_mut().zip(found) {
                        *word |= found << (16 * half);
                    }
                }
            } else {
                self.words_at(frame, Region::Shared, &places(&rows, index), 4, &mut out)?;
            }
            self.write(*d, &out, u32::MAX);
        }
        Ok(())
    }

    fn store_eights(&mut self, frame: &mut Frame<'_>, at: At, transposed: bool, a: &[Src]) -> Result<()> {
        let rows = self.rows(frame, at, a.len())?;
        for (index, a) in a.iter().enumerate() {
            let words = *a.of(&self.registers, &frame.program.constants);
            if transposed {
                for half in 0..2 {
                    let places = transposed_places(&rows, index, half);
                    let halves = words.map(|word| word >> (16 * half) & 0xffff);
                    self.put_words(frame, Region::Shared, &places, 2, &halves)?;
                }
            } else {
                self.put_words(frame, Region::Shared, &places(&rows, index), 4, &words)?;
            }
        }
        Ok(())
    }

    /// Where each lane's element of a matrix in memory is, for one place in one register.
    pub(super) fn places_in(
        &self,
        frame: &Frame<'_>,
        fragment: Fragment,
        lines: Lines,
        register: usize,
        place: usize,
    ) -> Lanes {
        let constants = &frame.program.constants;
        let mut places = addresses(lines.at, &self.registers, constants);
        let stride = lines.stride.of(&self.registers, constants);
        for (lane, address) in places.iter_mut().enumerate() {
            let (row, column) = fragment.at(lane, register, place);
            let (line, along) = if lines.by_column { (column, row) } else { (row, column) };
            let elements = (stride[lane] & 0xffff_ffff) * line as u64 + along as u64;
            *address = address.wrapping_add(elements * fragment.element.bytes() as u64);
        }
        places
    }

    fn load_lines(
        &mut self,
        frame: &mut Frame<'_>,
        fragment: Fragment,
        lines: Lines,
        d: &[Dst],
    ) -> Result<()> {
        self.lines_are_aligned(frame, fragment, lines)?;
        let bytes = fragment.element.bytes();
        for (register, d) in d.iter().enumerate() {
            let mut out = [0; LANES];
            for place in 0..fragment.element.in_a_register() {
                let places = self.places_in(frame, fragment, lines, register, place);
                let mut found = [0; LANES];
                self.words_at(frame, lines.region, &places, bytes as u64, &mut found)?;
                for (word, found) in out.iter_mut().zip(found) {
                    *word |= found << (8 * bytes * place);
                }
            }
            self.write(*d, &out, u32::MAX);
        }
        Ok(())
    }

    fn store_lines(
        &mut self,
        frame: &mut Frame<'_>,
        fragment: Fragment,
        lines: Lines,
        a: &[Src],
    ) -> Result<()> {
        self.lines_are_aligned(frame, fragment, lines)?;
        let bytes = fragment.element.bytes();
        for (register, a) in a.iter().enumerate() {
            let words = *a.of(&self.registers, &frame.program.constants);
            for place in 0..fragment.element.in_a_register() {
                let places = self.places_in(frame, fragment, lines, register, place);
                let values = words.map(|word| word >> (8 * bytes * place));
                self.put_words(frame, lines.region, &places, bytes as u64, &values)?;
            }
        }
        Ok(())
    }

    /// A device takes several elements at once.
    fn lines_are_aligned(&self, frame: &Frame<'_>, fragment: Fragment, lines: Lines) -> Result<()> {
        let constants = &frame.program.constants;
        let starts = addresses(lines.at, &self.registers, constants);
        aligned(&starts, u32::MAX, 16, lines.region)?;
        if fragment.rows * fragment.columns > 32 {
            let stride = lines.stride.of(&self.registers, constants);
            let mut second = starts;
            for (address, stride) in second.iter_mut().zip(stride) {
                advance(
                    std::slice::from_mut(address),
                    ((stride & 0xffff_ffff) * fragment.element.bytes() as u64).cast_signed(),
                );
            }
            aligned(&second, u32::MAX, 8, lines.region)?;
        }
        Ok(())
    }
}

/// Where the two elements of every lane lie.
fn places(rows: &Lanes, matrix: usize) -> Lanes {
    std::array::from_fn(|lane| rows[8 * matrix + lane / 4].wrapping_add(lane as u64 % 4 * 4))
}

/// Where the first or second element of every lane lies, where columns take the place of rows.
fn transposed_places(rows: &Lanes, matrix: usize, half: usize) -> Lanes {
    std::array::from_fn(|lane| rows[8 * matrix + lane % 4 * 2 + half].wrapping_add(lane as u64 / 4 * 2))
}
