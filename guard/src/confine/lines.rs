//! The lines that texts of the confined form are made of.

use crate::ast::{Instruction, Linkage, Operand, Space, Span, Spans, Statement, Type, Variable};

/// A declaration without attributes.
pub(super) fn declared(space: Space, ty: Type, name: &str, range: Option<u32>, span: Span) -> Variable {
    Variable {
        linkage: Linkage::Internal,
        space,
        align: None,
        vector: 1,
        ty,
        name: name.to_owned(),
        dimensions: Vec::new(),
        range,
        pointer: None,
        initializer: Vec::new(),
        attributes: Vec::new(),
        span,
    }
}

/// One of the parameters that the executor appends.
pub(super) fn hidden_parameter(name: &str, span: Span) -> Variable {
    declared(Space::Parameter, Type::U32, name, None, span)
}

/// A register.
pub(super) fn register(name: &str) -> Operand {
    Operand::Register(name.to_owned())
}

/// An instruction without a predicate.
pub(super) fn instruction(opcode: &str, modifiers: &[&str], operands: Vec<Operand>, span: Span) -> Statement {
    Statement::Instruction(plain(opcode, modifiers, operands, span))
}

/// As [`instruction`], not yet a statement.
pub(super) fn plain(opcode: &str, modifiers: &[&str], operands: Vec<Operand>, span: Span) -> Instruction {
    Instruction {
        predicate: None,
        opcode: opcode.to_owned(),
        modifiers: modifiers.iter().map(|modifier| (*modifier).to_owned()).collect(),
        operands,
        span,
        operand_spans: Spans::default(),
    }
}

/// Whether control cannot run off the end.
pub(super) fn ends(statements: &[Statement]) -> bool {
    matches!(statements.last(), Some(Statement::Instruction(last))
        if last.predicate.is_none() && matches!(last.opcode.as_str(), "ret" | "exit" | "bra"))
}
