//! From a body with scopes to one without: every name resolved, every opcode looked up.

use std::collections::{HashMap, HashSet};

use crate::ast::{
    Address, AddressBase, Directive, Instruction, Operand, Predicate, Space, Span, Statement, Variable,
};
use crate::confine::scope::{Meaning, Scopes};
use crate::confine::symbols::Symbols;
use crate::names;
use crate::report::{Reason, Report};
use crate::table::{self, Treatment};
use crate::{access, operands};

/// An entry's own parameters by name.
pub(super) type Parameters<'a> = HashMap<&'a str, &'a Variable>;

/// A body without scopes.
#[derive(Debug, Default)]
pub(super) struct Flat {
    /// Labels and instructions, in order.
    pub(super) statements: Vec<Statement>,
    /// `.shared` and `.local` variables, in order.
    pub(super) variables: Vec<Variable>,
}

/// Flattens bodies; one for each entry.
pub(super) struct Flattener<'a> {
    pub(super) symbols: &'a Symbols,
    pub(super) parameters: &'a Parameters<'a>,
    /// The names of the body's variables.
    pub(super) taken: HashSet<String>,
    pub(super) scopes: Scopes,
    pub(super) report: &'a mut Report,
}

impl Flattener<'_> {
    /// Flattens `body`, in text order; recursion is bounded by the parser's limit on braces.
    pub(super) fn block(&mut self, body: &[Statement], into: &mut Flat) {
        self.scopes.enter();
        // Labels are known in their whole scope, also before they stand.
        for statement in body {
            if let Statement::Label(name, span) = statement {
                let declared = names::check_label(name).and_then(|()| self.scopes.declare_label(name));
                self.note(*span, declared);
            }
        }
        for statement in body {
            match statement {
                Statement::Label(name, span) => {
                    if let Some(Meaning::Label(canonical)) = self.scopes.resolve(name) {
                        into.statements.push(Statement::Label(canonical, *span));
                    }
                }
                Statement::Variable(variable) => {
                    let declared = self.variable(variable, into);
                    self.note(variable.span, declared);
                }
                Statement::Instruction(instruction) => match self.instruction(instruction) {
                    Ok(Some(instruction)) => into.statements.push(Statement::Instruction(instruction)),
                    Ok(None) => {}
                    Err(reason) => self.report.add(instruction.span, reason),
                },
                Statement::Block(block, _) => self.block(block, into),
                Statement::Directive(directive) => {
                    let allowed = check_directive(directive);
                    self.note(directive.span, allowed);
                }
            }
        }
        self.scopes.leave();
    }

    fn note(&mut self, span: Span, result: Result<(), Reason>) {
        if let Err(reason) = result {
            self.report.add(span, reason);
        }
    }

    fn variable(&mut self, variable: &Variable, into: &mut Flat) -> Result<(), Reason> {
        match variable.space {
            Space::Register => self.scopes.declare_registers(variable),
            Space::Shared | Space::Local => {
                names::check_symbol(&variable.name)?;
                let elsewhere = self.symbols.contains(&variable.name)
                    || self.parameters.contains_key(variable.name.as_str())
                    || !self.taken.insert(variable.name.clone());
                if elsewhere {
                    return Err(Reason::Duplicate(variable.name.clone()));
                }
                self.scopes.declare_variable(&variable.name, Meaning::Variable)?;
                into.variables.push(variable.clone());
                Ok(())
            }
            // Refused where it is used.
            Space::Parameter => self.scopes.declare_variable(&variable.name, Meaning::CallParameter),
            Space::Global | Space::Constant => Err(Reason::NotImplemented {
                what: format!("a variable of this state space in a body, `{}`", variable.name),
            }),
        }
    }

    /// The instruction with canonical names; none where it is left out.
    fn instruction(&mut self, instruction: &Instruction) -> Result<Option<Instruction>, Reason> {
        let mut instruction = instruction.clone();
        instruction.modifiers.retain(|modifier| !is_hint(modifier));
        let row = table::check(&instruction)?;
        if row.treatment == Treatment::Hint {
            return Ok(None);
        }
        // Decoded first: of all that may be wrong with an access its space is the clearest to name.
        access::decode(row, &instruction)?;
        let predicate = match &instruction.predicate {
            None => None,
            Some(Predicate { register, negated }) => {
                Some(Predicate { register: self.register(register)?, negated: *negated })
            }
        };
        let operands = instruction
            .operands
            .iter()
            .map(|operand| match row.treatment {
                Treatment::Branch => self.target(operand),
                _ => self.operand(operand),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let instruction = Instruction { predicate, operands, ..instruction };
        operands::check(row, &instruction)?;
        Ok(Some(instruction))
    }

    fn register(&mut self, name: &str) -> Result<String, Reason> {
        match self.scopes.resolve(name) {
            Some(Meaning::Register(canonical)) => Ok(canonical),
            Some(Meaning::Label(_) | Meaning::Variable | Meaning::CallParameter) => {
                Err(Reason::Malformed(format!("`{name}` is not a register")))
            }
            None if names::is_special(name) => Ok(name.to_owned()),
            None if names::is_reserved(name) => Err(Reason::Reserved(name.to_owned())),
            None if names::is_special_elsewhere(name) => {
                Err(Reason::NotImplemented { what: format!("the special register `{name}`") })
            }
            None => Err(Reason::Undeclared(name.to_owned())),
        }
    }

    fn target(&mut self, operand: &Operand) -> Result<Operand, Reason> {
        let Operand::Symbol(name) = operand else {
            return Err(Reason::Malformed("a branch goes to a label".to_owned()));
        };
        match self.scopes.resolve(name) {
            Some(Meaning::Label(canonical)) => Ok(Operand::Symbol(canonical)),
            Some(Meaning::Register(_) | Meaning::Variable | Meaning::CallParameter) => {
                Err(Reason::Malformed(format!("`{name}` is not a label")))
            }
            None => Err(Reason::Undeclared(name.clone())),
        }
    }

    fn operand(&mut self, operand: &Operand) -> Result<Operand, Reason> {
        Ok(match operand {
            Operand::Register(name) => Operand::Register(self.register(name)?),
            Operand::Not(name) => Operand::Not(self.register(name)?),
            Operand::Symbol(name) if name == names::WARP_SIZE => Operand::Integer(32),
            Operand::Symbol(name) => match self.scopes.resolve(name) {
                Some(Meaning::Register(canonical)) => Operand::Register(canonical),
                Some(Meaning::Label(_)) => {
                    return Err(Reason::NotImplemented {
                        what: format!("the address of the label `{name}`"),
                    });
                }
                Some(Meaning::Variable) => operand.clone(),
                Some(Meaning::CallParameter) => return Err(call_parameter()),
                None => {
                    self.module_symbol(name)?;
                    operand.clone()
                }
            },
            Operand::SymbolOffset(name, _) => match self.scopes.resolve(name) {
                Some(Meaning::Variable) => operand.clone(),
                Some(Meaning::Register(_) | Meaning::Label(_) | Meaning::CallParameter) => {
                    return Err(Reason::Malformed(format!("`{name}` is not a variable")));
                }
                None => {
                    self.module_symbol(name)?;
                    operand.clone()
                }
            },
            Operand::Address(address) => Operand::Address(self.address(address)?),
            Operand::Vector(elements) => Operand::Vector(self.operands(elements)?),
            Operand::List(elements) => Operand::List(self.operands(elements)?),
            Operand::Pair(first, second) => {
                Operand::Pair(Box::new(self.operand(first)?), Box::new(self.operand(second)?))
            }
            Operand::Selected(name, selector) => {
                return Err(Reason::NotImplemented {
                    what: format!("a part of a register, `{name}.{selector}`"),
                });
            }
            Operand::Coordinates(address, coordinates) => {
                Operand::Coordinates(self.address(address)?, self.operands(coordinates)?)
            }
            Operand::Negated(inner) => Operand::Negated(Box::new(self.operand(inner)?)),
            Operand::Subscript(name, _) => {
                return Err(Reason::NotImplemented {
                    what: format!("an element by subscript, `{name}[...]`"),
                });
            }
            Operand::Generic(..) | Operand::Masked(..) | Operand::Difference(..) | Operand::Field(..) => {
                return Err(Reason::Malformed("such an operand belongs in an initializer".to_owned()));
            }
            Operand::Integer(_) | Operand::Float32(_) | Operand::Float64(_) | Operand::Sink => {
                operand.clone()
            }
        })
    }

    fn operands(&mut self, operands: &[Operand]) -> Result<Vec<Operand>, Reason> {
        operands.iter().map(|operand| self.operand(operand)).collect()
    }

    fn module_symbol(&self, name: &str) -> Result<(), Reason> {
        if self.symbols.contains(name) {
            return Ok(());
        }
        if self.symbols.was_refused(name) {
            return Err(Reason::NotImplemented { what: format!("the variable `{name}`") });
        }
        if self.parameters.contains_key(name) {
            return Err(Reason::NotImplemented { what: format!("the address of the parameter `{name}`") });
        }
        Err(Reason::Undeclared(name.to_owned()))
    }

    fn address(&mut self, address: &Address) -> Result<Address, Reason> {
        let base = match &address.base {
            AddressBase::Register(name) => AddressBase::Register(self.register(name)?),
            AddressBase::Symbol(name) => match self.scopes.resolve(name) {
                Some(Meaning::Register(canonical)) => AddressBase::Register(canonical),
                Some(Meaning::Label(_)) => {
                    return Err(Reason::Malformed(format!("`{name}` is a label")));
                }
                Some(Meaning::CallParameter) => return Err(call_parameter()),
                Some(Meaning::Variable) => address.base.clone(),
                None if self.symbols.contains(name) => address.base.clone(),
                None if self.parameters.contains_key(name.as_str()) => address.base.clone(),
                None => {
                    self.module_symbol(name)?;
                    address.base.clone()
                }
            },
            AddressBase::Absolute => AddressBase::Absolute,
        };
        Ok(Address { base, offset: address.offset })
    }
}

fn call_parameter() -> Reason {
    Reason::NotImplemented { what: "a function call's parameter".to_owned() }
}

/// Whether a modifier only advises the caches: hints of one session would evict lines of the others.
fn is_hint(modifier: &str) -> bool {
    let hint = modifier.starts_with("L1::") || modifier.starts_with("L2::");
    hint && modifier != "L2::cache_hint"
}

/// Of the directives in a body only pragmas that promise nothing are accepted, and left out.
fn check_directive(directive: &Directive) -> Result<(), Reason> {
    if super::entry::is_droppable(directive) {
        return Ok(());
    }
    Err(Reason::NotImplemented { what: super::entry::named(directive) })
}
