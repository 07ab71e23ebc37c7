//! Works out which registers hold the same in all lanes of a warp.
//!
//! They do where all that is written to them is made of what is the same, at places to which lanes come together: each of
//! them has come to the same such places before, in the same order.

use bulkhead_verifier::claims::Uniformity;

use crate::ast::Instruction;
use crate::maps::HashMap;
use crate::names;
use crate::table::{self, Row};
use bulkhead_verifier::convergence::{Makes, makes, of_special};

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
    kinds: Vec<Uniformity>,
    /// What it holds here, where it has been written since the last label.
    here: Vec<Option<Uniformity>>,
    since: Vec<usize>,
    /// The same of the guard's registers.
    since_own: Vec<usize>,
    /// Which are the guard's.
    own: Vec<bool>,
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
        self.by_rows |= matches!(name, "%tid.y" | "%tid.z");
        self.kinds.push(of_special(name, self.rows).unwrap_or(Uniformity::Any));
        self.written.push(false);
        self.here.push(None);
        self.own.push(names::is_reserved(name));
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

    /// What registers hold wherever they are read, as far as it is not anything.
    pub(super) fn registers(&self) -> HashMap<String, Uniformity> {
        let kinds = self.numbers.iter().map(|(name, number)| (*name, *number));
        let written = kinds.filter(|(_, number)| self.written.get(*number).is_some_and(|written| *written));
        let known = written.filter_map(|(name, number)| Some((name.to_owned(), *self.kinds.get(number)?)));
        known.filter(|(_, kind)| *kind != Uniformity::Any).collect()
    }

    /// All statements are known.
    pub(super) fn end(&mut self) {
        for (kind, written) in self.kinds.iter_mut().zip(&self.written) {
            if *written {
                *kind = Uniformity::Same;
            }
        }
    }

    /// What is written may be anything.
    pub(super) fn doubt(&mut self) {
        for (kind, written) in self.kinds.iter_mut().zip(&self.written) {
            if *written {
                *kind = Uniformity::Any;
            }
        }
    }

    /// A body begins.
    pub(super) fn begin(&mut self) {
        self.label(false);
    }

    /// A label, to which registers come on different ways; only those of the guard where it is of the zeroing.
    pub(super) fn label(&mut self, is_of_zeroing: bool) {
        let others = if is_of_zeroing { &mut Vec::new() } else { &mut self.since };
        for number in others.drain(..).chain(self.since_own.drain(..)) {
            if let Some(here) = self.here.get_mut(number) {
                *here = None;
            }
        }
    }

    fn kind(&self, number: usize) -> Uniformity {
        let here = self.here.get(number).copied().flatten();
        here.or_else(|| self.kinds.get(number).copied()).unwrap_or(Uniformity::Any)
    }

    /// Whether a branch is for all or for none of those who are together.
    pub(super) fn is_same_way(&self, index: usize) -> bool {
        let Some(line) = self.lines.get(index) else { return false };
        !line.predicate
            || self.named.get(line.begin).is_some_and(|number| self.kind(*number) == Uniformity::Same)
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
        let all = kinds.max().unwrap_or(Uniformity::Same);
        let same_way = self.is_same_way(index);
        let kind = if together && (!predicate || same_way) { makes.of(all) } else { Uniformity::Any };
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
                let is_own = self.own.get(number).is_some_and(|own| *own);
                if is_own { &mut self.since_own } else { &mut self.since }.push(number);
            }
        }
        changed
    }
}
