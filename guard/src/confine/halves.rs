//! Atomic operations on 16 bits become loops that compare and swap the word around them.
//!
//! A device has none. ptxas makes such loops itself, in which nothing looks whether the kernel is to end, and how often they
//! turn depends on what all other threads do. What is written here is PTX that a tenant might have written: what has its loop
//! look at the flag and what confines its accesses comes after, and the verifier knows no atomic operation on 16 bits.

use std::borrow::Cow;

use crate::ast::{
    Address, AddressBase, Function, Instruction, Item, Module, Operand, Predicate, Space, Span, Statement,
    Type, Variable,
};
use crate::confine::flatten::{Flat, Flattener};
use crate::confine::lines::{instruction, plain, register};
use crate::names::{self, Class};
use crate::report::Reason;
use crate::{access, operands, table};

/// What is done to the 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// A sum of this type.
    Add(&'static str),
    CompareSwap,
}

/// An operation as its modifiers say.
struct Update {
    action: Action,
    /// Where the memory is, as a modifier: none if the address is generic.
    space: Option<&'static str>,
    /// Order and scope.
    order: Vec<String>,
}

/// Whether an instruction is an atomic operation on 16 bits.
pub(super) fn is_one(instruction: &Instruction) -> bool {
    matches!(instruction.opcode.as_str(), "atom" | "red")
        && instruction.modifiers.last().is_some_and(|ty| matches!(ty.as_str(), "f16" | "bf16" | "b16"))
}

/// The bytes of the word that is read and swapped.
const WORD_BYTES: u64 = 4;

/// The module with whole words in its shared variables where it has such operations: the word around the last 16 bits of a
/// block's shared memory is the block's then. Dynamic shared memory is of whole words at every launch.
pub(super) fn with_whole_words(module: &Module) -> Cow<'_, Module> {
    let any = module.items.iter().any(|item| match item {
        Item::Function(Function { body: Some(body), .. }) => has_one(body),
        Item::Function(_) | Item::Variable(_) | Item::Section(_) | Item::Directive(_) => false,
    });
    if !any {
        return Cow::Borrowed(module);
    }
    let mut rewritten = module.clone();
    for item in &mut rewritten.items {
        match item {
            Item::Variable(variable) => round_up(variable),
            Item::Function(Function { body: Some(body), .. }) => round_all_up(body),
            Item::Function(_) | Item::Section(_) | Item::Directive(_) => {}
        }
    }
    Cow::Owned(rewritten)
}

/// Recursion is bounded by the parser's limit on braces.
fn has_one(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Instruction(instruction) => is_one(instruction),
        Statement::Block(inner, _) => has_one(inner),
        Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => false,
    })
}

/// Recursion is bounded by the parser's limit on braces.
fn round_all_up(body: &mut [Statement]) {
    for statement in body {
        match statement {
            Statement::Variable(variable) => round_up(variable),
            Statement::Block(inner, _) => round_all_up(inner),
            Statement::Instruction(_) | Statement::Label(..) | Statement::Directive(_) => {}
        }
    }
}

fn round_up(variable: &mut Variable) {
    let Some(bytes) = names::variable_bytes(variable).filter(|_| variable.space == Space::Shared) else {
        return;
    };
    let Some(whole) = bytes.checked_next_multiple_of(WORD_BYTES) else { return };
    if whole != bytes {
        variable.align = u32::try_from(names::variable_align(variable)).ok();
        (variable.ty, variable.vector) = (Type::B8, 1);
        variable.dimensions = vec![whole];
    }
}

fn decode(found: &Instruction) -> Result<Update, Reason> {
    let (mut action, mut space, mut order) = (None, None, Vec::new());
    let (mut name, mut keeps_subnormals) = (None, false);
    for word in &found.modifiers {
        let is_of = |words: &[&str]| words.contains(&word.as_str());
        let none_of = |words: &[&str]| !order.iter().any(|word: &String| words.contains(&word.as_str()));
        match word.as_str() {
            "add" | "cas" if name.is_none() => name = Some(word.as_str()),
            "global" if space.is_none() => space = Some("global"),
            "shared" | "shared::cta" if space.is_none() => space = Some("shared"),
            _ if (is_of(&ORDERS) && none_of(&ORDERS)) || (is_of(&SCOPES) && none_of(&SCOPES)) => {
                order.push(word.clone());
            }
            "noftz" if name == Some("add") && !keeps_subnormals => keeps_subnormals = true,
            "f16" if keeps_subnormals => action = Some(Action::Add("f16")),
            "bf16" if keeps_subnormals => action = Some(Action::Add("bf16")),
            "b16" if name == Some("cas") && found.opcode == "atom" => action = Some(Action::CompareSwap),
            _ => {
                return Err(Reason::NotImplemented { what: format!("`.{word}` of `{}`", found.opcode) });
            }
        }
    }
    let unknown = || Reason::NotImplemented { what: format!("this form of `{}`", found.opcode) };
    if found.opcode == "red" && order.iter().any(|word| matches!(word.as_str(), "acquire" | "acq_rel")) {
        return Err(unknown());
    }
    Ok(Update { action: action.ok_or_else(unknown)?, space, order })
}

const ORDERS: [&str; 4] = ["relaxed", "acquire", "release", "acq_rel"];
const SCOPES: [&str; 3] = ["cta", "gpu", "sys"];

impl Update {
    /// The modifiers that the word around is read with. Where nothing is swapped, this is all that was read.
    fn loads_as(&self) -> Vec<&str> {
        let has = |words: &[&str]| self.order.iter().any(|word| words.contains(&word.as_str()));
        let order = if has(&["acquire", "acq_rel"]) { "acquire" } else { "relaxed" };
        let scope = self.order.iter().map(String::as_str).find(|word| SCOPES.contains(word));
        [order, scope.unwrap_or("gpu")].into_iter().chain(self.space).chain(["b32"]).collect()
    }
}

/// All operands of 16 bits are.
fn check_halves(
    action: Action,
    to: &Operand,
    swapped: Option<&Operand>,
    value: &Operand,
) -> Result<(), Reason> {
    for operand in swapped.into_iter().chain([value]) {
        check_half(operand, action == Action::CompareSwap)?;
    }
    if *to == Operand::Sink { Ok(()) } else { check_half(to, false) }
}

/// A register of 16 bits, or a number where one may stand.
fn check_half(operand: &Operand, numbers: bool) -> Result<(), Reason> {
    let is_half = match operand {
        Operand::Register(name) => matches!(Class::parse(name), Some((Class::Half, _))),
        Operand::Integer(_) => numbers,
        _ => false,
    };
    if is_half {
        Ok(())
    } else {
        Err(Reason::Malformed("an atomic operation on 16 bits takes them".to_owned()))
    }
}

impl<'a> Flattener<'a> {
    /// Writes what an atomic operation on 16 bits does.
    pub(super) fn half_atomic(&mut self, found: &'a Instruction, into: &mut Flat) -> Result<(), Reason> {
        let before = into.statements.len();
        decode(found)?;
        let done = self.where_it_holds(found, into, Self::on_half);
        self.takes(into.statements.len() - before, "statements that atomic operations on 16 bits become")?;
        done
    }

    fn on_half(&mut self, found: &'a Instruction, into: &mut Flat) -> Result<(), Reason> {
        let update = decode(found)?;
        let span = found.span;
        let (to, rest) = match (found.opcode.as_str(), found.operands.split_first()) {
            ("atom", Some((to, rest))) => (self.operand(to)?, rest),
            _ => (Operand::Sink, found.operands.as_slice()),
        };
        let rest = rest.iter().map(|operand| self.operand(operand)).collect::<Result<Vec<_>, _>>()?;
        let (at, value, swapped) = match (update.action, rest.as_slice()) {
            (Action::Add(_), [at, value]) => (at, value, None),
            (Action::CompareSwap, [at, compared, value]) => (at, value, Some(compared)),
            _ => return Err(Reason::Malformed(format!("`{}` takes other operands", found.opcode))),
        };
        check_halves(update.action, &to, swapped, value)?;
        let (at, shift) = self.word_around(at, update.space, span, into)?;
        let fresh = |flattener: &mut Self, class| register(&flattener.scopes.fresh(class));
        let (old, now) = (fresh(self, Class::Word), fresh(self, Class::Word));
        let (part, wanted) = (fresh(self, Class::Word), fresh(self, Class::Word));
        let (half, sum) = (fresh(self, Class::Half), fresh(self, Class::Half));
        let failed = self.scopes.fresh(Class::Predicate);
        let space: Vec<&str> = update.space.into_iter().collect();
        let order = update.loads_as();
        self.accesses(plain("ld", &order, vec![old.clone(), at.clone()], span), into)?;
        let (again, done) = (self.scopes.fresh_label(), self.scopes.fresh_label());
        into.statements.push(Statement::Label(again.clone(), span));
        let mut push = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| {
            into.statements.push(instruction(opcode, modifiers, operands, span));
        };
        push("shr", &["u32"], vec![part.clone(), old.clone(), shift.clone()]);
        push("cvt", &["u16", "u32"], vec![half.clone(), part]);
        let mut leaves = false;
        let wants = match update.action {
            Action::Add(ty) => {
                self.checked(
                    plain("add", &["rn", ty], vec![sum.clone(), half.clone(), value.clone()], span),
                    into,
                )?;
                sum
            }
            Action::CompareSwap => {
                let operands = vec![register(&failed), half.clone(), swapped.unwrap_or(value).clone()];
                self.checked(plain("setp", &["ne", "s16"], operands, span), into)?;
                self.goes(&done, &failed, span, into);
                self.checked(plain("mov", &["b16"], vec![sum.clone(), value.clone()], span), into)?;
                leaves = true;
                sum
            }
        };
        let mut push = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| {
            into.statements.push(instruction(opcode, modifiers, operands, span));
        };
        push("cvt", &["u32", "u16"], vec![wanted.clone(), wants]);
        let bits = vec![wanted.clone(), wanted.clone(), old.clone(), shift, Operand::Integer(16)];
        push("bfi", &["b32"], bits);
        let order: Vec<&str> = update.order.iter().map(String::as_str).collect();
        let modifiers = [order.as_slice(), space.as_slice(), &["cas", "b32"]].concat();
        self.accesses(plain("atom", &modifiers, vec![now.clone(), at, old.clone(), wanted], span), into)?;
        let mut push = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| {
            into.statements.push(instruction(opcode, modifiers, operands, span));
        };
        push("setp", &["ne", "u32"], vec![register(&failed), now.clone(), old.clone()]);
        push("mov", &["b32"], vec![old, now]);
        self.goes(&again, &failed, span, into);
        if leaves {
            into.statements.push(Statement::Label(done, span));
        }
        match to {
            Operand::Sink => Ok(()),
            to => self.checked(plain("mov", &["b16"], vec![to, half], span), into),
        }
    }

    /// Appends an access. Where its address is generic, what confines it comes later.
    fn accesses(&mut self, access: Instruction, into: &mut Flat) -> Result<(), Reason> {
        let row = table::check(&access)?;
        if access::generic(row, &access).is_none() {
            return self.checked(access, into);
        }
        operands::check(row, &access)?;
        into.statements.push(Statement::Instruction(access));
        Ok(())
    }

    fn goes(&self, label: &str, predicate: &str, span: Span, into: &mut Flat) {
        let mut branch = plain("bra", &[], vec![Operand::Symbol(label.to_owned())], span);
        branch.predicate = Some(Predicate { register: predicate.to_owned(), negated: false });
        into.statements.push(Statement::Instruction(branch));
    }

    /// The address of the word that 16 bits lie in, and by how many bits they lie to the left in it.
    fn word_around(
        &mut self,
        at: &Operand,
        space: Option<&str>,
        span: Span,
        into: &mut Flat,
    ) -> Result<(Operand, Operand), Reason> {
        // What is looked at are the 16 bits.
        let unused = register(&self.scopes.fresh(Class::Half));
        let modifiers: Vec<&str> = space.into_iter().chain(["b16"]).collect();
        let mut probe = plain("st", &modifiers, vec![at.clone(), unused], span);
        if self.faults.checks() {
            self.check(&mut probe, into)?;
        }
        let Some(Operand::Address(Address { base, offset })) = probe.operands.first().cloned() else {
            return Err(Reason::Malformed("an atomic operation takes an address".to_owned()));
        };
        let is_word = match &base {
            AddressBase::Register(name) => match Class::parse(name) {
                Some((Class::Word, _)) => true,
                Some((Class::Double, _)) => false,
                _ => return Err(Reason::Malformed("an address has 32 or 64 bits".to_owned())),
            },
            AddressBase::Symbol(_) | AddressBase::Absolute => space == Some("shared"),
        };
        let (class, bits, signed) =
            if is_word { (Class::Word, "b32", "s32") } else { (Class::Double, "b64", "s64") };
        let from = match base {
            AddressBase::Register(name) => register(&name),
            AddressBase::Symbol(name) => {
                let named = register(&self.scopes.fresh(class));
                self.checked(plain("mov", &[bits], vec![named.clone(), Operand::Symbol(name)], span), into)?;
                named
            }
            AddressBase::Absolute => {
                let what = "an absolute address of an atomic operation".to_owned();
                return Err(Reason::NotImplemented { what });
            }
        };
        let (place, word) = (register(&self.scopes.fresh(class)), self.scopes.fresh(class));
        self.checked(
            plain("add", &[signed], vec![place.clone(), from, Operand::Integer(offset.into())], span),
            into,
        )?;
        let operands = vec![register(&word), place.clone(), Operand::Integer(-4)];
        into.statements.push(instruction("and", &[bits], operands, span));
        let shift = register(&self.scopes.fresh(Class::Word));
        let low = if is_word {
            plain("mov", &["b32"], vec![shift.clone(), place], span)
        } else {
            plain("cvt", &["u32", "u64"], vec![shift.clone(), place], span)
        };
        into.statements.push(Statement::Instruction(low));
        into.statements.push(instruction(
            "and",
            &["b32"],
            vec![shift.clone(), shift.clone(), Operand::Integer(2)],
            span,
        ));
        into.statements.push(instruction(
            "shl",
            &["b32"],
            vec![shift.clone(), shift.clone(), Operand::Integer(3)],
            span,
        ));
        Ok((Operand::Address(Address { base: AddressBase::Register(word), offset: 0 }), shift))
    }
}
