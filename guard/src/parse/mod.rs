//! Text to tree: a predictive parser that never recurses on what a client writes.
//!
//! It reads PTX's shape and no meaning: names are not resolved and opcodes are not looked up, except that an
//! instruction whose operands have no place in the tree is reported by its opcode's own refusal.

mod cursor;
mod declaration;
mod directive;
mod number;
mod operand;
mod statement;

use crate::ast::{Function, FunctionKind, Item, Linkage, Module, Place, Space};
use crate::limits::{ENTRIES_MAX, TEXT_BYTES_MAX};
use crate::report::{Reason, Report};
use crate::tokens::TokenKind;
use cursor::{Cursor, Parsed};

/// Parses one PTX module.
///
/// Comments, white space and debug directives (`.file`, `.loc`, `.section`) are dropped. All errors are
/// reported, not only the first.
pub fn parse(text: &str) -> Result<Module, Report> {
    if text.len() > TEXT_BYTES_MAX {
        let mut report = Report::default();
        report.add(Place::default(), Reason::Limit { what: "bytes of text", most: TEXT_BYTES_MAX as u64 });
        return Err(report);
    }
    let mut cursor = Cursor::new(text);
    let mut module = Module { version: (0, 0), target: Vec::new(), address_size: 0, items: Vec::new() };
    if header(&mut cursor, &mut module).is_ok() {
        items(&mut cursor, &mut module);
    }
    cursor.report.or(module)
}

fn header(cursor: &mut Cursor<'_>, module: &mut Module) -> Parsed<()> {
    cursor.expect_dot(".version", "`.version`")?;
    let (token, place) = cursor.expect_kind(TokenKind::Number, "a version number")?;
    module.version = match token.split_once('.').map(|(major, minor)| (major.parse(), minor.parse())) {
        Some((Ok(major), Ok(minor))) => (major, minor),
        _ => return cursor.fail(place, Reason::Number(token.to_owned())),
    };
    cursor.expect_dot(".target", "`.target`")?;
    loop {
        let (word, _) = cursor.expect_kind(TokenKind::Word, "a target")?;
        module.target.push(word.to_owned());
        if !cursor.take_punctuation(",") {
            break;
        }
    }
    cursor.expect_dot(".address_size", "`.address_size 64`")?;
    let place = cursor.place();
    let size = cursor.unsigned("64")?;
    if size != 64 {
        return cursor.fail(place, Reason::NotImplemented { what: format!("`.address_size {size}`") });
    }
    module.address_size = 64;
    Ok(())
}

fn items(cursor: &mut Cursor<'_>, module: &mut Module) {
    let mut functions = 0;
    while !cursor.at_end() && !cursor.exhausted() {
        let place = cursor.place();
        match item(cursor, &mut module.items) {
            Ok(()) => {}
            Err(_) => cursor.skip_item(),
        }
        if matches!(module.items.last(), Some(Item::Function(_))) {
            functions += 1;
        }
        if functions > ENTRIES_MAX {
            let reason = Reason::Limit { what: "entries and functions", most: ENTRIES_MAX as u64 };
            cursor.report.add(place, reason);
            return;
        }
    }
}

fn item(cursor: &mut Cursor<'_>, into: &mut Vec<Item>) -> Parsed<()> {
    if directive::skip_debug(cursor)? {
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
    let directive_place = cursor.place();
    if cursor.peek_text() == ".attribute" {
        return cursor.fail(directive_place, Reason::NotImplemented { what: "`.attribute`".to_owned() });
    }
    let returns = match kind {
        FunctionKind::Device if cursor.peek_text() == "(" => declaration::parameters(cursor)?,
        FunctionKind::Device | FunctionKind::Entry => Vec::new(),
    };
    let place = cursor.place();
    let name = cursor.name("a name")?;
    let parameters = if cursor.peek_text() == "(" { declaration::parameters(cursor)? } else { Vec::new() };
    let directives = directive::function_directives(cursor)?;
    let body = if cursor.take_punctuation(";") {
        None
    } else {
        cursor.expect_punctuation("{", "`{` or `;`")?;
        Some(statement::body(cursor)?)
    };
    Ok(Function { kind, linkage, name, returns, parameters, directives, body, place })
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

#[cfg(test)]
mod tests;
