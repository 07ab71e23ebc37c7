//! Declarations of variables, registers and parameters.

use super::cursor::{Cursor, Parsed};
use super::{directive, operand};
use crate::ast::{Linkage, Operand, Space, Type, Variable};
use crate::limits::{DIMENSIONS_MAX, NESTING_MAX, PARAMETERS_MAX};
use crate::report::Reason;
use crate::tokens::TokenKind;

/// Takes a state space where one comes next.
pub(super) fn space(cursor: &mut Cursor<'_>) -> Option<Space> {
    let space = space_named(cursor.peek_text())?;
    cursor.bump();
    Some(space)
}

/// What the declarators of one declaration have in common.
struct Stem {
    linkage: Linkage,
    space: Space,
    align: Option<u32>,
    vector: u32,
    ty: Type,
    pointer: Option<String>,
    attributes: Vec<String>,
}

/// The declarators after `.space`, up to the semicolon.
pub(super) fn variables(cursor: &mut Cursor<'_>, linkage: Linkage, space: Space) -> Parsed<Vec<Variable>> {
    let stem = stem(cursor, linkage, space)?;
    let mut variables = Vec::new();
    loop {
        cursor.count_statement()?;
        let start = cursor.here();
        let mut variable = declarator(cursor, &stem)?;
        if cursor.take_punctuation("=") {
            variable.initializer = initializer(cursor, 0)?;
            variable.span = cursor.since(start);
        }
        variables.push(variable);
        // Attributes are of any length, and each variable has its own.
        if stem.attributes.is_empty() && cursor.take_punctuation(",") {
            continue;
        }
        cursor.expect_punctuation(";", "`,` or `;`")?;
        return Ok(variables);
    }
}

/// `( .param ... name, ... )`
pub(super) fn parameters(cursor: &mut Cursor<'_>) -> Parsed<Vec<Variable>> {
    cursor.expect_punctuation("(", "`(`")?;
    let mut parameters = Vec::new();
    if cursor.take_punctuation(")") {
        return Ok(parameters);
    }
    loop {
        let span = cursor.here();
        if parameters.len() == PARAMETERS_MAX {
            return cursor.fail(span, Reason::Limit { what: "parameters", most: PARAMETERS_MAX as u64 });
        }
        let space = match space(cursor) {
            Some(space @ (Space::Parameter | Space::Register)) => space,
            _ => {
                return cursor.fail(
                    span,
                    Reason::Expected { expected: "`.param`", found: "something else".to_owned() },
                );
            }
        };
        let stem = stem(cursor, Linkage::Internal, space)?;
        parameters.push(declarator(cursor, &stem)?);
        if !cursor.take_punctuation(",") {
            cursor.expect_punctuation(")", "`,` or `)`")?;
            return Ok(parameters);
        }
    }
}

fn stem(cursor: &mut Cursor<'_>, linkage: Linkage, space: Space) -> Parsed<Stem> {
    let (mut align, mut vector, mut ty, mut pointer) = (None, 1, None, None);
    let mut attributes = Vec::new();
    while cursor.peek_kind() == Some(TokenKind::DotWord) {
        match cursor.peek_text() {
            ".align" => {
                cursor.bump();
                align = Some(alignment(cursor)?);
            }
            ".v2" => {
                cursor.bump();
                vector = 2;
            }
            ".v4" => {
                cursor.bump();
                vector = 4;
            }
            ".v8" => {
                cursor.bump();
                vector = 8;
            }
            ".ptr" if space == Space::Parameter && ty.is_some() => pointer = Some(pointer_attribute(cursor)?),
            ".attribute" => directive::attributes(cursor, &mut attributes)?,
            word => match type_named(word) {
                Some(named) if ty.is_none() => {
                    cursor.bump();
                    ty = Some(named);
                }
                _ => return cursor.unexpected("a type"),
            },
        }
    }
    match ty {
        Some(ty) => Ok(Stem { linkage, space, align, vector, ty, pointer, attributes }),
        None => cursor.unexpected("a type"),
    }
}

fn alignment(cursor: &mut Cursor<'_>) -> Parsed<u32> {
    let span = cursor.here();
    let align = cursor.unsigned32("an alignment")?;
    if align.is_power_of_two() {
        return Ok(align);
    }
    cursor.fail(span, Reason::Malformed(format!("the alignment {align} is not a power of two")))
}

/// `.ptr {.space} {.align N}`, as canonical text.
fn pointer_attribute(cursor: &mut Cursor<'_>) -> Parsed<String> {
    cursor.bump();
    let mut text = ".ptr".to_owned();
    if space_named(cursor.peek_text()).is_some() {
        text.push(' ');
        text.push_str(cursor.peek_text());
        cursor.bump();
    }
    if cursor.peek_text() == ".align" {
        cursor.bump();
        text.push_str(&format!(" .align {}", alignment(cursor)?));
    }
    Ok(text)
}

fn declarator(cursor: &mut Cursor<'_>, stem: &Stem) -> Parsed<Variable> {
    let span = cursor.here();
    let name = cursor.name("a name")?;
    let mut dimensions = Vec::new();
    let mut range = None;
    if stem.space == Space::Register && cursor.take_punctuation("<") {
        range = Some(cursor.unsigned32("a number of registers")?);
        cursor.expect_punctuation(">", "`>`")?;
    }
    while cursor.take_punctuation("[") {
        if dimensions.len() == DIMENSIONS_MAX {
            return cursor.fail(span, Reason::Limit { what: "dimensions", most: DIMENSIONS_MAX as u64 });
        }
        let empty = dimensions.is_empty() && cursor.peek_text() == "]";
        dimensions.push(if empty { 0 } else { cursor.unsigned("a number of elements")? });
        cursor.expect_punctuation("]", "`]`")?;
    }
    Ok(Variable {
        linkage: stem.linkage,
        space: stem.space,
        align: stem.align,
        vector: stem.vector,
        ty: stem.ty,
        name,
        dimensions,
        range,
        pointer: stem.pointer.clone(),
        initializer: Vec::new(),
        attributes: stem.attributes.clone(),
        span: cursor.since(span),
    })
}

/// A value, or the values of a list, which may hold lists. Every value counts as a statement.
fn initializer(cursor: &mut Cursor<'_>, depth: usize) -> Parsed<Vec<Operand>> {
    let span = cursor.here();
    if !cursor.take_punctuation("{") {
        cursor.count_statement()?;
        return Ok(vec![operand::operand(cursor, &mut 4, 0)?]);
    }
    cursor.vectors += 1;
    if depth == NESTING_MAX {
        let reason = Reason::Limit { what: "braces inside one another", most: NESTING_MAX as u64 };
        return cursor.fail(span, reason);
    }
    let mut values = Vec::new();
    while !cursor.take_punctuation("}") {
        if cursor.is_punctuation("{") {
            cursor.count_statement()?;
            values.push(Operand::Vector(initializer(cursor, depth + 1)?));
        } else {
            cursor.count_statement()?;
            values.push(operand::operand(cursor, &mut 4, 0)?);
        }
        if !cursor.take_punctuation(",") {
            cursor.expect_punctuation("}", "`,` or `}`")?;
            break;
        }
    }
    cursor.vectors -= 1;
    Ok(values)
}

pub(super) fn type_named(word: &str) -> Option<Type> {
    Some(match word {
        ".b8" => Type::B8,
        ".b16" => Type::B16,
        ".b32" => Type::B32,
        ".b64" => Type::B64,
        ".b128" => Type::B128,
        ".u8" => Type::U8,
        ".u16" => Type::U16,
        ".u32" => Type::U32,
        ".u64" => Type::U64,
        ".s8" => Type::S8,
        ".s16" => Type::S16,
        ".s32" => Type::S32,
        ".s64" => Type::S64,
        ".f16" => Type::F16,
        ".f16x2" => Type::F16x2,
        ".bf16" => Type::Bf16,
        ".bf16x2" => Type::Bf16x2,
        ".tf32" => Type::Tf32,
        ".f32" => Type::F32,
        ".f64" => Type::F64,
        ".pred" => Type::Pred,
        ".texref" => Type::Texref,
        ".samplerref" => Type::Samplerref,
        ".surfref" => Type::Surfref,
        _ => return None,
    })
}

/// The state space that a dotted word names.
fn space_named(word: &str) -> Option<Space> {
    Some(match word {
        ".reg" => Space::Register,
        ".global" => Space::Global,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        ".const" => Space::Constant,
        ".param" => Space::Parameter,
        _ => return None,
    })
}
