//! Barriers of the block that count threads become words that atomic operations count on.
//!
//! The device's own let a thread wait for arrivals that never come, and nothing ends a thread there. A word that is
//! waited for in a loop is polled like any other. All that this writes is PTX that a tenant might have written, but for
//! [`meets::WHOLE`]; what confines it comes after, and the verifier knows only barrier 0 without a count.
//!
//! A barrier without a count is for all threads of the block, and ends with them: where such have other numbers they are
//! barrier 0, since nobody passes one of them while others wait at another. A barrier with a count is a word of a shared
//! variable, also where its number is 0.
//!
//! | Bits | What they hold |
//! |---|---|
//! | 0 to 15 | how many threads have arrived in this phase, whole warps at a time |
//! | 16 to 31 | how many phases are over |
//!
//! All lanes that are left of a warp come to a barrier together, or threads end ([`meets`]). One of them arrives for the
//! warp and waits; the others wait for it. Whoever arrives last takes the count of a phase away and adds a phase, in one
//! addition. Arrivals in between, of the next phases, are seen by the count that they find.
//!
//! A thread that leaves a record and ends, where the device would end the kernel, says so in one more word: whoever waits
//! ends too, as it may be the one that is waited for.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::access;
use crate::ast::{
    Address, AddressBase, Directive, Instruction, Linkage, Operand, Predicate, Space, Span, Statement, Type,
    Variable,
};
use crate::confine::flatten::{Flat, Flattener};
use crate::confine::lines::{instruction, plain, register};
use crate::confine::meets;
use crate::confine::scope::Meaning;
use crate::confine::variables::Owner;
use crate::names::{self, Class, WIDEST_ACCESS};
use crate::operands;
use crate::report::Reason;
use crate::table;

/// Barriers of a block.
const BARRIERS: u64 = 16;
/// Where the number of phases lies in a word.
const PHASE_SHIFT: i128 = 16;
/// Which of the words says whether threads have ended that others may wait for.
const GONE: Operand = Operand::Integer(16);
/// What a word counts of arrivals.
const COUNT_MASK: i128 = (1 << PHASE_SHIFT) - 1;
/// Arrivals of a warp.
const WARP: i128 = 32;

/// The barriers of a block, by number; then whether threads have ended that others may wait for.
static WORDS: LazyLock<Variable> = LazyLock::new(|| variable("bulkhead_barriers", BARRIERS + 4));
/// How many threads of those that have come to a barrier that reduces have what it counts.
static SUMS: LazyLock<Variable> = LazyLock::new(|| variable("bulkhead_barrier_sums", BARRIERS));

fn variable(name: &str, words: u64) -> Variable {
    Variable {
        linkage: Linkage::Internal,
        space: Space::Shared,
        align: u32::try_from(WIDEST_ACCESS).ok(),
        vector: 1,
        ty: Type::B32,
        name: name.to_owned(),
        dimensions: vec![words],
        range: None,
        pointer: None,
        initializer: Vec::new(),
        attributes: Vec::new(),
        span: Span::default(),
    }
}

/// What a barrier reduces to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reduction {
    Count,
    Any,
    All,
}

/// What comes of a barrier besides arriving at it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Action<'a> {
    Arrive,
    Wait,
    /// Tells something of the threads for which a predicate holds.
    Reduce {
        how: Reduction,
        to: &'a Operand,
        of: &'a Operand,
    },
}

/// A barrier of the block.
#[derive(Debug, Clone, Copy)]
struct Barrier<'a> {
    action: Action<'a>,
    /// Its number.
    number: &'a Operand,
    /// How many threads it waits for; all, where there is none.
    count: Option<&'a Operand>,
}

impl<'a> Barrier<'a> {
    /// What is not one, or not of the block, is for others to look at.
    fn of(found: &'a Instruction) -> Option<Self> {
        if !matches!(found.opcode.as_str(), "bar" | "barrier") {
            return None;
        }
        let words = found.modifiers.iter().map(String::as_str);
        let words: Vec<&str> = words.filter(|word| !matches!(*word, "cta" | "aligned")).collect();
        let counted = |count: &'a Operand| Some(count).filter(|count| **count != Operand::Integer(0));
        let (action, number, count) = match (words.as_slice(), found.operands.as_slice()) {
            (["sync"], [number]) => (Action::Wait, number, None),
            (["sync"], [number, count]) => (Action::Wait, number, counted(count)),
            (["arrive"], [number, count]) => (Action::Arrive, number, Some(count)),
            (["red", how, ty], [to, number, rest @ .., of]) if rest.len() <= 1 => {
                let how = match (*how, *ty) {
                    ("popc", "u32") => Reduction::Count,
                    ("or", "pred") => Reduction::Any,
                    ("and", "pred") => Reduction::All,
                    _ => return None,
                };
                (Action::Reduce { how, to, of }, number, rest.first().and_then(counted))
            }
            _ => return None,
        };
        Some(Self { action, number, count })
    }
}

/// Where a barrier that counts lies.
#[derive(Debug, Clone)]
struct Place {
    word: Operand,
    /// Where it adds up what it reduces; none where it does not.
    sum: Option<Operand>,
    /// How many threads it waits for.
    count: Operand,
}

impl<'a> Flattener<'a> {
    /// Writes what a barrier of the block does; answers the instruction that is left to write, where it is the device's.
    pub(super) fn barrier(
        &mut self,
        found: &'a Instruction,
        into: &mut Flat,
    ) -> Result<Option<Cow<'a, Instruction>>, Reason> {
        let Some(barrier) = Barrier::of(found) else { return Ok(Some(Cow::Borrowed(found))) };
        let number = self.operand(barrier.number)?;
        match &number {
            Operand::Integer(number) if (0..i128::from(BARRIERS)).contains(number) => {}
            Operand::Register(_) if is_of(&number, Class::Word) => {}
            _ => return Err(Reason::Malformed("the number of a barrier is one of 0 to 15".to_owned())),
        }
        let Some(count) = barrier.count else {
            let mut of_all = found.clone();
            of_all.operands = match barrier.action {
                Action::Arrive | Action::Wait => vec![Operand::Integer(0)],
                Action::Reduce { to, of, .. } => vec![to.clone(), Operand::Integer(0), of.clone()],
            };
            return Ok(Some(Cow::Owned(of_all)));
        };
        let before = into.statements.len();
        let skip = match &found.predicate {
            None => None,
            Some(predicate) => Some(self.skip_unless(predicate, found.span, into)?),
        };
        let done = self.counted_barrier(barrier.action, &number, count, found.span, into);
        into.statements.extend(skip.map(|label| Statement::Label(label, found.span)));
        if !self.budget.takes(into.statements.len() - before) {
            let what = "statements that barriers with a count become";
            return Err(Reason::Limit { what, most: self.budget.most() as u64 });
        }
        done.map(|()| None)
    }

    fn counted_barrier(
        &mut self,
        action: Action<'a>,
        number: &Operand,
        count: &Operand,
        span: Span,
        into: &mut Flat,
    ) -> Result<(), Reason> {
        if let Action::Reduce { how, to, of } = action {
            let class = if how == Reduction::Count { Class::Word } else { Class::Predicate };
            let (to, of) = (self.operand(to)?, self.operand(of)?);
            if !(is_of(&to, class) && is_of(&of, Class::Predicate)) {
                return Err(Reason::Malformed("such a result or predicate of a barrier".to_owned()));
            }
        }
        let count = self.operand(count)?;
        let word = self.place_of(&WORDS, number, span, into)?;
        let sum = match action {
            Action::Reduce { .. } => Some(self.place_of(&SUMS, number, span, into)?),
            Action::Arrive | Action::Wait => None,
        };
        // One lane arrives for all of its warp.
        meet(span, into);
        let lanes = self.voted(Operand::Integer(1), span, into)?;
        let held = match action {
            Action::Reduce { how, of, .. } => {
                let of = match (how, self.operand(of)?) {
                    (Reduction::All, Operand::Register(name)) => Operand::Not(name),
                    (Reduction::All, Operand::Not(name)) => Operand::Register(name),
                    (_, of) => of,
                };
                let held = self.voted(of, span, into)?;
                Some(self.word("popc", &["b32"], &[held], span, into))
            }
            Action::Arrive | Action::Wait => None,
        };
        let before = self.word("mov", &["u32"], &[register("%lanemask_lt")], span, into);
        let before = self.word("and", &["b32"], &[before, lanes], span, into);
        let follows = self.test("ne", "s32", before, Operand::Integer(0), span, into);
        let done = self.scopes.fresh_label();
        branch(&done, &follows, span, into);
        let count = self.threads(&count, span, into)?;
        let place = Place { word, sum, count };
        if let (Some(sum), Some(held)) = (&place.sum, held) {
            let words = ["relaxed", "cta", "shared", "add", "u32"];
            self.made(plain("red", &words, vec![sum.clone(), held], span), into)?;
        }
        self.arrive_at(&place, (action != Action::Arrive).then_some(done.as_str()), false, span, into)?;
        into.statements.push(Statement::Label(done, span));
        let Action::Reduce { how, to, .. } = action else {
            if action == Action::Wait {
                meet(span, into);
            }
            return Ok(());
        };
        meet(span, into);
        let all = register(&self.scopes.fresh(Class::Word));
        if let Some(sum) = &place.sum {
            let words = ["relaxed", "cta", "shared", "u32"];
            self.made(plain("ld", &words, vec![all.clone(), sum.clone()], span), into)?;
        }
        let to = self.operand(to)?;
        let result = match how {
            Reduction::Count => plain("mov", &["u32"], vec![to, all], span),
            Reduction::Any => plain("setp", &["ne", "u32"], vec![to, all, Operand::Integer(0)], span),
            Reduction::All => plain("setp", &["eq", "u32"], vec![to, all, Operand::Integer(0)], span),
        };
        self.made(result, into)?;
        // Once more, when all have read the sum: the last of them makes it 0.
        meet(span, into);
        let done = self.scopes.fresh_label();
        branch(&done, &follows, span, into);
        self.arrive_at(&place, Some(&done), true, span, into)?;
        into.statements.push(Statement::Label(done, span));
        meet(span, into);
        Ok(())
    }

    /// A warp arrives. Where others are to come yet it waits for them; whoever is last goes to `done` at once. Where nobody
    /// waits there is none.
    fn arrive_at(
        &mut self,
        place: &Place,
        done: Option<&str>,
        clears: bool,
        span: Span,
        into: &mut Flat,
    ) -> Result<(), Reason> {
        let integer = Operand::Integer;
        let Place { word, sum, count } = place;
        let add = |to: Operand, by: Operand| {
            plain("atom", &["acq_rel", "cta", "shared", "add", "u32"], vec![to, word.clone(), by], span)
        };
        let fresh = |flattener: &mut Self| register(&flattener.scopes.fresh(Class::Word));
        let found = fresh(self);
        self.made(add(found.clone(), integer(WARP)), into)?;
        let arrived = self.word("and", &["b32"], &[found.clone(), integer(COUNT_MASK)], span, into);
        let phase = self.word("shr", &["u32"], &[found, integer(PHASE_SHIFT)], span, into);
        // Where phases are full whose last has not said so yet, this arrival is of a later one.
        let is_of_this = self.test("lt", "u32", arrived.clone(), count.clone(), span, into);
        let of_this = self.scopes.fresh_label();
        branch(&of_this, &is_of_this, span, into);
        let full = self.word("div", &["u32"], &[arrived.clone(), count.clone()], span, into);
        let all = self.word("mul", &["lo", "s32"], &[full.clone(), count.clone()], span, into);
        let mut put = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| {
            into.statements.push(instruction(opcode, modifiers, operands, span));
        };
        put("sub", &["s32"], vec![arrived.clone(), arrived.clone(), all]);
        put("add", &["s32"], vec![phase.clone(), phase.clone(), full]);
        put("and", &["b32"], vec![phase.clone(), phase.clone(), integer(COUNT_MASK)]);
        into.statements.push(Statement::Label(of_this, span));
        let arrived = self.word("add", &["s32"], &[arrived, integer(WARP)], span, into);
        let is_early = self.test("lt", "u32", arrived, count.clone(), span, into);
        let (early, behind) = (self.scopes.fresh_label(), self.scopes.fresh_label());
        branch(&early, &is_early, span, into);
        if let Some(sum) = sum.as_ref().filter(|_| clears) {
            let words = ["relaxed", "cta", "shared", "u32"];
            self.made(plain("st", &words, vec![sum.clone(), integer(0)], span), into)?;
        }
        let next = self.word("sub", &["s32"], &[integer(1 << PHASE_SHIFT), count.clone()], span, into);
        let unused = fresh(self);
        self.made(add(unused, next), into)?;
        if let Some(done) = done {
            into.statements.push(instruction("bra", &[], vec![Operand::Symbol(done.to_owned())], span));
        }
        into.statements.push(Statement::Label(early, span));
        if done.is_some() {
            into.statements.push(Statement::Label(behind.clone(), span));
            let (name, operands) = (".pragma".to_owned(), vec![names::NOUNROLL.to_owned()]);
            into.statements.push(Statement::Directive(Directive { name, operands, span }));
            let now = fresh(self);
            let words = ["acquire", "cta", "shared", "u32"];
            self.made(plain("ld", &words, vec![now.clone(), word.clone()], span), into)?;
            let now = self.word("shr", &["u32"], &[now, integer(PHASE_SHIFT)], span, into);
            // Which may be later than the one that the word has, but not by half of all that there are.
            let ahead = self.word("sub", &["s32"], &[phase, now], span, into);
            let ahead = self.word("shl", &["b32"], &[ahead, integer(PHASE_SHIFT)], span, into);
            let waits = self.test("ge", "s32", ahead, integer(0), span, into);
            let gone = fresh(self);
            let ended = self.place_of(&WORDS, &GONE, span, into)?;
            self.made(
                plain("ld", &["relaxed", "cta", "shared", "u32"], vec![gone.clone(), ended], span),
                into,
            )?;
            let mut exit = plain("exit", &[], Vec::new(), span);
            exit.predicate = where_it_holds(&self.test("ne", "s32", gone, integer(0), span, into));
            self.made(exit, into)?;
            branch(&behind, &waits, span, into);
        }
        Ok(())
    }

    /// Has threads that leave records say that they end, where others may wait for them at barriers. Those ends are ours, and
    /// have no place in the text.
    pub(super) fn leave_barriers(&mut self, flat: &mut Flat) -> Result<(), Reason> {
        if !self.variables.has(&WORDS) {
            return Ok(());
        }
        let mut told = Flat::default();
        for statement in std::mem::take(&mut flat.statements) {
            if let Statement::Instruction(found) = &statement
                && found.opcode == "exit"
                && found.span.place.line == 0
            {
                let ended = self.place_of(&WORDS, &GONE, found.span, &mut told)?;
                let one = self.word("mov", &["u32"], &[Operand::Integer(1)], found.span, &mut told);
                let words = ["relaxed", "cta", "shared", "u32"];
                let tells = plain("st", &words, vec![ended, one], found.span);
                self.made(Instruction { predicate: found.predicate.clone(), ..tells }, &mut told)?;
            }
            told.statements.push(statement);
        }
        *flat = told;
        Ok(())
    }

    /// The address of a barrier's word in one of our variables. Registers may hold any number.
    fn place_of(
        &mut self,
        of: &'static Variable,
        number: &Operand,
        span: Span,
        into: &mut Flat,
    ) -> Result<Operand, Reason> {
        let elsewhere = |name: &str| self.symbols.contains(name) || self.parameters.contains_key(name);
        let (meaning, placed) = self.variables.place(Owner::Function, of, elsewhere)?;
        placed?;
        let Meaning::Variable(name, _) = meaning else {
            return Err(Reason::Malformed("barriers without a place".to_owned()));
        };
        if let Operand::Integer(number) = number {
            let offset = i64::try_from(*number).unwrap_or(0).saturating_mul(4);
            return Ok(Operand::Address(Address { base: AddressBase::Symbol(name), offset }));
        }
        let last = Operand::Integer(i128::from(BARRIERS) - 1);
        let at = self.word("and", &["b32"], &[number.clone(), last], span, into);
        let at = self.word("shl", &["b32"], &[at, Operand::Integer(2)], span, into);
        let first = self.word("mov", &["u32"], &[Operand::Symbol(name)], span, into);
        let at = self.word("add", &["s32"], &[first, at], span, into);
        let Operand::Register(at) = at else { return Ok(at) };
        Ok(Operand::Address(Address { base: AddressBase::Register(at), offset: 0 }))
    }

    /// How many threads a barrier waits for: whole warps. In a register 0 is all of the block.
    fn threads(&mut self, count: &Operand, span: Span, into: &mut Flat) -> Result<Operand, Reason> {
        let whole = |count: i128| (count + WARP - 1) / WARP * WARP;
        let name = match count {
            Operand::Integer(count) if (1..=COUNT_MASK / 2).contains(count) => {
                return Ok(Operand::Integer(whole(*count)));
            }
            Operand::Register(name) if is_of(count, Class::Word) => name,
            _ => return Err(Reason::Malformed("such a count of a barrier".to_owned())),
        };
        let read = |flattener: &mut Self, name: &str, into: &mut Flat| {
            flattener.word("mov", &["u32"], &[register(name)], span, into)
        };
        let (x, y, z) =
            (read(self, "%ntid.x", into), read(self, "%ntid.y", into), read(self, "%ntid.z", into));
        let all = self.word("mul", &["lo", "s32"], &[x, y], span, into);
        let all = self.word("mul", &["lo", "s32"], &[all, z], span, into);
        let is_none = self.test("eq", "s32", register(name), Operand::Integer(0), span, into);
        let count = self.word("selp", &["b32"], &[all, register(name), is_none], span, into);
        let count = self.word("add", &["s32"], &[count, Operand::Integer(WARP - 1)], span, into);
        Ok(self.word("and", &["b32"], &[count, Operand::Integer(-WARP)], span, into))
    }

    /// The lanes for which something holds.
    fn voted(&mut self, of: Operand, span: Span, into: &mut Flat) -> Result<Operand, Reason> {
        let lanes = register(&self.scopes.fresh(Class::Word));
        let operands = vec![lanes.clone(), of, Operand::Integer(-1)];
        self.made(plain("vote", &["sync", "ballot", "b32"], operands, span), into)?;
        Ok(lanes)
    }

    /// A 32-bit register that holds what an instruction computes.
    fn word(
        &mut self,
        opcode: &str,
        modifiers: &[&str],
        operands: &[Operand],
        span: Span,
        into: &mut Flat,
    ) -> Operand {
        let to = register(&self.scopes.fresh(Class::Word));
        let operands = std::iter::once(&to).chain(operands).cloned().collect();
        into.statements.push(instruction(opcode, modifiers, operands, span));
        to
    }

    /// A predicate that holds what a comparison does.
    fn test(
        &mut self,
        order: &str,
        ty: &str,
        first: Operand,
        second: Operand,
        span: Span,
        into: &mut Flat,
    ) -> Operand {
        let to = register(&self.scopes.fresh(Class::Predicate));
        into.statements.push(instruction("setp", &[order, ty], vec![to.clone(), first, second], span));
        to
    }

    /// Appends an instruction of which something came from the text.
    fn made(&mut self, made: Instruction, into: &mut Flat) -> Result<(), Reason> {
        let row = table::check(&made)?;
        access::decode(row, &made)?;
        operands::check(row, &made)?;
        into.statements.push(Statement::Instruction(made));
        Ok(())
    }
}

/// All that are left of the warp are here, and see what the others of them wrote.
fn meet(span: Span, into: &mut Flat) {
    let modifiers = ["warp", "sync", meets::WHOLE];
    into.statements.push(instruction("bar", &modifiers, vec![Operand::Integer(-1)], span));
}

fn branch(label: &str, predicate: &Operand, span: Span, into: &mut Flat) {
    let mut branch = plain("bra", &[], vec![Operand::Symbol(label.to_owned())], span);
    branch.predicate = where_it_holds(predicate);
    into.statements.push(Statement::Instruction(branch));
}

fn where_it_holds(operand: &Operand) -> Option<Predicate> {
    let Operand::Register(name) = operand else { return None };
    Some(Predicate { register: name.clone(), negated: false })
}

/// Whether an operand is a register of a class; predicates may be negated.
fn is_of(operand: &Operand, class: Class) -> bool {
    match operand {
        Operand::Register(name) => matches!(Class::parse(name), Some((found, _)) if found == class),
        Operand::Not(name) => {
            class == Class::Predicate && matches!(Class::parse(name), Some((Class::Predicate, _)))
        }
        _ => false,
    }
}
