//! The gates that an entry calls, and the text that stands where it does.

use std::collections::{BTreeMap, BTreeSet};

use crate::ast::{Item, Operand, Space, Span, Statement, Type, Variable};
use crate::confine::lines::declared;
use crate::confine::runtime;
use crate::gates::{self, Called, Gate, Gates};
use crate::limits::GATE_MODULES_MAX;
use crate::names::Class;
use crate::report::Reason;
use crate::table;

/// The gates that a body calls, by the number that stands for each.
pub(crate) struct InUse<'a> {
    gates: BTreeMap<usize, (&'a str, &'a Gate)>,
    modules: Vec<&'a str>,
}

impl<'a> InUse<'a> {
    pub(crate) fn of(statements: &[Statement], gates: &'a Gates) -> Self {
        let mut used = BTreeMap::new();
        for place in statements.iter().filter_map(place) {
            if let Some(gate) = gates.at(place) {
                used.insert(place, gate);
            }
        }
        let modules: BTreeSet<&str> = used.values().map(|(_, gate)| gate.module.as_str()).collect();
        Self { gates: used, modules: modules.into_iter().collect() }
    }

    /// The parameters that come before the guard's own.
    pub(crate) fn parameters(&self, span: Span) -> Result<Vec<Variable>, Reason> {
        if self.modules.len() > GATE_MODULES_MAX {
            let what = "modules whose gates one entry calls";
            return Err(Reason::Limit { what, most: GATE_MODULES_MAX as u64 });
        }
        let names = (0..self.modules.len()).flat_map(gates::parameters);
        Ok(names.map(|name| declared(Space::Parameter, Type::U64, &name, None, span)).collect())
    }

    /// The declarations of the registers that bodies of gates have.
    pub(crate) fn registers(&self) -> Vec<Statement> {
        let most = |class: Class| {
            self.gates.values().map(|(_, gate)| gate.registers[class as usize]).max().unwrap_or(0)
        };
        let span = Span::default();
        let of_class = |class: &Class| {
            let count = Some(most(*class)).filter(|count| *count > 0);
            count.map(|count| declared(Space::Register, class.ty(), gates::prefix(*class), Some(count), span))
        };
        let window = gates::WINDOW.map(|name| declared(Space::Register, Type::B64, name, None, span));
        let window = window.into_iter().filter(|_| !self.gates.is_empty());
        Class::ALL.iter().filter_map(of_class).chain(window).map(Statement::Variable).collect()
    }

    /// Puts the text of each gate where it is called.
    pub(crate) fn expand(&self, statements: Vec<Statement>) -> Vec<Statement> {
        if self.gates.is_empty() {
            return statements;
        }
        let mut expanded = Vec::with_capacity(statements.len());
        let mut number = 0;
        for statement in statements {
            match self.call(&statement, number) {
                Some(text) => {
                    expanded.extend(text);
                    number += 1;
                }
                None => expanded.push(statement),
            }
        }
        expanded
    }

    fn call(&self, statement: &Statement, number: u32) -> Option<Vec<Statement>> {
        let (name, gate) = self.gates.get(&place(statement)?)?;
        let Statement::Instruction(call) = statement else { return None };
        let [Operand::List(taken), _, Operand::List(given), _] = call.operands.as_slice() else {
            return None;
        };
        let names = |operands: &'_ [Operand]| -> Vec<String> {
            operands
                .iter()
                .filter_map(|operand| match operand {
                    Operand::Register(name) => Some(name.clone()),
                    _ => None,
                })
                .collect()
        };
        let (taken, given) = (names(taken), names(given));
        let (taken, given): (Vec<&str>, Vec<&str>) =
            (taken.iter().map(String::as_str).collect(), given.iter().map(String::as_str).collect());
        let slot = self.modules.iter().position(|module| *module == gate.module)?;
        let lines = gate.lines(name, &Called { number, slot, given: &given, taken: &taken });
        let mut text = String::from(".version 8.0\n.target sm_90\n.address_size 64\n.entry gate()\n{\n");
        for line in lines {
            text.push_str(&line);
            text.push_str(if line.ends_with(':') { "\n" } else { ";\n" });
        }
        text.push_str("}\n");
        crate::parse(&text).ok()?.items.into_iter().find_map(|item| match item {
            Item::Function(function) => runtime::nowhere(function).body,
            Item::Variable(_) | Item::Section(_) | Item::Directive(_) => None,
        })
    }
}

/// Which gate a statement calls.
pub(crate) fn place(statement: &Statement) -> Option<usize> {
    let Statement::Instruction(call) = statement else { return None };
    match call.operands.get(1) {
        Some(Operand::Integer(place)) if call.opcode == table::GATE => usize::try_from(*place).ok(),
        _ => None,
    }
}
