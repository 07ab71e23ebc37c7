//! Directives: debug ones are dropped, the others kept as text.

use super::cursor::{Cursor, Parsed};
use crate::ast::Directive;
use crate::limits::{MODIFIERS_MAX, OPERANDS_MAX};
use crate::report::Reason;
use crate::tokens::TokenKind;

/// Drops a debug directive where one comes next, and says whether it did.
pub(super) fn skip_debug(cursor: &mut Cursor<'_>) -> Parsed<bool> {
    match cursor.peek_text() {
        ".loc" => skip_location(cursor)?,
        ".file" => skip_file(cursor)?,
        ".section" => skip_section(cursor)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// `.file index "name" {, time, size}`
fn skip_file(cursor: &mut Cursor<'_>) -> Parsed<()> {
    cursor.bump();
    cursor.unsigned("a file number")?;
    cursor.expect_kind(TokenKind::Text, "a file name")?;
    while cursor.take_punctuation(",") {
        cursor.unsigned("a number")?;
    }
    Ok(())
}

/// `.loc file line column {, function_name label {+ number}, inlined_at file line column}`
fn skip_location(cursor: &mut Cursor<'_>) -> Parsed<()> {
    cursor.bump();
    skip_position(cursor)?;
    while cursor.take_punctuation(",") {
        match cursor.name("`function_name` or `inlined_at`")?.as_str() {
            "function_name" => {
                cursor.name("a label")?;
                if cursor.take_punctuation("+") {
                    cursor.unsigned("a number")?;
                }
            }
            _ => skip_position(cursor)?,
        }
    }
    Ok(())
}

fn skip_position(cursor: &mut Cursor<'_>) -> Parsed<()> {
    for _ in 0..3 {
        cursor.unsigned("file, line and column")?;
    }
    Ok(())
}

/// `.section name { data }`
fn skip_section(cursor: &mut Cursor<'_>) -> Parsed<()> {
    cursor.bump();
    cursor.expect_kind(TokenKind::DotWord, "a section's name")?;
    cursor.expect_punctuation("{", "`{`")?;
    let mut open = 1_usize;
    while open > 0 {
        match cursor.bump().map(|token| token.text) {
            None => return cursor.unexpected("the end of the section"),
            Some("{") => open += 1,
            Some("}") => open -= 1,
            Some(_) => {}
        }
    }
    Ok(())
}

/// `.name operand, operand;`, its operands as their tokens with one blank between them.
pub(super) fn directive(cursor: &mut Cursor<'_>) -> Parsed<Directive> {
    let (name, place) = cursor.expect_kind(TokenKind::DotWord, "a directive")?;
    let mut directive = Directive { name: name.to_owned(), operands: Vec::new(), place };
    let mut parentheses = 0_usize;
    let mut operand = String::new();
    for _ in 0..OPERANDS_MAX * MODIFIERS_MAX {
        match cursor.peek_text() {
            "" => return cursor.unexpected("`;`"),
            "{" | "}" => return cursor.unexpected("`;`"),
            ";" => {
                cursor.bump();
                if !operand.is_empty() {
                    directive.operands.push(operand);
                }
                return Ok(directive);
            }
            "," if parentheses == 0 => {
                if operand.is_empty() {
                    return cursor.unexpected("an operand");
                }
                directive.operands.push(std::mem::take(&mut operand));
            }
            text => {
                match text {
                    "(" => parentheses += 1,
                    ")" => parentheses = parentheses.saturating_sub(1),
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
    let what = "tokens in a directive";
    cursor.fail(place, Reason::Limit { what, most: (OPERANDS_MAX * MODIFIERS_MAX) as u64 })
}

/// What stands between a function's parameters and its body: `.maxntid 256, 1, 1 .minnctapersm 2`.
pub(super) fn function_directives(cursor: &mut Cursor<'_>) -> Parsed<Vec<Directive>> {
    let mut directives = Vec::new();
    while cursor.peek_kind() == Some(TokenKind::DotWord) {
        let (name, place) = cursor.expect_kind(TokenKind::DotWord, "a directive")?;
        if directives.len() == MODIFIERS_MAX {
            let reason = Reason::Limit { what: "directives of a function", most: MODIFIERS_MAX as u64 };
            return cursor.fail(place, reason);
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
        // `.pragma "...";` may stand here too, the only one with a semicolon.
        if name == ".pragma" {
            cursor.expect_punctuation(";", "`;`")?;
        }
        directives.push(Directive { name: name.to_owned(), operands, place });
    }
    Ok(directives)
}
