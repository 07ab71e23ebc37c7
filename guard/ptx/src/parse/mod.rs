//! Text to tree: a predictive parser that never recurses on what a client writes.
//!
//! It reads PTX's shape and no meaning: names are not resolved and opcodes are not looked up, except that an
//! instruction whose operands have no place in the tree is reported by its opcode's own refusal.

mod cursor;
mod declaration;
pub mod directive;
mod expression;
mod number;
mod operand;
mod statement;

use crate::ast::{Function, FunctionKind, HeaderSpans, Item, Linkage, Module, Span};
use crate::limits::{ENTRIES_MAX, STATEMENTS_MAX, TEXT_BYTES_MAX};
use crate::report::{Reason, Report};
use crate::tokens::TokenKind;
use cursor::{Cursor, Parsed};
pub use number::WARP_SIZE;

/// Parses one PTX module.
///
/// Comments and white space are dropped. All errors are reported, not only the first.
pub fn parse(text: &str) -> Result<Module, Report> {
    let (module, report) = parse_recovering(text);
    report.or(module)
}

/// As [`parse`], of a text that has at most so many statements, declarations and labels included.
///
/// # Errors
/// As [`parse`].
pub fn parse_short(text: &str, statements_max: usize) -> Result<Module, Report> {
    let (module, report) = parse_within(text, statements_max);
    report.or(module)
}

/// Parses one PTX module and returns what there is of it beside the errors: the statements that have one are
/// left out.
#[must_use]
pub fn parse_recovering(text: &str) -> (Module, Report) {
    parse_within(text, STATEMENTS_MAX)
}

fn parse_within(text: &str, statements_max: usize) -> (Module, Report) {
    let mut module = Module {
        version: (0, 0),
        target: Vec::new(),
        address_size: 32,
        header: HeaderSpans::default(),
        items: Vec::new(),
    };
    if text.len() > TEXT_BYTES_MAX {
        let mut report = Report::default();
        report.add(Span::WHOLE, Reason::Limit { what: "bytes of text", most: TEXT_BYTES_MAX as u64 });
        return (module, report);
    }
    module.header.text.end = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut cursor = Cursor::new(text, statements_max);
    if header(&mut cursor, &mut module).is_ok() {
        items(&mut cursor, &mut module);
    }
    (module, cursor.report)
}

fn header(cursor: &mut Cursor<'_>, module: &mut Module) -> Parsed<()> {
    let start = cursor.here();
    cursor.expect_dot(".version", "`.version`")?;
    let (token, span) = cursor.expect_kind(TokenKind::Number, "a version number")?;
    module.version = match token.split_once('.').map(|(major, minor)| (major.parse(), minor.parse())) {
        Some((Ok(major), Ok(minor))) => (major, minor),
        _ => return cursor.fail(span, Reason::Number(token.to_owned())),
    };
    module.header.version = cursor.since(start);
    let start = cursor.here();
    cursor.expect_dot(".target", "`.target`")?;
    loop {
        let (word, _) = cursor.expect_kind(TokenKind::Word, "a target")?;
        module.target.push(word.to_owned());
        if !cursor.take_punctuation(",") {
            break;
        }
    }
    module.header.target = cursor.since(start);
    module.header.address_size = module.header.target;
    // Without it addresses have 32 bits (PTX ISA, ".address_size").
    if cursor.peek_text() != ".address_size" {
        return Ok(());
    }
    let start = cursor.here();
    cursor.bump();
    let size = cursor.unsigned32("64")?;
    module.header.address_size = cursor.since(start);
    if !matches!(size, 32 | 64) {
        return cursor
            .fail(module.header.address_size, Reason::Malformed(format!("addresses of {size} bits")));
    }
    module.address_size = size;
    Ok(())
}

fn items(cursor: &mut Cursor<'_>, module: &mut Module) {
    let mut functions = 0;
    while !cursor.at_end() && !cursor.exhausted() {
        let span = cursor.here();
        match item(cursor, &mut module.items) {
            Ok(()) => {}
            Err(_) => cursor.skip_item(),
        }
        if matches!(module.items.last(), Some(Item::Function(_))) {
            functions += 1;
        }
        if functions > ENTRIES_MAX {
            let reason = Reason::Limit { what: "entries and functions", most: ENTRIES_MAX as u64 };
            cursor.report.add(span, reason);
            return;
        }
    }
}

fn item(cursor: &mut Cursor<'_>, into: &mut Vec<Item>) -> Parsed<()> {
    cursor.count_statement()?;
    if cursor.take_punctuation(";") {
        return Ok(());
    }
    if cursor.peek_text() == ".section" {
        into.push(Item::Section(directive::section(cursor)?));
        return Ok(());
    }
    let linkage = linkage(cursor);
    if let Some(kind) = function_kind(cursor) {
        into.push(Item::Function(function(cursor, linkage, kind)?));
        return Ok(());
    }
    if let Some(space) = declaration::space(cursor) {
        let variables = declaration::variables(cursor, linkage, space)?;
        into.extend(variables.into_iter().map(Item::Variable));
        return Ok(());
    }
    if linkage == Linkage::Internal && cursor.peek_kind() == Some(TokenKind::DotWord) {
        into.push(Item::Directive(directive::directive(cursor)?));
        return Ok(());
    }
    cursor.unexpected("a declaration, an entry or a directive")
}

fn linkage(cursor: &mut Cursor<'_>) -> Linkage {
    let linkage = match cursor.peek_text() {
        ".visible" => Linkage::Visible,
        ".extern" => Linkage::Extern,
        ".weak" => Linkage::Weak,
        ".common" => Linkage::Common,
        _ => return Linkage::Internal,
    };
    cursor.bump();
    linkage
}

fn function_kind(cursor: &mut Cursor<'_>) -> Option<FunctionKind> {
    let kind = match cursor.peek_text() {
        ".entry" => FunctionKind::Entry,
        ".func" => FunctionKind::Device,
        _ => return None,
    };
    cursor.bump();
    Some(kind)
}

fn function(cursor: &mut Cursor<'_>, linkage: Linkage, kind: FunctionKind) -> Parsed<Function> {
    let mut attributes = Vec::new();
    if cursor.peek_text() == ".attribute" {
        directive::attributes(cursor, &mut attributes)?;
    }
    let returns = match kind {
        FunctionKind::Device if cursor.peek_text() == "(" => declaration::parameters(cursor)?,
        FunctionKind::Device | FunctionKind::Entry => Vec::new(),
    };
    let start = cursor.here();
    let name = cursor.name("a name")?;
    let span = cursor.since(start);
    let parameters = if cursor.peek_text() == "(" { declaration::parameters(cursor)? } else { Vec::new() };
    let directives = directive::function_directives(cursor)?;
    let body = if cursor.take_punctuation(";") {
        None
    } else {
        cursor.expect_punctuation("{", "`{` or `;`")?;
        Some(statement::body(cursor)?)
    };
    Ok(Function { kind, linkage, name, returns, parameters, attributes, directives, body, span })
}

#[cfg(test)]
mod tests;
