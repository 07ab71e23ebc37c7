//! Gates: the confined body of each, and the calls of them.
//!
//! A call is one instruction until all else is confined ([`table::GATE`]); then the text of the gate stands in its place.

mod inline;
mod marks;

use crate::maps::HashMap;
pub(super) use inline::InUse;
use marks::{Marks, is_told};
use std::collections::BTreeSet;

use crate::access;
use crate::ast::{
    Address, AddressBase, Function, FunctionKind, Instruction, Item, Linkage, Module, Operand, Space, Span,
    Statement, Variable,
};
use crate::confine::calls::{self, Actual, Budget, Direction, Functions};
use crate::confine::faults::{Faults, Loc};
use crate::confine::flatten::{Flat, Flattener};
use crate::confine::gate_window::{Origins, Whose, Window};
use crate::confine::lines::{declared, instruction, register};
use crate::confine::scope::Scopes;
use crate::confine::symbols::Symbols;
use crate::confine::turns::{self, How};
use crate::confine::variables::Variables;
use crate::confine::{access as confined_access, arguments, assign, epilogues, generic};
use crate::gates::{self, Gate, Gates, Image};
use crate::module_gates::GateWindow;
use crate::names::{self, Class};
use crate::report::{Reason, Report};
use crate::table;

/// The confined bodies of a module's gates: its visible functions; and what lies in its window.
pub(crate) fn images(module: &Module) -> Result<(Vec<Image>, GateWindow), Report> {
    let mut report = Report::default();
    let mut module = module.clone();
    epilogues::last(&mut module);
    let window = Window::of(&module, &mut report);
    let marks = Marks::take(&mut module, &window, &mut report);
    for item in &module.items {
        match item {
            Item::Variable(variable) if is_told(&variable.name) && variable.space == Space::Constant => {}
            Item::Variable(variable) if variable.space == Space::Global => {}
            Item::Variable(variable) => {
                let what = format!("a variable of a gate's module, `{}`", variable.name);
                report.add(variable.span, Reason::NotImplemented { what });
            }
            Item::Function(function) if function.kind == FunctionKind::Entry => {
                let what = format!("an entry beside gates, `{}`", function.name);
                report.add(function.span, Reason::NotImplemented { what });
            }
            Item::Function(_) | Item::Directive(_) | Item::Section(_) => {}
        }
    }
    let (mut images, mut visible) = (Vec::new(), false);
    let symbols = Symbols::default();
    let of = Of {
        functions: &Functions::of(&module, &[], &symbols, &mut report),
        module: &module,
        symbols: &symbols,
        marks: &marks,
    };
    let architecture = module.target.iter().find(|word| names::is_architecture(word));
    let architecture = architecture.map_or("", |word| names::architecture(word));
    // One for all gates: each has what it calls inlined.
    let mut budget = Budget::of(&module);
    for item in &module.items {
        let Item::Function(function) = item else { continue };
        if function.linkage == Linkage::Visible && function.body.is_some() && !is_helper(&function.name) {
            visible = true;
            let image = image(&of, function, &mut budget, &mut report);
            images.extend(image.map(|image| Image { architecture: architecture.to_owned(), ..image }));
        }
    }
    if !visible {
        let what = "a gate's module without `.visible` functions".to_owned();
        report.add(Span::WHOLE, Reason::NotImplemented { what });
    }
    report.forget_repeated();
    report.or((images, window.told))
}

/// What is known of a gate's module.
struct Of<'a> {
    module: &'a Module,
    functions: &'a Functions<'a>,
    symbols: &'a Symbols,
    marks: &'a Marks,
}

/// Whether a function has a name of C++'s: gates have C's, and a compiler makes whatever is not `static` visible.
fn is_helper(name: &str) -> bool {
    name.starts_with("_Z")
}

/// The class of what passes a parameter of a gate.
fn class(parameter: &Variable) -> Result<Class, Reason> {
    let of = match calls::scalar_bytes(parameter).filter(|_| parameter.range.is_none()) {
        Some(4) => Some(Class::Word),
        Some(8) => Some(Class::Double),
        Some(_) | None => None,
    };
    let what = || format!("a parameter of a gate of other than 32 or 64 bits, `{}`", parameter.name);
    of.ok_or_else(|| Reason::NotImplemented { what: what() })
}

fn classes(parameters: &[Variable], report: &mut Report) -> Vec<Class> {
    let of = |parameter: &Variable| match class(parameter) {
        Ok(class) => Some(class),
        Err(reason) => {
            report.add(parameter.span, reason);
            None
        }
    };
    parameters.iter().filter_map(of).collect()
}

/// An entry that does nothing but call the gate, with registers in the order that bodies have theirs.
fn caller(function: &Function, arguments: &[Class], results: &[Class]) -> Vec<Statement> {
    let span = Span::default();
    let declare = |class: &Class, name: &str| {
        Statement::Variable(declared(Space::Register, class.ty(), name, None, span))
    };
    let names = |prefix: &str, classes: &[Class]| -> Vec<String> {
        (0..classes.len()).map(|index| format!("%{prefix}{index}")).collect()
    };
    let (given, taken) = (names("given", arguments), names("taken", results));
    let mut body = vec![declare(&Class::Double, "%caller"), declare(&Class::Double, "%badge")];
    body.extend(arguments.iter().zip(&given).map(|(class, name)| declare(class, name)));
    body.extend(results.iter().zip(&taken).map(|(class, name)| declare(class, name)));
    let list = |names: &[String]| Operand::List(names.iter().map(|name| register(name)).collect());
    let mut operands = Vec::new();
    if !taken.is_empty() {
        operands.push(list(&taken));
    }
    operands.push(Operand::Symbol(function.name.clone()));
    if !given.is_empty() {
        operands.push(list(&given));
    }
    body.push(instruction("call", &[], operands, span));
    body.push(instruction("ret", &[], Vec::new(), span));
    body
}

fn image(of: &Of<'_>, function: &Function, budget: &mut Budget, report: &mut Report) -> Option<Image> {
    let module = of.module;
    let before = report.findings.len();
    if let Err(reason) = names::check_symbol(&function.name) {
        report.add(function.span, reason);
    }
    let arguments = classes(&function.parameters, report);
    let results = classes(&function.returns, report);
    let body = caller(function, &arguments, &results);
    let (statements, mut scopes) = flatten(of, function, &body, budget, report);
    let confined = accesses(of, statements, &mut scopes, report);
    let passed = gates::registers(&arguments, &results).0;
    let passed: Vec<_> = passed.iter().map(String::as_str).chain(gates::TOLD).collect();
    let zeroed: BTreeSet<(Class, u32)> = assign::unassigned(&confined, report)
        .into_iter()
        .filter(|(class, number)| !passed.contains(&format!("{}{number}", class.prefix()).as_str()))
        .collect();
    let confined: Vec<Statement> =
        assign::zeroes(&zeroed, Span::default()).chain(confined.into_iter().filter(is_no_advice)).collect();
    if !turns::find(&confined, &[], &HashMap::default())
        .values()
        .all(|found| matches!(found.how, How::Ends(_)))
    {
        let what = "a loop in a gate that is not known to end soon".to_owned();
        report.add(function.span, Reason::NotImplemented { what });
    }
    let registers = Class::ALL.iter().filter(|class| scopes.count(**class) > 0).map(|class| {
        let count = Some(scopes.count(*class));
        Statement::Variable(declared(Space::Register, class.ty(), class.prefix(), count, Span::default()))
    });
    let entry = Function {
        kind: FunctionKind::Entry,
        linkage: Linkage::Visible,
        returns: Vec::new(),
        parameters: Vec::new(),
        attributes: Vec::new(),
        directives: Vec::new(),
        body: Some(registers.chain(confined).collect()),
        ..function.clone()
    };
    let Module { version, address_size, header, .. } = *module;
    let items = vec![Item::Function(entry)];
    let text = crate::print(&Module { version, target: module.target.clone(), address_size, header, items });
    let (name, span) = (function.name.clone(), function.span);
    (report.findings.len() == before).then_some(Image {
        name,
        span,
        text,
        arguments,
        results,
        version: of.module.version,
        architecture: String::new(),
    })
}

/// The body of a gate without scopes and calls, with canonical names.
fn flatten(
    of: &Of<'_>,
    function: &Function,
    body: &[Statement],
    budget: &mut Budget,
    report: &mut Report,
) -> (Vec<Statement>, Scopes) {
    let (none, faults, gates) = (HashMap::default(), Faults::default(), Gates::default());
    let mut flat = Flat::default();
    let mut flattener = Flattener {
        in_place: None,
        symbols: of.symbols,
        parameters: &none,
        functions: of.functions,
        gates: &gates,
        variables: Variables::default(),
        scopes: Scopes::default(),
        calls: Vec::new(),
        arguments: HashMap::default(),
        lists: Vec::new(),
        faults: &faults,
        loc: Loc::default(),
        held: Vec::new(),
        stops: None,
        stack: None,
        depth: 0,
        budget,
        report,
    };
    flattener.block(body, &mut flat);
    let Flattener { mut scopes, variables, stops, report, .. } = flattener;
    if stops.is_some() {
        let what = "a call through a pointer in a gate".to_owned();
        report.add(function.span, Reason::NotImplemented { what });
    }
    if !variables.into_placed().is_empty() {
        report.add(function.span, Reason::NotImplemented { what: "a variable in a gate".to_owned() });
    }
    let statements = arguments::lower(flat.statements, &mut scopes, flattener.budget, report);
    (statements, scopes)
}

/// The statements of a gate with what confines their accesses: to the module's window where its author said so, else to the
/// caller's.
fn accesses(
    of: &Of<'_>,
    statements: Vec<Statement>,
    scopes: &mut Scopes,
    report: &mut Report,
) -> Vec<Statement> {
    let Of { symbols, marks, .. } = *of;
    let none = HashMap::default();
    let mut confined = Vec::with_capacity(statements.len());
    let tables = confined_access::Tables::new(symbols, &[], &none, None, Default::default());
    let origins = Origins::find(&statements, &marks.variables);
    let last = statements.len().saturating_sub(1);
    for (index, statement) in statements.into_iter().enumerate() {
        let Statement::Instruction(mut found) = statement else {
            confined.push(statement);
            continue;
        };
        if let Some(told) = marks.told.get(&found.span.start)
            && let [_, from] = found.operands.as_mut_slice()
            && *from == Operand::Integer(0)
        {
            *from = register(told);
        }
        let span = found.span;
        let checked = table::check(&found).and_then(|row| {
            let whose = origins.whose(row, &found);
            let found = named(row, found)?;
            let row = table::check(&found)?;
            match (gates::forbidden(row, &found), marks.protected.contains(&span.start), whose) {
                (Some(what), ..) if index < last => {
                    Err(Reason::NotImplemented { what: format!("{what} in a gate") })
                }
                (None, false, Whose::Either) => {
                    let what = "an address that may be the module's or the caller's, in a gate".to_owned();
                    Err(Reason::NotImplemented { what })
                }
                (_, marked, whose) => Ok((found, marked || whose == Whose::Modules)),
            }
        });
        let done = match checked {
            Ok((found, true)) => protected(found, scopes, &mut confined),
            Ok((found, false)) => tables.confine(found, None, &|_| None, &mut confined),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = done {
            report.add(span, reason);
        }
    }
    confined
}

/// A generic access as one of global memory: a gate reaches no other, of the module's or the caller's.
fn named(row: &table::Row, found: Instruction) -> Result<Instruction, Reason> {
    let address = access::generic(row, &found).and_then(|index| found.operands.get(index));
    let Some(Operand::Address(address)) = address.cloned() else { return Ok(found) };
    if !matches!(&address.base, AddressBase::Register(name) if matches!(Class::parse(name), Some((Class::Double, _))))
        && address.base != AddressBase::Absolute
    {
        return Err(Reason::Malformed("a generic address has to be a 64-bit register".to_owned()));
    }
    Ok(generic::in_space(found, row, Space::Global, address))
}

fn is_no_advice(statement: &Statement) -> bool {
    !matches!(statement, Statement::Directive(_))
}

/// Confines a marked access to the protected window.
fn protected(found: Instruction, scopes: &mut Scopes, into: &mut Vec<Statement>) -> Result<(), Reason> {
    let row = table::check(&found)?;
    let accesses = access::decode(row, &found)?;
    let Some(access) = accesses.iter().next() else {
        return Err(Reason::Malformed("only an access can be marked as protected".to_owned()));
    };
    let (span, index, bytes) = (found.span, access.index, access.bytes);
    let Address { base, offset } = access.address.clone();
    let a = || register("%bh_a");
    let [window, mask] = gates::WINDOW.map(register);
    let offset = Operand::Integer(i128::from(offset));
    let from = match base {
        AddressBase::Register(name) if matches!(Class::parse(&name), Some((Class::Double, _))) => {
            if offset == Operand::Integer(0) {
                register(&name)
            } else {
                into.push(instruction("add", &["s64"], vec![a(), register(&name), offset], span));
                a()
            }
        }
        AddressBase::Absolute => {
            let place = scopes.fresh(Class::Double);
            into.push(instruction("mov", &["b64"], vec![register(&place), offset], span));
            register(&place)
        }
        AddressBase::Register(_) | AddressBase::Symbol(_) => {
            let text = "a protected address is a 64-bit register or a number";
            return Err(Reason::Malformed(text.to_owned()));
        }
    };
    into.push(instruction("and", &["b64"], vec![a(), from, mask], span));
    if bytes > 1 {
        let aligned = Operand::Integer(-i128::from(bytes));
        into.push(instruction("and", &["b64"], vec![a(), a(), aligned], span));
    }
    into.push(instruction("or", &["b64"], vec![a(), a(), window], span));
    let mut confined = found.clone();
    if let Some(operand) = confined.operands.get_mut(index) {
        let base = AddressBase::Register("%bh_a".to_owned());
        *operand = Operand::Address(Address { base, offset: 0 });
    }
    into.push(Statement::Instruction(confined));
    Ok(())
}

/// A gate that the module may call, and its place among those.
#[derive(Clone, Copy)]
pub(super) struct Granted<'a> {
    place: usize,
    gate: &'a Gate,
}

impl<'a> Granted<'a> {
    /// The one of this name.
    pub(super) fn of(name: &str, gates: &'a Gates) -> Option<Self> {
        let place = gates.place(name)?;
        Some(Self { place, gate: gates.at(place)?.1 })
    }
}

impl<'a> Flattener<'a> {
    /// Calls a gate that the module declares.
    pub(super) fn call_gate(
        &mut self,
        function: &Function,
        granted: Granted<'a>,
        returned: &[Operand],
        given: &[Operand],
        call: &Instruction,
        into: &mut Flat,
    ) -> Result<(), Reason> {
        let Granted { place, gate } = granted;
        let span = call.span;
        let unlike =
            || Reason::Malformed(format!("`{}` is declared otherwise than its module has it", function.name));
        let same = |parameters: &[Variable], classes: &[Class]| {
            parameters.len() == classes.len()
                && parameters
                    .iter()
                    .zip(classes)
                    .all(|(parameter, expected)| class(parameter).is_ok_and(|found| found == *expected))
        };
        if !same(&function.parameters, &gate.arguments) || !same(&function.returns, &gate.results) {
            return Err(unlike());
        }
        if !self.spend(&function.name, gate.length() + returned.len() + given.len(), span) {
            return Ok(());
        }
        let (returned, given) = (self.actuals(returned)?, self.actuals(given)?);
        let skip = match &call.predicate {
            None => None,
            Some(predicate) => Some(self.skip_unless(predicate, span, into)?),
        };
        let mut passed = Vec::new();
        for (actual, class) in given.into_iter().zip(&gate.arguments) {
            let own = self.scopes.fresh(*class);
            into.statements.push(moved(actual, *class, &own, Direction::Out, span)?);
            passed.push(register(&own));
        }
        let (mut taken, mut after) = (Vec::new(), Vec::new());
        for (actual, class) in returned.into_iter().zip(&gate.results) {
            let own = self.scopes.fresh(*class);
            if !matches!(actual, Actual::Value(Operand::Sink)) {
                after.push(moved(actual, *class, &own, Direction::In, span)?);
            }
            taken.push(register(&own));
        }
        let cost = Operand::Integer(i128::from(gate.cost));
        let place = Operand::Integer(place as i128);
        let operands = vec![Operand::List(taken), place, Operand::List(passed), cost];
        into.statements.push(instruction(table::GATE, &[], operands, span));
        into.statements.append(&mut after);
        into.statements.extend(skip.map(|label| Statement::Label(label, span)));
        Ok(())
    }
}

/// Moves what a call gives into a register, or that into what takes it.
fn moved(
    actual: Actual,
    class: Class,
    own: &str,
    direction: Direction,
    span: Span,
) -> Result<Statement, Reason> {
    let bytes = if class == Class::Double { 8 } else { 4 };
    Ok(match (actual, direction) {
        (Actual::Argument(argument), direction) => {
            calls::transfer(&argument, bytes, register(own), direction, span)
        }
        (Actual::Value(value), direction) => {
            let fits = match &value {
                Operand::Register(name) => Class::parse(name).is_some_and(|(found, _)| found == class),
                _ => direction == Direction::Out,
            };
            if !fits {
                return Err(Reason::Malformed("a gate is given a register of another width".to_owned()));
            }
            let operands = match direction {
                Direction::Out => vec![register(own), value],
                Direction::In => vec![value, register(own)],
            };
            instruction("mov", &[class.mov()], operands, span)
        }
    })
}
