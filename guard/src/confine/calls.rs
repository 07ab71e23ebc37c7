//! Calls of device functions: the body is inlined where it is called.
//!
//! What a function is called with and returns stands in parameters of the call, which stay memory accesses by
//! the names given here until [`super::arguments`] puts them into registers. Calls through pointers are in
//! [`super::indirect`].

mod budget;
mod functions;
pub(super) mod graph;
mod parts;

pub(super) use budget::{Budget, Looks};
pub(super) use functions::{ARGUMENT, Actual, Call, Direction, Functions, Passed};
pub(super) use parts::scalar_bytes;
use parts::{Parts, parts};

use crate::ast::{
    Address, AddressBase, Function, FunctionKind, Instruction, Operand, Predicate, Space, Span, Statement,
    Variable,
};
use crate::confine::faults::{self, Loc};
use crate::confine::flatten::{Flat, Flattener};
use crate::confine::gates::Granted;
use crate::confine::lines::{self, register};
use crate::confine::scope::Meaning;
use crate::limits::CALL_NESTING_MAX;
use crate::names::Class;
use crate::report::Reason;

impl<'a> Flattener<'a> {
    /// The name of one more argument of so many bytes.
    pub(super) fn argument(&mut self, bytes: Option<u64>) -> String {
        let name = format!("{ARGUMENT}{}", self.arguments.len());
        self.arguments.insert(name.clone(), bytes);
        name
    }

    /// A load or store of a call's parameter; none where the instruction is none.
    pub(super) fn argument_access(&mut self, access: &Instruction) -> Result<Option<Instruction>, Reason> {
        let index = match access.opcode.as_str() {
            "ld" => 1,
            "st" => 0,
            _ => return Ok(None),
        };
        let parameter = |word: &String| matches!(word.as_str(), "param" | "param::func" | "param::entry");
        if !access.modifiers.iter().any(parameter) {
            return Ok(None);
        }
        let Some(Operand::Address(address)) = access.operands.get(index) else { return Ok(None) };
        let AddressBase::Symbol(name) = &address.base else { return Ok(None) };
        let Some(Meaning::Argument(argument)) = self.scopes.resolve(name) else { return Ok(None) };
        let mut renamed = access.clone();
        renamed.modifiers.retain(|word| !parameter(word));
        renamed.modifiers.insert(0, "param".to_owned());
        if let Some(predicate) = &mut renamed.predicate {
            predicate.register = self.register(&predicate.register)?;
        }
        for (at, operand) in renamed.operands.iter_mut().enumerate() {
            *operand = if at == index {
                let base = AddressBase::Symbol(argument.clone());
                Operand::Address(Address { base, offset: address.offset })
            } else {
                self.operand(operand)?
            };
        }
        Ok(Some(renamed))
    }

    /// In a function a `ret` goes to where the call ends.
    pub(super) fn return_to_caller(&mut self, instruction: &mut Instruction) {
        if let Some(call) = self.calls.last_mut() {
            call.returns += 1;
            instruction.opcode = "bra".to_owned();
            instruction.operands = vec![Operand::Symbol(call.end.clone())];
        }
    }

    /// Inlines the function that is called.
    pub(super) fn call(&mut self, instruction: &'a Instruction, into: &mut Flat) -> Result<(), Reason> {
        if let Some(modifier) = instruction.modifiers.iter().find(|modifier| *modifier != "uni") {
            return Err(Reason::NotImplemented { what: format!("`.{modifier}` of `call`") });
        }
        let Parts { returned, callee, given, list } = parts(&instruction.operands)?;
        let callee = match callee {
            Operand::Symbol(name) if !matches!(self.scopes.resolve(name), Some(Meaning::Register(_))) => name,
            pointer => {
                let list = list.ok_or_else(|| Reason::NotImplemented {
                    what: "indirect calls (`call` through a register) without a prototype".to_owned(),
                })?;
                return self.call_through_pointer(instruction, returned, pointer, given, list, into);
            }
        };
        if list.is_some() {
            return Err(Reason::Malformed(format!("`{callee}` is called with a prototype")));
        }
        let function = self.callee(callee)?;
        if returned.len() != function.returns.len() || given.len() != function.parameters.len() {
            let text = format!("`{callee}` takes or returns another number of parameters");
            return Err(Reason::Malformed(text));
        }
        let Some(body) = &function.body else {
            let granted = Granted::of(callee, self.gates).ok_or_else(|| not_here(callee))?;
            return self.call_gate(function, granted, returned, given, instruction, into);
        };
        // What passes a parameter is a move.
        if !self.spend(&function.name, 1 + returned.len() + given.len(), instruction.span) {
            return Ok(());
        }
        let passed = Passed { returned: self.actuals(returned)?, given: self.actuals(given)? };
        let span = instruction.span;
        let skip = match &instruction.predicate {
            None => None,
            Some(predicate) => Some(self.skip_unless(predicate, span, into)?),
        };
        if let Some(index) = self.body_of(&function.name) {
            let done = self.call_body(index, function, &passed, span, into);
            into.statements.extend(skip.map(|label| Statement::Label(label, span)));
            return done;
        }
        let before = into.statements.len();
        let done = self.open(function, body, passed, span, into);
        let tells = faults::tells_its_call(&function.name, self.faults.checks());
        if tells && self.functions.is_own(&function.name) {
            let Loc { file, line } = self.loc;
            let inlined = into.statements.get_mut(before..).unwrap_or_default();
            faults::place_call(inlined, [line, file, i64::from(span.place.line)]);
        }
        into.statements.extend(skip.map(|label| Statement::Label(label, span)));
        done
    }

    /// Inlines a function, which sees nothing of where it is called.
    pub(super) fn open(
        &mut self,
        function: &'a Function,
        body: &'a [Statement],
        passed: Passed,
        span: Span,
        into: &mut Flat,
    ) -> Result<(), Reason> {
        let end = self.scopes.fresh_label();
        let outer = self.scopes.enter_function();
        let own = self.is_own(&function.name);
        self.calls.push(Call { name: &function.name, span, end, returns: 0, own });
        let done = if self.functions.is_recursive(&function.name) {
            self.inline_recursive(function, body, &passed, span, into)
        } else {
            self.inline(function, body, passed, span, into)
        };
        self.calls.pop();
        self.scopes.leave_function(outer);
        done
    }

    /// As [`Self::open`], of a check, which has a budget of its own.
    pub(super) fn open_check(
        &mut self,
        function: &'a Function,
        body: &'a [Statement],
        passed: Passed,
        span: Span,
        into: &mut Flat,
    ) -> Result<(), Reason> {
        self.budget.checking = true;
        let done = if self.spend(&function.name, 1, span) {
            self.open(function, body, passed, span, into)
        } else {
            Ok(())
        };
        self.budget.checking = false;
        done
    }

    /// Whether a function is ours where it is called: what ours calls is ours.
    fn is_own(&self, name: &str) -> bool {
        self.calls.last().is_some_and(|call| call.own) || self.functions.is_own(name)
    }

    /// Whether a function's body is open.
    pub(super) fn is_open(&self, name: &str) -> bool {
        self.calls.iter().any(|call| call.name == name)
    }

    /// Takes what a statement costs of what calls may add; false where too little is left, of which the report says so.
    pub(super) fn spend(&mut self, name: &str, cost: usize, span: Span) -> bool {
        let is_own = self.is_own(name);
        let Budget { inlined, most, checks, checking, looks, own, most_own, .. } = &mut *self.budget;
        let (left, most) = match (*checking, is_own) {
            (true, _) => {
                let left = checks.checked_sub(cost);
                *checks = left.unwrap_or(0);
                if left.is_none() {
                    *looks = Looks::Short;
                }
                return left.is_some();
            }
            (false, true) => (own, *most_own),
            (false, false) => (inlined, *most),
        };
        if let Some(less) = left.checked_sub(cost) {
            *left = less;
            return true;
        }
        if !std::mem::replace(&mut self.budget.told, true) {
            let what = format!(
                "functions that are too long once inlined (more than {most} statements), at `{name}`"
            );
            self.report.add(span, Reason::NotImplemented { what });
        }
        false
    }

    /// As [`Self::spend`], for a statement of the open function; what is the entry's own costs nothing.
    pub(super) fn spend_inside(&mut self) -> bool {
        let Some(Call { name, span, .. }) = self.calls.last() else { return true };
        let (name, span) = (*name, *span);
        self.spend(name, 1, span)
    }

    pub(super) fn callee(&self, name: &str) -> Result<&'a Function, Reason> {
        let function = self.functions.get(name).ok_or_else(|| Reason::Undeclared(name.to_owned()))?;
        if function.kind == FunctionKind::Entry {
            return Err(Reason::NotImplemented { what: format!("a call of the entry `{name}`") });
        }
        if self.is_open(name) && self.body_of(name).is_none() {
            return Err(Reason::NotImplemented { what: format!("recursion (`{name}` calls itself)") });
        }
        if self.depth >= CALL_NESTING_MAX {
            let what = "calls and braces inside one another";
            return Err(Reason::Limit { what, most: CALL_NESTING_MAX as u64 });
        }
        for directive in &function.directives {
            // That a function does not return is a promise that nothing here rests on.
            if directive.name != ".noreturn" && !super::entry::is_droppable(directive) {
                return Err(Reason::NotImplemented { what: super::entry::named(directive) });
            }
        }
        Ok(function)
    }

    /// Branches over the call where its predicate does not hold; returns the label to put behind it.
    pub(super) fn skip_unless(
        &mut self,
        predicate: &Predicate,
        span: Span,
        into: &mut Flat,
    ) -> Result<String, Reason> {
        let label = self.scopes.fresh_label();
        let register = self.register(&predicate.register)?;
        let mut branch = lines::plain("bra", &[], vec![Operand::Symbol(label.clone())], span);
        branch.predicate = Some(Predicate { register, negated: !predicate.negated });
        into.statements.push(Statement::Instruction(branch));
        Ok(label)
    }

    pub(super) fn actuals(&mut self, operands: &[Operand]) -> Result<Vec<Actual>, Reason> {
        operands
            .iter()
            .map(|operand| {
                if let Operand::Symbol(name) = operand
                    && let Some(Meaning::Argument(argument)) = self.scopes.resolve(name)
                {
                    return Ok(Actual::Argument(argument));
                }
                match self.operand(operand)? {
                    value @ (Operand::Register(_)
                    | Operand::Integer(_)
                    | Operand::Float32(_)
                    | Operand::Float64(_)
                    | Operand::Sink) => Ok(Actual::Value(value)),
                    _ => Err(Reason::Malformed("a call takes parameters, registers and numbers".to_owned())),
                }
            })
            .collect()
    }

    /// The function's body between what passes its parameters.
    fn inline(
        &mut self,
        function: &'a Function,
        body: &'a [Statement],
        passed: Passed,
        span: Span,
        into: &mut Flat,
    ) -> Result<(), Reason> {
        let Passed { returned, given } = passed;
        for (parameter, actual) in function.parameters.iter().zip(given) {
            if let Some(before) = self.pass(parameter, actual, Direction::In, span)? {
                into.statements.push(before);
            }
        }
        let mut after = Vec::new();
        for (parameter, actual) in function.returns.iter().zip(returned) {
            after.extend(self.pass(parameter, actual, Direction::Out, span)?);
        }
        self.block(body, into);
        self.end(span, into);
        into.statements.append(&mut after);
        Ok(())
    }

    /// Declares a function's parameter; the move that it needs beyond that.
    fn pass(
        &mut self,
        parameter: &Variable,
        actual: Actual,
        direction: Direction,
        span: Span,
    ) -> Result<Option<Statement>, Reason> {
        let unlike = || Reason::NotImplemented { what: format!("a parameter like `{}`", parameter.name) };
        match (parameter.space, actual) {
            (Space::Parameter, Actual::Argument(argument)) => {
                self.scopes.declare_variable(&parameter.name, Meaning::Argument(argument))?;
                Ok(None)
            }
            (Space::Parameter, Actual::Value(value)) => {
                let bytes = scalar_bytes(parameter).ok_or_else(unlike)?;
                let argument = self.argument(Some(bytes));
                self.scopes.declare_variable(&parameter.name, Meaning::Argument(argument.clone()))?;
                Ok(Some(transfer(&argument, bytes, value, direction, span)))
            }
            (Space::Register, actual) => {
                let bytes = scalar_bytes(parameter).filter(|_| parameter.range.is_none());
                let bytes = bytes.ok_or_else(unlike)?;
                self.scopes.declare_registers(parameter)?;
                let own = register(&self.register(&parameter.name)?);
                match actual {
                    Actual::Argument(argument) => {
                        // The other way round: what goes in is loaded.
                        let direction =
                            if direction == Direction::In { Direction::Out } else { Direction::In };
                        Ok(Some(transfer(&argument, bytes, own, direction, span)))
                    }
                    Actual::Value(value) => {
                        let class = Class::of(parameter.ty).ok_or_else(unlike)?;
                        let operands = match direction {
                            Direction::In => vec![own, value],
                            Direction::Out => vec![value, own],
                        };
                        Ok(Some(lines::instruction("mov", &[class.mov()], operands, span)))
                    }
                }
            }
            (Space::Global | Space::Shared | Space::Local | Space::Constant, _) => Err(unlike()),
        }
    }

    /// Where the function's branches to its end go: nowhere, where the one that there is stands there anyway.
    pub(super) fn end(&mut self, span: Span, into: &mut Flat) {
        let Some(call) = self.calls.last_mut() else { return };
        let target = |operand: &Operand| matches!(operand, Operand::Symbol(name) if *name == call.end);
        let falls = matches!(into.statements.last(), Some(Statement::Instruction(last))
            if last.predicate.is_none() && last.opcode == "bra" && last.operands.iter().any(target));
        if falls {
            into.statements.pop();
            call.returns -= 1;
        }
        if call.returns > 0 {
            into.statements.push(Statement::Label(call.end.clone(), span));
        }
    }
}

/// The store of a value into an argument, or the load of it.
pub(super) fn transfer(
    argument: &str,
    bytes: u64,
    value: Operand,
    direction: Direction,
    span: Span,
) -> Statement {
    let ty = format!("b{}", bytes * 8);
    let address = Operand::Address(Address { base: AddressBase::Symbol(argument.to_owned()), offset: 0 });
    match direction {
        Direction::In => lines::instruction("st", &["param", &ty], vec![address, value], span),
        Direction::Out => lines::instruction("ld", &["param", &ty], vec![value, address], span),
    }
}

/// Why a function without a body cannot be called: the runtime of launches by kernels is in no module.
fn not_here(callee: &str) -> Reason {
    const LAUNCHES: [&str; 4] =
        ["__cuda_syscall_cnp", "cudaLaunchDevice", "cudaGetParameterBuffer", "__cudaCDP"];
    if LAUNCHES.iter().any(|start| callee.starts_with(start)) {
        return Reason::launches();
    }
    Reason::NotGranted(callee.to_owned())
}
