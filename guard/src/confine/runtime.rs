//! Functions that CUDA's compiler leaves for the driver to define, defined in terms of the module's own block.

use crate::maps::HashSet;

use crate::ast::{
    Function, FunctionKind, Instruction, Item, Linkage, Module, Operand, Space, Span, Statement, Type,
    Variable,
};
use crate::confine::lines::declared;

/// The bodies, and the variables that they use.
const TEXTS: [&str; 2] = [include_str!("printf.ptx"), include_str!("heap.ptx")];

/// `vprintf` once more, three times as long: it keeps the strings among its arguments, too.
const STRINGS: &str = include_str!("printf_strings.ptx");

/// What each function needs besides itself.
const NEEDS: [(&str, &str); 3] = [("vprintf", "__bh_printf"), ("malloc", "__bh_heap"), ("free", "__bh_heap")];

/// Where grids wait whose blocks are there together: a place for each stream, so that grids of several wait apart.
pub(super) const GRID: &str = "__bh_grid";
const GRID_BYTES: u64 = 64 * 64;

/// The functions that a module declares and does not define, with their variables; none where it needs none.
pub(super) fn needed(module: &Module) -> Vec<Item> {
    let mut items = undefined_by(module);
    let asks = module.items.iter().any(|item| match item {
        Item::Function(function) => asks_where_to_wait(function.body.as_deref().unwrap_or_default()),
        Item::Variable(_) | Item::Section(_) | Item::Directive(_) => false,
    });
    if asks {
        let mut grid = declared(Space::Global, Type::B8, GRID, None, Span::default());
        grid.dimensions = vec![GRID_BYTES];
        grid.align = Some(64);
        items.push(Item::Variable(grid));
    }
    items
}

/// Whether a body asks the driver where its grid waits. Recursion is bounded by the parser's limit on braces.
fn asks_where_to_wait(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Instruction(instruction) => where_to_wait(instruction).is_some(),
        Statement::Block(block, _) => asks_where_to_wait(block),
        Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => false,
    })
}

/// Half of the address at which a grid waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Low,
    High,
}

/// Which half of that address an instruction asks for: compilers take it from two registers of the driver's.
pub(super) fn where_to_wait(instruction: &Instruction) -> Option<Half> {
    if instruction.opcode != "mov" {
        return None;
    }
    match instruction.operands.get(1) {
        Some(Operand::Register(name)) if name == "%envreg1" => Some(Half::High),
        Some(Operand::Register(name)) if name == "%envreg2" => Some(Half::Low),
        _ => None,
    }
}

/// Whether a module allocates from the heap.
pub(super) fn has_heap(module: &Module) -> bool {
    module.items.iter().filter_map(undefined_name).any(|name| matches!(name, "malloc" | "free"))
}

fn undefined_by(module: &Module) -> Vec<Item> {
    let undefined: HashSet<&str> = module.items.iter().filter_map(undefined_name).collect();
    if !NEEDS.iter().any(|(function, _)| undefined.contains(function)) {
        return Vec::new();
    }
    let wanted = |name: &str| {
        NEEDS.iter().any(|(function, variable)| {
            undefined.contains(function) && (name == *function || name == *variable)
        })
    };
    let printing = if prints_strings(module) { functions(STRINGS) } else { Vec::new() };
    let texts = TEXTS.iter().filter_map(|text| crate::parse(text).ok());
    let items = texts.flat_map(|runtime| runtime.items).filter_map(|item| match item {
        Item::Function(function) if wanted(&function.name) => {
            let other = printing.iter().find(|other| other.name == function.name);
            Some(Item::Function(nowhere(other.cloned().unwrap_or(function))))
        }
        Item::Variable(variable) if wanted(&variable.name) => {
            Some(Item::Variable(Variable { span: Span::default(), ..variable }))
        }
        Item::Function(_) | Item::Variable(_) | Item::Section(_) | Item::Directive(_) => None,
    });
    items.collect()
}

fn functions(text: &str) -> Vec<Function> {
    let items = crate::parse(text).map(|module| module.items).unwrap_or_default();
    let is_function = |item| if let Item::Function(function) = item { Some(function) } else { None };
    items.into_iter().filter_map(is_function).collect()
}

/// Whether a string of the module asks for a string, as in `%-8s`. Where a format comes from elsewhere, what it asks for is
/// read when it is printed.
fn prints_strings(module: &Module) -> bool {
    module.items.iter().any(|item| {
        let Item::Variable(variable) = item else { return false };
        let mut inside = false;
        variable.initializer.iter().any(|value| {
            let Operand::Integer(value) = value else { return false };
            let byte = u8::try_from(*value).unwrap_or_default();
            let asks = inside && byte == b's';
            inside = if inside { b"0123456789.*+-# hl".contains(&byte) } else { byte == b'%' };
            asks
        })
    })
}

/// The name of a function that is declared as the runtime's is, and has no body.
fn undefined_name(item: &Item) -> Option<&str> {
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
        let texts = super::TEXTS.iter().chain([&super::STRINGS]);
        let modules: Vec<_> = texts.map(|text| crate::parse(text).unwrap()).collect();
        let names: Vec<&str> = modules
            .iter()
            .flat_map(|module| &module.items)
            .filter_map(|item| match item {
                super::Item::Function(function) => Some(function.name.as_str()),
                super::Item::Variable(variable) => Some(variable.name.as_str()),
                super::Item::Section(_) | super::Item::Directive(_) => None,
            })
            .collect();
        assert_eq!(names, ["__bh_printf", "vprintf", "__bh_heap", "malloc", "free", "vprintf"]);
    }
}
