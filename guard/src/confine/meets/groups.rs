//! Lanes of a mask that is not all come together before they wait for each other.
//!
//! Where the device runs lanes apart, some of a group come to a wait before others, and CUDA has them wait there. Nothing
//! that ends a thread could end that wait. So they meet with whoever is left of the warp, wherever those are, and go around
//! until all of the group that are left have come: each turn looks at the flag as any other. A lane that its own mask does
//! not name goes on with the others.
//!
//! A barrier of the block that lanes may come to apart has such a loop, too, where a body has groups: whoever is there first
//! meets lanes of a group, which are not there yet.

use crate::ast::{Instruction, Operand, Predicate, Span, Statement};
use crate::confine::prologue::{instruction, plain, register};
use crate::confine::turns;
use crate::maps::{HashMap, HashSet};
use crate::names::Class;
use crate::table::{self, Row};

use super::masks::{self, known};

/// Words that are to hold who is left of the warp: votes into them are for all lanes, wherever those are.
pub(crate) type Left = HashSet<String>;

/// Has lanes come together in a body that neither looks at the flag nor has lanes meet yet. Answers which registers tell who
/// is left.
pub(crate) fn gather(statements: &mut Vec<Statement>, registers: &mut HashMap<Class, u32>) -> Left {
    masks::write_all_lanes(statements);
    if !statements.iter().any(|statement| known(statement).is_some_and(is_of_some)) {
        return Left::default();
    }
    let label = statements.iter().filter_map(turns::number).max().map_or(0, |most| most + 1);
    let mut fresh = |class: Class, letter: &str| {
        let count = registers.entry(class).or_default();
        *count += 1;
        format!("%{letter}{}", *count - 1)
    };
    let own = [fresh(Class::Word, "r"), fresh(Class::Word, "r"), fresh(Class::Predicate, "p")];
    let mut pass = Pass { out: Vec::with_capacity(statements.len() + 32), label, own, gathered: None };
    for statement in statements.drain(..) {
        pass.statement(statement);
    }
    *statements = pass.out;
    let [left, ..] = pass.own;
    Left::from_iter([left])
}

/// Whether lanes wait for others of a mask that is not all.
fn is_of_some((row, found): (&Row, &Instruction)) -> bool {
    table::waits_for_lanes(row, found) && !found.operands.last().is_some_and(table::names_all_lanes)
}

struct Pass {
    out: Vec<Statement>,
    /// The number of the next label.
    label: u64,
    /// Who is left, who is here with the same mask, and whether some are missing.
    own: [String; 3],
    /// The mask of which lanes have come together, as far as nothing leads away.
    gathered: Option<Operand>,
}

impl Pass {
    fn statement(&mut self, statement: Statement) {
        let Some((row, found)) = known(&statement) else {
            if matches!(statement, Statement::Label(..)) {
                self.gathered = None;
            }
            self.out.push(statement);
            return;
        };
        if is_of_some((row, found))
            && let Some(mask) = found.operands.last().cloned()
        {
            if self.gathered.as_ref() != Some(&mask) {
                self.turn(&mask);
                self.gathered = Some(mask);
            }
        } else if table::waits_for_block(row, found) {
            // All that are left.
            self.turn(&Operand::Integer(-1));
            self.gathered = None;
        }
        if let Some(Operand::Register(mask)) = &self.gathered {
            let mut changes = false;
            table::written(row, found, &mut |name| changes |= name == mask);
            if changes {
                self.gathered = None;
            }
        }
        if matches!(row.treatment, table::Treatment::Branch | table::Treatment::Gate) {
            self.gathered = None;
        }
        self.out.push(statement);
    }

    /// Goes around until all lanes of a mask that are left are here.
    fn turn(&mut self, mask: &Operand) {
        let span = Span::default();
        let again = format!("$L{}", self.label);
        self.label += 1;
        let [left, here, missing] = &self.own;
        let all = || Operand::Integer(-1);
        let vote = vec![register(left), Operand::Integer(1), all()];
        let alike = vec![register(here), mask.clone(), all()];
        // Of those that are left and in the mask, who is not here.
        let others =
            vec![register(here), register(left), mask.clone(), register(here), Operand::Integer(0x40)];
        let mut branch = plain("bra", &[], vec![Operand::Symbol(again.clone())], span);
        branch.predicate = Some(Predicate { register: missing.clone(), negated: false });
        self.out.extend([
            Statement::Label(again, span),
            instruction("vote", &["sync", "ballot", "b32"], vote, span),
            instruction("match", &["any", "sync", "b32"], alike, span),
            instruction("lop3", &["b32"], others, span),
            instruction(
                "setp",
                &["ne", "s32"],
                vec![register(missing), register(here), Operand::Integer(0)],
                span,
            ),
            Statement::Instruction(branch),
        ]);
    }
}
