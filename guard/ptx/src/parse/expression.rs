//! Constant expressions, which the tree holds by their value (PTX ISA, "Constant Expressions").

use super::cursor::{Cursor, Parsed};
use super::number::{Literal, WARP_SIZE, literal};
use crate::ast::{Operand, Span};
use crate::report::{Reason, shorten};
use crate::tokens::TokenKind;

/// How deep parentheses and operators without a left operand may nest.
const DEPTH_MAX: usize = 16;

/// A value: 64 bits with or without sign, or floating point.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Signed(i64),
    Unsigned(u64),
    Float32(u32),
    Float64(f64),
}

/// Whether a number starts with this token, `.5` included.
pub(super) fn starts_number(text: &str) -> bool {
    text.trim_start_matches('.').starts_with(|first: char| first.is_ascii_digit())
}

/// A constant expression.
pub(super) fn constant(cursor: &mut Cursor<'_>) -> Parsed<Operand> {
    let first = cursor.here();
    Ok(match conditional(cursor, first, 0)? {
        // The literal of this one's magnitude has no sign, nor has its negative then.
        Value::Signed(i64::MIN) => Operand::Integer(1 << 63),
        Value::Signed(value) => Operand::Integer(i128::from(value)),
        Value::Unsigned(value) => Operand::Integer(i128::from(value)),
        Value::Float32(bits) => Operand::Float32(bits),
        Value::Float64(value) => Operand::Float64(value.to_bits()),
    })
}

/// A signed constant expression with nothing, a `+` or a `-` before it.
pub(super) fn offset(cursor: &mut Cursor<'_>) -> Parsed<i64> {
    cursor.take_punctuation("+");
    let span = cursor.here();
    if !can_start(cursor) {
        return cursor.unexpected("an offset");
    }
    let value = conditional(cursor, span, 0)?;
    match value {
        Value::Signed(value) => Ok(value),
        Value::Unsigned(value) if value <= 1 << 63 => Ok(value.cast_signed()),
        Value::Unsigned(_) | Value::Float32(_) | Value::Float64(_) => bad(cursor, span),
    }
}

fn can_start(cursor: &Cursor<'_>) -> bool {
    match cursor.peek_kind() {
        Some(TokenKind::Number | TokenKind::DotWord) => true,
        Some(TokenKind::Word) => cursor.peek_text() == WARP_SIZE,
        Some(TokenKind::Punctuation) => matches!(cursor.peek_text(), "-" | "+" | "~" | "!" | "("),
        _ => false,
    }
}

fn bad<T>(cursor: &mut Cursor<'_>, first: Span) -> Parsed<T> {
    let text = shorten(cursor.text_of(cursor.since(first))).to_owned();
    cursor.fail(first, Reason::Number(text))
}

/// `a ? b : c`, or what binds closer.
fn conditional(cursor: &mut Cursor<'_>, first: Span, depth: usize) -> Parsed<Value> {
    let condition = binary(cursor, first, 0, depth)?;
    if !cursor.is_punctuation("?") {
        return Ok(condition);
    }
    if depth >= DEPTH_MAX {
        return bad(cursor, first);
    }
    cursor.bump();
    let then = conditional(cursor, first, depth + 1)?;
    cursor.expect_punctuation(":", "`:`")?;
    let other = conditional(cursor, first, depth + 1)?;
    Ok(if is_true(condition) { then } else { other })
}

/// The operator that comes next and how close it binds.
fn next_operator(cursor: &Cursor<'_>) -> Option<(&'static str, u8)> {
    Some(match cursor.operator() {
        ("|", "|") => ("||", 1),
        ("&", "&") => ("&&", 2),
        ("|", _) => ("|", 3),
        ("^", _) => ("^", 4),
        ("&", _) => ("&", 5),
        ("=", "=") => ("==", 6),
        ("!", "=") => ("!=", 6),
        ("<", "=") => ("<=", 7),
        (">", "=") => (">=", 7),
        ("<", "<") => ("<<", 8),
        (">", ">") => (">>", 8),
        ("<", _) => ("<", 7),
        (">", _) => (">", 7),
        ("+", _) => ("+", 9),
        ("-", _) => ("-", 9),
        ("*", _) => ("*", 10),
        ("/", _) => ("/", 10),
        ("%", _) => ("%", 10),
        _ => return None,
    })
}

/// Operators that bind closer than `least`, from the left; recursion goes at most once through each level.
fn binary(cursor: &mut Cursor<'_>, first: Span, least: u8, depth: usize) -> Parsed<Value> {
    let mut left = unary(cursor, first, depth)?;
    while let Some((operator, binds)) = next_operator(cursor).filter(|(_, binds)| *binds > least) {
        for _ in 0..operator.len() {
            cursor.bump();
        }
        let right = binary(cursor, first, binds, depth)?;
        left = match apply(operator, left, right) {
            Some(value) => value,
            None => return bad(cursor, first),
        };
    }
    Ok(left)
}

fn unary(cursor: &mut Cursor<'_>, first: Span, depth: usize) -> Parsed<Value> {
    if depth >= DEPTH_MAX {
        return bad(cursor, first);
    }
    let Some(token) = cursor.peek() else { return cursor.unexpected("a number") };
    match (token.kind, token.text) {
        (TokenKind::Number, _) => {}
        (TokenKind::DotWord, text) if starts_number(text) => {}
        (TokenKind::Word, WARP_SIZE) => {
            cursor.bump();
            return Ok(Value::Signed(32));
        }
        (TokenKind::Punctuation, "-" | "+" | "~" | "!") => {
            cursor.bump();
            let value = unary(cursor, first, depth + 1)?;
            return match negate(token.text, value) {
                Some(value) => Ok(value),
                None => bad(cursor, first),
            };
        }
        (TokenKind::Punctuation, "(") => {
            cursor.bump();
            if matches!(cursor.peek_text(), ".s64" | ".u64") {
                let signed = cursor.bump().is_some_and(|token| token.text == ".s64");
                cursor.expect_punctuation(")", "`)`")?;
                let value = unary(cursor, first, depth + 1)?;
                return match value {
                    Value::Signed(_) | Value::Unsigned(_) if signed => Ok(Value::Signed(as_signed(value))),
                    Value::Signed(_) | Value::Unsigned(_) => Ok(Value::Unsigned(bits(value))),
                    Value::Float32(_) | Value::Float64(_) => bad(cursor, first),
                };
            }
            let value = conditional(cursor, first, depth + 1)?;
            cursor.expect_punctuation(")", "`)`")?;
            return Ok(value);
        }
        _ => return cursor.unexpected("a number"),
    }
    cursor.bump();
    let value = match literal(token.text) {
        Some(Literal::Integer(value)) => match i64::try_from(value) {
            Ok(signed) if !token.text.ends_with('U') => Value::Signed(signed),
            _ => Value::Unsigned(value),
        },
        Some(Literal::Float32(bits)) => Value::Float32(bits),
        Some(Literal::Float64(bits)) => Value::Float64(f64::from_bits(bits)),
        None => return cursor.fail(token.span(), Reason::Number(shorten(token.text).to_owned())),
    };
    Ok(value)
}

fn negate(operator: &str, value: Value) -> Option<Value> {
    Some(match (operator, value) {
        ("+", value) => value,
        ("-", Value::Signed(value)) => Value::Signed(value.wrapping_neg()),
        ("-", Value::Unsigned(value)) => Value::Unsigned(value.wrapping_neg()),
        ("-", Value::Float32(bits)) => Value::Float32(bits ^ 1 << 31),
        ("-", Value::Float64(value)) => Value::Float64(-value),
        ("~", Value::Signed(value)) => Value::Signed(!value),
        ("~", Value::Unsigned(value)) => Value::Unsigned(!value),
        ("!", Value::Signed(_) | Value::Unsigned(_)) => Value::Signed(i64::from(!is_true(value))),
        _ => return None,
    })
}

fn is_true(value: Value) -> bool {
    match value {
        Value::Signed(value) => value != 0,
        Value::Unsigned(value) => value != 0,
        Value::Float32(bits) => f32::from_bits(bits) != 0.0,
        Value::Float64(value) => value != 0.0,
    }
}

/// The 64 bits of an integer; 0 for the others, which [`apply`] keeps away.
fn bits(value: Value) -> u64 {
    match value {
        Value::Signed(value) => value.cast_unsigned(),
        Value::Unsigned(value) => value,
        Value::Float32(_) | Value::Float64(_) => 0,
    }
}

fn as_signed(value: Value) -> i64 {
    bits(value).cast_signed()
}

/// An operation on two values; none where they have none, as a division by zero has.
fn apply(operator: &str, left: Value, right: Value) -> Option<Value> {
    match (left, right) {
        (Value::Float64(left), Value::Float64(right)) => floating(operator, left, right),
        (Value::Signed(left), Value::Signed(right)) => signed(operator, left, right),
        (Value::Signed(left), Value::Unsigned(_)) if matches!(operator, "<<" | ">>") => {
            signed(operator, left, as_signed(right))
        }
        (Value::Signed(_) | Value::Unsigned(_), Value::Signed(_) | Value::Unsigned(_)) => {
            unsigned(operator, bits(left), bits(right))
        }
        _ => None,
    }
}

/// How far a shift goes: ptxas counts as the processor does, modulo 64.
fn places(count: u64) -> u32 {
    u32::try_from(count % 64).unwrap_or(0)
}

fn signed(operator: &str, left: i64, right: i64) -> Option<Value> {
    let truth = |value: bool| Some(Value::Signed(i64::from(value)));
    Some(Value::Signed(match operator {
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right)?,
        // ptxas takes remainders without sign and refuses them of negative values.
        "%" if left >= 0 => left.cast_unsigned().checked_rem(right.cast_unsigned())?.cast_signed(),
        "<<" => left.wrapping_shl(places(right.cast_unsigned())),
        ">>" => left.wrapping_shr(places(right.cast_unsigned())),
        "&" => left & right,
        "^" => left ^ right,
        "|" => left | right,
        "<" => return truth(left < right),
        ">" => return truth(left > right),
        "<=" => return truth(left <= right),
        ">=" => return truth(left >= right),
        "==" => return truth(left == right),
        "!=" => return truth(left != right),
        "&&" => return truth(left != 0 && right != 0),
        "||" => return truth(left != 0 || right != 0),
        _ => return None,
    }))
}

fn unsigned(operator: &str, left: u64, right: u64) -> Option<Value> {
    let truth = |value: bool| Some(Value::Signed(i64::from(value)));
    Some(Value::Unsigned(match operator {
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right)?,
        "%" => left.checked_rem(right)?,
        "<<" => left.wrapping_shl(places(right)),
        ">>" => left.wrapping_shr(places(right)),
        "&" => left & right,
        "^" => left ^ right,
        "|" => left | right,
        "<" => return truth(left < right),
        ">" => return truth(left > right),
        "<=" => return truth(left <= right),
        ">=" => return truth(left >= right),
        "==" => return truth(left == right),
        "!=" => return truth(left != right),
        "&&" => return truth(left != 0 && right != 0),
        "||" => return truth(left != 0 || right != 0),
        _ => return None,
    }))
}

fn floating(operator: &str, left: f64, right: f64) -> Option<Value> {
    let truth = |value: bool| Some(Value::Signed(i64::from(value)));
    let value = match operator {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" => left / right,
        "<" => return truth(left < right),
        ">" => return truth(left > right),
        "<=" => return truth(left <= right),
        ">=" => return truth(left >= right),
        _ => return None,
    };
    value.is_finite().then_some(Value::Float64(value))
}
