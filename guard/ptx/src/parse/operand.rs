//! Operands.

use super::cursor::{Cursor, Parsed};
use super::expression::{self, constant, offset};
use super::number::{Literal, WARP_SIZE, literal};
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
    let span = cursor.here();
    let limits = [(*budget == 0, "operands"), (depth > OPERAND_NESTING_MAX, "lists inside one another")];
    for (passed, what) in limits {
        if passed {
            return cursor.fail(span, Reason::Limit { what, most: 0 });
        }
    }
    *budget -= 1;
    match cursor.peek_kind() {
        Some(TokenKind::Word) if cursor.peek_text() == WARP_SIZE && !cursor.second_ends() => constant(cursor),
        Some(TokenKind::Word) => named(cursor),
        Some(TokenKind::Number) => number(cursor),
        // `.5` reads as a dotted word.
        Some(TokenKind::DotWord) => constant(cursor),
        Some(TokenKind::Punctuation) => match cursor.peek_text() {
            "[" => address(cursor, budget, depth),
            "{" => {
                cursor.vectors += 1;
                let elements = list(cursor, budget, depth, "{", "}")?;
                cursor.vectors -= 1;
                Ok(Operand::Vector(elements))
            }
            "(" if cursor.calls => list(cursor, budget, depth, "(", ")").map(Operand::List),
            "!" if !expression::starts_number(cursor.second_text()) => {
                cursor.bump();
                cursor.name("a predicate register").map(Operand::Not)
            }
            "-" if is_register_like(cursor.second_text()) => {
                cursor.bump();
                Ok(Operand::Negated(Box::new(named(cursor)?)))
            }
            "(" | "-" | "+" | "~" | "!" => constant(cursor),
            _ => cursor.unexpected("an operand"),
        },
        _ => cursor.unexpected("an operand"),
    }
}

fn is_register_like(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '%' | '_' | '$'))
        && text != WARP_SIZE
}

pub(super) fn list(
    cursor: &mut Cursor<'_>,
    budget: &mut usize,
    depth: usize,
    open: &str,
    close: &'static str,
) -> Parsed<Vec<Operand>> {
    cursor.expect_punctuation(open, "a list")?;
    cursor.count_statement()?;
    let mut elements = Vec::new();
    if cursor.take_punctuation(close) {
        return Ok(elements);
    }
    loop {
        elements.push(operand(cursor, budget, depth + 1)?);
        if !cursor.take_punctuation(",") {
            cursor.expect_punctuation(close, "`,` or the end of the list")?;
            elements.shrink_to_fit();
            return Ok(elements);
        }
    }
}

/// A literal, an expression that starts with one, or a mask: `0xff(symbol)`.
fn number(cursor: &mut Cursor<'_>) -> Parsed<Operand> {
    if cursor.second_text() == "(" {
        let (text, span) = cursor.expect_kind(TokenKind::Number, "a number")?;
        let Some(Literal::Integer(mask)) = literal(text) else {
            return cursor.fail(span, Reason::Number(shorten(text).to_owned()));
        };
        cursor.expect_punctuation("(", "`(`")?;
        let inner = named(cursor)?;
        cursor.expect_punctuation(")", "`)`")?;
        return Ok(Operand::Masked(mask, Box::new(inner)));
    }
    // By far the most numbers stand alone.
    if !cursor.second_ends() {
        return constant(cursor);
    }
    let (text, span) = cursor.expect_kind(TokenKind::Number, "a number")?;
    match literal(text) {
        Some(Literal::Integer(value)) => Ok(Operand::Integer(i128::from(value))),
        Some(Literal::Float32(bits)) => Ok(Operand::Float32(bits)),
        Some(Literal::Float64(bits)) => Ok(Operand::Float64(bits)),
        None => cursor.fail(span, Reason::Number(shorten(text).to_owned())),
    }
}

/// A register, a variable, or what is derived from one.
pub(super) fn named(cursor: &mut Cursor<'_>) -> Parsed<Operand> {
    if cursor.peek_kind() != Some(TokenKind::Word) {
        return cursor.unexpected("a name");
    }
    let Some(word) = cursor.bump() else { return cursor.unexpected("a name") };
    cursor.check_name(word.text, word.span())?;
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
    let name = word.text.to_owned();
    if name.starts_with('%') {
        return Ok(Operand::Register(name));
    }
    if cursor.peek_kind() != Some(TokenKind::Punctuation) {
        return Ok(Operand::Symbol(name));
    }
    match cursor.peek_text() {
        // `symbol-symbol` is a section's.
        "-" if is_register_like(cursor.second_text()) => {
            cursor.bump();
            Ok(Operand::Difference(name, cursor.name("a label")?))
        }
        "+" | "-" if name != WARP_SIZE => Ok(Operand::SymbolOffset(name, offset(cursor)?)),
        "[" => {
            cursor.bump();
            let index = inside(cursor)?;
            cursor.expect_punctuation("]", "`]`")?;
            Ok(Operand::Subscript(name, index))
        }
        "(" if name == "generic" => {
            cursor.bump();
            let symbol = cursor.name("a variable")?;
            cursor.expect_punctuation(")", "`)`")?;
            let offset = if matches!(cursor.peek_text(), "+" | "-") { offset(cursor)? } else { 0 };
            Ok(Operand::Generic(symbol, offset))
        }
        "=" => {
            cursor.bump();
            let value = if cursor.peek_kind() == Some(TokenKind::Word) {
                Operand::Symbol(cursor.name("a value")?)
            } else {
                constant(cursor)?
            };
            Ok(Operand::Field(name, Box::new(value)))
        }
        _ => Ok(Operand::Symbol(name)),
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

/// `[base]`, `[base+offset]`, `[base+-offset]`, `[base-offset]`, `[offset]`, each perhaps with coordinates.
fn address(cursor: &mut Cursor<'_>, budget: &mut usize, depth: usize) -> Parsed<Operand> {
    cursor.expect_punctuation("[", "`[`")?;
    let address = inside(cursor)?;
    let mut coordinates = Vec::new();
    while cursor.take_punctuation(",") {
        coordinates.push(operand(cursor, budget, depth + 1)?);
    }
    cursor.expect_punctuation("]", "`]`")?;
    coordinates.shrink_to_fit();
    if coordinates.is_empty() {
        return Ok(Operand::Address(address));
    }
    Ok(Operand::Coordinates(address, coordinates))
}

fn inside(cursor: &mut Cursor<'_>) -> Parsed<Address> {
    if cursor.peek_kind() != Some(TokenKind::Word) || cursor.peek_text() == WARP_SIZE {
        return Ok(Address { base: AddressBase::Absolute, offset: offset(cursor)? });
    }
    let name = cursor.name("an address")?;
    let base = if name.starts_with('%') { AddressBase::Register(name) } else { AddressBase::Symbol(name) };
    let offset = if matches!(cursor.peek_text(), "+" | "-") { offset(cursor)? } else { 0 };
    Ok(Address { base, offset })
}
