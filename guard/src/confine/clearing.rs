//! Where an entry's shared memory is zeroed: behind what the threads load from global memory before anything else, so that
//! they wait for both at once.

use crate::maps::HashSet;

use super::leads::is_lead;
use crate::access;
use crate::ast::{Instruction, Space, Statement};
use crate::names;
use crate::table::{self, Row, Treatment};

/// The index of the statement before which that is: one that all threads come by, and by nothing before it that shared
/// memory or another thread has to do with. The last of these where something has been loaded before and nothing loaded is
/// read; otherwise the first of all.
pub(super) fn place(statements: &[Statement]) -> usize {
    let targets = back(statements);
    let (mut pending, mut loaded) = (HashSet::default(), HashSet::default());
    let (mut place, mut leads) = (0, false);
    for (index, statement) in statements.iter().enumerate() {
        if pending.is_empty() && !leads && !loaded.is_empty() {
            place = index;
        }
        match statement {
            Statement::Label(name, _) if targets.contains(name.as_str()) => break,
            Statement::Label(name, _) => {
                pending.remove(name.as_str());
                leads = false;
            }
            Statement::Instruction(instruction) => {
                let Some(row) = table::row_of(instruction) else { break };
                let mut reads = false;
                table::registers(row, instruction, &mut |name| reads |= loaded.contains(name), &mut |_| {});
                if reads || ends(row, instruction) {
                    break;
                }
                if row.treatment == Treatment::Load && spaces(row, instruction, Space::Global) {
                    table::written(row, instruction, &mut |name| {
                        loaded.insert(name);
                    });
                }
                pending.extend(table::target(row, instruction));
                leads = is_lead(instruction);
            }
            Statement::Directive(directive) if names::is_nounroll(directive) => {}
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => break,
        }
    }
    place
}

/// The labels that something goes back to.
fn back(statements: &[Statement]) -> HashSet<&str> {
    let (mut labels, mut targets) = (HashSet::default(), HashSet::default());
    for statement in statements {
        match statement {
            Statement::Label(name, _) => {
                labels.insert(name.as_str());
            }
            Statement::Instruction(instruction) => {
                let target = table::row_of(instruction).and_then(|row| table::target(row, instruction));
                targets.extend(target.filter(|target| labels.contains(target)));
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    targets
}

/// Whether a thread ends here, meets others, or accesses what is to be zeroed.
fn ends(row: &Row, instruction: &Instruction) -> bool {
    matches!(row.treatment, Treatment::Barrier | Treatment::Gate)
        || matches!(row.name, "ret" | "exit")
        || table::waits_for_lanes(row, instruction)
        || spaces(row, instruction, Space::Shared)
}

fn spaces(row: &Row, instruction: &Instruction, space: Space) -> bool {
    access::decode(row, instruction).map_or(true, |found| found.iter().any(|access| access.space == space))
}
