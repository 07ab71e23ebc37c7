//! Shared memory that CUDA's own code keeps for itself (`%reserved_smem_offset_1`: tiles of cooperative groups that are
//! larger than a warp) becomes a shared variable of the module, which each block of an entry that names it has.
//!
//! PTX says where that memory begins and ends, and nothing of its size: 1 KiB is what a driver reserves on an H200
//! (`CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK`).

use std::borrow::Cow;

use crate::ast::{
    Function, Instruction, Item, Linkage, Module, Operand, Space, Span, Statement, Type, Variable,
};
use crate::names;
use crate::report::Reason;

/// Bytes that are reserved.
const BYTES: u16 = 1024;
const PREFIX: &str = "%reserved_smem_offset_";

/// The module with a variable in place of the memory that is reserved, where it names that.
///
/// # Errors
/// Where all names for the variable are taken.
pub(super) fn rewrite(module: &Module) -> Result<Cow<'_, Module>, Reason> {
    let bodies = || {
        module.items.iter().filter_map(|item| match item {
            Item::Function(Function { body: Some(body), .. }) => Some(body.as_slice()),
            Item::Function(_) | Item::Variable(_) | Item::Section(_) | Item::Directive(_) => None,
        })
    };
    if !bodies().any(|body| any(body, &|statement| matches!(statement, Statement::Instruction(found) if found.operands.iter().any(is_one)))) {
        return Ok(Cow::Borrowed(module));
    }
    let declares = |name: &str| {
        let is_it = |statement: &Statement| match statement {
            Statement::Variable(variable) => variable.name == name,
            Statement::Label(label, _) => label == name,
            Statement::Instruction(_) | Statement::Block(..) | Statement::Directive(_) => false,
        };
        bodies().any(|body| any(body, &is_it))
            || module.items.iter().any(|item| match item {
                Item::Variable(variable) => variable.name == name,
                Item::Function(function) => {
                    function.name == name || function.parameters.iter().any(|own| own.name == name)
                }
                Item::Section(_) | Item::Directive(_) => false,
            })
    };
    let (name, _) = names::unused("reserved_shared", 0, declares)?;
    let mut module = module.clone();
    for item in &mut module.items {
        if let Item::Function(Function { body: Some(body), .. }) = item {
            replace(body, &name);
        }
    }
    module.items.insert(0, Item::Variable(variable(name)));
    Ok(Cow::Owned(module))
}

fn variable(name: String) -> Variable {
    Variable {
        linkage: Linkage::Internal,
        space: Space::Shared,
        align: Some(16),
        vector: 1,
        ty: Type::B8,
        name,
        dimensions: vec![BYTES.into()],
        range: None,
        pointer: None,
        initializer: Vec::new(),
        attributes: Vec::new(),
        span: Span::default(),
    }
}

fn is_one(operand: &Operand) -> bool {
    matches!(operand, Operand::Register(name) if name.starts_with(PREFIX))
}

/// Whether a body has such a statement; recursion is bounded by the parser's limit on braces.
fn any(body: &[Statement], is_it: &dyn Fn(&Statement) -> bool) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Block(inner, _) => any(inner, is_it),
        other => is_it(other),
    })
}

/// Puts the variable where the memory is named; recursion is bounded as above.
fn replace(body: &mut [Statement], variable: &str) {
    for statement in body {
        match statement {
            Statement::Block(inner, _) => replace(inner, variable),
            Statement::Instruction(Instruction { operands, .. }) => {
                for operand in operands.iter_mut().skip(1) {
                    let Operand::Register(name) = operand else { continue };
                    *operand = match name.strip_prefix(PREFIX) {
                        Some("begin" | "0" | "1") => Operand::Symbol(variable.to_owned()),
                        Some("end") => Operand::SymbolOffset(variable.to_owned(), BYTES.into()),
                        Some("cap") => Operand::Integer(BYTES.into()),
                        _ => continue,
                    };
                }
            }
            Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => {}
        }
    }
}
