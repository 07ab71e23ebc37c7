//! The turns that a loop takes before its first poll, written once more in front of it.
//!
//! A loop that polls is a nest of two, of which the inner one turns between polls: the assembler keeps less in registers
//! over it and moves less in front of it than it does with a loop that stands alone. Most loops end before they would
//! poll. So short ones get a copy of their turns in front, which is such a loop: it counts, and goes on with the nest behind
//! it where its count is used up.
//!
//! The text is written when everything in it is confined, so that a copy is confined as what it is a copy of. What is known
//! of numbers may rest on how often a loop turns, which nobody finds out of a copy: of what the turns carry from one to the
//! next, or leave, only that is known which the tests before the branches back say. A fast version whose proofs need more ([`are_same`]) has no copies.

use super::turns::{self, Ends, Firsts, Place};
use super::versions::{Known, Proven, TOGETHER};
use crate::ast::{Address, AddressBase, Instruction, Operand, Predicate, Span, Statement};
use crate::confine::lines::plain;
use crate::maps::{HashMap, HashSet};
use crate::names::{self, Class};
use crate::table::{self, Treatment};

/// The tenant's instructions in a loop that is written twice, at most.
const BODY_MAX: usize = 64;
/// Loops of an entry that are, at most, and statements that they add.
const LOOPS_MAX: usize = 16;
const ADDED_MAX: usize = turns::COPIED_MAX;

/// A loop to be written twice.
#[derive(Clone)]
pub(super) struct Peeled {
    pub(super) label: String,
    /// Where its label stands, and the branch back.
    from: usize,
    to: usize,
    /// The registers that nothing outside reads or writes, in the order of the text.
    own: Vec<String>,
}

/// Finds the loops of a body that are worth it, in order. Those of `begins` are left alone. These registers are zeroed
/// first, if the body does not say so; it may be known already how loops end.
pub(super) fn find(
    statements: &[Statement],
    zeroed: &[String],
    begins: &HashMap<String, String>,
    given: Option<&Ends>,
) -> Vec<Peeled> {
    let wanted = |Place { from, to }: Place| {
        let body = statements.get(from + 1..to).unwrap_or_default();
        let count = body.iter().filter(|statement| is_of_tenant(statement)).count();
        body.iter().all(fits) && count <= BODY_MAX && !is_for_many_turns(statements, from, to)
    };
    let loops = turns::innermost(statements, zeroed, begins, given, wanted);
    let mut found = peeled(statements, zeroed, loops);
    let mut added = 0;
    found.truncate(LOOPS_MAX);
    found.retain(|Peeled { from, to, .. }| {
        added += to - from;
        added <= ADDED_MAX
    });
    found
}

/// Those of these labels, of which that was found before the body was confined.
pub(super) fn find_again(statements: &[Statement], labels: &HashSet<String>) -> Vec<Peeled> {
    if labels.is_empty() {
        return Vec::new();
    }
    let is_one = |place: &Place| matches!(statements.get(place.from), Some(Statement::Label(name, _)) if labels.contains(name));
    let loops = turns::closed(statements).into_iter().filter(is_one);
    peeled(statements, &[], loops.collect())
}

fn peeled(statements: &[Statement], zeroed: &[String], loops: Vec<Place>) -> Vec<Peeled> {
    if loops.is_empty() {
        return Vec::new();
    }
    let uses = Uses::of(statements, zeroed);
    let found = loops.into_iter().filter_map(|Place { from, to }| {
        let Some(Statement::Label(label, _)) = statements.get(from) else { return None };
        let own = uses.inside(statements, from, to)?;
        Some(Peeled { label: label.clone(), from, to, own })
    });
    found.collect()
}

/// Writes loops twice. Registers of each class are numbered from what `fresh` says on, which then says what comes next.
pub(super) fn write(
    statements: &mut Vec<Statement>,
    loops: Vec<Peeled>,
    fresh: &mut HashMap<Class, u32>,
) -> Firsts {
    let mut firsts = Firsts::default();
    let mut labels = statements.iter().filter_map(turns::number).max().map_or(0, |most| most + 1);
    // From the last on, so that those before stay where they are.
    for Peeled { label, from, to, own } in loops.into_iter().rev() {
        let Some(turn) = statements.get(from + 1..=to) else { continue };
        let Some(Statement::Instruction(Instruction { predicate: test, .. })) = turn.last().cloned() else {
            continue;
        };
        let mut other = || {
            labels += 1;
            format!("$L{}", labels - 1)
        };
        let (rest, behind) = (other(), other());
        let mut names: HashMap<&str, String> = HashMap::default();
        names.insert(&label, rest.clone());
        for statement in turn {
            if let Statement::Label(name, _) = statement {
                names.insert(name, other());
            }
        }
        for name in &own {
            let Some((class, _)) = Class::parse(name) else { continue };
            let number = fresh.entry(class).or_default();
            names.insert(name, format!("{}{number}", class.prefix()));
            *number += 1;
        }
        let done = Instruction {
            predicate: test.map(|test| Predicate { negated: !test.negated, ..test }),
            ..plain("bra", &[], vec![Operand::Symbol(behind.clone())], Span::default())
        };
        let mut copy = vec![Statement::Instruction(done), Statement::Label(rest.clone(), Span::default())];
        copy.extend(turn.iter().map(|statement| renamed(statement, &names)));
        copy.push(Statement::Label(behind.clone(), Span::default()));
        statements.splice(to + 1..to + 1, copy);
        firsts.add(label, behind, rest);
    }
    firsts
}

/// The statement that each one is when these loops have been written twice, in a body of so many; none for what is new.
fn origins(loops: &[Peeled], count: usize) -> Vec<Option<usize>> {
    let (mut origins, mut next) = (Vec::with_capacity(count), 0);
    for Peeled { from, to, .. } in loops {
        origins.extend((next..=*to).map(Some));
        origins.extend([None, None]);
        origins.extend((from + 1..=*to).map(Some));
        origins.push(None);
        next = to + 1;
    }
    origins.extend((next..count).map(Some));
    origins
}

/// Whether the accesses of a text in which these loops are written twice are proven as those of the text of so many
/// statements as it was.
pub(super) fn are_same(loops: &[Peeled], count: usize, before: &Proven, after: &Proven) -> bool {
    let mut accesses: HashMap<usize, Vec<(usize, Known)>> = HashMap::default();
    for ((statement, operand), known) in before {
        accesses.entry(*statement).or_default().push((*operand, *known));
    }
    let mut expected = Proven::default();
    for (index, origin) in origins(loops, count).into_iter().enumerate() {
        for (operand, known) in origin.and_then(|origin| accesses.get(&origin)).into_iter().flatten() {
            expected.insert((index, *operand), *known);
        }
    }
    expected == *after
}

fn is_of_tenant(statement: &Statement) -> bool {
    let Statement::Instruction(found) = statement else { return false };
    !matches!(found.operands.first(), Some(Operand::Register(name)) if names::is_reserved(name))
}

/// Whether a statement may be copied: nothing for which threads have to be at one place.
fn fits(statement: &Statement) -> bool {
    match statement {
        Statement::Instruction(instruction) => table::row_of(instruction).is_some_and(|row| {
            let goes_on = match row.treatment {
                Treatment::Barrier | Treatment::Gate | Treatment::Copy => false,
                Treatment::Branch => instruction.opcode == "bra",
                _ => !table::is_for_warps(row),
            };
            goes_on
                && !TOGETHER.contains(&instruction.opcode.as_str())
                && instruction.operands.iter().all(is_plain)
        }),
        Statement::Label(..) => true,
        Statement::Directive(directive) => names::is_nounroll(directive),
        Statement::Variable(_) | Statement::Block(..) => false,
    }
}

/// Whether the registers of an operand are found when they are named anew.
fn is_plain(operand: &Operand) -> bool {
    let known = matches!(
        operand,
        Operand::Register(_)
            | Operand::Symbol(_)
            | Operand::SymbolOffset(..)
            | Operand::Integer(_)
            | Operand::Float32(_)
            | Operand::Float64(_)
            | Operand::Address(_)
            | Operand::Vector(_)
            | Operand::Pair(..)
            | Operand::Not(_)
            | Operand::Negated(_)
            | Operand::Selected(..)
            | Operand::Sink
    );
    known && operand.inner().all(is_plain)
}

/// Whether control comes to a loop only where a test has said that it turns often: a copy before it goes around it.
fn is_for_many_turns(statements: &[Statement], from: usize, to: usize) -> bool {
    let is_label = |statement: &&Statement| matches!(statement, Statement::Label(..));
    let before =
        statements.get(..from).unwrap_or_default().iter().rev().find(|statement| !is_label(statement));
    let Some(Statement::Instruction(around)) = before else { return false };
    let behind = statements.get(to + 1..).unwrap_or_default().iter().take_while(is_label);
    let leads = |label: &Statement| matches!((label, around.operands.first()), (Statement::Label(name, _), Some(Operand::Symbol(to))) if name == to);
    around.opcode == "bra" && around.predicate.is_none() && behind.into_iter().any(leads)
}

/// Where registers are first and last named, and how often they are written.
struct Uses<'a> {
    named: HashMap<&'a str, (usize, usize)>,
    written: HashMap<&'a str, usize>,
}

impl<'a> Uses<'a> {
    fn of(statements: &'a [Statement], zeroed: &'a [String]) -> Self {
        let mut uses = Self { named: HashMap::default(), written: HashMap::default() };
        for name in zeroed {
            uses.named.insert(name, (0, statements.len()));
            uses.written.insert(name, 1);
        }
        for (at, statement) in statements.iter().enumerate() {
            let Statement::Instruction(found) = statement else { continue };
            let Some(row) = table::row_of(found) else { continue };
            let (mut names, mut writes) = (Vec::new(), Vec::new());
            table::registers(row, found, &mut |name| names.push(name), &mut |name| writes.push(name));
            for name in writes {
                *uses.written.entry(name).or_default() += 1;
                names.push(name);
            }
            for name in names {
                let (_, last) = uses.named.entry(name).or_insert((at, at));
                *last = at.max(*last);
            }
        }
        uses
    }

    /// Of the registers that a loop writes, those that it alone names. None where another is known everywhere, which it would
    /// not be if it were written in two places.
    fn inside(&self, statements: &[Statement], from: usize, to: usize) -> Option<Vec<String>> {
        let mut own = Vec::new();
        let mut seen: HashSet<&str> = HashSet::default();
        for statement in statements.get(from..=to)? {
            let Statement::Instruction(found) = statement else { continue };
            let row = table::row_of(found)?;
            let mut writes = Vec::new();
            table::written(row, found, &mut |name| writes.push(name));
            for name in writes {
                let Some((class, _)) = Class::parse(name) else { continue };
                if !seen.insert(name) {
                    continue;
                }
                let (first, last) = self.named.get(name).copied()?;
                if from <= first && last <= to {
                    own.push(name.to_owned());
                    continue;
                }
                let once = self.written.get(name).is_some_and(|count| *count == 1);
                if once && matches!(class, Class::Word | Class::Double) && !is_unknown(found) {
                    return None;
                }
            }
        }
        Some(own)
    }
}

/// Whether what an instruction computes is no number that anything is known of.
fn is_unknown(instruction: &Instruction) -> bool {
    let float =
        |modifier: &String| matches!(modifier.as_str(), "f16" | "f16x2" | "bf16" | "bf16x2" | "f32" | "f64");
    let loads =
        instruction.opcode == "ld" && instruction.modifiers.first().is_none_or(|space| space != "param");
    loads || instruction.predicate.is_some() || instruction.modifiers.last().is_some_and(float)
}

fn renamed(statement: &Statement, names: &HashMap<&str, String>) -> Statement {
    let anew = |name: &mut String| {
        if let Some(other) = names.get(name.as_str()) {
            name.clone_from(other);
        }
    };
    match statement {
        Statement::Label(name, span) => {
            let mut name = name.clone();
            anew(&mut name);
            Statement::Label(name, *span)
        }
        Statement::Instruction(found) => {
            let mut found = found.clone();
            if let Some(Predicate { register, .. }) = &mut found.predicate {
                anew(register);
            }
            found.operands.iter_mut().for_each(|operand| rename(operand, &anew));
            Statement::Instruction(found)
        }
        other => other.clone(),
    }
}

/// Names what an operand names anew.
fn rename(operand: &mut Operand, anew: &impl Fn(&mut String)) {
    match operand {
        Operand::Register(name)
        | Operand::Symbol(name)
        | Operand::Not(name)
        | Operand::Selected(name, _)
        | Operand::Address(Address { base: AddressBase::Register(name), .. }) => anew(name),
        Operand::Vector(list) => list.iter_mut().for_each(|inner| rename(inner, anew)),
        Operand::Pair(first, second) => {
            rename(first, anew);
            rename(second, anew);
        }
        Operand::Negated(inner) => rename(inner, anew),
        // Nothing else stands in what is copied that names a register or a label.
        _ => {}
    }
}
