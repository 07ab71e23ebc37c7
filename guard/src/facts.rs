//! What is known of the numbers in registers, in one linear pass: between what they lie, how many of their low bits
//! are zero, and which parameter they are a pointer by.
//!
//! Something is known at all times only of registers that exactly one instruction of the body writes, without a
//! predicate. A register is never read before it is written, so whatever is read there was computed by that instruction,
//! from operands of which something is known at all times, or from numbers of which the type alone says enough.
//! What is written further down in the text is not known yet: nothing rests on itself. Of other registers something is
//! known up to the next label, or until they are written again; and of what a loop steps whose pointers were checked,
//! how far it has come in any of its turns ([`Facts::turn`]).

use std::collections::HashMap;

use crate::access::Access;
use crate::anchors::Check;
use crate::ast::{AddressBase, Instruction, Operand, Predicate, Space, Statement};
use crate::limits::{CHUNK_COST_MAX, REACH_BYTES};
use crate::names::{self, Class};
use crate::table::{self, Treatment};

/// Where a pointer came from: eight bytes of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Root<'a> {
    pub(crate) parameter: &'a str,
    /// In bytes, from the parameter's first.
    pub(crate) offset: i64,
}

/// What an address is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base<'a> {
    Parameter(Root<'a>),
    /// A variable in shared memory.
    Shared(&'a str),
    /// What a pointer was when it was checked.
    Window(Window),
}

/// A pointer that was checked to lie in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    /// Which one: no two checks have the same.
    number: usize,
    writes: bool,
    align: u64,
}

/// A number that is no more than a constant and multiples of where in its block a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Most {
    constant: i128,
    /// For `%tid.x`, `%tid.y` and `%tid.z`: from 0 on.
    by: [i128; 3],
}

impl Most {
    const fn constant(constant: i128) -> Self {
        Self { constant, by: [0; 3] }
    }

    fn times(self, factor: i128) -> Self {
        Self { constant: self.constant * factor, by: self.by.map(|by| by * factor) }
    }

    fn plus(self, other: Self) -> Self {
        let [[x, y, z], [u, v, w]] = [self.by, other.by];
        Self { constant: self.constant + other.constant, by: [x + u, y + v, z + w] }
    }
}

/// A number, as a signed one; or as far from what an address is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fact<'a> {
    base: Option<Base<'a>>,
    low: i128,
    /// In any block.
    high: i128,
    most: Most,
    /// Low bits that are zero, the base's own not counted.
    zeros: u32,
}

/// What an access of global memory needs of a pointer so that it is where it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PointerProof<'a> {
    pub(crate) root: Root<'a>,
    /// Of what the pointer is a multiple, in bytes.
    pub(crate) align: u64,
    /// Whether it points where stores may go.
    pub(crate) writes: bool,
    /// How far from it the access begins at least, in bytes.
    pub(crate) low: i128,
    /// And at most.
    pub(crate) high: i128,
}

/// Where an access of shared memory that begins in or behind a variable ends at most. It is aligned where the variable
/// is for the widest access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SharedProof<'a> {
    pub(crate) variable: &'a str,
    /// How far into the variable it begins at least, in bytes.
    pub(crate) start: u64,
    /// In any block, in bytes from the variable's first.
    pub(crate) end: u64,
    /// The same: a constant, and multiples of `%tid.x`, `%tid.y` and `%tid.z`.
    pub(crate) most: (u64, [u64; 3]),
}

/// What a launch of a fast version is asked about shared memory: the multiples of where in its block a thread is, and what
/// they and a constant do not exceed; the block's dynamic shared memory where that is none.
pub(crate) type SharedKey = ([u64; 3], Option<u64>);

impl SharedProof<'_> {
    /// Whether the access stays in its variable of so many bytes, 0 for the block's dynamic shared memory: `Some(None)` in
    /// every launch, otherwise in one that keeps the term, which has this constant.
    pub(crate) fn term(&self, bytes: u64) -> Option<Option<(SharedKey, u64)>> {
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
pub(crate) enum Proof<'a> {
    Pointer(PointerProof<'a>),
    Shared(SharedProof<'a>),
    /// A check before the turns of a loop.
    Checked,
}

/// Nothing is known to be further off than this: sums of what is known cannot overflow.
const FAR: i128 = 1 << 62;

impl<'a> Fact<'a> {
    const fn number(low: i128, high: i128) -> Self {
        Self { base: None, low, high, most: Most::constant(high), zeros: 0 }
    }

    fn exactly(value: i128) -> Self {
        Self { zeros: value.trailing_zeros().min(63), ..Self::number(value, value) }
    }

    /// The first byte of something.
    const fn start(base: Base<'a>) -> Self {
        Self { base: Some(base), low: 0, high: 0, most: Most::constant(0), zeros: 63 }
    }

    fn times(self, other: Self) -> Option<Self> {
        let ends =
            [self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high];
        let zeros = (self.zeros + other.zeros).min(63);
        let (low, high) = (*ends.iter().min()?, *ends.iter().max()?);
        let is_factor = |fact: Self| fact.low == fact.high && fact.low >= 0;
        let most = if is_factor(other) {
            self.most.times(other.low)
        } else if is_factor(self) {
            other.most.times(self.low)
        } else {
            Most::constant(high)
        };
        let number = Self { zeros, most, ..Self::number(low, high) };
        (self.base.is_none() && other.base.is_none()).then_some(number)
    }

    fn plus(self, other: Self) -> Option<Self> {
        let base = match (self.base, other.base) {
            (base, None) | (None, base) => base,
            (Some(_), Some(_)) => return None,
        };
        let (most, zeros) = (self.most.plus(other.most), self.zeros.min(other.zeros));
        Some(Self { base, low: self.low + other.low, high: self.high + other.high, most, zeros })
    }

    fn minus(self, other: Self) -> Option<Self> {
        let negative = Self { zeros: other.zeros, ..Self::number(-other.high, -other.low) };
        other.base.is_none().then(|| self.plus(negative)).flatten()
    }

    /// Whichever of the two it is.
    fn or(self, other: Self) -> Option<Self> {
        let (low, high) = (self.low.min(other.low), self.high.max(other.high));
        let most = if self.most == other.most { self.most } else { Most::constant(high) };
        let joined = Self { base: self.base, low, high, most, zeros: self.zeros.min(other.zeros) };
        (self.base == other.base).then_some(joined)
    }

    fn fits(self) -> Option<Self> {
        let by = self.most.by.iter().all(|by| *by <= FAR);
        (self.low >= -FAR && self.high <= FAR && self.most.constant <= FAR && by).then_some(self)
    }
}

/// How a 32-bit number is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Signed,
    Unsigned,
}

impl Sign {
    fn of(modifier: &str) -> Option<Self> {
        match modifier {
            "s32" => Some(Self::Signed),
            "u32" => Some(Self::Unsigned),
            _ => None,
        }
    }

    fn all(self) -> Fact<'static> {
        match self {
            Self::Signed => Fact::number(i32::MIN.into(), i32::MAX.into()),
            Self::Unsigned => Fact::number(0, u32::MAX.into()),
        }
    }
}

/// What is known so far in a pass over a body, in the order of the text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts<'a> {
    /// How often each register is written, in all of the body.
    writes: HashMap<&'a str, u32>,
    /// 32-bit numbers are from 0 on; where one may be beyond `i32::MAX`, its low zeros are all that is known.
    known: HashMap<&'a str, Fact<'a>>,
    /// What is known up to the next label, or that nothing is.
    passing: HashMap<&'a str, Option<Fact<'a>>>,
    /// What was known when control last ran on into a label.
    entering: HashMap<&'a str, Option<Fact<'a>>>,
    /// Which register a predicate says is not zero where it does not hold.
    zero: HashMap<&'a str, &'a str>,
    /// How many pointers were checked.
    checked: usize,
}

impl<'a> Facts<'a> {
    /// Nothing is known yet of a body.
    pub(crate) fn of(statements: &'a [Statement]) -> Self {
        let mut facts = Self::default();
        for statement in statements {
            let Statement::Instruction(instruction) = statement else { continue };
            let Some(row) = table::row_of(instruction) else { continue };
            table::registers(row, instruction, &mut |_| {}, &mut |name| {
                *facts.writes.entry(name).or_default() += 1;
            });
        }
        facts
    }

    /// A register is written once more than the body says.
    pub(crate) fn also_written(&mut self, name: &'a str) {
        *self.writes.entry(name).or_default() += 1;
    }

    /// What is known at a label: who comes there may have come from anywhere.
    pub(crate) fn label(&mut self) {
        self.entering = std::mem::take(&mut self.passing);
        self.zero.clear();
    }

    /// Learns from the next instruction.
    pub(crate) fn learn(&mut self, instruction: &'a Instruction) {
        self.tests(instruction);
        let Some(Operand::Register(name)) = instruction.operands.first() else {
            return self.forget(instruction);
        };
        let learned = match Class::parse(name) {
            _ if instruction.predicate.is_some() => None,
            Some((Class::Double, _)) => self.double(instruction),
            Some((Class::Word, _)) => self.word(instruction),
            Some((Class::Predicate | Class::Half, _)) | None => None,
        };
        let learned = learned.and_then(Fact::fits);
        if self.writes.get(name.as_str()) != Some(&1) {
            self.passing.insert(name, learned);
        } else if let Some(fact) = learned {
            self.passing.remove(name.as_str());
            self.known.insert(name, fact);
        }
    }

    /// Learns from a branch that is not taken where a register is zero.
    fn tests(&mut self, instruction: &'a Instruction) {
        let target = || instruction.operands.first();
        if let (Some(Predicate { register, negated: false }), "bra", Some(Operand::Symbol(_))) =
            (&instruction.predicate, instruction.opcode.as_str(), target())
        {
            if let Some(tested) = self.zero.get(register.as_str()).copied()
                && let Some(fact) =
                    self.of_register(tested).filter(|fact| fact.base.is_none() && fact.low == 0)
            {
                self.passing.insert(tested, Some(Fact { low: 1.min(fact.high), ..fact }));
            }
            return;
        }
        let Some(row) = table::row_of(instruction) else { return };
        let zero = &mut self.zero;
        table::registers(row, instruction, &mut |_| {}, &mut |name| {
            zero.retain(|predicate, tested| *predicate != name && *tested != name);
        });
        let is_word = |name: &str| matches!(Class::parse(name), Some((Class::Word, _)));
        let equal = matches!(instruction.modifiers.as_slice(), [eq, ty] if eq == "eq" && matches!(ty.as_str(), "s32" | "u32" | "b32"));
        if let ("setp", [Operand::Register(predicate), Operand::Register(tested), Operand::Integer(0)]) =
            (instruction.opcode.as_str(), instruction.operands.as_slice())
            && equal
            && instruction.predicate.is_none()
            && is_word(tested)
        {
            self.zero.insert(predicate, tested);
        }
    }

    /// How often a loop turns at most, which control has run on into and into nothing else of which goes: its body, from
    /// behind the last label on, and the branch back. What ends it is a register that takes the same step in
    /// every turn, from and to what is known.
    pub(crate) fn turns(&self, body: &[Statement], back: &Instruction) -> Option<u64> {
        let Some(Predicate { register: predicate, negated: false }) = &back.predicate else { return None };
        (back.opcode == "bra" && back.modifiers.is_empty()).then_some(())?;
        let mut writes: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, statement) in body.iter().enumerate() {
            let Statement::Instruction(instruction) = statement else { continue };
            let row = table::row_of(instruction)?;
            if table::target(row, instruction).is_some() || row.treatment == Treatment::Branch {
                return None;
            }
            let mut write = |name| writes.entry(name).or_default().push(index);
            table::registers(row, instruction, &mut |_| {}, &mut write);
        }
        let once = |name: &str| match writes.get(name).map(Vec::as_slice) {
            Some([index]) => match body.get(*index) {
                Some(Statement::Instruction(found)) if found.predicate.is_none() => Some((*index, found)),
                _ => None,
            },
            _ => None,
        };
        let (at, test) = once(predicate).filter(|(_, test)| test.opcode == "setp")?;
        let [Operand::Register(_), Operand::Register(tested), bound] = test.operands.as_slice() else {
            return None;
        };
        let is_word = |found: &Instruction| matches!(found.modifiers.as_slice(), [ty] if matches!(ty.as_str(), "s32" | "u32" | "b32"));
        let (stepped, add) =
            once(tested).filter(|(index, add)| *index < at && add.opcode == "add" && is_word(add))?;
        let (Some(Operand::Register(from)), Some(Operand::Integer(step))) =
            (add.operands.get(1), add.operands.get(2))
        else {
            return None;
        };
        // The sum may be in a register of its own, from which the next turn has it.
        if from != tested {
            let (moved, next) = once(from).filter(|(_, next)| next.opcode == "mov" && is_word(next))?;
            let same = matches!(next.operands.get(1), Some(Operand::Register(name)) if name == tested);
            (same && moved > stepped).then_some(())?;
        }
        let entering = |name: &str| {
            let fact = self.entering.get(name).copied().unwrap_or_else(|| self.known.get(name).copied())?;
            (fact.base.is_none() && fact.low >= 0 && fact.high <= i32::MAX.into()).then_some(fact)
        };
        let first = entering(from)?;
        let bound = match bound {
            Operand::Integer(value) => Fact::exactly(*value),
            Operand::Register(name) if !writes.contains_key(name.as_str()) => entering(name)?,
            _ => return None,
        };
        let [compare, ty] = test.modifiers.as_slice() else { return None };
        let turns = count(first, *step, (compare, ty), bound)?;
        u64::try_from(turns.max(1)).ok()
    }

    /// Of what several registers are written by, nothing is known.
    fn forget(&mut self, instruction: &'a Instruction) {
        if let Some(row) = table::row_of(instruction) {
            table::registers(row, instruction, &mut |_| {}, &mut |name| {
                self.passing.insert(name, None);
            });
        }
    }

    /// What is known of a register here.
    fn of_register(&self, name: &str) -> Option<Fact<'a>> {
        self.passing.get(name).copied().unwrap_or_else(|| self.known.get(name).copied())
    }

    /// Whether a 64-bit register is known to be a number and not an address.
    pub(crate) fn is_number(&self, name: &str) -> bool {
        self.of_register(name).is_some_and(|fact| fact.base.is_none())
    }

    /// Begins the turns of a loop without labels inside, directly behind its label and a check before that: at most
    /// [`CHUNK_COST_MAX`] instructions are gone through in all its turns. False where a pointer is not stepped by
    /// what is known to be little enough.
    pub(crate) fn turn(&mut self, check: &Check<'a>, body: &'a [Statement]) -> bool {
        self.passing.clear();
        let mut instructions = 0_u64;
        for statement in body {
            let Statement::Instruction(instruction) = statement else { continue };
            let Some(row) = table::row_of(instruction) else { return false };
            let (mut reads_own, mut writes_own) = (false, false);
            let mut read = |name| reads_own |= names::is_reserved(name);
            table::registers(row, instruction, &mut read, &mut |name| {
                writes_own |= names::is_reserved(name);
                self.passing.insert(name, None);
            });
            // The guard's own do not count among what a turn costs, and what accesses go through may be that.
            instructions += u64::from(!(reads_own || writes_own) && row.memory.is_empty());
        }
        // In the first turn the loop has not gone back yet.
        let backs = i128::from(CHUNK_COST_MAX / instructions.max(1));
        for step in &check.steps {
            // A step that the loop itself writes is not what was checked.
            if self.passing.contains_key(step.register) {
                return false;
            }
        }
        for step in &check.steps {
            let bound = i128::from(step.bound);
            let known = self.known.get(step.register).filter(|known| known.base.is_none());
            let zeros = known.map_or(0, |known| known.zeros);
            self.passing.insert(step.register, Some(Fact { zeros, ..Fact::number(-bound, bound - 1) }));
        }
        let begin = self.checked;
        self.checked += check.anchors.len();
        let anchors = || {
            check.anchors.iter().zip(begin..).map(|(anchor, number)| {
                let window = Window { number, writes: anchor.writes, align: anchor.align };
                (anchor.register, Fact::start(Base::Window(window)))
            })
        };
        let before = self.passing.clone();
        self.passing.extend(anchors().map(|(register, fact)| (register, Some(fact))));
        for statement in body {
            if let Statement::Instruction(instruction) = statement {
                self.learn(instruction);
            }
        }
        let mut turned = before;
        for (register, start) in anchors() {
            let Some(end) = self.of_register(register).filter(|end| end.base == start.base) else {
                return false;
            };
            let (low, high) = ((end.low * backs).min(0), (end.high * backs).max(0));
            let fact = Fact { low, high, most: Most::constant(high), zeros: end.zeros, ..start };
            let Some(fact) = fact.fits() else { return false };
            turned.insert(register, Some(fact));
        }
        self.passing = turned;
        true
    }

    /// What an access of global or shared memory rests on, where what is known is enough.
    pub(crate) fn proof(&self, access: &Access<'_>) -> Option<Proof<'a>> {
        let AddressBase::Register(name) = &access.address.base else { return None };
        let fact = self.of_register(name)?;
        let (offset, bytes) = (i128::from(access.address.offset), i128::from(access.bytes));
        let (low, high) = (fact.low + offset, fact.high + offset);
        if 1 << fact.zeros < bytes || offset % bytes != 0 {
            return None;
        }
        match (access.space, fact.base?) {
            (Space::Global, Base::Parameter(root)) => {
                let reach = i128::from(REACH_BYTES);
                let (align, writes) = (access.bytes, !access.reads_only);
                let proof = PointerProof { root, align, writes, low, high };
                (low >= -reach && high + bytes <= reach).then_some(Proof::Pointer(proof))
            }
            (Space::Global, Base::Window(window)) => {
                let reach = i128::from(REACH_BYTES);
                let fits = low >= -reach && high + bytes <= reach;
                let there = (window.writes || access.reads_only) && access.bytes <= window.align;
                (fits && there).then_some(Proof::Checked)
            }
            (Space::Shared, Base::Shared(variable)) => {
                let from_zero = |number: i128| u64::try_from(number).ok();
                let [x, y, z] = fact.most.by.map(from_zero);
                let most = (from_zero(fact.most.constant + offset + bytes)?, [x?, y?, z?]);
                let (start, end) = (from_zero(low)?, from_zero(high + bytes)?);
                Some(Proof::Shared(SharedProof { variable, start, end, most }))
            }
            _ => None,
        }
    }

    /// A 64-bit operand.
    fn wide(&self, operand: Option<&Operand>) -> Option<Fact<'a>> {
        match operand? {
            Operand::Integer(value) => i64::try_from(*value).ok().map(|value| Fact::exactly(value.into())),
            Operand::Register(name) if matches!(Class::parse(name), Some((Class::Double, _))) => {
                self.of_register(name)
            }
            _ => None,
        }
    }

    /// A 32-bit operand that is an address in shared memory.
    fn address(&self, operand: Option<&'a Operand>) -> Option<Fact<'a>> {
        match operand? {
            Operand::Symbol(name) => Some(Fact::start(Base::Shared(name))),
            Operand::SymbolOffset(name, offset) => {
                Fact::start(Base::Shared(name)).plus(Fact::exactly((*offset).into()))
            }
            Operand::Register(name) => {
                self.of_register(name).filter(|known| matches!(known.base, Some(Base::Shared(_))))
            }
            _ => None,
        }
    }

    /// A 32-bit operand as a number of this sign.
    fn narrow(&self, operand: Option<&Operand>, sign: Sign) -> Option<Fact<'a>> {
        let all = sign.all();
        let known = match operand? {
            Operand::Integer(value) if (all.low..=all.high).contains(value) => Fact::exactly(*value),
            Operand::Register(name) => match (Class::parse(name), names::most(name)) {
                (Some((Class::Word, _)), _) => {
                    self.of_register(name).filter(|known| known.base.is_none()).unwrap_or(all)
                }
                (None, Some(most)) => thread(name, Fact::number(0, most.into())),
                _ => return None,
            },
            _ => return None,
        };
        Some(if known.high <= all.high { known } else { Fact { zeros: known.zeros, ..all } })
    }

    /// The 64-bit result of an instruction.
    fn double(&self, instruction: &'a Instruction) -> Option<Fact<'a>> {
        let modifiers: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
        let operand = |index: usize| instruction.operands.get(index);
        let wide = |index| self.wide(operand(index));
        match (instruction.opcode.as_str(), modifiers.as_slice()) {
            ("ld", ["param", "b64" | "u64" | "s64"]) => match operand(1)? {
                Operand::Address(address) => match &address.base {
                    AddressBase::Symbol(parameter) => {
                        let root = Root { parameter, offset: address.offset };
                        Some(Fact::start(Base::Parameter(root)))
                    }
                    AddressBase::Register(_) | AddressBase::Absolute => None,
                },
                _ => None,
            },
            ("mov", ["b64" | "u64" | "s64"]) | ("cvta", ["to", "global", "u64"]) => wide(1),
            ("cvt", ["s64", from @ ("s32" | "u32")] | ["u64", from @ "u32"]) => {
                self.narrow(operand(1), Sign::of(from)?)
            }
            ("mul", ["wide", from]) => {
                let sign = Sign::of(from)?;
                self.narrow(operand(1), sign)?.times(self.narrow(operand(2), sign)?)
            }
            ("mad", ["wide", from]) => {
                let sign = Sign::of(from)?;
                self.narrow(operand(1), sign)?.times(self.narrow(operand(2), sign)?)?.plus(wide(3)?)
            }
            ("mul", ["lo", "s64" | "u64"]) => wide(1)?.times(wide(2)?),
            ("mad", ["lo", "s64" | "u64"]) => wide(1)?.times(wide(2)?)?.plus(wide(3)?),
            ("add", ["s64" | "u64"]) => wide(1)?.plus(wide(2)?),
            ("sub", ["s64" | "u64"]) => wide(1)?.minus(wide(2)?),
            ("and", ["b64"]) => {
                let (one, other) = (wide(1).filter(from_zero), wide(2).filter(from_zero));
                let most = one.or(other)?.high.min(other.or(one)?.high);
                let zeros = [one, other].into_iter().flatten().map(|fact| fact.zeros).max()?;
                Some(Fact { zeros, ..Fact::number(0, most) })
            }
            ("shl", ["b64"]) => wide(1)?.times(power(operand(2)?)?),
            ("selp", ["b64" | "u64" | "s64"]) => wide(1)?.or(wide(2)?),
            _ => None,
        }
    }

    /// The 32-bit result of an instruction, where it is less than 2^31, or its low zeros.
    fn word(&self, instruction: &'a Instruction) -> Option<Fact<'a>> {
        let modifiers: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
        let operand = |index: usize| instruction.operands.get(index);
        // What is from 0 on and below 2^31 is the same number signed and unsigned; what is computed beyond is known
        // by its low bits alone, which are those of either.
        let number = |index| match operand(index) {
            Some(Operand::Integer(value @ -0x8000_0000..0)) => Some(Fact::exactly(value + (1 << 32))),
            operand => self.narrow(operand, Sign::Unsigned),
        };
        let address = |index| self.address(operand(index));
        let signed = |index| self.narrow(operand(index), Sign::Signed);
        let relative = match (instruction.opcode.as_str(), modifiers.as_slice()) {
            ("mov", ["b32" | "u32" | "s32"]) => address(1),
            ("add", ["u32" | "s32"]) => match (address(1), address(2)) {
                (Some(address), None) => address.plus(signed(2)?),
                (None, Some(address)) => address.plus(signed(1)?),
                _ => None,
            },
            ("sub", ["u32" | "s32"]) => address(1).and_then(|address| address.minus(signed(2)?)),
            ("mad", ["lo", "u32" | "s32"]) => address(3).and_then(|address| {
                let product = number(1)?.times(number(2)?)?;
                address.plus(product).filter(|_| product.high <= i32::MAX.into())
            }),
            ("selp", ["b32" | "u32" | "s32"]) => address(1).and_then(|one| one.or(address(2)?)),
            _ => None,
        };
        // Such an address is as far from its variable as is known, and not one that wrapped around.
        let near = |fact: &Fact<'_>| fact.low >= i32::MIN.into() && fact.high <= i32::MAX.into();
        if let Some(relative) = relative {
            return Some(relative).filter(near);
        }
        let computed = match (instruction.opcode.as_str(), modifiers.as_slice()) {
            ("mov", ["b32" | "u32" | "s32"]) => number(1)?,
            ("add", ["u32" | "s32"]) => number(1)?.plus(number(2)?)?,
            ("mul", ["lo", "u32" | "s32"]) => number(1)?.times(number(2)?)?,
            ("mad", ["lo", "u32" | "s32"]) => number(1)?.times(number(2)?)?.plus(number(3)?)?,
            ("shl", ["b32"]) => number(1)?.times(power(operand(2)?)?)?,
            ("shr", ["u32"]) => {
                let (value, by) = (number(1)?, power(operand(2)?)?);
                Fact::number(value.low / by.high, value.high / by.high)
            }
            ("and", ["b32"]) => {
                let (one, other) = (number(1)?, number(2)?);
                Fact { zeros: one.zeros.max(other.zeros), ..Fact::number(0, one.high.min(other.high)) }
            }
            ("or", ["b32"]) => {
                let (one, other) = (number(1)?, number(2)?);
                let bits = i128::BITS - (one.high | other.high).leading_zeros();
                Fact { zeros: one.zeros.min(other.zeros), ..Fact::number(0, (1 << bits) - 1) }
            }
            ("min", ["u32"]) => {
                let (one, other) = (number(1)?, number(2)?);
                let zeros = one.zeros.min(other.zeros);
                Fact { zeros, ..Fact::number(one.low.min(other.low), one.high.min(other.high)) }
            }
            ("selp", ["b32" | "u32" | "s32"]) => number(1)?.or(number(2)?)?,
            _ => return None,
        };
        let zeros = computed.zeros.min(32);
        let whole = Sign::Unsigned.all();
        let small = computed.low >= 0 && computed.high <= i32::MAX.into();
        // Beyond it has wrapped around, which leaves its low bits.
        Some(if small { Fact { zeros, ..computed } } else { Fact { zeros, ..whole } })
    }
}

/// How often a number that begins as `first` and grows by `step` before each test passes it, and once more.
fn count(first: Fact<'_>, step: i128, (compare, ty): (&str, &str), bound: Fact<'_>) -> Option<i128> {
    let up = |far: i128| (far + step - 1) / step;
    let down = |far: i128| (far - step - 1) / -step;
    let signed = ty == "s32";
    let exact = first.low == first.high && bound.low == bound.high;
    let most: i128 = i32::MAX.into();
    let room = bound.low >= 0 && bound.high + step.abs() < most && first.high + step < most;
    match (compare, ty) {
        _ if step == 0 || step.abs() > 1 << 30 || !room => None,
        ("lt", "s32" | "u32") if step > 0 => Some(up(bound.high - first.low)),
        ("le", "s32" | "u32") if step > 0 => Some(up(bound.high + 1 - first.low)),
        ("gt", _) if step < 0 && signed => Some(down(first.high - bound.low)),
        ("ge", _) if step < 0 && signed => Some(down(first.high + 1 - bound.low)),
        // It has to be met, and not only passed.
        ("ne", "s32" | "u32" | "b32") if exact => {
            let far = bound.low - first.low;
            (far % step == 0 && far / step >= 1).then_some(far / step)
        }
        ("ne", "s32" | "u32" | "b32") if step == -1 && bound.low == bound.high => {
            (first.low > bound.low).then_some(first.high - bound.low)
        }
        _ => None,
    }
}

/// Whether it is a number that is from 0 on: of a conjunction with it no more is left.
fn from_zero(fact: &Fact<'_>) -> bool {
    fact.base.is_none() && fact.low >= 0
}

/// The number in a special register; one of those that say where in its block a thread is, as that.
fn thread(name: &str, number: Fact<'static>) -> Fact<'static> {
    let by = match name {
        "%tid.x" => [1, 0, 0],
        "%tid.y" => [0, 1, 0],
        "%tid.z" => [0, 0, 1],
        _ => return number,
    };
    Fact { most: Most { constant: 0, by }, ..number }
}

/// What shifting left by an operand multiplies by.
fn power(operand: &Operand) -> Option<Fact<'static>> {
    match operand {
        Operand::Integer(by @ 0..=31) => Some(Fact::exactly(1 << by)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access;
    use crate::ast::Item;

    const GIB: i128 = 1 << 30;

    /// What proves the last access of a body, as its parameter, how far it begins from the pointer, and the alignment.
    fn proof(body: &str) -> Option<(String, i128, i128, u64)> {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b)\n{{\n\
             .reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %d<10>;\n\
             ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b];\n{body}\nret;\n}}\n"
        );
        let module = crate::parse(&text).unwrap();
        let Some(Item::Function(function)) = module.items.first() else { unreachable!() };
        let statements = function.body.as_deref().unwrap();
        let mut facts = Facts::of(statements);
        let mut last = None;
        for statement in statements {
            let instruction = match statement {
                Statement::Instruction(instruction) => instruction,
                Statement::Label(..) => {
                    facts.label();
                    continue;
                }
                _ => continue,
            };
            let row = table::check(instruction).unwrap();
            for access in access::decode(row, instruction).unwrap().iter() {
                if access.space == Space::Global {
                    last = Some(facts.proof(access));
                }
            }
            facts.learn(instruction);
        }
        match last.expect("the body has an access")? {
            Proof::Pointer(proof) => {
                Some((proof.root.parameter.to_owned(), proof.low, proof.high, proof.align))
            }
            Proof::Shared(_) | Proof::Checked => unreachable!("it is an access of global memory"),
        }
    }

    #[track_caller]
    fn proven(body: &str, parameter: &str, low: i128, high: i128, align: u64) {
        assert_eq!(proof(body), Some((parameter.to_owned(), low, high, align)), "{body}");
    }

    #[track_caller]
    fn open(body: &str) {
        assert_eq!(proof(body), None, "{body}");
    }

    #[test]
    fn a_pointer_and_an_index_reach_as_far_as_the_index() {
        proven("ld.global.u32 %r0, [%d0+8];", "a", 8, 8, 4);
        proven(
            "mul.wide.s32 %d2, %r1, 4; add.s64 %d3, %d1, %d2; ld.global.u32 %r0, [%d3];",
            "b",
            -8 * GIB,
            8 * GIB - 4,
            4,
        );
        proven(
            "mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d2, %d1; ld.global.u32 %r0, [%d3];",
            "b",
            0,
            16 * GIB - 4,
            4,
        );
        proven("mad.wide.s32 %d2, %r1, -2, %d0; ld.global.u16 %r0, [%d2];", "a", -4 * GIB + 2, 4 * GIB, 2);
        proven(
            "cvt.s64.s32 %d2, %r1; shl.b64 %d3, %d2, 3; sub.s64 %d4, %d0, %d3; ld.global.u64 %d5, [%d4];",
            "a",
            -16 * GIB + 8,
            16 * GIB,
            8,
        );
        proven(
            "mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 12; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3];",
            "a",
            0,
            1023 * 12,
            4,
        );
        proven("and.b64 %d2, %d1, 255; add.s64 %d3, %d0, %d2; ld.global.u8 %r0, [%d3];", "a", 0, 255, 1);
        proven(
            "selp.b64 %d2, 16, 64, %p0; add.s64 %d3, %d0, %d2; ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%d3];",
            "a",
            16,
            64,
            16,
        );
        proven(
            "and.b32 %r1, %r2, -4; mul.wide.u32 %d2, %r1, 2; add.s64 %d3, %d0, %d2; ld.global.u64 %d4, [%d3];",
            "a",
            0,
            8 * GIB - 2,
            8,
        );
    }

    #[test]
    fn the_last_byte_of_the_zone_is_the_last() {
        let wide = |by: &str, offset: &str| {
            format!("mul.wide.s32 %d2, %r1, {by}; add.s64 %d3, %d0, %d2; st.global.u32 [%d3{offset}], %r0;")
        };
        proven(&wide("32", ""), "a", -64 * GIB, 64 * GIB - 32, 4);
        proven(&wide("32", "+28"), "a", -64 * GIB + 28, 64 * GIB - 4, 4);
        open(&wide("32", "+32"));
        open(&wide("32", "+-4"));
        open(&wide("36", ""));
        proven("ld.global.u8 %r0, [%d0+68719476735];", "a", 64 * GIB - 1, 64 * GIB - 1, 1);
        open("ld.global.u8 %r0, [%d0+68719476736];");
        open("mul.wide.u32 %d2, %r1, 16; add.s64 %d3, %d0, %d2; ld.global.u64 %d4, [%d3+16];");
    }

    #[test]
    fn what_may_not_be_aligned_is_not_proven() {
        open("ld.global.u32 %r0, [%d0+2];");
        open("mul.wide.s32 %d2, %r1, 2; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3];");
        open("mul.wide.s32 %d2, %r1, 4; add.s64 %d3, %d0, %d2; ld.global.v2.u32 {%r0, %r1}, [%d3];");
        // The low bits of a product that wraps around are those of the product.
        let wraps = |by: &str| {
            format!(
                "mul.lo.s32 %r1, %r2, {by}; cvt.u64.u32 %d2, %r1; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3];"
            )
        };
        proven(&wraps("4"), "a", 0, 4 * GIB - 1, 4);
        open(&wraps("6"));
    }

    #[test]
    fn a_number_that_wraps_around_is_any() {
        // Without wrapping it would begin with 5, and the access with 1.
        let low = "add.u32 %r1, %r2, 5; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3+-16];";
        proven(low, "a", -16, 16 * GIB - 20, 4);
        // A sum beyond what is signed is negative.
        let sum = "mov.u32 %r1, %ctaid.x; add.s32 %r2, %r1, %r1; mul.wide.s32 %d2, %r2, 4; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3];";
        proven(sum, "a", -8 * GIB, 8 * GIB - 4, 4);
        let small = "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ntid.x; mul.lo.s32 %r3, %r1, %r2; mul.wide.s32 %d2, %r3, 4; add.s64 %d3, %d0, %d2; ld.global.u32 %r0, [%d3];";
        proven(small, "a", 0, 65_534 * 1024 * 4, 4);
    }

    #[test]
    fn what_is_not_known_at_all_times_is_not_known() {
        let access = "add.s64 %d3, %d0, %d2; ld.global.u8 %r0, [%d3];";
        proven(&format!("cvt.u64.u32 %d2, %r1; {access}"), "a", 0, 4 * GIB - 1, 1);
        open(access);
        open(&format!("@%p0 cvt.u64.u32 %d2, %r1; {access}"));
        // What is written again is known until then, and until somebody may come from elsewhere.
        let index = "cvt.u64.u32 %d2, %r1;";
        let written = [
            format!("{index} {access} mov.b64 %d2, %d1;"),
            format!("mov.b64 %d2, %d1; {index} {access}"),
            format!("mov.b64 %d2, %d1; bra L; L: {index} @%p0 bra L; {access}"),
        ];
        for body in written {
            proven(&body, "a", 0, 4 * GIB - 1, 1);
        }
        open(&format!("mov.b64 %d2, %d1; {index} L: {access} bra L;"));
        open(&format!("{index} mov.b64 %d2, %d1; {access}"));
        open(&format!("{index} @%p0 mov.b64 %d2, %d1; {access}"));
        open(&format!("{index} mov.b64 {{%r1, %r2}}, %d1; ld.global.v2.u64 {{%d4, %d2}}, [%d1]; {access}"));
        open(&format!(
            "mov.b64 %d3, %d1; mov.b64 %d2, %d1; {index} add.s64 %d3, %d0, %d2; L: ld.global.u8 %r0, [%d3]; bra L;"
        ));
        open(&format!("mov.b64 %d4, 0; bra M; L: {access} bra M; M: cvt.u64.u32 %d2, %r1; bra L;"));
        // A pointer that a loop moves on.
        open("mov.b64 %d2, %d0; L: ld.global.u32 %r0, [%d2]; add.s64 %d2, %d2, 4; bra L;");
        // One of whose parts something else is made.
        open("mov.b64 {%r1, %r2}, %d0; mov.b64 %d2, {%r1, %r2}; ld.global.u8 %r0, [%d2];");
    }

    #[test]
    fn a_pointer_is_one_whole_parameter_and_numbers() {
        open("add.s64 %d2, %d0, %d1; ld.global.u8 %r0, [%d2];");
        open("sub.s64 %d2, %d0, %d1; ld.global.u8 %r0, [%d2];");
        open("cvt.u64.u32 %d2, %r1; sub.s64 %d3, %d2, %d0; ld.global.u8 %r0, [%d3];");
        open("shl.b64 %d2, %d0, 1; ld.global.u8 %r0, [%d2];");
        open("mul.lo.s64 %d2, %d0, 1; ld.global.u8 %r0, [%d2];");
        open("and.b64 %d2, %d0, -16; ld.global.u8 %r0, [%d2];");
        open("selp.b64 %d2, %d0, %d1, %p0; ld.global.u8 %r0, [%d2];");
        open("cvt.u64.u32 %d2, %r1; ld.global.u8 %r0, [%d2];");
        open("ld.global.u64 %d2, [%d0]; ld.global.u8 %r0, [%d2];");
        open("cvta.to.shared.u64 %d2, %d0; ld.global.u8 %r0, [%d2];");
        // Of an offset that comes from memory nothing is known.
        open("ld.global.u64 %d2, [%d0]; add.s64 %d3, %d0, %d2; ld.global.u8 %r0, [%d3];");
        proven(
            "ld.global.u32 %r1, [%d0]; mul.wide.s32 %d2, %r1, 1; add.s64 %d3, %d1, %d2; ld.global.u8 %r0, [%d3];",
            "b",
            -2 * GIB,
            2 * GIB - 1,
            1,
        );
        proven("selp.b64 %d2, %d0, %d0, %p0; ld.global.u8 %r0, [%d2];", "a", 0, 0, 1);
    }

    /// Where the last access of a body ends at most in `tile`, in any block and by the thread's place in it.
    fn shared(body: &str) -> Option<(u64, u64, [u64; 3])> {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n\
             .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<10>; .shared .align 16 .b8 tile[64];\n\
             mov.u32 %r0, tile; mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y;\n{body}\nret;\n}}\n"
        );
        let module = crate::parse(&text).unwrap();
        let Some(Item::Function(function)) = module.items.first() else { unreachable!() };
        let statements = function.body.as_deref().unwrap();
        let mut facts = Facts::of(statements);
        let mut last = None;
        for statement in statements {
            let instruction = match statement {
                Statement::Instruction(instruction) => instruction,
                Statement::Label(..) => {
                    facts.label();
                    continue;
                }
                _ => continue,
            };
            let row = table::check(instruction).unwrap();
            for access in access::decode(row, instruction).unwrap().iter() {
                last = Some(facts.proof(access));
            }
            facts.learn(instruction);
        }
        match last.expect("the body has an access")? {
            Proof::Shared(SharedProof { variable: "tile", start: _, end, most: (constant, by) }) => {
                Some((end, constant, by))
            }
            proof => unreachable!("{proof:?}"),
        }
    }

    #[test]
    fn an_address_in_shared_memory_is_a_variable_and_numbers() {
        assert_eq!(shared("ld.shared.u32 %r9, [%r0+60];"), Some((64, 64, [0; 3])));
        assert_eq!(shared("mov.u32 %r3, tile+8; ld.shared.u64 %d0, [%r3];"), Some((16, 16, [0; 3])));
        let row = "mad.lo.s32 %r3, %r2, 132, %r0; shl.b32 %r4, %r1, 2; add.s32 %r5, %r3, %r4;";
        assert_eq!(
            shared(&format!("{row} ld.shared.u32 %r9, [%r5+132];")),
            Some((1023 * 136 + 136, 136, [4, 132, 0]))
        );
        assert_eq!(
            shared("and.b32 %r3, %r1, 7; add.s32 %r4, %r3, %r0; ld.shared.u8 %r9, [%r4];"),
            Some((8, 8, [0; 3]))
        );
        assert_eq!(shared("sub.s32 %r3, %r0, -16; ld.shared.u32 %r9, [%r3];"), Some((20, 20, [0; 3])));
        assert_eq!(shared("selp.b32 %r3, %r0, tile+4, %p0; ld.shared.u32 %r9, [%r3];"), Some((8, 8, [0; 3])));
        for open in [
            "ld.shared.u32 %r9, [%r0+-4];",
            "ld.shared.u32 %r9, [%r0+2];",
            "ld.shared.u32 %r9, [%r1];",
            "add.s32 %r3, %r0, %r10; ld.shared.u32 %r9, [%r3];",
            "and.b32 %r3, %r10, -4; add.s32 %r4, %r0, %r3; ld.shared.u32 %r9, [%r4];",
            "sub.s32 %r3, %r0, %r1; ld.shared.u8 %r9, [%r3];",
            "add.s32 %r3, %r0, %r0; ld.shared.u8 %r9, [%r3];",
            "shl.b32 %r3, %r0, 0; ld.shared.u8 %r9, [%r3];",
            "and.b32 %r3, %r0, 63; add.s32 %r4, %r0, %r3; L: ld.shared.u8 %r9, [%r4]; add.s32 %r4, %r0, %r3; bra L;",
            "mul.lo.s32 %r3, %r1, 4194304; add.s32 %r4, %r0, %r3; ld.shared.u32 %r9, [%r4];",
            "mad.lo.s32 %r3, %r1, 4194304, %r0; ld.shared.u32 %r9, [%r3];",
            "mov.u32 %r3, 4; ld.shared.u32 %r9, [%r3];",
        ] {
            assert_eq!(shared(open), None, "{open}");
        }
        // What is left of an address is a number like any other.
        assert_eq!(
            shared("and.b32 %r3, %r0, 63; add.s32 %r4, %r0, %r3; ld.shared.u8 %r9, [%r4];"),
            Some((64, 64, [0; 3]))
        );
    }
}
