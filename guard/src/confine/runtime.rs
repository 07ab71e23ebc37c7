//! Functions that CUDA's compiler leaves for the driver to define, defined in terms of the module's own block.

use std::collections::HashSet;

use crate::ast::{Function, FunctionKind, Item, Linkage, Module, Span, Statement, Type, Variable};

/// The bodies, and the variables that they use.
const TEXTS: [&str; 2] = [include_str!("runtime.ptx"), include_str!("heap.ptx")];

/// What each function needs besides itself.
const NEEDS: [(&str, &str); 3] = [("vprintf", "__bh_printf"), ("malloc", "__bh_heap"), ("free", "__bh_heap")];

/// The functions that a module declares and does not define, with their variables; none where it needs none.
pub(super) fn needed(module: &Module) -> Vec<Item> {
    let declared: HashSet<&str> = module.items.iter().filter_map(undefined).collect();
    if !NEEDS.iter().any(|(function, _)| declared.contains(function)) {
        return Vec::new();
    }
    let wanted = |name: &str| {
        NEEDS.iter().any(|(function, variable)| {
            declared.contains(function) && (name == *function || name == *variable)
        })
    };
    let texts = TEXTS.iter().filter_map(|text| crate::parse(text).ok());
    let items = texts.flat_map(|runtime| runtime.items).filter_map(|item| match item {
        Item::Function(function) if wanted(&function.name) => Some(Item::Function(nowhere(function))),
        Item::Variable(variable) if wanted(&variable.name) => {
            Some(Item::Variable(Variable { span: Span::default(), ..variable }))
        }
        Item::Function(_) | Item::Variable(_) | Item::Section(_) | Item::Directive(_) => None,
    });
    items.collect()
}

/// The name of a function that is declared as the runtime's is, and has no body.
fn undefined(item: &Item) -> Option<&str> {
    let Item::Function(function) = item else { return None };
    let of = |variables: &[Variable], types: &[Type]| {
        variables.len() == types.len()
            && variables.iter().zip(types).all(|(variable, ty)| {
                variable.ty == *ty && variable.vector == 1 && variable.dimensions.is_empty()
            })
    };
    let fits = match function.name.as_str() {
        "vprintf" => of(&function.returns, &[Type::B32]) && of(&function.parameters, &[Type::B64, Type::B64]),
        "malloc" => of(&function.returns, &[Type::B64]) && of(&function.parameters, &[Type::B64]),
        "free" => of(&function.returns, &[]) && of(&function.parameters, &[Type::B64]),
        _ => false,
    };
    let external = function.kind == FunctionKind::Device && function.linkage == Linkage::Extern;
    (fits && external && function.body.is_none()).then_some(&function.name)
}

/// The function without places: those of the runtime's text would be taken for the tenant's.
pub(super) fn nowhere(mut function: Function) -> Function {
    function.span = Span::default();
    for statement in function.body.iter_mut().flatten() {
        match statement {
            Statement::Label(_, span) => *span = Span::default(),
            Statement::Variable(variable) => variable.span = Span::default(),
            Statement::Instruction(instruction) => instruction.span = Span::default(),
            Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    function
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_runtime_is_ptx() {
        let modules = super::TEXTS.map(|text| crate::parse(text).unwrap());
        let names: Vec<&str> = modules
            .iter()
            .flat_map(|module| &module.items)
            .filter_map(|item| match item {
                super::Item::Function(function) => Some(function.name.as_str()),
                super::Item::Variable(variable) => Some(variable.name.as_str()),
                super::Item::Section(_) | super::Item::Directive(_) => None,
            })
            .collect();
        assert_eq!(names, ["__bh_printf", "vprintf", "__bh_heap", "malloc", "free"]);
    }
}
