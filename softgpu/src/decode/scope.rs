//! Names of one body: registers, variables and labels, by scope.

use std::collections::HashMap;

use bulkhead_ptx::ast::{Directive, Operand, Statement, Type, Variable};

use super::refusal::Refusal;
use super::words::bits_of;
use crate::code::Region;

/// A register that an instruction names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Register {
    /// One word per lane.
    Data {
        /// Number of the register.
        index: u32,
        /// Declared width.
        bits: u32,
    },
    /// One bit per lane.
    Predicate(u32),
}

/// A variable that an instruction names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// Its memory.
    pub(crate) region: Region,
    /// Its address there.
    pub(crate) address: u64,
    /// Whether the address counts from the end of static shared memory.
    pub(crate) dynamic: bool,
}

#[derive(Debug, Default)]
struct Scope {
    types: HashMap<String, Type>,
    ranges: HashMap<String, (u32, Type)>,
    registers: HashMap<String, Register>,
    symbols: HashMap<String, Symbol>,
    labels: HashMap<String, u32>,
    targets: HashMap<String, Vec<String>>,
}

/// All scopes that are open.
#[derive(Debug, Default)]
pub(crate) struct Names {
    open: Vec<Scope>,
    labels: u32,
    /// Of each register, in bits.
    widths: Vec<u8>,
    predicates: u32,
}

/// Registers of one entry, temporaries included.
const REGISTERS_MAX: u32 = 1 << 17;
/// Width of a register that may hold anything.
const WIDTH_MAX: u8 = 64;

impl Names {
    /// No names. The first register, which nobody reads, and predicates below this number are taken.
    pub(crate) fn new(predicates: u32) -> Self {
        Self { open: Vec::new(), labels: 0, widths: vec![WIDTH_MAX], predicates }
    }

    /// Opens a scope: its labels are known in all of it.
    pub(crate) fn enter(&mut self, statements: &[Statement]) -> Result<(), Refusal> {
        let mut scope = Scope::default();
        let mut last = None;
        for statement in statements {
            match statement {
                Statement::Label(name, _) => {
                    if scope.labels.insert(name.clone(), self.labels).is_some() {
                        return Err(Refusal::new(format!("label `{name}` is there twice")));
                    }
                    self.labels += 1;
                    last = Some(name);
                }
                Statement::Directive(Directive { name, operands, .. }) if name == ".branchtargets" => {
                    if let Some(label) = last.take() {
                        scope.targets.insert(label.clone(), operands.clone());
                    }
                }
                Statement::Variable(_)
                | Statement::Instruction(_)
                | Statement::Block(..)
                | Statement::Directive(_) => last = None,
            }
        }
        self.open.push(scope);
        Ok(())
    }

    /// Closes the innermost scope.
    pub(crate) fn leave(&mut self) {
        self.open.pop();
    }

    /// Labels so far.
    pub(crate) fn label_count(&self) -> u32 {
        self.labels
    }

    /// The widths of all registers so far, and how many predicates there are.
    pub(crate) fn widths(&self) -> (Vec<u8>, u32) {
        (self.widths.clone(), self.predicates)
    }

    /// Declares a register or a range of them.
    pub(crate) fn declare_register(&mut self, variable: &Variable) -> Result<(), Refusal> {
        if variable.vector != 1
            || !(1..=64).contains(&bits_of(variable.ty))
            || !variable.dimensions.is_empty()
        {
            return Err(Refusal::new(format!("register `{}` does not have 1 to 64 bits", variable.name)));
        }
        if let Some(scope) = self.open.last_mut() {
            match variable.range {
                Some(count) => {
                    scope.ranges.insert(variable.name.clone(), (count, variable.ty));
                }
                None => {
                    scope.types.insert(variable.name.clone(), variable.ty);
                }
            }
        }
        Ok(())
    }

    /// Declares a variable.
    pub(crate) fn declare_symbol(&mut self, name: &str, symbol: Symbol) {
        if let Some(scope) = self.open.last_mut() {
            scope.symbols.insert(name.to_owned(), symbol);
        }
    }

    /// A data register of the decoder's own.
    pub(crate) fn temporary(&mut self) -> Result<u32, Refusal> {
        self.new_register(WIDTH_MAX)
    }

    /// The same with a name, which no program can give one.
    pub(crate) fn scratch(&mut self, ty: Type) -> Result<Operand, Refusal> {
        let index = self.temporary()?;
        let name = format!("temporary {index}");
        if let Some(scope) = self.open.last_mut() {
            scope.registers.insert(name.clone(), Register::Data { index, bits: bits_of(ty) });
        }
        Ok(Operand::Register(name))
    }

    fn new_register(&mut self, width: u8) -> Result<u32, Refusal> {
        let index = u32::try_from(self.widths.len()).unwrap_or(u32::MAX);
        if index >= REGISTERS_MAX {
            return Err(Refusal::new("the entry uses too many registers"));
        }
        self.widths.push(width);
        Ok(index)
    }

    /// The register of this name. Registers get their number when they are first used.
    pub(crate) fn register(&mut self, name: &str) -> Result<Option<Register>, Refusal> {
        for depth in (0..self.open.len()).rev() {
            let scope = &self.open[depth];
            if let Some(register) = scope.registers.get(name) {
                return Ok(Some(*register));
            }
            let Some(ty) = scope.types.get(name).copied().or_else(|| ranged(scope, name)) else { continue };
            let register = if ty == Type::Pred {
                if self.predicates >= REGISTERS_MAX {
                    return Err(Refusal::new("the entry uses too many predicates"));
                }
                self.predicates += 1;
                Register::Predicate(self.predicates - 1)
            } else {
                let bits = bits_of(ty);
                let width = u8::try_from(bits).unwrap_or(WIDTH_MAX);
                Register::Data { index: self.new_register(width)?, bits }
            };
            self.open[depth].registers.insert(name.to_owned(), register);
            return Ok(Some(register));
        }
        Ok(None)
    }

    /// The variable of this name.
    pub(crate) fn symbol(&self, name: &str) -> Option<Symbol> {
        self.open.iter().rev().find_map(|scope| scope.symbols.get(name).copied())
    }

    /// The number of a label.
    pub(crate) fn label(&self, name: &str) -> Result<u32, Refusal> {
        self.open
            .iter()
            .rev()
            .find_map(|scope| scope.labels.get(name).copied())
            .ok_or_else(|| Refusal::new(format!("label `{name}` is not here")))
    }

    /// The labels in a table of branch targets.
    pub(crate) fn targets(&self, name: &str) -> Result<Vec<String>, Refusal> {
        self.open
            .iter()
            .rev()
            .find_map(|scope| scope.targets.get(name).cloned())
            .ok_or_else(|| Refusal::new(format!("`{name}` is no table of branch targets")))
    }
}

/// The type of a register of a range: `%r17` is in `%r<20>`.
fn ranged(scope: &Scope, name: &str) -> Option<Type> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    (1..=digits.min(10)).find_map(|count| {
        let (prefix, number) = name.split_at(name.len() - count);
        let (limit, ty) = scope.ranges.get(prefix)?;
        let canonical = number.len() == 1 || !number.starts_with('0');
        (canonical && number.parse::<u32>().ok()? < *limit).then_some(*ty)
    })
}
