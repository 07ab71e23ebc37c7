//! Addresses of functions: small numbers, and which functions a call through one may mean.
//!
//! There is no address of code in a confined text. A function whose address is taken has a number in its module, and a
//! call through a pointer compares it with those of the functions that take and return as much as the call gives and
//! expects.

use crate::maps::{HashMap, HashSet};

use crate::ast::{Function, FunctionKind, Item, Module, Operand, Space, Statement, Variable};
use crate::names;

/// The numbers are multiples of this: compilers keep flags in the low bits of pointers to members.
const STEP: u64 = 16;

/// The number of each function whose address is taken.
#[derive(Debug, Default)]
pub(super) struct Numbers(HashMap<String, u64>);

impl Numbers {
    /// Numbers the functions of a module that have a body, in order.
    pub(super) fn of(module: &Module) -> Self {
        let mut defined: HashSet<&str> = HashSet::default();
        let mut ordered = Vec::new();
        for item in &module.items {
            if let Item::Function(function) = item
                && function.kind == FunctionKind::Device
                && function.body.is_some()
                && defined.insert(&function.name)
            {
                ordered.push(function.name.as_str());
            }
        }
        if ordered.is_empty() {
            return Self::default();
        }
        let mut taken = HashSet::default();
        for item in &module.items {
            match item {
                Item::Function(function) => {
                    taken_in(function.body.as_deref().unwrap_or_default(), &defined, &mut taken);
                }
                Item::Variable(variable) => {
                    variable.initializer.iter().for_each(|value| taken_by(value, &defined, &mut taken));
                }
                Item::Directive(_) | Item::Section(_) => {}
            }
        }
        let pointed = ordered.into_iter().filter(|name| taken.contains(name));
        Self(pointed.zip(1..).map(|(name, index)| (name.to_owned(), index * STEP)).collect())
    }

    /// What the address of a function is.
    pub(super) fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// What a value of an initializer is that is made of a function's address: all of it, or the bytes that a mask
    /// selects.
    pub(super) fn value(&self, value: &Operand) -> Option<u64> {
        match value {
            Operand::Symbol(name) | Operand::Generic(name, 0) => self.get(name),
            Operand::Masked(mask, inner) => {
                let selected = self.value(inner)? & mask;
                selected.checked_shr(mask.trailing_zeros())
            }
            _ => None,
        }
    }
}

/// Recursion is bounded by the parser's limit on braces.
fn taken_in<'a>(body: &'a [Statement], defined: &HashSet<&str>, taken: &mut HashSet<&'a str>) {
    for statement in body {
        match statement {
            Statement::Instruction(instruction) => {
                let callee = (instruction.opcode == "call").then(|| {
                    instruction.operands.iter().position(|operand| !matches!(operand, Operand::List(_)))
                });
                for (index, operand) in instruction.operands.iter().enumerate() {
                    if callee != Some(Some(index)) {
                        taken_by(operand, defined, taken);
                    }
                }
            }
            Statement::Block(block, _) => taken_in(block, defined, taken),
            Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => {}
        }
    }
}

fn taken_by<'a>(operand: &'a Operand, defined: &HashSet<&str>, taken: &mut HashSet<&'a str>) {
    if let Operand::Symbol(name) | Operand::Generic(name, _) = operand
        && defined.contains(name.as_str())
    {
        taken.insert(name);
    }
    for inner in operand.inner() {
        taken_by(inner, defined, taken);
    }
}

/// How many bytes a function returns, and how many it takes, each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    returned: Vec<u64>,
    given: Vec<u64>,
}

impl Shape {
    /// The shape of what has so many bytes each. Registers of 8 bits are kept in 16, so that both are one here.
    pub(super) fn widened(returned: impl Iterator<Item = u64>, given: impl Iterator<Item = u64>) -> Self {
        Self {
            returned: returned.map(|bytes| bytes.max(2)).collect(),
            given: given.map(|bytes| bytes.max(2)).collect(),
        }
    }

    /// None where something has no size.
    fn of(function: &Function) -> Option<Self> {
        let sizes = |variables: &[Variable]| variables.iter().map(size).collect::<Option<Vec<_>>>();
        Some(Self::widened(sizes(&function.returns)?.into_iter(), sizes(&function.parameters)?.into_iter()))
    }
}

/// Whether a function takes and returns what has these sizes, where they are known.
pub(super) fn fits(function: &Function, returned: &[Bytes], given: &[Bytes]) -> bool {
    let same = |variables: &[Variable], values: &[Bytes]| {
        variables.len() == values.len()
            && variables.iter().zip(values).all(|(variable, value)| match (size(variable), value) {
                (Some(1 | 2), Bytes::OneOrTwo) => true,
                (Some(bytes), Bytes::Known(known)) => bytes == *known,
                (Some(_) | None, _) => false,
            })
    };
    same(&function.returns, returned) && same(&function.parameters, given)
}

/// How many bytes a value of a call has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    Known(u64),
    /// A register of 16 bits, which may have been declared with 8.
    OneOrTwo,
}

impl Bytes {
    /// The most that it may be.
    pub(super) const fn most(self) -> u64 {
        match self {
            Self::Known(bytes) => bytes,
            Self::OneOrTwo => 2,
        }
    }
}

/// Bytes of a parameter.
pub(super) fn size(parameter: &Variable) -> Option<u64> {
    match parameter.space {
        Space::Register => names::Class::of(parameter.ty).and(names::type_bytes(parameter.ty)),
        _ => names::variable_bytes(parameter),
    }
}

/// The functions that calls through pointers may mean, each with its number.
#[derive(Debug, Default)]
pub(super) struct Pointed<'a>(HashMap<Shape, Vec<(u64, &'a Function)>>);

impl<'a> Pointed<'a> {
    pub(super) fn of(module: &'a Module, numbers: &Numbers) -> Self {
        let mut pointed: HashMap<Shape, Vec<(u64, &'a Function)>> = HashMap::default();
        for item in &module.items {
            if let Item::Function(function) = item
                && function.body.is_some()
                && let Some(number) = numbers.get(&function.name)
                && let Some(shape) = Shape::of(function)
            {
                pointed.entry(shape).or_default().push((number, function));
            }
        }
        Self(pointed)
    }

    /// Those of a shape.
    pub(super) fn get(&self, shape: &Shape) -> &[(u64, &'a Function)] {
        self.0.get(shape).map_or(&[], Vec::as_slice)
    }
}
