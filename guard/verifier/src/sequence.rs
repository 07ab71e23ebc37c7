//! The sequences before an access. Each is checked by writing down, from the access and the address it
//! starts from, the one text it may have.

use crate::access::Access;
use crate::ast::{AddressBase, Instruction, Operand, Space};
use crate::declarations::{Declared, SharedBounds};
use crate::extents::Extent;
use crate::limits::{DYNAMIC_SPAN_MAX, EXTENT_BOUND, OFFSET_BOUND};
use crate::names::Class;
use crate::numbers::Numbers;
use crate::print::Text;
use crate::refusal::unverified;
use crate::report::Reason;
use crate::values::{Known as _, Root};

/// The longest are those of a copy, whose two addresses and size are confined.
pub(crate) const LENGTH_MAX: usize = 13;

/// What an access rests on that a sequence confines.
#[derive(Default)]
pub(crate) struct Rests<'a> {
    /// Bytes of dynamic shared memory.
    pub(crate) dynamic: u64,
    /// A pointer that is aligned for it.
    pub(crate) aligned: Option<(Root<'a>, u64)>,
}

/// Checks the beginning of `lead`, the instructions before an access that goes through one of the guard's registers.
/// Returns what is left of it, and what the access rests on. What is known to be aligned need not be made so: of a
/// parameter that is known in a fast version only.
pub(crate) fn check<'l, 'a>(
    lead: &'l [&'a Instruction],
    access: &Access<'_>,
    declared: &Declared<'_>,
    facts: &Numbers<'a>,
    is_fast: bool,
) -> Result<(&'l [&'a Instruction], Rests<'a>), Reason> {
    let expected = match access.space {
        Space::Global if declared.in_gate && is_protected(lead) => {
            protected(lead, access).map(|lines| (lines, Rests::default()))
        }
        Space::Global => global(lead, access, is_fast.then_some(facts)),
        Space::Shared => shared(lead, access, declared, facts)
            .map(|(lines, dynamic)| (lines, Rests { dynamic, ..Rests::default() })),
        Space::Local | Space::Constant | Space::Parameter => {
            clamped(lead, access, declared).map(|lines| (lines, Rests::default()))
        }
        Space::Register => None,
    };
    let confined = expected.and_then(|(lines, rests)| {
        let (found, left) = lead.split_at_checked(lines.len())?;
        let same = lines.iter().zip(found).all(|(line, found)| Text(*found).is(line));
        same.then_some((left, rests))
    });
    confined.ok_or_else(|| unverified("an access that no sequence confines"))
}

/// Checks how much a copy of so many bytes takes from its source: no more than them, nothing by a predicate, or what the
/// last of its lead has cut to them. Returns what is left of the lead.
pub(crate) fn source_bytes<'l, 'a>(
    lead: &'l [&'a Instruction],
    copy: &Instruction,
    bytes: u64,
) -> Result<&'l [&'a Instruction], Reason> {
    let fits = match copy.operands.get(3) {
        None => return Ok(lead),
        Some(Operand::Integer(taken)) => (0..=i128::from(bytes)).contains(taken).then_some(lead),
        Some(Operand::Register(name)) if name == "%bh_lo" => lead.split_first().and_then(|(cut, left)| {
            let line = format!("min.u32 %bh_lo, {}, {bytes}", source(cut, 1, Class::Word)?);
            (Text(*cut).is(&line)).then_some(left)
        }),
        Some(Operand::Register(name) | Operand::Not(name)) => {
            matches!(Class::parse(name), Some((Class::Predicate, _))).then_some(lead)
        }
        Some(_) => None,
    };
    fits.ok_or_else(|| unverified("a copy from more than it writes"))
}

/// Whether an access is `[register+offset]` with an offset that reaches no further than a guard zone and keeps
/// the alignment.
pub(crate) fn is_through(access: &Access<'_>, register: &str) -> bool {
    let offset = access.address.offset.unsigned_abs();
    let base = matches!(&access.address.base, AddressBase::Register(name) if name == register);
    base && offset < OFFSET_BOUND && offset.is_multiple_of(access.bytes)
}

/// The tenant's register of a class that operand `index` of an instruction is.
pub(crate) fn source(instruction: &Instruction, index: usize, class: Class) -> Option<&str> {
    match instruction.operands.get(index) {
        Some(Operand::Register(name)) if Class::parse(name).is_some_and(|found| found.0 == class) => {
            Some(name)
        }
        _ => None,
    }
}

pub(crate) fn integer(instruction: &Instruction, index: usize) -> Option<i128> {
    match instruction.operands.get(index) {
        Some(Operand::Integer(value)) => Some(*value),
        _ => None,
    }
}

fn global<'a>(
    lead: &[&Instruction],
    access: &Access<'_>,
    facts: Option<&Numbers<'a>>,
) -> Option<(Vec<String>, Rests<'a>)> {
    is_through(access, "%bh_a").then_some(())?;
    let first = lead.first()?;
    let mut lines = Vec::with_capacity(5);
    let register = source(first, 1, Class::Double)?;
    let (from, added) = if first.opcode == "add" {
        let offset = integer(first, 2)?;
        lines.push(format!("add.s64 %bh_a, {register}, {offset}"));
        ("%bh_a", offset)
    } else {
        (register, 0)
    };
    lines.push(format!("mov.b64 {{%bh_lo, %bh_hi}}, {from}"));
    let mask = if access.reads_only { "%bh_loadmask" } else { "%bh_storemask" };
    // 234 is 0xEA, the table of (a & b) | c.
    lines.push(format!("lop3.b32 %bh_hi, %bh_hi, {mask}, %bh_base, 234"));
    if access.extent > EXTENT_BOUND {
        lines.push(format!("or.b32 %bh_s, {mask}, %bh_base"));
        lines.push("add.s32 %bh_s, %bh_s, -1".to_owned());
        lines.push("min.u32 %bh_hi, %bh_hi, %bh_s".to_owned());
    }
    let mut rests = Rests::default();
    let is_cut = lead.get(lines.len()).is_some_and(|next| next.opcode == "and");
    if let (false, Some(facts)) = (is_cut || access.bytes == 1, facts) {
        let root = facts.aligned(register, i64::try_from(added).ok()?, access.bytes)?;
        rests.aligned = root.map(|root| (root, access.bytes));
    } else if access.bytes > 1 {
        lines.push(format!("and.b32 %bh_lo, %bh_lo, -{}", access.bytes));
    }
    lines.push("mov.b64 %bh_a, {%bh_lo, %bh_hi}".to_owned());
    Some((lines, rests))
}

/// The base of a run of accesses is clamped so that the run's whole span is inside: as many bytes have to be
/// there, in static variables or by the launch.
fn shared(
    lead: &[&Instruction],
    access: &Access<'_>,
    declared: &Declared<'_>,
    facts: &Numbers<'_>,
) -> Option<(Vec<String>, u64)> {
    let first = lead.first()?;
    let mut lines = Vec::with_capacity(6);
    let mut base = None;
    lines.push(match (first.opcode.as_str(), first.operands.get(1)?) {
        ("mov", Operand::Symbol(name)) if declared.extents.get(name)?.space == Space::Shared => {
            format!("mov.b32 %bh_s, {name}")
        }
        ("mov", _) => {
            base = source(first, 1, Class::Word);
            format!("mov.b32 %bh_s, {}", base?)
        }
        _ => format!("cvt.u32.u64 %bh_s, {}", source(first, 1, Class::Double)?),
    });
    let mut least = 0;
    if let Some(second) = lead.get(1).filter(|second| second.opcode == "add") {
        least = integer(second, 2)?;
        lines.push(format!("add.s32 %bh_s, %bh_s, {least}"));
    }
    let bounds = declared.shared.as_ref()?;
    let end = u64::try_from(access.address.offset).ok()?.checked_add(access.extent)?;
    let run = Run { lead, access, facts, bounds, end, base, least };
    if let Some(mask) = lead.get(lines.len()).filter(|found| found.opcode == "and") {
        return run.masked(mask, lines);
    }
    // How far behind the first byte it is, whose place the offset says; or between the first byte and the last.
    let is_behind = lead.get(lines.len()).is_some_and(
        |next| matches!(next.operands.first(), Some(Operand::Register(name)) if name == "%bh_s"),
    );
    match lead.get(lines.len() + 1).filter(|found| is_behind && found.opcode == "min") {
        Some(found) => run.of_one_variable(found, lines),
        None => run.spanned(is_behind, lines),
    }
}

/// A shared access of a run, whose base is in `%bh_s`.
struct Run<'s, 'a> {
    lead: &'s [&'s Instruction],
    access: &'s Access<'s>,
    facts: &'s Numbers<'a>,
    bounds: &'s SharedBounds<'a>,
    /// Where the access ends, by its offset.
    end: u64,
    /// The word that the base is, and what was added to it.
    base: Option<&'s str>,
    least: i128,
}

impl Run<'_, '_> {
    /// At most so far behind the first byte, which is as aligned as the widest access: the offset says where that is.
    fn masked(&self, mask: &Instruction, mut lines: Vec<String>) -> Option<(Vec<String>, u64)> {
        let Self { access, bounds, .. } = self;
        let mask = u64::try_from(integer(mask, 2)?).ok()?;
        let begins =
            u64::try_from(access.address.offset).ok().zip(bounds.at).is_some_and(|(from, at)| from >= at);
        let top = bounds.at.and_then(|at| at.checked_add(bounds.static_bytes));
        let inside = mask.checked_add(self.end).zip(top).is_some_and(|(end, top)| end <= top);
        (is_through(access, "%bh_s") && mask.is_multiple_of(access.bytes) && begins && inside)
            .then_some(())?;
        lines.push(format!("and.b32 %bh_s, %bh_s, {mask}"));
        Some((lines, 0))
    }

    /// How far behind the first byte it is, at most what `found` says.
    fn of_one_variable(&self, found: &Instruction, mut lines: Vec<String>) -> Option<(Vec<String>, u64)> {
        let Self { access, bounds, .. } = self;
        let begins = bounds.at?;
        let most = u64::try_from(integer(found, 2)?).ok()?;
        let ends = most.checked_add(self.end)?.checked_sub(begins)?;
        let inside = self.end.checked_sub(access.extent)? >= begins && ends <= bounds.static_bytes;
        (is_through(access, "%bh_s") && inside).then_some(())?;
        lines.push("sub.s32 %bh_s, %bh_s, %bh_low".to_owned());
        lines.push(format!("min.u32 %bh_s, %bh_s, {most}"));
        // What is a multiple stays one.
        let is_multiple = self.lead.get(lines.len()).is_none_or(|next| next.opcode != "and");
        if is_multiple && access.bytes > 1 {
            self.is_multiple()?;
            most.is_multiple_of(access.bytes).then_some(())?;
        } else if access.bytes > 1 {
            lines.push(format!("and.b32 %bh_s, %bh_s, -{}", access.bytes));
        }
        Some((lines, 0))
    }

    /// Where the whole span of the run is inside.
    fn spanned(&self, is_behind: bool, mut lines: Vec<String>) -> Option<(Vec<String>, u64)> {
        let Self { access, bounds, end, .. } = self;
        let (last, begins) = if is_behind { (2, bounds.at?) } else { (0, 0) };
        let span = u64::try_from(integer(self.lead.get(lines.len() + last)?, 2)?).ok()?;
        let dynamic = span.saturating_sub(bounds.static_bytes);
        let there = dynamic == 0 || (bounds.dynamic && span <= DYNAMIC_SPAN_MAX);
        let inside = end.checked_sub(access.extent)? >= begins && end - begins <= span;
        (is_through(access, "%bh_s") && inside && there).then_some(())?;
        if is_behind {
            lines.push("sub.s32 %bh_s, %bh_s, %bh_low".to_owned());
            lines.push("sub.s32 %bh_lo, %bh_top, %bh_low".to_owned());
            lines.push(format!("sub.s32 %bh_lo, %bh_lo, {span}"));
        } else {
            lines.push(format!("sub.s32 %bh_lo, %bh_top, {span}"));
        }
        // Of what is a multiple, as the first byte is, the last place is made one.
        let is_multiple = self.lead.get(lines.len()).is_some_and(|next| next.opcode == "and");
        if is_multiple {
            self.is_multiple()?;
            lines.push(format!("and.b32 %bh_lo, %bh_lo, -{}", access.bytes));
        }
        lines.push("min.u32 %bh_s, %bh_s, %bh_lo".to_owned());
        if !is_behind {
            lines.push("max.u32 %bh_s, %bh_s, %bh_low".to_owned());
        }
        if access.bytes > 1 && !is_multiple {
            lines.push(format!("and.b32 %bh_s, %bh_s, -{}", access.bytes));
        }
        Some((lines, dynamic))
    }

    /// Whether the base is known to be a multiple of what the access is aligned to.
    fn is_multiple(&self) -> Option<()> {
        let base = self.base?;
        self.facts.is_multiple(base, self.least, self.access.bytes).then_some(())
    }
}

/// Checks the stride of a matrix: what the last of its lead has cut to the bits that it may have. Returns what is left of
/// the lead.
pub(crate) fn stride<'l, 'a>(
    lead: &'l [&'a Instruction],
    instruction: &Instruction,
    access: &Access<'_>,
) -> Result<&'l [&'a Instruction], Reason> {
    let Some((at, mask)) = access.stride else { return Ok(lead) };
    let cut = lead.split_first().and_then(|(cut, left)| {
        let line = format!("and.b32 %bh_lo, {}, {mask}", source(cut, 1, Class::Word)?);
        let given = matches!(instruction.operands.get(at), Some(Operand::Register(name)) if name == "%bh_lo");
        (given && access.space == Space::Global && Text(*cut).is(&line)).then_some(left)
    });
    cut.ok_or_else(|| unverified("a matrix with any stride"))
}

fn clamped(lead: &[&Instruction], access: &Access<'_>, declared: &Declared<'_>) -> Option<Vec<String>> {
    (is_through(access, "%bh_a") && access.address.offset == 0).then_some(())?;
    let [first, second, third, ..] = lead else { return None };
    let Some(Operand::Symbol(name)) = first.operands.get(1) else { return None };
    let Extent { bytes, align, .. } =
        *declared.extents.get(name).filter(|extent| extent.space == access.space)?;
    // Parameters are aligned as they are declared, and what is not written may not be.
    let is_parameter = access.space == Space::Parameter;
    (!is_parameter || access.reads_only && align.is_multiple_of(access.bytes)).then_some(())?;
    let last = bytes.checked_sub(access.extent)?;
    let mut lines = Vec::with_capacity(8);
    lines.push(format!("mov.b64 %bh_o, {name}"));
    lines.push(format!("sub.s64 %bh_a, {}, %bh_o", source(second, 1, Class::Double)?));
    if third.opcode == "add" {
        lines.push(format!("add.s64 %bh_a, %bh_a, {}", integer(third, 2)?));
    }
    u32::try_from(last).ok()?;
    lines.push("cvt.u32.u64 %bh_lo, %bh_a".to_owned());
    lines.push(format!("min.u32 %bh_lo, %bh_lo, {last}"));
    if access.bytes > 1 {
        lines.push(format!("and.b32 %bh_lo, %bh_lo, -{}", access.bytes));
    }
    lines.push("cvt.u64.u32 %bh_a, %bh_lo".to_owned());
    lines.push("add.s64 %bh_a, %bh_o, %bh_a".to_owned());
    Some(lines)
}

/// The text of a sequence before an access to the protected window: of the address only those bits are left that choose a
/// place in it.
fn protected(lead: &[&Instruction], access: &Access<'_>) -> Option<Vec<String>> {
    let first = lead.first()?;
    let from = source(first, 1, Class::Double)?;
    let mut lines = Vec::with_capacity(4);
    let mut masked = from;
    if first.opcode == "add" {
        let offset = integer(first, 2)?;
        lines.push(format!("add.s64 %bh_a, {from}, {offset}"));
        masked = "%bh_a";
    }
    lines.push(format!("and.b64 %bh_a, {masked}, %bh_gmask"));
    if access.bytes > 1 {
        lines.push(format!("and.b64 %bh_a, %bh_a, -{}", access.bytes));
    }
    lines.push("or.b64 %bh_a, %bh_a, %bh_gbase".to_owned());
    let fits = access.address.offset == 0 && access.extent == access.bytes;
    (fits && is_through(access, "%bh_a")).then_some(lines)
}

/// Whether that is what a lead means to be.
fn is_protected(lead: &[&Instruction]) -> bool {
    lead.iter()
        .any(|found| matches!(found.operands.get(2), Some(Operand::Register(name)) if name == "%bh_gmask"))
}

#[cfg(test)]
mod tests;
