//! What a text asks of the device: what its machine code may not exceed.
//!
//! A linter of machine code cannot count instructions (the assembler unrolls, splits and joins them), but it can
//! hold against each entry the memory it declares and the kinds of access that it makes at all.

use crate::ast::{Function, FunctionKind, Instruction, Item, Module, Space, Statement, Variable};
use crate::names;
use crate::table::{self, Treatment};

/// The kinds of access that are made to a state space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Uses {
    /// Something is loaded.
    pub loads: bool,
    /// Something is stored.
    pub stores: bool,
    /// Something is changed in one step: `atom`, `red`.
    pub updates: bool,
}

/// What one entry asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Its name in the text, which the machine code has too.
    pub name: String,
    /// How many parameters a launch gives it, hidden ones included.
    pub parameters: usize,
    /// Bytes of its parameter block, hidden parameters included.
    pub parameter_bytes: u64,
    /// Bytes of shared variables that it can name, with what their alignment may take.
    pub shared_bytes: u64,
    /// Bytes of its local variable.
    pub local_bytes: u64,
    /// Bytes of constant variables of its module, with what their alignment may take.
    pub constant_bytes: u64,
    /// What it does to global memory.
    pub global: Uses,
    /// What it does to shared memory.
    pub shared: Uses,
}

/// The footprints of a module's entries, in the order of the text.
pub(crate) fn of(module: &Module) -> Vec<Footprint> {
    let variables = || {
        module.items.iter().filter_map(|item| match item {
            Item::Variable(variable) => Some(variable),
            Item::Function(_) | Item::Directive(_) | Item::Section(_) => None,
        })
    };
    let shared_bytes = bytes_of(variables(), Space::Shared);
    let constant_bytes = bytes_of(variables(), Space::Constant);
    let entry = |item: &Item| match item {
        Item::Function(function) if function.kind == FunctionKind::Entry => {
            let mut footprint = entry(function);
            footprint.shared_bytes = footprint.shared_bytes.saturating_add(shared_bytes);
            footprint.constant_bytes = constant_bytes;
            Some(footprint)
        }
        Item::Function(_) | Item::Variable(_) | Item::Directive(_) | Item::Section(_) => None,
    };
    module.items.iter().filter_map(entry).collect()
}

fn entry(function: &Function) -> Footprint {
    let parameter_bytes = function.parameters.iter().fold(0_u64, |end, parameter| {
        let align = names::variable_align(parameter).max(1);
        let bytes = names::variable_bytes(parameter).unwrap_or(u64::MAX);
        end.checked_next_multiple_of(align).unwrap_or(u64::MAX).saturating_add(bytes)
    });
    let mut footprint = Footprint {
        name: function.name.clone(),
        parameters: function.parameters.len(),
        parameter_bytes,
        ..Footprint::default()
    };
    walk(function.body.as_deref().unwrap_or_default(), &mut footprint);
    footprint
}

fn walk(statements: &[Statement], footprint: &mut Footprint) {
    for statement in statements {
        match statement {
            Statement::Variable(variable) => {
                let own = || std::iter::once(variable);
                footprint.shared_bytes =
                    footprint.shared_bytes.saturating_add(bytes_of(own(), Space::Shared));
                footprint.local_bytes = footprint.local_bytes.saturating_add(bytes_of(own(), Space::Local));
            }
            Statement::Instruction(instruction) => note(instruction, footprint),
            Statement::Block(inner, _) => walk(inner, footprint),
            Statement::Label(..) | Statement::Directive(_) => {}
        }
    }
}

fn note(instruction: &Instruction, footprint: &mut Footprint) {
    let Some(row) = table::row_of(instruction) else { return };
    if row.treatment == Treatment::Copy {
        footprint.global.loads = true;
        footprint.shared.stores = true;
        // The assembler puts loads that never run before a copy.
        footprint.shared.loads = true;
        return;
    }
    let names = |space: &str| {
        let inner = |modifier: &String| {
            modifier.strip_prefix(space).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        instruction.modifiers.iter().any(inner)
    };
    let uses = match (names("global"), names("shared")) {
        (true, _) => &mut footprint.global,
        (false, true) => &mut footprint.shared,
        (false, false) => return,
    };
    match row.treatment {
        Treatment::Load => uses.loads = true,
        Treatment::Store => uses.stores = true,
        Treatment::Atomic | Treatment::Reduction => uses.updates = true,
        Treatment::Pure
        | Treatment::Move
        | Treatment::Branch
        | Treatment::Barrier
        | Treatment::Hint
        | Treatment::Copy
        | Treatment::Gate
        | Treatment::Refused(_) => {}
    }
}

/// Bytes of the variables of a space, each with all its alignment may take.
fn bytes_of<'a>(variables: impl Iterator<Item = &'a Variable>, space: Space) -> u64 {
    let bytes = |variable: &Variable| {
        let align = names::variable_align(variable).max(1);
        names::variable_bytes(variable)
            .unwrap_or(u64::MAX)
            .checked_next_multiple_of(align)
            .unwrap_or(u64::MAX)
    };
    variables
        .filter(|variable| variable.space == space)
        .fold(0, |sum: u64, variable| sum.saturating_add(bytes(variable)))
}
