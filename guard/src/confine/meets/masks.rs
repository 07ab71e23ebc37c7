//! Which waits for lanes are for all of them, although a register says so: on every way there it was last set to -1.
//!
//! Compilers keep a mask in a register that holds another one later, such as that of a group of the warp's lanes. Taken for a
//! mask of some lanes, such a wait would end threads that are on their way.

use crate::ast::{Instruction, Operand, Statement};
use crate::maps::HashMap;
use crate::table::{self, Row};

use super::known;

/// Passes over a body until nothing changes; a body that takes more keeps its registers.
const PASSES_MAX: usize = 16;

/// A set of mask registers, a bit each.
type Set = u64;

/// Writes -1 where a wait names a register that holds it.
pub(super) fn write_all_lanes(statements: &mut [Statement]) {
    let found = {
        let registers = Registers::of(statements);
        if registers.bits.is_empty() { Vec::new() } else { registers.waits(statements) }
    };
    for index in found {
        if let Some(Statement::Instruction(wait)) = statements.get_mut(index)
            && let Some(mask) = wait.operands.last_mut()
        {
            *mask = Operand::Integer(-1);
        }
    }
}

/// The registers that waits name as masks.
struct Registers<'s> {
    bits: HashMap<&'s str, Set>,
}

impl<'s> Registers<'s> {
    fn of(statements: &'s [Statement]) -> Self {
        let mut bits = HashMap::default();
        for name in statements
            .iter()
            .filter_map(|statement| known(statement).and_then(|(row, found)| mask(row, found)))
        {
            let next = bits.len();
            if next < Set::BITS as usize {
                bits.entry(name).or_insert(1 << next);
            }
        }
        Self { bits }
    }

    /// The waits whose register holds -1, by their places.
    fn waits(&self, statements: &[Statement]) -> Vec<usize> {
        // Before anything is known to come to a label, all hold -1 there.
        let mut at_labels: HashMap<&str, Set> = HashMap::default();
        for _ in 0..PASSES_MAX {
            let before = at_labels.clone();
            let mut found = Vec::new();
            // Nothing holds it at the beginning.
            let mut held: Set = 0;
            for (index, statement) in statements.iter().enumerate() {
                if let Statement::Label(name, _) = statement {
                    held &= at_labels.get(name.as_str()).copied().unwrap_or(Set::MAX);
                }
                let Some((row, instruction)) = known(statement) else { continue };
                if mask(row, instruction).is_some_and(|name| held & self.bit(name) != 0) {
                    found.push(index);
                }
                held = self.behind(row, instruction, held);
                if let Some(target) = table::target(row, instruction) {
                    *at_labels.entry(target).or_insert(Set::MAX) &= held;
                }
                if table::ends_path(row, instruction) {
                    held = Set::MAX;
                }
            }
            if at_labels == before {
                return found;
            }
        }
        Vec::new()
    }

    fn bit(&self, name: &str) -> Set {
        self.bits.get(name).copied().unwrap_or_default()
    }

    /// What holds -1 behind an instruction.
    fn behind(&self, row: &Row, instruction: &Instruction, held: Set) -> Set {
        let sets = row.name == "mov" && instruction.operands.get(1).is_some_and(table::names_all_lanes);
        let mut behind = held;
        table::written(row, instruction, &mut |name| match (sets, &instruction.predicate) {
            (true, None) => behind |= self.bit(name),
            // It holds -1 behind it if it did before.
            (true, Some(_)) => {}
            (false, _) => behind &= !self.bit(name),
        });
        behind
    }
}

/// The register that a wait for lanes names.
fn mask<'s>(row: &Row, instruction: &'s Instruction) -> Option<&'s str> {
    match instruction.operands.last() {
        Some(Operand::Register(name)) if table::waits_for_lanes(row, instruction) => Some(name),
        _ => None,
    }
}
