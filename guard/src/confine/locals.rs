//! Where an entry's local variable is zeroed: as late as one place before all that touches it can be, so that what is
//! seldom needed is seldom zeroed.

use crate::maps::HashMap;

use super::leads::is_lead;
use crate::access as accesses;
use crate::ast::{Instruction, Space, Statement};
use crate::flow::Flow;
use crate::table::{self, Row};

/// Stands for the place among the registers that are written.
const PASSED: &str = "%bh_zeroed";

/// The index of the statement before which that place is; none where nothing touches the variable.
///
/// Every path to an access passes it, once.
pub(super) fn place(statements: &[Statement]) -> Option<usize> {
    let (mut first, mut last) = (None, 0);
    let mut labels: HashMap<&str, usize> = HashMap::default();
    let mut branches = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Label(name, _) => {
                labels.insert(name, index);
            }
            Statement::Instruction(instruction) => {
                let Some(row) = table::row_of(instruction) else { continue };
                if touches(row, instruction) {
                    first.get_or_insert(index);
                    last = index;
                }
                if let Some(target) = table::target(row, instruction) {
                    branches.push((index, target));
                }
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    let first = first?;
    // How many branches go around each place, or come back to before it: what begins and ends, as differences.
    let mut around = vec![0_i32; statements.len() + 2];
    for (from, target) in branches {
        let Some(to) = labels.get(target).copied() else { continue };
        let (begin, end) = match to > from {
            true if to > last => continue,
            true => (from + 1, to),
            false => (to + 1, from),
        };
        if let [Some(begin), Some(end)] = [begin, end + 1].map(|at| around.get(at).map(|_| at)) {
            around[begin] += 1;
            around[end] -= 1;
        }
    }
    let (mut crossing, mut place) = (0, 0);
    for index in 0..=first {
        crossing += around.get(index).copied().unwrap_or(0);
        let leads = index.checked_sub(1).and_then(|before| statements.get(before)).is_some_and(
            |before| matches!(before, Statement::Instruction(instruction) if is_lead(instruction)),
        );
        if crossing == 0 && !leads {
            place = index;
        }
    }
    Some(if is_passed(statements, place) { place } else { 0 })
}

/// Whether it can be seen in one pass that every path to an access passes a place.
fn is_passed(statements: &[Statement], place: usize) -> bool {
    let mut flow = Flow::of(statements.len());
    statements.iter().enumerate().all(|(index, statement)| {
        if index == place {
            flow.write(PASSED);
        }
        let instruction = match statement {
            Statement::Label(name, _) => {
                flow.label(name);
                return true;
            }
            Statement::Instruction(instruction) => instruction,
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => return true,
        };
        let Some(row) = table::row_of(instruction) else { return true };
        let seen = !touches(row, instruction) || flow.is_written(PASSED);
        let kept = table::target(row, instruction).is_none_or(|target| flow.branch(target).next().is_none());
        if table::ends_path(row, instruction) {
            flow.end();
        }
        seen && kept
    })
}

/// Whether an instruction accesses local memory.
fn touches(row: &Row, instruction: &Instruction) -> bool {
    accesses::decode(row, instruction)
        .is_ok_and(|accesses| accesses.iter().any(|access| access.space == Space::Local))
}
