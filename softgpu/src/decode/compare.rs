//! Comparisons and selections.

use bulkhead_ptx::ast::{Instruction, Operand, Type};

use super::entry::Builder;
use super::operand::Operands;
use super::refusal::Refusal;
use super::words::Words;
use crate::alu::compare;
use crate::code::{Dst, Logic, Op, Pred, PredSrc, Region, Src};

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
    "num", "nan",
];

/// One in half precision.
const F16_ONE: u32 = 0x3c00;
/// One in bfloat16.
const BF16_ONE: u32 = 0x3f80;

/// The type of each half of a packed type.
fn half_of(ty: Type) -> Option<Type> {
    match ty {
        Type::F16x2 => Some(Type::F16),
        Type::Bf16x2 => Some(Type::Bf16),
        _ => None,
    }
}

fn known<T>(found: Option<T>) -> Result<T, Refusal> {
    found.ok_or_else(|| Refusal::new("this form is not supported"))
}

fn combination(words: &mut Words<'_>) -> Option<Logic> {
    words.find(|word| match word {
        "and" => Some(Logic::And),
        "or" => Some(Logic::Or),
        "xor" => Some(Logic::Xor),
        _ => None,
    })
}

impl Builder<'_> {
    /// `setp`, `set`, `selp`, `slct`, `isspacep`.
    pub(crate) fn decode_compare(&mut self, instruction: &Instruction) -> Result<bool, Refusal> {
        let mut words = Words::new(&instruction.modifiers);
        let words = &mut words;
        let operands = Operands(&instruction.operands);
        match instruction.opcode.as_str() {
            "setp" => self.setp(words, &operands)?,
            "set" => self.set(words, &operands)?,
            "selp" => {
                let ty = words.ty()?;
                words.finish()?;
                let [d, a, b, c] = operands.exactly()?;
                let op = Op::Select {
                    a: self.src(a, ty)?,
                    b: self.src(b, ty)?,
                    c: self.pred_src(c)?,
                    d: self.dst(d, ty)?,
                };
                self.emit(op)?;
            }
            "slct" => {
                let flush = words.take("ftz");
                let (ty, selector) = (words.ty()?, words.ty()?);
                let f = known(compare::select_by_sign(selector, flush))?;
                self.ternary(f, words, &operands, [ty, ty, ty, selector])?;
            }
            "isspacep" => {
                let region = words.find(|word| match word {
                    "global" => Some(Region::Global),
                    "shared" | "shared::cta" => Some(Region::Shared),
                    "local" => Some(Region::Local),
                    "const" => Some(Region::Constant),
                    "param" | "param::entry" => Some(Region::Parameter),
                    _ => None,
                });
                let region = known(region)?;
                words.finish()?;
                let [p, a] = operands.exactly()?;
                let op = Op::InRegion { region, p: self.pred_dst(p)?, a: self.src(a, Type::B64)? };
                self.emit(op)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn setp(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let comparison = known(words.find(|word| COMPARISONS.contains(&word).then_some(word)))?;
        let (flush, combine) = (words.take("ftz"), combination(words));
        let ty = words.ty()?;
        words.finish()?;
        let (destination, a, b, combine, c) = self.compared(combine, operands)?;
        let (p, q) = self.pred_pair(destination)?;
        if let Some(half) = half_of(ty) {
            // One result for each half.
            let f = known(compare::comparison(comparison, half, flush))?;
            let (a, b) = (self.halves(a, ty)?, self.halves(b, ty)?);
            for (index, p) in [p, q].into_iter().enumerate() {
                self.emit(Op::Test { f, p, q: Pred::SINK, a: a[index], b: b[index], combine, c })?;
            }
            return Ok(());
        }
        let f = known(compare::comparison(comparison, ty, flush))?;
        let (a, b) = (self.src(a, ty)?, self.src(b, ty)?);
        self.emit(Op::Test { f, p, q, a, b, combine, c })
    }

    fn set(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let comparison = known(words.find(|word| COMPARISONS.contains(&word).then_some(word)))?;
        let (flush, combine) = (words.take("ftz"), combination(words));
        let (out, ty) = (words.ty()?, words.ty()?);
        words.finish()?;
        let (d, a, b, combine, c) = self.compared(combine, operands)?;
        if let Some(half) = half_of(ty) {
            let truth = known(match out {
                Type::F16x2 => Some(F16_ONE),
                Type::Bf16x2 => Some(BF16_ONE),
                Type::U32 | Type::S32 => Some(0xffff),
                _ => None,
            })?;
            let f = known(compare::comparison(comparison, half, flush))?;
            let (a, b) = (self.halves(a, ty)?, self.halves(b, ty)?);
            let mut parts = [Src::register(0); 4];
            for index in 0..2 {
                let temporary = self.names.temporary()?;
                let d = Dst(temporary);
                self.emit(Op::Set { f, truth, d, a: a[index], b: b[index], combine, c })?;
                parts[index] = Src::register(temporary);
            }
            let d = self.dst(d, out)?;
            return self.emit(Op::Pack { bits: 16, count: 2, d, parts });
        }
        let truth = known(match out {
            Type::U32 | Type::S32 => Some(u32::MAX),
            Type::U16 | Type::S16 => Some(0xffff),
            Type::F32 => Some(1f32.to_bits()),
            Type::F16 => Some(F16_ONE),
            Type::Bf16 => Some(BF16_ONE),
            _ => None,
        })?;
        let f = known(compare::comparison(comparison, ty, flush))?;
        let (a, b, d) = (self.src(a, ty)?, self.src(b, ty)?, self.dst(d, out)?);
        self.emit(Op::Set { f, truth, d, a, b, combine, c })
    }

    /// The operands of a comparison, with or without a predicate to combine with.
    fn compared<'a>(
        &mut self,
        combine: Option<Logic>,
        operands: &Operands<'a>,
    ) -> Result<(&'a Operand, &'a Operand, &'a Operand, Logic, PredSrc), Refusal> {
        match combine {
            None => {
                let [d, a, b] = operands.exactly()?;
                Ok((d, a, b, Logic::And, PredSrc::TRUE))
            }
            Some(combine) => {
                let [d, a, b, c] = operands.exactly()?;
                Ok((d, a, b, combine, self.pred_src(c)?))
            }
        }
    }

    /// The low and high half of a packed operand, in temporaries.
    fn halves(&mut self, operand: &Operand, ty: Type) -> Result<[Src; 2], Refusal> {
        let a = self.src(operand, ty)?;
        let halves = [self.names.temporary()?, self.names.temporary()?];
        let d = [Dst(halves[0]), Dst(halves[1]), Dst::SINK, Dst::SINK];
        self.emit(Op::Unpack { bits: 16, count: 2, d, a })?;
        Ok(halves.map(Src::register))
    }

    /// `p` or `p|q`.
    pub(crate) fn pred_pair(&mut self, operand: &Operand) -> Result<(Pred, Pred), Refusal> {
        match operand {
            Operand::Pair(p, q) => Ok((self.pred_dst(p)?, self.pred_dst(q)?)),
            single => Ok((self.pred_dst(single)?, Pred::SINK)),
        }
    }
}
