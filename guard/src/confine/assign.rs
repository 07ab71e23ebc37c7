//! Definite assignment: which registers have to be zeroed at entry so that none is read before it is written.
//!
//! What is read where the paths to it do not all write it is zeroed ([`Flow`]); ptxas removes what is not needed.

use std::collections::BTreeSet;

use crate::ast::{Instruction, Operand, Span, Spans, Statement};
use crate::flow::Flow;
use crate::names::{self, Class};
use crate::report::{Reason, Report};
use crate::table::{self, Treatment};

/// The registers to be zeroed, in the order of their names.
pub(super) fn unassigned(statements: &[Statement], report: &mut Report) -> BTreeSet<(Class, u32)> {
    let mut zeroed = BTreeSet::new();
    let mut flow = Flow::of(statements.len());
    for statement in statements {
        let instruction = match statement {
            Statement::Label(name, _) => {
                flow.label(name);
                continue;
            }
            Statement::Instruction(instruction) => instruction,
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => continue,
        };
        let Some(row) = table::row_of(instruction) else { continue };
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        table::registers(row, instruction, &mut |name| reads.push(name), &mut |name| writes.push(name));
        for name in reads {
            if flow.is_written(name) || names::is_special(name) || names::is_of_slice(name) {
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
        let always = instruction.predicate.is_none();
        if always {
            for name in writes {
                flow.write(name);
            }
        }
        if row.treatment == Treatment::Branch
            && let Some(Operand::Symbol(label)) = instruction.operands.first()
        {
            zeroed.extend(flow.branch(label).filter_map(Class::parse));
        }
        if always && (row.treatment == Treatment::Branch || matches!(row.name, "ret" | "exit")) {
            flow.end();
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
