//! Bodies: statements, with the open braces on a stack of our own.

use super::cursor::{Cursor, Parsed};
use super::{declaration, directive, operand};
use crate::ast::{Instruction, Linkage, Operand, Predicate, Span, Spans, Statement};
use crate::limits::{MODIFIERS_MAX, NESTING_MAX, OPERANDS_MAX};
use crate::report::{Reason, shorten};
use crate::table;
use crate::tokens::TokenKind;

/// The statements up to the brace that ends the body, whose opening brace has been read.
pub(super) fn body(cursor: &mut Cursor<'_>) -> Parsed<Vec<Statement>> {
    let mut outer: Vec<(Vec<Statement>, Span)> = Vec::new();
    let mut current = Vec::new();
    loop {
        let span = cursor.here();
        if cursor.at_end() {
            return cursor.unexpected("`}`");
        }
        if cursor.take_punctuation("{") {
            cursor.count_statement()?;
            if outer.len() + 1 == NESTING_MAX {
                let reason = Reason::Limit { what: "braces inside one another", most: NESTING_MAX as u64 };
                cursor.vectors = outer.len() + 2;
                return cursor.fail(span, reason);
            }
            outer.push((std::mem::take(&mut current), span));
        } else if cursor.take_punctuation("}") {
            let Some((parent, opened)) = outer.pop() else { return Ok(current) };
            let mut block = std::mem::replace(&mut current, parent);
            block.shrink_to_fit();
            current.push(Statement::Block(block, opened));
        } else if statement(cursor, &mut current).is_err() {
            cursor.skip_statement();
        }
    }
}

fn statement(cursor: &mut Cursor<'_>, into: &mut Vec<Statement>) -> Parsed<()> {
    cursor.count_statement()?;
    if cursor.take_punctuation(";") {
        return Ok(());
    }
    if cursor.peek_kind() == Some(TokenKind::Word) && cursor.second_text() == ":" {
        let span = cursor.here();
        let name = cursor.name("a label")?;
        cursor.bump();
        into.push(Statement::Label(name, span));
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
    let start = cursor.here();
    let predicate = if cursor.take_punctuation("@") {
        let negated = cursor.take_punctuation("!");
        Some(Predicate { register: cursor.name("a predicate register")?, negated })
    } else {
        None
    };
    let opcode_span = cursor.here();
    let opcode = cursor.name("an instruction")?;
    // What stands for more while a body is confined begins so; PTX has none.
    if opcode.starts_with('%') {
        let found = shorten(&opcode).to_owned();
        return cursor.fail(opcode_span, Reason::Expected { expected: "an instruction", found });
    }
    let mut modifiers = Vec::new();
    while cursor.peek_kind() == Some(TokenKind::DotWord) {
        if modifiers.len() == MODIFIERS_MAX {
            return cursor.fail(opcode_span, Reason::Limit { what: "modifiers", most: MODIFIERS_MAX as u64 });
        }
        modifiers.push(cursor.peek_text().trim_start_matches('.').to_owned());
        cursor.bump();
    }
    cursor.calls = opcode == "call";
    let before = cursor.report.findings.len();
    match operands(cursor) {
        Ok((mut operands, mut operand_spans, end)) => {
            let span = Span { end, ..start };
            // What has one element took room for four: a text of many such statements is charged for what it takes.
            modifiers.shrink_to_fit();
            operands.shrink_to_fit();
            operand_spans.0.shrink_to_fit();
            Ok(Instruction { predicate, opcode, modifiers, operands, span, operand_spans })
        }
        Err(stop) => {
            // What a refused opcode's operands look like is beside the point.
            if let Some(reason) = table::refusal(&opcode, &modifiers) {
                cursor.report.replace_since(before, opcode_span, reason);
            }
            Err(stop)
        }
    }
}

/// The operands up to the semicolon, where each stands, and where the last one ends.
fn operands(cursor: &mut Cursor<'_>) -> Parsed<(Vec<Operand>, Spans, u32)> {
    let (mut operands, mut spans) = (Vec::new(), Vec::new());
    let mut budget = OPERANDS_MAX;
    let mut end = cursor.last_end();
    if cursor.take_punctuation(";") {
        return Ok((operands, Spans(spans), end));
    }
    loop {
        let start = cursor.here();
        operands.push(operand::operand(cursor, &mut budget, 0)?);
        let span = cursor.since(start);
        spans.push(span);
        end = span.end;
        if !cursor.take_punctuation(",") {
            // `call (r), f, (a);` separates by commas, `call (r) f (a)` is not PTX.
            cursor.expect_punctuation(";", "`,` or `;`")?;
            return Ok((operands, Spans(spans), end));
        }
    }
}
