//! Definite assignment: which registers have to be zeroed at entry so that none is read before it is written.
//!
//! A *region* is what lies between two labels: it is entered only at its top, so a write in it holds for the
//! rest of it. A write before the first label and the first branch holds everywhere. A register read where
//! neither holds is zeroed. This finds more registers than a fixpoint would; ptxas removes what is not needed.

use std::collections::{BTreeSet, HashMap};

use crate::ast::{Instruction, Operand, Span, Spans, Statement};
use crate::names::{self, Class};
use crate::report::{Reason, Report};
use crate::table::{self, Treatment};

/// The registers to be zeroed, in the order of their names.
pub(super) fn unassigned(statements: &[Statement], report: &mut Report) -> BTreeSet<(Class, u32)> {
    let mut zeroed = BTreeSet::new();
    let mut written: HashMap<&str, usize> = HashMap::new();
    // Region 0 ends with the first label or branch; later ones with a label.
    let mut region = 0;
    for statement in statements {
        let instruction = match statement {
            Statement::Label(..) => {
                region += 1;
                continue;
            }
            Statement::Instruction(instruction) => instruction,
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => continue,
        };
        let Ok(row) = table::check(instruction) else { continue };
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        table::registers(row, instruction, &mut |name| reads.push(name), &mut |name| writes.push(name));
        for name in reads {
            let assigned = written.get(name).is_some_and(|at| *at == 0 || *at == region);
            if assigned || names::is_special(name) {
                continue;
            }
            match Class::parse(name) {
                Some(register) => {
                    zeroed.insert(register);
                }
                None if name == table::CARRY => {
                    let text = "the carry flag is read where it may not have been written";
                    report.add(instruction.span, Reason::Malformed(text.to_owned()));
                }
                None => {}
            }
        }
        if instruction.predicate.is_none() {
            for name in writes {
                // A write that holds everywhere: no later one may hide it.
                let at = written.entry(name).or_insert(region);
                if *at != 0 {
                    *at = region;
                }
            }
        }
        if row.treatment == Treatment::Branch && region == 0 {
            region = 1;
        }
    }
    zeroed
}

/// Instructions that zero registers.
pub(super) fn zeroes(registers: &BTreeSet<(Class, u32)>, span: Span) -> impl Iterator<Item = Statement> + '_ {
    registers.iter().map(move |(class, number)| {
        Statement::Instruction(Instruction {
            predicate: None,
            opcode: "mov".to_owned(),
            modifiers: vec![class.mov().to_owned()],
            operands: vec![Operand::Register(format!("{}{number}", class.prefix())), Operand::Integer(0)],
            span,
            operand_spans: Spans::default(),
        })
    })
}
