//! Integer arithmetic, logic, bit fields, extended precision.

use bulkhead_ptx::ast::{Instruction, Operand, Type};

use super::entry::Builder;
use super::operand::Operands;
use super::refusal::Refusal;
use super::words::{Words, bits_of, is_float, type_named};
use crate::alu::carry::Kind as CarryKind;
use crate::alu::integer::Part;
use crate::alu::{Binary, Ternary, Unary, bits, compare, integer, logic};
use crate::code::{Dst, Logic, Op, Pred, PredSrc, Src};

/// Result of looking an instruction up: `None` where there is no such form.
fn known<T>(found: Option<T>) -> Result<T, Refusal> {
    found.ok_or_else(|| Refusal::new("this form is not supported"))
}

fn part(words: &mut Words<'_>) -> Result<Part, Refusal> {
    words
        .find(|word| match word {
            "lo" => Some(Part::Low),
            "hi" => Some(Part::High),
            "wide" => Some(Part::Wide),
            _ => None,
        })
        .ok_or_else(|| Refusal::new("`.lo`, `.hi` or `.wide` is missing"))
}

/// Whether a sum or product takes the carry flag.
fn takes_carry(opcode: &str) -> bool {
    matches!(opcode, "addc" | "subc" | "madc")
}

/// The type of a `.wide` result.
fn doubled(ty: Type) -> Type {
    match ty {
        Type::U16 | Type::S16 => Type::B32,
        _ => Type::B64,
    }
}

impl Builder<'_> {
    /// Operations on integers and bits.
    pub(crate) fn decode_arithmetic(&mut self, instruction: &Instruction) -> Result<bool, Refusal> {
        let last = instruction.modifiers.iter().rev().find_map(|word| type_named(word));
        if last.is_some_and(is_float) {
            return Ok(false);
        }
        if last == Some(Type::Pred) {
            return self.predicate_logic(instruction);
        }
        let mut words = Words::new(&instruction.modifiers);
        let words = &mut words;
        let operands = Operands(&instruction.operands);
        let signed = words.take("s16x2");
        if signed || words.take("u16x2") {
            let relu = words.take("relu");
            let f = known(integer::pairs(instruction.opcode.as_str(), signed, relu))?;
            self.binary(f, words, &operands, [Type::B32; 3])?;
            return Ok(true);
        }
        let opcode = instruction.opcode.as_str();
        Ok(self.integers(opcode, words, &operands)?
            || self.bitwise(opcode, words, &operands)?
            || self.bit_fields(opcode, words, &operands)?)
    }

    /// Sums, products, quotients and what is made of them.
    fn integers(
        &mut self,
        opcode: &str,
        words: &mut Words<'_>,
        operands: &Operands<'_>,
    ) -> Result<bool, Refusal> {
        match opcode {
            "add" | "sub" | "addc" | "subc" | "mad" | "madc" | "mul" => {
                self.sums(opcode, words, operands)?;
            }
            "mul24" => {
                let (part, ty) = (part(words)?, words.ty()?);
                self.binary(known(integer::mul24(part, ty))?, words, operands, [Type::B32, ty, ty])?;
            }
            "mad24" => {
                let (part, saturate, ty) = (part(words)?, words.take("sat"), words.ty()?);
                let f = known(integer::mad24(part, ty, saturate))?;
                self.ternary(f, words, operands, [Type::B32, ty, ty, ty])?;
            }
            "div" | "rem" => {
                let ty = words.ty()?;
                self.binary(known(integer::div_rem(opcode, ty))?, words, operands, [ty, ty, ty])?;
            }
            "min" | "max" => {
                let (relu, ty) = (words.take("relu"), words.ty()?);
                self.binary(known(integer::min_max(opcode, ty, relu))?, words, operands, [ty, ty, ty])?;
            }
            "abs" | "neg" => {
                let ty = words.ty()?;
                self.unary(known(integer::abs_neg(opcode, ty))?, words, operands, [ty, ty])?;
            }
            "sad" => {
                let ty = words.ty()?;
                self.ternary(known(integer::sad(ty))?, words, operands, [ty, ty, ty, ty])?;
            }
            "dp4a" => {
                let (a, b) = (words.ty()?, words.ty()?);
                let types = [Type::B32, a, b, Type::B32];
                self.ternary(known(integer::dp4a(a, b))?, words, operands, types)?;
            }
            "dp2a" => {
                let (part, a, b) = (part(words)?, words.ty()?, words.ty()?);
                let types = [Type::B32, a, b, Type::B32];
                self.ternary(known(integer::dp2a(part, a, b))?, words, operands, types)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Logic and shifts.
    fn bitwise(
        &mut self,
        opcode: &str,
        words: &mut Words<'_>,
        operands: &Operands<'_>,
    ) -> Result<bool, Refusal> {
        match opcode {
            "and" | "or" | "xor" => {
                let ty = words.ty()?;
                self.binary(known(logic::bitwise(opcode))?, words, operands, [ty, ty, ty])?;
            }
            "not" | "cnot" => {
                let ty = words.ty()?;
                self.unary(known(logic::complement(opcode, ty))?, words, operands, [ty, ty])?;
            }
            "shl" | "shr" => {
                let ty = words.ty()?;
                self.binary(known(logic::shift(opcode, ty))?, words, operands, [ty, ty, Type::B32])?;
            }
            "shf" => {
                let left = words.take("l");
                if !left && !words.take("r") {
                    return Err(Refusal::new("`.l` or `.r` is missing"));
                }
                let clamp = words.take("clamp");
                if !clamp && !words.take("wrap") {
                    return Err(Refusal::new("`.clamp` or `.wrap` is missing"));
                }
                let ty = words.ty()?;
                self.ternary(logic::funnel(left, clamp), words, operands, [ty, ty, ty, Type::B32])?;
            }
            "lop3" => self.lop3(words, operands)?,
            "prmt" => {
                let ty = words.ty()?;
                let mode = words.find(Some);
                self.ternary(known(bits::permute(mode))?, words, operands, [ty; 4])?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Bits that are counted, found, taken out and put in.
    fn bit_fields(
        &mut self,
        opcode: &str,
        words: &mut Words<'_>,
        operands: &Operands<'_>,
    ) -> Result<bool, Refusal> {
        match opcode {
            "popc" | "clz" | "brev" => {
                let ty = words.ty()?;
                let out = if opcode == "brev" { ty } else { Type::B32 };
                self.unary(known(bits::count(opcode, ty))?, words, operands, [out, ty])?;
            }
            "bfind" => {
                let (amount, ty) = (words.take("shiftamt"), words.ty()?);
                self.unary(known(bits::find(ty, amount))?, words, operands, [Type::B32, ty])?;
            }
            "bfe" => {
                let ty = words.ty()?;
                self.ternary(known(bits::extract(ty))?, words, operands, [ty, ty, Type::B32, Type::B32])?;
            }
            "bfi" => {
                let ty = words.ty()?;
                words.finish()?;
                let [d, a, b, position, length] = operands.exactly()?;
                let op = Op::Insert {
                    wide: bits_of(ty) == 64,
                    d: self.dst(d, ty)?,
                    a: self.src(a, ty)?,
                    b: self.src(b, ty)?,
                    position: self.src(position, Type::B32)?,
                    length: self.src(length, Type::B32)?,
                };
                self.emit(op)?;
            }
            "fns" => {
                let ty = words.ty()?;
                self.ternary(bits::nth_set(), words, operands, [ty; 4])?;
            }
            "szext" => {
                let clamp = words.take("clamp");
                words.ignore(&["wrap"]);
                let ty = words.ty()?;
                self.binary(known(bits::extend(ty, clamp))?, words, operands, [ty, ty, Type::B32])?;
            }
            "bmsk" => {
                let clamp = words.take("clamp");
                words.ignore(&["wrap"]);
                let ty = words.ty()?;
                self.binary(bits::mask(clamp), words, operands, [ty; 3])?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sums and products, with and without carry.
    fn sums(&mut self, opcode: &str, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let gives = words.take("cc");
        if gives || takes_carry(opcode) {
            return self.extended(opcode, gives, words, operands);
        }
        let saturate = words.take("sat");
        match opcode {
            "add" | "sub" => {
                let ty = words.ty()?;
                let f = if saturate && ty == Type::S32 {
                    integer::saturating(opcode)
                } else {
                    integer::add_sub(opcode, ty).filter(|_| !saturate)
                };
                self.binary(known(f)?, words, operands, [ty, ty, ty])
            }
            "mul" => {
                let (part, ty) = (part(words)?, words.ty()?);
                let out = if part == Part::Wide { doubled(ty) } else { ty };
                let f = integer::mul(part, ty).filter(|_| !saturate);
                self.binary(known(f)?, words, operands, [out, ty, ty])
            }
            _ => {
                let (part, ty) = (part(words)?, words.ty()?);
                let out = if part == Part::Wide { doubled(ty) } else { ty };
                self.ternary(known(integer::mad(part, ty, saturate))?, words, operands, [out, ty, ty, out])
            }
        }
    }

    /// Those with carry, which `gives` says that they give.
    fn extended(
        &mut self,
        opcode: &str,
        gives: bool,
        words: &mut Words<'_>,
        operands: &Operands<'_>,
    ) -> Result<(), Refusal> {
        let product = matches!(opcode, "mad" | "madc").then(|| part(words)).transpose()?;
        let ty = words.ty()?;
        words.finish()?;
        let signed = match ty {
            Type::U32 | Type::U64 => false,
            Type::S32 | Type::S64 => true,
            _ => return Err(Refusal::new("this form is not supported")),
        };
        let kind = match (opcode, product) {
            ("add" | "addc", _) => CarryKind::Add,
            ("sub" | "subc", _) => CarryKind::Sub,
            (_, Some(Part::Low)) => CarryKind::MulLow,
            (_, Some(Part::High)) if signed => CarryKind::MulHighSigned,
            (_, Some(Part::High)) => CarryKind::MulHighUnsigned,
            _ => return Err(Refusal::new("this form is not supported")),
        };
        let (d, a, b, c) = if product.is_some() {
            let [d, a, b, c] = operands.exactly()?;
            (d, a, b, self.src(c, ty)?)
        } else {
            let [d, a, b] = operands.exactly()?;
            (d, a, b, self.constant(0)?)
        };
        let operands = [self.src(a, ty)?, self.src(b, ty)?, c];
        let d = self.dst(d, ty)?;
        let takes = takes_carry(opcode);
        self.emit(Op::Carry { kind, wide: bits_of(ty) == 64, takes, gives, d, operands })
    }

    fn lop3(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let combine = words.find(|word| match word {
            "and" => Some(Logic::And),
            "or" => Some(Logic::Or),
            _ => None,
        });
        let ty = words.ty()?;
        words.finish()?;
        let (d, a, b, c, table, with) = match combine {
            None => {
                let [d, a, b, c, table] = operands.exactly()?;
                (d, a, b, c, table, None)
            }
            Some(combine) => {
                let [d, a, b, c, table, q] = operands.exactly()?;
                let Operand::Pair(d, p) = d else {
                    return Err(Refusal::new("`lop3` with a predicate has two results"));
                };
                (&**d, a, b, c, table, Some((combine, p, q)))
            }
        };
        let Operand::Integer(table @ 0..=255) = table else {
            return Err(Refusal::new("the table of `lop3` is a number below 256"));
        };
        let table = u8::try_from(*table).map_err(|_| Refusal::new("the table of `lop3` is too large"))?;
        if bits_of(ty) != 32 {
            return Err(Refusal::new("this form is not supported"));
        }
        let (a, b, c) = (self.src(a, ty)?, self.src(b, ty)?, self.src(c, ty)?);
        let Some((combine, p, q)) = with else {
            let d = self.dst(d, ty)?;
            return self.emit(Op::Lop3 { table, d, a, b, c });
        };
        // The result may be the predicate alone.
        let computed = self.names.temporary()?;
        self.emit(Op::Lop3 { table, d: Dst(computed), a, b, c })?;
        let (a, b) = (Src::register(computed), self.constant(0)?);
        let f = known(compare::comparison("ne", Type::B32, false))?;
        let (c, p) = (self.pred_src(q)?, self.pred_dst(p)?);
        self.emit(Op::Test { f, p, q: Pred::SINK, a, b, combine, c })?;
        let (f, d) = (known(logic::bitwise("or"))?, self.dst(d, ty)?);
        self.emit(Op::Binary { f, d, a, b })
    }

    /// `and.pred` and its like.
    fn predicate_logic(&mut self, instruction: &Instruction) -> Result<bool, Refusal> {
        let op = match instruction.opcode.as_str() {
            "and" => Logic::And,
            "or" => Logic::Or,
            "xor" => Logic::Xor,
            "not" => {
                let [d, a] = Operands(&instruction.operands).exactly()?;
                let a = self.pred_src(a)?;
                let a = PredSrc { negated: !a.negated, ..a };
                let p = self.pred_dst(d)?;
                self.emit(Op::Logic { op: Logic::And, p, a, b: PredSrc::TRUE })?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let [d, a, b] = Operands(&instruction.operands).exactly()?;
        let (a, b, p) = (self.pred_src(a)?, self.pred_src(b)?, self.pred_dst(d)?);
        self.emit(Op::Logic { op, p, a, b })?;
        Ok(true)
    }

    /// One operand, with the types of destination and operand.
    pub(crate) fn unary(
        &mut self,
        f: Unary,
        words: &Words<'_>,
        operands: &Operands<'_>,
        types: [Type; 2],
    ) -> Result<(), Refusal> {
        words.finish()?;
        let [d, a] = operands.exactly()?;
        let op = Op::Unary { f, a: self.src(a, types[1])?, d: self.dst(d, types[0])? };
        self.emit(op)
    }

    /// Two operands.
    pub(crate) fn binary(
        &mut self,
        f: Binary,
        words: &Words<'_>,
        operands: &Operands<'_>,
        types: [Type; 3],
    ) -> Result<(), Refusal> {
        words.finish()?;
        let [d, a, b] = operands.exactly()?;
        let op =
            Op::Binary { f, a: self.src(a, types[1])?, b: self.src(b, types[2])?, d: self.dst(d, types[0])? };
        self.emit(op)
    }

    /// Three operands.
    pub(crate) fn ternary(
        &mut self,
        f: Ternary,
        words: &Words<'_>,
        operands: &Operands<'_>,
        types: [Type; 4],
    ) -> Result<(), Refusal> {
        words.finish()?;
        let [d, a, b, c] = operands.exactly()?;
        let op = Op::Ternary {
            f,
            a: self.src(a, types[1])?,
            b: self.src(b, types[2])?,
            c: self.src(c, types[3])?,
            d: self.dst(d, types[0])?,
        };
        self.emit(op)
    }
}
