//! Generic accesses become accesses to a space.
//!
//! Where the space is known the access names it. Where it is not, the access is split: the address is tested,
//! and of up to three accesses, each in one space, the one runs whose space it is. All that this writes is PTX
//! that a tenant might have written: what confines it comes after, and the verifier needs no rule for it.

use crate::access;
use crate::ast::{Address, AddressBase, Instruction, Operand, Predicate, Space, Span, Spans, Statement};
use crate::confine::calls::Budget;
use crate::confine::lines::{instruction, register};
use crate::confine::origin::{self, Origins};
use crate::confine::scope::Scopes;
use crate::limits::SPLIT_COST;
use crate::names::Class;
use crate::report::{Reason, Report};
use crate::table::{self, Row, Treatment};

/// Gives every generic access of a flat body its space.
pub(super) fn resolve(
    statements: Vec<Statement>,
    scopes: &mut Scopes,
    budget: &mut Budget,
    report: &mut Report,
) -> Vec<Statement> {
    let generic =
        |statement: &Statement| matches!(statement, Statement::Instruction(found) if is_generic(found));
    let shared = statements.iter().any(|statement| makes_generic(statement, "shared"));
    let local = statements.iter().any(|statement| makes_generic(statement, "local"));
    let any = statements.iter().any(generic);
    let is_call = |statement: &Statement| matches!(statement, Statement::Instruction(found) if found.opcode == table::GATE);
    let gates = (shared || local) && statements.iter().any(is_call);
    if !any && !gates {
        return statements;
    }
    let origins = origin::find(&statements);
    given_to_gates(&statements, &origins, report);
    if !any {
        return statements;
    }
    let mut pass =
        Pass { origins, scopes, budget, shared, local, resolved: Vec::with_capacity(statements.len()) };
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) if is_generic(&instruction) => {
                let span = instruction.span;
                if let Err(reason) = pass.access(instruction) {
                    report.add(span, reason);
                }
                if pass.budget.is_exceeded() {
                    break;
                }
            }
            other => pass.resolved.push(other),
        }
    }
    pass.resolved
}

fn is_generic(instruction: &Instruction) -> bool {
    table::check(instruction).is_ok_and(|row| access::generic(row, instruction).is_some())
}

/// Whether a statement makes generic addresses of a space: without one no generic address can be of it.
fn makes_generic(statement: &Statement, space: &str) -> bool {
    let Statement::Instruction(instruction) = statement else { return false };
    let is =
        |word: &str| instruction.modifiers.iter().any(|modifier| modifier.split("::").next() == Some(word));
    instruction.opcode == "cvta" && is(space) && !is("to")
}

/// The rewriting of one body.
struct Pass<'a> {
    origins: Origins,
    scopes: &'a mut Scopes,
    budget: &'a mut Budget,
    /// Whether there are generic addresses of shared memory.
    shared: bool,
    /// Whether there are generic addresses of local memory.
    local: bool,
    resolved: Vec<Statement>,
}

impl Pass<'_> {
    fn access(&mut self, access: Instruction) -> Result<(), Reason> {
        let row = table::check(&access)?;
        let Some(index) = access::generic(row, &access) else { return Ok(()) };
        let Some(Operand::Address(address)) = access.operands.get(index).cloned() else { return Ok(()) };
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
        let updates = matches!(row.treatment, Treatment::Atomic | Treatment::Reduction);
        // Matrices lie where everybody of the warp sees them.
        let updates = updates || table::is_for_warps(row);
        if !row.memory_at(index).is_some_and(|memory| memory.permits("global")) {
            let address = self.convert(Space::Shared, base, address.offset, access.span);
            self.place(access, row, Space::Shared, address);
            return Ok(());
        }
        match self.origins.space(base) {
            Some(Space::Local) if updates => {
                let what = format!("`{}` in local memory", access.opcode);
                return Err(Reason::NotImplemented { what });
            }
            Some(space) => {
                let address = self.convert(space, base, address.offset, access.span);
                self.place(access, row, space, address);
            }
            None if !self.shared && (!self.local || updates) => {
                self.place(access, row, Space::Global, address);
            }
            None if !self.budget.takes(SPLIT_COST) => {
                let what = "accesses whose memory is not known";
                return Err(Reason::Limit { what, most: (self.budget.most() / SPLIT_COST) as u64 });
            }
            None => self.split(&access, row, base, address.offset),
        }
        Ok(())
    }

    /// Tests which space `base + offset` is of, and accesses that one.
    fn split(&mut self, access: &Instruction, row: &Row, base: &str, offset: i64) {
        let span = access.span;
        let at = if offset == 0 {
            base.to_owned()
        } else {
            let sum = self.scopes.fresh(Class::Double);
            let distance = Operand::Integer(i128::from(offset));
            self.push("add", &["s64"], vec![register(&sum), register(base), distance], span);
            sum
        };
        let updates = matches!(row.treatment, Treatment::Atomic | Treatment::Reduction);
        let updates = updates || table::is_for_warps(row);
        let mut spaces = Vec::new();
        for (space, word, there) in
            [(Space::Shared, "shared", self.shared), (Space::Local, "local", self.local && !updates)]
        {
            if there {
                let test = self.scopes.fresh(Class::Predicate);
                self.push("isspacep", &[word], vec![register(&test), register(&at)], span);
                spaces.push((space, test));
            }
        }
        let rest = self.scopes.fresh(Class::Predicate);
        let (result, mut tests) = (register(&rest), spaces.iter().map(|(_, test)| register(test)));
        let (first, second) = (tests.next(), tests.next());
        drop(tests);
        match (first, second) {
            (Some(first), Some(second)) => {
                self.push("or", &["pred"], vec![result.clone(), first, second], span);
                self.push("not", &["pred"], vec![result.clone(), result], span);
            }
            (first, _) => self.push("not", &["pred"], std::iter::once(result).chain(first).collect(), span),
        }
        spaces.push((Space::Global, rest));
        match &access.predicate {
            Some(predicate) => self.both(predicate, &spaces, span),
            None => self.clear(access, row),
        }
        for (space, test) in spaces {
            let address = self.convert(space, base, offset, span);
            let predicate = Some(Predicate { register: test, negated: false });
            self.place(Instruction { predicate, ..access.clone() }, row, space, address);
        }
    }

    /// Each test holds only where the access's own predicate does.
    fn both(&mut self, predicate: &Predicate, spaces: &[(Space, String)], span: Span) {
        let mut own = predicate.register.clone();
        if predicate.negated {
            let inverted = self.scopes.fresh(Class::Predicate);
            self.push("not", &["pred"], vec![register(&inverted), register(&own)], span);
            own = inverted;
        }
        for (_, test) in spaces {
            self.push("and", &["pred"], vec![register(test), register(test), register(&own)], span);
        }
    }

    /// Writes the destinations, which the accesses write under predicates: one of them will, but only we know
    /// that, and registers that may be read before they are written would be kept at zero from the entry on.
    fn clear(&mut self, access: &Instruction, row: &Row) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        table::registers(row, access, &mut |name| reads.push(name), &mut |name| writes.push(name));
        if writes.iter().any(|name| reads.contains(name)) {
            return;
        }
        for name in writes {
            if let Some((class, _)) = Class::parse(name) {
                let zero = vec![register(name), Operand::Integer(0)];
                self.push("mov", &[class.mov()], zero, access.span);
            }
        }
    }

    /// The address in its space.
    fn convert(&mut self, space: Space, base: &str, offset: i64, span: Span) -> Address {
        let word = match space {
            Space::Shared => "shared",
            Space::Local => "local",
            Space::Global | Space::Constant | Space::Parameter | Space::Register => {
                return Address { base: AddressBase::Register(base.to_owned()), offset };
            }
        };
        let inside = self.scopes.fresh(Class::Double);
        self.push("cvta", &["to", word, "u64"], vec![register(&inside), register(base)], span);
        Address { base: AddressBase::Register(inside), offset }
    }

    fn place(&mut self, access: Instruction, row: &Row, space: Space, address: Address) {
        self.resolved.push(Statement::Instruction(in_space(access, row, space, address)));
    }

    fn push(&mut self, opcode: &str, modifiers: &[&str], operands: Vec<Operand>, span: Span) {
        self.resolved.push(instruction(opcode, modifiers, operands, span));
    }
}

/// A generic access as one of a space.
pub(super) fn in_space(mut access: Instruction, row: &Row, space: Space, address: Address) -> Instruction {
    let word = match space {
        Space::Shared => "shared",
        Space::Local => "local",
        Space::Global | Space::Constant | Space::Parameter | Space::Register => "global",
    };
    // Nobody else sees local memory, and only global memory has caches to choose from.
    let keeps = |modifier: &String| match space {
        Space::Local => !access::is_ordering(modifier) && !access::is_caching(modifier),
        // No device has registers in shared memory.
        Space::Shared => !access::is_caching(modifier) && modifier != "mmio",
        Space::Global | Space::Constant | Space::Parameter | Space::Register => true,
    };
    let index = access::generic(row, &access).unwrap_or_default();
    access.modifiers.retain(keeps);
    let after = if table::is_for_warps(row) {
        access.modifiers.len().saturating_sub(1)
    } else {
        access.modifiers.iter().take_while(|modifier| access::is_ordering(modifier)).count()
    };
    access.modifiers.insert(after, word.to_owned());
    if let Some(operand) = access.operands.get_mut(index) {
        *operand = Operand::Address(address);
    }
    access.operand_spans = Spans::default();
    access
}

/// Gates reach global memory only: what is written by an address of a local or shared variable would be lost.
fn given_to_gates(statements: &[Statement], origins: &Origins, report: &mut Report) {
    for statement in statements {
        let Statement::Instruction(call) = statement else { continue };
        let Some(Operand::List(given)) = call.operands.get(2).filter(|_| call.opcode == table::GATE) else {
            continue;
        };
        for argument in given {
            let Operand::Register(name) = argument else { continue };
            let what = match origins.space(name) {
                Some(Space::Local) => "a local",
                Some(Space::Shared) => "a shared",
                _ => continue,
            };
            let what = format!(
                "the address of {what} variable as a gate's argument: gates reach global memory only"
            );
            report.add(call.span, Reason::NotImplemented { what });
        }
    }
}
