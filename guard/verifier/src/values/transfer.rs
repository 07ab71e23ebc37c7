//! What an instruction makes of what is known of its operands, and what an access rests on.

use super::number::{Number, Op, Sign, Width};
use super::value::{Base, Fact, Pointer, PointerProof, Proof, Root, SharedProof};
use crate::access::Access;
use crate::ast::{Address, AddressBase, Instruction, Operand, Predicate, Space};
use crate::limits::{REACH_BYTES, SHARED_BASE};
use crate::most::Most;
use crate::names::{self, Class};

/// Whoever knows something of registers at a place of a body.
pub trait Known<'a> {
    /// What is known of a register here.
    fn of_register(&self, name: &str) -> Option<Fact<'a>>;

    /// What is known of it as a number: of what is an address that is nothing.
    fn number_in(&self, name: &str) -> Option<Number> {
        self.of_register(name).and_then(Fact::number)
    }

    /// A number that is the same signed and unsigned.
    fn small(&self, name: &str) -> Option<Number> {
        self.of_register(name).and_then(Fact::small)
    }

    /// The variable in shared memory that a 32-bit register is known to be an address in, and how far from its first byte.
    fn shared_address(&self, name: &str) -> Option<(&'a str, i64)> {
        let pointer = self.of_register(name).and_then(Fact::pointer)?;
        let Pointer { base: Base::Shared(variable), offset } = pointer else { return None };
        (offset.low == offset.high).then_some((variable, i64::try_from(offset.low).ok()?))
    }

    /// Whether a 64-bit register is known to be a number and not an address.
    fn is_number(&self, name: &str) -> bool {
        self.number_in(name).is_some()
    }

    /// Whether a 32-bit register is known to be zero.
    fn is_zero(&self, name: &str) -> bool {
        self.small(name).is_some_and(|number| number.high == 0)
    }

    /// Whether a 32-bit register is known to be from one number to another.
    fn is_between(&self, name: &str, least: i128, most: i128) -> bool {
        self.small(name).is_some_and(|number| least <= number.low && number.high <= most)
    }

    /// Whether a 32-bit register is known to be a number that is not below zero, also signed.
    fn is_from_zero(&self, name: &str) -> bool {
        self.small(name).is_some()
    }

    /// What an access of global or shared memory rests on, where what is known is enough.
    fn proof(&self, access: &Access<'_>) -> Option<Proof<'a>> {
        let AddressBase::Register(name) = &access.address.base else { return None };
        let Pointer { base, offset: distance } = self.of_register(name)?.pointer()?;
        let (offset, bytes) = (i128::from(access.address.offset), i128::from(access.bytes));
        let (low, high) = (distance.low + offset, distance.high + offset);
        if 1 << distance.zeros < bytes || offset % bytes != 0 {
            return None;
        }
        match (access.space, base) {
            (Space::Global, Base::Parameter(root)) => {
                let reach = i128::from(REACH_BYTES);
                let (align, writes) = (access.bytes, !access.reads_only);
                let proof = PointerProof { root, align, writes, low, high };
                (low >= -reach && high + bytes <= reach).then_some(Proof::Pointer(proof))
            }
            (Space::Global, Base::Checked(pointer)) => {
                let reach = i128::from(REACH_BYTES);
                let fits = low >= -reach && high + bytes <= reach;
                let there = (pointer.writes || access.reads_only) && access.bytes <= pointer.align;
                (fits && there).then_some(Proof::Checked)
            }
            (Space::Shared, Base::Shared(variable)) => {
                // The register is a place in the block's shared memory: nobody promises that an offset comes back from below.
                (distance.low >= -i128::from(SHARED_BASE)).then_some(())?;
                let from_zero = |number: i128| u64::try_from(number).ok();
                let most = (from_zero(distance.most.constant + offset + bytes)?, distance.most.parts()?);
                let (start, end) = (from_zero(low)?, from_zero(high + bytes)?);
                Some(Proof::Shared(SharedProof { variable, start, end, most }))
            }
            _ => None,
        }
    }

    /// Whether a pointer and a number are a multiple of so many bytes, a power of two, and of which parameter that asks
    /// the same.
    fn aligned(&self, name: &str, offset: i64, bytes: u64) -> Option<Option<Root<'a>>> {
        let Pointer { base, offset: distance } = self.of_register(name)?.pointer()?;
        let fits =
            1 << distance.zeros.min(62) >= i128::from(bytes) && offset.unsigned_abs().is_multiple_of(bytes);
        match base {
            Base::Parameter(root) => fits.then_some(Some(root)),
            Base::Checked(pointer) => (fits && bytes <= pointer.align).then_some(None),
            Base::Shared(_) => None,
        }
    }

    /// Whether a 32-bit register and a number are known to be a multiple of so many bytes, a power of two: as an address in
    /// shared memory, where all variables are as aligned as the widest access.
    fn is_multiple(&self, name: &str, offset: i128, bytes: u64) -> bool {
        let zeros = match self.of_register(name) {
            Some(Fact::Number(number)) => number.zeros,
            Some(Fact::Pointer(Pointer { base: Base::Shared(_), offset })) => zeros_in_block(offset),
            Some(Fact::Pointer(_)) | None => 0,
        };
        let word = matches!(Class::parse(name), Some((Class::Word, _)));
        word && 1 << zeros.min(30) >= i128::from(bytes) && offset % i128::from(bytes) == 0
    }

    /// A 64-bit operand.
    fn wide(&self, operand: Option<&Operand>) -> Option<Fact<'a>> {
        match operand? {
            Operand::Integer(value) => {
                i64::try_from(*value).ok().map(|value| Fact::Number(Number::exactly(value.into())))
            }
            Operand::Register(name) if matches!(Class::parse(name), Some((Class::Double, _))) => {
                self.of_register(name)
            }
            _ => None,
        }
    }

    /// A 32-bit operand that is an address in shared memory.
    fn address(&self, operand: Option<&'a Operand>) -> Option<Pointer<'a>> {
        match operand? {
            Operand::Symbol(name) => Some(Pointer::start(Base::Shared(name))),
            Operand::SymbolOffset(name, offset) => {
                Some(Pointer::start(Base::Shared(name)).plus(Number::exactly((*offset).into())))
            }
            Operand::Register(name) => {
                let pointer = self.of_register(name).and_then(Fact::pointer);
                pointer.filter(|pointer| matches!(pointer.base, Base::Shared(_)))
            }
            _ => None,
        }
    }

    /// A 32-bit operand as a number of this sign.
    fn narrow(&self, operand: Option<&Operand>, sign: Sign) -> Option<Number> {
        let all = sign.all(Width::WORD);
        let known = match operand? {
            Operand::Integer(value) => Number::exactly(sign.immediate(*value, Width::WORD)?),
            Operand::Register(name) => match (Class::parse(name), names::most(name)) {
                _ if is_word(name) => self.number_in(name).unwrap_or(all),
                (None, Some(most)) => thread(name, Number::between(names::least(name), most.into())),
                _ => return None,
            },
            _ => return None,
        };
        Some(known.meant(sign, Width::WORD))
    }

    /// The 64-bit result of an instruction.
    fn double(&self, instruction: &'a Instruction) -> Option<Fact<'a>> {
        let words = instruction.words();
        let modifiers = words.as_slice();
        let operand = |index: usize| instruction.operands.get(index);
        let wide = |index| self.wide(operand(index));
        let narrow = |index, from| self.narrow(operand(index), Sign::of(from)?);
        match (instruction.opcode.as_str(), modifiers) {
            ("ld", ["param", "b64" | "u64" | "s64"]) => match operand(1)? {
                Operand::Address(address) => match &address.base {
                    AddressBase::Symbol(parameter) => {
                        let root = Root { parameter, offset: address.offset };
                        Some(Fact::Pointer(Pointer::start(Base::Parameter(root))))
                    }
                    AddressBase::Register(_) | AddressBase::Absolute => None,
                },
                _ => None,
            },
            ("mov", ["b64" | "u64" | "s64"]) | ("cvta", ["to", "global", "u64"]) => wide(1),
            ("cvt", ["s64", from @ ("s32" | "u32")] | ["u64", from @ "u32"]) => {
                narrow(1, from).map(Fact::Number)
            }
            ("mul", ["wide", from]) => Some(Fact::Number(narrow(1, from)?.times(narrow(2, from)?))),
            ("mad", ["wide", from]) => Fact::Number(narrow(1, from)?.times(narrow(2, from)?)).plus(wide(3)?),
            ("mul", ["lo", "s64" | "u64"]) => wide(1)?.times(wide(2)?),
            ("mad", ["lo", "s64" | "u64"]) => wide(1)?.times(wide(2)?)?.plus(wide(3)?),
            ("add", ["s64" | "u64"]) => wide(1)?.plus(wide(2)?),
            ("sub", ["s64" | "u64"]) => wide(1)?.minus(wide(2)?),
            ("and", ["b64"]) => {
                // What is not known may be anything: of a conjunction with a number from 0 on no more is left.
                let from_zero = |index| wide(index).and_then(Fact::number).filter(|number| number.low >= 0);
                let (one, other) = (from_zero(1), from_zero(2));
                Some(Fact::Number(one.or(other)?.and(other.or(one)?)))
            }
            ("shl", ["b64"]) => wide(1)?.times(Fact::Number(power(operand(2)?)?)),
            ("selp", ["b64" | "u64" | "s64"]) => wide(1)?.or(wide(2)?),
            _ => None,
        }
    }

    /// The 32-bit result of an instruction: an address in shared memory, a number that is less than 2^31, or its low zeros.
    fn word(&self, instruction: &'a Instruction) -> Option<Fact<'a>> {
        if let Some(pointer) = self.word_address(instruction) {
            let near = pointer.offset.low >= i32::MIN.into() && pointer.offset.high <= i32::MAX.into();
            // Such an address is as far from its variable as is known, where it has not wrapped around.
            return Some(if near {
                Fact::Pointer(pointer)
            } else {
                let all = Sign::Unsigned.all(Width::WORD);
                Fact::Number(all.with_zeros(zeros_in_block(pointer.offset)))
            });
        }
        self.word_number(instruction).map(Fact::Number)
    }

    /// What an instruction makes of an address in shared memory, if that is one.
    fn word_address(&self, instruction: &'a Instruction) -> Option<Pointer<'a>> {
        let words = instruction.words();
        let operand = |index: usize| instruction.operands.get(index);
        let address = |index| self.address(operand(index));
        let signed = |index| self.narrow(operand(index), Sign::Signed);
        match (instruction.opcode.as_str(), words.as_slice()) {
            ("mov", ["b32" | "u32" | "s32"]) => address(1),
            ("add", ["u32" | "s32"]) => match (address(1), address(2)) {
                (Some(address), None) => Some(address.plus(signed(2)?)),
                (None, Some(address)) => Some(address.plus(signed(1)?)),
                _ => None,
            },
            ("sub", ["u32" | "s32"]) => match (address(1), address(2)) {
                (Some(address), None) => Some(address.minus(signed(2)?)),
                _ => None,
            },
            ("mad", ["lo", "u32" | "s32"]) => {
                let product = self.unsigned(operand(1))?.times(self.unsigned(operand(2))?);
                product.is_small(Width::WORD).then_some(address(3)?.plus(product))
            }
            ("selp", ["b32" | "u32" | "s32"]) => address(1)?.or(address(2)?),
            _ => None,
        }
    }

    /// A 32-bit operand without a sign. What is from 0 on and below 2^31 is the same number signed and unsigned; what is
    /// computed beyond is known by its low bits alone, which are those of either.
    fn unsigned(&self, operand: Option<&Operand>) -> Option<Number> {
        self.narrow(operand, Sign::Unsigned)
    }

    /// The number that an instruction on words makes.
    fn word_number(&self, instruction: &'a Instruction) -> Option<Number> {
        let words = instruction.words();
        let operand = |index: usize| instruction.operands.get(index);
        let number = |index| self.unsigned(operand(index));
        let by = |op: Op| op.of(number(1)?, number(2)?, Width::WORD);
        let power = |op: Op| op.of(number(1)?, power(operand(2)?)?, Width::WORD);
        match (instruction.opcode.as_str(), words.as_slice()) {
            ("mov", ["b32" | "u32" | "s32"]) => Some(number(1)?.settled(Width::WORD)),
            ("add", ["u32" | "s32"]) => by(Op::Add),
            ("sub", ["u32" | "s32"]) => by(Op::Sub),
            ("mul", ["lo", "u32" | "s32"]) => by(Op::Mul),
            ("mad", ["lo", "u32" | "s32"]) => Op::Add.of(by(Op::Mul)?, number(3)?, Width::WORD),
            ("shl", ["b32"]) => power(Op::Mul),
            ("shr", ["u32"]) => power(Op::ShrUnsigned),
            ("shr", ["s32"]) => power(Op::ShrSigned),
            ("and", ["b32"]) => by(Op::And),
            ("or" | "xor", ["b32"]) => by(Op::Or),
            ("min", ["u32"]) => by(Op::MinUnsigned),
            ("min", ["s32"]) => by(Op::MinSigned),
            ("max", ["s32"]) => by(Op::MaxSigned),
            ("selp", ["b32" | "u32" | "s32"]) => by(Op::Select),
            _ => None,
        }
    }
}

/// Whether a register has 32 bits: the tenant's, and the counters of loops.
pub fn is_word(name: &str) -> bool {
    matches!(Class::parse(name), Some((Class::Word, _))) || names::is_counter(name)
}

/// How far the lines have come that bound a word of a parameter, and what it is at most: it is loaded to a register of the
/// guard's, tested, and whoever is given more ends; then the tenant's load comes.
#[derive(Debug, Clone, Copy, Default)]
pub enum Bounding<'a> {
    /// Nothing yet.
    #[default]
    Nothing,
    /// The word was loaded.
    Loaded(&'a Address),
    /// And compared with the bound.
    Tested(&'a Address, i128),
    /// And the thread ends where it is more.
    Ended(&'a Address, i128),
}

impl<'a> Bounding<'a> {
    /// What a register is at most that a bounded parameter is loaded to here.
    pub fn next(&mut self, instruction: &'a Instruction) -> Option<i128> {
        let is = |operand: &Operand, own: &str| matches!(operand, Operand::Register(name) if name == own);
        let words = instruction.words();
        let ends = |test: &Predicate| test.register == "%bh_q" && !test.negated;
        let before = std::mem::take(self);
        let parts = (instruction.opcode.as_str(), words.as_slice(), instruction.operands.as_slice());
        match (parts, &instruction.predicate) {
            (("ld", ["param", "u32"], [to, Operand::Address(from)]), None) => match before {
                Self::Ended(same, most) if same == from => return Some(most),
                _ if is(to, "%bh_lo") && matches!(from.base, AddressBase::Symbol(_)) => {
                    *self = Self::Loaded(from);
                }
                _ => {}
            },
            (("setp", ["gt", "u32"], [test, of, Operand::Integer(most @ 0..=0x7fff_ffff)]), None) => {
                if let Self::Loaded(from) = before
                    && is(test, "%bh_q")
                    && is(of, "%bh_lo")
                {
                    *self = Self::Tested(from, *most);
                }
            }
            (("exit", [], []), Some(test)) if ends(test) => {
                if let Self::Tested(from, most) = before {
                    *self = Self::Ended(from, most);
                }
            }
            _ => {}
        }
        None
    }
}

/// How many low bits are zero of an address in shared memory, where every variable is as aligned as the widest access.
fn zeros_in_block(offset: Number) -> u32 {
    offset.zeros.min(names::WIDEST_ACCESS.trailing_zeros())
}

/// The number in a special register; one of those that say where in its block a thread is, as that.
fn thread(name: &str, number: Number) -> Number {
    let axis = match name {
        "%tid.x" => 0,
        "%tid.y" => 1,
        "%tid.z" => 2,
        _ => return number,
    };
    Number { most: Most::thread(axis), ..number }
}

/// What shifting left by an operand multiplies by.
pub(crate) fn power(operand: &Operand) -> Option<Number> {
    match operand {
        Operand::Integer(by @ 0..=31) => Some(Number::exactly(1 << by)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
