//! What calls of functions that are under way save on the stack: the registers that are written in such functions and
//! needed behind the call.

use std::collections::BTreeSet;

use crate::ast::{Address, AddressBase, Instruction, Operand, Span, Statement};
use crate::confine::calls::Budget;
use crate::confine::frames::{self, FITS, REGION, RESTORE, RETURN, SAVE, Stack, jump};
use crate::confine::lines::{instruction, register};
use crate::confine::scope::Scopes;
use crate::limits::STACK_BYTES;
use crate::maps::HashMap;
use crate::names::{Class, WIDEST_ACCESS};
use crate::report::{Reason, Report};
use crate::table;

/// What frames begin at a multiple of.
const ALIGN: u64 = WIDEST_ACCESS;
/// Sets of registers together, in words of 64 bits.
const WORDS_MAX: usize = 1 << 22;

/// Registers by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn of(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn word(&mut self, number: usize) -> Option<(&mut u64, u64)> {
        Some((self.0.get_mut(number / 64)?, 1 << (number % 64)))
    }

    fn insert(&mut self, number: usize) {
        if let Some((word, bit)) = self.word(number) {
            *word |= bit;
        }
    }

    fn remove(&mut self, number: usize) {
        if let Some((word, bit)) = self.word(number) {
            *word &= !bit;
        }
    }

    fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn add(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    fn keep(&mut self, other: &Self) {
        for (word, kept) in self.0.iter_mut().zip(&other.0) {
            *word &= kept;
        }
    }
}

/// Writes the stack of a flat body whose arguments are in registers.
pub(super) fn lower(
    statements: Vec<Statement>,
    stack: Option<&Stack>,
    scopes: &mut Scopes,
    budget: &mut Budget,
    report: &mut Report,
) -> Vec<Statement> {
    let Some(stack) = stack else { return statements };
    let statements = returns(statements, stack, scopes);
    let saved = match Liveness::of(&statements, stack).and_then(|liveness| liveness.saved(budget)) {
        Ok(saved) => saved,
        Err(reason) => {
            report.add(Span::WHOLE, reason);
            return Vec::new();
        }
    };
    let carries = statements.iter().any(writes_carry);
    let frame = stack.frame.next_multiple_of(ALIGN);
    let frames: Vec<Frame> = saved.into_iter().map(|registers| Frame::of(registers, frame)).collect();
    let mut lowered = Vec::with_capacity(statements.len());
    for statement in statements {
        let Some((line, call)) = own(&statement) else {
            lowered.push(statement);
            continue;
        };
        let Some(saved) = frames.get(call).filter(|_| line.opcode != REGION) else { continue };
        if !budget.takes(2 * saved.registers.len() + 8) {
            report.add(line.span, Reason::Limit { what: "statements", most: budget.most() as u64 });
            return Vec::new();
        }
        match line.opcode.as_str() {
            FITS => lowered.push(saved.fits(line, stack, report)),
            SAVE => saved.save(stack, scopes, line.span, &mut lowered),
            _ => {
                saved.restore(stack, scopes, line.span, &mut lowered);
                if carries {
                    // No call keeps the flag, which the verifier takes for written wherever it goes back to.
                    let none = register(&scopes.fresh(Class::Word));
                    let operands = vec![none, Operand::Integer(0), Operand::Integer(0)];
                    lowered.push(instruction("add", &["cc", "u32"], operands, line.span));
                }
            }
        }
    }
    lowered
}

fn writes_carry(statement: &Statement) -> bool {
    matches!(statement, Statement::Instruction(found) if found.modifiers.iter().any(|word| word == "cc"))
}

/// A line that stands for others, and its number.
fn own(statement: &Statement) -> Option<(&Instruction, usize)> {
    let Statement::Instruction(line) = statement else { return None };
    let named = matches!(line.opcode.as_str(), REGION | SAVE | RESTORE | FITS | RETURN);
    match line.operands.last() {
        Some(Operand::Integer(number)) if named => Some((line, usize::try_from(*number).ok()?)),
        _ => None,
    }
}

/// Writes where bodies return to.
fn returns(statements: Vec<Statement>, stack: &Stack, scopes: &mut Scopes) -> Vec<Statement> {
    let mut written = Vec::with_capacity(statements.len());
    for statement in statements {
        let body = own(&statement).filter(|(line, _)| line.opcode == RETURN);
        let Some((line, body)) = body.and_then(|(line, index)| Some((line, stack.bodies.get(index)?))) else {
            written.push(statement);
            continue;
        };
        for (label, which) in body.sites.iter().zip(1..) {
            let here = scopes.fresh(Class::Predicate);
            let operands = vec![register(&here), register(&body.site), Operand::Integer(which)];
            written.push(instruction("setp", &["eq", "s32"], operands, line.span));
            written.push(jump(label, Some(&here), line.span));
        }
    }
    written
}

/// Which registers are needed where.
struct Liveness<'a> {
    statements: &'a [Statement],
    /// Where stretches without a label or branch inside begin.
    begins: Vec<usize>,
    labels: HashMap<&'a str, usize>,
    /// The registers that functions write that may be under way several times.
    numbers: HashMap<&'a str, usize>,
    names: Vec<&'a str>,
    /// What comes out of each call.
    returned: Vec<Set>,
}

impl<'a> Liveness<'a> {
    fn of(statements: &'a [Statement], stack: &'a Stack) -> Result<Self, Reason> {
        let mut numbers: HashMap<&str, usize> = HashMap::default();
        let mut names = Vec::new();
        let mut inside = false;
        let mut starts: BTreeSet<usize> = BTreeSet::from([0]);
        let mut at_label = HashMap::default();
        for (at, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Label(name, _) => {
                    at_label.insert(name.as_str(), at);
                    starts.insert(at);
                }
                Statement::Instruction(line) => {
                    if line.opcode == REGION {
                        inside = line.operands == [Operand::Integer(1)];
                    }
                    let mut note = |name: &'a str| {
                        if inside && Class::parse(name).is_some() && name != stack.pointer {
                            numbers.entry(name).or_insert_with(|| {
                                names.push(name);
                                names.len() - 1
                            });
                        }
                    };
                    match table::row_of(line) {
                        Some(row) => {
                            table::written(row, line, &mut note);
                            if table::target(row, line).is_some() || table::ends_path(row, line) {
                                starts.insert(at + 1);
                            }
                        }
                        None => line.operands.iter().for_each(|operand| table::each(operand, &mut note)),
                    }
                }
                Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
            }
        }
        starts.insert(statements.len());
        let begins: Vec<usize> = starts.into_iter().collect();
        let labels = at_label
            .into_iter()
            .filter_map(|(name, at)| Some((name, begins.binary_search(&at).ok()?)))
            .collect();
        if (begins.len() + stack.calls) * names.len().div_ceil(64) > WORDS_MAX {
            return Err(Reason::NotImplemented { what: "recursion in so long an entry".to_owned() });
        }
        let returned = vec![Set::of(names.len()); stack.calls];
        let mut liveness = Self { statements, begins, labels, numbers, names, returned };
        liveness.find_returned();
        Ok(liveness)
    }

    /// What is written between the label where a call goes on and where it restores.
    fn find_returned(&mut self) {
        let mut since: Vec<usize> = Vec::new();
        for statement in self.statements {
            match statement {
                Statement::Label(..) => since.clear(),
                Statement::Instruction(line) => match (own(statement), table::row_of(line)) {
                    (Some((line, call)), _) if line.opcode == RESTORE => {
                        for number in since.drain(..) {
                            if let Some(set) = self.returned.get_mut(call) {
                                set.insert(number);
                            }
                        }
                    }
                    (_, Some(row)) => table::written(row, line, &mut |name| {
                        since.extend(self.numbers.get(name));
                    }),
                    _ => {}
                },
                Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
            }
        }
    }

    /// The registers that each call saves.
    fn saved(&self, budget: &mut Budget) -> Result<Vec<Vec<String>>, Reason> {
        let count = self.names.len();
        let stretches = self.begins.len().saturating_sub(1);
        let mut live = vec![Set::of(count); stretches + 1];
        let mut saved = vec![Set::of(count); self.returned.len()];
        let mut changed = true;
        while changed {
            changed = false;
            if !budget.tries(self.statements.len()) {
                return Err(Reason::NotImplemented { what: "recursion in so long an entry".to_owned() });
            }
            for stretch in (0..stretches).rev() {
                let now = self.before(stretch, &live, &mut saved, &mut changed);
                if let Some(known) = live.get_mut(stretch).filter(|known| **known != now) {
                    *known = now;
                    changed = true;
                }
            }
        }
        let names = |set: &Set| {
            let numbers = (0..count).filter(|number| set.contains(*number));
            numbers.filter_map(|number| Some((*self.names.get(number)?).to_owned())).collect()
        };
        Ok(saved.iter().map(names).collect())
    }

    /// What is needed before a stretch.
    fn before(&self, stretch: usize, live: &[Set], saved: &mut [Set], changed: &mut bool) -> Set {
        let range = [stretch, stretch + 1].map(|at| self.begins.get(at).copied().unwrap_or_default());
        let statements = self.statements.get(range[0]..range[1]).unwrap_or_default();
        let mut needed = Set::of(self.names.len());
        let end = match statements.last() {
            Some(Statement::Instruction(last)) => table::row_of(last).map(|row| (row, last)),
            _ => None,
        };
        if end.is_none_or(|(row, last)| !table::ends_path(row, last))
            && let Some(next) = live.get(stretch + 1)
        {
            needed.add(next);
        }
        if let Some(next) = end.and_then(|(row, last)| table::target(row, last))
            && let Some(next) = self.labels.get(next).and_then(|next| live.get(*next))
        {
            needed.add(next);
        }
        for statement in statements.iter().rev() {
            let Statement::Instruction(line) = statement else { continue };
            if let Some((line, call)) = own(statement) {
                self.own_line(line, call, &mut needed, saved, changed);
                continue;
            }
            let Some(row) = table::row_of(line) else { continue };
            let (mut reads, mut writes) = (Vec::new(), Vec::new());
            table::registers(row, line, &mut |name| reads.push(name), &mut |name| writes.push(name));
            if line.predicate.is_none() {
                writes
                    .iter()
                    .filter_map(|name| self.numbers.get(name))
                    .for_each(|number| needed.remove(*number));
            }
            reads.iter().filter_map(|name| self.numbers.get(name)).for_each(|number| needed.insert(*number));
        }
        needed
    }

    fn own_line(
        &self,
        line: &Instruction,
        call: usize,
        needed: &mut Set,
        saved: &mut [Set],
        changed: &mut bool,
    ) {
        let (Some(saved), Some(returned)) = (saved.get_mut(call), self.returned.get(call)) else { return };
        match line.opcode.as_str() {
            RESTORE => {
                let mut more = needed.clone();
                (0..self.names.len())
                    .filter(|number| returned.contains(*number))
                    .for_each(|at| more.remove(at));
                more.add(saved);
                if more != *saved {
                    *saved = more;
                    *changed = true;
                }
                // All others are restored.
                needed.keep(returned);
            }
            SAVE => needed.add(saved),
            FITS => line.operands.iter().for_each(|operand| {
                table::each(operand, &mut |name| {
                    if let Some(number) = self.numbers.get(name) {
                        needed.remove(*number);
                    }
                });
            }),
            _ => {}
        }
    }
}

/// What a call saves, and where.
struct Frame {
    /// Each with its class and where it is.
    registers: Vec<Saved>,
    /// Bytes from one frame to the next.
    bytes: u64,
    /// Bytes of variables of each.
    variables: u64,
}

struct Saved {
    name: String,
    class: Class,
    offset: u64,
}

/// Bytes that a register takes.
const fn bytes(class: Class) -> u64 {
    match class {
        Class::Double => 8,
        Class::Word | Class::Predicate => 4,
        Class::Half => 2,
    }
}

impl Frame {
    fn of(registers: Vec<String>, variables: u64) -> Self {
        let classed = registers.into_iter().filter_map(|name| Some((Class::parse(&name)?.0, name)));
        let mut classed: Vec<(Class, String)> = classed.collect();
        classed.sort_by_key(|(class, _)| std::cmp::Reverse(bytes(*class)));
        let mut at = variables;
        let mut registers = Vec::with_capacity(classed.len());
        for (class, name) in classed {
            registers.push(Saved { name, class, offset: at });
            at += bytes(class);
        }
        Self { registers, bytes: at.next_multiple_of(ALIGN), variables }
    }

    /// There is room for this frame and the variables of the next.
    fn fits(&self, line: &Instruction, stack: &Stack, report: &mut Report) -> Statement {
        let room = STACK_BYTES.checked_sub(self.bytes + self.variables);
        if room.is_none() {
            let what = "bytes of a frame of a function that calls itself";
            report.add(line.span, Reason::Limit { what, most: STACK_BYTES });
        }
        let fits = line.operands.first().cloned().unwrap_or(Operand::Sink);
        let operands =
            vec![fits, register(&stack.pointer), Operand::Integer(room.unwrap_or_default().into())];
        instruction("setp", &["le", "u32"], operands, line.span)
    }

    fn address(&self, stack: &Stack, scopes: &mut Scopes, span: Span, into: &mut Vec<Statement>) -> String {
        let [at, between] = [Class::Double; 2].map(|class| scopes.fresh(class));
        if !self.registers.is_empty() {
            into.extend(frames::address(stack, 0, [&at, &between], span));
        }
        at
    }

    fn moves(&self, stack: &Stack, by: i128, span: Span) -> Statement {
        let pointer = || register(&stack.pointer);
        let bytes = Operand::Integer(by * i128::from(self.bytes));
        instruction("add", &["s32"], vec![pointer(), pointer(), bytes], span)
    }

    fn save(&self, stack: &Stack, scopes: &mut Scopes, span: Span, into: &mut Vec<Statement>) {
        let at = self.address(stack, scopes, span, into);
        for Saved { name, class, offset } in &self.registers {
            let mut value = register(name);
            if *class == Class::Predicate {
                value = register(&scopes.fresh(Class::Word));
                let [yes, no] = [1, 0].map(Operand::Integer);
                into.push(instruction("selp", &["b32"], vec![value.clone(), yes, no, register(name)], span));
            }
            let ty = format!("b{}", 8 * bytes(*class));
            into.push(instruction("st", &["local", &ty], vec![place(&at, *offset), value], span));
        }
        into.push(self.moves(stack, 1, span));
    }

    fn restore(&self, stack: &Stack, scopes: &mut Scopes, span: Span, into: &mut Vec<Statement>) {
        into.push(self.moves(stack, -1, span));
        let at = self.address(stack, scopes, span, into);
        for Saved { name, class, offset } in &self.registers {
            let is_predicate = *class == Class::Predicate;
            let value = register(&if is_predicate { scopes.fresh(Class::Word) } else { name.clone() });
            let ty = format!("b{}", 8 * bytes(*class));
            into.push(instruction("ld", &["local", &ty], vec![value.clone(), place(&at, *offset)], span));
            if is_predicate {
                let operands = vec![register(name), value, Operand::Integer(0)];
                into.push(instruction("setp", &["ne", "s32"], operands, span));
            }
        }
    }
}

fn place(base: &str, offset: u64) -> Operand {
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    Operand::Address(Address { base: AddressBase::Register(base.to_owned()), offset })
}
