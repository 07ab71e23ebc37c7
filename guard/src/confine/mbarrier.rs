//! Barrier objects in shared memory (`mbarrier`) become words that ordinary atomic operations count on.
//!
//! What a device does where an object is overwritten, counted below zero or never initialised PTX leaves open, and an
//! error there would end everybody's context. Words cannot go wrong: all that this writes is PTX that a tenant might have
//! written, what confines it comes after, and the verifier knows no `mbarrier` at all.
//!
//! | Bits | What they hold |
//! |---|---|
//! | 0 to 19 | how many arrivals a phase takes |
//! | 43 to 62 | how many are still to come in this one, negated |
//! | 63 | whether the phase is an odd one |
//!
//! An arrival adds to the count; the last one carries into the phase, so that one operation both arrives and completes. Who
//! completed a phase sets the count of the next, by adding as well: what has arrived in between stays counted, and may have
//! completed that phase too.

use crate::access;
use crate::ast::{Address, AddressBase, Instruction, Operand, Predicate, Span, Statement};
use crate::confine::copies;
use crate::confine::flatten::{Flat, Flattener};
use crate::confine::lines::{instruction, plain, register};
use crate::names::Class;
use crate::operands;
use crate::report::Reason;
use crate::table;

/// Where the count of arrivals that are to come lies.
const COUNT_SHIFT: u32 = 43;
/// What a count can be.
const COUNT_MASK: i128 = (1 << 20) - 1;

/// How often a thread arrives.
struct Arrival {
    /// A 64-bit operand.
    count: Operand,
    /// Whether later phases take so many fewer.
    drops: bool,
}

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Init,
    Invalidate,
    /// `drops` where later phases take fewer arrivals.
    Arrive {
        drops: bool,
    },
    /// Asks whether a phase is over; which one a token or its parity says.
    Test {
        parity: bool,
    },
    /// Arrives when the thread's copies are done: for a thread that has not been counted on, nothing.
    ArriveBehindCopies {
        counted: bool,
    },
}

/// Whether an instruction works on barrier objects.
pub(super) fn is_one(instruction: &Instruction) -> bool {
    match instruction.opcode.as_str() {
        "mbarrier" => true,
        "cp" => matches!(instruction.words().as_slice(), ["async", "mbarrier", ..]),
        _ => false,
    }
}

fn unknown(instruction: &Instruction) -> Reason {
    let form = instruction.modifiers.iter().map(String::as_str).collect::<Vec<_>>().join(".");
    Reason::NotImplemented { what: format!("the instruction `{}.{form}`", instruction.opcode) }
}

/// An instruction's action, whether its address is one of shared memory, and whether it orders other accesses.
fn decode(found: &Instruction) -> Result<(Action, bool, bool), Reason> {
    let words: Vec<&str> = found.modifiers.iter().map(String::as_str).collect();
    let (action, rest) = match words.as_slice() {
        ["init", rest @ ..] => (Action::Init, rest),
        ["inval", rest @ ..] => (Action::Invalidate, rest),
        ["arrive" | "arrive_drop" | "expect_tx" | "complete_tx", rest @ ..]
            if rest.contains(&"expect_tx") || words[0].ends_with("_tx") =>
        {
            let what = "transactions of barrier objects (`expect_tx` of `mbarrier`)".to_owned();
            return Err(Reason::NotImplemented { what });
        }
        ["arrive", rest @ ..] => (Action::Arrive { drops: false }, rest),
        ["arrive_drop", rest @ ..] => (Action::Arrive { drops: true }, rest),
        ["test_wait" | "try_wait", "parity", rest @ ..] => (Action::Test { parity: true }, rest),
        ["test_wait" | "try_wait", rest @ ..] => (Action::Test { parity: false }, rest),
        ["async", "mbarrier", "arrive", "noinc", rest @ ..] => {
            (Action::ArriveBehindCopies { counted: true }, rest)
        }
        ["async", "mbarrier", "arrive", rest @ ..] => (Action::ArriveBehindCopies { counted: false }, rest),
        _ => return Err(unknown(found)),
    };
    let (mut rest, arrives) = (rest.to_vec(), matches!(action, Action::Arrive { .. }));
    let orders = match rest.as_slice() {
        ["release" | "relaxed", "cta", ..] if arrives => Some(rest[0]),
        ["noComplete", "release", "cta", ..] if arrives => Some("release"),
        ["acquire" | "relaxed", "cta", ..] if matches!(action, Action::Test { .. }) => Some(rest[0]),
        _ => None,
    };
    rest.retain(|word| !(arrives && *word == "noComplete"));
    if orders.is_some() {
        rest.drain(..2);
    }
    match rest.as_slice() {
        ["shared" | "shared::cta", "b64"] => Ok((action, true, orders != Some("relaxed"))),
        ["b64"] => Ok((action, false, orders != Some("relaxed"))),
        _ if rest.iter().any(|word| word.contains("cluster")) => {
            let what = format!("clusters (`{}` of another block)", found.opcode);
            Err(Reason::NotImplemented { what })
        }
        _ => Err(unknown(found)),
    }
}

impl<'a> Flattener<'a> {
    /// Writes what an instruction on a barrier object does.
    pub(super) fn barrier_object(&mut self, found: &'a Instruction, into: &mut Flat) -> Result<(), Reason> {
        let before = into.statements.len();
        let done = if matches!(found.words().as_slice(), ["pending_count", "b64"]) {
            self.where_it_holds(found, into, Self::pending_count)
        } else {
            decode(found)?;
            self.where_it_holds(found, into, Self::on_object)
        };
        self.takes(into.statements.len() - before, "statements that objects of barriers become")?;
        done
    }

    /// Counts statements that stand for one of the module.
    pub(super) fn takes(&mut self, statements: usize, what: &'static str) -> Result<(), Reason> {
        if self.budget.takes(statements) {
            return Ok(());
        }
        Err(Reason::Limit { what, most: self.budget.most() as u64 })
    }

    /// Does something where an instruction's predicate holds.
    pub(super) fn where_it_holds(
        &mut self,
        found: &'a Instruction,
        into: &mut Flat,
        then: fn(&mut Self, &'a Instruction, &mut Flat) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        let skip = match &found.predicate {
            None => None,
            Some(predicate) => Some(self.skip_unless(predicate, found.span, into)?),
        };
        let done = then(self, found, into);
        into.statements.extend(skip.map(|label| Statement::Label(label, found.span)));
        done
    }

    fn on_object(&mut self, found: &'a Instruction, into: &mut Flat) -> Result<(), Reason> {
        let (action, shared, orders) = decode(found)?;
        let span = found.span;
        let count = |most: usize| {
            Err(Reason::Malformed(format!(
                "`mbarrier` takes {most} operands here, not {}",
                found.operands.len()
            )))
        };
        match (action, found.operands.as_slice()) {
            (Action::Init, [at, expected]) => {
                let at = self.object(at, shared, span, into)?;
                let expected = self.counted(expected, span, into)?;
                let low = self.computed("and", "b64", &[expected, integer(COUNT_MASK)], span, into);
                let high = self.count_of(low.clone(), span, into);
                let word = self.computed("or", "b64", &[low, high], span, into);
                self.access(plain("st", &["shared", "b64"], vec![at, word], span), into)
            }
            (Action::Init, _) => count(2),
            (Action::Invalidate, [at]) => self.object(at, shared, span, into).map(drop),
            (Action::Arrive { drops }, [state, at, rest @ ..]) if rest.len() <= 1 => {
                let state = self.state(state)?;
                let at = self.object(at, shared, span, into)?;
                let one = integer(1);
                let count = self.counted(rest.first().unwrap_or(&one), span, into)?;
                let old = self.arrive(at, Arrival { count, drops }, orders, span, into)?;
                if let Some(state) = state {
                    into.statements.push(instruction("mov", &["b64"], vec![register(&state), old], span));
                }
                Ok(())
            }
            (Action::Arrive { .. }, _) => count(3),
            (Action::Test { parity }, [done, at, which, hint @ ..]) if hint.len() <= 1 => {
                let Operand::Register(done) = self.operand(done)? else {
                    return Err(Reason::Malformed("`mbarrier` answers with a predicate".to_owned()));
                };
                let at = self.object(at, shared, span, into)?;
                let which = if parity { self.operand(which)? } else { self.token(which)? };
                hint.iter().try_for_each(|hint| self.operand(hint).map(drop))?;
                let which = if parity {
                    let wide = self.widened(&which, span, into)?;
                    self.computed("shl", "b64", &[wide, integer(63)], span, into)
                } else {
                    which
                };
                let now = register(&self.scopes.fresh(Class::Double));
                let order = if orders { "acquire" } else { "relaxed" };
                let load = plain("ld", &[order, "cta", "shared", "b64"], vec![now.clone(), at], span);
                self.access(load, into)?;
                let differs = self.computed("xor", "b64", &[now, which], span, into);
                let operands = vec![register(&done), differs, integer(0)];
                self.checked(plain("setp", &["lt", "s64"], operands, span), into)
            }
            (Action::Test { .. }, _) => count(3),
            (Action::ArriveBehindCopies { counted }, [at]) => {
                let at = self.object(at, shared, span, into)?;
                into.statements.push(copies::wait(None, span));
                if counted {
                    let arrival = Arrival { count: integer(1), drops: false };
                    self.arrive(at, arrival, true, span, into)?;
                }
                Ok(())
            }
            (Action::Invalidate | Action::ArriveBehindCopies { .. }, _) => count(1),
        }
    }

    /// A token that is read.
    fn token(&mut self, operand: &Operand) -> Result<Operand, Reason> {
        match self.operand(operand)? {
            Operand::Register(name) if matches!(Class::parse(&name), Some((Class::Double, _))) => {
                Ok(Operand::Register(name))
            }
            _ => Err(not_a_token()),
        }
    }

    /// How many arrivals were to come where a token was made. The count of the phase before may not have been replaced.
    fn pending_count(&mut self, found: &'a Instruction, into: &mut Flat) -> Result<(), Reason> {
        let [to, state] = found.operands.as_slice() else {
            return Err(Reason::Malformed("`mbarrier.pending_count` takes 2 operands".to_owned()));
        };
        let (to, state, span) = (self.operand(to)?, self.token(state)?, found.span);
        let mask = || integer(COUNT_MASK);
        let expected = self.computed("and", "b64", &[state.clone(), mask()], span, into);
        let come = self.computed("shr", "u64", &[state, integer(COUNT_SHIFT.into())], span, into);
        let come = self.computed("and", "b64", &[come, mask()], span, into);
        let left = self.computed("neg", "s64", std::slice::from_ref(&come), span, into);
        let left = self.computed("and", "b64", &[left, mask()], span, into);
        let anew = self.computed("sub", "s64", &[expected.clone(), come], span, into);
        let less = self.computed("sub", "s64", &[left.clone(), integer(1)], span, into);
        let begun = register(&self.scopes.fresh(Class::Predicate));
        into.statements.push(instruction("setp", &["ge", "u64"], vec![begun.clone(), less, expected], span));
        let pending = self.computed("selp", "b64", &[anew, left, begun], span, into);
        self.checked(plain("cvt", &["u32", "u64"], vec![to, pending], span), into)
    }

    /// Arrives; answers what the object was before.
    fn arrive(
        &mut self,
        at: Operand,
        arrival: Arrival,
        orders: bool,
        span: Span,
        into: &mut Flat,
    ) -> Result<Operand, Reason> {
        let Arrival { count, drops } = arrival;
        let shift = integer(COUNT_SHIFT.into());
        let mut added = self.computed("shl", "b64", &[count.clone(), shift], span, into);
        if drops {
            added = self.computed("sub", "s64", &[added, count], span, into);
        }
        let order = if orders { "acq_rel" } else { "relaxed" };
        let add = |to: &Operand, by: &Operand| {
            let operands = vec![to.clone(), at.clone(), by.clone()];
            plain("atom", &[order, "cta", "shared", "add", "u64"], operands, span)
        };
        let fresh = |flattener: &mut Self| register(&flattener.scopes.fresh(Class::Double));
        let (old, now, carried, before) = (fresh(self), fresh(self), fresh(self), fresh(self));
        let completes = self.scopes.fresh(Class::Predicate);
        let branch = |label: &str, negated: bool| {
            let mut branch = plain("bra", &[], vec![Operand::Symbol(label.to_owned())], span);
            branch.predicate = Some(Predicate { register: completes.clone(), negated });
            Statement::Instruction(branch)
        };
        let carries = |old: &Operand, added: &Operand, into: &mut Flat| {
            let mut push = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| {
                into.statements.push(instruction(opcode, modifiers, operands, span));
            };
            push("add", &["s64"], vec![now.clone(), old.clone(), added.clone()]);
            push("xor", &["b64"], vec![carried.clone(), now.clone(), old.clone()]);
            push("setp", &["lt", "s64"], vec![register(&completes), carried.clone(), integer(0)]);
        };
        let (again, done) = (self.scopes.fresh_label(), self.scopes.fresh_label());
        self.access(add(&old, &added), into)?;
        carries(&old, &added, into);
        into.statements.push(branch(&done, true));
        into.statements.push(Statement::Label(again.clone(), span));
        let expected = self.computed("and", "b64", &[now.clone(), integer(COUNT_MASK)], span, into);
        let reset = self.count_of(expected, span, into);
        self.access(add(&before, &reset), into)?;
        carries(&before, &reset, into);
        into.statements.push(branch(&again, false));
        into.statements.push(Statement::Label(done, span));
        Ok(old)
    }

    /// The count of a phase that takes so many arrivals, where it lies in the word.
    fn count_of(&mut self, expected: Operand, span: Span, into: &mut Flat) -> Operand {
        let count = self.computed("neg", "s64", &[expected], span, into);
        let count = self.computed("and", "b64", &[count, integer(COUNT_MASK)], span, into);
        self.computed("shl", "b64", &[count, integer(COUNT_SHIFT.into())], span, into)
    }

    /// A count as a 64-bit operand: a number, or what a 32-bit register holds.
    fn counted(&mut self, operand: &Operand, span: Span, into: &mut Flat) -> Result<Operand, Reason> {
        let operand = self.operand(operand)?;
        self.widened(&operand, span, into)
    }

    fn widened(&mut self, operand: &Operand, span: Span, into: &mut Flat) -> Result<Operand, Reason> {
        match operand {
            Operand::Integer(number) => {
                let number = Operand::Integer(number & i128::from(u32::MAX));
                Ok(self.computed("mov", "b64", &[number], span, into))
            }
            Operand::Register(name) if matches!(Class::parse(name), Some((Class::Word, _))) => {
                let to = register(&self.scopes.fresh(Class::Double));
                let operands = vec![to.clone(), operand.clone()];
                into.statements.push(instruction("cvt", &["u64", "u32"], operands, span));
                Ok(to)
            }
            _ => Err(Reason::Malformed("a count of `mbarrier` has 32 bits".to_owned())),
        }
    }

    /// Where a token goes; none where nobody wants it.
    fn state(&mut self, operand: &Operand) -> Result<Option<String>, Reason> {
        match self.operand(operand)? {
            Operand::Sink => Ok(None),
            Operand::Register(name) if matches!(Class::parse(&name), Some((Class::Double, _))) => {
                Ok(Some(name))
            }
            _ => Err(not_a_token()),
        }
    }

    /// The address of an object in shared memory.
    fn object(
        &mut self,
        operand: &Operand,
        shared: bool,
        span: Span,
        into: &mut Flat,
    ) -> Result<Operand, Reason> {
        let Operand::Address(address) = self.operand(operand)? else {
            return Err(Reason::Malformed("`mbarrier` takes an address".to_owned()));
        };
        if shared {
            // What nothing is done with has to be an address too.
            let unused = register(&self.scopes.fresh(Class::Double));
            let load = plain("ld", &["shared", "b64"], vec![unused, Operand::Address(address.clone())], span);
            access::decode(table::check(&load)?, &load)?;
            return Ok(Operand::Address(address));
        }
        let base = match &address.base {
            AddressBase::Register(name) if matches!(Class::parse(name), Some((Class::Double, _))) => name,
            AddressBase::Register(_) => {
                let text = "a generic address has to be a 64-bit register";
                return Err(Reason::Malformed(text.to_owned()));
            }
            AddressBase::Symbol(name) => {
                let what = format!("a generic access by symbol, `{name}`");
                return Err(Reason::NotImplemented { what });
            }
            AddressBase::Absolute => {
                return Err(Reason::NotImplemented { what: "an absolute generic address".to_owned() });
            }
        };
        let inside = self.scopes.fresh(Class::Double);
        let operands = vec![register(&inside), register(base)];
        into.statements.push(instruction("cvta", &["to", "shared", "u64"], operands, span));
        Ok(Operand::Address(Address { base: AddressBase::Register(inside), offset: address.offset }))
    }

    /// A 64-bit register that holds what an instruction computes.
    fn computed(
        &mut self,
        opcode: &str,
        modifier: &str,
        operands: &[Operand],
        span: Span,
        into: &mut Flat,
    ) -> Operand {
        let to = register(&self.scopes.fresh(Class::Double));
        let operands = std::iter::once(&to).chain(operands).cloned().collect();
        into.statements.push(instruction(opcode, &[modifier], operands, span));
        to
    }

    /// Appends an access, looked at like those of the text where these are.
    fn access(&mut self, mut access: Instruction, into: &mut Flat) -> Result<(), Reason> {
        if self.faults.checks() {
            self.check(&mut access, into)?;
        }
        self.checked(access, into)
    }

    /// Appends an instruction whose operands came from the text.
    pub(super) fn checked(&mut self, made: Instruction, into: &mut Flat) -> Result<(), Reason> {
        let row = table::check(&made)?;
        access::decode(row, &made)?;
        operands::check(row, &made)?;
        into.statements.push(Statement::Instruction(made));
        Ok(())
    }
}

fn not_a_token() -> Reason {
    Reason::Malformed("a token of `mbarrier` is a 64-bit register".to_owned())
}

fn integer(value: i128) -> Operand {
    Operand::Integer(value)
}
