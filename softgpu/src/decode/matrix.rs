//! Instructions on matrices that a warp holds together.

use bulkhead_ptx::ast::{Instruction, Operand, Type};

use super::entry::Builder;
use super::operand::Operands;
use super::refusal::Refusal;
use super::words::Words;
use crate::code::{Dst, Op, Region, Src};
use crate::matrix::{Element, Fragment, Lie, Lines, Matrix};

fn not_supported() -> Refusal {
    Refusal::new("this form is not supported")
}

/// Rows, columns and depth of a product by its word.
fn shape(words: &mut Words<'_>) -> Result<[usize; 3], Refusal> {
    let parsed = words.find(|word| {
        let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some([m.parse().ok()?, n.parse().ok()?, k.parse().ok()?])
    });
    parsed.ok_or_else(not_supported)
}

fn elements(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(list) => list,
        single => std::slice::from_ref(single),
    }
}

/// The type of registers that hold elements.
fn register_type(element: Element) -> Type {
    match element {
        Element::F64 => Type::B64,
        Element::F16
        | Element::Bf16
        | Element::Tf32
        | Element::F32
        | Element::S8
        | Element::U8
        | Element::S32 => Type::B32,
    }
}

impl Builder<'_> {
    /// Operations on matrices.
    pub(crate) fn decode_matrix(&mut self, instruction: &Instruction) -> Result<bool, Refusal> {
        let mut words = Words::new(&instruction.modifiers);
        let words = &mut words;
        let operands = Operands(&instruction.operands);
        let matrix = match instruction.opcode.as_str() {
            "ldmatrix" => {
                let [d, at] = operands.exactly()?;
                let transposed = self.eights(words, elements(d).len())?;
                Matrix::Load { at: self.address(at)?, transposed, d: self.results(d, Type::B32)? }
            }
            "stmatrix" => {
                let [at, a] = operands.exactly()?;
                let transposed = self.eights(words, elements(a).len())?;
                Matrix::Store { at: self.address(at)?, transposed, a: self.values(a, Type::B32)? }
            }
            "movmatrix" => {
                let [d, a] = operands.exactly()?;
                words.ignore(&["sync", "aligned", "m8n8", "trans", "b16"]);
                words.finish()?;
                Matrix::Transpose { d: self.dst(d, Type::B32)?, a: self.src(a, Type::B32)? }
            }
            "mma" => self.multiply(words, &operands, false)?,
            "wmma" if words.take("mma") => self.multiply(words, &operands, true)?,
            "wmma" if words.take("load") => {
                let (d, rest) = operands.0.split_first().ok_or_else(not_supported)?;
                let (fragment, lines) = self.lines(words, rest)?;
                let d = self.results(d, register_type(fragment.element))?;
                fits(fragment, d.len())?;
                Matrix::LoadLines { fragment, lines, d }
            }
            "wmma" if words.take("store") => {
                let [at, a, rest @ ..] = operands.0 else { return Err(not_supported()) };
                let places: Vec<Operand> = std::iter::once(at).chain(rest).cloned().collect();
                let (fragment, lines) = self.lines(words, &places)?;
                let a = self.values(a, register_type(fragment.element))?;
                fits(fragment, a.len())?;
                Matrix::StoreLines { fragment, lines, a }
            }
            _ => return Ok(false),
        };
        let index = u32::try_from(self.matrices.len()).map_err(|_| not_supported())?;
        self.matrices.push(matrix);
        self.emit(Op::Matrix { index })?;
        Ok(true)
    }

    /// The words of `ldmatrix` and `stmatrix`; whether matrices are transposed.
    fn eights(&self, words: &mut Words<'_>, registers: usize) -> Result<bool, Refusal> {
        words.ignore(&["sync", "aligned", "m8n8", "b16"]);
        if !words.take("shared") && !words.take("shared::cta") {
            return Err(not_supported());
        }
        let transposed = words.take("trans");
        let count = if words.take("x4") {
            4
        } else if words.take("x2") {
            2
        } else if words.take("x1") {
            1
        } else {
            return Err(not_supported());
        };
        words.finish()?;
        if count == registers { Ok(transposed) } else { Err(Refusal::new("the vector has another length")) }
    }

    fn values(&mut self, operand: &Operand, ty: Type) -> Result<Vec<Src>, Refusal> {
        elements(operand).iter().map(|operand| self.src_wide(operand, ty)).collect()
    }

    fn results(&mut self, operand: &Operand, ty: Type) -> Result<Vec<Dst>, Refusal> {
        elements(operand).iter().map(|operand| self.dst(operand, ty)).collect()
    }

    fn multiply(
        &mut self,
        words: &mut Words<'_>,
        operands: &Operands<'_>,
        in_order: bool,
    ) -> Result<Matrix, Refusal> {
        words.ignore(&["sync", "aligned"]);
        let layouts = [0; 2].map(|_| words.find(|word| matches!(word, "row" | "col").then_some(word)));
        if !in_order && layouts != [Some("row"), Some("col")] {
            return Err(not_supported());
        }
        let saturate = words.take("satfinite");
        words.ignore(&["rn"]);
        let [rows, columns, depth] = shape(words)?;
        let types: Vec<Element> = std::iter::from_fn(|| words.find(Element::named)).collect();
        words.finish()?;
        let [d_type, a_type, b_type, c_type] = match types[..] {
            [d, a, b, c] => [d, a, b, c],
            [d, c] if in_order => [d, Element::F16, Element::F16, c],
            _ => return Err(not_supported()),
        };
        let lies = if in_order { [Lie::InOrder; 3] } else { [Lie::Left, Lie::Right, Lie::Sum] };
        let fragment = |element, rows, columns, lie| Fragment { element, rows, columns, lie };
        let [left, right, sum] = lies;
        let [d, a, b, c] = operands.exactly()?;
        let a = (fragment(a_type, rows, depth, left), self.values(a, register_type(a_type))?);
        let b = (fragment(b_type, depth, columns, right), self.values(b, register_type(b_type))?);
        let c = (fragment(c_type, rows, columns, sum), self.values(c, register_type(c_type))?);
        let d = (fragment(d_type, rows, columns, sum), self.results(d, register_type(d_type))?);
        fits(a.0, a.1.len())?;
        fits(b.0, b.1.len())?;
        fits(c.0, c.1.len())?;
        fits(d.0, d.1.len())?;
        Ok(Matrix::Multiply { a, b, c, d, saturate })
    }

    /// The fragment and the place in memory of `wmma.load` and `wmma.store`.
    fn lines(&mut self, words: &mut Words<'_>, places: &[Operand]) -> Result<(Fragment, Lines), Refusal> {
        words.ignore(&["sync", "aligned"]);
        let which = words.find(|word| matches!(word, "a" | "b" | "c" | "d").then_some(word));
        let layout = words.find(|word| matches!(word, "row" | "col").then_some(word));
        let by_column = layout.ok_or_else(not_supported)? == "col";
        let region = if words.take("global") {
            Region::Global
        } else if words.take("shared") || words.take("shared::cta") {
            Region::Shared
        } else {
            return Err(not_supported());
        };
        let [m, n, k] = shape(words)?;
        let element = words.find(Element::named).ok_or_else(not_supported)?;
        words.finish()?;
        let (rows, columns) = match which {
            Some("a") => (m, k),
            Some("b") => (k, n),
            Some(_) => (m, n),
            None => return Err(not_supported()),
        };
        let (at, stride) = match places {
            [at] => (at, self.constant(if by_column { rows } else { columns } as u64)?),
            [at, stride] => (at, self.src(stride, Type::B32)?),
            _ => return Err(not_supported()),
        };
        let lines = Lines { region, at: self.address(at)?, stride, by_column };
        Ok((Fragment { element, rows, columns, lie: Lie::InOrder }, lines))
    }
}

fn fits(fragment: Fragment, registers: usize) -> Result<(), Refusal> {
    if fragment.fits(registers) { Ok(()) } else { Err(Refusal::new("a matrix of another size")) }
}
