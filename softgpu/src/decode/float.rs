//! Arithmetic in floating point.

use bulkhead_ptx::ast::{Instruction, Type};

use super::entry::Builder;
use super::operand::Operands;
use super::refusal::Refusal;
use super::words::{Words, is_float, type_named};
use crate::alu::float::{Extreme, Mode};
use crate::alu::half::After;
use crate::alu::rounding::Rounding;
use crate::alu::{approx, float, half};
use crate::code::Op;

fn known<T>(found: Option<T>) -> Result<T, Refusal> {
    found.ok_or_else(|| Refusal::new("this form is not supported"))
}

fn is_half(ty: Type) -> bool {
    matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2)
}

/// Rounding, `.ftz` and `.sat`; without a rounding mode to nearest.
fn mode(words: &mut Words<'_>) -> Mode {
    Mode {
        flush: words.take("ftz"),
        saturate: words.take("sat"),
        rounding: words.find(Rounding::named).unwrap_or(Rounding::Nearest),
    }
}

impl Builder<'_> {
    /// Operations on floating-point numbers.
    pub(crate) fn decode_float(&mut self, instruction: &Instruction) -> Result<bool, Refusal> {
        let Some(ty) = instruction.modifiers.iter().rev().find_map(|word| type_named(word)) else {
            return Ok(false);
        };
        if !is_float(ty) {
            return Ok(false);
        }
        let mut words = Words::new(&instruction.modifiers);
        let words = &mut words;
        let flushes = matches!(ty, Type::F16 | Type::F16x2)
            && matches!(
                instruction.opcode.as_str(),
                "add" | "sub" | "mul" | "fma" | "mad" | "min" | "max" | "abs" | "neg"
            );
        if flushes && instruction.modifiers.iter().any(|word| word == "ftz") {
            return self.flushed(instruction, ty);
        }
        let operands = Operands(&instruction.operands);
        match instruction.opcode.as_str() {
            opcode @ ("add" | "sub" | "mul") => {
                let (mode, ty) = (mode(words), words.ty()?);
                let f = if is_half(ty) {
                    half::arithmetic(opcode, ty, mode.saturate).filter(|_| mode.rounding == Rounding::Nearest)
                } else {
                    float::arithmetic(opcode, ty, mode)
                };
                self.binary(known(f)?, words, &operands, [ty; 3])?;
            }
            "fma" | "mad" => {
                let (mode, relu) = (mode(words), words.take("relu"));
                let ty = words.ty()?;
                let f = if is_half(ty) {
                    let after = match (mode.saturate, relu) {
                        (false, false) => Some(After::Keep),
                        (true, false) => Some(After::Saturate),
                        (false, true) => Some(After::Relu),
                        (true, true) => None,
                    };
                    let nearest = mode.rounding == Rounding::Nearest;
                    after.filter(|_| nearest).and_then(|after| half::fma(ty, after))
                } else {
                    float::fma(ty, mode).filter(|_| !relu)
                };
                self.ternary(known(f)?, words, &operands, [ty; 4])?;
            }
            "div" => {
                let approximate = words.take("approx");
                words.ignore(&["full"]);
                let (mode, ty) = (mode(words), words.ty()?);
                let f = if approximate { float::div_approx(ty, mode) } else { float::div(ty, mode) };
                self.binary(known(f)?, words, &operands, [ty; 3])?;
            }
            opcode @ ("rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "ex2" | "lg2" | "tanh") => {
                let approximate = words.take("approx");
                let (mode, ty) = (mode(words), words.ty()?);
                let f = if !approximate {
                    float::rcp_sqrt(opcode, ty, mode)
                } else if is_half(ty) {
                    half::function(opcode, ty)
                } else {
                    approx::function(opcode, ty, mode.flush)
                };
                self.unary(known(f)?, words, &operands, [ty; 2])?;
            }
            opcode @ ("abs" | "neg") => {
                let (flush, ty) = (words.take("ftz"), words.ty()?);
                let f =
                    if is_half(ty) { half::abs_neg(opcode, ty) } else { float::abs_neg(opcode, ty, flush) };
                self.unary(known(f)?, words, &operands, [ty; 2])?;
            }
            opcode @ ("min" | "max") => {
                let mode = Extreme { flush: words.take("ftz"), keep_nan: words.take("NaN") };
                let by_signs = words.take("xorsign") && words.take("abs");
                let ty = words.ty()?;
                let f = match (is_half(ty), by_signs) {
                    (true, false) => half::min_max(opcode, ty, mode.keep_nan),
                    (true, true) => half::min_max_of_magnitudes(opcode, ty, mode.keep_nan),
                    (false, false) => float::min_max(opcode, ty, mode),
                    (false, true) => float::min_max_of_magnitudes(opcode, ty, mode),
                };
                self.binary(known(f)?, words, &operands, [ty; 3])?;
            }
            "copysign" => {
                let ty = words.ty()?;
                self.binary(known(float::copysign(ty))?, words, &operands, [ty; 3])?;
            }
            "testp" => {
                let ty = words.ty()?;
                let f = known(words.find(|word| float::testp(word, ty)))?;
                words.finish()?;
                let [p, a] = operands.exactly()?;
                let op = Op::Property { f, p: self.pred_dst(p)?, a: self.src(a, ty)? };
                self.emit(op)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// An instruction on half precision with `.ftz`: the same without, between flushes of what it takes and gives.
    fn flushed(&mut self, instruction: &Instruction, ty: Type) -> Result<bool, Refusal> {
        let f = known(half::flush(ty))?;
        let plain = instruction.modifiers.iter().filter(|word| *word != "ftz").cloned().collect();
        let (d, given) = instruction.operands.split_first().ok_or_else(|| Refusal::new("no operand"))?;
        let mut operands = Vec::with_capacity(instruction.operands.len());
        let result = self.names.scratch(ty)?;
        operands.push(result.clone());
        for operand in given {
            let a = self.src(operand, ty)?;
            let flushed = self.names.scratch(ty)?;
            let to = self.dst(&flushed, ty)?;
            self.emit(Op::Unary { f, a, d: to })?;
            operands.push(flushed);
        }
        let done = self.decode_float(&Instruction { modifiers: plain, operands, ..instruction.clone() })?;
        let (a, d) = (self.src(&result, ty)?, self.dst(d, ty)?);
        self.emit(Op::Unary { f, a, d })?;
        Ok(done)
    }
}
