//! Lanes of a mask that is not all come together before they wait for each other.
//!
//! A device may run lanes of a group apart, as behind a loop that they leave one after another. So before such a wait stands
//! a loop, which polls as any other does: all lanes that are left of the warp meet, wherever they are, and it turns until
//! none of the group is elsewhere. A wait for all lanes has a loop, too, as has a barrier of the block: whoever comes there
//! first meets lanes of a group elsewhere, and would go on without them. And where a loop polls, lanes meet: they may spin
//! until lanes of a group have gone on. See decision 0082.

use crate::ast::{Instruction, Operand, Predicate, Span, Statement};
use crate::confine::poll::{self, is_lead};
use crate::confine::prologue::{instruction, plain, register};
use crate::confine::turns;
use crate::maps::HashMap;
use crate::names::Class;
use crate::table::{self, Row, Treatment};

use super::{known, masks, waiting};

/// The register in which the loops have who is left of the warp; none in a body without such loops.
pub(in crate::confine) type Left = Option<String>;

/// Puts the loops into a confined body that does not look at the flag yet. Registers of each class are numbered from what
/// `registers` says on.
pub(in crate::confine) fn gather(
    statements: &mut Vec<Statement>,
    registers: &mut HashMap<Class, u32>,
) -> Left {
    masks::write_all_lanes(statements);
    if !statements.iter().filter_map(waiting).any(is_of_group) {
        return None;
    }
    let mut fresh = |class: Class| {
        let number = registers.entry(class).or_default();
        *number += 1;
        format!("{}{}", class.prefix(), *number - 1)
    };
    let (left, missing) = (fresh(Class::Word), fresh(Class::Word));
    let mut pass = Pass {
        out: Vec::with_capacity(statements.len() + 64),
        labels: statements.iter().filter_map(turns::number).max().map_or(0, |most| most + 1),
        left,
        missing,
        is_any: fresh(Class::Predicate),
        gathered: None,
    };
    statements.drain(..).for_each(|statement| pass.statement(statement));
    *statements = pass.out;
    Some(pass.left)
}

/// Whether an instruction waits for the lanes of a mask that is not all.
fn is_of_group((row, found): (&Row, &Instruction)) -> bool {
    table::waits_for_lanes(row, found)
        && !table::is_for_all_left(found)
        && found.operands.last().is_some_and(|mask| !table::names_all_lanes(mask))
}

/// Has lanes meet wherever a body with such loops polls: whoever spins until lanes of a group have gone on lets them.
pub(super) fn meet_at_polls(statements: Vec<Statement>, left: &str) -> Vec<Statement> {
    let mut out = Vec::with_capacity(statements.len() + 16);
    for statement in statements {
        if matches!(&statement, Statement::Instruction(found) if poll::begins(found)) {
            let operands = vec![register(left), Operand::Integer(1), Operand::Integer(-1)];
            out.push(instruction("vote", &["sync", "ballot", "b32"], operands, Span::default()));
        }
        out.push(statement);
    }
    out
}

struct Pass {
    out: Vec<Statement>,
    /// The number of the next label.
    labels: u64,
    left: String,
    missing: String,
    is_any: String,
    /// The mask whose lanes are together on this straight way.
    gathered: Option<Operand>,
}

impl Pass {
    /// A statement, before which lanes may have to come together.
    fn statement(&mut self, statement: Statement) {
        if matches!(statement, Statement::Label(..)) {
            self.gathered = None;
        }
        if let Some(mask) = wanted(&statement) {
            self.together(mask);
        }
        if let Some((row, found)) = known(&statement) {
            if matches!(row.treatment, Treatment::Branch | Treatment::Gate) {
                self.gathered = None;
            }
            if let Some(Operand::Register(mask)) = &self.gathered {
                let mut changes = false;
                table::written(row, found, &mut |name| changes |= name == mask);
                if changes {
                    self.gathered = None;
                }
            }
        }
        self.out.push(statement);
    }

    /// All lanes of a mask that are left come here.
    fn together(&mut self, mask: Operand) {
        let is_there = |there: &Operand| *there == mask || table::names_all_lanes(there);
        if self.gathered.as_ref().is_some_and(is_there) {
            return;
        }
        let leads = |before: &&Statement| {
            let waits = || waiting(before).is_some_and(|(row, found)| table::waits_for_lanes(row, found));
            matches!(before, Statement::Instruction(found) if is_lead(found)) && !waits()
        };
        let at = self.out.len() - self.out.iter().rev().take_while(leads).count();
        let lead = self.out.split_off(at);
        let again = format!("$L{}", self.labels);
        self.labels += 1;
        let (left, missing) = (|| register(&self.left), || register(&self.missing));
        let (all, span) = (|| Operand::Integer(-1), Span::default());
        let mut lines = vec![Statement::Label(again.clone(), span)];
        let mut put = |opcode: &str, modifiers: &[&str], operands| {
            lines.push(instruction(opcode, modifiers, operands, span));
        };
        put("vote", &["sync", "ballot", "b32"], vec![left(), Operand::Integer(1), all()]);
        put("match", &["any", "sync", "b32"], vec![missing(), Operand::Integer(0), all()]);
        // Who is left and of the mask and not here.
        let operands = vec![missing(), left(), mask.clone(), missing(), Operand::Integer(0x40)];
        put("lop3", &["b32"], operands);
        put("setp", &["ne", "s32"], vec![register(&self.is_any), missing(), Operand::Integer(0)]);
        let mut branch = plain("bra", &[], vec![Operand::Symbol(again)], span);
        branch.predicate = Some(Predicate { register: self.is_any.clone(), negated: false });
        lines.push(Statement::Instruction(branch));
        self.out.extend(lines);
        self.out.extend(lead);
        self.gathered = Some(mask);
    }
}

/// Whose lanes have to come together before a statement, as a mask.
fn wanted(statement: &Statement) -> Option<Operand> {
    let (row, found) = waiting(statement)?;
    let all = || Some(Operand::Integer(-1));
    if table::is_for_warps(row) || table::waits_for_block(row, found) || table::is_for_all_left(found) {
        return all();
    }
    let mask = table::waits_for_lanes(row, found).then(|| found.operands.last())??;
    match mask {
        mask if table::names_all_lanes(mask) => all(),
        Operand::Integer(value) => Some(Operand::Integer(super::low(*value).into())),
        mask => Some(mask.clone()),
    }
}
