//! Calls through pointers and branches by an index: a choice among what the text names.
//!
//! What is no function's number ends the thread, which leaves a record; what is beyond a list of labels goes to the last.

use crate::ast::{Directive, Instruction, Operand, Statement};
use crate::confine::calls::{Actual, Passed};
use crate::confine::faults::Kind;
use crate::confine::flatten::{Flat, Flattener};
use crate::confine::frames::jump;
use crate::confine::lines::{instruction, register};
use crate::confine::pointers::{self, Bytes, Shape};
use crate::confine::scope::Meaning;
use crate::limits::TARGETS_MAX;
use crate::names::Class;
use crate::report::Reason;

/// Whether a directive lists what the label before it stands for.
pub(super) fn is_list(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), ".branchtargets" | ".calltargets" | ".callprototype")
}

impl<'a> Flattener<'a> {
    /// The list that stands at a label.
    fn list(&mut self, name: &str) -> Option<&'a Directive> {
        match self.scopes.resolve(name) {
            Some(Meaning::List(index)) => self.lists.get(index).copied(),
            Some(Meaning::Register(_) | Meaning::Label(_) | Meaning::Variable(..) | Meaning::Argument(_))
            | None => None,
        }
    }

    /// Inlines every function that the call may mean, each behind a comparison with its number.
    pub(super) fn call_through_pointer(
        &mut self,
        call: &'a Instruction,
        returned: &'a [Operand],
        pointer: &Operand,
        given: &'a [Operand],
        list: &str,
        into: &mut Flat,
    ) -> Result<(), Reason> {
        let Some(list) = self.list(list).filter(|list| list.name != ".branchtargets") else {
            return Err(Reason::Undeclared(list.to_owned()));
        };
        let (loc, span) = (self.loc, call.span);
        let pointer = self.operand(pointer)?;
        match &pointer {
            Operand::Register(name) if matches!(Class::parse(name), Some((Class::Double, _))) => {}
            _ => return Err(Reason::Malformed("a function's address has 64 bits".to_owned())),
        }
        let returned = self.actuals(returned)?;
        let given = self.actuals(given)?;
        let (sizes_returned, sizes_given) = (self.sizes(&returned)?, self.sizes(&given)?);
        let most = |sizes: &[Bytes]| sizes.iter().map(|bytes| bytes.most()).collect::<Vec<_>>().into_iter();
        let shape = Shape::widened(most(&sizes_returned), most(&sizes_given));
        if list.operands.len() > TARGETS_MAX {
            return Err(Reason::Limit { what: "functions that a call may mean", most: TARGETS_MAX as u64 });
        }
        let named =
            |name: &str| list.name == ".callprototype" || list.operands.iter().any(|operand| operand == name);
        let skip = match &call.predicate {
            None => None,
            Some(predicate) => Some(self.skip_unless(predicate, span, into)?),
        };
        let count = returned.len() + given.len();
        let passed = Passed { returned, given };
        let end = self.scopes.fresh_label();
        let functions = self.functions;
        for (number, function) in functions.pointed(&shape) {
            // Whoever is looked at costs, though it may not be meant.
            if !self.spend(&function.name, 1 + count, span) {
                break;
            }
            let is_meant = named(&function.name) && pointers::fits(function, &sizes_returned, &sizes_given);
            let Some(body) = function.body.as_ref().filter(|_| is_meant) else { continue };
            self.callee(&function.name)?;
            let next = self.scopes.fresh_label();
            let other = self.scopes.fresh(Class::Predicate);
            let number = Operand::Integer(i128::from(*number));
            into.statements.push(instruction(
                "setp",
                &["ne", "s64"],
                vec![register(&other), pointer.clone(), number],
                span,
            ));
            into.statements.push(jump(&next, Some(&other), span));
            match self.body_of(&function.name) {
                Some(index) => self.call_body(index, function, &passed, span, into)?,
                None => self.open(function, body, passed.clone(), span, into)?,
            }
            into.statements.push(jump(&end, None, span));
            into.statements.push(Statement::Label(next, span));
        }
        self.stop(Kind::Nobody, pointer, loc, span, into);
        into.statements.push(Statement::Label(end, span));
        into.statements.extend(skip.map(|label| Statement::Label(label, span)));
        Ok(())
    }

    /// How many bytes each value of a call has.
    fn sizes(&self, actuals: &[Actual]) -> Result<Vec<Bytes>, Reason> {
        let size = |actual: &Actual| {
            match actual {
                Actual::Argument(name) => self.arguments.get(name).copied().flatten().map(Bytes::Known),
                Actual::Value(Operand::Register(name)) => match Class::parse(name) {
                    Some((Class::Half, _)) => Some(Bytes::OneOrTwo),
                    Some((Class::Word, _)) => Some(Bytes::Known(4)),
                    Some((Class::Double, _)) => Some(Bytes::Known(8)),
                    Some((Class::Predicate, _)) | None => None,
                },
                Actual::Value(_) => None,
            }
            .ok_or_else(|| Reason::NotImplemented {
                what: "a call through a pointer with something that has no size".to_owned(),
            })
        };
        actuals.iter().map(size).collect()
    }

    /// Halves the labels of a list until one is left.
    pub(super) fn branch_by_index(&mut self, branch: &'a Instruction, into: &mut Flat) -> Result<(), Reason> {
        if let Some(modifier) = branch.modifiers.iter().skip(1).find(|modifier| *modifier != "uni") {
            return Err(Reason::NotImplemented { what: format!("`.{modifier}` of `brx`") });
        }
        let [index, Operand::Symbol(name)] = branch.operands.as_slice() else {
            return Err(Reason::Malformed("`brx.idx` takes an index and a list".to_owned()));
        };
        let Some(list) = self.list(name).filter(|list| list.name == ".branchtargets") else {
            return Err(Reason::Undeclared(name.clone()));
        };
        let index = self.operand(index)?;
        match &index {
            Operand::Register(name) if matches!(Class::parse(name), Some((Class::Word, _))) => {}
            _ => return Err(Reason::Malformed("the index of `brx.idx` has 32 bits".to_owned())),
        }
        let span = branch.span;
        let skip = match &branch.predicate {
            None => None,
            Some(predicate) => Some(self.skip_unless(predicate, span, into)?),
        };
        // What is left to do, the next last: the labels from one to another, and the label that they stand at.
        let mut left = vec![(0, list.operands.len(), None)];
        while let Some((begin, end, at)) = left.pop() {
            if !self.spend(name, 1, span) {
                return Ok(());
            }
            into.statements.extend(at.map(|label| Statement::Label(label, span)));
            let middle = begin + (end - begin) / 2;
            if middle == begin {
                let Some(target) = list.operands.get(begin) else {
                    return Err(Reason::Malformed("a list without labels".to_owned()));
                };
                let Operand::Symbol(target) = self.target(&Operand::Symbol(target.clone()))? else {
                    continue;
                };
                into.statements.push(jump(&target, None, span));
                continue;
            }
            let (above, upper) = (self.scopes.fresh(Class::Predicate), self.scopes.fresh_label());
            let operands = vec![register(&above), index.clone(), Operand::Integer(middle as i128)];
            into.statements.push(instruction("setp", &["ge", "u32"], operands, span));
            into.statements.push(jump(&upper, Some(&above), span));
            left.push((middle, end, Some(upper)));
            left.push((begin, middle, None));
        }
        into.statements.extend(skip.map(|label| Statement::Label(label, span)));
        Ok(())
    }
}
