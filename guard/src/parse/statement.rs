//! Bodies: statements, with the open braces on a stack of our own.

use super::cursor::{Cursor, Parsed};
use super::{declaration, directive, operand};
use crate::ast::{Instruction, Linkage, Operand, Predicate, Statement};
use crate::limits::{MODIFIERS_MAX, NESTING_MAX, OPERANDS_MAX};
use crate::report::Reason;
use crate::table;
use crate::tokens::TokenKind;

/// The statements up to the brace that ends the body, whose opening brace has been read.
pub(super) fn body(cursor: &mut Cursor<'_>) -> Parsed<Vec<Statement>> {
    let mut outer: Vec<Vec<Statement>> = Vec::new();
    let mut current = Vec::new();
    loop {
        let place = cursor.place();
        if cursor.at_end() {
            return cursor.unexpected("`}`");
        }
        if cursor.take_punctuation("{") {
            cursor.count_statement()?;
            if outer.len() + 1 == NESTING_MAX {
                let reason = Reason::Limit { what: "braces inside one another", most: NESTING_MAX as u64 };
                cursor.vectors = outer.len() + 2;
                return cursor.fail(place, reason);
            }
            outer.push(std::mem::take(&mut current));
        } else if cursor.take_punctuation("}") {
            let Some(parent) = outer.pop() else { return Ok(current) };
            let block = std::mem::replace(&mut current, parent);
            current.push(Statement::Block(block));
        } else if statement(cursor, &mut current).is_err() {
            cursor.skip_statement();
        }
    }
}

fn statement(cursor: &mut Cursor<'_>, into: &mut Vec<Statement>) -> Parsed<()> {
    cursor.count_statement()?;
    if cursor.take_punctuation(";") || directive::skip_debug(cursor)? {
        return Ok(());
    }
    if cursor.peek_kind() == Some(TokenKind::Word) && cursor.second_text() == ":" {
        let place = cursor.place();
        let name = cursor.name("a label")?;
        cursor.bump();
        into.push(Statement::Label(name, place));
        return Ok(());
    }
    if let Some(space) = declaration::space(cursor) {
        let variables = declaration::variables(cursor, Linkage::Internal, space)?;
        into.extend(variables.into_iter().map(Statement::Variable));
        return Ok(());
    }
    let statement = match cursor.peek_kind() {
        Some(TokenKind::DotWord) => Statement::Directive(directive::directive(cursor)?),
        _ => Statement::Instruction(instruction(cursor)?),
    };
    into.push(statement);
    Ok(())
}

fn instruction(cursor: &mut Cursor<'_>) -> Parsed<Instruction> {
    let predicate = if cursor.take_punctuation("@") {
        let negated = cursor.take_punctuation("!");
        Some(Predicate { register: cursor.name("a predicate register")?, negated })
    } else {
        None
    };
    let place = cursor.place();
    let opcode = cursor.name("an instruction")?;
    let mut modifiers = Vec::new();
    while cursor.peek_kind() == Some(TokenKind::DotWord) {
        if modifiers.len() == MODIFIERS_MAX {
            return cursor.fail(place, Reason::Limit { what: "modifiers", most: MODIFIERS_MAX as u64 });
        }
        modifiers.push(cursor.peek_text().trim_start_matches('.').to_owned());
        cursor.bump();
    }
    let before = cursor.report.findings.len();
    match operands(cursor) {
        Ok(operands) => Ok(Instruction { predicate, opcode, modifiers, operands, place }),
        Err(stop) => {
            // What a refused opcode's operands look like is beside the point.
            if let Some(reason) = table::refusal(&opcode) {
                cursor.report.replace_since(before, place, reason);
            }
            Err(stop)
        }
    }
}

fn operands(cursor: &mut Cursor<'_>) -> Parsed<Vec<Operand>> {
    let mut operands = Vec::new();
    let mut budget = OPERANDS_MAX;
    if cursor.take_punctuation(";") {
        return Ok(operands);
    }
    loop {
        operands.push(operand::operand(cursor, &mut budget, 0)?);
        if !cursor.take_punctuation(",") {
            // `call (r), f, (a);` separates by commas, `call (r) f (a)` is not PTX.
            cursor.expect_punctuation(";", "`,` or `;`")?;
            return Ok(operands);
        }
    }
}
