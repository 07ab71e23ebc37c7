//! Directives, kept as text, and debug sections.

use super::cursor::{Cursor, Parsed};
use super::{declaration, expression, operand};
use crate::ast::{Directive, Operand, Section, SectionLine, Span};
use crate::limits::{MODIFIERS_MAX, OPERANDS_MAX};
use crate::report::Reason;
use crate::tokens::TokenKind;

/// Tokens of one directive.
const TOKENS_MAX: usize = OPERANDS_MAX * MODIFIERS_MAX;

/// `.section name { label: .b8 value, value ... }`
pub(super) fn section(cursor: &mut Cursor<'_>) -> Parsed<Section> {
    let start = cursor.here();
    cursor.bump();
    let (name, _) = cursor.expect_kind(TokenKind::DotWord, "a section's name")?;
    cursor.expect_punctuation("{", "`{`")?;
    cursor.vectors = 1;
    let mut lines = Vec::new();
    while !cursor.take_punctuation("}") {
        if cursor.peek_kind() == Some(TokenKind::Word) && cursor.second_text() == ":" {
            lines.push(SectionLine::Label(cursor.name("a label")?));
            cursor.bump();
            continue;
        }
        let Some(ty) = declaration::type_named(cursor.peek_text()) else {
            return cursor.unexpected("a type or a label");
        };
        cursor.bump();
        // Compilers write a byte a line.
        let mut values = match lines.pop() {
            Some(SectionLine::Data(before, values)) if before == ty => values,
            Some(line) => {
                lines.push(line);
                Vec::new()
            }
            None => Vec::new(),
        };
        loop {
            cursor.count_statement()?;
            values.push(value(cursor)?);
            if !cursor.take_punctuation(",") {
                break;
            }
        }
        cursor.take_punctuation(";");
        lines.push(SectionLine::Data(ty, values));
    }
    cursor.vectors = 0;
    Ok(Section { name: name.to_owned(), lines, span: cursor.since(start) })
}

/// A value of a section, which may name another section.
fn value(cursor: &mut Cursor<'_>) -> Parsed<Operand> {
    let name = cursor.peek_text();
    if cursor.peek_kind() != Some(TokenKind::DotWord) || expression::starts_number(name) {
        return operand::operand(cursor, &mut 1, 0);
    }
    cursor.bump();
    if matches!(cursor.peek_text(), "+" | "-") {
        return Ok(Operand::SymbolOffset(name.to_owned(), expression::offset(cursor)?));
    }
    Ok(Operand::Symbol(name.to_owned()))
}

/// `.file index "name" {, time, size}`
fn file(cursor: &mut Cursor<'_>) -> Parsed<Vec<String>> {
    let number = cursor.unsigned("a file number")?;
    let (name, _) = cursor.expect_kind(TokenKind::Text, "a file name")?;
    let mut operands = vec![format!("{number} {name}")];
    while cursor.take_punctuation(",") {
        operands.push(cursor.unsigned("a number")?.to_string());
    }
    Ok(operands)
}

/// `.loc file line column {, function_name label {+ number}, inlined_at file line column}`
fn location(cursor: &mut Cursor<'_>) -> Parsed<Vec<String>> {
    let mut operands = vec![position(cursor)?];
    while cursor.take_punctuation(",") {
        let span = cursor.here();
        match cursor.name("`function_name` or `inlined_at`")?.as_str() {
            "function_name" => {
                let mut text = format!("function_name {}", cursor.name("a label")?);
                if cursor.take_punctuation("+") {
                    text.push_str(&format!(" + {}", cursor.unsigned("a number")?));
                }
                operands.push(text);
            }
            "inlined_at" => operands.push(format!("inlined_at {}", position(cursor)?)),
            name => {
                let found = format!("`{}`", crate::report::shorten(name));
                let expected = "`function_name` or `inlined_at`";
                return cursor.fail(span, Reason::Expected { expected, found });
            }
        }
    }
    Ok(operands)
}

fn position(cursor: &mut Cursor<'_>) -> Parsed<String> {
    let mut number = || cursor.unsigned("file, line and column");
    Ok(format!("{} {} {}", number()?, number()?, number()?))
}

/// `.target word, word`, where it stands again.
fn targets(cursor: &mut Cursor<'_>) -> Parsed<Vec<String>> {
    let mut operands = vec![cursor.name("a target")?];
    while cursor.take_punctuation(",") {
        operands.push(cursor.name("a target")?);
    }
    Ok(operands)
}

/// `.name operand, operand;`, or one of the few that have no semicolon.
pub(super) fn directive(cursor: &mut Cursor<'_>) -> Parsed<Directive> {
    let (name, start) = cursor.expect_kind(TokenKind::DotWord, "a directive")?;
    let operands = match name {
        ".file" => file(cursor)?,
        ".loc" => location(cursor)?,
        ".target" => targets(cursor)?,
        _ => {
            let operands = texts(cursor, start)?;
            cursor.expect_punctuation(";", "`;`")?;
            operands
        }
    };
    Ok(Directive { name: name.to_owned(), operands, span: cursor.since(start) })
}

/// Whether a directive is not ended by a semicolon, outside of a function's head.
pub(crate) fn ends_itself(name: &str) -> bool {
    matches!(name, ".file" | ".loc" | ".target")
}

/// Operands up to a semicolon or closing parenthesis, each as its tokens with one blank between them.
fn texts(cursor: &mut Cursor<'_>, start: Span) -> Parsed<Vec<String>> {
    let mut operands = Vec::new();
    let mut parentheses = 0_usize;
    let mut operand = String::new();
    for _ in 0..TOKENS_MAX {
        match cursor.peek_text() {
            "" | "{" | "}" => return cursor.unexpected("`;`"),
            ";" => {
                if !operand.is_empty() {
                    operands.push(operand);
                } else if !operands.is_empty() {
                    return cursor.unexpected("an operand");
                }
                return Ok(operands);
            }
            ")" if parentheses == 0 => {
                operands.push(operand);
                return Ok(operands);
            }
            "," if parentheses == 0 => {
                if operand.is_empty() {
                    return cursor.unexpected("an operand");
                }
                operands.push(std::mem::take(&mut operand));
            }
            text => {
                match text {
                    "(" => parentheses += 1,
                    ")" => parentheses -= 1,
                    _ => {}
                }
                if !operand.is_empty() {
                    operand.push(' ');
                }
                operand.push_str(text);
            }
        }
        cursor.bump();
    }
    cursor.fail(start, Reason::Limit { what: "tokens in a directive", most: TOKENS_MAX as u64 })
}

/// `.attribute(.managed, .unified(19, 95))`, its attributes as texts.
pub(super) fn attributes(cursor: &mut Cursor<'_>, into: &mut Vec<String>) -> Parsed<()> {
    let start = cursor.here();
    cursor.bump();
    cursor.expect_punctuation("(", "`(`")?;
    let found = texts(cursor, start)?;
    if found.iter().any(String::is_empty) {
        return cursor.unexpected("an attribute");
    }
    cursor.expect_punctuation(")", "`)`")?;
    into.extend(found);
    Ok(())
}

/// What stands between a function's parameters and its body: `.maxntid 256, 1, 1 .minnctapersm 2`.
pub(super) fn function_directives(cursor: &mut Cursor<'_>) -> Parsed<Vec<Directive>> {
    let mut directives = Vec::new();
    while cursor.peek_kind() == Some(TokenKind::DotWord) {
        let (name, start) = cursor.expect_kind(TokenKind::DotWord, "a directive")?;
        if directives.len() == MODIFIERS_MAX {
            let reason = Reason::Limit { what: "directives of a function", most: MODIFIERS_MAX as u64 };
            return cursor.fail(start, reason);
        }
        let mut operands = Vec::new();
        while let Some(TokenKind::Number | TokenKind::Text) = cursor.peek_kind() {
            if operands.len() == MODIFIERS_MAX {
                return cursor.unexpected("fewer numbers");
            }
            operands.push(if cursor.peek_kind() == Some(TokenKind::Number) {
                cursor.unsigned("a number")?.to_string()
            } else {
                cursor.expect_kind(TokenKind::Text, "a string")?.0.to_owned()
            });
            if !cursor.take_punctuation(",") {
                break;
            }
        }
        let span = cursor.since(start);
        // `.pragma "...";` may stand here too, the only one with a semicolon.
        if name == ".pragma" {
            cursor.expect_punctuation(";", "`;`")?;
        }
        directives.push(Directive { name: name.to_owned(), operands, span });
    }
    Ok(directives)
}
