//! Which registers hold the same in all lanes of a warp.
//!
//! They do where all that is written to them is made of what is the same, at places to which lanes come together: each of
//! them has come to the same such places before, in the same order.

use crate::ast::{AddressBase, Instruction, Operand};
use crate::maps::HashMap;
use crate::table::{self, Row, Treatment};

/// What a register holds in the lanes of a warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The same in all.
    Same,
    /// Where in its row a thread is, or the same in all: what is left of it without its low five bits is the same.
    Row,
    /// Anything.
    Any,
}

/// What an instruction makes of what it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Makes {
    /// What goes by nothing else.
    Pure,
    /// What it reads.
    Copy,
    /// That, without its low five bits.
    High,
    /// Anything.
    Any,
}

/// An instruction: how much it reads, behind where it begins in the list of all, and writes behind that.
#[derive(Debug, Clone, Copy)]
struct Line {
    makes: Makes,
    begin: usize,
    reads: usize,
    writes: usize,
    /// Its predicate, which is read first.
    predicate: bool,
}

/// The registers of a body, by number.
#[derive(Debug, Default)]
pub(super) struct Values<'a> {
    rows: bool,
    numbers: HashMap<&'a str, usize>,
    lines: Vec<Line>,
    named: Vec<usize>,
    written: Vec<bool>,
    /// What a register holds wherever it is read.
    kinds: Vec<Kind>,
    /// What it holds here, where it has been written since the last label.
    here: Vec<Option<Kind>>,
    since: Vec<usize>,
    /// Room for the names of one instruction.
    names: (Vec<&'a str>, Vec<&'a str>),
    /// Whether it may matter that warps are rows.
    by_rows: bool,
}

impl<'a> Values<'a> {
    /// For so many statements.
    pub(super) fn with(statements: usize, rows: bool) -> Self {
        Self { rows, lines: Vec::with_capacity(statements), ..Self::default() }
    }

    fn number(&mut self, name: &'a str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.kinds.len();
        self.numbers.insert(name, number);
        let dimension =
            |prefix: &str| name.strip_prefix(prefix).is_some_and(|axis| matches!(axis, "x" | "y" | "z"));
        self.kinds.push(match name {
            _ if dimension("%ctaid.") || dimension("%nctaid.") || dimension("%ntid.") => Kind::Same,
            "%tid.y" | "%tid.z" => {
                self.by_rows = true;
                if self.rows { Kind::Same } else { Kind::Any }
            }
            "%tid.x" if self.rows => Kind::Row,
            _ => Kind::Any,
        });
        self.written.push(false);
        self.here.push(None);
        number
    }

    /// The next statement.
    pub(super) fn add(&mut self, found: Option<(&Row, &'a Instruction)>) {
        let begin = self.named.len();
        let mut line = Line { makes: Makes::Any, begin, reads: 0, writes: 0, predicate: false };
        if let Some((row, instruction)) = found {
            let (mut reads, mut writes) = std::mem::take(&mut self.names);
            table::registers(row, instruction, &mut |name| reads.push(name), &mut |name| writes.push(name));
            (line.reads, line.writes) = (reads.len(), writes.len());
            line.predicate = instruction.predicate.is_some();
            line.makes = makes(row, instruction);
            for name in reads.drain(..) {
                let number = self.number(name);
                self.named.push(number);
            }
            for name in writes.drain(..) {
                let number = self.number(name);
                self.named.push(number);
                if let Some(written) = self.written.get_mut(number) {
                    *written = true;
                }
            }
            self.names = (reads, writes);
            self.by_rows |= line.makes == Makes::High;
        }
        self.lines.push(line);
    }

    /// Whether it may matter that warps are rows.
    pub(super) fn by_rows(&self) -> bool {
        self.by_rows
    }

    /// All statements are known.
    pub(super) fn end(&mut self) {
        for (kind, written) in self.kinds.iter_mut().zip(&self.written) {
            if *written {
                *kind = Kind::Same;
            }
        }
    }

    /// What is written may be anything.
    pub(super) fn doubt(&mut self) {
        for (kind, written) in self.kinds.iter_mut().zip(&self.written) {
            if *written {
                *kind = Kind::Any;
            }
        }
    }

    /// A body begins.
    pub(super) fn begin(&mut self) {
        self.label();
    }

    /// A label, to which registers come on different ways.
    pub(super) fn label(&mut self) {
        for number in self.since.drain(..) {
            if let Some(here) = self.here.get_mut(number) {
                *here = None;
            }
        }
    }

    fn kind(&self, number: usize) -> Kind {
        let here = self.here.get(number).copied().flatten();
        here.or_else(|| self.kinds.get(number).copied()).unwrap_or(Kind::Any)
    }

    /// Whether a branch is for all or for none of those who are together.
    pub(super) fn is_same_way(&self, index: usize) -> bool {
        let Some(line) = self.lines.get(index) else { return false };
        !line.predicate || self.named.get(line.begin).is_some_and(|number| self.kind(*number) == Kind::Same)
    }

    /// What a statement writes, which lanes come to together, or not. Answers whether that is not what was taken for granted.
    pub(super) fn learn(&mut self, index: usize, together: bool) -> bool {
        let Some(Line { makes, begin, reads, writes, predicate }) = self.lines.get(index).copied() else {
            return false;
        };
        if writes == 0 {
            return false;
        }
        let middle = begin + reads;
        let kinds = self.named.get(begin..middle).unwrap_or_default().iter().map(|number| self.kind(*number));
        let all = kinds.max().unwrap_or(Kind::Same);
        let same_way = self.is_same_way(index);
        let kind = match (makes, all) {
            _ if !together || (predicate && !same_way) => Kind::Any,
            (Makes::Any, _) | (_, Kind::Any) | (Makes::Pure, Kind::Row) => Kind::Any,
            (_, Kind::Same) | (Makes::High, Kind::Row) => Kind::Same,
            (Makes::Copy, Kind::Row) => Kind::Row,
        };
        let mut changed = false;
        for at in middle..middle + writes {
            let Some(number) = self.named.get(at).copied() else { continue };
            // Under a predicate it may be what it was.
            let now = if predicate { kind.max(self.kind(number)) } else { kind };
            if let Some(known) = self.kinds.get_mut(number)
                && *known < kind
            {
                *known = kind;
                changed = true;
            }
            if let Some(here) = self.here.get_mut(number) {
                *here = Some(now);
                self.since.push(number);
            }
        }
        changed
    }
}

/// What comes out of an instruction.
fn makes(row: &Row, instruction: &Instruction) -> Makes {
    let low_bits = |amount: Option<&Operand>, is: fn(i128) -> bool| matches!(amount, Some(Operand::Integer(amount)) if is(*amount));
    let word = || {
        let words = instruction.modifiers.as_slice();
        matches!(words, [ty] if matches!(ty.as_str(), "b32" | "u32"))
    };
    match row.name {
        "mov"
            if word()
                && matches!(
                    instruction.operands.as_slice(),
                    [Operand::Register(_), Operand::Register(_)]
                ) =>
        {
            Makes::Copy
        }
        "shr" if word() && low_bits(instruction.operands.get(2), |amount| (5..32).contains(&amount)) => {
            Makes::High
        }
        "and" if word() && low_bits(instruction.operands.get(2), |mask| mask & 31 == 0) => Makes::High,
        "ld" => {
            let parameter = instruction.modifiers.first().is_some_and(|space| space == "param");
            let by_name = matches!(instruction.operands.get(1), Some(Operand::Address(address))
                if matches!(address.base, AddressBase::Symbol(_)));
            if parameter && by_name { Makes::Pure } else { Makes::Any }
        }
        "abs" | "add" | "addc" | "and" | "bfe" | "bfi" | "bfind" | "brev" | "clz" | "cvt" | "cvta"
        | "div" | "lop3" | "mad" | "madc" | "max" | "min" | "mov" | "mul" | "mul24" | "mad24" | "neg"
        | "not" | "or" | "popc" | "prmt" | "rem" | "sad" | "selp" | "set" | "setp" | "shf" | "shl"
        | "shr" | "slct" | "sub" | "subc" | "xor" | "cnot" => {
            let pure = matches!(row.treatment, Treatment::Pure | Treatment::Move);
            if pure { Makes::Pure } else { Makes::Any }
        }
        _ => Makes::Any,
    }
}
