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
mod stepped;

use crate::maps::{HashMap, HashSet};
use std::sync::LazyLock;

use edges::{Edges, Passing, Tests};
use moved::Moved;
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
        let (low, high) = (self.low + other.low, self.high + other.high);
        let most = self.most.plus(other.most).unwrap_or(Most::constant(high));
        Some(Self { base, low, high, most, zeros: self.zeros.min(other.zeros) })
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

    /// Whether it says no more of a number than this does.
    fn holds(self, other: Self) -> bool {
        let within = self.low <= other.low && other.high <= self.high && self.zeros <= other.zeros;
        within && self.base == other.base
    }

    fn fits(self) -> Option<Self> {
        (self.low >= -FAR && self.high <= FAR && self.most.is_below(FAR)).then_some(self)
    }
}

/// Of loops that begin anew at their own labels.
static NONE: LazyLock<HashMap<String, String>> = LazyLock::new(HashMap::default);

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
            Some((Class::Word, _)) if bound.is_some() => bound.map(|most| Fact::number(0, most)),
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
        let small = learned.is_some_and(|fact| fact.base.is_none() && fact.high <= i32::MAX.into());
        if let (true, Some(by), Some(Operand::Register(of))) = (small, by, instruction.operands.get(1))
            && of != name
            && self.small(of).is_some_and(|fact| fact.high * by <= i32::MAX.into())
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
            Some(bits) => Some(Fact { zeros: Fact::exactly(*bits).zeros, ..Fact::number(0, *bits) }),
            None => self.moved.of_register(name),
        })
    }

    /// The variable in shared memory that a 32-bit register is known to be an address in, and how far from its first byte.
    pub(crate) fn shared_address(&self, name: &str) -> Option<(&'a str, i64)> {
        let fact = self.of_register(name).filter(|fact| fact.low == fact.high)?;
        let Some(Base::Shared(variable)) = fact.base else { return None };
        Some((variable, i64::try_from(fact.low).ok()?))
    }

    /// Whether a 64-bit register is known to be a number and not an address.
    pub(crate) fn is_number(&self, name: &str) -> bool {
        self.of_register(name).is_some_and(|fact| fact.base.is_none())
    }

    /// Whether a 32-bit register is known to be zero.
    pub(crate) fn is_zero(&self, name: &str) -> bool {
        self.small(name).is_some_and(|fact| fact.high == 0)
    }

    /// The 32-bit registers that are known at all times to be from 1 on, and what each is at most.
    pub(crate) fn at_least_one(&self) -> HashMap<&'a str, i128> {
        let word = |name: &str| matches!(Class::parse(name), Some((Class::Word, _)));
        let small = |fact: &Fact<'_>| fact.base.is_none() && fact.low >= 1 && fact.high <= i32::MAX.into();
        let known = self.known.iter().filter(|(name, fact)| small(fact) && word(name));
        known.map(|(name, fact)| (*name, fact.high)).collect()
    }

    /// Whether a 32-bit register is known to be from one number to another.
    pub(crate) fn is_between(&self, name: &str, least: i128, most: i128) -> bool {
        self.small(name).is_some_and(|fact| least <= fact.low && fact.high <= most)
    }

    /// Whether a 32-bit register is known to be a number that is not below zero, also signed.
    pub(crate) fn is_from_zero(&self, name: &str) -> bool {
        self.small(name).is_some()
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
                let most = (from_zero(fact.most.constant + offset + bytes)?, fact.most.parts()?);
                let (start, end) = (from_zero(low)?, from_zero(high + bytes)?);
                Some(Proof::Shared(SharedProof { variable, start, end, most }))
            }
            _ => None,
        }
    }

    /// Whether a pointer and a number are a multiple of so many bytes, a power of two, and of which parameter that asks
    /// the same.
    pub(crate) fn aligned(&self, name: &str, offset: i64, bytes: u64) -> Option<Option<Root<'a>>> {
        let fact = self.of_register(name)?;
        let fits =
            1 << fact.zeros.min(62) >= i128::from(bytes) && offset.unsigned_abs().is_multiple_of(bytes);
        match fact.base? {
            Base::Parameter(root) => fits.then_some(Some(root)),
            Base::Window(window) => (fits && bytes <= window.align).then_some(None),
            Base::Shared(_) => None,
        }
    }

    /// Whether a 32-bit register and a number are known to be a multiple of so many bytes, a power of two: as an address in
    /// shared memory, where all variables are as aligned as the widest access.
    pub(crate) fn is_multiple(&self, name: &str, offset: i128, bytes: u64) -> bool {
        let of_block = |fact: &Fact<'_>| matches!(fact.base, None | Some(Base::Shared(_)));
        let known = self.of_register(name).filter(of_block);
        let word = matches!(Class::parse(name), Some((Class::Word, _)));
        let zeros = known.map_or(0, |fact| fact.zeros.min(30));
        word && 1 << zeros >= i128::from(bytes) && offset % i128::from(bytes) == 0
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
                (None, Some(most)) => thread(name, Fact::number(names::least(name), most.into())),
                _ => return None,
            },
            _ => return None,
        };
        Some(if known.high <= all.high { known } else { Fact { zeros: known.zeros, ..all } })
    }

    /// The 64-bit result of an instruction.
    fn double(&self, instruction: &'a Instruction) -> Option<Fact<'a>> {
        let words = instruction.words();
        let modifiers = words.as_slice();
        let operand = |index: usize| instruction.operands.get(index);
        let wide = |index| self.wide(operand(index));
        match (instruction.opcode.as_str(), modifiers) {
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
        let words = instruction.words();
        let modifiers = words.as_slice();
        let operand = |index: usize| instruction.operands.get(index);
        // What is from 0 on and below 2^31 is the same number signed and unsigned; what is computed beyond is known
        // by its low bits alone, which are those of either.
        let number = |index| match operand(index) {
            Some(Operand::Integer(value @ -0x8000_0000..0)) => Some(Fact::exactly(value + (1 << 32))),
            operand => self.narrow(operand, Sign::Unsigned),
        };
        let address = |index| self.address(operand(index));
        let signed = |index| self.narrow(operand(index), Sign::Signed);
        let relative = match (instruction.opcode.as_str(), modifiers) {
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
            // Of one that may have, the low bits are known, since every variable is aligned for the widest access.
            let zeros = relative.zeros.min(names::WIDEST_ACCESS.trailing_zeros());
            return Some(if near(&relative) { relative } else { Fact { zeros, ..Sign::Unsigned.all() } });
        }
        let computed = match (instruction.opcode.as_str(), modifiers) {
            ("mov", ["b32" | "u32" | "s32"]) => number(1)?,
            ("add", ["u32" | "s32"]) => number(1)?.plus(number(2)?)?,
            ("mul", ["lo", "u32" | "s32"]) => number(1)?.times(number(2)?)?,
            ("mad", ["lo", "u32" | "s32"]) => number(1)?.times(number(2)?)?.plus(number(3)?)?,
            ("shl", ["b32"]) => number(1)?.times(power(operand(2)?)?)?,
            ("shr", ["u32"]) | ("shr", ["s32"]) => {
                let (value, by) = (number(1)?, power(operand(2)?)?);
                // Without a sign it is the same either way.
                (value.high <= i32::MAX.into() || modifiers == ["u32"]).then_some(())?;
                let number = Fact::number(value.low / by.high, value.high / by.high);
                let most = value.most.shifted(by.high.trailing_zeros());
                Fact { most: most.unwrap_or(number.most), ..number }
            }
            ("and", ["b32"]) => {
                let (one, other) = (number(1)?, number(2)?);
                Fact { zeros: one.zeros.max(other.zeros), ..Fact::number(0, one.high.min(other.high)) }
            }
            ("or" | "xor", ["b32"]) => {
                let (one, other) = (number(1)?, number(2)?);
                let bits = i128::BITS - (one.high | other.high).leading_zeros();
                let zeros = one.zeros.min(other.zeros);
                Fact { zeros, ..Fact::number(0, (1 << bits) - (1 << zeros.min(bits))) }
            }
            ("min", ["u32"]) => {
                let (one, other) = (number(1)?, number(2)?);
                let zeros = one.zeros.min(other.zeros);
                Fact { zeros, ..Fact::number(one.low.min(other.low), one.high.min(other.high)) }
            }
            ("min" | "max", ["s32"]) => {
                let (one, other) = (signed(1)?, signed(2)?);
                let zeros = one.zeros.min(other.zeros);
                let (low, high) = if instruction.opcode == "min" {
                    (one.low.min(other.low), one.high.min(other.high))
                } else {
                    (one.low.max(other.low), one.high.max(other.high))
                };
                Fact { zeros, ..Fact::number(low, high) }
            }
            ("sub", ["u32" | "s32"]) => number(1)?.minus(number(2)?)?,
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

/// Whether it is a number that is from 0 on: of a conjunction with it no more is left.
fn from_zero(fact: &Fact<'_>) -> bool {
    fact.base.is_none() && fact.low >= 0
}

/// The number in a special register; one of those that say where in its block a thread is, as that.
fn thread(name: &str, number: Fact<'static>) -> Fact<'static> {
    let axis = match name {
        "%tid.x" => 0,
        "%tid.y" => 1,
        "%tid.z" => 2,
        _ => return number,
    };
    Fact { most: Most::thread(axis), ..number }
}

/// What shifting left by an operand multiplies by.
fn power(operand: &Operand) -> Option<Fact<'static>> {
    match operand {
        Operand::Integer(by @ 0..=31) => Some(Fact::exactly(1 << by)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
