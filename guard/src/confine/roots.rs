//! Which constant variable a register's address comes from.
//!
//! An access to the constant bank by register is clamped into one variable; this finds out into which. A
//! mistake here cannot break the confinement (the clamp holds whatever the register holds), only the
//! program, so an address that cannot be followed refuses the module.

use crate::maps::HashMap;

use crate::ast::{AddressBase, Instruction, Operand, Space, Statement};
use crate::confine::symbols::Symbols;
use crate::names::Class;
use crate::report::{Reason, Report};
use crate::table;

/// Rounds until the roots must have settled; real code takes two or three.
const ROUNDS_MAX: usize = 16;

/// Where a 64-bit register's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root<'a> {
    /// Not an address of a constant variable.
    Plain,
    /// An address within this variable.
    Of(&'a str),
    /// Sometimes this, sometimes that.
    Mixed,
}

/// The constant variable that each register's address comes from.
#[derive(Debug, Default)]
pub(super) struct Roots {
    by_register: HashMap<String, String>,
}

impl Roots {
    pub(super) fn of(&self, register: &str) -> Option<&str> {
        self.by_register.get(register).map(String::as_str)
    }
}

/// Follows the addresses of constant variables through a body.
pub(super) fn find(statements: &[Statement], symbols: &Symbols, report: &mut Report) -> Roots {
    if !symbols.have_constants() {
        return Roots::default();
    }
    let mut roots: HashMap<&str, Root<'_>> = HashMap::default();
    for round in 0..=ROUNDS_MAX {
        let mut changed = false;
        for instruction in instructions(statements) {
            let Some((register, root)) = defined(instruction, symbols, &roots) else { continue };
            let joined = match (roots.get(register), root) {
                (None, root) => root,
                (Some(known), Some(root)) if *known != root => Some(Root::Mixed),
                (Some(known), _) => Some(*known),
            };
            let Some(joined) = joined else { continue };
            changed |= roots.insert(register, joined) != Some(joined);
        }
        if !changed {
            break;
        }
        if round == ROUNDS_MAX {
            // Not settled: nothing is known of any address.
            roots.values_mut().for_each(|root| *root = Root::Mixed);
        }
    }
    for instruction in instructions(statements) {
        if let Err(reason) = check_uses(instruction, symbols, &roots) {
            report.add(instruction.span, reason);
        }
    }
    let followed = roots.into_iter().filter_map(|(register, root)| match root {
        Root::Of(symbol) => Some((register.to_owned(), symbol.to_owned())),
        Root::Plain | Root::Mixed => None,
    });
    Roots { by_register: followed.collect() }
}

fn instructions(statements: &[Statement]) -> impl Iterator<Item = &Instruction> {
    statements.iter().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(..) | Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {
            None
        }
    })
}

fn is_double(name: &str) -> bool {
    matches!(Class::parse(name), Some((Class::Double, _)))
}

/// The 64-bit register that an instruction defines as its only destination, and the root it gets; no root
/// where that is not known yet.
fn defined<'a>(
    instruction: &'a Instruction,
    symbols: &Symbols,
    roots: &HashMap<&'a str, Root<'a>>,
) -> Option<(&'a str, Option<Root<'a>>)> {
    let row = table::check(instruction).ok()?;
    if row.destinations == 0 {
        return None;
    }
    let Some(Operand::Register(register)) = instruction.operands.first() else { return None };
    if !is_double(register) {
        return None;
    }
    let of = |operand: Option<&'a Operand>| match operand {
        Some(Operand::Register(name)) if is_double(name) => roots.get(name.as_str()).copied(),
        Some(Operand::Symbol(name) | Operand::SymbolOffset(name, _)) if is_constant(name, symbols) => {
            Some(Root::Of(name))
        }
        _ => Some(Root::Plain),
    };
    let operands = &instruction.operands;
    let (first, second) = (operands.get(1), operands.get(2));
    let root = match carries(instruction) {
        Carries::First => of(first),
        Carries::Sum => sum(of(first), of(second)),
        Carries::Difference => match (of(first), of(second)) {
            (Some(Root::Of(_)), Some(Root::Of(_))) => Some(Root::Plain),
            (first, Some(Root::Plain) | None) => first,
            _ => Some(Root::Mixed),
        },
        Carries::Third => of(operands.get(3)),
        Carries::Either => match (of(first), of(second)) {
            (Some(first), Some(second)) if first != second => Some(Root::Mixed),
            (first, second) => first.or(second),
        },
        Carries::Nothing => Some(Root::Plain),
    };
    Some((register, root))
}

fn sum<'a>(first: Option<Root<'a>>, second: Option<Root<'a>>) -> Option<Root<'a>> {
    match (first, second) {
        (Some(Root::Plain), other) | (other, Some(Root::Plain)) => other,
        (None, other) | (other, None) => other,
        _ => Some(Root::Mixed),
    }
}

/// Which operands' addresses an instruction's result is an address within.
enum Carries {
    First,
    Sum,
    Difference,
    Third,
    Either,
    Nothing,
}

fn carries(instruction: &Instruction) -> Carries {
    match instruction.opcode.as_str() {
        "mov" | "cvta" => Carries::First,
        "add" => Carries::Sum,
        "sub" => Carries::Difference,
        "mad" => Carries::Third,
        "selp" => Carries::Either,
        _ => Carries::Nothing,
    }
}

fn is_constant(name: &str, symbols: &Symbols) -> bool {
    symbols.get(name).is_some_and(|symbol| symbol.space == Space::Constant)
}

/// Addresses of constant variables may only be computed with and loaded from.
fn check_uses(
    instruction: &Instruction,
    symbols: &Symbols,
    roots: &HashMap<&str, Root<'_>>,
) -> Result<(), Reason> {
    let addresses =
        matches!(instruction.opcode.as_str(), "mov" | "cvta" | "add" | "sub" | "mad" | "selp" | "setp");
    let tracked = |operand: &Operand| match operand {
        Operand::Register(name) => match roots.get(name.as_str()) {
            Some(Root::Of(symbol)) => Some((*symbol).to_owned()),
            Some(Root::Mixed) => Some(name.clone()),
            Some(Root::Plain) | None => None,
        },
        Operand::Symbol(name) | Operand::SymbolOffset(name, _) if is_constant(name, symbols) => {
            Some(name.clone())
        }
        Operand::Address(address) => match &address.base {
            AddressBase::Register(name) if roots.get(name.as_str()) == Some(&Root::Mixed) => {
                Some(name.clone())
            }
            _ => None,
        },
        _ => None,
    };
    // Only a 64-bit result can be followed further; a comparison needs none.
    let followed = matches!(instruction.operands.first(), Some(Operand::Register(name)) if is_double(name))
        || instruction.opcode == "setp";
    let destinations = table::check(instruction).map_or(0, |row| row.destinations);
    for operand in instruction.operands.iter().skip(destinations) {
        let elements = match operand {
            Operand::Vector(elements) => elements.as_slice(),
            other => std::slice::from_ref(other),
        };
        for element in elements {
            let Some(name) = tracked(element) else { continue };
            let mixed = symbols.get(&name).is_none();
            if !mixed && addresses && followed {
                continue;
            }
            let what = if mixed {
                "an address that may be of one constant variable or of another memory".to_owned()
            } else {
                format!("such a use of the address of `{name}`")
            };
            return Err(Reason::NotImplemented { what });
        }
    }
    Ok(())
}
