//! `mov`, `cvta`, `cvt`.

use bulkhead_ptx::ast::{Instruction, Operand, Type};

use super::entry::Builder;
use super::operand::Operands;
use super::refusal::Refusal;
use super::words::{Words, bits_of, is_signed};
use crate::alu::convert::{self, Conversion, Integral, Side};
use crate::alu::name::Name;
use crate::alu::rounding::Rounding;
use crate::alu::{Unary, quarter, unary};
use crate::code::{
    CONSTANT_WINDOW, Dst, LOCAL_WINDOW, Logic, Op, PARAMETER_WINDOW, PredSrc, SHARED_WINDOW, Src,
};

fn copy() -> Unary {
    unary!(Some(Name::Copy); |a: u64| a)
}

fn not_supported() -> Refusal {
    Refusal::new("this form is not supported")
}

impl Builder<'_> {
    /// Moves and conversions.
    pub(crate) fn decode_moves(&mut self, instruction: &Instruction) -> Result<bool, Refusal> {
        let mut words = Words::new(&instruction.modifiers);
        let words = &mut words;
        let operands = Operands(&instruction.operands);
        match instruction.opcode.as_str() {
            "mov" => self.mov(words, &operands)?,
            "cvta" => self.cvta(words, &operands)?,
            "cvt" => self.cvt(words, &operands)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn mov(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let ty = words.ty()?;
        words.finish()?;
        let [d, a] = operands.exactly()?;
        if ty == Type::Pred {
            let (p, a) = (self.pred_dst(d)?, self.pred_src(a)?);
            return self.emit(Op::Logic { op: Logic::And, p, a, b: PredSrc::TRUE });
        }
        match (d, a) {
            (Operand::Vector(parts), whole) => {
                let (bits, part) = split(ty, parts.len())?;
                let a = self.src(whole, ty)?;
                let mut d = [Dst::SINK; 4];
                for (slot, operand) in d.iter_mut().zip(parts) {
                    *slot = self.dst(operand, part)?;
                }
                self.emit(Op::Unpack { bits, count: count(parts.len())?, d, a })
            }
            (whole, Operand::Vector(list)) => {
                let (bits, part) = split(ty, list.len())?;
                let mut parts = [Src::register(0); 4];
                for (slot, operand) in parts.iter_mut().zip(list) {
                    *slot = self.src(operand, part)?;
                }
                let d = self.dst(whole, ty)?;
                self.emit(Op::Pack { bits, count: count(list.len())?, d, parts })
            }
            (d, a) => {
                let (a, d) = (self.src(a, ty)?, self.dst(d, ty)?);
                self.emit(Op::Unary { f: copy(), d, a })
            }
        }
    }

    fn cvta(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let to = words.take("to");
        let window = words
            .find(|word| match word {
                "global" => Some(0),
                "shared" | "shared::cta" => Some(SHARED_WINDOW),
                "local" => Some(LOCAL_WINDOW),
                "const" => Some(CONSTANT_WINDOW),
                "param" | "param::entry" => Some(PARAMETER_WINDOW),
                _ => None,
            })
            .ok_or_else(not_supported)?;
        let ty = words.ty()?;
        words.finish()?;
        if bits_of(ty) != 64 {
            return Err(not_supported());
        }
        let [d, a] = operands.exactly()?;
        let (a, d) = (self.src(a, ty)?, self.dst(d, ty)?);
        if window == 0 {
            return self.emit(Op::Unary { f: copy(), d, a });
        }
        let b = self.constant(window)?;
        let opcode = if to { "sub" } else { "add" };
        let f = crate::alu::integer::add_sub(opcode, Type::U64).ok_or_else(not_supported)?;
        self.emit(Op::Binary { f, d, a, b })
    }

    fn cvt(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        if self.narrow_pairs(words, operands)? {
            return Ok(());
        }
        let integral = words.find(Integral::named);
        let rounding = words.find(Rounding::named);
        let (relu, flush, saturate) = (words.take("relu"), words.take("ftz"), words.take("sat"));
        let (to, from) = (words.ty()?, words.ty()?);
        words.finish()?;
        let packed = match to {
            Type::F16x2 => Some(Side::F16),
            Type::Bf16x2 => Some(Side::Bf16),
            _ => None,
        };
        let target = packed.or_else(|| Side::of(to)).ok_or_else(not_supported)?;
        // To half precision the device flushes nothing, whatever it is asked.
        let flush = flush && !(from == Type::F32 && to == Type::F16);
        let source = Side::of(from).filter(|side| *side != Side::Tf32).ok_or_else(not_supported)?;
        let conversion = Conversion {
            from: source,
            to: target,
            rounding: rounding.unwrap_or(Rounding::Nearest),
            integral,
            flush,
            saturate,
            relu,
        };
        if packed.is_some() {
            let [d, high, low] = operands.exactly()?;
            let (high, low) = (self.src(high, from)?, self.src(low, from)?);
            let parts = [self.converted(conversion, low)?, self.converted(conversion, high)?];
            let d = self.dst(d, to)?;
            let parts = [parts[0], parts[1], parts[0], parts[1]];
            return self.emit(Op::Pack { bits: 16, count: 2, d, parts });
        }
        let [d, a] = operands.exactly()?;
        let a = self.src_wide(a, from)?;
        let (d, bits) = self.dst_wide(d, to)?;
        self.emit_conversion(conversion, d, a)?;
        if is_signed(to) && bits > bits_of(to) {
            let extend = convert::sign_extend(bits_of(to), bits).ok_or_else(not_supported)?;
            self.emit(Op::Unary { f: extend, d, a: source_of(d) })?;
        }
        Ok(())
    }

    /// Pairs of 8-bit floating-point numbers, and `cvt.pack`; false where it is neither.
    fn narrow_pairs(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<bool, Refusal> {
        if words.take("pack") {
            let to = words.find(|word| matches!(word, "s8" | "u8" | "s16" | "u16").then_some(word));
            let to = to.filter(|_| words.take("sat") && words.take("s32")).ok_or_else(not_supported)?;
            match quarter::pack_halves(to) {
                Some(f) => self.binary(f, words, operands, [Type::B32, Type::S32, Type::S32])?,
                None => {
                    let f =
                        quarter::pack_bytes(to).filter(|_| words.take("b32")).ok_or_else(not_supported)?;
                    self.ternary(f, words, operands, [Type::B32, Type::S32, Type::S32, Type::B32])?;
                }
            }
            return Ok(true);
        }
        if words.take("rna") {
            let finite = words.take("satfinite");
            if !words.take("tf32") || !words.take("f32") {
                return Err(not_supported());
            }
            self.unary(quarter::tensor(finite), words, operands, [Type::B32, Type::F32])?;
            return Ok(true);
        }
        let Some(format) = words.find(|word| matches!(word, "e4m3x2" | "e5m2x2").then_some(word)) else {
            return Ok(false);
        };
        words.ignore(&["rn"]);
        let (saturate, relu) = (words.take("satfinite"), words.take("relu"));
        let other = words.ty()?;
        let (f, types) = match (saturate, other) {
            (true, Type::F32) => {
                let f = quarter::from_singles(format, relu).ok_or_else(not_supported)?;
                self.binary(f, words, operands, [Type::B16, Type::F32, Type::F32])?;
                return Ok(true);
            }
            (true, Type::F16x2) => (quarter::from_halves(format, relu), [Type::B16, Type::F16x2]),
            (false, Type::F16x2) => (quarter::into_halves(format, relu), [Type::F16x2, Type::B16]),
            _ => return Err(not_supported()),
        };
        self.unary(f.ok_or_else(not_supported)?, words, operands, types)?;
        Ok(true)
    }

    fn converted(&mut self, conversion: Conversion, a: Src) -> Result<Src, Refusal> {
        let temporary = self.names.temporary()?;
        self.emit_conversion(conversion, Dst(temporary), a)?;
        Ok(Src::register(temporary))
    }

    fn emit_conversion(&mut self, conversion: Conversion, d: Dst, a: Src) -> Result<(), Refusal> {
        if let Some(f) = conversion.fast() {
            return self.emit(Op::Unary { f, d, a });
        }
        let index = u32::try_from(self.conversions.len()).map_err(|_| not_supported())?;
        self.conversions.push(conversion);
        self.emit(Op::Convert { conversion: index, d, a })
    }
}

fn source_of(d: Dst) -> Src {
    Src::register(d.0)
}

fn count(parts: usize) -> Result<u8, Refusal> {
    u8::try_from(parts).map_err(|_| not_supported())
}

/// Width and type of the parts of a packed value.
fn split(ty: Type, parts: usize) -> Result<(u8, Type), Refusal> {
    match (bits_of(ty), parts) {
        (64, 2) => Ok((32, Type::B32)),
        (64, 4) | (32, 2) => Ok((16, Type::B16)),
        (32, 4) | (16, 2) => Ok((8, Type::B8)),
        _ => Err(not_supported()),
    }
}
