//! Names of a unit that are renamed, and files that are numbered anew.

use std::collections::{HashMap, HashSet};

use bulkhead_ptx::ast::{
    Address, AddressBase, Directive, Function, Item, Module, Operand, Statement, Variable,
};

/// Renames what a unit calls by these names, and adds `files` to the number of every source file. What a function declares
/// by such a name itself stays as it is. Debug sections go, and with them what `.loc` says of them.
pub(crate) fn rename(module: &mut Module, names: &HashMap<String, String>, files: u64) {
    module.items.retain(|item| !matches!(item, Item::Section(_)));
    let scope = Scope { names, hidden: HashSet::new() };
    for item in &mut module.items {
        match item {
            Item::Variable(variable) => {
                scope.name(&mut variable.name);
                scope.initializer(variable);
            }
            Item::Function(function) => scope.function(function, files),
            Item::Directive(directive) => scope.directive(directive, files),
            Item::Section(_) => {}
        }
    }
}

/// The number of the last file that a unit names.
pub(crate) fn last_file(module: &Module) -> u64 {
    let number = |item: &Item| match item {
        Item::Directive(directive) if directive.name == ".file" => {
            directive.operands.first()?.split(' ').next()?.parse().ok()
        }
        Item::Directive(_) | Item::Variable(_) | Item::Function(_) | Item::Section(_) => None,
    };
    module.items.iter().filter_map(number).max().unwrap_or(0)
}

/// What is renamed where the scope's own declarations do not hide it.
struct Scope<'a> {
    names: &'a HashMap<String, String>,
    hidden: HashSet<String>,
}

impl Scope<'_> {
    fn name(&self, name: &mut String) {
        if let Some(other) = self.names.get(name.as_str()).filter(|_| !self.hidden.contains(name.as_str())) {
            name.clone_from(other);
        }
    }

    fn function(&self, function: &mut Function, files: u64) {
        self.name(&mut function.name);
        let declared = function.parameters.iter().chain(&function.returns);
        let hidden = declared.map(|variable| variable.name.clone()).collect();
        let inner = Scope { names: self.names, hidden };
        if let Some(body) = &mut function.body {
            inner.block(body, files);
        }
    }

    /// Recursion is bounded by the parser's limit on braces.
    fn block(&self, body: &mut [Statement], files: u64) {
        let declared = body.iter().filter_map(|statement| match statement {
            Statement::Label(name, _) => Some(name.clone()),
            Statement::Variable(variable) => Some(variable.name.clone()),
            Statement::Instruction(_) | Statement::Block(..) | Statement::Directive(_) => None,
        });
        let declared: Vec<String> = declared.filter(|name| self.names.contains_key(name)).collect();
        let mut hidden = self.hidden.clone();
        hidden.extend(declared);
        let scope = Scope { names: self.names, hidden };
        for statement in body {
            match statement {
                Statement::Instruction(instruction) => {
                    instruction.operands.iter_mut().for_each(|operand| scope.operand(operand));
                }
                Statement::Variable(variable) => scope.initializer(variable),
                Statement::Block(inner, _) => scope.block(inner, files),
                Statement::Directive(directive) => scope.directive(directive, files),
                Statement::Label(..) => {}
            }
        }
    }

    fn initializer(&self, variable: &mut Variable) {
        variable.initializer.iter_mut().for_each(|operand| self.operand(operand));
    }

    fn directive(&self, directive: &mut Directive, files: u64) {
        match directive.name.as_str() {
            ".file" | ".loc" => {
                directive.operands.retain(|operand| !operand.starts_with("function_name "));
                directive.operands.iter_mut().for_each(|operand| renumber(operand, files));
            }
            _ => directive.operands.iter_mut().for_each(|operand| self.name(operand)),
        }
    }

    fn operand(&self, operand: &mut Operand) {
        match operand {
            Operand::Symbol(name)
            | Operand::SymbolOffset(name, _)
            | Operand::Generic(name, _)
            | Operand::Address(Address { base: AddressBase::Symbol(name), .. }) => self.name(name),
            Operand::Subscript(name, address) => {
                self.name(name);
                self.address(address);
            }
            Operand::Vector(list) | Operand::List(list) => {
                list.iter_mut().for_each(|inner| self.operand(inner));
            }
            Operand::Coordinates(address, list) => {
                self.address(address);
                list.iter_mut().for_each(|inner| self.operand(inner));
            }
            Operand::Pair(first, second) => {
                self.operand(first);
                self.operand(second);
            }
            Operand::Negated(inner) | Operand::Masked(_, inner) | Operand::Field(_, inner) => {
                self.operand(inner)
            }
            Operand::Register(_)
            | Operand::Integer(_)
            | Operand::Float32(_)
            | Operand::Float64(_)
            | Operand::Address(_)
            | Operand::Not(_)
            | Operand::Sink
            | Operand::Selected(..)
            | Operand::Difference(..) => {}
        }
    }

    fn address(&self, address: &mut Address) {
        if let AddressBase::Symbol(name) = &mut address.base {
            self.name(name);
        }
    }
}

/// Adds to the number of a file in `1 "a.cu"`, `1 7 5` and `inlined_at 1 7 5`.
fn renumber(operand: &mut String, files: u64) {
    let (before, rest) =
        operand.strip_prefix("inlined_at ").map_or(("", operand.as_str()), |rest| ("inlined_at ", rest));
    let Some((number, rest)) = rest.split_once(' ') else { return };
    if let Some(number) = number.parse::<u64>().ok().and_then(|number| number.checked_add(files)) {
        *operand = format!("{before}{number} {rest}");
    }
}
