//! What is known of the numbers in registers, in one linear pass: between what they lie, how many of their low bits
//! are zero, and which parameter they are a pointer by.
//!
//! Something is known at all times of registers that exactly one instruction of the body writes, without a
//! predicate. A register is never read before it is written, so whatever is read there was computed by that instruction,
//! from operands of which something is known at all times, or from numbers of which the type alone says enough.
//! What is written further down in the text is not known yet: nothing rests on itself. Of other registers something is
//! known until they are written again, on all ways to a label that nothing goes back to (`edges`), and as far as a loop
//! leaves them alone; of those that a loop writes, what its test lets them be in any turn ([`Facts::label`]), or how far
//! they have come in any ([`Facts::turning`], and [`Facts::turn`] where pointers were checked).

mod edges;
mod loops;
mod moved;
mod number;
mod stepped;

use crate::maps::{HashMap, HashSet};
use std::sync::LazyLock;

use edges::{Edges, Passing, Tests};
use moved::Moved;
use number::{Number, Op, Sign, Width};
use stepped::Guards;

use crate::access::Access;
use crate::ast::{Address, AddressBase, Instruction, Operand, Predicate, Space, Statement};
use crate::limits::REACH_BYTES;
use crate::most::{Most, Parts};
use crate::names::{self, Class};
use crate::table::{self, Row};

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

/// An address: how far from what it is relative to. What it is as a number nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pointer<'a> {
    base: Base<'a>,
    /// Its zeros are those of the distance: the base's own are for others to know.
    offset: Number,
}

impl<'a> Pointer<'a> {
    /// The first byte of something.
    const fn start(base: Base<'a>) -> Self {
        Self { base, offset: Number::between(0, 0).with_zeros(63) }
    }

    fn plus(self, number: Number) -> Self {
        Self { offset: self.offset.plus(number), ..self }
    }

    fn minus(self, number: Number) -> Self {
        Self { offset: self.offset.minus(number), ..self }
    }

    /// Whichever of the two it is, where both are relative to the same.
    fn or(self, other: Self) -> Option<Self> {
        (self.base == other.base).then(|| Self { offset: self.offset.or(other.offset), ..self })
    }
}

/// What is known of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact<'a> {
    Number(Number),
    Pointer(Pointer<'a>),
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
    /// The same: a constant, and parts of where in its block a thread is.
    pub(crate) most: (u64, Parts),
}

/// What a launch of a fast version is asked about shared memory: parts of where in its block a thread is, and what
/// they and a constant do not exceed; the block's dynamic shared memory where that is none.
pub(crate) type SharedKey = (Parts, Option<u64>);

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

impl<'a> Fact<'a> {
    const fn number(self) -> Option<Number> {
        match self {
            Self::Number(number) => Some(number),
            Self::Pointer(_) => None,
        }
    }

    const fn pointer(self) -> Option<Pointer<'a>> {
        match self {
            Self::Number(_) => None,
            Self::Pointer(pointer) => Some(pointer),
        }
    }

    /// A number of a 32-bit register that is the same signed and unsigned.
    fn small(self) -> Option<Number> {
        self.number().filter(|number| number.is_small(Width::WORD))
    }

    fn plus(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => Some(Self::Number(one.plus(other))),
            (Self::Pointer(pointer), Self::Number(number))
            | (Self::Number(number), Self::Pointer(pointer)) => Some(Self::Pointer(pointer.plus(number))),
            (Self::Pointer(_), Self::Pointer(_)) => None,
        }
    }

    fn minus(self, other: Self) -> Option<Self> {
        let number = other.number()?;
        Some(match self {
            Self::Number(from) => Self::Number(from.minus(number)),
            Self::Pointer(from) => Self::Pointer(from.minus(number)),
        })
    }

    fn times(self, other: Self) -> Option<Self> {
        Some(Self::Number(self.number()?.times(other.number()?)))
    }

    /// Whichever of the two it is.
    fn or(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => Some(Self::Number(one.or(other))),
            (Self::Pointer(one), Self::Pointer(other)) => one.or(other).map(Self::Pointer),
            (Self::Number(_), Self::Pointer(_)) | (Self::Pointer(_), Self::Number(_)) => None,
        }
    }

    /// Whether it says no more of a register than this does.
    fn holds(self, other: Self) -> bool {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.holds(other),
            (Self::Pointer(one), Self::Pointer(other)) => {
                one.base == other.base && one.offset.holds(other.offset)
            }
            (Self::Number(_), Self::Pointer(_)) | (Self::Pointer(_), Self::Number(_)) => false,
        }
    }

    fn fits(self) -> Option<Self> {
        match self {
            Self::Number(number) => number.fits().map(Self::Number),
            Self::Pointer(Pointer { base, offset }) => {
                offset.fits().map(|offset| Self::Pointer(Pointer { base, offset }))
            }
        }
    }
}

/// Of loops that begin anew at their own labels.
static NONE: LazyLock<HashMap<String, String>> = LazyLock::new(HashMap::default);

/// How far the lines have come that bound a word of a parameter, and what it is at most: it is loaded to a register of the
/// guard's, tested, and whoever is given more ends; then the tenant's load comes.
#[derive(Debug, Clone, Copy, Default)]
enum Bounding<'a> {
    #[default]
    Nothing,
    Loaded(&'a Address),
    Tested(&'a Address, i128),
    Ended(&'a Address, i128),
}

/// What is known so far in a pass over a body, in the order of the text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts<'a> {
    /// Registers that are written once more than the body says.
    zeroed: HashSet<&'a str>,
    /// 32-bit numbers are from 0 on; where one may be beyond `i32::MAX`, its low zeros are all that is known.
    known: HashMap<&'a str, Fact<'a>>,
    /// What bits can be ones of registers to which only such numbers are ever written.
    bits: HashMap<&'a str, i128>,
    /// What registers are that are only moved among one another.
    moved: Moved<'a>,
    guards: Guards<'a>,
    bounding: Bounding<'a>,
    /// What is known up to the next label, or that nothing is.
    passing: Passing<'a>,
    /// What was known when control came to the last label from before it, where something goes back there.
    entering: Passing<'a>,
    tests: Tests<'a>,
    edges: Edges<'a>,
    /// The label of the turns of a loop between polls, of which all is known that is at the loop's.
    settled: Option<&'a str>,
    /// How many pointers were checked.
    checked: usize,
}

impl<'a> Facts<'a> {
    /// Nothing is known yet of a body.
    pub(crate) fn of(statements: &'a [Statement]) -> Self {
        Self::of_versions(statements, &NONE)
    }

    /// Nor of one with loops that begin anew elsewhere than at their labels.
    pub(crate) fn of_versions(statements: &'a [Statement], begins: &'a HashMap<String, String>) -> Self {
        let edges = Edges::of(statements, begins);
        let ones_of = |name: &str, at: usize| match statements.get(at) {
            Some(Statement::Instruction(instruction)) => ones(name, instruction),
            _ => None,
        };
        let several = edges.writes().iter().filter_map(|(name, writes)| {
            let bits = writes.several()?.try_fold(0, |bits, at| Some(bits | ones_of(name, at)?))?;
            Some((*name, bits))
        });
        let bits = several.collect();
        let moved = Moved::of(&edges);
        Self { edges, bits, moved, ..Self::default() }
    }

    /// How much is known, in registers: what a copy of it costs.
    pub(crate) fn size(&self) -> usize {
        let passing = self.passing.len() + self.entering.len();
        self.known.len() + passing + self.bits.len() + self.guards.size() + self.edges.size()
    }

    /// A register is written once more than the body says: it is zeroed first.
    pub(crate) fn also_written(&mut self, name: &'a str) {
        self.zeroed.insert(name);
        self.moved.forget(name);
    }

    /// What is known at a label, behind which this stands: what is known on all ways there, and what each turn leaves as
    /// it was where something goes back.
    pub(crate) fn label(&mut self, name: &'a str, behind: &'a [Statement]) {
        self.bounding = Bounding::Nothing;
        if self.settled.take() == Some(name) {
            self.tests.clear();
            self.entering = self.passing.clone();
            return;
        }
        let known = self.arrive(name);
        match self.edges.ways(name) {
            (_, 0) => {
                self.passing = known;
                self.entering.clear();
            }
            (_, backs) => {
                let closed = self.edges.closed(name);
                self.passing =
                    closed.map_or_else(Passing::default, |closed| self.edges.left(closed, known.clone()));
                self.entering = known;
                if backs == 1 {
                    self.repeats(behind, name);
                }
                if let Some(closed) = closed {
                    self.stepped(closed);
                }
            }
        }
    }

    /// At the label of a loop whose turns stand in two places, one behind the other: how often it turns in each, nothing
    /// says.
    pub(crate) fn label_of_part(&mut self, name: &'a str) {
        let known = self.arrive(name);
        let closed = self.edges.closed(name);
        self.passing = closed.map_or_else(Passing::default, |closed| self.edges.left(closed, known.clone()));
        self.entering = known;
        if let Some(closed) = closed {
            self.stepped(closed);
        }
    }

    /// Learns from the next instruction.
    pub(crate) fn learn(&mut self, instruction: &'a Instruction) {
        let row = table::row_of(instruction);
        if let Some(row) = row {
            self.tests(row, instruction);
        }
        let bound = self.bounds(instruction);
        let Some(Operand::Register(name)) = instruction.operands.first() else {
            return self.forget(row, instruction);
        };
        let learned = match Class::parse(name) {
            _ if instruction.predicate.is_some() => None,
            Some((Class::Word, _)) if bound.is_some() => {
                bound.map(|most| Fact::Number(Number::between(0, most)))
            }
            Some((Class::Double, _)) => self.double(instruction),
            Some((Class::Word, _)) => self.word(instruction),
            Some((Class::Predicate | Class::Half, _)) | None => None,
        };
        let learned = learned.and_then(Fact::fits);
        self.multiplies(name, instruction, learned);
        if !self.is_written_once(name) {
            // Elsewhere nothing is known of it either.
            match learned {
                Some(_) => self.passing.insert(name, learned),
                None => self.passing.remove(name.as_str()),
            };
        } else if let Some(fact) = learned {
            self.passing.remove(name.as_str());
            self.known.insert(name, fact);
        } else {
            self.known.remove(name.as_str());
        }
    }

    /// What a register is at most that a bounded parameter is loaded to here.
    fn bounds(&mut self, instruction: &'a Instruction) -> Option<i128> {
        let is = |operand: &Operand, own: &str| matches!(operand, Operand::Register(name) if name == own);
        let words = instruction.words();
        let ends = |test: &Predicate| test.register == "%bh_q" && !test.negated;
        let before = std::mem::take(&mut self.bounding);
        let parts = (instruction.opcode.as_str(), words.as_slice(), instruction.operands.as_slice());
        match (parts, &instruction.predicate) {
            (("ld", ["param", "u32"], [to, Operand::Address(from)]), None) => match before {
                Bounding::Ended(same, most) if same == from => return Some(most),
                _ if is(to, "%bh_lo") && matches!(from.base, AddressBase::Symbol(_)) => {
                    self.bounding = Bounding::Loaded(from);
                }
                _ => {}
            },
            (("setp", ["gt", "u32"], [test, of, Operand::Integer(most @ 0..=0x7fff_ffff)]), None) => {
                if let Bounding::Loaded(from) = before
                    && is(test, "%bh_q")
                    && is(of, "%bh_lo")
                {
                    self.bounding = Bounding::Tested(from, *most);
                }
            }
            (("exit", [], []), Some(test)) if ends(test) => {
                if let Bounding::Tested(from, most) = before {
                    self.bounding = Bounding::Ended(from, most);
                }
            }
            _ => {}
        }
        None
    }

    /// What is said of a number is said of a multiple that does not wrap around.
    fn multiplies(&mut self, name: &'a str, instruction: &'a Instruction, learned: Option<Fact<'a>>) {
        if !matches!(instruction.opcode.as_str(), "shl" | "mul") {
            return;
        }
        let by = match (instruction.opcode.as_str(), instruction.words().as_slice()) {
            ("shl", ["b32"]) => instruction.operands.get(2).and_then(power).map(|by| by.low),
            ("mul", ["lo", "u32" | "s32"]) => match instruction.operands.get(2) {
                Some(Operand::Integer(by @ 1..=0xffff)) => Some(*by),
                _ => None,
            },
            _ => return,
        };
        let small = learned.is_some_and(|fact| fact.small().is_some());
        if let (true, Some(by), Some(Operand::Register(of))) = (small, by, instruction.operands.get(1))
            && of != name
            && self.small(of).is_some_and(|number| number.high * by <= Width::WORD.most())
        {
            self.tests.is_multiple(of, name, by);
        }
    }

    fn is_written_once(&self, name: &str) -> bool {
        self.edges.writes().get(name).is_some_and(|writes| writes.several().is_none())
            && !self.zeroed.contains(name)
    }

    /// Of what several registers are written by, nothing is known.
    fn forget(&mut self, row: Option<&Row>, instruction: &'a Instruction) {
        if let Some(row) = row {
            table::written(row, instruction, &mut |name| {
                self.passing.insert(name, None);
            });
        }
    }

    /// What is known of a register here.
    fn of_register(&self, name: &str) -> Option<Fact<'a>> {
        let known = self.passing.get(name).copied().unwrap_or_else(|| self.known.get(name).copied());
        known.or_else(|| match self.bits.get(name) {
            Some(bits) => {
                Some(Fact::Number(Number::between(0, *bits).with_zeros(Number::exactly(*bits).zeros)))
            }
            None => self.moved.of_register(name).map(Fact::Pointer),
        })
    }

    /// What is known of it as a number: of what is an address that is nothing.
    fn number_in(&self, name: &str) -> Option<Number> {
        self.of_register(name).and_then(Fact::number)
    }

    /// What was known of it when control came to the last label from before it.
    fn entering(&self, name: &str) -> Option<Fact<'a>> {
        self.entering.get(name).copied().unwrap_or_else(|| self.known.get(name).copied())
    }

    /// The variable in shared memory that a 32-bit register is known to be an address in, and how far from its first byte.
    pub(crate) fn shared_address(&self, name: &str) -> Option<(&'a str, i64)> {
        let pointer = self.of_register(name).and_then(Fact::pointer)?;
        let Pointer { base: Base::Shared(variable), offset } = pointer else { return None };
        (offset.low == offset.high).then_some((variable, i64::try_from(offset.low).ok()?))
    }

    /// Whether a 64-bit register is known to be a number and not an address.
    pub(crate) fn is_number(&self, name: &str) -> bool {
        self.number_in(name).is_some()
    }

    /// Whether a 32-bit register is known to be zero.
    pub(crate) fn is_zero(&self, name: &str) -> bool {
        self.small(name).is_some_and(|number| number.high == 0)
    }

    /// The 32-bit registers that are known at all times to be from 1 on, and what each is at most.
    pub(crate) fn at_least_one(&self) -> HashMap<&'a str, i128> {
        let word = |name: &str| matches!(Class::parse(name), Some((Class::Word, _)));
        let known = self.known.iter().filter_map(|(name, fact)| Some((*name, fact.small()?)));
        known
            .filter(|(name, number)| word(name) && number.low >= 1)
            .map(|(name, number)| (name, number.high))
            .collect()
    }

    /// Whether a 32-bit register is known to be from one number to another.
    pub(crate) fn is_between(&self, name: &str, least: i128, most: i128) -> bool {
        self.small(name).is_some_and(|number| least <= number.low && number.high <= most)
    }

    /// Whether a 32-bit register is known to be a number that is not below zero, also signed.
    pub(crate) fn is_from_zero(&self, name: &str) -> bool {
        self.small(name).is_some()
    }

    /// What an access of global or shared memory rests on, where what is known is enough.
    pub(crate) fn proof(&self, access: &Access<'_>) -> Option<Proof<'a>> {
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
            (Space::Global, Base::Window(window)) => {
                let reach = i128::from(REACH_BYTES);
                let fits = low >= -reach && high + bytes <= reach;
                let there = (window.writes || access.reads_only) && access.bytes <= window.align;
                (fits && there).then_some(Proof::Checked)
            }
            (Space::Shared, Base::Shared(variable)) => {
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
    pub(crate) fn aligned(&self, name: &str, offset: i64, bytes: u64) -> Option<Option<Root<'a>>> {
        let Pointer { base, offset: distance } = self.of_register(name)?.pointer()?;
        let fits =
            1 << distance.zeros.min(62) >= i128::from(bytes) && offset.unsigned_abs().is_multiple_of(bytes);
        match base {
            Base::Parameter(root) => fits.then_some(Some(root)),
            Base::Window(window) => (fits && bytes <= window.align).then_some(None),
            Base::Shared(_) => None,
        }
    }

    /// Whether a 32-bit register and a number are known to be a multiple of so many bytes, a power of two: as an address in
    /// shared memory, where all variables are as aligned as the widest access.
    pub(crate) fn is_multiple(&self, name: &str, offset: i128, bytes: u64) -> bool {
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
                (Some((Class::Word, _)), _) => self.number_in(name).unwrap_or(all),
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

/// What bits can be ones of what an instruction writes to a register, whatever it was as long as no others were.
fn ones(name: &str, instruction: &Instruction) -> Option<i128> {
    let number = |index: usize| match instruction.operands.get(index) {
        Some(Operand::Integer(value @ 0..=0x7fff_ffff)) => Some(*value),
        _ => None,
    };
    let same = |index: usize| matches!(instruction.operands.get(index), Some(Operand::Register(read)) if read == name);
    let words = instruction.words();
    let modifiers = words.as_slice();
    let is_result = matches!(instruction.operands.first(), Some(Operand::Register(result)) if result == name);
    (is_result && matches!(Class::parse(name), Some((Class::Word, _)))).then_some(())?;
    match (instruction.opcode.as_str(), modifiers) {
        ("mov", ["b32" | "u32" | "s32"]) => number(1),
        ("and", ["b32"]) => number(2),
        ("or" | "xor", ["b32"]) => number(2).filter(|_| same(1)),
        ("selp", ["b32" | "u32" | "s32"]) => Some(number(1)? | number(2)?),
        _ => None,
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
fn power(operand: &Operand) -> Option<Number> {
    match operand {
        Operand::Integer(by @ 0..=31) => Some(Number::exactly(1 << by)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
