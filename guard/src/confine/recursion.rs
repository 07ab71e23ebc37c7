//! Functions that call themselves: one body for all calls, and a stack in the thread's local memory.
//!
//! Functions are inlined where they are called. One that may call itself is too, but once in an entry: any other call of it
//! saves what is still needed, goes to the body's beginning with the number of the call in a register, and what comes behind
//! the body goes to where that number says. A function's local variables are on the stack as well, as each call has its own.
//! What is saved is known when the whole body is flat: [`super::stack`] writes that, in the place of the lines that have the
//! names here.

use crate::ast::{Function, Operand, Space, Span, Statement, Variable};
use crate::confine::calls::{Actual, Direction, Passed, scalar_bytes, transfer};
use crate::confine::faults::Kind;
use crate::confine::flatten::{Flat, Flattener};
use crate::confine::frames::{
    Body, FITS, PASS, REGION, RESTORE, RETURN, SAVE, Stack, address, jump, line, number, zero,
};
use crate::confine::lines::{instruction, register};
use crate::confine::pointers;
use crate::confine::scope::Meaning;
use crate::confine::symbols;
use crate::limits::STACK_BYTES;
use crate::maps::HashMap;
use crate::names::{Class, WIDEST_ACCESS};
use crate::report::Reason;

/// What variables of functions on the stack are aligned to at most.
const ALIGN: u64 = WIDEST_ACCESS;

impl<'a> Flattener<'a> {
    /// The body that a call of a function goes to, where it has one here.
    pub(super) fn body_of(&self, name: &str) -> Option<usize> {
        self.stack.as_ref()?.reached.get(name).copied()
    }

    fn stack(&mut self) -> Result<&mut Stack, Reason> {
        if self.stack.is_none() {
            let elsewhere = |name: &str| self.symbols.contains(name) || self.parameters.contains_key(name);
            let (variable, start) = self.variables.place_stack(STACK_BYTES, ALIGN, elsewhere)?;
            self.stack = Some(Stack {
                pointer: self.scopes.fresh(Class::Word),
                variable,
                start,
                frame: 0,
                calls: 0,
                bodies: Vec::new(),
                reached: HashMap::default(),
                open: 0,
                places: HashMap::default(),
            });
        }
        self.stack.as_mut().ok_or_else(|| Reason::Malformed("no stack".to_owned()))
    }

    /// Inlines a function that may call itself.
    pub(super) fn inline_recursive(
        &mut self,
        function: &'a Function,
        body: &'a [Statement],
        passed: &Passed,
        span: Span,
        into: &mut Flat,
    ) -> Result<(), Reason> {
        let given = self.formals(&function.parameters)?;
        let returned = self.formals(&function.returns)?;
        let (start, site) = (self.scopes.fresh_label(), self.scopes.fresh(Class::Word));
        let stack = self.stack()?;
        if stack.open == 0 {
            into.statements.push(line(REGION, vec![number(1)], span));
        }
        stack.open += 1;
        let index = stack.bodies.len();
        stack.reached.insert(function.name.clone(), index);
        let (at, sites) = (start.clone(), Vec::new());
        let known = Body { start, site: site.clone(), returned, given, sites };
        pass(&function.parameters, &known.given, &passed.given, Direction::In, span, into)?;
        let formals = known.returned.clone();
        stack.bodies.push(known);
        into.statements.extend([zero(&site, span), Statement::Label(at, span)]);
        self.block(body, into);
        self.end(span, into);
        into.statements.push(line(RETURN, vec![number(index)], span));
        pass(&function.returns, &formals, &passed.returned, Direction::Out, span, into)?;
        let stack = self.stack()?;
        stack.open -= 1;
        if stack.open == 0 {
            into.statements.push(line(REGION, vec![number(0)], span));
        }
        Ok(())
    }

    /// Calls a body that is there.
    pub(super) fn call_body(
        &mut self,
        index: usize,
        function: &Function,
        passed: &Passed,
        span: Span,
        into: &mut Flat,
    ) -> Result<(), Reason> {
        let (room, fits, back) =
            (self.scopes.fresh(Class::Predicate), self.scopes.fresh_label(), self.scopes.fresh_label());
        let loc = self.loc;
        let stack = self.stack()?;
        let call = stack.calls;
        stack.calls += 1;
        let body = stack.bodies.get_mut(index).ok_or_else(|| Reason::Undeclared(function.name.clone()))?;
        body.sites.push(back.clone());
        let (site, start, which) = (body.site.clone(), body.start.clone(), body.sites.len());
        let (given, returned) = (body.given.clone(), body.returned.clone());
        let is_formal = |actual: &Actual| matches!(actual, Actual::Argument(name) if given.contains(name) || returned.contains(name));
        if passed.given.iter().chain(&passed.returned).any(is_formal) {
            let what = format!("recursion (`{}` gives on its own parameter as it is)", function.name);
            return Err(Reason::NotImplemented { what });
        }
        into.statements.push(line(FITS, vec![register(&room), number(call)], span));
        into.statements.push(jump(&fits, Some(&room), span));
        self.stop(Kind::Stack, Operand::Integer(STACK_BYTES.into()), loc, span, into);
        into.statements.push(Statement::Label(fits, span));
        into.statements.push(line(SAVE, vec![number(call)], span));
        pass(&function.parameters, &given, &passed.given, Direction::In, span, into)?;
        into.statements.push(instruction("mov", &["b32"], vec![register(&site), number(which)], span));
        into.statements.push(jump(&start, None, span));
        into.statements.push(Statement::Label(back, span));
        pass(&function.returns, &returned, &passed.returned, Direction::Out, span, into)?;
        into.statements.push(line(RESTORE, vec![number(call)], span));
        Ok(())
    }

    /// Declares the parameters of a function that may call itself; the arguments that they are.
    fn formals(&mut self, parameters: &[Variable]) -> Result<Vec<String>, Reason> {
        let mut formals = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            if parameter.space != Space::Parameter {
                let what = format!("recursion (`{}` is a parameter in a register)", parameter.name);
                return Err(Reason::NotImplemented { what });
            }
            let formal = self.argument(pointers::size(parameter));
            self.scopes.declare_variable(&parameter.name, Meaning::Argument(formal.clone()))?;
            formals.push(formal);
        }
        Ok(formals)
    }

    /// A local variable of a function inside one that may call itself: a register has its address. False where it is none.
    pub(super) fn framed(
        &mut self,
        variable: &Variable,
        is_first: bool,
        into: &mut Flat,
    ) -> Result<bool, Reason> {
        if variable.space != Space::Local || self.stack.as_ref().is_none_or(|stack| stack.open == 0) {
            return Ok(false);
        }
        if !is_first {
            // What branches over the declaration would go without the address.
            let what = format!("recursion (`{}` is declared behind instructions)", variable.name);
            return Err(Reason::NotImplemented { what });
        }
        let extent = symbols::measured(variable)?;
        if extent.align > ALIGN || !variable.initializer.is_empty() {
            let what = format!("recursion (`{}` is aligned to more than {ALIGN} bytes)", variable.name);
            return Err(Reason::NotImplemented { what });
        }
        let [at, between] = [Class::Double; 2].map(|class| self.scopes.fresh(class));
        let stack = self.stack()?;
        let declaration = std::ptr::from_ref(variable);
        let known = stack.places.get(&declaration).copied();
        let place = known.or_else(|| stack.frame.checked_next_multiple_of(extent.align.max(1)));
        let end = place.and_then(|place| place.checked_add(extent.bytes)).filter(|end| *end <= STACK_BYTES);
        let (Some(place), Some(end)) = (place, end) else {
            let what = "bytes of variables of functions that call themselves";
            return Err(Reason::Limit { what, most: STACK_BYTES });
        };
        stack.frame = stack.frame.max(end);
        stack.places.insert(declaration, place);
        into.statements.extend(address(stack, place, [&at, &between], variable.span));
        self.scopes.declare_variable(&variable.name, Meaning::Register(at))?;
        Ok(true)
    }
}

/// What goes into a body or comes out of it.
fn pass(
    parameters: &[Variable],
    formals: &[String],
    actuals: &[Actual],
    direction: Direction,
    span: Span,
    into: &mut Flat,
) -> Result<(), Reason> {
    for ((parameter, formal), actual) in parameters.iter().zip(formals).zip(actuals) {
        into.statements.push(match actual {
            Actual::Argument(actual) => {
                let pair = match direction {
                    Direction::In => [formal, actual],
                    Direction::Out => [actual, formal],
                };
                line(PASS, pair.map(|name| Operand::Symbol(name.clone())).to_vec(), span)
            }
            Actual::Value(value) => {
                let bytes = scalar_bytes(parameter).ok_or_else(|| Reason::NotImplemented {
                    what: format!("a parameter like `{}`", parameter.name),
                })?;
                transfer(formal, bytes, value.clone(), direction, span)
            }
        });
    }
    Ok(())
}
