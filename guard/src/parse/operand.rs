//! Operands.

use super::cursor::{Cursor, Parsed};
use super::number::{Literal, literal};
use crate::ast::{Address, AddressBase, Operand};
use crate::limits::OPERAND_NESTING_MAX;
use crate::report::{Reason, shorten};
use crate::tokens::TokenKind;

/// One operand; `budget` is how many more the instruction may hold, `depth` how deep this one lies.
pub(super) fn operand(cursor: &mut Cursor<'_>, budget: &mut usize, depth: usize) -> Parsed<Operand> {
    let first = single(cursor, budget, depth)?;
    if !cursor.take_punctuation("|") {
        return Ok(first);
    }
    let second = single(cursor, budget, depth)?;
    Ok(Operand::Pair(Box::new(first), Box::new(second)))
}

fn single(cursor: &mut Cursor<'_>, budget: &mut usize, depth: usize) -> Parsed<Operand> {
    let place = cursor.place();
    let limits = [(*budget == 0, "operands"), (depth > OPERAND_NESTING_MAX, "lists inside one another")];
    for (passed, what) in limits {
        if passed {
            return cursor.fail(place, Reason::Limit { what, most: 0 });
        }
    }
    *budget -= 1;
    match cursor.peek_kind() {
        Some(TokenKind::Number) => value(cursor, false),
        Some(TokenKind::Word) => named(cursor),
        Some(TokenKind::Punctuation) => match cursor.peek_text() {
            "[" => address(cursor).map(Operand::Address),
            "{" => {
                cursor.vectors += 1;
                let elements = list(cursor, budget, depth, "{", "}")?;
                cursor.vectors -= 1;
                Ok(Operand::Vector(elements))
            }
            "(" => list(cursor, budget, depth, "(", ")").map(Operand::List),
            "!" => {
                cursor.bump();
                cursor.name("a predicate register").map(Operand::Not)
            }
            "-" => {
                cursor.bump();
                value(cursor, true)
            }
            _ => cursor.unexpected("an operand"),
        },
        _ => cursor.unexpected("an operand"),
    }
}

fn list(
    cursor: &mut Cursor<'_>,
    budget: &mut usize,
    depth: usize,
    open: &str,
    close: &'static str,
) -> Parsed<Vec<Operand>> {
    cursor.expect_punctuation(open, "a list")?;
    let mut elements = Vec::new();
    if cursor.take_punctuation(close) {
        return Ok(elements);
    }
    loop {
        elements.push(operand(cursor, budget, depth + 1)?);
        if !cursor.take_punctuation(",") {
            cursor.expect_punctuation(close, "`,` or the end of the list")?;
            return Ok(elements);
        }
    }
}

/// A literal, negated or not.
pub(super) fn value(cursor: &mut Cursor<'_>, negative: bool) -> Parsed<Operand> {
    let (text, place) = cursor.expect_kind(TokenKind::Number, "a number")?;
    match (literal(text), negative) {
        (Some(Literal::Integer(value)), false) => Ok(Operand::Integer(i128::from(value))),
        (Some(Literal::Integer(value)), true) if value <= 1 << 63 => Ok(Operand::Integer(-i128::from(value))),
        (Some(Literal::Float32(bits)), false) => Ok(Operand::Float32(bits)),
        (Some(Literal::Float32(bits)), true) => Ok(Operand::Float32(bits ^ 1 << 31)),
        (Some(Literal::Float64(bits)), false) => Ok(Operand::Float64(bits)),
        (Some(Literal::Float64(bits)), true) => Ok(Operand::Float64(bits ^ 1 << 63)),
        (Some(Literal::Integer(_)) | None, _) => cursor.fail(place, Reason::Number(shorten(text).to_owned())),
    }
}

fn named(cursor: &mut Cursor<'_>) -> Parsed<Operand> {
    let Some(word) = cursor.bump() else { return cursor.unexpected("a name") };
    cursor.check_name(word.text, word.place)?;
    if word.text == "_" {
        return Ok(Operand::Sink);
    }
    let selector = cursor.take_touching_dot(word);
    if let Some(selector) = selector {
        if has_components(word.text) && matches!(selector.text, ".x" | ".y" | ".z" | ".w") {
            return Ok(Operand::Register(format!("{}{}", word.text, selector.text)));
        }
        let selector = selector.text.trim_start_matches('.').to_owned();
        return Ok(Operand::Selected(word.text.to_owned(), selector));
    }
    if word.text.starts_with('%') {
        return Ok(Operand::Register(word.text.to_owned()));
    }
    match cursor.peek_text() {
        "+" | "-" => {
            let offset = offset(cursor)?;
            Ok(Operand::SymbolOffset(word.text.to_owned(), offset))
        }
        _ => Ok(Operand::Symbol(word.text.to_owned())),
    }
}

/// Special registers that are vectors, whose elements are registers of their own in the tree.
fn has_components(name: &str) -> bool {
    matches!(
        name,
        "%tid"
            | "%ntid"
            | "%ctaid"
            | "%nctaid"
            | "%clusterid"
            | "%nclusterid"
            | "%cluster_ctaid"
            | "%cluster_nctaid"
    )
}

/// `[base]`, `[base+offset]`, `[base+-offset]`, `[base-offset]`, `[offset]`.
fn address(cursor: &mut Cursor<'_>) -> Parsed<Address> {
    cursor.expect_punctuation("[", "`[`")?;
    let address = match cursor.peek_kind() {
        Some(TokenKind::Word) => {
            let name = cursor.name("an address")?;
            let base =
                if name.starts_with('%') { AddressBase::Register(name) } else { AddressBase::Symbol(name) };
            let offset = if matches!(cursor.peek_text(), "+" | "-") { offset(cursor)? } else { 0 };
            Address { base, offset }
        }
        _ => Address { base: AddressBase::Absolute, offset: offset(cursor)? },
    };
    cursor.expect_punctuation("]", "`]`")?;
    Ok(address)
}

/// A signed constant, after an optional `+` and an optional `-`.
fn offset(cursor: &mut Cursor<'_>) -> Parsed<i64> {
    cursor.take_punctuation("+");
    let negative = cursor.take_punctuation("-");
    let place = cursor.place();
    let text = cursor.peek_text();
    let magnitude = i128::from(cursor.unsigned("an offset")?);
    let signed = if negative { -magnitude } else { magnitude };
    match i64::try_from(signed) {
        Ok(offset) => Ok(offset),
        Err(_) => cursor.fail(place, Reason::Number(shorten(text).to_owned())),
    }
}
