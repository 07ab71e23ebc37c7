//! Gates: the body of each, once, and every call of one by comparison with it.
//!
//! A body is verified like an entry, on registers of its own, with these differences: an access may go through `%bh_gmask`
//! and `%bh_gbase` to the protected window, whatever its address is; nothing in it ends a thread, waits or
//! looks at the flag; and all it does is bounded. A call of it is the text of that body, statement by statement.

use crate::Claimant;
use crate::ast::{FunctionKind, Instruction, Item, Operand, Statement, Variable};
use crate::body::{self, Asked, Pass, Passed};
use crate::declarations::Declared;
use crate::gates::{self, Called, Gate, Gates, Image};
use crate::limits::{GATE_COST_MAX, GATE_MODULES_MAX, GATE_NAME_BYTES_MAX, GATE_STATEMENTS_MAX};
use crate::names::{self, Class};
use crate::print::{Text, print};
use crate::refusal::{FIRST, refuse, unverified};
use crate::report::{Reason, Report};
use crate::table;

/// A gate's body that has been verified.
pub(crate) struct Body {
    /// Its statements but the end, on an entry's registers and labels.
    pub lines: Vec<String>,
    pub registers: [u32; 4],
    /// What it does on the longest path.
    pub cost: u64,
}

/// Verifies the body of a gate, which stands alone in a canonical text, as an entry without parameters.
pub(crate) fn gate(image: &Image, claimant: &mut dyn Claimant<'_>) -> Result<Body, Report> {
    let Image { name, text, arguments, results, .. } = image;
    let module = bulkhead_ptx::parse(text)?;
    let mut report = Report::default();
    let [Item::Function(function)] = module.items.as_slice() else {
        refuse(&mut report, FIRST, "a gate does not stand alone");
        return Err(report);
    };
    let statements = function.body.as_deref().unwrap_or_default();
    let plain = function.kind == FunctionKind::Entry && function.parameters.is_empty();
    if print(&module) != *text || !plain || statements.len() > GATE_STATEMENTS_MAX {
        refuse(&mut report, FIRST, "the text is not that of a gate");
        return Err(report);
    }
    let count = statements.iter().take_while(|found| matches!(found, Statement::Variable(_))).count();
    let (variables, statements) = statements.split_at(count);
    let (declared, registers) = match declarations(variables) {
        Some(declared) => declared,
        None => {
            refuse(&mut report, FIRST, "a variable of a gate");
            return Err(report);
        }
    };
    let (arguments, results) = gates::registers(arguments, results);
    let lines: Option<Vec<String>> = statements.iter().map(gates::line).collect();
    let ending = matches!(statements.split_last(), Some((Statement::Instruction(last), inside))
        if last.opcode == "ret" && last.predicate.is_none() && inside.iter().all(is_allowed));
    let Some(mut lines) = lines.filter(|_| ending) else {
        refuse(&mut report, FIRST, "what no gate has");
        return Err(report);
    };
    lines.pop();
    let cost = body::gate(
        statements,
        declared,
        Passed { arguments: &arguments, results: &results },
        Asked { claimant, name },
        &mut report,
    );
    if cost > GATE_COST_MAX {
        refuse(&mut report, FIRST, "a gate that does too much");
    }
    report.or(Body { lines, registers, cost })
}

impl Gates {
    /// Verifies a gate of a module and adds it. `module` is what an entry that calls it says it needs
    /// ([`VerifiedEntry::modules`](crate::VerifiedEntry::modules)).
    ///
    /// # Errors
    /// What stands against its body, or its name.
    pub fn add(&mut self, module: &str, image: Image, claimant: &mut dyn Claimant<'_>) -> Result<(), Report> {
        let body = gate(&image, claimant)?;
        let Image { name, span, arguments, results, version, architecture, .. } = image;
        let mut report = Report::default();
        if name.len() > GATE_NAME_BYTES_MAX {
            let most = GATE_NAME_BYTES_MAX as u64;
            report.add(span, Reason::Limit { what: "bytes of a gate's name", most });
        }
        if self.gates.contains_key(&name) {
            report.add(span, Reason::Duplicate(name.clone()));
        }
        report.or(())?;
        let passed = arguments.len() + results.len() + gates::PARAMETERS_OF_MODULE;
        let gate = Gate {
            module: module.to_owned(),
            arguments,
            results,
            lines: body.lines.iter().map(|line| gates::renamed(line)).collect(),
            version,
            architecture,
            registers: body.registers,
            cost: body.cost + passed as u64,
        };
        self.gates.insert(name, gate);
        Ok(())
    }
}

fn is_allowed(statement: &Statement) -> bool {
    match statement {
        Statement::Label(..) => true,
        Statement::Instruction(found) => {
            table::check(found).is_ok_and(|row| gates::forbidden(row, found).is_none())
        }
        Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => false,
    }
}

/// The registers of a body, which declares nothing else.
fn declarations<'a>(variables: &'a [Statement]) -> Option<(Declared<'a>, [u32; 4])> {
    let mut declared = Declared::of_gate();
    let mut counts = [0; 4];
    let mut left = variables.iter();
    let mut next = left.next();
    for class in Class::ALL {
        if let Some(Statement::Variable(variable)) = next
            && let Some(count) = super::declarations::tenant_registers(variable, class)
        {
            declared.registers.insert(class, count);
            counts[class as usize] = count;
            next = left.next();
        }
    }
    next.is_none().then_some((declared, counts))
}

/// How many modules' gates an entry calls, by its parameters, and the rest of those.
pub(crate) fn slots(parameters: &[Variable]) -> (&[Variable], usize) {
    let is = |slot: usize, found: &[Variable]| {
        gates::parameters(slot)
            .iter()
            .zip(found)
            .all(|(name, found)| crate::print::Text(found).to_string() == format!(".param .u64 {name}"))
    };
    for slots in 1..=GATE_MODULES_MAX {
        let Some(at) = parameters.len().checked_sub(slots * gates::PARAMETERS_OF_MODULE) else { break };
        let (own, of_gates) = parameters.split_at(at);
        let fits = of_gates.chunks(gates::PARAMETERS_OF_MODULE).enumerate();
        if fits.clone().all(|(slot, found)| is(slot, found)) {
            return (own, slots);
        }
    }
    (parameters, 0)
}

impl<'a> Pass<'a> {
    /// What is left behind a call of a gate, whose label stands here.
    pub(crate) fn gate(&mut self, here: &'a [Statement]) -> Result<&'a [Statement], Reason> {
        let unlike = || unverified("what is not a call of a gate");
        let Some((Statement::Label(label, _), _)) = here.split_first() else { return Err(unlike()) };
        let number = self.regions;
        let name = label.strip_prefix(&gates::label(number, "")).ok_or_else(unlike)?;
        let gate = self.gates.and_then(|gates| gates.get(name));
        let (_, gate) = gate.ok_or_else(|| unverified("a gate that is not granted"))?;
        let (found, rest) = here.split_at_checked(gate.length()).ok_or_else(unlike)?;
        let operand = |statement: &'a Statement, index: usize, class: Class| match statement {
            Statement::Instruction(found) => super::sequence::source(found, index, class),
            _ => None,
        };
        let moves = found.get(gate.moves()).ok_or_else(unlike)?;
        let given: Option<Vec<&str>> =
            moves.iter().zip(&gate.arguments).map(|(found, class)| operand(found, 1, *class)).collect();
        let results = found.get(found.len() - gate.results.len()..).ok_or_else(unlike)?;
        let taken: Option<Vec<&str>> =
            results.iter().zip(&gate.results).map(|(found, class)| operand(found, 0, *class)).collect();
        let (given, taken) = (given.ok_or_else(unlike)?, taken.ok_or_else(unlike)?);
        let is = |found: &Statement, line: &str| match found {
            Statement::Label(label, _) => line.strip_suffix(':') == Some(label),
            Statement::Instruction(found) => Text(found).is(line),
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => false,
        };
        let second = found.get(1).ok_or_else(unlike)?;
        let slot = (0..self.modules.len()).find(|slot| is(second, &gates::first_load(*slot)));
        let called = Called { number, slot: slot.ok_or_else(unlike)?, given: &given, taken: &taken };
        // Line by line: the first that is another ends it, however long the gate is.
        if !found.iter().zip(gate.lines(name, &called)).all(|(found, line)| is(found, &line)) {
            return Err(unlike());
        }
        let slot = called.slot;
        self.is_of(slot, &gate.module)?;
        let enough = Class::ALL
            .iter()
            .all(|class| gate.registers[*class as usize] <= self.declared.of_gates[*class as usize]);
        if !enough {
            return Err(unverified("a gate whose registers are not declared"));
        }
        self.assigned(&given, &[])?;
        self.terms.reads_grid |= found.iter().any(reads_grid);
        self.regions += 1;
        self.apart();
        self.fuel.gate(gate.cost);
        for statement in results {
            let Statement::Instruction(result) = statement else { return Err(unlike()) };
            let row = table::check(result)?;
            let written: Vec<&str> = operand_of(result).into_iter().collect();
            self.fuel.instruction(row, result, &written)?;
            self.assigned(&[], &written)?;
            written.iter().for_each(|name| self.flow.write(name));
            self.numbers.learn(result);
            self.numbers.are_right()?;
        }
        Ok(rest)
    }

    /// A module whose gates the entry calls keeps its place among them.
    fn is_of(&mut self, slot: usize, module: &'a str) -> Result<(), Reason> {
        let elsewhere = self.modules.iter().position(|known| *known == Some(module));
        let fits = elsewhere.is_none_or(|other| other == slot);
        match self.modules.get_mut(slot) {
            Some(known) if fits && known.is_none_or(|known| known == module) => {
                *known = Some(module);
                Ok(())
            }
            Some(_) | None => Err(unverified("a gate with another module's window")),
        }
    }
}

fn reads_grid(statement: &Statement) -> bool {
    let Statement::Instruction(found) = statement else { return false };
    let mut reads = false;
    if let Some(row) = table::row_of(found) {
        table::registers(row, found, &mut |name| reads |= names::is_of_grid(name), &mut |_| {});
    }
    reads
}

fn operand_of(result: &Instruction) -> Option<&str> {
    match result.operands.first() {
        Some(Operand::Register(name)) => Some(name),
        _ => None,
    }
}
