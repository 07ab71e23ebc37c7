//! Where all lanes that are left of a warp are together: a pass that checks what is claimed, and finds out nothing.
//!
//! Call a statement *common* where lanes are together before it. All lanes that are left of a warp come to the same common
//! statements in the same order, whether side by side or not. Each of these rules keeps that:
//!
//! 1. Lanes are together where an entry begins.
//! 2. Lanes that are together go on together by a branch that goes by what is the same for all of them, and where nothing
//!    branches.
//! 3. Where they part, all go to places that are headed for one common statement, or to that itself; so their next
//!    common statement is that. From such a place control goes to places headed for the same statement, or to it, and nothing
//!    waits there: whoever waits at the common statement waits for lanes that come, or end.
//! 4. Or all go to places where lanes are apart, from which they come to places of the same kind and to places that end, and
//!    to a common statement behind a question alone: it ends whoever asks while some that are left of the warp are elsewhere.
//! 5. From places that end control goes to such places only, and nothing waits there. So any lane may leave the others there.
//!
//! A register that is written at common statements only, from what is the same in all lanes, holds the same in all: it was
//! written last by the same instruction, in the same turn.
//!
//! Each statement is looked at once. A label's claim is what holds there, whoever comes; each way to it is checked
//! against the claim where it leaves.

use crate::ast::{AddressBase, Instruction, Operand, Span, Statement};
use crate::claims::{Lanes, LanesAt, Uniformity};
use crate::declarations;
use crate::maps::{HashMap, HashSet};
use crate::names::{self, LANES};
use crate::print::Text;
use crate::refusal::unverified;
use crate::report::Reason;
use crate::table::{self, Row, Treatment};

/// How lanes that have met ask whether all that are left of their warp are here; who finds some missing ends.
const QUESTIONS: [&[&str]; 3] = [
    &["vote.sync.ballot.b32 %bh_lo, 1, -1", "setp.ne.s32 %bh_q, %bh_lo, %bh_m"],
    &["vote.sync.ballot.b32 %bh_hi, 1, -1", "setp.ne.s32 %bh_q, %bh_lo, -1"],
    &["setp.ne.s32 %bh_q, %bh_lo, -1"],
];

/// Checks what is claimed of a body, where lanes are at first at such a place. Answers before which statements they are
/// together; nothing where nothing waits for others.
///
/// # Errors
/// Where a claim does not follow, and why.
pub(crate) fn check(
    statements: &[Statement],
    first: LanesAt,
    claims: &Lanes,
) -> Result<Vec<bool>, (Span, Reason)> {
    if !statements.iter().filter_map(known).any(|(row, found)| waits(row, found)) {
        return Ok(Vec::new());
    }
    let mut labels = HashMap::default();
    for (index, statement) in statements.iter().enumerate() {
        if let Statement::Label(name, _) = statement {
            labels.insert(name.as_str(), index);
        }
    }
    let registers =
        Registers { claims, here: HashMap::default(), own: HashMap::default(), written: HashSet::default() };
    let mut pass = Pass { claims, labels, registers, place: Some(first), asked: None };
    let mut together = Vec::with_capacity(statements.len());
    for (index, statement) in statements.iter().enumerate() {
        let span = match statement {
            Statement::Label(_, span) => *span,
            Statement::Instruction(found) => found.span,
            _ => Span::default(),
        };
        pass.arrive(index, statement).map_err(|reason| (span, reason))?;
        together.push(pass.is_together());
        if let Some(length) = statements.get(index..).and_then(behind_question) {
            pass.asked = Some(index + length);
        }
        // Others refuse what is in no table.
        if let Some((row, found)) = known(statement) {
            pass.instruction(row, found).map_err(|reason| (span, reason))?;
        }
    }
    pass.registers.end().map_err(|reason| (Span::default(), reason))?;
    Ok(together)
}

fn known(statement: &Statement) -> Option<(&'static Row, &Instruction)> {
    let Statement::Instruction(found) = statement else { return None };
    Some((table::row_of(found)?, found))
}

/// Whether lanes wait for others there.
fn waits(row: &Row, found: &Instruction) -> bool {
    table::waits_for_lanes(row, found)
        || table::waits_for_block(row, found)
        || table::is_for_warps(row)
        || row.treatment == Treatment::Gate
}

struct Pass<'a> {
    claims: &'a Lanes,
    labels: HashMap<&'a str, usize>,
    registers: Registers<'a>,
    /// Where lanes are; `None` where none comes.
    place: Option<LanesAt>,
    /// Behind a question: before this statement.
    asked: Option<usize>,
}

impl<'a> Pass<'a> {
    /// What is not reached holds of all that come there.
    fn is_together(&self) -> bool {
        self.place.is_none_or(|place| place == LanesAt::Together)
    }

    /// What is claimed of a label.
    fn claimed(&self, label: usize) -> LanesAt {
        self.claims.places.get(&label).copied().unwrap_or(LanesAt::Apart)
    }

    /// Control comes to a statement from the one before.
    fn arrive(&mut self, index: usize, statement: &Statement) -> Result<(), Reason> {
        let is_label = matches!(statement, Statement::Label(..));
        if self.asked == Some(index) {
            (self.place, self.asked) = (Some(LanesAt::Together), None);
        }
        let claimed = self.claims.places.get(&index).copied();
        let Some(claimed) = claimed.or(is_label.then_some(LanesAt::Apart)) else { return Ok(()) };
        if let Some(place) = self.place {
            follows(place, index, claimed)?;
        }
        self.place = Some(claimed);
        if is_label {
            self.registers.own.clear();
            // Nothing else comes to a label of the zeroing, which writes registers of the guard's alone.
            if !declarations::is_of_zeroing(statement) {
                // Not cleared: that takes as long as the largest of them was.
                self.registers.here = HashMap::default();
            }
        }
        Ok(())
    }

    fn instruction(&mut self, row: &Row, found: &'a Instruction) -> Result<(), Reason> {
        if waits(row, found) {
            if matches!(self.place, Some(LanesAt::Heading(_) | LanesAt::Ending)) {
                return Err(unverified(
                    "lanes wait on a way that others take for one on which nothing waits",
                ));
            }
            if row.treatment == Treatment::Gate {
                self.place = self.place.map(|_| LanesAt::Apart);
            }
        }
        let same_way =
            found.predicate.as_ref().is_none_or(|predicate| self.registers.is_same(&predicate.register));
        if row.treatment == Treatment::Branch {
            self.branch(row, found, same_way)?;
        }
        self.registers.instruction(row, found, self.is_together() && same_way)?;
        if table::ends_path(row, found) {
            self.place = None;
        }
        Ok(())
    }

    fn branch(&mut self, row: &Row, found: &Instruction, same_way: bool) -> Result<(), Reason> {
        let target = table::target(row, found).and_then(|target| self.labels.get(target).copied());
        let target = target.ok_or_else(|| unverified("a branch that does not say where to"))?;
        let Some(place) = self.place else { return Ok(()) };
        let there = self.claimed(target);
        follows(place, target, there)?;
        if place == LanesAt::Together && !same_way {
            self.place = Some(match there {
                LanesAt::Together => LanesAt::Heading(target),
                LanesAt::Heading(_) | LanesAt::Apart => there,
                LanesAt::Ending => place,
            });
        }
        Ok(())
    }
}

/// Whether lanes may come from one place to another.
fn follows(from: LanesAt, index: usize, to: LanesAt) -> Result<(), Reason> {
    let may = match (from, to) {
        (LanesAt::Together, _) | (_, LanesAt::Ending) | (LanesAt::Apart, LanesAt::Apart) => true,
        (LanesAt::Heading(common), LanesAt::Together) => common == index,
        (LanesAt::Heading(common), LanesAt::Heading(other)) => common == other,
        (LanesAt::Heading(_), LanesAt::Apart)
        | (LanesAt::Ending | LanesAt::Apart, LanesAt::Together | LanesAt::Heading(_))
        | (LanesAt::Ending, LanesAt::Apart) => false,
    };
    if may { Ok(()) } else { Err(unverified("lanes that do not come where it is claimed that they do")) }
}

/// What registers hold.
struct Registers<'a> {
    claims: &'a Lanes,
    /// What was written since the last label.
    here: HashMap<&'a str, Uniformity>,
    /// The same of the guard's registers.
    own: HashMap<&'a str, Uniformity>,
    /// The claimed ones that were written.
    written: HashSet<&'a str>,
}

impl<'a> Registers<'a> {
    fn of(&self, name: &str) -> Uniformity {
        let claimed = || self.claims.registers.get(name).copied();
        of_special(name, self.claims.rows)
            .or_else(|| self.here.get(name).or_else(|| self.own.get(name)).copied())
            .or_else(claimed)
            .unwrap_or(Uniformity::Any)
    }

    fn is_same(&self, name: &str) -> bool {
        self.of(name) == Uniformity::Same
    }

    /// An instruction, to which lanes come together and which all or none carry out; or not.
    fn instruction(&mut self, row: &Row, found: &'a Instruction, together: bool) -> Result<(), Reason> {
        let mut made = Uniformity::Same;
        let mut writes = Vec::new();
        table::registers(row, found, &mut |name| made = made.max(self.of(name)), &mut |name| {
            writes.push(name)
        });
        let made = if together { makes(row, found).of(made) } else { Uniformity::Any };
        for name in writes {
            if let Some((name, claimed)) = self.claims.registers.get_key_value(name) {
                if made > *claimed {
                    return Err(unverified("a register that does not hold the same in all lanes"));
                }
                self.written.insert(name);
            }
            // Where it is not carried out, it is what it was.
            let now = if found.predicate.is_some() { made.max(self.of(name)) } else { made };
            let known = if names::is_reserved(name) { &mut self.own } else { &mut self.here };
            known.insert(name, now);
        }
        Ok(())
    }

    /// Of what the body does not write nothing may be claimed.
    fn end(&self) -> Result<(), Reason> {
        let written = self.written.len() == self.claims.registers.len();
        if written { Ok(()) } else { Err(unverified("a claim of a register that is not written")) }
    }
}

/// What a special register holds that is not anything; `None` of any other register. Where warps are rows, no two rows of a
/// block have one in common.
pub fn of_special(name: &str, rows: bool) -> Option<Uniformity> {
    let is_axis = |axis: &str| matches!(axis, "x" | "y" | "z");
    let of_block = |prefix: &str| name.strip_prefix(prefix).is_some_and(is_axis);
    Some(match name {
        _ if of_block("%ctaid.") || of_block("%nctaid.") || of_block("%ntid.") => Uniformity::Same,
        "%tid.y" | "%tid.z" if rows => Uniformity::Same,
        "%tid.x" if rows => Uniformity::Row,
        // Of other special ones nothing may be claimed, as no instruction writes them.
        _ => return None,
    })
}

/// What an instruction makes of what it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Makes {
    /// What goes by nothing else.
    Pure,
    /// What it reads.
    Copy,
    /// That, without its low five bits.
    High,
    /// Anything.
    Any,
}

impl Makes {
    /// Of what is such.
    pub fn of(self, read: Uniformity) -> Uniformity {
        match (self, read) {
            (Self::Any, _) | (_, Uniformity::Any) | (Self::Pure, Uniformity::Row) => Uniformity::Any,
            (_, Uniformity::Same) | (Self::High, Uniformity::Row) => Uniformity::Same,
            (Self::Copy, Uniformity::Row) => Uniformity::Row,
        }
    }
}

/// What comes out of an instruction.
pub fn makes(row: &Row, found: &Instruction) -> Makes {
    let low_bits = |amount: Option<&Operand>, is: fn(i128) -> bool| matches!(amount, Some(Operand::Integer(amount)) if is(*amount));
    let is_word = matches!(found.modifiers.as_slice(), [ty] if matches!(ty.as_str(), "b32" | "u32"));
    let operands = found.operands.as_slice();
    match row.name {
        "mov" if is_word && matches!(operands, [Operand::Register(_), Operand::Register(_)]) => Makes::Copy,
        "shr" if is_word && low_bits(operands.get(2), |amount| (5..32).contains(&amount)) => Makes::High,
        "and" if is_word && low_bits(operands.get(2), |mask| mask & 31 == 0) => Makes::High,
        "ld" => {
            let parameter = found.modifiers.first().is_some_and(|space| space == "param");
            let by_name = matches!(operands.get(1), Some(Operand::Address(address))
                if matches!(address.base, AddressBase::Symbol(_)));
            if parameter && by_name { Makes::Pure } else { Makes::Any }
        }
        "abs" | "add" | "addc" | "and" | "bfe" | "bfi" | "bfind" | "brev" | "clz" | "cvt" | "cvta"
        | "div" | "lop3" | "mad" | "madc" | "max" | "min" | "mov" | "mul" | "mul24" | "mad24" | "neg"
        | "not" | "or" | "popc" | "prmt" | "rem" | "sad" | "selp" | "set" | "setp" | "shf" | "shl"
        | "shr" | "slct" | "sub" | "subc" | "xor" | "cnot"
            if matches!(row.treatment, Treatment::Pure | Treatment::Move) =>
        {
            Makes::Pure
        }
        _ => Makes::Any,
    }
}

/// The number of a place at which all lanes of a warp meet, where an instruction has those that came to it stand in `here`.
/// It is below 2^31, so that numbers that differ do so in 32 bits.
pub(crate) fn place(statement: &Statement, here: &str) -> Option<i128> {
    let Statement::Instruction(found) = statement else { return None };
    let is_one = found.opcode == "match" && found.modifiers == ["any", "sync", "b32"];
    match found.operands.as_slice() {
        [Operand::Register(to), Operand::Integer(place), Operand::Integer(-1)]
            if is_one && to == here && found.predicate.is_none() && (1..1 << 31).contains(place) =>
        {
            Some(*place)
        }
        _ => None,
    }
}

/// How many statements a question is that begins here.
pub fn behind_question(statements: &[Statement]) -> Option<usize> {
    let (first, behind) = statements.split_first()?;
    let is = |index: usize, line: &str| matches!(behind.get(index), Some(Statement::Instruction(found)) if Text(found).is(line));
    let asks = |lines: &&&[&str]| {
        let here = if lines.last().is_some_and(|line| line.ends_with("%bh_m")) { LANES } else { "%bh_lo" };
        place(first, here).is_some() && lines.iter().enumerate().all(|(index, line)| is(index, line))
    };
    let lines = QUESTIONS.iter().find(asks)?.len();
    let waits = usize::from(is(lines, "@%bh_q cp.async.wait_all"));
    is(lines + waits, "@%bh_q exit").then_some(lines + waits + 2)
}

#[cfg(test)]
mod tests;
