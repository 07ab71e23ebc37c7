//! Comparisons and selections.

use bulkhead_guard::ast::{Instruction, Operand, Type};

use super::Refusal;
use super::entry::Builder;
use super::operand::Operands;
use super::words::{Words, bits_of};
use crate::alu::compare;
use crate::code::{Logic, Op, Pred, PredSrc, Region};

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
    "num", "nan",
];

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
        let f = known(compare::comparison(comparison, ty, flush))?;
        let (destination, a, b, combine, c) = match combine {
            None => {
                let [d, a, b] = operands.exactly()?;
                (d, a, b, Logic::And, PredSrc::TRUE)
            }
            Some(combine) => {
                let [d, a, b, c] = operands.exactly()?;
                (d, a, b, combine, self.pred_src(c)?)
            }
        };
        let (p, q) = self.pred_pair(destination)?;
        let (a, b) = (self.src(a, ty)?, self.src(b, ty)?);
        self.emit(Op::Test { f, p, q, a, b, combine, c })
    }

    fn set(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let comparison = known(words.find(|word| COMPARISONS.contains(&word).then_some(word)))?;
        let (flush, combine) = (words.take("ftz"), combination(words));
        let (out, ty) = (words.ty()?, words.ty()?);
        words.finish()?;
        let truth = match out {
            Type::U32 | Type::S32 | Type::B32 => u32::MAX,
            Type::F32 => 1f32.to_bits(),
            _ => return Err(Refusal::new("this form is not supported")),
        };
        let f = known(compare::comparison(comparison, ty, flush))?;
        let (d, a, b, combine, c) = match combine {
            None => {
                let [d, a, b] = operands.exactly()?;
                (d, a, b, Logic::And, PredSrc::TRUE)
            }
            Some(combine) => {
                let [d, a, b, c] = operands.exactly()?;
                (d, a, b, combine, self.pred_src(c)?)
            }
        };
        let (a, b, d) = (self.src(a, ty)?, self.src(b, ty)?, self.dst(d, out)?);
        debug_assert_eq!(bits_of(out), 32);
        self.emit(Op::Set { f, truth, d, a, b, combine, c })
    }

    /// `p` or `p|q`.
    pub(crate) fn pred_pair(&mut self, operand: &Operand) -> Result<(Pred, Pred), Refusal> {
        match operand {
            Operand::Pair(p, q) => Ok((self.pred_dst(p)?, self.pred_dst(q)?)),
            single => Ok((self.pred_dst(single)?, Pred::SINK)),
        }
    }
}
