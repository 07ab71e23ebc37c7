//! Lanes of a mask that is not all come together before they wait for each other.
//!
//! A device may run lanes of a group apart, as behind a loop that they leave one after another. So before such a wait stands
//! a loop, which polls as any other does: all lanes that are left of the warp meet, wherever they are, and it turns until
//! none of the group is elsewhere. A wait for all lanes has a loop, too, as has a barrier of the block: whoever comes there
//! first meets lanes of a group elsewhere, and would go on without them. And where a loop polls, lanes meet: they may spin
//! until lanes of a group have gone on. See decision 0082.

use crate::ast::{Instruction, Operand, Predicate, Span, Statement};
use crate::confine::leads::is_lead;
use crate::confine::lines::{instruction, plain, register};
use crate::confine::poll;
use crate::confine::{copies, turns};
use crate::maps::HashMap;
use crate::names::{self, Class};
use crate::table::{self, Row, Treatment};

use super::{known, masks, waiting};

/// The register in which the loops have who is left of the warp; none in a body without such loops.
pub(crate) type Left = Option<String>;

/// Puts the loops into a confined body that does not look at the flag yet. Registers of each class are numbered from what
/// `registers` says on.
pub(crate) fn gather(statements: &mut Vec<Statement>, registers: &mut HashMap<Class, u32>) -> Left {
    masks::write_all_lanes(statements);
    if !statements.iter().filter_map(waiting).any(|(row, found)| is_of_group(row, found)) {
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
fn is_of_group(row: &Row, found: &Instruction) -> bool {
    table::waits_for_lanes(row, found)
        && !table::is_for_all_left(found)
        && found.operands.last().is_some_and(|mask| !table::names_all_lanes(mask))
}

/// Has lanes meet wherever a body with such loops polls: whoever spins until lanes of a group have gone on lets them. Not in the
/// loops themselves, where they meet once a turn: with a second meeting in some turns, lanes of one loop could be at different ones
/// of it each time, for ever.
pub(super) fn meet_at_polls(statements: Vec<Statement>, left: &str) -> Vec<Statement> {
    let inside = inside_gatherings(&statements, left);
    let mut out = Vec::with_capacity(statements.len() + 16);
    for (statement, is_inside) in statements.into_iter().zip(inside) {
        if !is_inside && matches!(&statement, Statement::Instruction(found) if poll::begins(found)) {
            let operands = vec![register(left), Operand::Integer(1), Operand::Integer(-1)];
            out.push(instruction("vote", &["sync", "ballot", "b32"], operands, Span::default()));
        }
        out.push(statement);
    }
    out
}

/// For each statement, whether it belongs to a loop in which lanes come together: around its vote, what is of the guard's own
/// registers and no label of somebody else's is behind it.
fn inside_gatherings(statements: &[Statement], left: &str) -> Vec<bool> {
    let mut inside = vec![false; statements.len()];
    let votes = |statement: &Statement| matches!(statement, Statement::Instruction(found) if found.opcode == "vote" && writes(found, left));
    for vote in (0..statements.len()).filter(|at| statements.get(*at).is_some_and(votes)) {
        let before = statements.iter().take(vote).rev();
        let before = before.take_while(|statement| match statement {
            Statement::Label(..) | Statement::Directive(_) => true,
            Statement::Instruction(found) => is_own(found),
            Statement::Variable(_) | Statement::Block(..) => false,
        });
        // Behind the match among those that are here: what it is compared with, and the way back. The wait comes next.
        let behind = statements.iter().skip(vote + 2).take_while(|statement| {
            let goes_back = |found: &Instruction| matches!(found.opcode.as_str(), "lop3" | "setp" | "bra");
            matches!(statement, Statement::Instruction(found) if is_own(found) || goes_back(found))
        });
        let (begin, end) = (vote - before.count(), (vote + 2 + behind.count()).min(statements.len()));
        inside.get_mut(begin..end).unwrap_or_default().fill(true);
    }
    inside
}

fn writes(found: &Instruction, register: &str) -> bool {
    matches!(found.operands.first(), Some(Operand::Register(to)) if to == register)
}

/// An instruction of a poll or of a counter of turns.
fn is_own(found: &Instruction) -> bool {
    let ends = found.opcode == "exit"
        && found.predicate.as_ref().is_some_and(|when| names::is_reserved(&when.register));
    match found.operands.first() {
        Some(Operand::Register(to)) => names::is_reserved(to),
        _ => ends || copies::waits(found),
    }
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
        // Who waits with the same mask: a lane that is here with another has not come.
        put("match", &["any", "sync", "b32"], vec![missing(), mask.clone(), all()]);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(to: &str) -> Statement {
        instruction(
            "vote",
            &["sync", "ballot", "b32"],
            vec![register(to), Operand::Integer(1), Operand::Integer(-1)],
            Span::default(),
        )
    }

    fn poll() -> Vec<Statement> {
        let exit = plain("exit", &[], Vec::new(), Span::default());
        let predicate = Some(Predicate { register: "%bh_q".to_owned(), negated: false });
        let mut poll = poll::start();
        poll.push(Statement::Instruction(Instruction { predicate, ..exit }));
        poll
    }

    fn label(name: &str) -> Statement {
        Statement::Label(name.to_owned(), Span::default())
    }

    fn line(opcode: &str, to: &str) -> Statement {
        instruction(opcode, &["b32"], vec![register(to), Operand::Integer(0)], Span::default())
    }

    #[test]
    fn lanes_meet_at_each_poll_but_for_those_of_the_loops_in_which_they_come_together() {
        let back = |to: &str| {
            Statement::Instruction(plain("bra", &[], vec![Operand::Symbol(to.to_owned())], Span::default()))
        };
        let gathering = |at_head: bool| {
            let mut lines = vec![label("$L0"), line("mov", "%bh_c0"), label("$L1")];
            lines.extend(if at_head { poll() } else { Vec::new() });
            lines.extend([
                vote("%r8"),
                line("match", "%r9"),
                line("lop3", "%r9"),
                line("setp", "%p3"),
                back("$L1"),
            ]);
            lines.extend(if at_head { Vec::new() } else { poll() });
            lines.push(back("$L0"));
            lines
        };
        let votes = |statements: &[Statement]| {
            let count = statements.iter().filter(
                |statement| matches!(statement, Statement::Instruction(found) if found.opcode == "vote"),
            );
            count.count()
        };
        for at_head in [false, true] {
            let inside = gathering(at_head);
            assert_eq!(votes(&meet_at_polls(inside.clone(), "%r8")), 1, "{at_head}");
            // A loop of the program's around it, and one before.
            let mut around = vec![label("$L4")];
            around.extend(poll());
            around.push(line("add", "%r1"));
            around.extend(inside);
            around.extend([line("shfl", "%r2"), line("add", "%r1")]);
            around.extend(poll());
            around.push(back("$L4"));
            assert_eq!(votes(&meet_at_polls(around, "%r8")), 3, "{at_head}");
        }
    }
}
